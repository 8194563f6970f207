"""FHIR resources in JSON and in XML, edited in place."""

from deid_agent.codec.fhir.codec import FhirCodec
from deid_agent.codec.fhir.dapl import DaplForm, DaplOptions
from deid_agent.codec.fhir.dapl_ages import find_ages
from deid_agent.codec.fhir.xml_codec import FhirXmlCodec
from deid_agent.codec.fhir.xml_types import FhirXmlTypes

__all__ = [
    "DaplForm",
    "DaplOptions",
    "FhirCodec",
    "FhirXmlCodec",
    "FhirXmlTypes",
    "find_ages",
]

"""FHIR resources in JSON and in XML, edited in place."""

from deid_agent.codec.fhir.codec import FhirCodec
from deid_agent.codec.fhir.xml_codec import FhirXmlCodec
from deid_agent.codec.fhir.xml_types import FhirXmlTypes

__all__ = [
    "FhirCodec",
    "FhirXmlCodec",
    "FhirXmlTypes",
]

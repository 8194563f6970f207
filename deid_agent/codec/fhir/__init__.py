"""FHIR resources in JSON and in XML, edited in place."""

from deid_agent.codec.fhir.codec import FhirCodec
from deid_agent.codec.fhir.resources import (
    LABELS,
    ResourceRange,
    insert_all,
    list_resources,
    list_targets,
    place_entry,
    place_labels,
)
from deid_agent.codec.fhir.xml_codec import FhirXmlCodec
from deid_agent.codec.fhir.xml_types import FhirXmlTypes

__all__ = [
    "LABELS",
    "FhirCodec",
    "FhirXmlCodec",
    "FhirXmlTypes",
    "ResourceRange",
    "insert_all",
    "list_resources",
    "list_targets",
    "place_entry",
    "place_labels",
]

"""FHIR JSON resources, edited in place."""

from deid_agent.codec.fhir.codec import FhirCodec

__all__ = [
    "FhirCodec",
]

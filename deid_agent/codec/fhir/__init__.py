"""FHIR JSON resources, lossless: see ``codec.py``."""

from deid_agent.codec.fhir.codec import FhirCodec

__all__ = ["FhirCodec"]

"""Streaming de-identification of HL7 v2 messages and FHIR resources."""

__version__ = "0.1.0"

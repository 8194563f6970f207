"""HL7 v2: every version, any separators, edited on the raw bytes and never written anew."""

from deid_agent.codec.hl7v2.codec import Hl7Codec

__all__ = ["Hl7Codec"]

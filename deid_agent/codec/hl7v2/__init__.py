"""HL7 v2, all versions and any separators; edits go into the raw bytes, a message is never serialized again."""

from deid_agent.codec.hl7v2.codec import Hl7Codec

__all__ = [
    "Hl7Codec",
]

"""HL7 v2, all versions and any separators, and its XML; edits go into the raw bytes, no message is serialized again."""

from deid_agent.codec.hl7v2.codec import Hl7Codec
from deid_agent.codec.hl7v2.xml_codec import Hl7XmlCodec

__all__ = [
    "Hl7Codec",
    "Hl7XmlCodec",
]

"""RTF documents, as they come in attachments."""

from deid_agent.codec.rtf.codec import RtfCodec

__all__ = [
    "RtfCodec",
]

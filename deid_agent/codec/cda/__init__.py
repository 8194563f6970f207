"""C-CDA documents and fragments of them."""

from deid_agent.codec.cda.codec import CdaCodec

__all__ = [
    "CdaCodec",
]

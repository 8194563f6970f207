"""The seam between message formats and everything above them."""

from collections.abc import Sequence
from typing import Protocol

from deid_agent.sites import Message, Narrative


class Codec(Protocol):
    """One message format: bytes in, the places that may hold PHI out. Built once, then never changed."""

    @property
    def name(self) -> str:
        """What configuration, logs and remarks call the format."""

    def detect(self, raw: bytes) -> bool:
        """True where ``raw`` looks like this format; cheap, never raises."""

    def parse(self, raw: bytes) -> Sequence[Message]:
        """The messages of one payload (a batch has several); their ``raw`` joined is ``raw``.

        Raises ``MessageError`` with MALFORMED, UNSUPPORTED or RESOURCE, and nothing else.
        """

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every text value of the payload, kept ones too: decoded, with its path, its map to bytes and its role.

        In byte order, one leaf a value; no two share a byte. Left out: encoded data of attachments, separators,
        tags, values of one character, and keys that the format's tables know. What the map can not rewrite alone
        is one leaf as a whole.
        The leak guard searches these in the finished output; ``sites.Role`` says what it may write over.
        Raises as ``parse``.
        """

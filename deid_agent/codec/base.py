"""The seam between message formats and everything above them."""

from collections.abc import Sequence
from typing import Protocol

from deid_agent.sites import Message


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

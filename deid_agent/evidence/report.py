"""A report as JSON: about the feed, the sections with their figures, and the build.

The members are documented in ``docs/evidence.md``. A reader ignores members that it does not expect; ``version`` is
raised when a member changes its meaning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from deid_agent.evidence.figures import EvidenceSection

SCHEMA: Final = "deid-agent/evidence"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """The report of a feed. ``time`` is the only part that two runs over the same inputs do not share.

    ``feed`` are counts and digests of the inputs, ``build`` versions and digests of the software, ``settings`` the
    options of the run.
    """

    time: str
    feed: Mapping[str, object]
    build: Mapping[str, object]
    settings: Mapping[str, object]
    sections: Sequence[EvidenceSection]

    def as_json(self) -> dict[str, object]:
        """The report as JSON."""
        return {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "time": self.time,
            "feed": dict(self.feed),
            "build": dict(self.build),
            "settings": dict(self.settings),
            "sections": [section.as_json() for section in self.sections],
        }

    def encode(self) -> bytes:
        """The bytes of ``evidence.json``."""
        return orjson.dumps(self.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @property
    def findings(self) -> list[str]:
        """The sentences of all sections, for the head of the page."""
        return [sentence for section in self.sections for sentence in section.findings]

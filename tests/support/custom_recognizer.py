"""A recognizer of an invented kind of location, for tests of the registry."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deid_agent.model import Document, PhiType, Source, SourceKind, SourceTraits, Span
from deid_agent.recognize.registry import RECOGNIZERS, RegisteredRecognizer, load_tagger
from deid_agent.recognize.resolve import Profile
from deid_agent.rules import Ruleset

TEXT = "The tremor was worse when she walked along corridor qvx after lunch, and it went away at rest."
CORRIDOR = Source(SourceKind.CUSTOM, "corridor")


@dataclass(frozen=True)
class CorridorRecognizer:
    """Finds ``corridor qvx``, which no other recognizer or model finds."""

    sources: Mapping[Source, SourceTraits] = field(default_factory=lambda: {CORRIDOR: SourceTraits()})
    name: str = "corridors"

    def recognize(self, doc: Document) -> Iterator[Span]:
        if (at := doc.text.find("corridor qvx")) >= 0:
            yield Span(at, at + len("corridor qvx"), PhiType.LOCATION_OTHER, CORRIDOR)


def check_effect(rules: Ruleset, models: Path, system: str, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering the recognizer adds its span to the output of the system, and nothing else."""
    doc = Document(TEXT)
    before = load_tagger(rules, models, system, profile).find(doc)
    monkeypatch.setitem(RECOGNIZERS, "corridors", RegisteredRecognizer(lambda _: CorridorRecognizer()))
    after = load_tagger(rules, models, system, profile).find(doc)
    assert CORRIDOR not in {span.source for span in before}
    assert [span for span in after if span.source != CORRIDOR] == before
    assert [TEXT[span.start : span.end] for span in after if span.source == CORRIDOR] == ["corridor qvx"]

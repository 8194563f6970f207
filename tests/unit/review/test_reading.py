"""Spans about which the components of a tagger disagree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from deid_agent.model import Document, PhiType, Source, SourceKind, SourceTraits, Span, parse_source
from deid_agent.recognize import Profile, Resolver, Tagger, load_rules, load_tagger
from deid_agent.review import NoteReading, TaggerReader
from deid_agent.rules import data_folder

TEXT = "Ann Lee saw Bo Day on Monday in Troy"
RULE, MODEL = parse_source("a-rule"), parse_source("crf:token")


@dataclass(frozen=True)
class Words:
    """A recognizer and a model that finds words."""

    name: str
    source: Source
    words: Mapping[str, PhiType]
    sources: Mapping[Source, SourceTraits]

    def recognize(self, doc: Document) -> Iterable[Span]:
        for word, kind in self.words.items():
            if (at := doc.text.find(word)) >= 0:
                yield Span(at, at + len(word), kind, self.source)

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        return [list(self.recognize(doc)) for doc, _ in asked]


def read(rules: Mapping[str, PhiType], *models: Mapping[str, PhiType], source: Source = RULE) -> NoteReading:
    recognizer = Words("rules", source, rules, {source: SourceTraits()})
    others = tuple(Words(f"m{n}", MODEL, each, {}) for n, each in enumerate(models))
    return TaggerReader(Tagger((recognizer,), Resolver(Profile.RECALL), others)).read(Document(TEXT))


def uncertain(reading: NoteReading) -> list[str]:
    return [TEXT[each.span.start : each.span.end] for each in reading.proposals if each.uncertain]


def test_a_span_of_one_component_is_uncertain() -> None:
    found = read(
        {"Ann Lee": PhiType.PATIENT, "Monday": PhiType.DATE}, {"Ann Lee": PhiType.PATIENT, "Troy": PhiType.CITY}
    )
    assert len(found.proposals) == 3
    assert uncertain(found) == ["Monday", "Troy"]
    assert found.missed == 0


def test_half_of_the_tokens_are_support() -> None:
    assert uncertain(read({"Ann Lee": PhiType.PATIENT}, {"Lee": PhiType.PATIENT})) == []
    assert uncertain(read({"Ann Lee saw": PhiType.PATIENT}, {"Lee": PhiType.PATIENT})) == ["Ann Lee saw"]


def test_of_three_components_two_are_enough() -> None:
    day = {"Monday": PhiType.DATE}
    assert uncertain(read(day, day, {})) == []
    assert uncertain(read({}, day, {})) == ["Monday"]


def test_one_component_alone_disagrees_with_nobody() -> None:
    assert uncertain(read({"Monday": PhiType.DATE})) == []


@pytest.mark.parametrize("kind", [SourceKind.KNOWN, SourceKind.SITE])
def test_a_value_that_the_site_states_is_certain(kind: SourceKind) -> None:
    assert uncertain(read({"Troy": PhiType.CITY}, {}, source=Source(kind, "x"))) == []


def test_a_low_confidence_span_is_uncertain() -> None:
    weak = Source(SourceKind.LOW_CONFIDENCE, "token")
    assert uncertain(read({"Troy": PhiType.CITY}, {"Troy": PhiType.CITY}, source=weak)) == []
    assert uncertain(read({"Troy": PhiType.CITY}, source=weak)) == ["Troy"]


def test_the_default_system_is_read_with_its_models_alone_and_finds_the_same() -> None:
    folder = data_folder("rules")
    tagger = load_tagger(load_rules(folder, ()), data_folder("models"), "default", Profile.RECALL)
    text = "Mr. Quill, 62 yo, saw Dr. Ines Castellano on 3/4/2019.\nSmith catheter out. Tull to call Marrow re flu.\n"
    reader = TaggerReader(tagger)
    for each in (text, "", "Seen 5/3."):
        doc = Document(each)
        found = reader.read(doc)
        assert [one.span for one in found.proposals] == tagger.find(doc)
    found = reader.read(Document(text))
    sure = [text[one.span.start : one.span.end] for one in found.proposals if not one.uncertain]
    assert {"Quill", "3/4/2019"} <= set(sure)

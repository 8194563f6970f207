"""Mistakes, confused types and the sources of findings, and the page that shows them."""

import re
from html.parser import HTMLParser

from deid_agent.eval.markup import Note
from deid_agent.eval.mistakes import MistakeKind, component_name, count_by_source, count_confusions, find_mistakes
from deid_agent.eval.page import render_page
from deid_agent.eval.report import EvaluationReport, count_false_alarms, report_as_json, score_table
from deid_agent.eval.score import Pair, score_notes
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, parse_annotated, parse_source

GOLD = "[[PATIENT|Ann Vane]] of [[CITY|Bath]], seen [[DATE|3/4/19]] by [[DOCTOR|Quill]]. Foley out."
FOUND = "[[PATIENT|Ann]] Vane of [[HOSPITAL|Bath]], seen [[DATE|3/4/19]] by Quill. [[DOCTOR|Foley]] out."


def pair(gold: str = GOLD, found: str = FOUND, source: str = "rule-1", id_: str = "qa-01-1") -> Pair:
    return Pair(
        Note(id_, "letter", "2014-02-06", "qa-01", parse_annotated(gold), {}),
        parse_annotated(found, parse_source(source)).spans,
    )


def test_mistakes_are_listed_once_and_in_order() -> None:
    got = [(m.kind, m.type, m.found and m.found.type, m.leaks) for m in find_mistakes([pair()])]
    assert got == [
        (MistakeKind.BOUNDS, PhiType.PATIENT, PhiType.PATIENT, True),
        (MistakeKind.TYPE, PhiType.CITY, PhiType.HOSPITAL, False),
        (MistakeKind.MISSED, PhiType.DOCTOR, None, True),
        (MistakeKind.ALARM, PhiType.DOCTOR, PhiType.DOCTOR, False),
    ]
    assert "Quill" not in repr(list(find_mistakes([pair()])))


def test_correct_findings_give_no_mistake() -> None:
    assert list(find_mistakes([pair(found=GOLD)])) == []


def test_confusion_counts_every_gold_span_and_every_alarm() -> None:
    grid = count_confusions([pair()])
    assert {gold: dict(row) for gold, row in grid.items()} == {
        PhiType.PATIENT: {PhiType.PATIENT: 1},
        PhiType.CITY: {PhiType.HOSPITAL: 1},
        PhiType.DATE: {PhiType.DATE: 1},
        PhiType.DOCTOR: {None: 1},
        None: {PhiType.DOCTOR: 1},
    }


def test_the_longest_overlap_counts() -> None:
    grid = count_confusions([pair("x [[CITY|Old Bath Spa]]", "[[STATE|x Ol]]d [[STREET|Bath Spa]]")])
    assert grid[PhiType.CITY] == {PhiType.STREET: 1}


def test_sources_and_components() -> None:
    assert [
        component_name(parse_source(written)) for written in ("crf:bio", "known:patient-name", "date-iso", "theirs:x")
    ] == [
        "crf",
        "known",
        "pattern",
        "theirs",
    ]
    (counts,) = count_by_source([pair()], whole=True).values()
    assert (counts.found, counts.right, counts.partly, counts.alarms) == (4, 1, 2, 1)
    both = count_by_source([pair(source="crf:a"), pair(source="crf:b")], whole=False)
    assert {name: c.found for name, c in both.items()} == {"crf": 8}


def test_alarms_per_thousand_words_do_not_count_ages() -> None:
    text = "word " * 498
    done = count_false_alarms([pair(text + "Vane 93", text + "[[PATIENT|Vane]] [[AGE|93]]")])
    assert (done.words, done.alarms, done.ages, done.per_thousand) == (500, 2, 1, 2.0)


class Tags(HTMLParser):
    """Checks that tags close in order, and collects links, handlers and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(v) for k, v in attrs if k in {"src", "href", "action", "onclick", "onerror"}]
        if tag not in {"meta", "br", "input", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HOSTILE = "</script><img src=x onerror=alert(1)> & \"Quill\" 'x'"


def test_the_page_is_self_contained_and_escapes_all_text() -> None:
    hostile = Note(
        "qa<b>", f"kind{HOSTILE}", "", "p", parse_annotated(f"{HOSTILE} [[PATIENT|<i>Vane</i>]] {HOSTILE}"), {}
    )
    pairs = [Pair(hostile, (Span(0, 3, PhiType.DATE, parse_source(f"rule{HOSTILE}")),)), pair()]
    out = render_page(
        EvaluationReport(
            {"corpus": HOSTILE},
            score_notes(pairs, resamples=20),
            {"part": score_notes(pairs, resamples=20)},
            count_false_alarms(pairs),
            True,
        )
    )
    tags = Tags()
    tags.feed(out)
    assert (tags.open, tags.links) == ([], [])
    assert not re.search(r"https?:|<img|<i>|@import|url\(", out)
    assert out.count("<script>") == 1
    assert f'<div class="m" data-k="{MistakeKind.MISSED}"' in out
    assert "".join(tags.texts).count("<i>Vane</i>") == 2  # missed, and near an alarm


def test_a_mistake_is_marked_in_its_context() -> None:
    out = render_page(EvaluationReport({}, score_notes([pair()], resamples=20)))
    assert '<span class="g f">Ann</span><span class="g"> Vane</span> of ' in out
    assert '<span class="f">Foley</span> out.' in out


def test_json_and_table_hold_no_text() -> None:
    report = EvaluationReport(
        {"corpus": "c"},
        score_notes([pair()], resamples=20),
        {"part": score_notes([pair()], resamples=20)},
        count_false_alarms([pair()]),
    )
    data = report_as_json(report)
    for shown in (str(data), score_table(report)):
        assert "Vane" not in shown
        assert "Quill" not in shown
    assert isinstance(data["mistakes"], list)
    assert len(data["mistakes"]) == 4

"""What is listed as a mistake, what is taken for what, and which rule said so; and the page that shows it."""

import re
from html.parser import HTMLParser

from deid_agent.eval.markup import Note
from deid_agent.eval.mistakes import Fault, by_source, component, confusion, mistakes
from deid_agent.eval.page import page
from deid_agent.eval.report import Report, as_json, benign, table
from deid_agent.eval.score import Pair, score
from deid_agent.markup import parse
from deid_agent.phi import PhiType
from deid_agent.spans import Span

GOLD = "[[PATIENT|Ann Vane]] of [[CITY|Bath]], seen [[DATE|3/4/19]] by [[DOCTOR|Quill]]. Foley out."
FOUND = "[[PATIENT|Ann]] Vane of [[HOSPITAL|Bath]], seen [[DATE|3/4/19]] by Quill. [[DOCTOR|Foley]] out."


def pair(gold: str = GOLD, found: str = FOUND, source: str = "rule-1", id_: str = "qa-01-1") -> Pair:
    return Pair(Note(id_, "letter", "2014-02-06", "qa-01", parse(gold), {}), parse(found, source).spans)


def test_every_fault_once_and_in_order() -> None:
    got = [(m.fault, m.type, m.found and m.found.type, m.leaks) for m in mistakes([pair()])]
    assert got == [
        (Fault.BOUNDS, PhiType.PATIENT, PhiType.PATIENT, True),
        (Fault.TYPE, PhiType.CITY, PhiType.HOSPITAL, False),
        (Fault.MISSED, PhiType.DOCTOR, None, True),
        (Fault.ALARM, PhiType.DOCTOR, PhiType.DOCTOR, False),
    ]
    assert "Quill" not in repr(list(mistakes([pair()])))


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert list(mistakes([pair(found=GOLD)])) == []


def test_confusion_counts_every_gold_span_and_every_alarm() -> None:
    grid = confusion([pair()])
    assert {gold: dict(row) for gold, row in grid.items()} == {
        PhiType.PATIENT: {PhiType.PATIENT: 1},
        PhiType.CITY: {PhiType.HOSPITAL: 1},
        PhiType.DATE: {PhiType.DATE: 1},
        PhiType.DOCTOR: {None: 1},
        None: {PhiType.DOCTOR: 1},
    }


def test_the_longest_overlap_counts() -> None:
    grid = confusion([pair("x [[CITY|Old Bath Spa]]", "[[STATE|x Ol]]d [[STREET|Bath Spa]]")])
    assert grid[PhiType.CITY] == {PhiType.STREET: 1}


def test_sources_and_components() -> None:
    assert (component("crf:bio"), component("known:patient-name"), component("date-iso")) == ("crf", "known", "pattern")
    (counts,) = by_source([pair()], whole=True).values()
    assert (counts.found, counts.right, counts.partly, counts.alarms) == (4, 1, 2, 1)
    both = by_source([pair(source="crf:a"), pair(source="crf:b")], whole=False)
    assert {name: c.found for name, c in both.items()} == {"crf": 8}


def test_alarms_per_thousand_words_leave_ages_apart() -> None:
    text = "word " * 498
    done = benign([pair(text + "Vane 93", text + "[[PATIENT|Vane]] [[AGE|93]]")])
    assert (done.words, done.alarms, done.ages, done.per_thousand) == (500, 2, 1, 2.0)


class Tags(HTMLParser):
    """Checks that tags close in order, and collects what may reach outside."""

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


def test_the_page_is_alone_and_everything_is_escaped() -> None:
    hostile = Note("qa<b>", f"kind{HOSTILE}", "", "p", parse(f"{HOSTILE} [[PATIENT|<i>Vane</i>]] {HOSTILE}"), {})
    pairs = [Pair(hostile, (Span(0, 3, PhiType.DATE, f"rule{HOSTILE}"),)), pair()]
    out = page(
        Report(
            {"corpus": HOSTILE}, score(pairs, resamples=20), {"part": score(pairs, resamples=20)}, benign(pairs), True
        )
    )
    tags = Tags()
    tags.feed(out)
    assert (tags.open, tags.links) == ([], [])
    assert not re.search(r"https?:|<img|<i>|@import|url\(", out)
    assert out.count("<script>") == 1
    assert f'<div class="m" data-k="{Fault.MISSED}"' in out
    assert "".join(tags.texts).count("<i>Vane</i>") == 2  # missed, and near an alarm


def test_a_mistake_is_marked_in_its_context() -> None:
    out = page(Report({}, score([pair()], resamples=20)))
    assert '<span class="g f">Ann</span><span class="g"> Vane</span> of ' in out
    assert '<span class="f">Foley</span> out.' in out


def test_json_and_table_hold_no_text() -> None:
    report = Report(
        {"corpus": "c"}, score([pair()], resamples=20), {"part": score([pair()], resamples=20)}, benign([pair()])
    )
    data = as_json(report)
    for shown in (str(data), table(report)):
        assert "Vane" not in shown
        assert "Quill" not in shown
    assert isinstance(data["mistakes"], list)
    assert len(data["mistakes"]) == 4

"""The grammar of measurements: every sample of every form, and what marks may touch."""

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest
from support.growth import growth

from deid_agent.eval.markup import read_corpus
from deid_agent.measure import EMPTY_GRAMMAR, Grammar, Mark, MeasureKind, Veto, check_forms, find_covering, load_grammar
from deid_agent.measure.grammar import Form
from deid_agent.model import ConfigurationError, Document

ROOT = Path(__file__).resolve().parents[3]
GRAMMAR = load_grammar(ROOT / "rules")
FORMS = {f"{form.kind}-{form.rule.id}": form for form in GRAMMAR.forms}
TOUCHED_BY_HARD_MARKS = 8
"""Annotations of the corpus inside a hard mark, of 76,000: each would be left in clear text. Never raise it."""


@pytest.mark.parametrize("name", FORMS)
def test_hits_and_misses(name: str) -> None:
    assert check_forms(Grammar((FORMS[name],))) == []


def test_a_wrong_sample_is_reported() -> None:
    form = next(iter(FORMS.values()))
    broken = Form(form.kind, form.veto, form.rule, frozenset())
    assert check_forms(Grammar((broken,))) != []


def test_every_file_is_a_kind() -> None:
    assert {path.stem for path in (ROOT / "rules/measures").iterdir()} == {kind.value for kind in MeasureKind}


def test_marks_are_disjoint_and_the_longer_one_counts() -> None:
    doc = Document("GCS 14 (E4V4M6), 5-10 mg PO BID, BP 128/76 -> 118/70, L hip, E. coli 10^5, POD 4")
    marks = GRAMMAR.find(doc)
    assert [doc.text[mark.start : mark.end] for mark in marks] == [
        *("14", "E4V4M6", "5-10 mg", "PO BID", "128/76 -> 118/70", "L", "E. coli", "10^5", "POD 4"),
    ]
    assert all(a.end <= b.start for a, b in itertools.pairwise(marks))


def test_marks_are_computed_once_for_a_document() -> None:
    doc = Document("BP 128/76")
    assert GRAMMAR.find(doc) is GRAMMAR.find(doc)
    assert EMPTY_GRAMMAR.find(doc) == ()


# Identifiers in the form of a measurement: <angle brackets> enclose what no hard mark may touch.
IDENTIFIERS = """
MRN: <T2N1M0>|MRN: <K50.812>|Acct <Z79.4>|MRN <CD34>|username <AAOx4>|login <hg19>|ID <rs80357906>|zip <99213-26>
room <L4-5>|MRN <128/76>|MRN <E4V4M6>|MRN <G4P2>|MRN <447190 mg>|room <34+5>|ID <3+4>|phone 614-<555 x 12>|ext. <x44>
zip <45601->45602>|patient CAT <12345678>|cat no <614-555-0100>|ICD <4471902>|CPT <614-555-0100>|NDC <614-555-0100>
SNOMED MRN <44719000>|CPT visit, Columbus, OH <43215>|CPT; lives at <45601>|LOINC ordered; MRN <44719-2>|<CD4471902>
OH <45601 cc>: Dr. Lin|Dr. <R> Foot|nurse <L>. Side|Patient: <R>. Lower|<L> Hand, MD|Dr. <A> Line
hepatitis <B>. Okafor|Baby <B> Okafor|class <B> Smith|initials <R/L>|signed <PRN>|per <BD>|Dr. <BD>|signed <AO> <4>
seen <AO> <2/3>|Miami <J>. Okafor|Dr. <X>|Dr <Blank> called|Mr. <Loa>|<Loa> Tuilagi|Mrs <Candida> called
<Candida> Reyes|<Gordonia> Smith|S. <Thompson>|M. <quintana> called|<J. bovis>|in <94 years>|for <92 years>
x <94 years>|married <93 years ago>|older than <94 years>|Wells <93> y/o|Harris hip <94>-year-old|Allegra <93> yo
Yasmin <94>|Yasmin <3-4-50>|Lasix <4471>|Norton <94>|DOB <1/52>|since <7/52>|DOB <25/52>|DOB <12.3/94>|POD <3/4>
week <3/4>|Hospital Day <12/15>|HD <12/15>|<10/12> f/u|<5/7> course|Katz <3/4>|ISS <3/4>|GRACE <3/4>|Norton <12/15>
CT <3/12> images|admitted <3/4> nights|films <3/4> and <4/5>|BiPAP <12/5>|settings <3/4>|DOB <3.12/1950>|IP <10.44/12>
<5> Silk Road|<1> Plain Street|<12> French Street|410 E <12>th Street|<45000> Kelly Road|the <15th> surgery
Feb <5th> admission|Moderna <24> March|on <Sat> was|in <May> start|Mrs. <May> go|since <march> the|G3P1 <94> yo
G3P0 <614>-555-0100|P <614-555> 0100|SSN <XXX>-XX-<4471>|Aadhaar XXXX XXXX <6093>|[** <Okafor> **]|[**<4471902>**]
[**<2019-5-6>**]|[Name <Okafor>]
restart <Wed> at 5|2 mg on <Wednesday>|last <Mon/Tues/Wed>|church every <Sunday>|signed <M/W/F>|<M/F> twins
Took first Ozempic <Wed>
Dr. <Fisher> 4|Carol <Hamilton> 22|<Hamilton> 22 y/o|son <Fisher> 4|<Beck> Okafor 4|<Beck-Okafor> 4|Dr. <Wang> 21g
18g <Wang> called
<BROWN, AMBER>|<GREEN, CLARE>|<GRAY, SCARLET>|Dr. <Maitland> grade|told <Wilson> blade|wife <Allen> +
contacts <Thomas> neg
Dana <Holt>, RN aware|by RN <Okafor>|occupation <RN>|signed <RT> eval|signed <OS>|Dr <Li> 0.9|Wei <Li> 0.9
tube at <5> years
Hb <94> yo|started feeds <6/24>|VOD <6/9/2019>|12 <Parkland> Ave|lives on <CR 50>|the Beaumont ER <11/24>
Dr. <Ivor Lewis> type
"""


@pytest.mark.parametrize("text", [part for row in IDENTIFIERS.strip().splitlines() for part in row.split("|")])
def test_no_hard_mark_touches_an_identifier(text: str) -> None:
    plain, ranges = "", []
    for at, part in enumerate(re.split(r"<(?=\w)|(?<=\w)>(?!\d)", text.replace("->", "→"))):
        if at % 2:
            ranges.append((len(plain), len(plain) + len(part)))
        plain += part
    marks = [mark for mark in GRAMMAR.find(Document(plain)) if mark.veto is Veto.HARD]
    assert ranges
    assert list(find_covering(marks, ranges)) == [None] * len(ranges)


@pytest.mark.parametrize(
    "text",
    [
        *("Na 138 -> 141", "in 6 months", "GCS 14", "L hip", "MR 2+", "E. coli", "[**Name 12**]", "Hb 94, iron"),
        *(
            "5 mg M/W/F, 2.5 mg T/Th/S/Su",
            "open M-F 9-5",
            "HD TTS",
            "MTX 15 mg q Wed",
            "960 Mon/Wed/Fri for",
            "Li 0.9, Cr",
        ),
        *(
            "Mayo 2, UCEIS",
            "feeds 6/24",
            "Bivona 8 in situ",
            "Tuohy 17G",
            "Ober neg",
            "HAZY, AMBER",
            "color BROWN, AMBER",
        ),
        *(
            "RN aware",
            "OT/PT/SLP to see",
            "Eylea #7 OS, CST",
            "VOD 6/9",
            "NG 16 Fr R nare at 55",
            "Rives-Stoppa",
            "A. Appendix",
        ),
    ],
)
def test_clinical_content_keeps_its_hard_mark(text: str) -> None:
    assert any(mark.veto is Veto.HARD for mark in GRAMMAR.find(Document(text)))


@pytest.mark.parametrize(
    "unit", ["1", "1/", "1.", "A ", "[**1 ", "(", "x1 ", "1->", "MRN ", "CPT 99213, ", "Baker ", "4+ "]
)
def test_marks_are_linear_in_hostile_text(unit: str) -> None:
    small, large = (Document(unit * (size // len(unit))) for size in (4_000, 40_000))
    assert growth(GRAMMAR.find, small, large) < 30


def test_each_range_gets_the_mark_that_covers_it() -> None:
    first, second = (Mark(at, at + 4, MeasureKind.DOSE, Veto.HARD) for at in (2, 10))
    assert list(find_covering((first, second), [(0, 2), (2, 3), (5, 9), (6, 7), (9, 12)])) == [
        None,
        first,
        first,
        None,
        second,
    ]


def test_a_form_may_ask_for_a_list_before_it() -> None:
    marks = GRAMMAR.find(Document("Lexapro 20, Okafor 20"))
    assert [(mark.start, mark.kind) for mark in marks] == [(8, MeasureKind.DOSE)]


def test_an_unknown_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "measures").mkdir()
    (tmp_path / "dictionary").mkdir()
    form = (
        'why = "w"\nveto = "hard"\n[[form]]\nid = "f"\nwhy = "w"\npattern = "a"\nafter_list = "no"\nhit = ["[[a]]"]\n'
    )
    (tmp_path / "measures" / "dose.toml").write_text(form, "utf-8")
    with pytest.raises(ConfigurationError, match="after_list: no list no in"):
        load_grammar(tmp_path)


def test_hard_marks_leave_the_annotations_of_the_corpus_alone() -> None:
    touched: Counter[str] = Counter()
    for note in read_corpus(ROOT / "corpus"):
        marks = [mark for mark in GRAMMAR.find(Document(note.annotated.text)) if mark.veto is Veto.HARD]
        ranges = [(span.start, span.end) for span in note.annotated.spans]
        for (start, end), mark in zip(ranges, find_covering(marks, ranges), strict=True):
            if mark is not None and mark.start <= start and end <= mark.end:
                touched[mark.kind] += 1
    assert touched.total() <= TOUCHED_BY_HARD_MARKS, touched

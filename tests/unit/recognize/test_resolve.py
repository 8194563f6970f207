"""Overlap, vetoes, boundaries, neighbours."""

import itertools
from pathlib import Path

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.spans import Span, is_disjoint, parse_annotated, parse_source
from deid_agent.model.text import Document
from deid_agent.recognize.boundaries import trim_span
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.rules.files import READ_BY_MODELS
from deid_agent.rules.rule_files import load_ruleset
from deid_agent.rules.ruleset import Ruleset

RULE = """\
id = "{id}"
{type}
why = "a sample"
pattern = '''{pattern}'''
confidence = "low"
hit = ["x"]
miss = ["x"]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Ruleset:
    """A low-confidence pattern ``unsure`` and a veto of eponyms."""
    for kind, name, head, pattern in (
        ("patterns", "unsure", 'type = "PATIENT"', "never"),
        ("vetoes", "eponym", 'types = ["PATIENT"]', "[A-Z][a-z]{1,12} disease"),
    ):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.toml").write_text(RULE.format(id=name, type=head, pattern=pattern), "utf-8")
    return load_ruleset(tmp_path, {})


def resolved(
    text: str, *spans: tuple[str, str, str], profile: Profile = Profile.RECALL, rules: Ruleset | None = None
) -> str:
    """``text`` with markup of the resolved ``spans`` (words, type, source), in any order of proposals."""
    proposals = [
        Span(text.index(w), text.index(w) + len(w), PhiType(kind), parse_source(source)) for w, kind, source in spans
    ]
    resolver = Resolver(profile, rules or Ruleset())
    outcomes = {tuple(resolver.resolve(order, Document(text))) for order in itertools.permutations(proposals)}
    assert len(outcomes) == 1, "the order of the proposals changes the result"
    (spans_out,) = outcomes
    out, at = "", 0
    for span in spans_out:
        out += f"{text[at : span.start]}[[{span.type}|{text[span.start : span.end]}]]"
        at = span.end
    return out + text[at:]


@pytest.mark.parametrize(
    ("marked", "spans"),
    [
        # the longer of two spans of one level
        (
            "Dr. [[DOCTOR|Amara Okafor]] saw",
            [("Amara Okafor", "DOCTOR", "a"), ("Okafor", "PATIENT", "known:patient-name")],
        ),
        # DOCTOR before PATIENT, AGE before DATE, FAX before PHONE at the same length
        ("[[DOCTOR|Okafor]]", [("Okafor", "DOCTOR", "a"), ("Okafor", "PATIENT", "b")]),
        ("in her [[AGE|40s]]", [("40s", "DATE", "a"), ("40s", "AGE", "b")]),
        ("F [[FAX|555-0142]]", [("555-0142", "PHONE", "a"), ("555-0142", "FAX", "b")]),
        # at the same length known PHI comes before DOCTOR
        (
            "[[MEDICALRECORD|4471902]]",
            [("4471902", "IDNUM", "a"), ("4471902", "MEDICALRECORD", "known:patient-number")],
        ),
        # the rest of an overlapping span remains covered
        (
            "[[DATE|3/4]] [[IDNUM|2019-7]]",
            [("3/4 2019", "DATE", "unsure-not"), ("2019-7", "IDNUM", "known:patient-number")],
        ),
        ("tel [[PHONE|555-0142]]", [("555-0142", "PHONE", "a"), ("555", "ACCOUNT", "b"), ("0142", "IDNUM", "c")]),
    ],
)
def test_overlap(marked: str, spans: list[tuple[str, str, str]]) -> None:
    text = parse_annotated(marked).text
    if "2019-7" in marked:
        assert resolved(text, *spans) == "[[DATE|3/4 2019]]-[[IDNUM|7]]"
    else:
        assert resolved(text, *spans) == marked


def test_high_confidence_ranks_before_a_longer_low_confidence_span(rules: Ruleset) -> None:
    spans = [("Ada Vane Clinic", "PATIENT", "unsure"), ("Vane Clinic", "HOSPITAL", "sure")]
    assert resolved("at Ada Vane Clinic now", *spans, rules=rules) == "at [[PATIENT|Ada]] [[HOSPITAL|Vane Clinic]] now"
    kept = resolved("at Ada Vane Clinic now", *spans, rules=rules, profile=Profile.PRECISION)
    assert kept == "at Ada [[HOSPITAL|Vane Clinic]] now"


@pytest.mark.parametrize(
    ("profile", "source", "kept"),
    [
        (Profile.PRECISION, "sure", False),
        (Profile.BALANCED, "sure", False),
        (Profile.RECALL, "sure", False),
        (Profile.BALANCED, "known:patient-name", False),
        (Profile.RECALL, "known:patient-name", True),
    ],
)
def test_a_veto_removes_the_spans_inside_its_match(rules: Ruleset, profile: Profile, source: str, kept: bool) -> None:
    text = "has Parkinson disease"
    got = resolved(text, ("Parkinson", "PATIENT", source), profile=profile, rules=rules)
    assert got == ("has [[PATIENT|Parkinson]] disease" if kept else text)


def test_a_veto_leaves_other_types_and_wider_spans(rules: Ruleset) -> None:
    text = "Ada Parkinson disease"
    assert resolved(text, ("Parkinson", "DOCTOR", "a"), rules=rules) == "Ada [[DOCTOR|Parkinson]] disease"
    assert resolved(text, ("Ada Parkinson", "PATIENT", "a"), rules=rules) == "[[PATIENT|Ada Parkinson]] disease"


@pytest.fixture
def late(tmp_path: Path, rules: Ruleset) -> Ruleset:
    """The rules of ``rules`` and a late veto."""
    (tmp_path / "late-vetoes").mkdir()
    text = RULE.format(id="place", type='types = ["CITY", "PATIENT"]', pattern="(?:Boston|Hope) brace")
    (tmp_path / "late-vetoes" / "place.toml").write_text(text, "utf-8")
    return load_ruleset(tmp_path, {})


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize(("source", "kept"), [("sure", False), ("weak:token", False), ("known:patient-name", True)])
def test_a_late_veto_spares_values_of_the_message(late: Ruleset, profile: Profile, source: str, kept: bool) -> None:
    got = resolved("a Boston brace", ("Boston", "CITY", source), profile=profile, rules=late)
    assert got == ("a [[CITY|Boston]] brace" if kept else "a Boston brace")


def test_a_late_veto_also_in_a_note_about_a_person_of_the_name(late: Ruleset) -> None:
    spans = [("Ada Hope", "PATIENT", "sure"), ("Hope brace", "PATIENT", "sure")]
    assert resolved("Ada Hope. A Hope brace", *spans, rules=late) == "[[PATIENT|Ada Hope]]. A Hope brace"


@pytest.mark.parametrize("profile", list(Profile))
def test_a_late_veto_frees_no_word_of_the_fields_of_the_message(late: Ruleset, profile: Profile) -> None:
    fact = Fact(PhiType.CITY, ValueKind.VALUE, Subject.PATIENT, "g", "South Boston")
    doc = Document("a Boston brace", (fact,))
    span = Span(2, 8, PhiType.CITY, parse_source("sure"))
    assert Resolver(profile, late).resolve([span], doc) == [span]


def test_a_site_removes_a_late_veto(tmp_path: Path, late: Ruleset) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "remove.toml").write_text('rules = ["place"]\n', "utf-8")
    rules = load_ruleset(tmp_path, {}, [tmp_path / "site"])
    span = ("Boston", "CITY", "sure")
    assert resolved("a Boston brace", span, rules=late) == "a Boston brace"
    assert resolved("a Boston brace", span, rules=rules) == "a [[CITY|Boston]] brace"


def test_models_read_the_spans_that_a_late_veto_removes(late: Ruleset) -> None:
    span = Span(2, 8, PhiType.CITY, parse_source("sure"))
    doc = Document("a Boston brace")
    assert Resolver(rules=late).resolve([span], doc, for_models=True) == [span]
    assert Resolver(rules=late).resolve([span], doc) == []
    assert "late-vetoes" not in READ_BY_MODELS


def test_precision_drops_low_confidence_spans(rules: Ruleset) -> None:
    spans = ("Vane", "PATIENT", "unsure")
    assert resolved("saw Vane", spans, rules=rules, profile=Profile.PRECISION) == "saw Vane"
    assert resolved("saw Vane", spans, rules=rules, profile=Profile.BALANCED) == "saw [[PATIENT|Vane]]"


@pytest.mark.parametrize(
    ("proposed", "marked"),
    [
        ("[[DOCTOR|Dr. Amara Okafor, MD]] saw", "Dr. [[DOCTOR|Amara Okafor]], MD saw"),
        ("[[PATIENT|Mrs. Ruiz's]] son", "Mrs. [[PATIENT|Ruiz]]'s son"),
        ("[[PATIENT|Okafor, Ada M.]]", "[[PATIENT|Okafor, Ada M.]]"),
        ("saw [[PATIENT|Ada Okafor.]]", "saw [[PATIENT|Ada Okafor]]."),
        ("[[PATIENT|Vane Jr.]] came", "[[PATIENT|Vane Jr.]] came"),
        ("[[PHONE|(555) 555-0142]])", "[[PHONE|(555) 555-0142]])"),
        ("[[PHONE|(555-0142)]]", "([[PHONE|555-0142]])"),
        ("on [[STREET|41 Elm Ave.]], Troy", "on [[STREET|41 Elm Ave.]], Troy"),
        ("on [[STREET|41 Elm Ave.]] First floor", "on [[STREET|41 Elm Ave]]. First floor"),
        ("seen [[DATE|3/4/2019.]]", "seen [[DATE|3/4/2019]]."),
    ],
)
def test_boundaries(proposed: str, marked: str) -> None:
    got = parse_annotated(proposed)
    (span,) = Resolver().resolve(got.spans, Document(got.text))
    assert f"{got.text[: span.start]}[[{span.type}|{got.text[span.start : span.end]}]]{got.text[span.end :]}" == marked


def test_punctuation_alone_leaves_no_span() -> None:
    assert trim_span(Span(0, 3, PhiType.DATE, parse_source("a")), " , ") is None


@pytest.mark.parametrize(
    ("proposed", "marked"),
    [
        ("[[DOCTOR|Moses]]\n[[DOCTOR|Tarkowski]]", "[[DOCTOR|Moses\nTarkowski]]"),
        ("sons [[PATIENT|Ada]], [[PATIENT|Bo]]", "sons [[PATIENT|Ada]], [[PATIENT|Bo]]"),
        ("[[DOCTOR|Ada]] [[PATIENT|Bo]]", "[[DOCTOR|Ada]] [[PATIENT|Bo]]"),
        ("[[STREET|9 Elm St]], [[STREET|Suite 4]]", "[[STREET|9 Elm St, Suite 4]]"),
        ("[[DATE|Sat]] [[DATE|22/07/17]]", "[[DATE|Sat 22/07/17]]"),
        ("[[DATE|3/3]]-[[DATE|3/7/2071]]", "[[DATE|3/3]]-[[DATE|3/7/2071]]"),
        ("[[DATE|3/3]] [[DATE|3/7]]", "[[DATE|3/3]] [[DATE|3/7]]"),
        ("[[DATE|Mon]] [[DATE|2012]]", "[[DATE|Mon]] [[DATE|2012]]"),
    ],
)
def test_neighbours_that_are_one_value(proposed: str, marked: str) -> None:
    got = parse_annotated(proposed)
    want = parse_annotated(marked)
    spans = Resolver().resolve(got.spans, Document(got.text))
    assert [(s.start, s.end, s.type) for s in spans] == [(s.start, s.end, s.type) for s in want.spans]


@pytest.mark.parametrize("overlap", [0, 2])
def test_many_spans_are_resolved_in_linear_time(overlap: int) -> None:
    """Quadratic time for a hundred thousand spans, separate or in one chain, would take hours."""
    count, step = 100_000, 4
    text = "abcd" * (count + 2)
    spans = [Span(at * step, (at + 1) * step + overlap - 1, PhiType.IDNUM, parse_source("a")) for at in range(count)]
    found = Resolver().resolve(spans, Document(text))
    assert is_disjoint(found)
    assert sum(map(len, found)) == (count * step + overlap - 1 if overlap else count * (step - 1))


def test_the_resolver_shows_no_rules(rules: Ruleset) -> None:
    assert repr(Resolver(Profile.BALANCED, rules)) == "Resolver(profile=<Profile.BALANCED: 'balanced'>)"

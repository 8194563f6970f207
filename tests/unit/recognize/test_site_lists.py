"""Values of site lists in notes: writings that count, vetoes, models, and notes that do not change."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.sites import PATTERN, VETO, make_site

from deid_agent.eval.markup import read_corpus
from deid_agent.model import Document, Fact, PhiType, SourceKind, Span, Subject, ValueKind
from deid_agent.recognize import Profile, Recognizer, Tagger, load_rules, load_tagger
from deid_agent.recognize.registry import RECOGNIZERS
from deid_agent.rules import data_folder

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "rules"
DOCTORS = (
    "Keller, Ruth M\nRuth van der Berg\nMinh Do\nParkinson, James\nZyltrak, Oona Mary\nZyltrak, Per\nHope, Grace\n"
    "Foot, Robert\nSmith-Jones, Anne-Marie\nO'Leary, Pat\nFoley, Sam\nМоргунова, Вера\nKaracabeyoğlu, İpek\n"
)
HOSPITALS = "Riverside Clinic\nGlasgow Clinic\nHope\nSt. Zonk's Hospital\nZonko\n4B\n"
STREETS = "218 Qvx Row\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    return make_site(
        folder, patterns=PATTERN, vetoes=VETO, DOCTOR=DOCTORS, HOSPITAL=HOSPITALS, STREET=STREETS, CITY="Glasgow\n"
    )


@pytest.fixture(scope="module")
def recognizer(site: Path) -> Recognizer:
    return RECOGNIZERS["site"].build(load_rules(RULES, [site]))


@pytest.fixture(scope="module")
def taggers(site: Path) -> Callable[[bool, str, Profile], Tagger]:
    @cache
    def load(with_site: bool, system: str, profile: Profile) -> Tagger:
        return load_tagger(load_rules(RULES, [site] if with_site else ()), data_folder("models"), system, profile)

    return load


def found(doc: Document, spans: list[Span]) -> list[str]:
    return [doc.text[span.start : span.end] for span in sorted(spans, key=lambda span: span.start)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Seen by Ruth Keller today", ["Ruth Keller"]),
        ("ruth keller agreed, keller, ruth agreed", ["ruth keller", "keller, ruth"]),
        ("KELLER, RUTH M. and KELLER RUTH", ["KELLER, RUTH M", "KELLER RUTH"]),
        ("R. Keller, R Keller, R.M. Keller", ["R. Keller", "R Keller", "R.M. Keller"]),
        ("Ruth Ann Keller, as per oona zyltrak", ["Ruth Ann Keller", "oona zyltrak"]),
        ("Keller, R. called", ["Keller, R"]),
        ("Ruth\nKeller", ["Ruth\nKeller"]),
        ("Ruth\n\nKeller", ["Keller"]),
        ("Zyltrak agreed; zyltrak agreed", ["Zyltrak"]),
        ("Oona Mary Zyltrak, Mary Zyltrak, P. Zyltrak", ["Oona Mary Zyltrak", "Mary Zyltrak", "P. Zyltrak"]),
        ("Zyltrak's plan, Zyltraks, Zyltrak2, xZyltrak, Zyltrak-like", ["Zyltrak"]),
        ("Zyltrak sign, Zyltrak forceps, Zyltrak 3/10", []),
        ("Anne-Marie Smith-Jones", ["Anne-Marie Smith-Jones"]),
        ("Ruth van der Berg; Ruth Van Der Berg", ["Ruth van der Berg", "Ruth Van Der Berg"]),
        ("Pat O'Leary, Pat O’Leary, pat oleary", ["Pat O'Leary", "Pat O’Leary"]),
        ("Minh Do agreed. Do not call. do minh", ["Minh Do"]),
        ("Grace Hope, Dr. Hope, Hope, MD", ["Grace Hope", "Hope", "Hope"]),
        ("grace and hope; hope; Hope springs; grace hope", []),
        ("R Foot pain. R foot. Foot drop", []),
        ("R. Foot, Dr Foot", ["R. Foot", "Foot"]),
        ("ipek karacabeyoglu", ["ipek karacabeyoglu"]),
        ("Вера Моргунова; моргунова", ["Вера Моргунова"]),
        ("moved to riverside clinic; RIVERSIDE CLINIC", ["riverside clinic", "RIVERSIDE CLINIC"]),
        ("a riverside clinic", []),
        ("st zonks hospital", []),
        ("St Zonk's Hospital, st. zonk's hospital", ["St Zonk's Hospital", "st. zonk's hospital"]),
        ("at Hope; hope; Hope Clinic; We Hope so", ["Hope", "Hope"]),
        ("ward 4B, 4B tube", ["4B"]),
        ("218 qvx row; 1218 Qvx Row; 218 Qvx Rows", ["218 qvx row"]),
        ("Riverside\n\nClinic", []),
        ("badge heron17", ["heron17"]),
    ],
)
def test_writings(recognizer: Recognizer, text: str, expected: list[str]) -> None:
    doc = Document(text)
    assert found(doc, list(recognizer.recognize(doc))) == expected


SYSTEMS = [("rules", Profile.BALANCED), ("default", Profile.RECALL)]


@pytest.mark.parametrize(("system", "profile"), SYSTEMS)
def test_models_do_not_overrule_a_site_and_vetoes_do(
    taggers: Callable[[bool, str, Profile], Tagger], system: str, profile: Profile
) -> None:
    tagger = taggers(True, system, profile)
    hidden = Document("Plan as per oona zyltrak, badge heron17, from the zonko team.")
    assert {"oona zyltrak", "heron17", "zonko"} <= set(found(hidden, tagger.find(hidden)))
    kept = Document(
        "Known Parkinson disease. Glasgow Coma Scale 15. Foley catheter in place. Parkinson's disease, Parkinson "
        "disease. The Zyltrak Mark 4 hums."
    )
    spans = found(kept, tagger.find(kept))
    assert not {word for word in ("Parkinson", "Glasgow", "Foley", "Zyltrak") if any(word in each for each in spans)}


def test_the_type_of_a_namesake_is_that_of_the_text(taggers: Callable[[bool, str, Profile], Tagger]) -> None:
    doc = Document("Mrs. Zyltrak slept. Zyltrak reports pain. Towels as per Oona Zyltrak.")
    plain, listed = (taggers(with_site, "default", Profile.RECALL).find(doc) for with_site in (False, True))
    whole = doc.text.index("Oona")
    types, before = ({(s.start, s.end): s.type for s in spans if s.start < whole} for spans in (listed, plain))
    assert types[5, 12] is types[20, 27] is PhiType.PATIENT
    assert types == before
    assert [span.type for span in listed if span.start == whole] == [PhiType.DOCTOR]


def test_only_a_site_has_the_recognizer(taggers: Callable[[bool, str, Profile], Tagger]) -> None:
    names = [[each.name for each in taggers(yes, "rules", Profile.RECALL).recognizers] for yes in (False, True)]
    assert names[1] == [*names[0], "site"]


def test_values_of_the_message_win(taggers: Callable[[bool, str, Profile], Tagger]) -> None:
    fact = Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "Zyltrak")
    doc = Document("Zyltrak agreed", (fact,))
    (span,) = taggers(True, "rules", Profile.RECALL).find(doc)
    assert (span.type, span.source.kind) == (PhiType.PATIENT, SourceKind.KNOWN)


def test_a_note_without_listed_values_has_the_same_spans(
    tmp_path: Path, taggers: Callable[[bool, str, Profile], Tagger], recognizer: Recognizer
) -> None:
    for name in ("da-03", "dk-02", "em-04"):
        shutil.copy(ROOT / "corpus" / f"{name}.txt", tmp_path)
    notes = [Document(note.annotated.text) for note in read_corpus(tmp_path)]
    docs = [doc for doc in notes if not list(recognizer.recognize(doc))]
    assert len(docs) > 3
    plain, listed = (taggers(with_site, "default", Profile.RECALL) for with_site in (False, True))
    assert listed.find_all(docs) == plain.find_all(docs)


def test_models_read_the_same_although_a_site_removes_and_vetoes(
    tmp_path: Path, taggers: Callable[[bool, str, Profile], Tagger]
) -> None:
    numeric = [rule.id for rule in load_rules(RULES).patterns if list(rule.find(Document("seen 3/4/2019,")))]
    remove = f"rules = {[*numeric, 'dose']}\n"
    veto = VETO.replace("Zyltrak Mark [0-9]{1,2}", "Abara").replace("Zyltrak Mark 4", "Abara")
    other = make_site(tmp_path / "s", remove, vetoes=veto)
    doc = Document("Dr. Abara, seen 3/4/2019, has Parkinson disease, MRN 4471902.")
    changed = load_tagger(load_rules(RULES, [other]), data_folder("models"), "rules", Profile.RECALL)
    plain = taggers(False, "rules", Profile.RECALL)
    assert changed.first_pass(doc) == plain.first_pass(doc)
    assert found(doc, plain.find(doc)) == ["Abara", "3/4/2019", "4471902"]
    assert found(doc, changed.find(doc)) == ["4471902"]


def test_a_cleared_text_is_phi_only_if_the_message_gives_it(tmp_path: Path) -> None:
    other = make_site(tmp_path / "s", '[terms]\nDOCTOR = ["Abara"]\n')
    tagger = load_tagger(load_rules(RULES, [other]), data_folder("models"), "rules", Profile.RECALL)
    text = "Seen by Dr. Abara and Dr. Abaranda."
    assert found(Document(text), tagger.find(Document(text))) == ["Abaranda"]
    known = Document(text, (Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "Abara"),))
    assert found(known, tagger.find(known)) == ["Abara", "Abaranda"]


def test_a_name_of_many_people_and_a_long_text_take_linear_time(tmp_path: Path) -> None:
    people = "".join(f"Zyltrak, Oona{'abcdefghij'[n % 10]}{chr(97 + n // 10 % 26)}\n" for n in range(5000))
    people += "".join(f"Bram Quo{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}-Zyltrak\n" for n in range(5000))
    other = make_site(tmp_path / "s", DOCTOR=people, HOSPITAL="".join(f"Zonk {n} Row\n" for n in range(5000)))
    built = RECOGNIZERS["site"].build(load_rules(RULES, [other]))
    doc = Document("A. " * 5_000 + "Zyltrak Zonk " * 5_000 + "Zyltrak, " * 5_000)
    assert len(list(built.recognize(doc))) > 5_000

"""Corpora in other formats become notes; errors name file and line, without text."""

from pathlib import Path

import pytest
from support.annotated import render

from deid_agent.eval.markup import Note, map_to_2006_types
from deid_agent.eval.readers import CorpusFormat, detect_format, read_annotated
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.spans import parse_annotated

CASES = Path(__file__).resolve().parents[2] / "cases" / "corpora"
BRAT, LINES, XML_2006 = CASES / "brat", CASES / "notes.jsonl", CASES / "i2b2-2006.xml"
XML_2014 = CASES / "i2b2-2014" / "220-01.xml"


def marked(note: Note) -> str:
    return render(note.annotated.text, note.annotated.spans)


def test_a_record_of_2014() -> None:
    corpus = read_annotated(CASES / "i2b2-2014")
    assert (corpus.format, corpus.remarks) == (CorpusFormat.I2B2_2014, ())
    (note,) = corpus.notes
    assert (note.id, note.patient) == ("220-01", "220")
    assert marked(note) == (
        "\n\nRecord date: [[DATE|2069-03-04]]\n\n"
        "Mrs. [[PATIENT|Quill]] & son, [[AGE|47]] y.o. [[PROFESSION|mill hand]],\n"
        "seen by Dr. [[DOCTOR|Vane]] <[[USERNAME|rv12]]> in [[CITY|Bath]].\n"
    )


def test_records_of_2006_have_its_eight_types() -> None:
    corpus = read_annotated(XML_2006)
    assert corpus.format is CorpusFormat.I2B2_2006
    assert [(n.id, marked(n)) for n in corpus.notes] == [
        (
            "11",
            "\n[[IDNUM|471190]]\n[[HOSPITAL|WQ]]\nDischarged [[DATE|3/4]] & seen by [[DOCTOR|VANE , ROB]] , M.D.\n",
        ),
        ("12", "\n [[PATIENT|Quill]] , from [[CITY|Bath]] , [[PHONE|555-0142]] .\n"),
    ]


def test_findings_are_mapped_to_the_types_of_2006() -> None:
    note = parse_annotated(
        "[[MEDICALRECORD|47]] [[FAX|55]] [[ZIP|12]] [[ORGANIZATION|Mill]] [[USERNAME|ab1]] [[HOSPITAL|WQ]] [[AGE|93]]"
    )
    assert (
        render(note.text, map_to_2006_types(note.spans))
        == "[[IDNUM|47]] [[PHONE|55]] [[CITY|12]] Mill ab1 [[HOSPITAL|WQ]] [[AGE|93]]"
    )


def test_brat_with_a_span_over_a_line_end() -> None:
    corpus = read_annotated(BRAT)
    assert corpus.format is CorpusFormat.BRAT
    assert [marked(n) for n in corpus.notes] == [
        "Mrs. [[PATIENT|Ann\nQuill]] of [[CITY|Bath]],\nseen [[DATE|3/4]] by Dr. [[DOCTOR|Vane]].\n",
        "Nothing here.\n",
    ]


def test_brat_with_a_byte_order_mark_other_line_ends_and_other_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Mrs. Ann\r\nQuill")
    other = "R1\tX Arg1:T1 Arg2:T1\r\nA1\tSure T1\r\n#1\tAnnotatorNotes T1\tT2 said\r\n"
    (tmp_path / "a.ann").write_bytes(f"\ufeffT1\tPATIENT 5 8;10 15\tAnn Quill\r\n{other}".encode())
    assert [marked(n) for n in read_annotated(tmp_path).notes] == ["Mrs. [[PATIENT|Ann\r\nQuill]]"]


def test_json_lines() -> None:
    corpus = read_annotated(LINES)
    assert corpus.format is CorpusFormat.JSONL
    first, second = corpus.notes
    assert marked(first) == "[[PATIENT|Ann Quill]] came on [[DATE|3/4]]."
    assert (first.kind, first.patient, first.profile) == ("letter", "p1", {"name": {"family": "Quill"}})
    assert (second.annotated.text, second.annotated.spans, second.patient) == ("", (), "n2")


def test_the_projects_own_format_is_detected() -> None:
    assert detect_format(CASES.parents[2] / "corpus") is CorpusFormat.MARKUP


BROKEN = [
    (XML_2014, 'TYPE="CITY"', 'TYPE="PLANET"', 17),
    (XML_2014, 'start="91"', 'start="9111"', 17),
    (XML_2014, 'start="91"', 'start="x"', 17),
    (XML_2014, "</TAGS>", "", 19),
    (XML_2014, "<deIdi2b2>", '<!DOCTYPE deIdi2b2 [<!ENTITY a "aaaa">]>\n<deIdi2b2>', 2),
    (XML_2006, 'TYPE="HOSPITAL"', 'TYPE="PLANET"', 6),
    (XML_2006, '<PHI TYPE="HOSPITAL">WQ', '<PHI TYPE="HOSPITAL"><PHI TYPE="DATE">WQ</PHI>', 6),
    (XML_2006, '<RECORD ID="12">', "<RECORD>", 10),
    (XML_2006, "&amp;", "&", 7),
    (LINES, '"start": 0', '"start": "0"', 1),
    (LINES, '"end": 21', '"end": 2100', 1),
    (LINES, '"DATE"', '"DAY"', 1),
    (LINES, '"spans": []', '"spans": null', 2),
    (LINES, '"n2"', '"n1"', 2),
    (LINES, "[]}", "[]", 2),
]


@pytest.mark.parametrize(("source", "old", "new", "line"), BROKEN)
def test_faults_name_file_and_line_and_no_text(tmp_path: Path, source: Path, old: str, new: str, line: int) -> None:
    path = tmp_path / source.name
    text = source.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(ConfigurationError) as fault:
        read_annotated(path)
    assert str(fault.value).startswith(f"{path}:{line}: ")
    assert "Quill" not in str(fault.value)
    assert "PLANET" not in str(fault.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("CITY 18 22", "PLANET 18 22", 2),
        ("CITY 18 22", "CITY 18 2200", 2),
        ("CITY 18 22", "CITY 18", 2),
        ("5 8;9 14", "5 8;15 17", 1),
        ("5 8;9 14", "9 14;5 8", 1),
        ("5 8;9 14", "6 8;9 14", 1),
    ],
)
def test_faults_of_brat_name_file_and_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    (tmp_path / "note-1.txt").write_bytes((BRAT / "note-1.txt").read_bytes())
    path = tmp_path / "note-1.ann"
    path.write_text((BRAT / "note-1.ann").read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(ConfigurationError) as fault:
        read_annotated(tmp_path)
    assert str(fault.value).startswith(f"{path}:{line}: ")


def test_an_xml_entity_bomb_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "220-01.xml"
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 10}">' for n in range(12))
    path.write_text(f"<!DOCTYPE deIdi2b2 [{entities}]><deIdi2b2><TEXT>&e11;</TEXT></deIdi2b2>", "utf-8")
    with pytest.raises(ConfigurationError, match="may define entities"):
        read_annotated(path, CorpusFormat.I2B2_2014)


def test_a_tag_with_another_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "220-01.xml"
    path.write_text(XML_2014.read_text("utf-8").replace('text="Bath"', 'text="Baths"'), "utf-8")
    corpus = read_annotated(tmp_path)
    assert corpus.remarks == (f"{path}:17: the tag's text attribute differs from the text at its offsets",)
    assert len(corpus.notes[0].annotated.spans) == 7


@pytest.mark.parametrize("name", ["a.pdf", "empty"])
def test_an_unknown_format_asks_for_the_option(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("x", "utf-8") if "." in name else path.mkdir()
    with pytest.raises(ConfigurationError, match="--format"):
        read_annotated(path)

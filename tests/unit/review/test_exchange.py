"""Gold in the formats of others, and decisions from annotation tools: round trips, other labels, hostile files."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.review import NOTE, SPANS, Site, make_site

from deid_agent.eval import CorpusFormat, Note, read_annotated
from deid_agent.model import ANNOTATION, Annotated, ConfigurationError, PhiType, Span
from deid_agent.review import ImportForm, ImportResult, ImportSettings, import_decisions, read_gold, write_notes
from deid_agent.review.importing import load_label_map

HOSTILE = "Mr.\u00a0Quill \U0001f600 <b>&amp;</b> ]]\u200b>\r\nAnn\r\nLee\tcame 3/4."
HOSTILE_SPANS = (Span(4, 9, PhiType.PATIENT, ANNOTATION), Span(31, 39, PhiType.PATIENT, ANNOTATION))
EMOJI = "\U0001f600 Mr. Quill \U0001f9d1\u200d\U0001f4bb Ann"


def note(text: str, spans: tuple[Span, ...] = (), id_: str = "ab", patient: str = "cd") -> Note:
    return Note(id_, "", "", patient, Annotated(text, spans), {})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, [NOTE, EMOJI, "Seen by Dr. Vance."])


def content(found: Note) -> tuple[str, list[tuple[int, int, PhiType]]]:
    return found.annotated.text, [(each.start, each.end, each.type) for each in found.annotated.spans]


@pytest.mark.parametrize("form", [CorpusFormat.BRAT, CorpusFormat.I2B2_2014, CorpusFormat.JSONL])
def test_a_written_note_is_read_unchanged(tmp_path: Path, form: CorpusFormat) -> None:
    assert HOSTILE[31:39] == "Ann\r\nLee"
    given = [note(HOSTILE, HOSTILE_SPANS), note(NOTE, SPANS, "ef"), note("Nothing.", (), "gh")]
    write_notes(given, tmp_path / "out", form)
    found = read_annotated(tmp_path / "out", form)
    assert found.remarks == ()
    assert [content(each) for each in found.notes] == [
        content(each) for each in sorted(given, key=lambda each: each.id)
    ]
    if form is not CorpusFormat.BRAT:
        assert {each.patient for each in found.notes} == {"cd"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o600}


def test_markup_keeps_patients_and_refuses_texts_with_its_own_marks(tmp_path: Path) -> None:
    given = [note(NOTE, SPANS), note("Second\n\nnote.", (), "ef"), note("Other.", (), "gh", "aa")]
    write_notes(given, tmp_path / "out", CorpusFormat.MARKUP)
    found = read_annotated(tmp_path / "out").notes
    assert {(each.id, each.patient, each.annotated.text) for each in found} == {
        (each.id, each.patient, each.annotated.text) for each in given
    }
    for text in ("a [[DATE|x]]", "a\n@@END\n", "a\r\nb", "]]"):
        with pytest.raises(ConfigurationError, match="1 note with characters that the format cannot hold: use jsonl"):
            write_notes([note(text)], tmp_path / "bad", CorpusFormat.MARKUP)
    with pytest.raises(ConfigurationError, match="cannot hold"):
        write_notes([note("a\x0bb")], tmp_path / "bad", CorpusFormat.I2B2_2014)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_notes(given, tmp_path / "bad", CorpusFormat.I2B2_2006)
    with pytest.raises(ConfigurationError, match="has files"):
        write_notes(given, tmp_path / "out", CorpusFormat.JSONL)


def take(site: Site, path: Path, form: ImportForm, reviewer: str = "anna", **more: Any) -> ImportResult:
    return import_decisions(site.folder, path, reviewer, ImportSettings(form, **more))


def lines(path: Path, *given: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in given))
    return path


def spans_of(site: Site, at: int, reviewer: str = "anna") -> list[tuple[int, int, str]]:
    decisions = site.folder.read_decisions(site.notes[at])
    return [(each.start, each.end, each.type.value) for each in decisions.own[reviewer].spans]


QUILL = {"start": 4, "end": 9, "type": "PATIENT"}


@pytest.mark.parametrize("form", [ImportForm.BRAT, ImportForm.I2B2_2014, ImportForm.JSONL])
def test_exported_gold_comes_back_as_decisions_by_id(site: Site, tmp_path: Path, form: ImportForm) -> None:
    texts = [site.folder.read_note(each) for each in site.notes]
    given = [note(each.text, (), each.id, each.patient) for each in texts[1:]]
    given.append(note(texts[0].text, SPANS, texts[0].id, texts[0].patient))
    write_notes(given, tmp_path / "out", CorpusFormat(form.value))
    assert take(site, tmp_path / "out", form) == ImportResult(3)
    assert take(site, tmp_path / "out", form) == ImportResult(0, kept=3)
    assert take(site, tmp_path / "out", form, "ben") == ImportResult(3)
    assert [each.annotated.spans for each in read_gold(site.path, site.key)] == [SPANS, (), ()]


def test_a_note_is_found_by_its_text_or_the_name_of_its_source(site: Site, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"id": "any", "text": NOTE, "spans": [QUILL]}, {"id": "n2.txt", "spans": []})
    assert take(site, path, ImportForm.JSONL) == ImportResult(2)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]
    assert spans_of(site, 2) == []


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("given", ["\n", "\r\n", "\r"])
def test_tools_may_change_line_ends(tmp_path: Path, ends: str, given: str) -> None:
    plain = "Note of\n\nMr. Quill\nAnn Lee\n3/4\n"
    site = make_site(tmp_path / "site", [plain.replace("\n", ends)])
    text = plain.replace("\n", given)
    spans = [
        {"start": text.index(value), "end": text.index(value) + len(value), "type": "PATIENT"}
        for value in ("Note", f"Quill{given}Ann", "3/4")
    ]
    for id_ in ("any", site.notes[0]):
        path = lines(tmp_path / "a.jsonl", {"id": id_, "text": text, "spans": spans})
        result = take(site, path, ImportForm.JSONL, "anna" if id_ == "any" else "ben")
        assert result == ImportResult(1)
    own = site.folder.read_note(site.notes[0]).text
    found = [own[begin:end] for begin, end, _ in spans_of(site, 0)]
    assert found == ["Note", f"Quill{ends}Ann", "3/4"]
    assert spans_of(site, 0) == spans_of(site, 0, "ben")


def test_an_empty_text_finds_a_note_by_its_id_in_json_lines_alone(site: Site, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for ending in ("txt", "ann"):
        (tmp_path / "out" / f"{site.notes[0]}.{ending}").touch()
    assert take(site, tmp_path / "out", ImportForm.BRAT) == ImportResult(0, strange=1)
    assert site.folder.read_decisions(site.notes[0]).own == {}


def test_a_tag_of_i2b2_of_another_text_imports_nothing(site: Site, tmp_path: Path) -> None:
    tag = '<NAME id="P0" start="5" end="9" text="Quill" TYPE="PATIENT" comment="" />'
    path = tmp_path / "a-b.xml"
    path.write_text(f"<deIdi2b2><TEXT>{NOTE}</TEXT><TAGS>{tag}</TAGS></deIdi2b2>")
    with pytest.raises(ConfigurationError, match=r"a-b\.xml:1: the tag's text .* differs .*; nothing was imported"):
        take(site, path, ImportForm.I2B2_2014)
    assert site.folder.read_decisions(site.notes[0]).own == {}


def test_a_name_of_two_notes_with_other_texts_finds_neither(tmp_path: Path) -> None:
    site = make_site(tmp_path, [NOTE, EMOJI])
    with site.folder.locked():
        for id_ in site.notes:
            site.folder.write_note(replace(site.folder.read_note(id_), name="n"))
    path = lines(tmp_path / "a.jsonl", {"id": "n", "spans": [{"start": 4, "end": 9, "type": "PATIENT"}]})
    with pytest.raises(ConfigurationError, match="1 note whose text differs"):
        take(site, path, ImportForm.JSONL)


def test_notes_that_are_not_in_the_folder_are_taken_only_if_asked(site: Site, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"id": "x", "text": "Ann came.", "patient_id": "p", "spans": []})
    assert take(site, path, ImportForm.JSONL) == ImportResult(0, strange=1)
    assert take(site, path, ImportForm.JSONL, new=True) == ImportResult(1, new=1)
    assert take(site, path, ImportForm.JSONL, "ben", new=True) == ImportResult(1)
    entry = site.folder.read_index().entries[-1]
    assert entry.reasons == ("imported",)
    with pytest.raises(ConfigurationError, match="random sample"):
        read_gold(site.path, site.key, random_only=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"id": "x", "text": NOTE, "spans": [{**QUILL, "end": 99}]}, "a span ends at 99, after the text's 27"),
        ({"id": "n0.txt", "spans": [{**QUILL, "end": 99}]}, "1 note with spans outside of their text"),
        ({"id": "x", "text": NOTE, "spans": [QUILL, {**QUILL, "start": 0}]}, "1 note with spans that share text"),
        ({"id": "x", "text": NOTE, "spans": [QUILL, {**QUILL, "type": "DOCTOR"}]}, "spans that share text"),
        ({"id": "x", "text": NOTE, "spans": [{"start": 3, "end": 4, "type": "DATE"}]}, "spans of white space"),
    ],
)
def test_invalid_spans_import_nothing(site: Site, tmp_path: Path, line: Mapping[str, object], why: str) -> None:
    good = {"id": "y", "text": "Seen by Dr. Vance.", "spans": []}
    with pytest.raises(ConfigurationError, match=why) as problem:
        take(site, lines(tmp_path / "a.jsonl", good, line), ImportForm.JSONL)
    assert "Quill" not in str(problem.value)
    assert not list((site.path / "decisions").iterdir())


def test_a_changed_text_and_two_decisions_about_one_note_are_refused(site: Site, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"id": site.notes[0], "text": NOTE + " ", "spans": [QUILL]})
    with pytest.raises(ConfigurationError, match="1 note whose text differs from that in the folder"):
        take(site, path, ImportForm.JSONL)
    both = ({"id": "x", "text": NOTE, "spans": [QUILL]}, {"id": "y", "text": NOTE, "spans": []})
    with pytest.raises(ConfigurationError, match="come twice with different spans"):
        take(site, lines(tmp_path / "a.jsonl", *both), ImportForm.JSONL)
    with pytest.raises(ConfigurationError, match="has anna, ben"):
        take(site, path, ImportForm.JSONL, "cara")


def test_another_label_set_is_listed_with_counts_and_mapped(site: Site, tmp_path: Path) -> None:
    spans = [{**QUILL, "type": "PER"}, {"start": 0, "end": 3, "type": "MISC"}, {"start": 18, "end": 26, "type": "DATE"}]
    strange = {"start": 10, "end": 14, "type": "Mr. Quill <came> on \U0001f600 " * 4}
    path = lines(tmp_path / "a.jsonl", {"id": "x", "text": NOTE, "spans": [*spans, strange]})
    with pytest.raises(ConfigurationError, match=r"unknown labels: PER \(1\), MISC \(1\), \(not a label\) \(1\): give"):
        take(site, path, ImportForm.JSONL)
    lines(path, {"id": "x", "text": NOTE, "spans": spans})
    (tmp_path / "map.toml").write_text('PER = "PATIENT"\nMISC = ""\n')
    assert take(site, path, ImportForm.JSONL, labels=tmp_path / "map.toml") == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT"), (18, 26, "DATE")]


@pytest.mark.parametrize("text", ['PER = "PERSON"', "PER = 1", "PER", "\udcff", "[PER]"])
def test_a_bad_map_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=r"map\.toml"):
        load_label_map(tmp_path / "map.toml")


def task(text: str, *spans: tuple[int, int, str, str], by: object = 1, **more: object) -> dict[str, object]:
    """A task of an export of Label Studio in the format JSON."""
    result = [
        {
            "id": f"r{number}",
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "value": {"start": start, "end": end, "text": quoted, "labels": [label]},
        }
        for number, (start, end, quoted, label) in enumerate(spans)
    ]
    choice = {"id": "c", "from_name": "kind", "to_name": "text", "type": "choices", "value": {"choices": ["ok"]}}
    done = {"id": 7, "completed_by": by, "was_cancelled": False, "result": [*result, choice]}
    return {"id": 3, "data": {"text": text}, "annotations": [done], "predictions": [], **more}


def with_value(value: Mapping[str, object]) -> dict[str, object]:
    """A task with one result of this value."""
    return {"id": 3, "data": {"text": NOTE}, "annotations": [{"completed_by": 1, "result": [{"value": value}]}]}


def studio(tmp_path: Path, *tasks: object) -> Path:
    (tmp_path / "export.json").write_text(json.dumps([*tasks]))
    return tmp_path / "export.json"


def test_label_studio_counts_in_units_of_utf16(site: Site, tmp_path: Path) -> None:
    units = task(EMOJI, (7, 12, "Quill", "PATIENT"), (19, 22, "Ann", "PATIENT"))
    assert take(site, studio(tmp_path, units), ImportForm.LABEL_STUDIO) == ImportResult(1)
    assert [EMOJI[begin:end] for begin, end, _ in spans_of(site, 1)] == ["Quill", "Ann"]
    characters = task(EMOJI, (6, 11, "Quill", "PATIENT"), (16, 19, "Ann", "PATIENT"))
    assert take(site, studio(tmp_path, characters), ImportForm.LABEL_STUDIO, "ben") == ImportResult(1)
    assert spans_of(site, 1) == spans_of(site, 1, "ben")


def test_label_studio_with_several_annotators_needs_a_choice(site: Site, tmp_path: Path) -> None:
    first, second = task(NOTE, by=1), task(NOTE, (4, 9, "Quill", "PATIENT"), by={"id": 2, "email": "b@x.example"})
    several = {**first, "annotations": [*first["annotations"], *second["annotations"]]}  # type: ignore[misc]
    path = studio(tmp_path, several)
    with pytest.raises(ConfigurationError, match="task 1: has 2 annotations: choose one with --annotator"):
        take(site, path, ImportForm.LABEL_STUDIO)
    assert take(site, path, ImportForm.LABEL_STUDIO, annotator="b@x.example") == ImportResult(1)
    assert take(site, path, ImportForm.LABEL_STUDIO, "ben", annotator="1") == ImportResult(1)
    assert (spans_of(site, 0), spans_of(site, 0, "ben")) == ([(4, 9, "PATIENT")], [])
    with pytest.raises(ConfigurationError, match="no annotated note"):
        take(site, path, ImportForm.LABEL_STUDIO, annotator="9")


def test_an_export_with_a_byte_order_mark_drafts_and_answers_about_spans_is_read(site: Site, tmp_path: Path) -> None:
    answer = {"value": {"start": 4, "end": 9, "text": "Quill", "choices": ["sure"]}, "type": "choices"}
    relation = {"type": "relation", "from_id": "r0", "to_id": "r0"}
    cancelled = {"completed_by": 2, "was_cancelled": True, "result": []}
    given = task(NOTE, (4, 9, "Quill", "PATIENT"), drafts=[{"result": [{"value": {"start": 0, "end": 1}}]}])
    done: dict[str, Any] = given["annotations"][0]  # type: ignore[index]
    done["result"] += [answer, relation]
    path = tmp_path / "export.json"
    path.write_text("\ufeff" + json.dumps([{**given, "annotations": [cancelled, done]}]))
    assert take(site, path, ImportForm.LABEL_STUDIO) == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]
    twice = {**given, "annotations": [done, done]}
    with pytest.raises(ConfigurationError, match="task 1: has 2 annotations: all by one person"):
        take(site, studio(tmp_path, twice), ImportForm.LABEL_STUDIO, "ben")


def test_the_short_format_of_label_studio_is_read_too(site: Site, tmp_path: Path) -> None:
    spans = [{"start": 4, "end": 9, "text": "Quill", "labels": ["PATIENT"]}]
    short = {"id": 1, "text": NOTE, "label": spans, "annotator": 1, "annotation_id": 2}
    assert take(site, studio(tmp_path, short), ImportForm.LABEL_STUDIO) == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ("{}", "expected a list of tasks"),
        ("[1]", "expected a list of tasks"),
        ("[", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "has no annotated note"),
        ([task(NOTE, (4, 99, "Quill", "PATIENT"))], "task 1: a span ends outside of the text"),
        ([task(NOTE, (-4, 9, "Quill", "PATIENT"))], "task 1: a span ends outside of the text"),
        ([task(EMOJI, (1, 6, "x", "PATIENT"))], "inside a character"),
        ([task(NOTE, (4, 9, "Other", "PATIENT"))], "differs from the text at its offsets"),
        ([task(NOTE, (9, 9, "", "PATIENT"))], "a span is empty"),
        ([task(NOTE, (4.5, 9, "Quill", "PATIENT"))], "no whole numbers"),  # type: ignore[arg-type]
        ([task(NOTE) | {"data": {"a": "x", "b": "y"}}], 'its data has no "text"'),
        ([task(NOTE) | {"annotations": [{"result": 3}]}], "not in the format of Label Studio"),
        ([task(NOTE) | {"annotations": 3}], "not in the format of Label Studio"),
        ([task(NOTE), task(EMOJI, by=2)], "several people have annotated: choose one with --annotator"),
        ([with_value({"start": 4, "end": 9, "text": "Quill"})], "task 1: a span has 0 labels"),
        (
            [with_value({"start": "0", "end": "0", "startOffset": 4, "endOffset": 9, "paragraphlabels": ["PATIENT"]})],
            "task 1: spans of another kind",
        ),
        ([{"id": 1, "text": NOTE, "label": [{"start": 4, "end": 9, "brushlabels": ["PATIENT"]}]}], "another kind"),
    ],
)
def test_other_files_are_clear_errors(site: Site, tmp_path: Path, tasks: object, why: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(tasks if isinstance(tasks, str) else json.dumps(tasks))
    with pytest.raises(ConfigurationError, match=why) as problem:
        take(site, path, ImportForm.LABEL_STUDIO)
    assert "Quill" not in str(problem.value)


def xmi(text: str, *elements: str, declaration: str = "") -> str:
    """The XMI of a CAS with one text."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{declaration}<xmi:XMI xmlns:xmi="http://www.omg.org/XMI" '
        'xmlns:cas="http:///uima/cas.ecore" xmlns:custom="http:///webanno/custom.ecore" '
        'xmlns:type="http:///de/tudarmstadt/ukp/dkpro/core/api/ner/type.ecore" '
        'xmlns:seg="http:///de/tudarmstadt/ukp/dkpro/core/api/segmentation/type.ecore" xmi:version="2.0">'
        f'<cas:NULL xmi:id="0"/>{"".join(elements)}<cas:Sofa xmi:id="12" sofaNum="1" sofaID="_InitialView" '
        f'mimeType="text" sofaString="{text}"/><cas:View sofa="12" members="2"/></xmi:XMI>'
    )


def entity(begin: object, end: object, label: str = "PATIENT", sofa: int = 12) -> str:
    return f'<type:NamedEntity xmi:id="2" sofa="{sofa}" begin="{begin}" end="{end}" value="{label}"/>'


def test_an_xmi_of_inception_is_read(site: Site, tmp_path: Path) -> None:
    lemma = '<seg:Lemma xmi:id="3" sofa="12" begin="0" end="3" value="mr"/>'
    token = '<seg:Token xmi:id="4" sofa="12" begin="0" end="3"/>'
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "anna.xmi").write_text(xmi(EMOJI, lemma, token, entity(7, 12), entity(0, 1, "DATE", sofa=13)))
    assert take(site, tmp_path / "doc", ImportForm.INCEPTION) == ImportResult(1)
    assert spans_of(site, 1) == [(6, 11, "PATIENT")]


def test_a_document_that_nobody_has_annotated_is_not_a_decision(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "annotation" / "doc.txt"
    folder.mkdir(parents=True)
    (folder / "INITIAL_CAS.xmi").write_text(xmi(NOTE))
    with pytest.raises(ConfigurationError, match=r"holds no \*\.xmi"):
        take(site, tmp_path / "annotation", ImportForm.INCEPTION)
    (folder / "anna.xmi").write_text(xmi(NOTE, entity(4, 9)))
    assert take(site, tmp_path / "annotation", ImportForm.INCEPTION) == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]


def test_the_text_of_a_cas_is_that_of_its_initial_view(site: Site, tmp_path: Path) -> None:
    raw = '<cas:Sofa xmi:id="3" sofaNum="2" sofaID="raw" mimeType="text" sofaString="Mr. X"/>'
    (tmp_path / "a.xmi").write_text(xmi(NOTE, raw, entity(4, 9)))
    assert take(site, tmp_path / "a.xmi", ImportForm.INCEPTION) == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]
    (tmp_path / "a.xmi").write_text(xmi(NOTE, raw, entity(4, 5, sofa=3), entity(4, 9)))
    with pytest.raises(ConfigurationError, match="an annotation of another view"):
        take(site, tmp_path / "a.xmi", ImportForm.INCEPTION, "ben")


def test_a_layer_of_the_site_names_its_feature(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "a.xmi"
    path.write_text(xmi(NOTE, '<custom:PHI xmi:id="5" sofa="12" begin="4" end="9" kind="PATIENT"/>'))
    with pytest.raises(ConfigurationError, match=r"name its feature with --feature \(kind\)"):
        take(site, path, ImportForm.INCEPTION)
    assert take(site, path, ImportForm.INCEPTION, feature="kind") == ImportResult(1)
    assert spans_of(site, 0) == [(4, 9, "PATIENT")]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (xmi(NOTE, declaration=BOMB), "has a document type"),
        (xmi(NOTE, declaration='<!DOCTYPE x SYSTEM "file:///etc/passwd">'), "has a document type"),
        (xmi(NOTE)[:-20], "not well-formed"),
        ("", "not well-formed"),
        ("<a/>", "has no text: not an XMI"),
        (xmi(NOTE, entity(4, 99)), "ends outside of the text"),
        (xmi(NOTE, entity(-1, 9)), "no numbers as offsets"),
        (xmi(NOTE, entity("9" * 400, 9)), "ends outside of the text"),
        (xmi(NOTE, entity(9, 4)), "a span is empty"),
        (xmi(EMOJI, entity(1, 9)), "inside a character"),
        (xmi(NOTE, entity(4, 9), entity(18, 26, "")), r"a\.xmi:1: an annotation has no label: give it one"),
        (
            xmi(NOTE, '<custom:P sofa="12" begin="4" end="9"><value>PATIENT</value><value>DATE</value></custom:P>'),
            "an annotation has a list of labels",
        ),
        (xmi(NOTE, entity(4, 9, "QUILL, John")), "a label is the text of its span"),
        (xmi(NOTE, entity(4, 9, "PER")), r"unknown labels: PER \(1\)"),
    ],
)
def test_hostile_and_other_xml_is_a_clear_error(site: Site, tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.xmi").write_text(content)
    with pytest.raises(ConfigurationError, match=why) as problem:
        take(site, tmp_path / "a.xmi", ImportForm.INCEPTION)
    assert "Quill" not in str(problem.value)


def test_an_xmi_that_the_library_of_uima_writes_is_read(site: Site, tmp_path: Path) -> None:
    cassis = pytest.importorskip("cassis")
    types = cassis.TypeSystem()
    layer = types.create_type("webanno.custom.PHI", supertypeName="uima.tcas.Annotation")
    types.create_feature(domainType=layer, name="value", rangeType="uima.cas.String")
    cas = cassis.Cas(typesystem=types)
    cas.sofa_string, cas.sofa_mime = EMOJI, "text/plain"
    cas.add(layer(begin=6, end=11, value="PATIENT"))
    cas.add(layer(begin=16, end=19, value="DOCTOR"))
    cas.to_xmi(tmp_path / "a.xmi")
    assert take(site, tmp_path / "a.xmi", ImportForm.INCEPTION) == ImportResult(1)
    assert [(EMOJI[begin:end], kind) for begin, end, kind in spans_of(site, 1)] == [
        ("Quill", "PATIENT"),
        ("Ann", "DOCTOR"),
    ]


def test_a_huge_file_and_a_missing_one_are_refused(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = studio(tmp_path, task(NOTE))
    monkeypatch.setattr("deid_agent.review.importing.MOST_BYTES", 10)
    with pytest.raises(ConfigurationError, match="has a file of more than"):
        take(site, path, ImportForm.LABEL_STUDIO)
    with pytest.raises(ConfigurationError, match="no such file"):
        take(site, tmp_path / "none", ImportForm.BRAT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"holds no \*.xmi"):
        take(site, tmp_path / "empty", ImportForm.INCEPTION)
    with pytest.raises(ConfigurationError, match="holds no note"):
        take(site, tmp_path / "empty", ImportForm.BRAT)

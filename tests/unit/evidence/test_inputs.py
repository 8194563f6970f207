"""Originals and outputs that belong together, and those that do not."""

from pathlib import Path

import pytest
from support.evidence import write_lines

from deid_agent.evidence.inputs import read_feed
from deid_agent.model import ConfigurationError

LONG = "Zyblorq was seen with chest pain and shortness of breath, number {0}, on the ward of the clinic in the morning."
OTHER = (
    "Completely different words fill this page about gardens, tulips, bulbs and spades of various shapes, sizes {0}."
)


def folders(tmp_path: Path, before: dict[str, str], after: dict[str, str]) -> tuple[Path, Path]:
    for name, texts in (("originals", before), ("outputs", after)):
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            path = tmp_path / name / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return tmp_path / "originals", tmp_path / "outputs"


def test_notes_of_folders_are_paired_by_name(tmp_path: Path) -> None:
    before = {"p1/a.txt": "Seen by Zyblorq.", "p1/b.txt": "x", "c.txt": "y"}
    after = {"p1/a.txt": "Seen by Harper.", "p1/b.txt": "x", "c.txt": "y", "DEMO-KEY.txt": "demo", ".hidden": "z"}
    feed = read_feed(*folders(tmp_path, before, after))
    assert [(pair.note, pair.patient) for pair in feed.pairs] == [
        ("c.txt", "c"),
        ("p1/a.txt", "p1"),
        ("p1/b.txt", "p1"),
    ]
    assert feed.describe()["patients"] == 2
    assert (feed.files, feed.missing) == (3, 0)


def test_lines_are_paired_by_id(tmp_path: Path) -> None:
    one = write_lines(
        tmp_path / "a.jsonl", [{"id": "n1", "text": "Zyblorq x", "patient_id": "p"}, {"id": "n2", "text": ""}]
    )
    other = write_lines(
        tmp_path / "b.jsonl",
        [
            {"id": "n2", "text": ""},
            {"id": "n1", "text": "Harper x", "spans": [{"start": 0, "end": 7, "type": "PATIENT"}]},
        ],
    )
    feed = read_feed(one, other)
    assert [(pair.note, pair.patient) for pair in feed.pairs] == [("n1", "p"), ("n2", "n2")]
    (named,) = feed.pairs[0].replaced
    assert (named.type, feed.pairs[0].surrogate(named)) == ("PATIENT", "Harper")


def test_messages_have_results_texts_and_patients(tmp_path: Path) -> None:
    message = "MSH|^~\\&|A|B\rPID|1||4471||Zyblorq^Z\rOBX|1|NM|1||5.4|mg\rOBX|2|TX|1||Seen by Zyblorq.\r"
    feed = read_feed(*folders(tmp_path, {"a.hl7": message}, {"a.hl7": message.replace("Zyblorq", "Harper")}))
    ((patient, before, after),) = feed.messages
    assert patient == "4471"
    assert before.results == after.results
    assert [pair.output for pair in feed.pairs] == ["Seen by Harper."]


def test_an_original_without_an_output_is_an_error_unless_it_was_refused(tmp_path: Path) -> None:
    given = folders(tmp_path, {"Zyblorq.txt": "a", "b.txt": "b"}, {"b.txt": "b"})
    with pytest.raises(ConfigurationError, match="1 original without an output: give --accept-missing") as caught:
        read_feed(*given)
    assert "Zyblorq" not in str(caught.value)
    assert read_feed(*given, accept_missing=True).missing == 1


def test_a_line_without_an_output_is_missing_too(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a.jsonl", [{"id": "n1", "text": "a"}, {"id": "n2", "text": "b"}])
    other = write_lines(tmp_path / "b.jsonl", [{"id": "n1", "text": "a"}])
    with pytest.raises(ConfigurationError, match="1 original without an output"):
        read_feed(one, other)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ({"a.txt": "a"}, {"a.txt": "a", "Zyblorq.txt": "b"}, "1 output of 2 without an original"),
        ({"a.txt": LONG.format(1)}, {"a.txt": OTHER.format(1)}, "1 text of 1 with an output that is another text"),
        (
            {"a.jsonl": '{"id": "Zyblorq", "text": "a"}'},
            {"a.jsonl": '{"id": "x", "text": "a"}'},
            "with an id of no original",
        ),
        ({"a.jsonl": '{"id": "Zyblorq"'}, {"a.jsonl": ""}, "file 1 of ORIGINALS: line 1: is not a note"),
        ({"a.jsonl": '{"id": "x"}\n{"id": "x"}'}, {"a.jsonl": ""}, "line 2: an earlier line has the same id"),
        ({"a.txt": "a"}, {}, "OUTPUTS .* has no file"),
    ],
)
def test_inputs_that_do_not_belong_together_are_a_clear_error(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], problem: str
) -> None:
    given = folders(tmp_path, before, after)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_feed(*given, accept_missing=True)
    assert "Zyblorq" not in str(caught.value)


def test_two_outputs_that_were_exchanged_are_found(tmp_path: Path) -> None:
    before = {f"{n:02}.txt": LONG.format(n) for n in range(20)} | {
        "x.txt": LONG.format(7) * 3,
        "y.txt": OTHER.format(8) * 3,
    }
    after = before | {"x.txt": before["y.txt"], "y.txt": before["x.txt"]}
    with pytest.raises(ConfigurationError, match="2 texts of 22"):
        read_feed(*folders(tmp_path, before, after))


def test_a_note_may_be_mostly_replaced(tmp_path: Path) -> None:
    before = {f"{n:02}.txt": LONG.format(n) for n in range(20)} | {"x.txt": OTHER.format(1)}
    feed = read_feed(*folders(tmp_path, before, before | {"x.txt": LONG.format(1)}))
    assert feed.unlike == 1


def test_the_same_folder_twice_is_refused(tmp_path: Path) -> None:
    one, _ = folders(tmp_path, {"a.txt": "a"}, {"a.txt": "a"})
    with pytest.raises(ConfigurationError, match="are the same"):
        read_feed(one, one)


def test_a_note_that_is_not_utf8_is_named_by_its_place(tmp_path: Path) -> None:
    one, other = folders(tmp_path, {"Zyblorq.txt": "a"}, {"Zyblorq.txt": "a"})
    (one / "Zyblorq.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigurationError, match="file 1: is not UTF-8") as caught:
        read_feed(one, other)
    assert "Zyblorq" not in str(caught.value)


def test_a_date_of_the_same_year_is_replaced_as_a_whole(tmp_path: Path) -> None:
    one, other = "Seen 2019-03-04, 3/9/2019 by Zoltan Quibble.", "Seen 2019-05-11, 5/16/2019 by Martin Harper."
    feed = read_feed(*folders(tmp_path, {"a.txt": one}, {"a.txt": other}))
    (pair,) = feed.pairs
    assert [(pair.replaced_text(each), pair.surrogate(each)) for each in pair.replaced] == [
        ("2019-03-04", "2019-05-11"),
        ("3/9/2019", "5/16/2019"),
        ("Zoltan Quibble", "Martin Harper"),
    ]


MESSAGE = "MSH|^~\\&|A|B\rPID|1||{0}||{1}^Z\rOBX|1|NM|1||5.4|mg\rOBX|2|TX|1||Seen by {1}, not MSH|.\r"


@pytest.mark.parametrize(
    "frame", ["{}{}", "\ufeff{}\n{}", "FHS|^~\\&|\rBHS|^~\\&|\r{}{}BTS|2\rFTS|1\r", "\x0b{}\x1c\r\x0b{}\x1c\r"]
)
def test_each_message_of_a_file_has_its_own_patient(tmp_path: Path, frame: str) -> None:
    before, after = (
        frame.format(MESSAGE.format("4471", name), MESSAGE.format("4472", name)) for name in ("Zyblorq", "Harper")
    )
    feed = read_feed(*folders(tmp_path, {"a.hl7": before}, {"a.hl7": after}))
    assert [(patient, facts.results) for patient, facts, _ in feed.messages] == [
        ("4471", {"OBX/1": "5.4|mg|"}),
        ("4472", {"OBX/1": "5.4|mg|"}),
    ]
    assert [(pair.patient, pair.output) for pair in feed.pairs] == [
        ("4471", "Seen by Harper, not MSH"),
        ("4472", "Seen by Harper, not MSH"),
    ]


def test_a_file_that_lost_a_message_is_refused(tmp_path: Path) -> None:
    one = MESSAGE.format("4471", "Zyblorq")
    with pytest.raises(ConfigurationError, match="file 1: its output has another number of messages") as caught:
        read_feed(*folders(tmp_path, {"a.hl7": one * 2}, {"a.hl7": one}))
    assert "Zyblorq" not in str(caught.value)


@pytest.mark.parametrize("name", ["Patient.ndjson", "patients.json"])
def test_lines_of_resources_are_refused_and_not_counted_as_notes_without_output(tmp_path: Path, name: str) -> None:
    lines = "".join(f'{{"resourceType":"Patient","id":"{n}","gender":"female"}}\n' for n in (1, 2))
    with pytest.raises(ConfigurationError, match="file 1: lines of FHIR resources"):
        read_feed(*folders(tmp_path, {name: lines}, {name: lines}), accept_missing=True)

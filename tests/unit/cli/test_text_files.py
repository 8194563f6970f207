"""Files, folders, encodings and worker processes of ``text``."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.corpus import RULES

from deid_agent.app import WorkerFactory
from deid_agent.cli import main
from deid_agent.cli.inputs import Input
from deid_agent.cli.note_files import FileNote, encode_note, read_lines
from deid_agent.cli.note_workers import run_in_workers
from deid_agent.config import DEMO_KEY
from deid_agent.model import Reason
from deid_agent.pipeline import DeidentifiedText, Deidentifier, RefusedText, TextRequest, load_policy

NOTE = "Seen 03/04/2019 for cough. MRN: 4471902. Call 740-555-0183."


def text(*args: str | Path, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["text", "--demo-key", "--system", "rules", *map(str, args)], input=stdin)


def line(**members: object) -> str:
    return json.dumps(members) + "\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with 40 notes, one below a folder, one that is no text, and a hidden file."""
    folder = tmp_path / "notes"
    (folder / "ward").mkdir(parents=True)
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"Note {number}. {NOTE}", "utf-8")
    (folder / "ward" / "a.txt").write_text(NOTE, "utf-8")
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    (folder / ".hidden").write_text(NOTE, "utf-8")
    return folder


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_gives_a_folder_with_the_same_names(notes: Path, tmp_path: Path) -> None:
    done = text(notes, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "bad.txt: byte 0: not UTF-8; convert the note first, or give --encoding" in done.stderr
    found = read_tree(tmp_path / "out")
    assert found.keys() == {*(f"{n:02}.txt" for n in range(40)), "ward/a.txt", "DEMO-KEY.txt"}
    alone = text(stdin=(notes / "07.txt").read_bytes())
    assert alone.exit_code == 0
    assert found["07.txt"].startswith(b"Note 7. Seen ")
    assert b"4471902" not in b"".join(found.values())


def test_workers_give_the_same_files(notes: Path, tmp_path: Path) -> None:
    one = text(notes, "--out", tmp_path / "one")
    two = text(notes, "--out", tmp_path / "two", "--workers", "2")
    assert (one.exit_code, one.stderr) == (two.exit_code, two.stderr)
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")


def test_workers_keep_the_order_of_lines_and_their_faults(tmp_path: Path) -> None:
    given = line(id="a", text="Towels near Zyblorq.", context={"name": {"family": "Zyblorq"}}) + "{\n"
    given += "".join(line(id=f"n{n}", text=f"{n} {NOTE}", patient_id=f"p{n % 3}") for n in range(60))
    given += line(id="half", text="\ud800 " + NOTE) + line(id="long", text="x " * 500_001)
    one, two = (text("--jsonl", "--workers", n, "-", stdin=given) for n in ("1", "2"))
    assert one.stdout == two.stdout
    assert one.stdout.count("\n") == 61  # JSON has no half of a surrogate pair
    assert one.stderr == two.stderr
    assert "line 2: MALFORMED" in one.stderr
    assert "line 64: RESOURCE" in one.stderr
    assert one.exit_code == two.exit_code == 1


@dataclass(frozen=True)
class Deadly(WorkerFactory):
    """A factory whose worker dies at the word ``killer``."""

    def deidentifier(self, *args: object, **options: object) -> Deidentifier:
        made = super().deidentifier(notes_only=True)
        texts: Callable[[Sequence[TextRequest]], object] = made.texts

        def die_or_read(requests: Sequence[TextRequest]) -> object:
            if any("killer" in request.text for request in requests):
                os.kill(os.getpid(), signal.SIGKILL)
            return texts(requests)

        made.texts = die_or_read  # type: ignore[method-assign, assignment]
        return made


def test_a_note_that_kills_its_worker_is_refused_alone() -> None:
    factory = Deadly(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES), system="rules")
    source = Input("x", None)
    given = [FileNote(source, str(n), str(n), TextRequest(f"{'killer' if n == 5 else n} {NOTE}")) for n in range(12)]
    found: list[tuple[str, Reason | None]] = []

    def emit(note: FileNote, result: DeidentifiedText | RefusedText | None) -> None:
        found.append((note.place, result.reason if isinstance(result, RefusedText) else None))

    run_in_workers(iter(given), factory, 1, emit)
    assert found == [(str(n), Reason.POISON if n == 5 else None) for n in range(12)]


def test_a_fault_of_the_reader_and_of_the_writer_ends_the_run() -> None:
    factory = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES), system="rules")
    note = FileNote(Input("x", None), "1", "1", TextRequest(NOTE))

    def broken() -> object:
        yield note
        raise OSError(5, "Input/output error")

    def full(*_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(OSError, match="Input/output error"):
        run_in_workers(broken(), factory, 1, lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(BrokenPipeError):
        run_in_workers(iter([note] * 3), factory, 1, full)


@pytest.mark.parametrize(("encoding", "name"), [("cp1252", "CP1252"), ("utf-16", "utf-16"), ("latin-1", "iso8859-1")])
def test_a_note_keeps_its_encoding(tmp_path: Path, encoding: str, name: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"Fièvre. {NOTE}".encode(encoding))
    done = text(tmp_path / "a.txt", "--out", tmp_path / "out", "--encoding", name)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "a.txt").read_bytes().decode(encoding).startswith("Fièvre. Seen ")


def test_a_character_that_an_encoding_lacks_loses_its_accent() -> None:
    assert encode_note("Łódź Ōta 東", "cp1252") == "?ód".encode("cp1252") + b"z Ota ?"


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        (("--encoding", "klingon"), "--encoding: no such encoding of text"),
        (("--encoding", "base64"), "--encoding: no such encoding of text"),
        (("--jsonl", "--encoding", "latin-1"), "JSON lines are UTF-8"),
        (("--jsonl", "--by-patient", "--workers", "2"), "leave out --workers"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_options_that_exclude_each_other(args: tuple[str, ...], fault: str) -> None:
    done = text(*args, stdin=NOTE)
    assert done.exit_code == 2
    assert fault in done.stderr


def test_names_of_outputs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOTE)
    (tmp_path / "b.jsonl").write_text(line(id="a", text=NOTE))
    (tmp_path / "empty.jsonl").write_text("\n")
    out = tmp_path / "out"
    assert text(tmp_path / "a.txt", "--json", "--out", out).exit_code == 0
    assert text(tmp_path / "b.jsonl", tmp_path / "empty.jsonl", "--jsonl", "--out", out).exit_code == 0
    assert text("--out", out, stdin=NOTE).exit_code == 0
    found = read_tree(out)
    assert found.keys() == {"a.txt.jsonl", "b.jsonl", "empty.jsonl", "note.txt", "DEMO-KEY.txt"}
    assert found["empty.jsonl"] == b""


def test_an_output_never_overwrites_an_input_or_another_output(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(NOTE)
    same = text(tmp_path / "one", "--out", tmp_path / "one")
    assert (same.exit_code, "would overwrite its own input" in same.stderr) == (2, True)
    twice = text(tmp_path / "one", tmp_path / "two", "--out", tmp_path / "out")
    assert (twice.exit_code, "two inputs are named a.txt" in twice.stderr) == (2, True)
    (tmp_path / "three" / "two").mkdir(parents=True)
    (tmp_path / "three" / "two" / "a.txt").write_text(NOTE)
    other = text(tmp_path / "three", tmp_path / "two", "--out", tmp_path)
    assert (other.exit_code, "would overwrite another input, two/a.txt" in other.stderr) == (2, True)


def test_notes_of_one_name_in_two_folders_have_shifts_of_their_own(tmp_path: Path) -> None:
    for folder in "abcdef":
        (tmp_path / "notes" / folder).mkdir(parents=True)
        (tmp_path / "notes" / folder / "note.txt").write_text(NOTE)
    assert text(tmp_path / "notes", "--out", tmp_path / "out").exit_code == 0
    assert len({path.read_bytes() for path in (tmp_path / "out").glob("*/note.txt")}) > 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_note_in_ascii_is_never_written_as_utf_16(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes((NOTE + " " * (len(NOTE) % 2)).encode())
    done = text(tmp_path / "a.txt", "--out", tmp_path / "out", "--encoding", encoding)
    assert (done.exit_code, "not UTF-16" in done.stderr) == (1, True)
    assert read_tree(tmp_path / "out").keys() == {"DEMO-KEY.txt"}


def test_a_file_with_the_longest_name_has_an_output(tmp_path: Path) -> None:
    name = "é" * 125 + "a.txt"
    (tmp_path / name).write_text(NOTE)
    assert text(tmp_path / name, "--out", tmp_path / "out").exit_code == 0
    assert read_tree(tmp_path / "out").keys() == {"DEMO-KEY.txt", name}


@pytest.mark.parametrize(
    ("stream", "args", "code", "fault"),
    [
        ("stdin", (), 1, "-: cannot be read (standard input is closed)"),
        ("stdin", ("--jsonl",), 1, "-: cannot be read (standard input is closed)"),
        ("stdout", (), 3, "standard output is closed"),
    ],
)
def test_a_closed_stream_is_named(stream: str, args: tuple[str, ...], code: int, fault: str) -> None:
    command = f"exec {sys.executable} -m deid_agent text --demo-key --system rules {' '.join(args)} "
    shell = command + ("<&-" if stream == "stdin" else ">&-")
    done = subprocess.run(["/bin/sh", "-c", shell], input=NOTE.encode(), capture_output=True, check=False)
    assert (done.returncode, fault in done.stderr.decode()) == (code, True), done.stderr.decode()


def test_an_encoding_without_a_position_of_its_fault(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOTE)
    done = text(tmp_path / "a.txt", "--encoding", "punycode")
    assert done.exit_code == 1
    # Python 3.13 gives a position.
    assert re.search(r"byte \d+: not PUNYCODE; correct --encoding", done.stderr)


def test_by_patient_reads_a_pipe_twice() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as target:
        target.write((line(id="a", text=NOTE, patient_id="p") * 2).encode())
    done = text("--jsonl", "--by-patient", f"/dev/fd/{read}")
    os.close(read)
    assert (done.exit_code, done.stdout.count("\n")) == (0, 2)


def test_a_file_that_breaks_off_gives_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: Input) -> object:
        yield line(id="a", text=NOTE).encode()
        raise OSError(5, "Input/output error")

    (tmp_path / "a.jsonl").write_text(line(id="a", text=NOTE))
    monkeypatch.setattr("deid_agent.cli.note_files._open_lines", broken)
    done = text(tmp_path / "a.jsonl", "--jsonl", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "cannot be read (Input/output error)" in done.stderr
    assert read_tree(tmp_path / "out").keys() == {"DEMO-KEY.txt"}


def test_a_line_of_a_pipe_does_not_wait_for_the_next() -> None:
    command = [sys.executable, "-m", "deid_agent", "text", "--demo-key", "--system", "rules", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(line(id=str(number), text=NOTE).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == str(number)
        process.stdin.write(line(id="end", text=NOTE).encode().rstrip())
        process.stdin.close()
        assert json.loads(process.stdout.readline())["id"] == "end"
        assert process.wait() == 0


def test_lines_are_read_whole_however_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    data = "".join(line(id=str(n), text="é" * n * 900) for n in range(40)).encode()
    with os.fdopen(read, "rb") as source, os.fdopen(write, "wb") as target:
        target.write(data[:60_000])
        target.close()
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": source}))
        notes = [note for note in read_lines(Input("-", None)) if note is not None and note.request is not None]
    assert [note.id for note in notes] == [str(n) for n in range(len(notes))]
    assert len(notes) > 3

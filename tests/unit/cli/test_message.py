"""``message``: files in, files out under the same names, one remarks line each."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.cli import main
from deid_agent.cli.inputs import OutputFile

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"


def message(*args: str | Path, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["message", "--demo-key", *map(str, args)], input=stdin)


def test_outputs_of_a_folder_keep_the_file_names(tmp_path: Path) -> None:
    out, remarks = tmp_path / "out", tmp_path / "remarks.jsonl"
    done = message(SAMPLES, "--out", out, "--remarks", remarks)
    assert done.exit_code == 1  # the cut-off one
    lines = [json.loads(line) for line in remarks.read_text().splitlines()]
    assert [line["file"] for line in lines] == sorted(p.name for p in SAMPLES.iterdir())
    refused = [line for line in lines if line["outcome"] == "dead_lettered"]
    assert [(line["file"], line["reason"]) for line in refused] == [("06-cut-off.json", "MALFORMED")]
    for line in lines:
        assert line["file"] in done.stderr or (out / line["file"]).exists()
        for remark in line["remarks"]:
            assert set(remark) == {"path", "type", "method", "source", "count"}
    assert (out / "DEMO-KEY.txt").exists()
    assert not (out / "06-cut-off.json").exists()


@pytest.mark.parametrize("name", ["01-adt-a01.hl7", "02-oru-discharge.hl7", "03-mdm-t02.hl7"])
def test_hl7_keeps_its_structure(name: str) -> None:
    raw = (SAMPLES / name).read_bytes()
    out = message("-", stdin=raw).stdout_bytes
    assert [s.count(b"|") for s in out.split(b"\r")] == [s.count(b"|") for s in raw.split(b"\r")]
    assert [s[:3] for s in out.split(b"\r")] == [s[:3] for s in raw.split(b"\r")]
    for value in (b"Okafor", b"Adaeze", b"4471902", b"Lindqvist", b"5530177", b"Castellano", b"Haverty"):
        assert value not in out


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("0[1-5]*")), ids=lambda p: p.name)
def test_keep_changes_no_byte(path: Path) -> None:
    assert message("-", "--policy", "keep", stdin=path.read_bytes()).stdout_bytes == path.read_bytes()


def test_one_patient_is_one_patient_in_all_messages(tmp_path: Path) -> None:
    message(SAMPLES, "--out", tmp_path)
    adt, oru = ((tmp_path / name).read_bytes().decode() for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7"))
    pid = adt.split("\r")[2].split("|")
    mrn, family = pid[3].split("^")[0], pid[5].split("^")[0]
    assert f"{family}, " in oru
    assert f"MRN: {mrn}" in oru
    bundle = json.loads((tmp_path / "05-bundle.json").read_text())
    patient = bundle["entry"][0]["resource"]
    assert patient["name"][0]["family"] == family
    assert patient["identifier"][0]["value"] == mrn == patient["id"]
    assert bundle["entry"][1]["resource"]["subject"]["reference"] == f"Patient/{mrn}"


def test_several_messages_need_a_folder() -> None:
    done = message(SAMPLES)
    assert done.exit_code == 2
    assert "--out" in done.stderr


def test_outputs_never_overwrite(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.hl7").write_bytes((SAMPLES / "01-adt-a01.hl7").read_bytes())
    assert message(tmp_path / "a", tmp_path / "b", "--out", tmp_path / "o").exit_code == 2
    assert message(tmp_path / "a", "--out", tmp_path / "a").exit_code == 2


@pytest.mark.parametrize("payload", [b"", b"hello", b"\x00\x01", b"<xml/>", b"{", b"[]", b'{"a": 1}', b"MSH"])
def test_input_that_is_not_a_message_is_refused_with_a_reason(payload: bytes) -> None:
    done = message("-", stdin=payload)
    assert done.exit_code == 1
    assert done.stdout_bytes == b""
    assert any(reason in done.stderr for reason in ("MALFORMED", "UNSUPPORTED"))


def test_a_missing_input_is_a_usage_error() -> None:
    assert message("/nowhere").exit_code == 2


def test_an_entry_that_is_not_a_file_is_named_and_listed_in_the_remarks(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "m.hl7").write_bytes((SAMPLES / "01-adt-a01.hl7").read_bytes())
    (folder / "alias.hl7").symlink_to(folder / "m.hl7")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe")
    (folder / ".hidden").write_text("x")
    done = message(folder, "--out", tmp_path / "out", "--remarks", "-")
    assert done.exit_code == 1
    assert "dangling: skipped: link" in done.stderr
    assert "pipe: skipped: neither file nor folder" in done.stderr
    assert {line["file"]: line["outcome"] for line in map(json.loads, done.stdout.splitlines())} == {
        "alias.hl7": "published",
        "dangling": "skipped",
        "m.hl7": "published",
        "pipe": "skipped",
    }
    assert not Path("-").exists()


def test_a_file_name_with_invalid_utf8_or_a_line_end_stops_nothing(tmp_path: Path) -> None:
    folder, out, remarks = tmp_path / "in", tmp_path / "out", tmp_path / "remarks"
    folder.mkdir()
    good = (SAMPLES / "01-adt-a01.hl7").read_bytes()
    for name, data in ((b"\xff.hl7", good), (b"two\nlines", b"nothing"), (b"z.hl7", good)):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(data)  # noqa: PTH118 - bytes
    done = message(folder, "--out", out, "--remarks", remarks)
    assert done.exit_code == 1
    assert sorted(os.listdir(os.fsencode(out))) == [b"DEMO-KEY.txt", b"z.hl7", b"\xff.hl7"]  # noqa: PTH208 - bytes
    assert [json.loads(line)["file"] for line in remarks.read_text().splitlines()] == [
        "two\nlines",
        "z.hl7",
        "\\udcff.hl7",
    ]
    assert any(line.startswith("two\\nlines: ") for line in done.stderr.splitlines())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_for_the_remarks_stops(tmp_path: Path) -> None:
    done = message(SAMPLES / "01-adt-a01.hl7", "--out", tmp_path, "--remarks", "/dev/full")
    assert done.exit_code == 3
    assert "No space left" in done.stderr


def test_a_failed_write_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: OutputFile, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OutputFile, "write", fail)
    out = tmp_path / "out"
    done = message(SAMPLES / "01-adt-a01.hl7", "--out", out)
    assert done.exit_code == 1
    assert "No space left" in done.stderr
    assert [path.name for path in out.iterdir()] == ["DEMO-KEY.txt"]


def test_an_unreadable_file_in_a_folder_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", shut)
    done = message("/shut/m.hl7")
    assert done.exit_code == 2
    assert "/shut/m.hl7: cannot be read" in done.stderr


def test_the_environment_selects_the_policy_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (SAMPLES / "01-adt-a01.hl7").read_bytes()
    monkeypatch.setenv("DEID_POLICY", "keep")
    assert message(stdin=raw).stdout_bytes == raw
    monkeypatch.setenv("DEID_BOGUS", "1")
    assert message(stdin=raw).exit_code == 2


def test_an_empty_folder_is_reported_and_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / ".hidden.hl7").write_bytes(b"MSH")
    done = CliRunner().invoke(main, ["message", "--demo-key", "--out", str(tmp_path / "out"), str(tmp_path)])
    assert done.exit_code == 0
    assert f"no message in {tmp_path}: hidden files are ignored" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--remarks", "--unexamined"])
def test_a_file_beside_the_output_is_not_overwritten(option: str, tmp_path: Path) -> None:
    result, out = tmp_path / "earlier", tmp_path / "out"
    result.write_text("of an earlier run")
    done = message(SAMPLES / "01-adt-a01.hl7", "--out", out, option, result)
    assert (done.exit_code, out.exists(), result.read_text()) == (2, False, "of an earlier run")
    assert f"{option} {result}: exists" in done.stderr
    assert message(SAMPLES / "01-adt-a01.hl7", "--out", out, option, os.devnull).exit_code == 0


def test_the_shape_of_outputs_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = b'{"resourceType":"Patient","id":"p","birthDate":"1957-04-22","address":[{"postalCode":"03601"}]}'
    options = ("--system", "none", "--policy", "safe-harbor")
    for name, value in (("SHAPE", "dapl"), ("AGE_DATE", "2000-04-21"), ("ON_RESTRICTED_ZIP", "mask")):
        monkeypatch.setenv(f"DEID_{name}", value)
    made = message(*options, "-", stdin=patient)
    assert '"value":42' in made.stdout
    assert '"postalCode":"00000"' in made.stdout
    left_out = message(*options, "--on-restricted-zip", "drop", "-", stdin=patient)
    assert (left_out.exit_code, left_out.stdout) == (1, "")
    assert "the patient of a restricted ZIP is left out" in left_out.stderr
    plain = message(*options, "--shape", "none", "-", stdin=patient)
    assert '"birthDate":"1957"' in plain.stdout
    refused = message("--system", "none", "-", stdin=patient)
    assert (refused.exit_code, "does not generalize dates" in refused.stderr) == (2, True)
    assert message(*options, "--age-date", "yesterday", "-", stdin=patient).exit_code == 2

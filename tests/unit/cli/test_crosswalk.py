"""``deid-agent crosswalk``: opening by one or two persons, wrong calls, comparison with the audit."""

import hashlib
import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from support.crosswalk_site import BUNDLE, Site
from support.projects import adt

from deid_agent.audit import (
    LineKind,
    compare_with_audit,
    read_entries,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """An agent that has processed three files, one of them twice under another name."""
    site = Site(tmp_path_factory.mktemp("site"))
    done = site.run(a=adt(1), b=BUNDLE, c=BUNDLE)
    assert done.exit_code == 0, done.output
    return site


def test_two_custodians_open_every_published_code(made: Site) -> None:
    codes = made.codes()
    assert len(codes) == 3  # one control id, two ids of resources
    first = made.open("crosswalk", "trust", "half", codes=codes)
    assert first.exit_code == 0, first.output
    assert "step 1 of 2: 3 codes in 3 records, half-opened" in first.stdout
    second = made.open("half", "privacy", "originals")
    assert second.exit_code == 0, second.output
    assert "step 2 of 2: 3 codes in 3 records, opened" in second.stdout
    assert "originals in the clear, with PHI" in second.stderr
    control = adt(1).decode().split("|")[9]
    found = {str(row["original"]): str(row["code"]) for row in made.rows("originals")}
    assert set(found) == {control, "patient-4471902", "obs-77"} and set(found.values()) == set(codes)
    assert {row["path"] for row in made.rows("originals")} == {
        "MSH-10.1",
        "Bundle.entry.resource.id",
        "Bundle.entry.resource.subject.reference",
    }
    for name in ("half", "originals"):
        assert stat.S_IMODE((made.root / name).stat().st_mode) == 0o600
    # No file but the last one has an original.
    (made.root / "originals").unlink()
    outside = [path for path in made.root.rglob("*") if path.is_file() and path.parent.name != "in"]
    assert not [path for path in outside if b"4471902" in path.read_bytes() or control.encode() in path.read_bytes()]


def test_equal_bytes_have_equal_codes_and_a_line_each(made: Site) -> None:
    lines = list(read_entries(made.root / "crosswalk", kind=LineKind.CROSSWALK))
    assert len(lines) == 3
    assert len({str(line["codes"]) for line in lines}) == 2
    assert len({str(line["record"]) for line in lines}) == 3
    assert len({str(line["sealed"]) for line in lines}) == 3


def test_each_step_is_in_the_trail_of_its_custodian(made: Site) -> None:
    for name in ("half", "originals"):
        (made.root / name).unlink(missing_ok=True)
    codes = made.codes()[:2]
    for source, key, out in (("crosswalk", "trust", "half"), ("half", "privacy", "originals")):
        assert made.open(source, key, out, codes=codes).exit_code == 0
    lines = {}
    for step, name in ((1, "trust"), (2, "privacy")):
        folder = made.root / f"{name}.openings"
        verified = made.call("audit", "verify", str(folder), "--unauthenticated", "--strict")
        assert verified.exit_code == 0, verified.output
        lines[step] = list(read_entries(folder, kind=LineKind.OPENING))[-1]
        assert {"step": step, "of": 2, "codes": 2, "found": 2, "reason": "ticket 17"}.items() <= lines[step].items()
        assert lines[step]["verified"] is True and lines[step]["projects"] == ["default"]
        text = b"".join(path.read_bytes() for path in folder.iterdir())
        assert not [code for code in codes if code.encode() in text] and b"4471902" not in text
    assert lines[1]["request"] == lines[2]["request"] and lines[1]["output"] == lines[2]["input"]
    shown = made.call("crosswalk", "openings", str(made.root / "privacy.openings")).stdout.splitlines()[-1]
    assert re.fullmatch(r"\S+ key [0-9a-f]{8} step 2 of 2 default: 2 of 2 codes, [23] records: ticket 17", shown)
    exported = made.call("crosswalk", "openings", str(made.root / "trust.openings"), "--form", "fhir").stdout
    assert '"code":"reidentify"' in exported.splitlines()[-1]
    as_lines = made.call("crosswalk", "openings", str(made.root / "trust.openings"), "--form", "jsonl").stdout
    assert json.loads(as_lines.splitlines()[-1])["kind"] == "opening"


def test_the_digest_of_the_originals_confirms_no_guess(made: Site) -> None:
    """A reader of the trail and of the feed has all the rest of the file."""
    found = []
    for number in (1, 2):
        half, last = f"half-{number}", f"all-{number}"
        assert made.open("crosswalk", "trust", half, codes=made.codes()).exit_code == 0
        assert made.open(half, "privacy", last).exit_code == 0
        found.append(list(read_entries(made.root / "privacy.openings", kind=LineKind.OPENING))[-1]["output"])
    one, two = ([row.pop("opening") for row in made.rows(f"all-{number}")] for number in (1, 2))
    assert len({*one}) == len({*two}) == 1 and one[0] != two[0] and len(str(one[0])) == 32
    assert found[0] != found[1]
    assert hashlib.sha256((made.root / "all-2").read_bytes()).hexdigest() == found[1]


def test_a_key_out_of_turn_opens_nothing(made: Site) -> None:
    (made.root / "half").unlink(missing_ok=True)
    codes = made.codes()
    early = made.open("crosswalk", "privacy", "x", codes=codes)
    assert early.exit_code == 1
    assert "3 records to be opened with key " in early.stderr and "opens them after that" in early.stderr
    foreign = made.open("crosswalk", "third", "x")
    assert foreign.exit_code == 1 and "cannot open them" in foreign.stderr
    assert made.open("crosswalk", "trust", "half").exit_code == 0
    again = made.open("half", "trust", "x")
    assert again.exit_code == 1 and "cannot open them now" in again.stderr
    assert not (made.root / "x").exists()
    dead = made.open("crosswalk", "dead", "x")
    assert dead.exit_code == 2 and "not a crosswalk key but a dead-letter key" in dead.stderr
    attempts = read_entries(made.root / "third.openings", kind=LineKind.OPENING)
    assert [attempt["records"] for attempt in attempts] == [0]


def test_codes_that_are_not_found_are_counted_and_named_in_the_last_file_only(made: Site) -> None:
    for name in ("half", "originals"):
        (made.root / name).unlink(missing_ok=True)
    codes = [*made.codes()[:1], "0" * 20, "V" * 20]
    first = made.open("crosswalk", "trust", "half", codes=codes)
    assert first.exit_code == 1 and "2 of 3 codes not found" in first.stderr
    # The second custodian was asked for another code, which the first one was not.
    second = made.open("half", "privacy", "originals", codes=[*codes, made.codes()[1]])
    assert second.exit_code == 1 and "3 of 4 codes not found" in second.stderr
    assert "1 code not in the request of the first custodian" in second.stderr
    rows = made.rows("originals")
    assert [row["code"] for row in rows if row.get("found") is False] == codes[1:]
    assert {row["code"] for row in rows if "original" in row} == {codes[0]}
    for done in (first, second):
        assert not [code for code in codes if code in done.output]
    nothing = made.open("crosswalk", "trust", "x", codes=codes[1:])
    assert nothing.exit_code == 1 and "nothing was opened" in nothing.stderr and not (made.root / "x").exists()


@pytest.mark.parametrize(
    ("source", "key", "more", "error"),
    [
        ("crosswalk", "trust", ("--reason", "  "), "--reason: 1 to 500"),
        ("crosswalk", "trust", ("--reason", "a\x1b[31m"), "--reason: 1 to 500"),
        ("crosswalk", "trust.pub", (), "this is the public key"),
        ("crosswalk", "trust", ("--out", "codes"), "exists"),
        ("crosswalk", "trust", ("--public-key", "12"), "not 64 hex digits"),
        ("crosswalk", "trust", ("--public-key", "0" * 64), "was changed or is incomplete"),
        ("audit", "trust", (), "of the kind entry, not crosswalk"),
        ("in", "trust", (), "was changed or is incomplete"),
        ("in/a", "trust", (), "not a half-opened file"),
        ("half,half", "privacy", (), "give one half-opened file"),
        ("crosswalk", "trust", ("--codes", "empty"), "write one code a line"),
        ("crosswalk", "trust", ("--codes", "binary"), "is not UTF-8"),
        ("crosswalk", "trust", ("--codes", "numbers"), "2 lines not of the form of a link code"),
        ("crosswalk", "/dev/null", (), "not a crosswalk key"),
    ],
)
def test_a_wrong_call_names_the_fault_and_writes_nothing(
    made: Site, source: str, key: str, more: tuple[str, ...], error: str
) -> None:
    (made.root / "empty").write_text("\n \n")
    (made.root / "binary").write_bytes(b"\xff\xfe")
    (made.root / "numbers").write_text(f"4471902\n{'A' * 20}\nOkafor\n")
    (made.root / "half").write_text("") if not (made.root / "half").exists() else None
    more = tuple(str(made.root / word) if word in {"codes", "empty", "binary", "numbers"} else word for word in more)
    done = made.open(source, key, "x", *more, codes=["A" * 20])
    assert done.exit_code == 2, done.output
    assert error in done.stderr and not (made.root / "x").exists()
    assert "4471902" not in done.output and "Okafor" not in done.output


def test_a_key_from_a_pipe_needs_a_named_trail(made: Site) -> None:
    reader, writer = os.pipe()
    os.write(writer, (made.root / "trust").read_bytes())
    os.close(writer)
    done = made.open("crosswalk", f"/dev/fd/{reader}", "x", codes=made.codes())
    os.close(reader)
    assert done.exit_code == 2 and "with --trail" in done.stderr


def test_a_link_to_a_key_has_the_trail_of_the_key(made: Site, tmp_path: Path) -> None:
    assert made.open("crosswalk", "third", "x", codes=made.codes()).exit_code == 1
    before = len(list(read_entries(made.root / "third.openings", kind=LineKind.OPENING)))
    (tmp_path / "link").symlink_to(made.root / "third")
    assert made.open("crosswalk", str(tmp_path / "link"), "x", codes=made.codes()).exit_code == 1
    assert len(list(read_entries(made.root / "third.openings", kind=LineKind.OPENING))) == before + 1
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_without_a_line_in_the_trail_nothing_is_written(made: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = made.codes()
    for trail in ("none/openings", "crosswalk", "key"):
        done = made.open("crosswalk", "trust", "x", "--trail", str(made.root / trail), codes=codes)
        assert done.exit_code == 2 and "openings folder" in done.stderr, done.output
        assert not (made.root / "x").exists()

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deid_agent.audit.trail.write_all", full)
    done = made.open("crosswalk", "trust", "x", "--trail", str(made.root / "full"))
    assert done.exit_code == 3 and "the openings trail cannot be written" in done.stderr
    assert not (made.root / "x").exists()
    monkeypatch.undo()
    # A file that cannot be created is no opening.
    done = made.open("crosswalk", "trust", "none/x", "--trail", str(made.root / "unused"))
    assert done.exit_code == 3 and not (made.root / "unused").exists()


def test_the_crosswalk_is_compared_with_the_audit(made: Site, tmp_path: Path) -> None:
    whole = made.root / "crosswalk"
    words = ("--key-file", str(made.root / "key"), "--audit", str(made.root / "audit"))
    done = made.call("crosswalk", "verify", str(whole), *words)
    assert done.exit_code == 0, done.output
    assert "3 published records with link codes in the crosswalk, 0 older than it, 0 missing" in done.stdout
    as_json = made.call("crosswalk", "verify", str(whole), *words, "--json").stdout.splitlines()[-1]
    assert json.loads(as_json) == {"covered": 3, "before": 0, "missing": []}
    # A folder that was lost and begun again does not pass for a whole one.
    site = Site(tmp_path)
    assert site.run(a=adt(1)).exit_code == 0
    shutil.rmtree(tmp_path / "crosswalk")
    assert site.run(b=adt(2)).exit_code == 0
    done = made.call("crosswalk", "verify", str(tmp_path / "crosswalk"), *words[:2], "--audit", str(tmp_path / "audit"))
    assert done.exit_code == 1
    assert "files/0/0: published with link codes, but the crosswalk has no line" in done.stdout
    assert "1 published record with link codes in the crosswalk, 0 older than it, 1 missing" in done.stdout
    # ... nor does one that has no line yet.
    empty = tmp_path / "empty"
    shutil.copytree(tmp_path / "crosswalk", empty)
    segment = empty / "00000001.jsonl"
    segment.write_bytes(b"".join(line for line in segment.read_bytes().splitlines(True) if b'"codes"' not in line))
    assert len(compare_with_audit(empty, [tmp_path / "audit"]).missing) == 2
    wrong = made.call("crosswalk", "verify", str(made.root / "audit"), *words)
    assert wrong.exit_code == 2 and "of the kind entry, not crosswalk" in wrong.stderr


def test_one_custodian_alone_opens_in_one_step(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.configure(("trust.pub",), "single_custodian = true\n")
    shown = site.call("check", "--config", str(site.file)).stdout
    assert re.search(r"crosswalk +default: .*, opened with key [0-9a-f]{8}, one person alone", shown)
    assert site.run(a=adt(1)).exit_code == 0
    done = site.open("crosswalk", "trust", "originals", codes=site.codes())
    assert done.exit_code == 0 and "step 1 of 1: 1 code in 1 record, opened" in done.stdout, done.output
    assert site.rows("originals")[0]["original"] == adt(1).decode().split("|")[9]
    # The custodians change: each record opens with the keys of its time.
    site.configure()
    assert site.run(b=adt(2)).exit_code == 0
    mixed = site.open("crosswalk", "trust", "half", codes=site.codes())
    assert mixed.exit_code == 1 and "sealed to one custodian; open its codes alone" in mixed.stderr
    assert "step 1 of 2: 1 code in 1 record" in mixed.stdout

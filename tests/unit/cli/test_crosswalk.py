"""``deid-agent crosswalk`` and a running agent with one: settings, opening by two persons, faults."""

import asyncio
import base64
import hashlib
import json
import os
import pickle
import re
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.keys import KEY
from support.projects import adt

from deid_agent.agent import (
    Job,
    KeyUse,
    PairSealer,
    PrivateKey,
    Processed,
    generate_keys,
    load_public_key,
    open_box,
)
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.audit import (
    CROSSWALK_BUILD,
    AuditTrail,
    CrosswalkTrail,
    LineKind,
    Signer,
    TrailSettings,
    compare_with_audit,
    read_entries,
)
from deid_agent.audit.storage import write_all
from deid_agent.cli import main
from deid_agent.cli.crosswalk_steps import MOST_SHOWN
from deid_agent.config import SecretKey, derive_key
from deid_agent.model import CrosswalkError
from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import Telemetry

BUNDLE = json.dumps(
    {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [
            {"resource": {"resourceType": "Patient", "id": "patient-4471902", "birthDate": "1957-04-22"}},
            {
                "resource": {
                    "resourceType": "Observation",
                    "id": "obs-77",
                    "status": "final",
                    "code": {"text": "weight"},
                    "subject": {"reference": "Patient/patient-4471902"},
                }
            },
        ],
    }
).encode()
CODE = re.compile(r"\b[0-9A-V]{20}\b")


class Site:
    """A folder with messages, the agent's key, and the keys of two custodians."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / "agent.toml"
        (root / "in").mkdir()
        (root / "key").write_bytes(KEY)
        (root / "key").chmod(0o600)
        for name in ("trust", "privacy", "third"):
            generate_keys(root / name, KeyUse.CROSSWALK)
        generate_keys(root / "dead")
        self.configure()

    def configure(
        self,
        seal_to: Sequence[str] = ("trust.pub", "privacy.pub"),
        more: str = "",
        policy: str = "safe-harbor",
        **at: str,
    ) -> None:
        folders = {name: str(self.root / at.get(name, name)) for name in ("in", "out", "state", "audit", "crosswalk")}
        keys = json.dumps([str(self.root / name) for name in seal_to])
        self.file.write_text(
            f'transport = "directory"\nsystem = "none"\npolicy = "{policy}"\nkey_file = "{self.root / "key"}"\n'
            f'[agent]\nworkers = 0\n[directory]\ninput = "{folders["in"]}"\noutput = "{folders["out"]}"\n'
            f'dead_letters = "{self.root / "refused"}"\nstate = "{folders["state"]}"\n[http]\nenabled = false\n'
            f'[dead_letters]\npublic_key = "{self.root / "dead.pub"}"\n[audit]\npath = "{folders["audit"]}"\n'
            f'[crosswalks.default]\npath = "{folders["crosswalk"]}"\nseal_to = {keys}\n{more}'
        )

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words])

    def run(self, **messages: bytes) -> Result:
        for name, data in messages.items():
            (self.root / "in" / name).write_bytes(data)
        return self.call("run", "--log-level", "error", "--config", str(self.file))

    def open(self, source: str, key: str, out: str, *more: str, codes: Sequence[str] = ()) -> Result:
        file = self.root / "codes"
        if codes:
            file.write_text("\n".join(codes))
        paths = [str(self.root / name) for name in source.split(",")]
        where = ["--private-key", str(self.root / key), "--codes", str(file), "--out", str(self.root / out)]
        return self.call("crosswalk", "open", *paths, *where, "--reason", "ticket 17", *more)

    def codes(self, out: str = "out") -> list[str]:
        texts = [path.read_text() for path in sorted((self.root / out).iterdir()) if path.is_file()]
        return list(dict.fromkeys(code for text in texts for code in CODE.findall(text)))

    def rows(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.root / name).read_text().splitlines()]


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


def test_a_flipped_byte_is_named_and_stops_the_opening(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(a=adt(1), b=BUNDLE).exit_code == 0
    codes, path = site.codes(), tmp_path / "crosswalk" / "00000001.jsonl"
    whole = path.read_bytes()
    at = whole.index(b'"sealed":"') + 40
    line = whole[:at].count(b"\n") + 1
    path.write_bytes(whole[:at] + (b"A" if whole[at : at + 1] != b"A" else b"B") + whole[at + 1 :])
    verified = site.call("crosswalk", "verify", str(tmp_path / "crosswalk"), "--key-file", str(tmp_path / "key"))
    assert verified.exit_code == 1 and f"00000001.jsonl:{line}: CHAIN" in verified.stdout
    refused = site.open("crosswalk", "trust", "half", codes=codes)
    assert refused.exit_code == 2 and f"00000001.jsonl:{line}: CHAIN" in refused.stderr
    # The other records can be opened all the same, if two persons insist.
    forced = site.open("crosswalk", "trust", "half", "--unverified")
    assert forced.exit_code == 1 and f"00000001.jsonl:{line}: it is damaged" in forced.stderr
    done = site.open("half", "privacy", "originals")
    assert done.exit_code == 1
    assert 1 <= len({row["code"] for row in site.rows("originals") if "original" in row}) < len(codes)
    (opening,) = read_entries(tmp_path / "privacy.openings", kind=LineKind.OPENING)
    assert opening["verified"] is False
    assert site.run(c=adt(2)).exit_code == 2, "an agent does not continue a crosswalk that was changed"
    # A flipped byte in the half-opened file.
    (tmp_path / "originals").unlink()
    half = (tmp_path / "half").read_bytes()
    at = half.rindex(b'"sealed":"') + 60
    (tmp_path / "half").write_bytes(half[:at] + (b"A" if half[at : at + 1] != b"A" else b"B") + half[at + 1 :])
    broken = site.open("half", "privacy", "originals")
    assert broken.exit_code == 1 and re.search(r"half:\d: it is damaged", broken.stderr)


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


def test_after_erasing_a_segment_the_others_open(tmp_path: Path) -> None:
    site = Site(tmp_path)
    text = site.file.read_text()
    for name, data in (("a", adt(1)), ("b", adt(2))):
        # Another set of keys begins a segment.
        site.file.write_text(text if name == "a" else text.replace("privacy.pub", "third.pub"))
        assert site.run(**{name: data}).exit_code == 0
    first, second = sorted((tmp_path / "crosswalk").glob("*.jsonl"))
    first.unlink()
    done = site.open("crosswalk", "trust", "half", codes=site.codes())
    assert done.exit_code == 1 and "SEGMENT: missing: 00000001.jsonl" in done.stderr
    assert "1 of 2 codes not found" in done.stderr and "1 code in 1 record, half-opened" in done.stdout
    words = ("--key-file", str(tmp_path / "key"), "--audit", str(tmp_path / "audit"))
    verified = site.call("crosswalk", "verify", str(tmp_path / "crosswalk"), *words)
    assert verified.exit_code == 1 and "1 older than it, 0 missing" in verified.stdout
    assert site.run(c=adt(3)).exit_code == 0
    assert second.stat().st_size > 0


def test_with_a_full_disk_no_output_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)

    def full(file: int, data: bytes) -> None:
        if "/crosswalk/" in str(Path(f"/proc/self/fd/{file}").readlink()) and b'"kind":"crosswalk"' in data:
            raise OSError(28, "No space left on device")
        write_all(file, data)

    monkeypatch.setattr("deid_agent.audit.trail.write_all", full)
    done = site.run(a=adt(1), b=BUNDLE)
    assert done.exit_code == 3
    assert "the crosswalk trail cannot be written: No space left on device; nothing was committed" in done.stderr
    assert list((tmp_path / "out").iterdir()) == [] if (tmp_path / "out").exists() else True
    assert not (tmp_path / "audit").exists(), "a record without its line is not audited"
    monkeypatch.undo()
    assert site.run().exit_code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2
    lines = list(read_entries(tmp_path / "crosswalk", kind=LineKind.CROSSWALK))
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("seal_to", "more", "policy", "error"),
    [
        (("trust.pub",), "", "safe-harbor", "name the public keys of two custodians"),
        (("trust.pub", "privacy.pub", "third.pub"), "", "safe-harbor", "name the public keys of two custodians"),
        (("trust.pub", "privacy.pub"), "single_custodian = true\n", "safe-harbor", "name one public key"),
        (("trust.pub", "trust.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "dead.pub"), "", "safe-harbor", "not a crosswalk key but a dead-letter key"),
        (("trust.pub", "disguised.pub"), "", "safe-harbor", "a key is that of the dead letters"),
        (("trust.pub", "rewritten.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "shifted.pub"), "", "safe-harbor", "two persons need a key each"),
        (("trust.pub", "low.pub"), "", "safe-harbor", "nothing can be sealed to this key"),
        (("trust", "privacy.pub"), "", "safe-harbor", "holds a private key; name its .pub file"),
        (("trust.pub", "none.pub"), "", "safe-harbor", "cannot be read"),
        (("trust.pub", "privacy.pub"), "", "pseudonymised", "has no link codes, so the crosswalk would stay empty"),
        (
            ("trust.pub", "privacy.pub"),
            "[crosswalks.study]\npath='x'\nseal_to=['a','b']\n",
            "safe-harbor",
            "no project 'study'",
        ),
    ],
)
def test_settings_that_void_the_crosswalk_are_refused(
    tmp_path: Path, seal_to: tuple[str, ...], more: str, policy: str, error: str
) -> None:
    site = Site(tmp_path)
    disguised = (tmp_path / "dead.pub").read_text().replace("deid-letters", "deid-crosswalk")
    (tmp_path / "disguised.pub").write_text(disguised)
    # Other numbers that the private key of the first custodian opens: with the unused bit set, and P + (0, 0).
    key = int.from_bytes(load_public_key(tmp_path / "trust.pub", use=KeyUse.CROSSWALK).raw, "little")
    for name, number in (("rewritten", key | 1 << 255), ("shifted", pow(key, -1, 2**255 - 19)), ("low", 1)):
        raw = base64.b64encode(number.to_bytes(32, "little")).decode()
        (tmp_path / f"{name}.pub").write_text(f"{KeyUse.CROSSWALK.public}{raw}\n")
    site.configure(seal_to, more, policy)
    done = site.run(a=adt(1))
    assert done.exit_code == 2 and error in done.stderr, done.output
    assert not (tmp_path / "out").exists() and not (tmp_path / "crosswalk").exists()
    if policy == "pseudonymised":
        check = site.call("check", "--config", str(site.file))
        assert check.exit_code == 2 and error in check.stdout


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ({"crosswalk": "audit"}, "crosswalks.default.path: is the folder of audit.path too"),
        ({"crosswalk": "in/x"}, "crosswalks.default.path: .* is in the input folder"),
        ({"crosswalk": "out/x"}, "crosswalks.default.path: .* is in the output folder"),
        ({"crosswalk": "trust"}, "crosswalks.default.path: .* is a file"),
    ],
)
def test_a_folder_that_cannot_be_a_crosswalk_is_refused(tmp_path: Path, at: dict[str, str], error: str) -> None:
    site = Site(tmp_path)
    site.configure(**at)
    done = site.run(a=adt(1))
    assert done.exit_code == 2 and re.search(error, done.stderr), done.output


async def test_two_lines_of_a_record_are_one_and_a_forged_one_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    sealer = PairSealer(
        tuple(load_public_key(tmp_path / name, "x", KeyUse.CROSSWALK) for name in ("trust.pub", "privacy.pub"))
    )
    build = {CROSSWALK_BUILD: {"project": "default", "generation": 0, "seal_to": list(sealer.ids)}}
    limits = TrailSettings(kind=LineKind.CROSSWALK, return_lines=False)
    trail = AuditTrail(tmp_path / "crosswalk", build, Signer(bytes(32)), Telemetry(), limits)
    log = CrosswalkTrail(trail, "default", 0)
    own = ("Patient.id", "patient-1", "A" * 20)
    await log.append([("a" * 32, sealer.seal([own], at)) for at in (1.0, 2.0)])
    forged = [own, ("Patient.id", "patient-2", "B" * 20), ("Patient.id", "patient-3", "B" * 20)]
    await log.append([("b" * 32, sealer.seal(forged[1:], 3.0))])
    await log.close()
    codes = [own[2], forged[1][2]]
    for count, exit_code in ((1, 0), (2, 1)):
        for source, key, out in (("crosswalk", "trust", f"half{count}"), (f"half{count}", "privacy", f"out{count}")):
            done = await asyncio.to_thread(site.open, source, key, out, codes=codes[:count])
        assert done.exit_code == exit_code, done.output
        assert f"{count} code{'s' if count > 1 else ''} in {count} record{'s' if count > 1 else ''}" in done.stdout
    assert [row["original"] for row in site.rows("out2")] == ["patient-1", "patient-2", "patient-3"]
    assert "1 code with more than one original: a line is forged" in done.stderr


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


def test_the_output_is_the_same_with_a_crosswalk(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(a=adt(1), b=BUNDLE).exit_code == 0
    with_crosswalk = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    text = site.file.read_text()
    site.file.write_text(text[: text.index("[crosswalks")].replace('out"', 'out-2"').replace('state"', 'state-2"'))
    assert site.run().exit_code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out-2").iterdir()} == with_crosswalk


def test_two_projects_have_two_crosswalks_with_custodians_of_their_own() -> None:
    rules = data_folder("rules")
    policy, key = load_policy("safe-harbor", rules), SecretKey(KEY)
    private = [PrivateKey(bytes([number]) * 32, KeyUse.CROSSWALK) for number in range(1, 5)]
    sealers = [PairSealer(tuple(each.public for each in pair)) for pair in (private[:2], private[2:])]
    own = ProjectParts("registry", derive_key(key, "registry", 1), policy, "none", generation=1)
    trial = ProjectParts("trial", derive_key(key, "trial", 1), policy, "none", generation=1)
    process = WorkerFactory(
        rules,
        key,
        policy,
        "none",
        projects=(own, trial),
        crosswalks=(("registry", sealers[0]), ("default", sealers[1])),
    )()
    sealed = {}
    for project in ("registry", "default", "trial"):
        result = process(Job(adt(1), project=project))
        assert isinstance(result, Processed)
        sealed[project] = result.sealed
        assert not result.sealed or json.loads(b"{%s}" % result.sealed)["codes"][0].encode() in result.payload
    assert sealed["trial"] == b""
    for project, pair in (("registry", private[:2]), ("default", private[2:])):
        box = json.loads(b"{%s}" % sealed[project])["sealed"]
        opened = []
        for each in private:
            with suppress(CrosswalkError):  # another key
                opened.append(open_box(box, each))
        assert len(opened) == 1
        assert adt(1).decode().split("|")[9].encode() in pair[1].open(opened[0], 1 << 20)


def test_a_result_of_a_program_has_no_original() -> None:
    rules = data_folder("rules")
    factory = WorkerFactory(rules, SecretKey(KEY), load_policy("safe-harbor", rules), "none")
    done = factory.deidentifier().message(BUNDLE)
    assert len(CODE.findall(done.payload.decode())) == 3
    assert b"4471902" not in pickle.dumps(done) and b"obs-77" not in pickle.dumps(done)


def test_many_problems_are_printed_in_part(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(**{f"m{number}": adt(number) for number in range(MOST_SHOWN + 5)}).exit_code == 0
    codes = site.codes()
    assert len(codes) == MOST_SHOWN + 5
    path = tmp_path / "crosswalk" / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"sealed":"', b'"sealed":"AAAA'))
    done = site.open("crosswalk", "trust", "half", "--unverified", codes=codes)
    assert done.exit_code == 1 and "and 5 more problems" in done.stderr
    assert "nothing was opened" in done.stderr

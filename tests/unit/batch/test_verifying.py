"""``verify`` finds each change of an output folder, with its code and place, and never fails on one."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from click.testing import CliRunner, Result
from support.batch_folders import HEAD, Folders, first_key, read_lines, write_inputs
from support.keys import KEY
from support.tamperings import (
    TAMPERINGS,
    add_a_unit,
    add_a_unit_and_an_entry,
    audit_parts,
    drop_a_unit_with_its_line,
    edit_a_line_and_the_chain,
    flip,
    outputs,
    remove_the_trail,
    write_the_whole_folder_anew,
)

from deid_agent.agent import load_public_key
from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.batch.audit_parts import encode_leaf
from deid_agent.batch.manifest import AUDIT, MANIFEST, OpenManifest
from deid_agent.batch.manifest_trail import trail_folder
from deid_agent.batch.verifying import FindingCode, verify_folder
from deid_agent.cli import main
from deid_agent.model import ConfigurationError

pq = pytest.importorskip("pyarrow.parquet")
CANARIES = ("Quixwell", "Zyblorq", "4471902", "740-555", "555-0183")


class World:
    """A finished folder of three units with a sample, and an older state of it with two."""

    def __init__(self, folder: Path) -> None:
        generate_keys(folder / "readers.key")
        readers = load_public_key(folder / "readers.key.pub")
        inputs = write_inputs(folder / "in", 2, 5)
        Folders().run(inputs, folder / "out", readers=readers)
        shutil.copytree(folder / "out", folder / "older")
        write_inputs(inputs, 3, 5)
        Folders().run(inputs, folder / "out", readers=readers)
        self.folder, self.key = folder, first_key(folder / "out")
        self.head = (folder / "out" / AUDIT / "trail" / "head.json").read_bytes()

    def copy(self, target: Path) -> Path:
        return Path(shutil.copytree(self.folder / "out", target / "out"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def verify(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["batch", "verify", *map(str, args)])


def test_a_folder_that_nobody_changed_is_sound(world: World, tmp_path: Path) -> None:
    out = world.copy(tmp_path)
    found = verify_folder(out, {world.key}, least_lines=4)
    assert (found.findings, found.units, found.rows, found.lines, found.anchored) == ((), 3, 15, 4, True)
    done = verify(out, "--public-key", world.key)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"sound: 3 units, 15 rows, 4 lines, first key {world.key}\n"
    bare = verify(out)
    assert bare.exit_code == 0 and "warning: no key was given" in bare.stderr
    other = verify(out, "--public-key", "ab" * 32)
    assert other.exit_code == 1 and "_audit/trail/00000001.jsonl:1: TRAIL: KEY" in other.stdout
    (trail_folder(out) / "signing.key").unlink()
    assert verify(out, "--public-key", world.key).exit_code == 0, "only another run needs it"
    with pytest.raises(ConfigurationError, match="does not hold the key of the last epoch"):
        Folders().run(world.folder / "in", out, readers=load_public_key(world.folder / "readers.key.pub"))
    audit = CliRunner().invoke(main, ["audit", "verify", str(trail_folder(out)), "--public-key", world.key])
    assert audit.exit_code == 0, audit.output


@pytest.mark.parametrize(("change", "codes", "place"), TAMPERINGS, ids=[each[0].__name__ for each in TAMPERINGS])
def test_each_change_is_found(
    change: Callable[[Path], None], codes: set[str], place: str, world: World, tmp_path: Path
) -> None:
    out = world.copy(tmp_path)
    change(out)
    done = verify(out, "--public-key", world.key, "--json")
    assert done.exit_code == 1, done.output
    *found, end = map(orjson.loads, done.stdout.splitlines())
    assert {each["code"] for each in found} == codes, found
    assert any(each["place"].startswith(place) for each in found), found
    assert end["sound"] is False and end["key_given"] is True
    assert not [canary for canary in CANARIES if canary in done.output]
    # Without a key all but the last can be found too.
    assert bool(verify_folder(out).findings) == (change is not write_the_whole_folder_anew)


def test_an_older_state_is_found_by_a_head_or_a_count(world: World, tmp_path: Path) -> None:
    older = world.folder / "older"
    head = tmp_path / "head.json"
    head.write_bytes(world.head)
    assert verify(older, "--public-key", world.key).exit_code == 0, "nothing in the folder shows it"
    done = verify(older, "--public-key", world.key, "--head", head)
    assert done.exit_code == 1
    assert "_audit/trail/00000001.jsonl: ROLLBACK: TRUNCATED" in done.stdout
    counted = verify(older, "--public-key", world.key, "--lines", "4")
    assert counted.exit_code == 1
    assert f"{MANIFEST}: ROLLBACK: 3 lines, and there were 4 before" in counted.stdout
    head.write_bytes(b"\xff{{{")
    assert f"{head}: TRAIL: HEAD: is not the head of a trail" in verify(older, "--head", head).stdout
    head.write_bytes(world.head)
    # An older head alone in the present folder.
    out = world.copy(tmp_path)
    shutil.copy(older / AUDIT / "trail" / "head.json", out / AUDIT / "trail" / "head.json")
    assert {each.code for each in verify_folder(out, {world.key}, head).findings} <= {FindingCode.TRAIL}


def test_a_flipped_byte_of_any_file_is_found(world: World, tmp_path: Path) -> None:
    out = world.copy(tmp_path)
    unsigned = {"_lock", "lock", "signing.key"}
    files = [path for path in out.rglob("*") if path.is_file() and path.name not in unsigned]
    assert len(files) == 10
    for path in files:
        whole = path.read_bytes()
        for place in range(1, len(whole), max(len(whole) // 7, 1)):
            flip(path, place)
            assert verify_folder(out, {world.key}).findings, (path.name, place)
            path.write_bytes(whole)
        path.write_bytes(whole[:-1])
        assert verify_folder(out, {world.key}).findings, path.name
        path.write_bytes(whole)
    assert not verify_folder(out, {world.key}).findings


def test_a_call_that_cannot_be_answered_ends_with_2(world: World, tmp_path: Path) -> None:
    assert verify(tmp_path / "none").exit_code == 2
    empty = verify(tmp_path)
    assert empty.exit_code == 2 and "name the OUT of a run" in empty.stderr
    assert verify(tmp_path, "--public-key", "xy").exit_code == 2
    with OpenManifest(tmp_path / "busy", HEAD):
        busy = verify(tmp_path / "busy")
    assert busy.exit_code == 2 and "a run is writing this folder" in busy.stderr


def test_a_part_has_the_figures_of_its_rows_and_no_values(world: World) -> None:
    out = world.folder / "out"
    for line in read_lines(out)[1:]:
        rows: list[dict[str, Any]] = pq.read_table(out / AUDIT / str(line["audit"])).to_pylist()
        published = pq.read_table(out / str(line["file"])).to_pylist()
        assert [row["outcome"] for row in rows] == [row["deid"]["outcome"] for row in published]
        sums: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            for each in row["counts"]:
                sums[each["column"], each["type"], each["method"], each["rule"]] += each["count"]
        assert line["counts"] == [[*key, count] for key, count in sorted(sums.items())]
        assert line["words"] == sum(row["words"] for row in rows) == 4 * 6 + 4
        assert len({row["row"] for row in rows}) == len({row["document"] for row in rows}) == 5
        assert len(encode_leaf(rows[0])) < 1000
    texts = [path.read_bytes().decode("latin-1") for path in out.rglob("*") if path.is_file()]
    names = [str(path.relative_to(out)) for path in out.rglob("*")]
    for text in (*texts, *names):
        assert not [canary for canary in CANARIES if canary in text or KEY.hex() in text]


def test_digests_of_rows_need_the_key(world: World, tmp_path: Path) -> None:
    """Equal rows have equal digests under one key, so that an auditor with the key can find a row."""
    Folders().run(world.folder / "in", tmp_path / "again")
    one, two = (
        [row["row"] for path in audit_parts(folder) for row in pq.read_table(path).to_pylist()]
        for folder in (world.folder / "out", tmp_path / "again")
    )
    assert one == two


def test_a_run_does_not_go_on_with_lines_that_are_not_signed(world: World, tmp_path: Path) -> None:
    for change in (edit_a_line_and_the_chain, drop_a_unit_with_its_line, remove_the_trail):
        out = world.copy(tmp_path)
        change(out)
        with pytest.raises(ConfigurationError, match="audit signs"):
            Folders().run(world.folder / "in", out, readers=load_public_key(world.folder / "readers.key.pub"))
        shutil.rmtree(out)


def test_a_run_makes_a_unit_again_if_its_line_is_not_signed(world: World, tmp_path: Path) -> None:
    """A crash came between the line and its entry, or somebody added the line: nobody can see which."""
    readers = load_public_key(world.folder / "readers.key.pub")
    for change in (add_a_unit, add_a_unit_and_an_entry):
        out = world.copy(tmp_path)
        change(out)
        ends = Folders().run(world.folder / "in", out, readers=readers)
        assert all(end.skipped for end in ends)
        codes = {each.code for each in verify_folder(out, {world.key}).findings}
        assert codes == {FindingCode.FOREIGN}, "the files of the attacker are left, and named by no line"
        assert len(read_lines(out)) == 4
        shutil.rmtree(out)


STEPS = (
    "deid_agent.batch.running.UnitFile.finish",
    "deid_agent.batch.audit_parts.UnitAudit.finish",
    "deid_agent.batch.sampling.Sampler.commit",
    "deid_agent.batch.manifest.OpenManifest.add",
    "deid_agent.batch.manifest_trail.ManifestTrail.sign",
)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=[step.rpartition(".")[2] + step.split(".")[2][:3] for step in STEPS])
def test_an_interruption_at_any_step_is_made_good(step: str, after: bool, world: World, tmp_path: Path) -> None:
    readers = load_public_key(world.folder / "readers.key.pub")
    owner, _, name = step.rpartition(".")
    original = getattr(resolve_name(owner.rpartition(".")[0] + ":" + owner.rpartition(".")[2]), name)
    calls: list[None] = []

    def die(*args: object, **more: object) -> object:
        calls.append(None)
        if len(calls) < 3 or after:
            done = original(*args, **more)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return done

    out = tmp_path / "out"
    with patch(step, die), pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        Folders().run(world.folder / "in", out, readers=readers)
    codes = {each.code for each in verify_folder(out).findings}
    assert codes <= {FindingCode.FOREIGN, FindingCode.UNSIGNED, FindingCode.SAMPLE}, codes
    Folders().run(world.folder / "in", out, readers=readers)
    assert not verify_folder(out, {first_key(out)}).findings
    for one, two in zip(
        outputs(out) + audit_parts(out), outputs(world.folder / "out") + audit_parts(world.folder / "out"), strict=True
    ):
        assert one.read_bytes() == two.read_bytes()

"""Changes that somebody could make to the output folder of a batch, with the findings that `batch verify` must have."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.batch_folders import HEAD, read_lines, write_lines
from support.tables import parts

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.audit.storage import TAIL, chain_value, encode_entry, line_end
from deid_agent.batch.manifest import AUDIT, MANIFEST
from deid_agent.batch.manifest_trail import ManifestTrail, trail_folder

pq = pytest.importorskip("pyarrow.parquet")


def outputs(out: Path) -> list[Path]:
    return sorted(out.glob("part-*"))


def audit_parts(out: Path) -> list[Path]:
    return sorted((out / AUDIT).glob("part-*"))


def flip(path: Path, place: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)


def flip_output(out: Path) -> None:
    flip(outputs(out)[1])


def flip_part(out: Path) -> None:
    flip(audit_parts(out)[1])


def remove_output(out: Path) -> None:
    outputs(out)[0].unlink()


def remove_part(out: Path) -> None:
    audit_parts(out)[2].unlink()


def drop_a_unit_with_its_line(out: Path) -> None:
    *lines, last = read_lines(out)
    (out / str(last["file"])).unlink()
    (out / AUDIT / str(last["audit"])).unlink()
    write_lines(out, lines)


def swap_parts(out: Path) -> None:
    one, two, _ = audit_parts(out)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def swap_parts_and_their_digests(out: Path) -> None:
    swap_parts(out)
    lines = read_lines(out)
    for name in ("audit_digest", "root"):
        lines[1][name], lines[2][name] = lines[2][name], lines[1][name]
    write_lines(out, lines)


def edit_a_line(out: Path) -> None:
    path = out / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"rows":5', b'"rows":4', 1))


def edit_a_line_and_the_chain(out: Path) -> None:
    lines = read_lines(out)
    lines[2]["rows"] = 4
    write_lines(out, lines)


def change_an_output_and_its_line(out: Path) -> None:
    path = outputs(out)[0]
    shutil.copy(outputs(out)[1], path)
    lines = read_lines(out)
    places = {line.get("file"): line for line in lines}
    places[path.name]["digest"] = places[outputs(out)[1].name]["digest"]
    write_lines(out, lines)


def add_a_file(out: Path) -> None:
    shutil.copy(outputs(out)[0], out / "part-0000000000000000-00000-01234567.parquet")


def add_a_file_to_the_audit(out: Path) -> None:
    (out / AUDIT / "notes.txt").write_text("x")


def add_a_unit(out: Path) -> None:
    """A unit of the attacker's own: files, and a line in the chain."""
    lines = read_lines(out)
    name = "part-0000000000000000-00000-01234567.parquet"
    shutil.copy(outputs(out)[0], out / name)
    shutil.copy(audit_parts(out)[0], out / AUDIT / name)
    own = {"unit": "0000000000000000-00000", "file": name, "audit": name, "sample": lines[-1]["sample"]}
    write_lines(out, [*lines, {**next(line for line in lines if line.get("file") == outputs(out)[1].name), **own}])


def add_a_unit_and_an_entry(out: Path) -> None:
    """The same, with an entry in the trail: its chain needs no key, its signature does."""
    add_a_unit(out)
    trail = max(trail_folder(out).glob("*.jsonl"))
    chain = trail.read_bytes()[-TAIL:][10:74]
    lines = (out / MANIFEST).read_bytes().splitlines()
    digest = hashlib.sha256(lines[-1]).hexdigest()
    entry = AuditEntry(Coordinates("manifest", 0, len(lines)), Outcome.PUBLISHED, output_digest=digest)
    body = encode_entry(entry, "build", 1.0)
    with trail.open("ab") as file:
        file.write(body + line_end(chain_value(chain, body)))


def remove_the_sample(out: Path) -> None:
    (out / AUDIT / "sample.jsonl").unlink()


def shorten_the_sample(out: Path) -> None:
    path = out / AUDIT / "sample.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def remove_the_trail(out: Path) -> None:
    shutil.rmtree(trail_folder(out))


def remove_the_manifest(out: Path) -> None:
    (out / MANIFEST).unlink()


def write_the_whole_folder_anew(out: Path) -> None:
    """By somebody who even has the secret key of the run."""
    remove_the_trail(out)
    lines = read_lines(out)
    lines[1]["source"] = lines[2]["source"]
    write_lines(out, lines)
    trail = ManifestTrail(out, HEAD, parts().key)
    for number, line in enumerate((out / MANIFEST).read_bytes().splitlines(), 1):
        trail.sign(number, hashlib.sha256(line).hexdigest())
    trail.close()


def link_an_output_elsewhere(out: Path) -> None:
    path = outputs(out)[0]
    shutil.move(path, out.parent / "elsewhere")
    path.symlink_to(out.parent / "elsewhere")


def name_a_file_outside(out: Path) -> None:
    lines = read_lines(out)
    lines[1]["file"] = "../elsewhere"
    write_lines(out, lines)


TAMPERINGS: list[tuple[Callable[[Path], None], set[str], str]] = [
    (flip_output, {"OUTPUT"}, "part-"),
    (flip_part, {"PART"}, "_audit/part-"),
    (remove_output, {"MISSING"}, "part-"),
    (remove_part, {"MISSING"}, "_audit/part-"),
    (drop_a_unit_with_its_line, {"MANIFEST", "SAMPLE"}, MANIFEST),
    (swap_parts, {"PART"}, "_audit/part-"),
    (swap_parts_and_their_digests, {"MANIFEST"}, f"{MANIFEST}:4"),
    (edit_a_line, {"MANIFEST"}, f"{MANIFEST}:3"),
    (edit_a_line_and_the_chain, {"MANIFEST"}, f"{MANIFEST}:4"),
    (change_an_output_and_its_line, {"MANIFEST"}, f"{MANIFEST}:4"),
    (add_a_file, {"FOREIGN"}, "part-0000000000000000-00000-01234567.parquet"),
    (add_a_file_to_the_audit, {"FOREIGN"}, "_audit/notes.txt"),
    (add_a_unit, {"UNSIGNED"}, f"{MANIFEST}:5"),
    (add_a_unit_and_an_entry, {"UNSIGNED", "TRAIL"}, f"{MANIFEST}:5"),
    (remove_the_sample, {"MISSING"}, "_audit/sample.jsonl"),
    (shorten_the_sample, {"SAMPLE"}, "_audit/sample.jsonl"),
    (remove_the_trail, {"TRAIL", "UNSIGNED"}, "_audit/trail"),
    (remove_the_manifest, {"MANIFEST", "SAMPLE", "FOREIGN"}, MANIFEST),
    (write_the_whole_folder_anew, {"TRAIL"}, "_audit/trail/00000001.jsonl:1"),
    (link_an_output_elsewhere, {"MISSING"}, "part-"),
    (name_a_file_outside, {"MANIFEST", "FOREIGN"}, f"{MANIFEST}:2"),
]

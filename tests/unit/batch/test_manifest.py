"""The manifest: durable lines in a chain, one writer, one build."""

import os
from pathlib import Path

import pytest

from deid_agent.batch.manifest import MANIFEST, Head, OpenManifest, UnitEntry, read_manifest
from deid_agent.model import ConfigurationError

HEAD = Head("build-1", "0.1.0", "demo", "research", "omop/note")
UNITS = [UnitEntry(f"u{n}", "s", f"part-{n}", "d", 10, {"LEAK": n}) for n in range(3)]


def fill(folder: Path) -> Path:
    with OpenManifest(folder, HEAD) as manifest:
        for entry in UNITS:
            manifest.add(entry)
    return folder / MANIFEST


def test_lines_are_read_again(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    found = read_manifest(tmp_path / "out")
    assert found is not None
    assert found.head == HEAD
    assert list(found.units.values()) == UNITS
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_is_cut_and_written_again(cut: int, tmp_path: Path) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    found = read_manifest(tmp_path)
    assert found is not None and list(found.units) == ["u0", "u1"]
    with OpenManifest(tmp_path, HEAD) as manifest:
        manifest.add(UNITS[2])
    assert path.read_bytes() == whole


def test_a_head_that_was_torn_is_written_again(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b'{"build":')
    fill(tmp_path)
    assert read_manifest(tmp_path) is not None


def test_a_line_is_whole_if_the_disk_takes_a_part_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:100]))
    fill(tmp_path)
    found = read_manifest(tmp_path)
    assert found is not None and list(found.units.values()) == UNITS


def test_a_changed_line_is_found(tmp_path: Path) -> None:
    path = fill(tmp_path)
    lines = path.read_bytes().split(b"\n")
    for number, changed in (
        (3, b"\n".join([lines[0], lines[1].replace(b'"rows":10', b'"rows":11'), *lines[2:]])),
        (2, b"\n".join([lines[0], *lines[2:]])),
        (1, b"\n".join(lines[1:])),
        (2, b"\n".join([lines[0], b"{}", *lines[2:]])),
    ):
        path.write_bytes(changed)
        with pytest.raises(ConfigurationError, match=f"line {number} "):
            read_manifest(tmp_path)


def test_another_build_and_another_writer_are_refused(tmp_path: Path) -> None:
    with OpenManifest(tmp_path, HEAD), pytest.raises(ConfigurationError, match="in use by another process"):
        OpenManifest(tmp_path, HEAD)
    other = Head("build-2", "0.1.0", "demo", "research", "omop/note")
    with pytest.raises(ConfigurationError, match=r"outputs of build build-1, and this is build build-2"):
        OpenManifest(tmp_path, other)
    with OpenManifest(tmp_path, HEAD):
        pass

"""Starts one run on a real engine (``engine_job``), and reads its outputs and logs, for tests/system/engines."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.keys import KEY

CANARIES = ("Quixwell", "4471902", "740-555-0183", "Zyblorq", KEY.hex(), repr(KEY)[2:-1])
"""Parts of the rows and of the names of inputs, and the key."""
ROOT = Path(__file__).resolve().parents[2]
REQUIRED = "DEID_REQUIRE_ENGINES"


def require(module: str) -> None:
    """Skip without the module, or fail if ``DEID_REQUIRE_ENGINES=1``. Call it in a fixture."""
    missing = [name for name in (module, "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        why = f"{', '.join(missing)} not installed: make engines"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, but {why}")
        # The engines are 500 MB, which a developer need not install; with DEID_REQUIRE_ENGINES=1, as in CI, it fails.
        pytest.skip(why)


@dataclass(frozen=True)
class EngineRun:
    """A finished run: its folder, its results, and all that it and the engine printed."""

    folder: Path
    seen: dict[str, Any]
    printed: str

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file or of the outputs in a folder, in the order of their texts."""
        pq = pytest.importorskip("pyarrow.parquet")
        path = self.folder / name
        files = [path] if path.is_file() else sorted(path.glob("part-*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted(rows, key=str)

    def read_outputs(self, name: str) -> dict[str, bytes]:
        """The output files of a run, and their audit parts, by their names."""
        out = self.folder / name
        return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("part-*"))}

    def list_texts(self, *folders: Path) -> dict[str, str]:
        """The places in which originals must not be: names of files, manifests, logs, exceptions."""
        texts = {"printed": self.printed, "seen": json.dumps(self.seen)}
        for out in ("engine", "local"):
            texts[f"names of {out}"] = "\n".join(str(path) for path in (self.folder / out).rglob("*"))
            texts[f"manifest of {out}"] = (self.folder / out / "_manifest.jsonl").read_text()
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    texts[str(path)] = path.read_bytes().decode("latin-1")
        return texts

    def check_frames(self) -> None:
        """The killer is a note as others there, since the system itself does not die of it, and so is the hanger."""
        frames, local = self.read_rows("frames.parquet"), self.read_rows("local")
        done = [row for row in local if row["deid"]["reason"] != "POISON"]
        assert len(frames) == 72
        assert [row for row in frames if row in done] == done
        assert len([row for row in frames if row not in done]) == len(local) - len(done)
        assert {row["deid"]["reason"] for row in done} == {None, "MALFORMED"}

    def check_canaries(self, *logs: Path) -> None:
        """Originals are in the inputs, and neither in texts beside the outputs nor in files of ``logs``."""
        names = "".join(str(path) for path in (self.folder / "in").iterdir())
        pq = pytest.importorskip("pyarrow.parquet")
        inputs = names + "".join(str(pq.read_table(path).to_pylist()) for path in (self.folder / "in").iterdir())
        originals = [canary for canary in CANARIES if canary in inputs]
        assert len(originals) == 4, "the others are of the key"
        texts = self.list_texts(*logs)
        found = {(place, canary) for place, text in texts.items() for canary in CANARIES if canary in text}
        assert not found, sorted(found)


def run_job(engine: str, folder: Path, **environ: str) -> EngineRun:
    """Run the job of an engine in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "support.engine_job", engine, str(folder)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    done = subprocess.run(
        command, env={**kept, "PYTHONPATH": paths, **environ}, capture_output=True, text=True, check=False, timeout=900
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-6000:]
    return EngineRun(folder, json.loads((folder / "seen.json").read_text()), printed)

"""Output folders of ``batch``, made in this process by the real writers, and the lines of their manifests."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import orjson
from support.tables import BUILD, deidentifier, parts, table

from deid_agent.agent import Factory, InlineExecutor, Process, PublicKey
from deid_agent.audit import first_public_key
from deid_agent.batch import running
from deid_agent.batch.audit_parts import Digests, RowAuditor
from deid_agent.batch.identities import Identities
from deid_agent.batch.jobs import RowWorker
from deid_agent.batch.manifest import MANIFEST, Head, OpenManifest
from deid_agent.batch.manifest_trail import OpenTrail, trail_folder
from deid_agent.batch.outputs import OutputFormat
from deid_agent.batch.pacing import Pace
from deid_agent.batch.rows import RowDeidentifier
from deid_agent.batch.running import BatchRun, UnitReport
from deid_agent.batch.sampling import Sampler
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import list_units

HEAD = Head(BUILD, "0.1.0", "key", "research", "own")
TABLE = table(columns={"id": "id", "who": "id", "text": "text", "n": "keep"}, row={"document": "id", "patient": "who"})
PERSON = orjson.dumps({"mrn": "4471902", "name": {"given": "Zyblorq", "family": "Quixwell"}})


def write_inputs(folder: Path, files: int, rows: int) -> Path:
    """Notes of a patient, in files that bear the name of the patient. The last row of each has no patient."""
    folder.mkdir(exist_ok=True)
    for number in range(files):
        lines = [
            f"{number}{n},p1,Zyblorq Quixwell came 3/{n + 1}/2019. Call 740-555-0183.,{n}" for n in range(rows - 1)
        ]
        (folder / f"Quixwell-{number}.csv").write_text("\n".join(["id,who,text,n", *lines, "9,,No one is here.,9", ""]))
    return folder


@dataclass(frozen=True)
class _InProcess:
    """The worker of ``support.tables``, which is loaded once for all tests."""

    def __call__(self) -> Process:
        rows = RowDeidentifier.of(TABLE, deidentifier(), BUILD)
        return RowWorker(rows, RowAuditor(Digests(parts().key), TABLE.document))


@dataclass
class Folders:
    """Runs of one table. ``identities`` are known under the key of their rows."""

    identities: Mapping[str, bytes] = field(default_factory=lambda: {"p1": PERSON})

    def run(
        self,
        inputs: Path,
        out: Path,
        *,
        readers: PublicKey | None = None,
        size: int = 4,
        pace: Pace | None = None,
        again: bool = False,
        factory: Factory | None = None,
    ) -> list[UnitReport]:
        """De-identify the inputs into the folder; returns the end of each unit."""
        sources, _ = list_sources([inputs])
        units = [unit for source in sources for unit in list_units(source, 1)]
        digests = Digests(parts().key)
        sampler = None if readers is None else Sampler(out, size, readers, digests, TABLE)
        known = Identities(self.identities)
        work = BatchRun(
            TABLE, BUILD, out, OutputFormat.PARQUET, digests, known, again=again, sampler=sampler, pace=pace
        )
        reports: list[UnitReport] = []
        with (
            patch.object(running, "WorkerPool", lambda made, *_: InlineExecutor(made)),
            OpenManifest(out, HEAD, OpenTrail(parts().key)) as manifest,
        ):
            work.run(units, manifest, factory or _InProcess(), 1, reports.append)
        return reports


def first_key(out: Path) -> str:
    """The first key of the audit of a folder."""
    return first_public_key(trail_folder(out))


def read_lines(out: Path) -> list[dict[str, object]]:
    """The lines of the manifest."""
    return [orjson.loads(line) for line in (out / MANIFEST).read_bytes().splitlines()]


def write_lines(out: Path, lines: Sequence[Mapping[str, object]]) -> None:
    """Write the lines with a chain that is computed anew, as an attacker would."""
    previous, data = "0" * 64, b""
    for line in lines:
        text = orjson.dumps({**line, "previous": previous})
        previous, data = hashlib.sha256(text).hexdigest(), data + text + b"\n"
    (out / MANIFEST).write_bytes(data)

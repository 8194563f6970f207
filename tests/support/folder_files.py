"""Input files, records and outputs of a folder transport."""

from collections.abc import Callable, Sequence
from pathlib import Path

from support.transport_contract import Member

from deid_agent.agent.ports import FinishedRecord, Outcome, Output, Record
from deid_agent.transport.folder.source import STREAM, FolderTransport

Make = Callable[..., FolderTransport]


def put(root: Path, name: str, data: bytes = b"x") -> Path:
    path = root / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


async def taken(transport: FolderTransport) -> list[Record]:
    await transport.start(Member())
    found: list[Record] = []
    while not transport.exhausted:
        found += await transport.poll(10)
    return found


async def commit(transport: FolderTransport, batch: Sequence[FinishedRecord]) -> None:
    await transport.commit(STREAM, batch, batch[-1].record.coordinates.offset + 1)


def named(record: Record, key: bytes | None) -> FinishedRecord:
    return FinishedRecord(record, Outcome.PUBLISHED, Output(b"clean " + record.payload, key))


def outputs(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root / "out")): p.read_bytes() for p in (root / "out").rglob("*") if p.is_file()}

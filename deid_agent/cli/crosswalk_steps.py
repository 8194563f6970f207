"""The two steps in which custodians open a crosswalk, without their files and trails."""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from deid_agent.agent import MOST_CUSTODIANS, PrivateKey
from deid_agent.audit import (
    HalfOpened,
    LineKind,
    OpeningEntry,
    SealedRecord,
    find_records,
    half_open,
    open_pairs,
    read_half_opened,
    verify_trail,
)
from deid_agent.cli.common import echo_error, printable
from deid_agent.cli.trusted_keys import find_trusted
from deid_agent.model import ConfigurationError, CrosswalkError, counted

MOST_SHOWN: Final = 20
"""The most faults or problems that are printed."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted keys of a crosswalk's trail, and whether it is opened even if it does not verify."""

    public: tuple[str, ...]
    unverified: bool


@dataclass(frozen=True, slots=True)
class OpeningStep:
    """A step: its line in the trail, the file that it makes, and the records that could not be opened."""

    entry: OpeningEntry
    data: bytes = field(repr=False)
    problems: tuple[str, ...]


def open_first(
    folders: Sequence[Path], key: PrivateKey, codes: Sequence[str], asked: OpeningEntry, trust: Trust
) -> OpeningStep:
    """Open the outer boxes of a crosswalk; the only ones if it has one custodian."""
    crosswalks, verified = _verify(folders, trust)
    found = list(find_records(folders, codes))
    of = max((len(record.keys) for record in found), default=MOST_CUSTODIANS)
    problems = [
        f"{record.place}: sealed to one custodian; open its codes alone" for record in found if len(record.keys) < of
    ]
    records = [record for record in found if len(record.keys) == of]
    asked = replace(asked, of=of, verified=verified, crosswalks=crosswalks)
    if of == 1:
        return _open_last(records, key, codes, asked, problems)
    opened: list[SealedRecord] = []
    for record in _in_turn(records, key, problems):
        try:
            opened.append(half_open(record, key))
        except CrosswalkError as problem:
            problems.append(str(problem))
    half = HalfOpened(tuple(codes), crosswalks, tuple(opened), verified)
    return OpeningStep(_count(asked, opened), half.encode() if opened else b"", tuple(problems))


def open_second(sources: Sequence[Path], key: PrivateKey, codes: Sequence[str], asked: OpeningEntry) -> OpeningStep:
    """Open the inner boxes of a half-opened file."""
    if len(sources) > 1:
        raise ConfigurationError("give one half-opened file, or the folders of crosswalks")
    data = sources[0].read_bytes()
    try:
        half = read_half_opened(data, str(sources[0]))
    except CrosswalkError as problem:
        raise ConfigurationError(str(problem)) from None
    problems = []
    if foreign := set(codes) - set(half.codes):
        problems.append(f"{counted(len(foreign), 'code')} not in the request of the first custodian: left out")
    known = frozenset(half.codes)
    both = [code for code in codes if code in known]
    asked = replace(
        asked,
        step=MOST_CUSTODIANS,
        of=MOST_CUSTODIANS,
        input=hashlib.sha256(data).hexdigest(),
        crosswalks=half.crosswalks,
        verified=half.verified,
    )
    wanted = frozenset(both)
    return _open_last([one for one in half.records if wanted & {*one.codes}], key, both, asked, problems)


def _open_last(
    records: Sequence[SealedRecord], key: PrivateKey, codes: Sequence[str], asked: OpeningEntry, problems: list[str]
) -> OpeningStep:
    """The originals of ``codes``, one row for each place of each, and a row for each code that was not found."""
    rows: dict[str, dict[object, Mapping[str, object]]] = {code: {} for code in codes}
    opened, wanted = list[SealedRecord](), frozenset(codes)
    for record in _in_turn(records, key, problems):
        try:
            found = open_pairs(record, key, wanted)
        except CrosswalkError as problem:
            problems.append(str(problem))
            continue
        opened.append(replace(record, codes=tuple(dict.fromkeys(str(row["code"]) for row in found))))
        for row in found:  # a record that was processed twice has two lines
            rows[str(row["code"])].setdefault((row["record"], row["path"], row["original"]), row)
    if doubtful := sum(len({row["original"] for row in found.values()}) > 1 for found in rows.values()):
        problems.append(
            f"{counted(doubtful, 'code')} with more than one original: a line is forged, trust none of them"
        )
    # A digest of this file is in the trail and on the screen. A random part, so that no original can be guessed.
    opening = {"opening": secrets.token_hex(16)}
    lines = [{**row, **opening} for code in codes for row in rows[code].values() or [{"code": code, "found": False}]]
    # ASCII: an original may hold half of a surrogate pair.
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode("ascii") if any(rows.values()) else b""
    return OpeningStep(_count(asked, opened), data, tuple(problems))


def _in_turn(records: Sequence[SealedRecord], key: PrivateKey, problems: list[str]) -> list[SealedRecord]:
    """The records that this key opens now. The others are counted in ``problems``, with the key that opens them."""
    turns = Counter(record.keys for record in records if record.keys[:1] != (key.id,))
    for keys, count in turns.items():
        later = "and opens them after that" if key.id in keys else "and cannot open them now"
        first = f"key {keys[0]} first" if keys else "an unknown key"
        problems.append(f"{counted(count, 'record')} to be opened with {first}: this key is {key.id} {later}")
    return [record for record in records if record.keys[:1] == (key.id,)]


def _count(asked: OpeningEntry, opened: Sequence[SealedRecord]) -> OpeningEntry:
    codes = {code for record in opened for code in record.codes}
    projects = tuple(sorted({record.project for record in opened}))
    records = {(record.project, record.record) for record in opened}
    return replace(asked, found=len(codes), records=len(records), projects=projects)


def _verify(folders: Sequence[Path], trust: Trust) -> tuple[tuple[str, ...], bool]:
    """The ids of the trails of crosswalks, and whether all verify. Raises ``ConfigurationError`` if they must."""
    trusted = find_trusted(trust.public, None) if trust.public else None
    if trusted is None:
        echo_error("deid-agent: warning: no --public-key: this shows only that changes were signed, not by whom")
    ids, verified = [], True
    for folder in folders:
        report = verify_trail(folder, trusted)
        if report.kind not in {None, LineKind.CROSSWALK}:
            raise ConfigurationError(f"{printable(folder)}: its entries are of the kind {report.kind}, not crosswalk")
        for fault in report.faults[:MOST_SHOWN]:
            echo_error(f"deid-agent: {printable(f'{folder}/{fault.where}: {fault.code}: {fault.detail}')}")
        # Segments are erased on purpose: without them codes are not found, but none gets another original.
        verified = verified and all(fault.missing_segment for fault in report.faults)
        ids.append(report.trail)
    if not verified and not trust.unverified:
        raise ConfigurationError("the crosswalk was changed or is incomplete: restore it, or add --unverified")
    return tuple(ids), verified

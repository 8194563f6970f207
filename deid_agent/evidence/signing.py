"""Signs a report, and verifies one: the statement ``evidence.sig`` names the SHA-256 of each file of the report.

The signature is that of the audit trail (Ed25519 over the bytes of a statement up to its signature). The kind of the
statement is not one of a trail, so none can be presented as the other.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from deid_agent.agent import sync_folder
from deid_agent.audit import Signer, is_signed
from deid_agent.evidence.report import SCHEMA_VERSION
from deid_agent.model import ConfigurationError

JSON_FILE: Final = "evidence.json"
PAGE_FILE: Final = "evidence.html"
SIGNATURE_FILE: Final = "evidence.sig"
_KIND = b'{"kind":"evidence",'
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """A verified report: its key and its time. ``faults`` name files and their faults; empty if it holds."""

    key: str
    time: str
    faults: tuple[str, ...]


def refuse_report(folder: Path) -> None:
    """Raise ``ConfigurationError`` if the folder of a new report is a file, or has a report already."""
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"--out {folder}: is not a folder")
    if taken := [name for name in (JSON_FILE, PAGE_FILE, SIGNATURE_FILE) if (folder / name).exists()]:
        raise ConfigurationError(f"--out {folder}: has {taken[0]} already: use another folder")


def write_report(folder: Path, page: str, report: bytes, time: str, signer: Signer | None) -> None:
    """Write the files of a report, the signature last. Raises ``ConfigurationError`` if the folder has one already."""
    files = {JSON_FILE: report, PAGE_FILE: page.encode()}
    try:
        refuse_report(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if signer is not None:
            files[SIGNATURE_FILE] = sign_report(files, time, signer)
        for name, data in files.items():
            with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(folder)
    except OSError as problem:
        raise ConfigurationError(f"--out {folder}: cannot be written ({type(problem).__name__})") from None


def sign_report(files: Mapping[str, bytes], time: str, signer: Signer) -> bytes:
    """The signed statement about the files, as one line."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    body = {"kind": "evidence", "version": SCHEMA_VERSION, "time": time, "key": signer.public, "sha256": digests}
    return signer.sign(orjson.dumps(body)[:-1]) + b"}\n"


def verify_report(folder: Path, trusted: Collection[str]) -> CheckedReport:
    """Compare the files of a report with its statement. ``trusted`` are public keys in hex.

    Raises ``ConfigurationError`` if the folder has no statement that can be read.
    """
    line = _read(folder / SIGNATURE_FILE)
    try:
        fields = orjson.loads(line)
        key, time, digests = fields["key"], fields["time"], fields["sha256"]
        sound = isinstance(key, str) and isinstance(time, str) and isinstance(digests, dict)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        sound = False
    if not sound or not line.startswith(_KIND) or not line.endswith(b'"}\n'):
        raise ConfigurationError(f"{folder / SIGNATURE_FILE}: is not the signature of a report")
    if key not in trusted:
        return CheckedReport(key, time, (f"{SIGNATURE_FILE}: is signed by another key, {key[:64]}",))
    if not is_signed(line[:-2], key):
        return CheckedReport(key, time, (f"{SIGNATURE_FILE}: the signature does not hold",))
    faults = []
    for name in (JSON_FILE, PAGE_FILE):
        try:
            digest = hashlib.sha256(_read(folder / name)).hexdigest()
        except ConfigurationError:  # removed after it was signed
            faults.append(f"{name}: is missing, or cannot be read")
            continue
        if digests.get(name) != digest:
            faults.append(f"{name}: is not the file that was signed")
    return CheckedReport(key, time, tuple(faults))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    if len(data) > _MOST_BYTES:
        raise ConfigurationError(f"{path}: is not a file of a report")
    return data

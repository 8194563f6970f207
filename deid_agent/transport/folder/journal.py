"""The journal of a folder: which files have been seen and committed. An append-only log for one process at a time.

File names may contain PHI, so the journal stores keyed digests of names and contents. The key is random and is stored
in the first line: it defeats precomputed tables, not a person who has the journal.
"""

import fcntl
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent import cut_torn_line
from deid_agent.model import ConfigurationError
from deid_agent.transport.folder.files import FileState


@dataclass(frozen=True, slots=True)
class Version:
    """One content of a file: its state when it was read, and a keyed digest of its bytes."""

    state: FileState
    digest: str


@dataclass(frozen=True, slots=True)
class JournalOffsets:
    """The offsets of a journal. One is ``given_up`` if its file has a later one and it was never committed."""

    seen: frozenset[int]
    committed: frozenset[int]
    given_up: frozenset[int]


class Journal:
    """Offsets by file name, and the files that are committed. Blocking: call it from a thread.

    Raises ``ConfigurationError`` if the file cannot be opened, is in use or is damaged, and ``OSError`` if a write
    fails. Data recorded by a method is durable when the method returns.
    """

    def __init__(self, path: Path) -> None:
        self._offsets: dict[str, int] = {}
        self._finished: dict[int, Version] = {}
        self._claims: dict[str, int] = {}
        self._salt = b""
        self._next_offset = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"state file {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            cut_torn_line(self._file)
            self._load(path)
            if not self._salt:
                self._salt = secrets.token_bytes(16)
                self._append([{"salt": self._salt.hex()}])
        except OSError as error:
            os.close(self._file)
            raise ConfigurationError(f"state file {path} is in use or cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            os.close(self._file)
            raise ConfigurationError(
                f"state file {path} is damaged or was written by another release: restore it, or start with a new one"
            ) from None

    def _load(self, path: Path) -> None:
        for text in path.read_text("ascii").splitlines():
            line = json.loads(text)
            line.setdefault("committed", line.get("settled"))  # the key until 0.1
            if "salt" in line:
                self._salt = bytes.fromhex(line["salt"])
            elif "seen" in line:
                self._offsets[str(line["seen"])] = int(line["offset"])
                self._next_offset = max(self._next_offset, int(line["offset"]) + 1)
            else:
                for (offset, claim), version in zip(line["committed"], line["versions"], strict=True):
                    self._finished[int(offset)] = _version(*version)
                    if claim:
                        self._claims[str(claim)] = int(offset)

    def finished(self, name: bytes) -> Version | None:
        """The version of this file that was committed last; None if the file is new or its last version is not
        committed.
        """
        return self._finished.get(self._offsets.get(self.digest(name), -1))

    def open_offset(self, name: bytes) -> float:
        """The offset of this file's record that is not committed; infinite if there is none."""
        offset = self._offsets.get(self.digest(name), -1)
        return math.inf if offset < 0 or offset in self._finished else offset

    def offsets(self, names: Iterable[bytes], above: int = -1) -> list[tuple[int, bytes]]:
        """The offsets of the next record of each of these files, increasing and above ``above``.

        A name keeps an uncommitted offset, so that a restart finds it again. It gets the next free offset if it has
        none, or one that can no longer be delivered because it is not above ``above``.
        """
        found: list[tuple[int, bytes]] = []
        fresh: list[Mapping[str, object]] = []
        for name in names:
            digest = self.digest(name)
            offset = self._offsets.get(digest)
            if offset is None or offset <= above or offset in self._finished:
                offset = self._offsets[digest] = self._next_offset
                self._next_offset += 1
                fresh.append({"seen": digest, "offset": offset})
            found.append((offset, name))
        self._append(fresh)
        return sorted(found)

    def claimant(self, output: bytes) -> int | None:
        """The offset of the committed file whose output has this name."""
        return self._claims.get(self.digest(output))

    def commit(self, done: Mapping[int, bytes | None], versions: Mapping[int, Version]) -> None:
        """Record these offsets as committed, with the names of their outputs and the versions that were read."""
        pairs = [(offset, self.digest(name) if name is not None else "") for offset, name in done.items()]
        read_file = {offset: versions[offset] for offset in done}
        self._append([{"committed": pairs, "versions": [(*v.state, v.digest) for v in read_file.values()]}])
        self._finished.update(read_file)
        self._claims.update({claim: offset for offset, claim in pairs if claim})

    def digest(self, data: bytes) -> str:
        """A keyed digest of a name or a content. Comparable within this journal only."""
        return hashlib.blake2b(data, key=self._salt, digest_size=16).hexdigest()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, lines: Iterable[Mapping[str, object]]) -> None:
        if data := memoryview(b"".join(json.dumps(line).encode() + b"\n" for line in lines)):
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)


def _version(size: int, changed_ns: int, touched_ns: int, digest: str) -> Version:
    return Version((int(size), int(changed_ns), int(touched_ns)), str(digest))


def read_journal(path: Path) -> JournalOffsets:
    """The offsets of a journal, also of one that an agent is writing. Raises ``ConfigurationError``."""
    last, seen, committed = dict[str, int](), set[int](), set[int]()
    try:
        for text in path.read_bytes().split(b"\n")[:-1]:
            line = json.loads(text)
            if "seen" in line:
                last[str(line["seen"])] = int(line["offset"])
                seen.add(int(line["offset"]))
            elif "salt" not in line:
                committed.update(int(offset) for offset, _ in line.get("committed", line.get("settled")))
    except OSError as error:
        raise ConfigurationError(f"state file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"state file {path} is damaged or was written by another release") from None
    given_up = seen - committed - set(last.values())
    return JournalOffsets(frozenset(seen), frozenset(committed), frozenset(given_up))

"""Which files have been seen and settled: a small log that only grows, one process at a time.

File names may hold PHI, so the journal keeps keyed digests of them and of what was read; the key is
random and stands in its first line (it keeps ready-made tables away, not someone who holds the journal).
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent.audit import mend
from deid_agent.errors import ConfigurationError
from deid_agent.transport.folders import Look


@dataclass(frozen=True, slots=True)
class Version:
    """One content of a file: how it looked when it was read, and a keyed digest of its bytes."""

    look: Look
    digest: str


class Journal:
    """Offsets by name, and what has settled. Blocking: call it from a thread.

    ``ConfigurationError`` where the file can't be opened, is in use or is damaged; ``OSError`` where a
    write fails. What a method has recorded is durable when it returns.
    """

    def __init__(self, path: Path) -> None:
        self._offsets: dict[str, int] = {}
        self._settled: dict[int, Version] = {}
        self._claims: dict[str, int] = {}
        self._salt = b""
        self._next = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"state file {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mend(self._file)
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
                f"state file {path} is damaged or of another release: restore it or start with a new one"
            ) from None

    def _load(self, path: Path) -> None:
        for text in path.read_text("ascii").splitlines():
            line = json.loads(text)
            if "salt" in line:
                self._salt = bytes.fromhex(line["salt"])
            elif "seen" in line:
                self._offsets[str(line["seen"])] = int(line["offset"])
                self._next = max(self._next, int(line["offset"]) + 1)
            else:
                for (offset, claim), version in zip(line["settled"], line["versions"], strict=True):
                    self._settled[int(offset)] = _version(*version)
                    if claim:
                        self._claims[str(claim)] = int(offset)

    def settled(self, name: bytes) -> Version | None:
        """The version of this file that settled last; None where the file is new or its last version is not settled."""
        return self._settled.get(self._offsets.get(self.digest(name), -1))

    def offsets(self, names: Iterable[bytes], above: int = -1) -> list[tuple[int, bytes]]:
        """Offsets of the next record of each of these files, rising and above ``above``.

        A name keeps an offset that is not settled, so that a repeated start meets it again; it gets the next
        one where it has none, or one that can't come any more since it is not above ``above``.
        """
        found: list[tuple[int, bytes]] = []
        fresh: list[Mapping[str, object]] = []
        for name in names:
            digest = self.digest(name)
            offset = self._offsets.get(digest)
            if offset is None or offset <= above or offset in self._settled:
                offset = self._offsets[digest] = self._next
                self._next += 1
                fresh.append({"seen": digest, "offset": offset})
            found.append((offset, name))
        self._append(fresh)
        return sorted(found)

    def claimant(self, output: bytes) -> int | None:
        """The offset of the settled file whose output has this name."""
        return self._claims.get(self.digest(output))

    def settle(self, done: Mapping[int, bytes | None], versions: Mapping[int, Version]) -> None:
        """These offsets are finished, with the names of their outputs and the versions that were read."""
        pairs = [(offset, self.digest(name) if name is not None else "") for offset, name in done.items()]
        read = {offset: versions[offset] for offset in done}
        self._append([{"settled": pairs, "versions": [(*v.look, v.digest) for v in read.values()]}])
        self._settled.update(read)
        self._claims.update({claim: offset for offset, claim in pairs if claim})

    def digest(self, data: bytes) -> str:
        """A keyed digest of a name or a content; equal only for equal bytes, and only within this journal."""
        return hashlib.blake2b(data, key=self._salt, digest_size=16).hexdigest()

    def close(self) -> None:
        """Give the file up."""
        os.close(self._file)

    def _append(self, lines: Iterable[Mapping[str, object]]) -> None:
        if data := memoryview(b"".join(json.dumps(line).encode() + b"\n" for line in lines)):
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)


def _version(size: int, changed_ns: int, touched_ns: int, digest: str) -> Version:
    return Version((int(size), int(changed_ns), int(touched_ns)), str(digest))

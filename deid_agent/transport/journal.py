"""Which files have been seen and settled: a small log that only grows, one process at a time.

File names may hold PHI, so the journal keeps keyed digests of them; the key is random and stands in
its first line (it keeps ready-made tables of names away, not someone who holds the journal).
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from deid_agent.agent.audit import mend
from deid_agent.errors import ConfigurationError


class Journal:
    """Offsets by name, and what has settled. Blocking: call it from a thread.

    ``ConfigurationError`` where the file can't be opened, is in use or is damaged; ``OSError`` where a
    write fails. What a method has recorded is durable when it returns.
    """

    def __init__(self, path: Path) -> None:
        self._offsets: dict[str, int] = {}
        self._settled: set[int] = set()
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
            raise ConfigurationError(f"state file {path} is damaged: restore it or start with a new one") from None

    def _load(self, path: Path) -> None:
        for text in path.read_text("ascii").splitlines():
            line = json.loads(text)
            if "salt" in line:
                self._salt = bytes.fromhex(line["salt"])
            elif "seen" in line:
                self._offsets[str(line["seen"])] = int(line["offset"])
                self._next = max(self._next, int(line["offset"]) + 1)
            else:
                for offset, claim in line["settled"]:
                    self._settled.add(int(offset))
                    if claim:
                        self._claims[str(claim)] = int(offset)

    def offsets(self, names: Iterable[bytes], above: int = -1) -> list[tuple[int, bytes]]:
        """Offsets of the files among ``names`` that are not settled, rising and above ``above``.

        A name gets the next offset where it has none, or one that can't come any more since it is not
        above ``above``.
        """
        found: list[tuple[int, bytes]] = []
        fresh: list[Mapping[str, object]] = []
        for name in names:
            digest = self._digest(name)
            offset = self._offsets.get(digest)
            if offset in self._settled:
                continue
            if offset is None or offset <= above:
                offset = self._offsets[digest] = self._next
                self._next += 1
                fresh.append({"seen": digest, "offset": offset})
            found.append((offset, name))
        self._append(fresh)
        return sorted(found)

    def claimant(self, output: bytes) -> int | None:
        """The offset of the settled file whose output has this name."""
        return self._claims.get(self._digest(output))

    def settle(self, done: Mapping[int, bytes | None]) -> None:
        """These offsets are finished, with the names of their outputs."""
        pairs = [(offset, self._digest(name) if name is not None else "") for offset, name in done.items()]
        self._append([{"settled": pairs}])
        self._settled.update(done)
        self._claims.update({claim: offset for offset, claim in pairs if claim})

    def close(self) -> None:
        """Give the file up."""
        os.close(self._file)

    def _append(self, lines: Iterable[Mapping[str, object]]) -> None:
        if data := memoryview(b"".join(json.dumps(line).encode() + b"\n" for line in lines)):
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)

    def _digest(self, name: bytes) -> str:
        return hashlib.blake2b(name, key=self._salt, digest_size=16).hexdigest()

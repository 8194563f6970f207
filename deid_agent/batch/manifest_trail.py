"""The audit trail of an output folder: a signed entry for each line of the manifest.

It is a trail like that of an agent (``docs/audit.md``), in ``_audit/trail``, so its keys, its heads and its verifiers
are the same. The coordinates of an entry are ``manifest/0/LINE``; its output is the line, which has the digest of the
line before. An entry therefore fixes all lines up to its own.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deid_agent.agent import AuditEntry, Coordinates, Outcome
from deid_agent.audit import AuditTrail, Signer, TrailSettings, examine_trail, read_entries
from deid_agent.batch.manifest import AUDIT, Head
from deid_agent.config import SecretKey
from deid_agent.telemetry import Telemetry

TRAIL = "trail"
TOPIC = "manifest"
_SETTINGS = TrailSettings(checkpoint_s=0.0, epoch_s=3600.0, agent="batch")
"""Each entry is signed at once: there is one for some minutes of work."""


@dataclass(frozen=True, slots=True)
class OpenTrail:
    """Opens the trail of an output folder for a run with this key."""

    key: SecretKey

    def __call__(self, folder: Path, head: Head) -> "ManifestTrail":
        """Raises ``ConfigurationError`` if the trail does not verify or another process has it."""
        return ManifestTrail(folder, head, self.key)


class ManifestTrail:
    """Implements ``SignsLines``. Its methods block, and may be called from a thread with a running event loop."""

    def __init__(self, folder: Path, head: Head, key: SecretKey) -> None:
        path = trail_folder(folder)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        build = {"version": head.version, "build": head.build, "policy": head.policy, "key": head.key}
        # The trail is for an event loop, and the caller may have one of its own.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="manifest-trail")
        # Entries without a signature could be anyone's: they do not count, and the signed state is stated again.
        state = examine_trail(path) if path.is_dir() else None
        unsigned = state.place.lines - state.signed if state is not None else 0
        self._last = read_last_entry(folder, unsigned) if state is not None else (0, "")
        self._trail = AuditTrail(path, build, Signer(key.audit_seed), Telemetry(), _SETTINGS)
        try:
            if unsigned and self._last[0]:
                self.sign(*self._last)
        except BaseException:
            self.close()
            raise

    @property
    def last(self) -> tuple[int, str]:
        """See ``SignsLines.last``."""
        return self._last

    def sign(self, line: int, digest: str) -> None:
        """See ``SignsLines.sign``. Raises ``UnsafeError`` if the entry cannot be written."""
        entry = AuditEntry(Coordinates(TOPIC, 0, line), Outcome.PUBLISHED, output_digest=digest)
        self._run(self._trail.append([entry]))
        self._last = line, digest

    def close(self) -> None:
        """See ``SignsLines.close``. The present key is destroyed: a thief of the next cannot change its signatures."""
        self._run(self._trail.close())
        self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        self._thread.submit(asyncio.run, work).result()


def trail_folder(folder: Path) -> Path:
    """The folder of the trail."""
    return folder / AUDIT / TRAIL


def read_last_entry(folder: Path, left_out: int = 0) -> tuple[int, str]:
    """The number of the last line that has an entry, and its SHA-256; 0 without an entry. Verifies nothing.

    The last ``left_out`` entries are ignored.

    Raises ``ConfigurationError`` if the trail cannot be read.
    """
    last = deque([(0, "")], maxlen=left_out + 1)
    for entry in read_entries(trail_folder(folder)):
        line = entry.get("offset")
        last.append((line if isinstance(line, int) else 0, str(entry.get("output_sha256"))))
    return last[0] if len(last) > left_out else (0, "")

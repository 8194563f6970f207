"""The dead letters of a folder: written, read, opened, and put back into the input folder. Works without an agent.

A replayed file is placed at ``deid-replay/<first>.<dead letter>.<attempts>.<replays>/<name>`` in the input folder: the
offset at which the file was first seen, the offset of its dead letter, the number of attempts, and the earlier replays
of this dead letter. The name remains the record's key, so the output gets its usual path. The path is the same whenever
the same step is repeated, so an interrupted replay that is started again creates no second record.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from deid_agent.agent import (
    Coordinates,
    DamagedDeadLetter,
    DeadLetter,
    DeadLetterHead,
    DeadLetterSealer,
    FoundDeadLetter,
    Lineage,
    PrivateKey,
    Record,
    RecordForm,
    ReplayChooser,
    ReplayReport,
    open_dead_letter,
    read_dead_letter_head,
    read_lineage,
    replay_headers,
)
from deid_agent.model import ConfigurationError, DeadLetterError, UnsafeError
from deid_agent.transport.folder.files import StagedFiles, read_file, relative_name, resolve_inside

FOLDER: Final = "deid-replay"
_REPLAY_PATH = re.compile(rb"deid-replay/([0-9]{1,19})\.[0-9]{1,19}\.([0-9]{1,6})\.[0-9]{1,6}/(.+)", re.DOTALL)


def replay_path(record: Record, attempts: int, replayed: int) -> bytes:
    """The relative name of a replayed file."""
    first = read_lineage(record).first or record.coordinates
    step = f"{first.offset}.{record.coordinates.offset}.{attempts}.{replayed}"
    return f"{FOLDER}/{step}/".encode() + (record.key or b"")


def record_from_file(at: Coordinates, name: bytes, payload: bytes, timestamp_ms: int) -> Record:
    """The record for a file. Its name is the key; a replayed file has its original name and replay headers."""
    match = _REPLAY_PATH.fullmatch(name)
    if match is None:
        return Record(at, payload, name, (), timestamp_ms)
    first = Record(Coordinates(at.topic, at.partition, int(match[1])), b"")
    return Record(at, payload, match[3], replay_headers(first, int(match[2])), timestamp_ms)


BODY_SUFFIX: Final = {RecordForm.SEALED: ".sealed", RecordForm.PLAIN: ".payload"}
FILE_NAME_KEY: Final = "deid.file"
_HEAD_SUFFIX: Final = ".json"
_MARK_SUFFIX: Final = ".replayed"
_SLACK: Final = 1 << 20  # the envelope's header, and the worst overhead of deflating


def stage_dead_letter(
    staged: StagedFiles, folder: Path, sealer: DeadLetterSealer, record: Record, dead_letter: DeadLetter
) -> None:
    """Stage the body of a dead letter and its description. The description holds the file name only if both are in the
    clear.
    """
    at, form = record.coordinates, sealer.form
    stem = folder / f"{at.topic}-{at.partition}-{at.offset:010}"
    description = {name: value.decode() for name, value in sealer.headers(record, dead_letter)}
    body = record.payload
    if form is RecordForm.SEALED:
        body = sealer.body(record)
    else:
        description[FILE_NAME_KEY] = os.fsdecode(record.key or b"")
    staged.add(stem.with_suffix(BODY_SUFFIX[form]), body, 0o600, f"{at.partition}-{at.offset}-body")
    staged.add(
        stem.with_suffix(".json"), json.dumps(description).encode() + b"\n", 0o600, f"{at.partition}-{at.offset}"
    )


class FolderDeadLetters:
    """A ``DeadLetterStore`` in a folder. ``max_bytes`` limits a body; ``clock`` returns seconds since 1970.

    Dead letters of topics other than ``topic`` are ignored.

    A record is replayed as a new file in the input folder (see the module docstring), created by a rename. A file
    ``.replayed`` then marks the dead letter. After a crash between the two, the next replay writes the same bytes under
    the same name, and the agent does not take it twice.
    """

    _setting = "directory"

    def __init__(
        self, input: Path, dead_letters: Path, most: int, clock: Callable[[], float] = time.time, topic: str = "files"
    ) -> None:
        self._input = input.absolute()
        self._dead_letters = dead_letters.absolute()
        self._most = most + _SLACK
        self._clock = clock
        self._names = f"{topic}-*-*{_HEAD_SUFFIX}"

    async def dead_letters(self) -> AsyncIterator[FoundDeadLetter | DamagedDeadLetter]:
        """See ``DeadLetterStore.dead_letters``."""
        for found in self._iterate():
            yield found

    async def replay(self, choose: ReplayChooser, report: ReplayReport) -> None:
        """See ``DeadLetterStore.replay``. Raises ``ConfigurationError`` if another replay is running."""
        with self._exclusive():
            for found in self._iterate():
                record = choose(found)
                if record is not None and isinstance(found, FoundDeadLetter):
                    try:
                        self._put_back(found, record)
                    except DeadLetterError as problem:
                        report(found, str(problem))
                    else:
                        report(found, "")

    def _iterate(self) -> Iterator[FoundDeadLetter | DamagedDeadLetter]:
        self._check_folder()
        for path in sorted(self._dead_letters.glob(self._names)):
            try:
                description = self._read_description(path)
                head = read_dead_letter_head(
                    (name, value.encode(errors="replace"))
                    for name, value in description.items()
                    if name != FILE_NAME_KEY
                )
                times = self._replay_times(path)
            except DeadLetterError as problem:
                yield DamagedDeadLetter(path.stem, str(problem))
            else:
                yield FoundDeadLetter(
                    head,
                    path.stem,
                    len(times),
                    partial(self._open_record, path, head, description.get(FILE_NAME_KEY, "")),
                )

    def _check_folder(self) -> None:
        """Raise ``ConfigurationError`` unless the folder of dead letters exists."""
        if not self._dead_letters.exists():
            raise ConfigurationError(
                f"{self._setting}.dead_letters: {self._dead_letters} does not exist: the agent makes it when it first "
                "runs, and until then there are no dead letters; if it has run, correct the setting"
            )
        if not self._dead_letters.is_dir():
            raise ConfigurationError(f"{self._setting}.dead_letters: {self._dead_letters} is not a folder")

    def _read_description(self, path: Path) -> dict[str, str]:
        try:
            description = json.loads(path.read_bytes())
        except (OSError, ValueError):
            description = None
        if not isinstance(description, dict) or not all(isinstance(value, str) for value in description.values()):
            raise DeadLetterError("its description cannot be read")
        return description

    def _replay_times(self, path: Path) -> list[int]:
        mark = path.with_suffix(_MARK_SUFFIX)
        try:
            return [int(at) for at in json.loads(mark.read_bytes())["times"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            raise DeadLetterError(
                f"{mark.name} cannot be read: repair it, or remove it to allow another replay"
            ) from None

    def _open_record(self, path: Path, head: DeadLetterHead, name: str, private: PrivateKey | None) -> Record:
        try:
            body, _ = read_file(path.with_suffix(BODY_SUFFIX[head.form]), self._most)
        except OSError as problem:
            raise DeadLetterError(f"its body cannot be read ({problem.strerror or problem})") from None
        if head.form is RecordForm.SEALED:
            return open_dead_letter(head, body, private, self._most)
        # The description holds the file's name and lineage, which the file itself does not.
        return Record(head.at, body, os.fsencode(name), Lineage(head.first).headers())

    def _put_back(self, found: FoundDeadLetter, record: Record) -> None:
        key = record.key or b""
        name = replay_path(record, found.head.attempts, found.replayed)
        if relative_name(key, record.coordinates.offset) != key or (goal := resolve_inside(self._input, name)) is None:
            raise DeadLetterError("its name is not possible in the input folder")
        try:
            self._write_file(goal, record.payload)
            self._mark_replayed(found)
        except OSError as problem:  # the text of an OSError names the file, which may be PHI
            raise UnsafeError(
                f"{found.head.at}: writing to a folder failed ({problem.strerror}): fix it and start again; "
                "nothing is duplicated"
            ) from None

    def _mark_replayed(self, found: FoundDeadLetter) -> None:
        """Record next to a dead letter that it was replayed. Raises ``OSError``."""
        mark = self._dead_letters / (found.location + _MARK_SUFFIX)
        times = [*self._replay_times(mark), int(self._clock() * 1000)]
        description = {"deid.replayed": str(found.head.at), "times": times}
        self._write_file(mark, json.dumps(description).encode() + b"\n")

    def _write_file(self, goal: Path, data: bytes) -> None:
        staged = StagedFiles()
        try:
            staged.add(goal, data, 0o600, "replay")
            staged.publish()
        finally:
            staged.discard()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._check_folder()
        folder = os.open(self._dead_letters, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise ConfigurationError("another replay is using these dead letters: wait until it ends") from None
        finally:
            os.close(folder)

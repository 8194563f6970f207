"""The dead letters of a folder: read, opened, put back into the input folder. Needs no agent, and minds none."""

import fcntl
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from deid_agent.agent.letterbox import Damaged, Found, Pick, Told
from deid_agent.agent.letterhead import Form, Keeper, LetterHead, open_letter, read_head
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.lineage import Lineage
from deid_agent.agent.ports import DeadLetter, Record
from deid_agent.errors import ConfigurationError, LetterError, UnsafeError
from deid_agent.transport.folders import Staged, read
from deid_agent.transport.names import inside, relative_name
from deid_agent.transport.replayed import place_of

BODY: Final = {Form.SEALED: ".sealed", Form.PLAIN: ".payload"}
NAME: Final = "deid.file"
_HEAD: Final = ".json"
_MARK: Final = ".replayed"
_SLACK: Final = 1 << 20  # an envelope's head, and what deflating adds at worst


def stage_letter(staged: Staged, folder: Path, keeper: Keeper, record: Record, letter: DeadLetter) -> None:
    """A letter's body and its description; the file's name stands in the description only where both are clear."""
    at, form = record.coordinates, keeper.form
    stem = folder / f"{at.topic}-{at.partition}-{at.offset:010}"
    said = {name: value.decode() for name, value in keeper.headers(record, letter)}
    body = record.payload
    if form is Form.SEALED:
        body = keeper.body(record)
    else:
        said[NAME] = os.fsdecode(record.key or b"")
    staged.add(stem.with_suffix(BODY[form]), body, 0o600, f"{at.partition}-{at.offset}-body")
    staged.add(stem.with_suffix(".json"), json.dumps(said).encode() + b"\n", 0o600, f"{at.partition}-{at.offset}")


class FolderLetters:
    """Implements ``LetterBox``. ``most`` bounds a body, in bytes; ``clock`` gives seconds since 1970.

    Letters of other topics than ``topic`` are not looked at.

    A record is put back as a file of its own (``transport.replayed``), by a rename, for the agent to find; then
    the letter gets a file ``.replayed`` beside it. A crash between the two is mended by the next replay: it
    writes the same bytes under the same name, which the agent does not take twice.
    """

    _setting = "directory"

    def __init__(
        self, input: Path, letters: Path, most: int, clock: Callable[[], float] = time.time, topic: str = "files"
    ) -> None:
        self._input = input.absolute()
        self._letters = letters.absolute()
        self._most = most + _SLACK
        self._clock = clock
        self._names = f"{topic}-*-*{_HEAD}"

    async def letters(self) -> AsyncIterator[Found | Damaged]:
        """See ``LetterBox.letters``."""
        for found in self._walk():
            yield found

    async def replay(self, pick: Pick, told: Told) -> None:
        """See ``LetterBox.replay``. ``ConfigurationError`` where another replay is at work."""
        with self._alone():
            for found in self._walk():
                record = pick(found)
                if record is not None and isinstance(found, Found):
                    try:
                        self._put_back(found, record)
                    except LetterError as problem:
                        told(found, str(problem))
                    else:
                        told(found, "")

    def _walk(self) -> Iterator[Found | Damaged]:
        if not self._letters.is_dir():
            raise ConfigurationError(f"{self._setting}.dead_letters: {self._letters} is no folder")
        for path in sorted(self._letters.glob(self._names)):
            try:
                said = self._said(path)
                head = read_head((name, value.encode(errors="replace")) for name, value in said.items() if name != NAME)
                times = self._times(path)
            except LetterError as problem:
                yield Damaged(path.stem, str(problem))
            else:
                yield Found(head, path.stem, len(times), partial(self._open, path, head, said.get(NAME, "")))

    def _said(self, path: Path) -> dict[str, str]:
        try:
            said = json.loads(path.read_bytes())
        except (OSError, ValueError):
            said = None
        if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
            raise LetterError("its description cannot be read")
        return said

    def _times(self, path: Path) -> list[int]:
        mark = path.with_suffix(_MARK)
        try:
            return [int(at) for at in json.loads(mark.read_bytes())["times"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            raise LetterError(
                f"{mark.name} cannot be read: mend it, or take it away to have the letter put back"
            ) from None

    def _open(self, path: Path, head: LetterHead, name: str, private: PrivateKey | None) -> Record:
        try:
            body, _ = read(path.with_suffix(BODY[head.form]), self._most)
        except OSError as problem:
            raise LetterError(f"its body cannot be read ({problem.strerror or problem})") from None
        if head.form is Form.SEALED:
            return open_letter(head, body, private, self._most)
        # The description says all that the file alone does not: its name and its earlier life.
        return Record(head.at, body, os.fsencode(name), Lineage(head.first).headers())

    def _put_back(self, found: Found, record: Record) -> None:
        key = record.key or b""
        name = place_of(record, found.head.attempts, found.replayed)
        if relative_name(key, record.coordinates.offset) != key or (goal := inside(self._input, name)) is None:
            raise LetterError("its name has no place in the input folder")
        try:
            self._write(goal, record.payload)
            self._mark(found)
        except OSError as problem:  # its own text names the file, which may be PHI
            raise UnsafeError(
                f"{found.head.at}: a folder fails ({problem.strerror}): mend it and start again; nothing doubles"
            ) from None

    def _mark(self, found: Found) -> None:
        """Note beside a letter that its record was put back. Raises ``OSError``."""
        mark = self._letters / (found.place + _MARK)
        times = [*self._times(mark), int(self._clock() * 1000)]
        said = {"deid.replayed": str(found.head.at), "times": times}
        self._write(mark, json.dumps(said).encode() + b"\n")

    def _write(self, goal: Path, data: bytes) -> None:
        staged = Staged()
        try:
            staged.add(goal, data, 0o600, "replay")
            staged.show()
        finally:
            staged.drop()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._letters.is_dir():
            raise ConfigurationError(f"{self._setting}.dead_letters: {self._letters} is no folder")
        folder = os.open(self._letters, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise ConfigurationError("another replay is at work on these letters: let it end") from None
        finally:
            os.close(folder)

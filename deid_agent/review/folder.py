"""A folder of reviewed notes on the disk of a site.

``folder.json`` has the id of the folder and the public name of its key. All other files are sealed: ``reviewers``,
``index`` (the queue), ``notes/ID`` and ``decisions/ID``. Notes are written before the index that lists them, so ``add``
happens as a whole or not at all. A writer holds the lock; readers need none, since each file is replaced as a
whole.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import TypeAdapter

from deid_agent.agent import sync_folder
from deid_agent.config import SecretKey, load_key
from deid_agent.model import ConfigurationError
from deid_agent.review.records import NoteDecisions, ReviewIndex, ReviewNote
from deid_agent.review.sealing import PATIENCE_S, FileCipher, fill_block, hold, read_limited, replace_durably
from deid_agent.review.stored import pack, unpack_decisions, unpack_index, unpack_note

T = TypeVar("T")
HEAD = "folder.json"
MOST_REVIEWERS = 64
_INDEX, _REVIEWERS, _NOTES, _DECISIONS = "index", "reviewers", "notes", "decisions"
_VERSION = 1
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,31}", re.ASCII)
_FOLDER_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEY_ID = re.compile(r"[0-9a-f]{8}", re.ASCII)
_NOTE = re.compile(r"[0-9a-f]{20}", re.ASCII)
_DAMAGED = "was changed, is torn or belongs to another folder: restore it from a backup"
_TOKENS = TypeAdapter(dict[str, str])


def load_review_key(path: Path) -> SecretKey:
    """The key of a folder: a file of at least 32 random bytes that only its owner may read.

    Raises ``ConfigurationError`` as ``load_key``.
    """
    return load_key(path, {})


def make_key_file(path: Path) -> None:
    """Write a new key of 32 random bytes. Raises ``ConfigurationError`` if it cannot be a new file."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise ConfigurationError(f"key file {path}: cannot be made ({type(problem).__name__})") from None
    try:
        with os.fdopen(number, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # a part of a key would be taken for one
        raise
    sync_folder(path.absolute().parent)


@dataclass(frozen=True, slots=True)
class ReviewFolder:
    """An open folder. Its methods raise ``ConfigurationError`` for a damaged file, and ``OSError``."""

    path: Path
    cipher: FileCipher

    @classmethod
    def make(cls, path: Path, key: SecretKey, reviewers: Sequence[str]) -> tuple["ReviewFolder", dict[str, str]]:
        """A new folder, and the token of each reviewer, of which the folder keeps digests.

        Raises ``ConfigurationError`` if the folder has files, or a name is not one of a reviewer.
        """
        check_new(path, reviewers)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        id_ = secrets.token_hex(16)
        made = cls(path, FileCipher.of(key.secret, id_))
        for name in (_NOTES, _DECISIONS):
            (path / name).mkdir(mode=0o700)
        tokens = {name: secrets.token_urlsafe(24) for name in reviewers}
        with made.locked():
            made._write_tokens({name: _digest_token(token) for name, token in tokens.items()})
            made.write_index(ReviewIndex())
            # Last: a folder without it is none.
            head = {"format": "deid-review", "version": _VERSION, "folder": id_, "key": key.id}
            replace_durably(path / HEAD, orjson.dumps(head) + b"\n")
        return made, tokens

    @classmethod
    def open(cls, path: Path, key: SecretKey) -> "ReviewFolder":
        """The folder at a path.

        Raises ``ConfigurationError`` if there is none, or if it was made with another key.
        """
        head = _read_head(path)
        if head["key"] != key.id:
            raise ConfigurationError(
                f"review folder {path}: made with the key {head['key']}, not with {key.id}: give the key of this folder"
            )
        found = cls(path, FileCipher.of(key.secret, head["folder"]))
        found.read_index()
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive use. Raises ``FolderBusyError`` if another process holds the folder for too long."""
        with hold(self.path, PATIENCE_S):
            yield

    def reviewers(self) -> Sequence[str]:
        """The names of all reviewers."""
        return sorted(self._tokens())

    def reviewer_of(self, token: str) -> str | None:
        """The reviewer with this token, compared in constant time."""
        wanted, found = _digest_token(token), None
        for name, digest in self._tokens().items():
            if hmac.compare_digest(digest, wanted):
                found = name
        return found

    def new_token(self, reviewer: str) -> str:
        """A new token in place of the reviewer's old one; a new reviewer if there is none of this name."""
        token = secrets.token_urlsafe(24)
        with self.locked():
            tokens = self._tokens() | {reviewer: _digest_token(token)}
            check_reviewers(list(tokens))
            self._write_tokens(tokens)
        return token

    def read_index(self) -> ReviewIndex:
        """The queue."""
        return self._read(_INDEX, unpack_index)

    def read_note(self, note: str) -> ReviewNote:
        """A note of the index. Raises ``KeyError`` for a name that no note can have."""
        return self._read(f"{_NOTES}/{_checked(note)}", unpack_note)

    def read_decisions(self, note: str) -> NoteDecisions:
        """The decisions about a note; empty ones if there are none."""
        name = f"{_DECISIONS}/{_checked(note)}"
        if os.path.lexists(self.path / name):
            return self._read(name, unpack_decisions)
        if not (self.path / _DECISIONS).is_dir():  # without this an incomplete backup is a folder of open notes
            raise ConfigurationError(f"review folder {self.path}: {_DECISIONS}/ is missing: restore it from a backup")
        return NoteDecisions()

    def write_index(self, index: ReviewIndex) -> None:
        """Replace the queue. The caller holds the lock, and has written the notes."""
        self._write(_INDEX, pack(index))

    def write_note(self, note: ReviewNote) -> None:
        """Write a note. The caller holds the lock."""
        self._write(f"{_NOTES}/{_checked(note.id)}", pack(note))

    def write_decisions(self, note: str, decisions: NoteDecisions) -> None:
        """Replace the decisions about a note. The caller holds the lock."""
        self._write(f"{_DECISIONS}/{_checked(note)}", pack(decisions))

    def check_names(self, index: ReviewIndex) -> None:
        """Remove the files that killed programs have left. The caller holds the lock.

        Raises ``ConfigurationError`` for a file that this program has not written, and for one that is missing.
        """
        known = {entry.note for entry in index.entries}
        for folder in (_NOTES, _DECISIONS):
            present = set[str]()
            for path in sorted((self.path / folder).iterdir()):
                if path.name.startswith("."):
                    if path.name.endswith(".part"):
                        path.unlink()  # of a killed writer: the lock shows that no living one has it
                    continue
                if _NOTE.fullmatch(path.name) is None or (path.name not in known and folder == _DECISIONS):
                    raise ConfigurationError(f"review folder {self.path}: {folder}/ has a foreign file: remove it")
                present.add(path.name)
            if folder == _NOTES:
                if known - present:
                    raise ConfigurationError(
                        f"review folder {self.path}: {len(known - present)} of {len(known)} notes are missing: restore "
                        "them from a backup"
                    )
                for name in present - known:
                    (self.path / folder / name).unlink()

    def _tokens(self) -> dict[str, str]:
        return self._read(_REVIEWERS, lambda data: _TOKENS.validate_json(data, strict=True))

    def _write_tokens(self, tokens: Mapping[str, str]) -> None:
        self._write(_REVIEWERS, orjson.dumps(tokens))

    def _read(self, name: str, unpack: Callable[[bytes], T]) -> T:
        try:
            return unpack(self.cipher.open(name, read_limited(self.path / name)))
        except FileNotFoundError:
            raise ConfigurationError(
                f"review folder {self.path}: {name} is missing: restore it from a backup"
            ) from None
        except ValueError:
            raise ConfigurationError(f"review folder {self.path}: {name} {_DAMAGED}") from None

    def _write(self, name: str, data: bytes) -> None:
        replace_durably(self.path / name, self.cipher.seal(name, fill_block(data)))


def check_new(path: Path, reviewers: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` if a folder with these reviewers cannot be made at a path."""
    check_reviewers(reviewers)
    if path.is_dir() and any(path.iterdir()):
        raise ConfigurationError(f"review folder {path}: has files: name a new folder")
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"review folder {path}: is a file: name a new folder")


def check_reviewers(names: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` if one of the names is not one of a reviewer, or comes twice."""
    if bad := [name for name in names if _NAME.fullmatch(name) is None]:
        raise ConfigurationError(
            f"{len(bad)} of the reviewers' names: use small letters, digits, dots, - and _; at most 32"
        )
    if not names or len(set(names)) < len(names) or len(names) > MOST_REVIEWERS:
        raise ConfigurationError(f"name from one to {MOST_REVIEWERS} reviewers, each once")


def _checked(note: str) -> str:
    if _NOTE.fullmatch(note) is None:
        raise KeyError("no note has such an id")
    return note


def _digest_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _read_head(path: Path) -> dict[str, str]:
    try:
        head = json.loads(read_limited(path / HEAD))
        if head["format"] != "deid-review" or type(head["version"]) is not int:
            raise ValueError
        if head["version"] != _VERSION:
            raise ConfigurationError(
                f"review folder {path}: has version {head['version']}, and this program reads {_VERSION}"
            )
        if not (_FOLDER_ID.fullmatch(head["folder"]) and _KEY_ID.fullmatch(head["key"])):
            raise ValueError
        return {"folder": head["folder"], "key": head["key"]}
    except OSError as problem:
        kind = "is none" if isinstance(problem, FileNotFoundError | NotADirectoryError) else "cannot be read"
        raise ConfigurationError(f"review folder {path}: {kind}; make one with: deid-agent review make") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(f"review folder {path}: {HEAD} {_DAMAGED}") from None

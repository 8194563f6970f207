"""Reads a feed: a folder or file of originals and one of outputs, under the same names.

A file is a note, a message, or JSON lines of notes. Nothing that the files have appears in an error, nor do their
names, which may be those of patients: an error counts, and names the place of the first one in the order of names.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final

import orjson

from deid_agent.evidence.messages import MessageFacts, read_message, split_batch
from deid_agent.evidence.pairs import ReplacedRange, TextPair, align_texts, join_ranges
from deid_agent.evidence.utility import DATE_PATTERN
from deid_agent.model import ConfigurationError, PhiType, Range, counted

_LINES = (".jsonl", ".ndjson")
_TYPES = frozenset(kind.value for kind in PhiType)
_IGNORED = "DEMO-KEY.txt"
_MOST_BYTES: Final = 256 << 20
_LEAST_LETTERS = 40
_LEAST_ALIKE = 0.3
_SURELY_OTHER = 0.15, 200
_FEW = 0.1
_RESOURCES = "lines of FHIR resources are not read yet: give each resource, or each bundle of a patient, a file"


@dataclass(frozen=True, slots=True)
class EvidenceFeed:
    """The pairs of a feed, its messages by patient, and counts of its files.

    ``output_digests`` are the SHA-256 of the output files. ``missing`` are originals without an output.
    """

    pairs: tuple[TextPair, ...] = field(repr=False)
    messages: tuple[tuple[str, MessageFacts, MessageFacts], ...] = field(repr=False)
    output_digests: tuple[str, ...] = field(repr=False)
    files: int
    missing: int
    unlike: int
    digest: str

    @property
    def patients(self) -> set[str]:
        """The patients of all texts and messages."""
        return {pair.patient for pair in self.pairs} | {patient for patient, _, _ in self.messages}

    @property
    def unchanged(self) -> int:
        """Texts in which nothing is replaced."""
        return sum(not pair.replaced for pair in self.pairs)

    def describe(self) -> dict[str, object]:
        """The counts for a report."""
        return {
            "files": self.files,
            "texts": len(self.pairs),
            "messages": len(self.messages),
            "patients": len(self.patients),
            "originals_without_output": self.missing,
            "texts_unlike_their_original": self.unlike,
            "texts_unchanged": self.unchanged,
            "digest": self.digest,
        }


def read_feed(originals: Path, outputs: Path, *, accept_missing: bool = False) -> EvidenceFeed:
    """The feed of two folders or two files.

    Raises ``ConfigurationError`` if a file is missing or cannot be read, or if outputs are not those of the originals.
    """
    before, after = _list(originals, "ORIGINALS"), _list(outputs, "OUTPUTS")
    if originals.resolve() == outputs.resolve():
        raise ConfigurationError("ORIGINALS and OUTPUTS are the same: name the folder of the outputs second")
    if originals.is_file() and outputs.is_file():
        before, after = {"": originals}, {"": outputs}
    if strange := sorted(set(after) - set(before)):
        raise ConfigurationError(
            f"{counted(len(strange), 'output')} of {len(after)} without an original of the same name: these are not "
            "the outputs of ORIGINALS"
        )
    missing = [name for name in before if name not in after]
    found = _Reading(accept_missing)
    digest = hashlib.sha256()
    digests = []
    for number, (name, path) in enumerate(before.items(), 1):
        if name not in after:
            continue
        old, new = _read(path, number), _read(after[name], number)
        digests.append(hashlib.sha256(new).hexdigest())
        digest.update(hashlib.sha256(old).digest() + bytes.fromhex(digests[-1]))
        found.add(name, number, old, new)
    found.missing += len(missing)
    if found.missing and not accept_missing:
        raise ConfigurationError(
            f"{counted(found.missing, 'original')} without an output: give --accept-missing if they were refused, so "
            "that the report counts them"
        )
    if not found.pairs and not found.messages:
        raise ConfigurationError("ORIGINALS and OUTPUTS have no text in common: nothing to report about")
    found.refuse_strangers()
    return EvidenceFeed(
        tuple(found.pairs),
        tuple(found.messages),
        tuple(digests),
        len(digests),
        found.missing,
        found.unlike,
        digest.hexdigest(),
    )


def _list(path: Path, what: str) -> dict[str, Path]:
    """The files below a folder by relative name, without hidden ones and links."""
    if path.is_file():
        return {path.name: path}
    if not path.is_dir():
        raise ConfigurationError(f"{what} {path}: no such file or folder")
    found = {}
    try:
        for each in sorted(path.rglob("*")):
            name = each.relative_to(path)
            if each.is_file() and not each.is_symlink() and not any(part.startswith(".") for part in name.parts):
                found[name.as_posix()] = each
    except OSError as problem:
        raise ConfigurationError(f"{what} {path}: cannot be read ({type(problem).__name__})") from None
    found.pop(_IGNORED, None)
    if not found:
        raise ConfigurationError(f"{what} {path}: has no file")
    return found


def _read(path: Path, number: int) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigurationError(f"file {number}: has more than {_MOST_BYTES:,} bytes: divide it")
        return path.read_bytes()
    except OSError as problem:
        raise ConfigurationError(f"file {number}: cannot be read ({type(problem).__name__})") from None


@dataclass(slots=True)
class _Reading:
    accept_missing: bool
    pairs: list[TextPair] = field(default_factory=list, repr=False)
    messages: list[tuple[str, MessageFacts, MessageFacts]] = field(default_factory=list, repr=False)
    notes: set[str] = field(default_factory=set, repr=False)
    missing: int = 0
    unlike: int = 0
    compared: int = 0
    others: int = 0

    def add(self, name: str, number: int, old: bytes, new: bytes) -> None:
        if name.endswith(_LINES) or (not name and _is_notes(old)):
            self._add_lines(number, old, new)
            return
        if (parts := split_batch(old)) is not None:
            outputs = split_batch(new) or [new]
            if len(outputs) != len(parts):
                raise ConfigurationError(f"file {number}: its output has another number of messages")
            for at, (one, other) in enumerate(zip(parts, outputs, strict=True), 1):
                self._add_file(f"{name}#{at}", number, one, other)
            return
        self._add_file(name, number, old, new)

    def _add_file(self, name: str, number: int, old: bytes, new: bytes) -> None:
        before, after = read_message(old), read_message(new)
        if before.is_message:
            if before.is_lines:
                raise ConfigurationError(f"file {number}: {_RESOURCES}")
            patient = next((each.id for each in before.people if each.id), name)
            self.messages.append((patient, before, after))
            if len(before.texts) != len(after.texts):
                before_texts, after_texts = ["\n".join(before.texts)], ["\n".join(after.texts)]
            else:
                before_texts, after_texts = list(before.texts), list(after.texts)
            for at, (one, other) in enumerate(zip(before_texts, after_texts, strict=True)):
                if one.strip():
                    self._add_text(f"{name}#{at}", patient, one, other)
            return
        try:
            one, other = old.decode("utf-8-sig"), new.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ConfigurationError(f"file {number}: is not UTF-8; convert it and its output first") from None
        folder, _, stem = name.rpartition("/")
        self._add_text(name, folder or stem.rpartition(".")[0] or stem, one, other)

    def _add_lines(self, number: int, old: bytes, new: bytes) -> None:
        if _has_resources(old):
            raise ConfigurationError(f"file {number}: {_RESOURCES}")
        before, after = dict(_lines(old, f"file {number} of ORIGINALS")), dict(_lines(new, f"file {number} of OUTPUTS"))
        if strange := len(after.keys() - before.keys()):
            raise ConfigurationError(f"file {number}: {counted(strange, 'line')} of OUTPUTS with an id of no original")
        for id_, line in before.items():
            if id_ not in after or "text" not in after[id_].texts:
                self.missing += 1
                continue
            patient, spans = line.text("patient_id") or id_, after[id_].spans
            self._add_text(id_, patient, line.text("text"), after[id_].text("text"), spans)

    def _add_text(self, note: str, patient: str, one: str, other: str, spans: Sequence["_Span"] = ()) -> None:
        aligned = align_texts(one, other)
        letters = sum(map(str.isalnum, one))
        if letters >= _LEAST_LETTERS:
            self.compared += 1
            self.unlike += aligned.unchanged < _LEAST_ALIKE
            self.others += aligned.unchanged < _SURELY_OTHER[0] and letters >= _SURELY_OTHER[1]
        if note in self.notes:  # two files of lines may have the same ids
            note = f"{len(self.pairs)}:{note}"
        self.notes.add(note)
        named = [replace(each, type=_type_of(each, spans)) for each in aligned.replaced]
        self.pairs.append(TextPair(note, patient, one, other, unite_ranges(named, one, other)))

    def refuse_strangers(self) -> None:
        """Raise ``ConfigurationError`` if the outputs are those of other texts."""
        if self.others or self.unlike > _FEW * self.compared:
            raise ConfigurationError(
                f"{counted(self.unlike, 'text')} of {self.compared} with an output that is another text: OUTPUTS are "
                "not the outputs of ORIGINALS"
            )


def unite_ranges(ranges: Sequence[ReplacedRange], original: str, output: str) -> tuple[ReplacedRange, ...]:
    """The ranges, each date as one, and the parts of other values joined. Two dates of a list stay two."""
    days = [found.span() for found in DATE_PATTERN.finditer(original)]
    ends = {end for _, end in days}
    wide = widen_ranges(ranges, days)
    return tuple(
        each
        for is_day, run in groupby(wide, lambda each: each.source_end in ends)
        for each in (run if is_day else join_ranges(run, output))
    )


def widen_ranges(ranges: Sequence[ReplacedRange], values: Iterable[Range]) -> tuple[ReplacedRange, ...]:
    """The ranges, those inside of one of ``values`` of the original united and extended to the whole value.

    A date of the same year is replaced as a whole, but comparing the texts shows only the day and the month.
    """
    found, at = list(ranges), 0
    for begin, end in values:
        while at < len(found) and found[at].source_end <= begin:
            at += 1
        last = at
        while last < len(found) and found[last].source_begin < end:
            last += 1
        if last > at:
            one, other = found[at], found[last - 1]
            left, right = max(0, one.source_begin - begin), max(0, end - other.source_end)
            kind = next((each.type for each in found[at:last] if each.type), "")
            found[at:last] = [
                ReplacedRange(
                    one.begin - left, other.end + right, one.source_begin - left, other.source_end + right, kind
                )
            ]
    return tuple(found)


_Span = tuple[int, int, str]
"""Begin, end and type of a range of an original, as the line of its output has it."""


def _type_of(each: ReplacedRange, spans: Sequence[_Span]) -> str:
    return next((kind for begin, end, kind in spans if begin < each.source_end and each.source_begin < end), "")


@dataclass(frozen=True, slots=True)
class _Line:
    texts: Mapping[str, str] = field(repr=False)
    spans: tuple[_Span, ...] = field(default=(), repr=False)

    def text(self, name: str) -> str:
        """A member; empty if it is missing."""
        return self.texts.get(name, "")


def _read_spans(found: object) -> tuple[_Span, ...]:
    """The well-formed spans of a line. They name types only: the ranges come from comparing the texts."""
    return tuple(
        (each["start"], each["end"], each["type"])
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, dict)
        and type(each.get("start")) is int
        and type(each.get("end")) is int
        and each.get("type") in _TYPES
    )


def _is_notes(data: bytes) -> bool:
    first = data.lstrip(b"\xef\xbb\xbf \r\n\t").split(b"\n", 1)[0].strip()
    return first.startswith(b"{") and first.endswith(b"}") and b'"text"' in first and b'"resourceType"' not in first


def _has_resources(data: bytes) -> bool:
    """Whether lines are FHIR resources: as notes each of them would count as one without an output."""
    return b'"resourceType"' in data.lstrip(b"\xef\xbb\xbf \r\n\t").split(b"\n", 1)[0]


def _lines(data: bytes, where: str) -> Iterator[tuple[str, _Line]]:
    """The notes of JSON lines by id. Raises ``ConfigurationError`` that names the line."""
    seen: set[str] = set()
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError:
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("id"), str):
            raise ConfigurationError(f'{where}: line {number}: is not a note with an "id"')
        if fields["id"] in seen:
            raise ConfigurationError(f"{where}: line {number}: an earlier line has the same id")
        seen.add(fields["id"])
        kept = {name: fields[name] for name in ("text", "patient_id") if isinstance(fields.get(name), str)}
        yield fields["id"], _Line(kept, _read_spans(fields.get("spans")))

"""The persons of a FHIR bulk export: which lines of all files say who a line is about, found by key.

A document of an export knows only ``Patient/p100``; the names are in another file. A first pass keeps the lines of
persons in a SQLite file, so that memory does not grow with their number. Keys are keyed digests and lines are sealed
under a key that is in memory only: the remains of the file after a kill cannot be read. Lines that refer to a
Binary are kept too, since a Binary does not name its patient.
"""

import hashlib
import json
import os
import re
import sqlite3
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
from nacl.secret import SecretBox

from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_links import LINK_TABLES, LinkCounts, find_joined, join_links, list_identifiers, list_links
from deid_agent.codec.fhir import FhirCodec
from deid_agent.model import Message, MessageError, PatientField, Reason
from deid_agent.pipeline import KnownMessages

PATIENT, PRACTITIONER, ROLE, RELATIVE, BINARY = "Patient", "Practitioner", "PractitionerRole", "RelatedPerson", "Binary"
BUNDLE, PERSON = "Bundle", "Person"
_PERSONS = frozenset({PATIENT, PRACTITIONER, ROLE, RELATIVE})
_KEPT = _PERSONS | {PERSON}
_TARGETS = (PATIENT, PRACTITIONER, ROLE, RELATIVE)
_MAY_MATTER = re.compile(rb'"(?:Patient|Person|Practitioner|PractitionerRole|RelatedPerson)"|Binary|\\u00')
_TYPES = re.compile(rb'"resourceType"\s*:\s*"(\w+)"')
_REFERENCE = re.compile(
    r"\s*(?:[^?#]*/)?(Patient|Practitioner|PractitionerRole|RelatedPerson|Binary)"
    # Ids of servers are not always those of FHIR: p_100, or longer than 64 signs.
    r"(?:/([^/?#]+)(?:/_history/[^?#]*)?/?(?:\?[^#]*)?|\?([^#]+))(?:#.*)?",
    re.DOTALL,
)
_URN = re.compile(r"\s*urn:uuid:(\S+)\s*", re.IGNORECASE)
_MOST_PERSONS = 64
"""Persons whose facts count for one line: a Group of a study refers to thousands, and a document to a few."""
_MOST_KEYS = 16 * _MOST_PERSONS
_MOST_VERSIONS = 32
_MOST_KEPT = 1_000
_NAME = ".identities-{}.unfinished"


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Where the file is, and the key that opens it. ``torn``: a line that may be a Patient could not be read."""

    path: Path = field(repr=False)
    secret: bytes = field(repr=False)
    torn: bool = False


class IdentityWriter:
    """Writes the file. Use it as a context manager: the file is removed at the end."""

    def __init__(self, folder: Path) -> None:
        for left in folder.glob(_NAME.format("*")):
            left.unlink()
        self._secret = os.urandom(SecretBox.KEY_SIZE)
        self._path = folder / _NAME.format(os.getpid())
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._store = sqlite3.connect(self._path, isolation_level=None)
        self._store.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; BEGIN;"
            "CREATE TABLE line (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, sealed BLOB, own BLOB, patient INTEGER);"
            f"{LINK_TABLES}"
            "CREATE TABLE alias (alias BLOB, line INTEGER, PRIMARY KEY (alias, line)) WITHOUT ROWID"
        )
        self._torn = False
        self._links = 0
        self.persons = 0
        self.links = LinkCounts()
        """Known after ``finish``."""
        self._digest = hashlib.blake2b(digest_size=16)

    def __enter__(self) -> "IdentityWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()
        self._path.unlink(missing_ok=True)

    def add(self, line: bytes) -> None:
        """Keep a line if it is a person or refers to a Binary."""
        if _MAY_MATTER.search(line) is None and b'"resourceType"' in line:
            return
        types = set(_TYPES.findall(line))
        try:
            tree = orjson.loads(line)
        except ValueError:
            # The rest of a torn line has no type.
            self._torn = self._torn or not types or b"Patient" in types
            return
        if not isinstance(tree, dict):
            self._torn = self._torn or b"Patient" in types
            return
        if b"Patient" in types and _has_two_heads(line):
            self._torn = True
        if _type(tree) in _KEPT:
            self._add_person(line, tree)
        elif _type(tree) != BINARY:
            if keys := [f"{BINARY}/{key}" for type_, key in list_references(tree) if type_ == BINARY]:
                self._insert(line, keys)
            entries = tree.get("entry") if _type(tree) == BUNDLE else None
            for entry in entries if isinstance(entries, list) else ():
                resource = entry.get("resource") if isinstance(entry, dict) else None
                if isinstance(resource, dict) and _type(resource) in _KEPT:
                    self._add_person(orjson.dumps(resource), resource)

    def _add_person(self, line: bytes, tree: Mapping[str, Any]) -> None:
        self.persons += _type(tree) != PERSON
        # Nothing can find a Patient without an id.
        self._torn = self._torn or (_type(tree) == PATIENT and not isinstance(tree.get("id"), str))
        if keys := list(_list_aliases(tree)):
            self._insert(line, keys, self._add_links(tree), patient=_type(tree) == PATIENT)

    def _add_links(self, tree: Mapping[str, Any]) -> bytes | None:
        """Keep the links of a Patient or a Person; return the digest of its id, if it is one that links may name."""
        if _type(tree) not in {PATIENT, PERSON} or not isinstance(tree.get("id"), str):
            return None
        source = self._hash_key(f"{_type(tree)}/{tree['id']}")
        for found in list_links(tree):
            self._links += 1
            # A number without a system may be that of several persons.
            keys = [key for type_, key in list_references(found) if type_ == PATIENT]
            targets = {f"{PATIENT}/{key}" for key in keys if not key.startswith(("?|", "?*|"))}
            rows = [(source, self._links, self._hash_key(each)) for each in targets]
            self._store.executemany("INSERT INTO link VALUES (?, ?, ?)", rows)
        return source

    def _hash_key(self, key: str) -> bytes:
        return _hash(self._secret, key.encode("utf-8", "surrogatepass"))

    def _insert(self, line: bytes, keys: Iterable[str], own: bytes | None = None, *, patient: bool = False) -> None:
        digest = _hash(self._secret, line)
        self._digest.update(len(line).to_bytes(8, "big") + line)
        sealed = SecretBox(self._secret).encrypt(zlib.compress(line, 1))
        row = (digest, bytes(sealed), own, patient)
        self._store.execute("INSERT OR IGNORE INTO line (digest, sealed, own, patient) VALUES (?, ?, ?, ?)", row)
        ((number,),) = self._store.execute("SELECT id FROM line WHERE digest = ?", (digest,))
        rows = [(self._hash_key(key), number) for key in keys]
        self._store.executemany("INSERT OR IGNORE INTO alias VALUES (?, ?)", rows)

    def finish(self) -> StoreKey:
        """Everything is in the file; workers may open it."""
        self.links = join_links(self._store)
        self._store.execute("COMMIT")
        return StoreKey(self._path, self._secret, self._torn)

    def digest(self, digests: Digests) -> str:
        """A keyed digest of all lines that were kept."""
        keyed = digests.start()
        keyed.update(self._digest.digest())
        return keyed.hexdigest()


class IdentityStore:
    """Finds the other lines of the export about a message; the ``FindKnown`` of a worker."""

    def __init__(self, key: StoreKey, codec: FhirCodec) -> None:
        self._key = key
        self._codec = codec
        place = f"{key.path.resolve().as_uri()}?mode=ro&immutable=1"
        # Whichever thread lets go of the last reference closes it.
        self._store = sqlite3.connect(place, uri=True, check_same_thread=False)
        weakref.finalize(self, self._store.close)
        self._box = SecretBox(key.secret)
        self._parsed: OrderedDict[int, tuple[Message, Mapping[str, Any]]] = OrderedDict()
        self.unknown_patient = False
        """True if the message that was last asked for refers to a Patient that the export does not have."""

    def find_known(self, message: Message) -> KnownMessages:
        """The persons of a message, patients first, then for a Binary the messages that refer to it.

        Raises ``MessageError`` if one of them cannot be read, or if the patient is unknown and may be one that could
        not be read.
        """
        tree = orjson.loads(message.raw.removeprefix(b"\xef\xbb\xbf"))
        own = f"{tree.get('resourceType')}/{tree.get('id')}"
        referring = self._find([self._hash_key(own)]) if tree.get("resourceType") == BINARY else {}
        trees = [tree, *(each for _, each in referring.values())]
        wanted = list(dict.fromkeys(f"{type_}/{key}" for each in trees for type_, key in list_references(each)))
        wanted = [own, *wanted] if tree.get("resourceType") in {PATIENT, PERSON} else wanted
        persons = self._find(map(self._hash_key, wanted))
        records = self._choose_records(message, tree, persons, referring)
        nodes = [self._hash_key(f"{PATIENT}/{each.get('id')}") for _, each in records.values()]
        nodes += [self._hash_key(own)] if tree.get("resourceType") == PERSON else []
        linked = self._find(dict.fromkeys(each for node in nodes for each in find_joined(self._store, node)))
        persons |= linked
        further = [f"{t}/{k}" for _, each in persons.values() if _type(each) == ROLE for t, k in list_references(each)]
        further += [f"of:{PATIENT}/{each.get('id')}" for _, each in persons.values() if _type(each) == PATIENT]
        persons |= self._find(map(self._hash_key, further))
        rank = {PATIENT: 0, PERSON: 0, RELATIVE: 1}
        # The order is that of content, not of files, so that an export in another order gives the same output.
        ordered = sorted(persons.values(), key=lambda each: (rank.get(_type(each[1]), 2), each[0].raw))
        known = [*ordered, *sorted(referring.values(), key=lambda each: each[0].raw)]
        messages = tuple(each for each, _ in known if each.raw != message.raw)
        return KnownMessages(messages, list_identifiers((records | linked).values()))

    def _choose_records(
        self, message: Message, tree: Mapping[str, Any], persons: "_Lines", referring: "_Lines"
    ) -> "_Lines":
        """All lines of the patient; none if the export has no such Patient."""
        named = {each.value for each in message.patients if each.field is PatientField.LOGICAL}
        for document, _ in referring.values() if not named else ():
            named |= {each.value for each in document.patients if each.field is PatientField.LOGICAL}
        patients = {number: each for number, each in persons.items() if _type(each[1]) == PATIENT}
        own = {number: each for number, each in patients.items() if each[1].get("id") in named}
        if not own and not named and len({found.get("id") for _, found in patients.values()}) == 1:
            own = patients
        self.unknown_patient = not own and bool(named) and _type(tree) != PATIENT
        if self.unknown_patient and self._key.torn:
            raise MessageError(Reason.MALFORMED, "identities", "the patient is unknown, and a Patient cannot be read")
        return own

    def _hash_key(self, key: str) -> bytes:
        return _hash(self._key.secret, key.encode("utf-8", "surrogatepass"))

    def _find(self, digests: Iterable[bytes]) -> "_Lines":
        found: _Lines = {}
        known = 0
        for digest in islice(digests, _MOST_KEYS):
            rows = self._store.execute("SELECT line FROM alias WHERE alias = ? LIMIT ?", (digest, _MOST_VERSIONS + 1))
            numbers = [number for (number,) in rows]
            if len(numbers) > _MOST_VERSIONS:
                raise MessageError(Reason.RESOURCE, "identities", f"more than {_MOST_VERSIONS} lines of one person")
            known += any(number not in found for number in numbers)
            found |= {number: self._read(number) for number in numbers if number not in found}
            if known == _MOST_PERSONS:
                break
        return found

    def _read(self, number: int) -> tuple[Message, Mapping[str, Any]]:
        known = self._parsed.get(number)
        if known is None:
            ((sealed,),) = self._store.execute("SELECT sealed FROM line WHERE id = ?", (number,))
            line = zlib.decompress(self._box.decrypt(sealed))
            try:
                (message,) = self._codec.parse(line)
            except MessageError as problem:
                raise MessageError(problem.reason, "identities", "the line of a person cannot be read") from None
            known = self._parsed[number] = message, orjson.loads(line)
            if len(self._parsed) > _MOST_KEPT:
                self._parsed.popitem(last=False)
        else:
            self._parsed.move_to_end(number)
        return known


_Lines = dict[int, tuple[Message, Mapping[str, Any]]]
"""Kept lines by their numbers: parsed, and as trees."""


def _hash(secret: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=secret, digest_size=16).digest()


def _type(tree: Mapping[str, Any]) -> str:
    return str(tree.get("resourceType"))


def _has_two_heads(line: bytes) -> bool:
    """True if a line has its id or its type twice: readers differ about the one that counts."""
    names: list[str] = []

    def keep(members: list[tuple[str, Any]]) -> None:
        names[:] = [name for name, _ in members]

    try:
        json.loads(line, object_pairs_hook=keep)  # the outermost object is the last
    except (ValueError, RecursionError):
        return True
    return any(names.count(name) > 1 for name in ("id", "resourceType"))


def _list_aliases(tree: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a person: its id, its identifiers, and for a relative the patient."""
    type_ = _type(tree)
    if isinstance(tree.get("id"), str):
        yield from {f"{type_}/{tree['id']}", f"{type_}/{tree['id'].lower()}"}
    identifiers = tree.get("identifier")
    for each in identifiers if isinstance(identifiers, list) else ():
        if isinstance(each, dict) and isinstance(each.get("value"), str):
            yield from (f"{type_}/?{each.get('system') or ''}|{each['value']}", f"{type_}/?*|{each['value']}")
    if type_ == RELATIVE:
        yield from (f"of:{PATIENT}/{key}" for target, key in list_references(tree) if target == PATIENT)


def list_references(tree: object) -> Iterator[tuple[str, str]]:
    """The type and the key of each reference to a person or a Binary, in the order of the message.

    The key of a search (``Patient?identifier=system|value``) and of a reference by identifier is ``?system|value``, or
    ``?*|value`` without a system. A URN, and an identifier without a type, may be those of a person of any type.
    """
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += reversed(node)
        elif isinstance(node, dict):
            for name in ("reference", "url"):
                if isinstance(address := node.get(name), str):
                    yield from _read_reference(address)
            if "resourceType" not in node and isinstance(given := node.get("identifier"), dict):
                types = [node["type"]] if node.get("type") in _PERSONS else _TARGETS
                keys = _number_keys(str(given.get("system") or ""), str(given.get("value")))
                yield from ((type_, key) for key in keys for type_ in types)
            stack += [each for each in reversed(node.values()) if isinstance(each, (dict, list))]


def _read_reference(address: str) -> Iterator[tuple[str, str]]:
    if found := _REFERENCE.fullmatch(address):
        type_, key, query = found.groups()
        if key is not None:
            yield from ((type_, each) for each in dict.fromkeys((key.strip(), unquote(key).strip())))
        else:
            yield from ((type_, each) for each in _read_query(query))
    elif urn := _URN.fullmatch(address):
        yield from ((type_, key) for key in dict.fromkeys((urn[1], urn[1].lower())) for type_ in _TARGETS)


def _read_query(query: str) -> Iterator[str]:
    """The keys of a search by ``_id`` or ``identifier``, which may have several values."""
    for part in query.split("&"):
        name, _, values = part.partition("=")
        for value in unquote(values).split(","):
            system, _, number = value.strip().rpartition("|")
            match unquote(name):
                case "_id":
                    yield value.strip()
                case "identifier":
                    yield from _number_keys(system, number)
                case "identifier:of-type":
                    yield from _number_keys("", number)


def _number_keys(system: str, number: str) -> Iterator[str]:
    """The keys of a number. Without a system it is that of any; a person may have it without one."""
    yield from (f"?{system}|{number}", f"?|{number}") if system else (f"?*|{number}",)

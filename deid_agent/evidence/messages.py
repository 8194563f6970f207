"""Texts, laboratory results and data of patients in messages, read by a small reader that is not the codecs'.

It reads HL7 v2 with the separators of MSH and FHIR in JSON, and only the members that the report counts. A payload of
another form has no results: the report counts texts of it alone.
"""

import base64
import binascii
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from deid_agent.evidence.utility import ItemCounts

_NUMERIC = {"NM", "SN"}
_CODED = {"CE", "CWE", "CNE", "CF"}
_TEXTS = {"TX", "FT", "ST"}
_MESSAGE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?[\x0b \t]*|(?<=[\r\n\x0b]))MSH(?=[^\w\s])")
_TRAILER = re.compile(rb"(?<=[\r\n])[BF][TH]S(?=[^\w\s]|[\r\n]|\Z)")
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """A patient as a message describes them. Empty members are not in the message."""

    id: str = field(default="", repr=False)
    sex: str = field(default="", repr=False)
    birth: str = field(default="", repr=False)
    postal_codes: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """The results of a message by their place; its patients and its texts in order."""

    results: Mapping[str, str] = field(default_factory=dict, repr=False)
    people: tuple[PersonFacts, ...] = field(default=(), repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)
    is_message: bool = True
    is_lines: bool = False


def split_batch(payload: bytes) -> list[bytes] | None:
    """The messages of an HL7 v2 file that has several, or an envelope (FHS, BHS); None of any other payload."""
    first = payload.lstrip(b"\xef\xbb\xbf\x0b \r\n\t")[:3]
    starts = [found.start() for found in _MESSAGE.finditer(payload)] if first in {b"MSH", b"FHS", b"BHS"} else []
    if not starts or (first == b"MSH" and len(starts) == 1):
        return None
    return [_TRAILER.split(payload[begin:end], 1)[0] for begin, end in pairwise([*starts, len(payload)])]


def read_message(payload: bytes) -> MessageFacts:
    """The facts of a payload; empty if it is no message."""
    text = payload.decode("utf-8", "replace").lstrip("\ufeff\x0b \r\n\t")
    if text.startswith("MSH") and len(text) > 8:
        return _read_hl7(text)
    if text.startswith("{") and '"resourceType"' in text:
        return _read_fhir(text)
    return MessageFacts(is_message=False)


def compare_results(before: MessageFacts, after: MessageFacts, counts: ItemCounts) -> None:
    """Count the results of one message: preserved if the output has the same at the same place."""
    same = sum(after.results.get(place) == value for place, value in before.results.items())
    counts.originals += len(before.results)
    counts.preserved += same
    counts.added += len(after.results.keys() - before.results.keys())


def _read_hl7(text: str) -> MessageFacts:
    results, people, texts = dict[str, str](), list[PersonFacts](), list[str]()
    separator, parts, repeats = "|", "^", "~"
    place = 0
    for line in re.split(r"[\r\n]+", text):
        if line.startswith("MSH") and len(line) > 5:
            separator, parts, repeats = line[3], line[4], line[5]
        fields = line.split(separator)
        fields += [""] * (20 - len(fields))
        if fields[0] == "PID":
            people.append(_read_pid(fields, parts, repeats))
        elif fields[0] == "OBX":
            place += 1
            if fields[5] and fields[2] in _NUMERIC:
                results[f"OBX/{place}"] = separator.join(fields[5:8])
            elif fields[5] and fields[2] in _CODED:
                coded = [*fields[5].split(parts), "", ""][:3]
                results[f"OBX/{place}"] = f"{coded[0]}{parts}{coded[2]}"
            elif fields[2] in _TEXTS:
                texts.append(_unescape(fields[5], repeats))
        elif fields[0] == "NTE":
            texts.append(_unescape(fields[3], repeats))
    return MessageFacts(results, tuple(people), tuple(texts))


def _unescape(value: str, repeats: str) -> str:
    return re.sub(r"\\\.br\\", "\n", value.replace(repeats, "\n"))


def _read_pid(fields: list[str], parts: str, repeats: str) -> PersonFacts:
    identifier = fields[3].split(repeats)[0].split(parts)
    codes = (each.split(parts)[4] for each in fields[11].split(repeats) if each.count(parts) >= 4)
    return PersonFacts(identifier[0], _sex(fields[8]), fields[7][:8], tuple(code for code in codes if code))


def _sex(value: str) -> str:
    return {"f": "female", "m": "male"}.get(value.strip().lower()[:1], "other" if value.strip() else "")


def _read_fhir(text: str) -> MessageFacts:
    results, people, texts = dict[str, str](), list[PersonFacts](), list[str]()
    lines = text.splitlines() if _is_lines(text) else [text]
    for line in lines:
        try:
            found: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        for path, node in _walk(found, ""):
            quantity = node.get("valueQuantity")
            if isinstance(quantity, dict) and "value" in quantity:
                members = {name: quantity.get(name) for name in ("value", "comparator", "unit", "code")}
                results[f"{len(results)}{path}"] = orjson.dumps(members, option=orjson.OPT_SORT_KEYS).decode()
            if node.get("resourceType") == "Patient":
                people.append(_read_patient(node))
            texts += _texts_of(path, node)
    return MessageFacts(results, tuple(people), tuple(texts), is_lines=sum(bool(line.strip()) for line in lines) > 1)


def _texts_of(path: str, node: Mapping[str, object]) -> Iterator[str]:
    """The texts of an object: its narrative, a string as a result, a note, an attachment of plain text."""
    members = [node.get("div"), node.get("valueString"), node.get("text") if ".note" in path else None]
    yield from (html.unescape(_TAG.sub(" ", value)) for value in members if isinstance(value, str))
    data = node.get("data")
    if isinstance(data, str) and str(node.get("contentType")).startswith("text/plain"):
        try:
            yield base64.b64decode(data, validate=True).decode("utf-8", "replace")
        except binascii.Error:
            return


def _is_lines(text: str) -> bool:
    first = text.split("\n", 1)[0].strip()
    return first.startswith("{") and first.endswith("}")


def _walk(root: object, path: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The objects of a resource with their paths. A stack, because a hostile resource is deep."""
    stack: list[tuple[str, object]] = [(path, root)]
    while stack:
        here, node = stack.pop()
        if isinstance(node, dict):
            yield here, node
            stack += [(f"{here}.{name}", child) for name, child in node.items() if isinstance(child, dict | list)]
        elif isinstance(node, list):
            stack += [(f"{here}[{at}]", child) for at, child in enumerate(node)]


def _read_patient(node: Mapping[str, object]) -> PersonFacts:
    identifiers, addresses = node.get("identifier"), node.get("address")
    named = [each for each in identifiers if isinstance(each, dict)] if isinstance(identifiers, list) else []
    homes = [each for each in addresses if isinstance(each, dict)] if isinstance(addresses, list) else []
    value = next((each["value"] for each in named if isinstance(each.get("value"), str)), node.get("id"))
    birth = re.sub(r"\D", "", str(node.get("birthDate") or ""))
    codes = tuple(str(each["postalCode"]) for each in homes if each.get("postalCode"))
    return PersonFacts(str(value or ""), _sex(str(node.get("gender") or "")), birth, codes)

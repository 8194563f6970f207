"""What differs between every real message and its output, found without the codecs: only what a remark names.

HL7: both are divided at the declared separators here; segments, fields and repetitions must be as many, components
too where nothing in the field was replaced. FHIR: both are read as JSON with their order; structure, keys and order
must be the same. Bytes outside of differing leaves are then compared one by one.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

import pytest
from support.shared import shared

from deid_agent import key, policy
from deid_agent.deidentify import Deidentified, Deidentifier
from deid_agent.errors import MessageError
from deid_agent.sites import Remark
from deid_agent.wiring import Workshop

RULES = Path(__file__).resolve().parents[2] / "rules"
HEADER = re.compile(r"(?:MSH|FHS|BHS)([!-/:-@\[-`{-~])([!-/:-@\[-`{-~]{1,5})")
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][-+0-9.eE]*')
JOINED = {"OBX-5", "NTE-3", "DSP-3", "TXA-25"}
NUMBERED = re.compile(r"\(\d+\)|\[\d+\]")


@lru_cache(maxsize=1)
def deidentifier() -> Deidentifier:
    return Workshop(rules=RULES, key=key.DEMO, policy=policy.load("pseudonymised", RULES)).deidentifier()


@cache
def outputs(folder: str) -> list[tuple[str, bytes, Deidentified]]:
    """Every file of the folder that is published, with its output."""
    found = []
    for path in sorted(p for p in shared("messages", folder).rglob("*") if p.is_file()):
        raw = path.read_bytes()
        with suppress(MessageError):
            found.append((path.name, raw, deidentifier().message(raw)))
    return found


def lines(raw: bytes) -> list[str]:
    text = raw.decode("latin-1")
    return re.split(r"(\r\n?|\n)", text) if "\r" in text else re.split(r"(\n)", text)


def differing_fields(raw: bytes, out: bytes) -> Iterator[str]:
    """Paths ``SEG-n`` of fields that differ; raises where the structure does. Lines without a name are ``line``."""
    before, after = lines(raw), lines(out)
    assert len(before) == len(after), "segments"
    marks, seen = ("|", "^~\\&"), Counter[str]()
    for old, new in zip(before, after, strict=True):
        if found := HEADER.search(old[:40]):
            marks = (found[1], found[2])
            if seen["MSH"]:  # a message of its own; a batch header goes with the one behind it
                seen.clear()
        one, two = old.split(marks[0]), new.split(marks[0])
        assert len(one) == len(two), "fields"
        name = one[0].strip("\x0b\x1c\x00 \t\ufeff").removeprefix("\xef\xbb\xbf")
        shift = 1 if found else 0
        seen[name.upper()] += 1
        for number, (left, right) in enumerate(zip(one, two, strict=True)):
            if left == right:
                continue
            assert left and right.strip(marks[1][0]) != left
            if len(marks[1]) > 1:
                assert left.count(marks[1][1]) == right.count(marks[1][1]), "repetitions"
            assert left.count(marks[1][0]) == right.count(marks[1][0]), "components"
            nth = f"({seen[name.upper()]})" if seen[name.upper()] > 1 else ""
            yield f"{name.upper()}{nth}-{number + shift}" if re.fullmatch(r"\w{3}", name) and number else "line"


@pytest.mark.parametrize("folder", ["hl7", "hl7-odd", "hl7-batch"])
def test_hl7_differs_where_a_remark_says_so(folder: str) -> None:
    count = 0
    for name, raw, done in outputs(folder):
        said = {re.sub(r"\[\d+\].*|[./].*", "", remark.path) for remark in done.remarks}
        joined = {NUMBERED.sub("", path) for path in said}
        for path in differing_fields(raw, done.payload):
            plain = NUMBERED.sub("", path)
            # Text over many segments or broken lines has the path of its first.
            goes_on = plain in joined if plain in JOINED else plain == "line" and bool(joined)
            assert path in said or goes_on, (name, path)
        count += 1
    assert count


Leaf = tuple[str, object]


def leaves(node: object, path: str) -> Iterator[Leaf]:
    """Every scalar with its path and every name; order is part of it."""
    if isinstance(node, Members):
        for position, (key_, value) in enumerate(node):
            yield f"{path}.?{position}", key_
            yield from leaves(value, f"{path}.{key_}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, f"{path}[{index}]")
    else:
        yield path, node


class Members(list[tuple[str, object]]):
    """An object as its members in their order."""


def trees(raw: bytes) -> list[object]:
    text = raw.decode("utf-8-sig")
    try:
        return [json.loads(text, object_pairs_hook=Members, parse_float=str, parse_int=int)]
    except json.JSONDecodeError:
        return [
            json.loads(line, object_pairs_hook=Members, parse_float=str) for line in text.splitlines() if line.strip()
        ]


def same_bytes_between(raw: bytes, out: bytes) -> bool:
    """White space, punctuation, and every string or number that says the same as before: byte for byte."""
    if TOKEN.sub(b"#", raw) != TOKEN.sub(b"#", out):
        return False
    pairs = zip(TOKEN.findall(raw), TOKEN.findall(out), strict=True)
    return all(one == two or json.loads(one) != json.loads(two) for one, two in pairs)


def kind(value: object) -> str:
    return "number" if isinstance(value, int | str) and not isinstance(value, bool) else type(value).__name__


def said_at(remarks: tuple[Remark, ...]) -> set[str]:
    """Paths of the remarks; what was changed inside of an attachment or of markup counts for the value around it."""
    return {remark.path.partition("/")[0] for remark in remarks}


def follows(path: str, said: set[str]) -> bool:
    """Size, hash and media type follow the data of their attachment."""
    owner, _, name = path.rpartition(".")
    return name in {"size", "hash", "contentType"} and not said.isdisjoint({f"{owner}.data", f"{owner}.content"})


def test_fhir_differs_where_a_remark_says_so() -> None:
    count = 0
    for name, raw, done in outputs("fhir"):
        said = said_at(done.remarks)
        before, after = trees(raw), trees(done.payload)
        assert len(before) == len(after), name
        for one, two in zip(before, after, strict=True):
            root = next(str(value) for key_, value in one if key_ == "resourceType") if isinstance(one, Members) else ""
            old, new = list(leaves(one, root)), list(leaves(two, root))
            assert len(old) == len(new), name
            for (where, left), (_, right) in zip(old, new, strict=True):
                if left != right:
                    unknown = f"{where.rpartition('.')[0]}.?" in said
                    assert where in said or follows(where, said) or unknown, (name, where)
                    assert kind(left) == kind(right), (name, where)
        assert same_bytes_between(raw, done.payload), name
        count += 1
    assert count


def test_every_remark_names_path_type_method_and_source() -> None:
    for folder in ("hl7", "hl7-odd", "hl7-batch", "fhir"):
        for name, _, done in outputs(folder):
            for remark in done.remarks:
                assert remark.path and remark.type and remark.method and remark.source and remark.count > 0, name

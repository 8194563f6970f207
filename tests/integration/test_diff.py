"""What differs between every real message and its output, found without the codecs: only what a remark names.

HL7: both are divided at the declared separators here; segments, fields and repetitions must be as many, components
too where nothing in the field was replaced. FHIR: both are read as JSON with their order; structure, keys and order
must be the same. C-CDA: both are read by expat; elements, their attributes and the places of comments must be the
same. Bytes outside of differing leaves are then compared one by one.
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
from support.xml_leaves import Element, elements
from support.xml_leaves import leaves as xml_leaves

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


BLOCKS = frozenset({"text", "title", "desc", "originalText", "derivationExpr"})
"""Elements of C-CDA whose whole content is one text: a remark names them, not the cell of the table."""
COMPRESSED = "nonXMLBody_Example_with_Compressed_Content"
"""Its data are removed, and with them the attribute that says how they were compressed."""
MARKUP = re.compile(rb"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|(?<==)\s*(?:"[^"<]*"|'[^'<]*')|(?<=>)[^<]+""", re.DOTALL)


def names_it(where: str, element: Element, said: set[str]) -> bool:
    """Whether a remark names a differing leaf of ``element``: itself, the block around it, or a document inside."""
    leaf = where[len(element.path) + 1 :]
    path = f"{element.path}/comment()" if leaf.startswith("comment") else element.path
    path = f"{element.path}/{leaf}" if leaf.startswith("@") else path
    if path in said or any(alike(path, each) for each in said if "?" in each):
        return True
    steps = element.path.split("/")
    around = ["/".join(steps[: n + 1]) for n, step in enumerate(steps) if NUMBERED.sub("", step) in BLOCKS]
    if any(block in said or f"{block}/{leaf}" in said for block in around):
        return True
    inside = "mediaType" in element.attributes or "representation" in element.attributes
    return inside and any(each.startswith(f"{element.path}/") for each in said)


def alike(path: str, said: str) -> bool:
    """True where the paths differ in names that the table of elements does not have."""
    one, two = path.split("/"), said.split("/")
    unknown = {"?", "@?"}
    return len(one) == len(two) and all(a == b or NUMBERED.sub("", b) in unknown for a, b in zip(one, two, strict=True))


def test_ccda_differs_where_a_remark_says_so() -> None:
    count = changed = 0
    for name, raw, done in outputs("ccda"):
        said = {remark.path for remark in done.remarks}
        before, after = elements(raw), elements(done.payload)
        if COMPRESSED in name:
            before[-1].attributes.pop("compression")
        shapes = [
            [(each.path, [*each.attributes], len(each.texts), len(each.asides)) for each in found]
            for found in (before, after)
        ]
        assert shapes[0] == shapes[1], name
        for old, new in zip(before, after, strict=True):
            for (where, left), (_, right) in zip(xml_leaves(old), xml_leaves(new), strict=True):
                if left != right:
                    changed += 1
                    assert names_it(where, old, said), (name, where)
        if COMPRESSED not in name:
            assert MARKUP.sub(b"#", raw) == MARKUP.sub(b"#", done.payload), name
        count += 1
    assert count > 200
    assert changed > 1000


def test_a_change_without_a_remark_would_be_found() -> None:
    raw = b"<a><name>Ada</name><x><text>b<i k='1'>c</i></text></x><!--d--></a>"
    root, name, _, text, inner = elements(raw)[1:]
    assert names_it("a/name/text(0)", name, {"a/name"})
    assert names_it("a/x/text/i/text(0)", inner, {"a/x/text"})
    assert names_it("a/x/text/i/@k", inner, {"a/x/text/@k"})
    assert names_it("a/comment(0)", root, {"a/comment()"})
    assert names_it("a/name/text(0)", name, {"a/?"})
    for said in ("a", "a/x", "a/name[2]", "a/name/@k"):
        assert not names_it("a/name/text(0)", name, {said})
    assert not names_it("a/x/text/text(0)", text, {"a/x"})


def test_every_remark_names_path_type_method_and_source() -> None:
    for folder in ("hl7", "hl7-odd", "hl7-batch", "fhir", "ccda"):
        for name, _, done in outputs(folder):
            for remark in done.remarks:
                assert remark.path and remark.type and remark.method and remark.source and remark.count > 0, name

"""Each difference between a real message and its output is named by a remark. The codecs are not used to find them.

HL7: input and output are split at the declared separators; they must have the same number of segments, fields,
repetitions and components. FHIR: both are read as ordered JSON; structure, keys and order must be equal. C-CDA: both
are read by expat; elements, attributes and the positions of comments must be equal. The bytes outside the differing
leaves are then compared one by one.
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
from support.xml_leaves import Element, elements, iter_leaves

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Remark
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = Path(__file__).resolve().parents[3] / "rules"
HEADER = re.compile(r"(?:MSH|FHS|BHS)([!-/:-@\[-`{-~])([!-/:-@\[-`{-~]{1,5})")
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][-+0-9.eE]*')
JOINED = {"OBX-5", "NTE-3", "DSP-3", "TXA-25"}
NUMBERED = re.compile(r"\(\d+\)|\[\d+\]")


@lru_cache(maxsize=1)
def deidentifier() -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES)).deidentifier()


@cache
def outputs(folder: str) -> list[tuple[str, bytes, Deidentified]]:
    """Every file of the folder that is not refused, with its output."""
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
    """Paths ``SEG-n`` of fields that differ; ``line`` for lines without a name. Raises if the structure differs."""
    before, after = lines(raw), lines(out)
    assert len(before) == len(after), "segments"
    marks, seen = ("|", "^~\\&"), Counter[str]()
    for old, new in zip(before, after, strict=True):
        if found := HEADER.search(old[:40]):
            marks = (found[1], found[2])
            if seen["MSH"]:  # a new message; a batch header belongs to the message after it
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
def test_hl7_differs_only_at_remarks(folder: str) -> None:
    count = 0
    for name, raw, done in outputs(folder):
        named = {re.sub(r"\[\d+\].*|[./].*", "", remark.path) for remark in done.remarks}
        joined = {NUMBERED.sub("", path) for path in named}
        for path in differing_fields(raw, done.payload):
            plain = NUMBERED.sub("", path)
            # A text over many segments or broken lines has the path of its first fragment.
            continues = plain in joined if plain in JOINED else plain == "line" and bool(joined)
            assert path in named or continues, (name, path)
        count += 1
    assert count


Leaf = tuple[str, object]


def json_leaves(node: object, path: str) -> Iterator[Leaf]:
    """Every scalar and every name with its path, in order."""
    if isinstance(node, Members):
        for position, (key_, value) in enumerate(node):
            yield f"{path}.?{position}", key_
            yield from json_leaves(value, f"{path}.{key_}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from json_leaves(value, f"{path}[{index}]")
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
    """True if white space, punctuation, and all strings and numbers of equal value have the same bytes."""
    if TOKEN.sub(b"#", raw) != TOKEN.sub(b"#", out):
        return False
    pairs = zip(TOKEN.findall(raw), TOKEN.findall(out), strict=True)
    return all(one == two or json.loads(one) != json.loads(two) for one, two in pairs)


def kind(value: object) -> str:
    return "number" if isinstance(value, int | str) and not isinstance(value, bool) else type(value).__name__


def remark_paths(remarks: tuple[Remark, ...]) -> set[str]:
    """Paths of the remarks; a remark inside an attachment or markup has the path of the value that contains it."""
    return {remark.path.partition("/")[0] for remark in remarks}


def follows_attachment(path: str, named: set[str]) -> bool:
    """True for the size, hash and media type of an attachment whose data has a remark."""
    owner, _, name = path.rpartition(".")
    return name in {"size", "hash", "contentType"} and not named.isdisjoint({f"{owner}.data", f"{owner}.content"})


def test_fhir_differs_only_at_remarks() -> None:
    count = 0
    for name, raw, done in outputs("fhir"):
        named = remark_paths(done.remarks)
        before, after = trees(raw), trees(done.payload)
        assert len(before) == len(after), name
        for one, two in zip(before, after, strict=True):
            root = next(str(value) for key_, value in one if key_ == "resourceType") if isinstance(one, Members) else ""
            old, new = list(json_leaves(one, root)), list(json_leaves(two, root))
            assert len(old) == len(new), name
            for (leaf_path, left), (_, right) in zip(old, new, strict=True):
                if left != right:
                    unknown = f"{leaf_path.rpartition('.')[0]}.?" in named
                    assert leaf_path in named or follows_attachment(leaf_path, named) or unknown, (name, leaf_path)
                    assert kind(left) == kind(right), (name, leaf_path)
        assert same_bytes_between(raw, done.payload), name
        count += 1
    assert count


BLOCKS = frozenset({"text", "title", "desc", "originalText", "derivationExpr"})
"""Elements of C-CDA whose whole content is one text: a remark names the element and not the cell of a table."""
COMPRESSED = "nonXMLBody_Example_with_Compressed_Content"
"""Its data are removed, together with the attribute that names their compression."""
MARKUP = re.compile(rb"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|(?<==)\s*(?:"[^"<]*"|'[^'<]*')|(?<=>)[^<]+""", re.DOTALL)


def is_named(leaf_path: str, element: Element, named: set[str]) -> bool:
    """True if a remark names a differing leaf of ``element``, the block around it, or a document inside it."""
    leaf = leaf_path[len(element.path) + 1 :]
    path = f"{element.path}/comment()" if leaf.startswith("comment") else element.path
    path = f"{element.path}/{leaf}" if leaf.startswith("@") else path
    if path in named or any(alike(path, each) for each in named if "?" in each):
        return True
    steps = element.path.split("/")
    around = ["/".join(steps[: n + 1]) for n, step in enumerate(steps) if NUMBERED.sub("", step) in BLOCKS]
    if any(block in named or f"{block}/{leaf}" in named for block in around):
        return True
    inside = "mediaType" in element.attributes or "representation" in element.attributes
    return inside and any(each.startswith(f"{element.path}/") for each in named)


def alike(path: str, remark: str) -> bool:
    """True if the paths differ only in names that the table of elements does not have."""
    one, two = path.split("/"), remark.split("/")
    unknown = {"?", "@?"}
    return len(one) == len(two) and all(a == b or NUMBERED.sub("", b) in unknown for a, b in zip(one, two, strict=True))


def test_ccda_differs_only_at_remarks() -> None:
    count = changed = 0
    for name, raw, done in outputs("ccda"):
        named = {remark.path for remark in done.remarks}
        before, after = elements(raw), elements(done.payload)
        if COMPRESSED in name:
            before[-1].attributes.pop("compression")
        shapes = [
            [(each.path, [*each.attributes], len(each.texts), len(each.asides)) for each in found]
            for found in (before, after)
        ]
        assert shapes[0] == shapes[1], name
        for old, new in zip(before, after, strict=True):
            for (leaf_path, left), (_, right) in zip(iter_leaves(old), iter_leaves(new), strict=True):
                if left != right:
                    changed += 1
                    assert is_named(leaf_path, old, named), (name, leaf_path)
        if COMPRESSED not in name:
            assert MARKUP.sub(b"#", raw) == MARKUP.sub(b"#", done.payload), name
        count += 1
    assert count > 200
    assert changed > 1000


def test_a_change_without_a_remark_would_be_found() -> None:
    raw = b"<a><name>Ada</name><x><text>b<i k='1'>c</i></text></x><!--d--></a>"
    root, name, _, text, inner = elements(raw)[1:]
    assert is_named("a/name/text(0)", name, {"a/name"})
    assert is_named("a/x/text/i/text(0)", inner, {"a/x/text"})
    assert is_named("a/x/text/i/@k", inner, {"a/x/text/@k"})
    assert is_named("a/comment(0)", root, {"a/comment()"})
    assert is_named("a/name/text(0)", name, {"a/?"})
    for other in ("a", "a/x", "a/name[2]", "a/name/@k"):
        assert not is_named("a/name/text(0)", name, {other})
    assert not is_named("a/x/text/text(0)", text, {"a/x"})


def test_every_remark_names_path_type_method_and_source() -> None:
    for folder in ("hl7", "hl7-odd", "hl7-batch", "fhir", "ccda"):
        for name, _, done in outputs(folder):
            for remark in done.remarks:
                assert remark.path and remark.type and remark.method and remark.source and remark.count > 0, name

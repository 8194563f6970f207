"""Documents for the fuzz run, the words for their mutations, and the checks of each execution."""

import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from xml.parsers import expat

from support.attachments import RULES, attachment_of, keeper, reference
from support.edits import apply
from support.markup import blanked, overwritten, ranges, shape

from deid_agent.app import WorkerFactory
from deid_agent.codec.base import Codec
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit, Message, Narrative, ValueKind, decode_base64
from deid_agent.model.spans import Replacement
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import compile_policy

CALLS = (3_000, 60)
"""The maximum of function calls of one ``parse``: a constant plus a number per byte."""

_FILE = Path(__file__).resolve().parents[1] / "cases" / "fuzz.toml"
_CASES: dict[str, dict[str, list[str]]] = tomllib.loads(_FILE.read_text("utf-8"))


def seeds(name: str) -> list[bytes]:
    """The seed documents of a format."""
    return [text.encode("latin-1" if name == "rtf" else "utf-8") for text in _CASES[name]["seeds"]]


def words(name: str) -> list[bytes]:
    """Pieces of a format that mutations insert."""
    return [text.encode("latin-1" if name == "rtf" else "utf-8") for text in _CASES[name]["words"]]


_GAP = re.compile(r"(?<=>)[^<>]*(?=<)")
_VALUE = re.compile(r"""(?<==")[^"<>]*(?=")|(?<==')[^'<>]*(?=')""")
_LEAF = re.compile(r"<([\w:]+)(?:\s[^<>]*)?(?<!/)>(?:[^<>]|<[\w:]+[^<>]*/>)*</\1>")
_CHARSETS = ("utf-8", "utf-8", "utf-8", "utf-16", "iso-8859-1", "shift_jis", "windows-1252", "utf-8-sig")


def mutate_cda(chance: random.Random) -> bytes:
    """A C-CDA seed with one to six texts, values, names or positions changed; mostly well-formed."""
    cases = _CASES["cda"]
    text = chance.choice(cases["seeds"])
    for _ in range(chance.randint(1, 6)):
        pattern = chance.choice((_GAP, _VALUE, _VALUE, _LEAF))
        spans = [found.span() for found in pattern.finditer(text)]
        start, end = chance.choice(spans) if spans else (0, 0)
        old = text[start:end]
        if pattern is _GAP:
            new = chance.choice(cases["texts"]) + (old if chance.random() < 0.5 else "")
        elif pattern is _VALUE:
            new = chance.choice(cases["values"])
        else:
            new = _element(chance, old, text)
        text = text[:start] + new + text[end:]
    charset = chance.choice(_CHARSETS)
    text = re.sub(r"<\?xml[^>]*\?>", "", text, count=1)
    if not charset.startswith("utf-8"):
        text = f'<?xml version="1.0" encoding="{charset}"?>{text}'
    return text.encode(charset, "xmlcharrefreplace")


def _element(chance: random.Random, old: str, text: str) -> str:
    """A replacement of an element: nothing, two copies, another one, or itself in a new one or with an attribute."""
    cases = _CASES["cda"]
    name, attribute = chance.choice(cases["names"]), chance.choice(cases["attributes"])
    match chance.randrange(6):
        case 0:
            return ""
        case 1:
            return old + old
        case 2:
            found = re.search(rf"<{re.escape(name)}(?:\s[^<>]*)?>.*?</{re.escape(name)}>", text, re.DOTALL)
            return found[0] if found else old
        case 3:
            return f"<{name} {attribute}='9'>{old}</{name}>"
        case 4:
            return old.replace(">", f" {attribute}='{chance.choice(cases['values'])}'>", 1)
        case _:
            return f"<text>{old}</text>"


def check_document(codec: Codec, raw: bytes) -> str:
    """Check one execution: ranges are disjoint and inside, and a replacement anywhere gives a document."""
    try:
        messages = codec.parse(raw)
    except MessageError as problem:
        return problem.reason
    if b"".join(message.raw for message in messages) != raw:
        raise AssertionError("bytes were lost")
    for message in messages:
        at = 0
        for start, end in sorted(ranges(message)):
            if not at <= start < end <= len(raw):
                raise AssertionError("ranges are not disjoint or not inside")
            at = end
        if apply(raw, []) != raw:
            raise AssertionError("bytes changed without an edit")
        before = _shape(codec, raw)
        plain = _written(message, "Xy")
        for other in (plain, overwritten(message, "a<b>]&\"'{\\}\n-é😀"), blanked(message)):
            codec.parse(other)
            if before is not None and shape(other) != before:
                raise AssertionError("elements were added or removed")
        paths = {narrative.path for narrative in message.narratives}
        for narrative in codec.parse(plain)[0].narratives:
            if codec.name == "rtf" and narrative.path not in paths:
                continue  # a word that begins its group after the text before it is removed
            if re.search(r"[^\W_Xy]", narrative.mapped.text):
                raise AssertionError(f"text remains at {narrative.path}")
    _check_leaves(codec.parse_leaves(raw), raw)
    return "parsed"


def _written(message: Message, new: str) -> bytes:
    """As ``overwritten``, but redacted values become their blanks."""
    edits = [
        Edit(s.start, s.end, message.encode(s.blank if s.kind is ValueKind.REDACT else new)) for s in message.sites
    ]
    for narrative in message.narratives:
        whole = [Replacement(0, len(narrative.mapped.text), new)]
        edits += [Edit(a, b, message.encode(text)) for a, b, text in narrative.mapped.place(whole)]
    return apply(message.raw, edits)


def _shape(codec: Codec, raw: bytes) -> Counter[str] | None:
    """The elements of a C-CDA document; None for others and for a charset that expat does not know."""
    try:
        return shape(raw) if codec.name == "cda" else None
    except (expat.ExpatError, ValueError):
        return None


def _check_leaves(leaves: Sequence[Narrative], raw: bytes) -> None:
    taken: list[tuple[int, int]] = []
    for leaf in leaves:
        spans = enumerate(zip(leaf.mapped.starts, leaf.mapped.ends, strict=True))
        taken += dict.fromkeys(span for i, span in spans if i not in leaf.mapped.separators)
    if any(a[1] > b[0] for a, b in pairwise(sorted(taken))):
        raise AssertionError("two leaves share a byte")
    if [leaf.mapped.starts[0] for leaf in leaves] != sorted(leaf.mapped.starts[0] for leaf in leaves):
        raise AssertionError("leaves are not in order")
    if sum(len(leaf.mapped.text) for leaf in leaves) > 2 * len(raw):
        raise AssertionError("leaves are longer than the document")


def check_work(codec: Codec, raw: bytes) -> float:
    """The function calls of one ``parse`` and ``parse_leaves`` as a share of the limit. Raises past the limit."""
    calls = 0

    def tick(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(tick)
    try:
        codec.parse(raw)
        codec.parse_leaves(raw)
    except MessageError:
        pass
    finally:
        sys.setprofile(None)
    share = calls / (CALLS[0] + CALLS[1] * len(raw))
    if share > 1:
        raise AssertionError(f"{calls} calls for {len(raw)} bytes")
    return share


@lru_cache(maxsize=2)
def pipeline(default: str) -> Deidentifier:
    """Replaces everything, or almost nothing: a policy of ``keep`` alone would not read the payload twice."""
    types = {} if default == "surrogate" else {"VEHICLE": "redact"}
    compiled = compile_policy({"name": "fuzz", "default": default, "types": types}, "fuzz")
    return WorkerFactory(RULES, SecretKey(b"k" * 32, demo=True), compiled).deidentifier()


def check_pipeline(codec: Codec, raw: bytes, media: str) -> str:
    """Check the whole pipeline: without changes the output is the input, and a changed document can be read again."""
    payload = raw if not media else reference(raw, media)
    try:
        if keeper().message(payload).payload != payload:
            raise AssertionError("the policy keep changed bytes")
    except MessageError as problem:
        return f"pipeline {problem.reason}"
    for default in ("keep", "surrogate"):
        try:
            done = pipeline(default).message(payload)
        except MessageError as problem:
            return f"pipeline {problem.reason}"
        if not done.remarks and done.payload != payload:
            raise AssertionError(f"bytes changed without a remark ({default})")
        out = done.payload
        if media:
            found = attachment_of(out)
            if found.get("contentType") != media:
                continue
            out, _ = decode_base64(str(found["data"]))
        codec.parse(out)
    return "pipeline done"

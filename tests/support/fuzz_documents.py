"""Made documents for the fuzz run, the words they are mutated with, and what must hold of every one."""

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

from deid_agent.armor import read as decoded
from deid_agent.codec.base import Codec
from deid_agent.deidentify import Deidentifier
from deid_agent.errors import MessageError
from deid_agent.key import Key
from deid_agent.policy import compile_policy
from deid_agent.sites import Edit, Kind, Message, Narrative
from deid_agent.spans import Replacement
from deid_agent.wiring import Workshop

CALLS = (3_000, 60)
"""Calls of functions that one ``parse`` may make: so many, and so many for each byte."""

_FILE = Path(__file__).resolve().parents[1] / "cases" / "fuzz.toml"
_CASES: dict[str, dict[str, list[str]]] = tomllib.loads(_FILE.read_text("utf-8"))


def seeds(name: str) -> list[bytes]:
    """The made documents of a format."""
    return [text.encode("latin-1" if name == "rtf" else "utf-8") for text in _CASES[name]["seeds"]]


def words(name: str) -> list[bytes]:
    """Pieces of a format that mutations put in."""
    return [text.encode("latin-1" if name == "rtf" else "utf-8") for text in _CASES[name]["words"]]


_GAP = re.compile(r"(?<=>)[^<>]*(?=<)")
_VALUE = re.compile(r"""(?<==")[^"<>]*(?=")|(?<==')[^'<>]*(?=')""")
_LEAF = re.compile(r"<([\w:]+)(?:\s[^<>]*)?(?<!/)>(?:[^<>]|<[\w:]+[^<>]*/>)*</\1>")
_CHARSETS = ("utf-8", "utf-8", "utf-8", "utf-16", "iso-8859-1", "shift_jis", "windows-1252", "utf-8-sig")


def bent_document(chance: random.Random) -> bytes:
    """A C-CDA seed with one to six texts, values, names or places changed: well-formed still, or nearly so."""
    cases = _CASES["cda"]
    text = chance.choice(cases["seeds"])
    for _ in range(chance.randint(1, 6)):
        pattern = chance.choice((_GAP, _VALUE, _VALUE, _LEAF))
        places = [found.span() for found in pattern.finditer(text)]
        start, end = chance.choice(places) if places else (0, 0)
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
    """Something for an element: nothing, itself twice, another one, or itself in a new one or with an attribute."""
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
    """One execution: places are disjoint and inside, what is written anywhere leaves a document."""
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
                raise AssertionError("places are not disjoint or not inside")
            at = end
        if apply(raw, []) != raw:
            raise AssertionError("bytes changed by themselves")
        before = _shape(codec, raw)
        plain = _written(message, "Xy")
        for other in (plain, overwritten(message, "a<b>]&\"'{\\}\n-é😀"), blanked(message)):
            codec.parse(other)
            if before is not None and shape(other) != before:
                raise AssertionError("elements came or went")
        paths = {narrative.path for narrative in message.narratives}
        for narrative in codec.parse(plain)[0].narratives:
            if codec.name == "rtf" and narrative.path not in paths:
                continue  # a word that begins its group once what stood before it is removed
            if re.search(r"[^\W_Xy]", narrative.mapped.text):
                raise AssertionError(f"text stayed at {narrative.path}")
    _check_leaves(codec.leaves(raw), raw)
    return "parsed"


def _written(message: Message, new: str) -> bytes:
    """As ``overwritten``, but what is redacted becomes blank."""
    edits = [Edit(s.start, s.end, message.encode(s.blank if s.kind is Kind.REDACT else new)) for s in message.sites]
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
    places: list[tuple[int, int]] = []
    for leaf in leaves:
        every = enumerate(zip(leaf.mapped.starts, leaf.mapped.ends, strict=True))
        places += dict.fromkeys(place for i, place in every if i not in leaf.mapped.joints)
    if any(a[1] > b[0] for a, b in pairwise(sorted(places))):
        raise AssertionError("two leaves share a byte")
    if [leaf.mapped.starts[0] for leaf in leaves] != sorted(leaf.mapped.starts[0] for leaf in leaves):
        raise AssertionError("leaves are not in order")
    if sum(len(leaf.mapped.text) for leaf in leaves) > 2 * len(raw):
        raise AssertionError("leaves hold more than the document")


def check_work(codec: Codec, raw: bytes) -> float:
    """The calls of one ``parse`` and ``leaves`` as a share of what they may be; raises where that is more."""
    calls = 0

    def tick(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(tick)
    try:
        codec.parse(raw)
        codec.leaves(raw)
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
    """Everything replaced, or (nearly) nothing: a policy of ``keep`` alone would not read the payload twice."""
    types = {} if default == "surrogate" else {"VEHICLE": "redact"}
    compiled = compile_policy({"name": "fuzz", "default": default, "types": types}, "fuzz")
    return Workshop(RULES, Key(b"k" * 32, demo=True), compiled).deidentifier()


def check_pipeline(codec: Codec, raw: bytes, media: str) -> str:
    """The whole way: nothing to change gives the input, a changed document can be read again."""
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
            out, _ = decoded(str(found["data"]))
        codec.parse(out)
    return "pipeline done"

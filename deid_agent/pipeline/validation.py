"""Optional check with hl7apy and fhir.resources: an output is never less valid than its input.

The libraries serve as schemas only; nothing that they build is published. They take seconds to import and up to
hundreds of milliseconds for a message, so they are loaded on request only. They have no schema for XML, which is only
checked to be well-formed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Protocol, cast
from xml.parsers import expat

import orjson

from deid_agent.codec import read_root
from deid_agent.model import MessageError, Reason
from deid_agent.pipeline.policy import strip_numbers

Problem = str
"""``path: kind``. Paths and kinds come from the standards, never from a value or an unknown name."""

_RELEASES = ("R4B", "R5", "STU3")
_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(r"(?:MSH|FHS|BHS)([!-/:-@\[-`{-~])([!-/:-@\[-`{-~]{0,5})")
_NAME = re.compile(r"[A-Z][A-Z0-9]{2}")
_VERSION = re.compile(r"2(?:\.\d){1,2}")
_NEWEST = "2.8.2"
_FREE = frozenset({"ST", "TX", "FT", "varies", ""})  # separators in text are common and are text
_UNKNOWN, _WORST = "resourceType: unknown", 1_000_000
_NULL = '""'


class _Model(Protocol):
    def model_validate(self, obj: object) -> object: ...


class Validator:
    """Both libraries, loaded. Keeps no part of any message."""

    def __init__(self) -> None:
        import fhir.resources  # noqa: F401, PLC0415 - seconds; see the head of this module
        import hl7apy.parser  # noqa: F401, PLC0415

    def check(self, before: bytes, after: bytes, *, moved: bool = False) -> None:
        """Raises ``MessageError(INTERNAL)`` with the first path that is valid in ``before`` and not in ``after``.

        With ``moved`` items of lists were left out: paths are compared without their numbers.
        """
        if new := self.added(before, after, moved=moved):
            where, _, kind = new[0].partition(": ")
            more = f" and {len(new) - 1} more" if len(new) > 1 else ""
            raise MessageError(Reason.INTERNAL, where, f"less valid than it came ({kind}){more}")

    def added(self, before: bytes, after: bytes, *, moved: bool = False) -> tuple[Problem, ...]:
        """The problems of ``after`` at paths without one in ``before``, sorted; by one release of FHIR for both."""
        release = self._release(before)

        def path(problem: Problem) -> str:
            found = problem.partition(": ")[0]
            return strip_numbers(found) if moved else found

        known = {path(problem) for problem in self.problems(before, release)}
        return tuple(sorted(p for p in self.problems(after, release) if path(p) not in known))

    def problems(self, payload: bytes, release: str = "") -> frozenset[Problem]:
        """All problems, without values. FHIR is checked by ``release``, by default the release that fits best."""
        text = payload.removeprefix(_BOM).lstrip()
        if text.startswith(b"{"):
            return frozenset(_fhir_payload(text, release or self._release(payload)))
        if read_root(payload) is not None:
            return frozenset(_xml_payload(payload))
        return frozenset(_hl7_payload(payload))

    def _release(self, payload: bytes) -> str:
        """The release of FHIR with the fewest problems; the first one without any."""
        text = payload.removeprefix(_BOM).lstrip()
        if not text.startswith(b"{"):
            return ""
        best, fewest = _RELEASES[0], -1
        for release in _RELEASES:
            found = set(_fhir_payload(text, release))
            # A release that does not know the type reports only that one problem, so it counts as the worst.
            count = len(found) + sum(_WORST for problem in found if _UNKNOWN in problem)
            if fewest < 0 or count < fewest:
                best, fewest = release, count
            if not count:
                break
        return best


def _xml_payload(payload: bytes) -> Iterator[Problem]:
    """A problem if XML is not well-formed. Neither library has a schema for it."""
    try:
        expat.ParserCreate().Parse(payload, True)
    except expat.ExpatError:
        yield "xml: not well-formed"


# FHIR -----------------------------------------------------------------------------


def _fhir_payload(text: bytes, release: str) -> Iterator[Problem]:
    trees: list[object]
    try:
        trees = [orjson.loads(text)]
    except orjson.JSONDecodeError:
        try:
            trees = [orjson.loads(line) for line in text.splitlines() if line.strip()]
        except orjson.JSONDecodeError:
            yield "json: not JSON"
            return
    for number, tree in enumerate(trees):
        prefix = f"line[{number}]." if len(trees) > 1 else ""
        for problem in _fhir(tree, release):
            yield prefix + problem


def _fhir(tree: object, release: str) -> Iterator[Problem]:
    from pydantic_core import ValidationError  # noqa: PLC0415

    name = tree.get("resourceType") if isinstance(tree, dict) else None
    model = _model(str(name), release)
    if model is None:
        yield f"{_UNKNOWN} in {release}"
        return
    try:
        model.model_validate(tree)
    except ValidationError as found:
        for error in found.errors(include_input=False, include_url=False, include_context=False):
            yield f"{_location(error['loc'], error['type'])}: {error['type']}"
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        yield f"{name}: {type(problem).__name__}"


def _model(name: str, release: str) -> _Model | None:
    if release == "R5":
        from fhir.resources import get_fhir_model_class  # noqa: PLC0415
    elif release == "STU3":
        from fhir.resources.STU3 import get_fhir_model_class  # noqa: PLC0415
    else:
        from fhir.resources.R4B import get_fhir_model_class  # noqa: PLC0415
    try:
        return cast(_Model, get_fhir_model_class(name))
    except (LookupError, ImportError, AttributeError, ValueError):
        return None


def _location(parts: tuple[int | str, ...], kind: str) -> str:
    """A path. The name of an unknown member is left out, because it may hold anything."""
    out = ""
    for index, part in enumerate(parts):
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            unknown = kind == "extra_forbidden" and index + 1 == len(parts)
            out += ("." if out else "") + ("?" if unknown else part)
    return out or "resource"


# HL7 v2 ---------------------------------------------------------------------------


def _hl7_payload(payload: bytes) -> Iterator[Problem]:
    try:
        text = payload.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = payload.decode("latin-1")
    text = text.lstrip("\x0b\x1c\x00 \t\r\n")
    lines = re.split(r"\r\n?" if "\r" in text else r"\n", text)
    check: _Segments | None = None
    seen: dict[str, int] = {}
    for line in lines:
        if header := _HEADER.match(line):
            check = _Segments(line, header)
        name = line[:3]
        if check is None or not _NAME.fullmatch(name):
            continue
        seen[name] = seen.get(name, 0) + 1
        path = name if seen[name] == 1 else f"{name}({seen[name]})"
        yield from check.segment(name, path, line)
    yield from _whole(text)


def _whole(text: str) -> Iterator[Problem]:
    """The problem that hl7apy reports for the whole message: groups, required segments, values."""
    from hl7apy.consts import VALIDATION_LEVEL  # noqa: PLC0415
    from hl7apy.exceptions import HL7apyException  # noqa: PLC0415
    from hl7apy.parser import parse_message  # noqa: PLC0415
    from hl7apy.validation import Validator as Strict  # noqa: PLC0415

    try:
        parsed = parse_message("\r".join(text.splitlines()), validation_level=VALIDATION_LEVEL.TOLERANT)
    except (HL7apyException, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield "message: hl7apy cannot read it"
        return
    try:
        Strict.validate(parsed)
    except (HL7apyException, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        yield f"message: {type(problem).__name__}"


class _Segments:
    """Checks segments under one header, with its separators and the tables of its version or the nearest one."""

    def __init__(self, line: str, header: re.Match[str]) -> None:
        self._field, marks = header[1], header[2]
        self._component, self._repetition, _, self._subcomponent = (*marks[:4], *[""] * 4)[:4]
        fields = line.split(self._field)
        self._version = _nearest(fields[11] if len(fields) > 11 else "")

    def segment(self, name: str, path: str, line: str) -> Iterator[Problem]:
        fields = line.split(self._field)
        if name in {"MSH", "FHS", "BHS"}:
            fields.insert(1, self._field)
        for number, (_, rule, (least, most), *_) in _fields(name, self._version).items():
            value = fields[number] if number < len(fields) else ""
            where = f"{path}-{number}"
            if not value or (name in {"MSH", "FHS", "BHS"} and number <= 2):
                if least and not value:
                    yield f"{where}: required"
                continue
            repetitions = value.split(self._repetition) if self._repetition else [value]
            if -1 < most < len(repetitions):
                yield f"{where}: repetitions"
            kind, parts = rule[2], rule[1]
            if kind == "varies" and name == "OBX":
                kind = fields[2].strip() if len(fields) > 2 else ""
                parts = _components(kind, self._version)
            for index, repetition in enumerate(repetitions, start=1):
                yield from self._value(f"{where}[{index}]", kind, parts, repetition, self._component)
                if -1 < rule[5] < len(repetition):
                    yield f"{where}[{index}]: length"

    def _value(self, where: str, kind: str, parts: "_Parts | None", value: str, mark: str) -> Iterator[Problem]:
        if not value or value == _NULL:
            return
        if not parts or not isinstance(parts[0], tuple):
            if kind not in _FREE and mark and mark in value:
                yield f"{where}: parts"
            elif (problem := self._leaf(kind, value)) is not None:
                yield f"{where}: {problem}"
            return
        below = self._subcomponent if mark == self._component else ""
        for number, part in enumerate(value.split(mark) if mark else [value]):
            if number < len(parts):
                rule = parts[number][1]
                yield from self._value(f"{where}.{number + 1}", rule[2], rule[1], part, below)
                if -1 < rule[5] < len(part):
                    yield f"{where}.{number + 1}: length"

    def _leaf(self, kind: str, value: str) -> str | None:
        from hl7apy.consts import VALIDATION_LEVEL  # noqa: PLC0415
        from hl7apy.exceptions import HL7apyException, InvalidDataType  # noqa: PLC0415
        from hl7apy.factories import datatype_factory  # noqa: PLC0415

        try:
            datatype_factory(kind, value, self._version, VALIDATION_LEVEL.STRICT)
        except InvalidDataType:
            return None
        except (HL7apyException, ValueError, TypeError, LookupError, AttributeError) as problem:
            return f"{kind} {type(problem).__name__}" if kind.isalnum() else type(problem).__name__
        return None


_Rule = tuple[str, "_Parts | None", str, str, str | None, int]
_Parts = tuple[tuple[str, _Rule, tuple[int, int], str], ...]
"""hl7apy's references: (sequence or leaf, parts, datatype, name, table, longest or -1)."""


def _fields(segment: str, version: str) -> Mapping[int, tuple[str, _Rule, tuple[int, int], str]]:
    """The fields of a segment by number, without withdrawn ones. Empty for an unknown segment."""
    rule = cast("_Rule | None", _reference(segment, "Segment", version))
    fields = (rule[1] if rule and rule[1:] else None) or ()
    # Some entries of the tables are incomplete (ORO in 2.1).
    whole = (field for field in fields if len(field) == 4 and isinstance(field[2], tuple))
    return {int(field[0].rpartition("_")[2]): field for field in whole}


def _components(datatype: str, version: str) -> _Parts | None:
    return cast("_Parts | None", _reference(datatype, "Datatypes_Structs", version))


def _reference(name: str, kind: str, version: str) -> object:
    from hl7apy import load_reference  # noqa: PLC0415
    from hl7apy.exceptions import HL7apyException  # noqa: PLC0415

    try:
        return cast(object, load_reference(name, kind, version))
    except (HL7apyException, LookupError, TypeError, AttributeError):
        return None


def _nearest(text: str) -> str:
    """The version of MSH-12 if hl7apy has it, 2.7 for 2.7.1, else the newest."""
    from hl7apy import SUPPORTED_LIBRARIES  # noqa: PLC0415

    known = cast(Mapping[str, str], SUPPORTED_LIBRARIES)
    found = _VERSION.match(text.strip())
    version = found[0] if found else ""
    while version and version not in known:
        version = version.rpartition(".")[0]
    return version or _NEWEST

"""Which method applies to which type at which path; read from one TOML file and compiled.

A policy is data: ``default`` method, ``types`` (PHI type to method), ``paths``
(path to method; the longest path that matches wins over the type; ``*.id`` is every place whose last part is
``id`` and that no longer path names), and what happens to dates, attachments, record keys and headers.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from deid_agent.errors import ConfigurationError
from deid_agent.phi import CATEGORY, PhiCategory, PhiType

_Choice = TypeVar("_Choice", bound=StrEnum)


class Method(StrEnum):
    """What becomes of PHI.

    LINK is for identifiers alone (other types at such a path go by their type): a fresh code, the same for the
    same identifier within one record and different in every other record. In text it is the mask.
    """

    SURROGATE = "surrogate"
    LINK = "link"
    REDACT = "redact"
    MASK = "mask"
    GENERALIZE = "generalize"
    KEEP = "keep"


class DateScope(StrEnum):
    """Within what intervals between dates are exact."""

    DOCUMENT = "document"
    PATIENT = "patient"


class NameScope(StrEnum):
    """Within what names, places and phones of patients agree."""

    FEED = "feed"
    PATIENT = "patient"


class Unreadable(StrEnum):
    """What becomes of an attachment that cannot be read (scans, images, encrypted files)."""

    REMOVE = "remove"
    REFUSE = "refuse"


class Pdf(StrEnum):
    """What becomes of a PDF with a text layer; one without is unreadable. TEXT: its text, as plain text."""

    TEXT = "text"
    REMOVE = "remove"
    REFUSE = "refuse"


class AttachmentUrl(StrEnum):
    """What becomes of the address of an attachment that lies elsewhere; a reference to a resource is an id anyway."""

    KEEP = "keep"
    REDACT = "redact"


class KeyMode(StrEnum):
    """What a record key is.

    IDENTIFIER maps the whole key as one identifier, a pure function of the key
    alone, so that order per key and compaction survive. TEXT replaces the PHI
    found inside it (file names). DROP publishes without a key.
    """

    IDENTIFIER = "identifier"
    TEXT = "text"
    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Policy:
    """A compiled policy; ``digest`` (SHA-256, hex) names its content in the audit."""

    name: str
    digest: str
    default: Method
    types: Mapping[PhiType, Method] = field(default_factory=dict)
    paths: Mapping[str, Method] = field(default_factory=dict)
    date_scope: DateScope = DateScope.DOCUMENT
    name_scope: NameScope = NameScope.FEED
    whole_weeks: bool = False
    max_shift_days: int = 365
    unreadable: Unreadable = Unreadable.REMOVE
    pdf: Pdf = Pdf.TEXT
    attachment_url: AttachmentUrl = AttachmentUrl.REDACT
    record_key: KeyMode = KeyMode.IDENTIFIER
    headers: frozenset[str] = frozenset()

    def method(self, type_: PhiType, path: str) -> Method:
        """The method for a value of ``type_`` at ``path``: longest path rule, then type, then default."""
        found = self._at(plain_path(path)) if self.paths else None
        if found is None or (found is Method.LINK and CATEGORY[type_] is not PhiCategory.ID):
            return self.types.get(type_, self.default)
        return found

    def _at(self, path: str) -> Method | None:
        last = f"*{path[path.rfind('.') :]}" if "." in path else ""
        while path:
            if path in self.paths:
                return self.paths[path]
            path = path[: max(path.rfind("."), path.rfind("-"), 0)]
        return self.paths.get(last)

    def with_key(self, mode: KeyMode) -> "Policy":
        """The same policy for records whose keys are of another kind (file names)."""
        return replace(self, record_key=mode)

    @property
    def changes_nothing(self) -> bool:
        """True for a policy that keeps everything: parsing and writing alone."""
        methods = {self.default, *self.types.values(), *self.paths.values()}
        return methods == {Method.KEEP}


@lru_cache(maxsize=4096)
def plain_path(path: str) -> str:
    """``path`` without repetition and occurrence numbers: ``OBX(2)-5[1].1`` gives ``OBX-5.1``."""
    return re.sub(r"\[\d+\]|\(\d+\)", "", path)


_SECTIONS = {
    "": {"name", "why", "default"},
    "dates": {"scope", "whole_weeks", "max_shift_days"},
    "names": {"scope"},
    "attachments": {"unreadable", "pdf", "url"},
    "record": {"key", "headers"},
}


def load(name_or_file: str, rules: Path) -> Policy:
    """The shipped profile of that name, else the policy file at that path.

    Raises ``ConfigurationError`` naming the file and the key.
    """
    shipped = rules / "policies" / f"{name_or_file}.toml"
    path = shipped if shipped.is_file() else Path(name_or_file)
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in (rules / "policies").glob("*.toml")))
        raise ConfigurationError(f"policy {name_or_file!r}: no such profile or file; shipped profiles: {names}")
    try:
        return compile_policy(tomllib.loads(path.read_text("utf-8")), str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path}: not TOML: {problem}") from None


def compile_policy(data: Mapping[str, object], origin: str) -> Policy:
    """A policy from parsed TOML; every key and value is checked.

    Raises ``ConfigurationError`` naming ``origin`` and the key.
    """
    sections = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    top = {key: value for key, value in data.items() if key not in sections}
    allowed_sections = set(_SECTIONS) - {""} | {"types", "paths"}
    for unknown in sorted(set(sections) - allowed_sections) + sorted(set(top) - _SECTIONS[""]):
        raise ConfigurationError(f"{origin}: unknown key {unknown!r}")
    for name, keys in _SECTIONS.items():
        for unknown in sorted(set(sections.get(name, {})) - keys):
            raise ConfigurationError(f"{origin}: unknown key '{name}.{unknown}'")
    if "name" not in top or "default" not in top:
        raise ConfigurationError(f"{origin}: 'name' and 'default' are required")
    dates, record = sections.get("dates", {}), sections.get("record", {})
    files = sections.get("attachments", {})
    digest = hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()
    types = {
        _choice(PhiType, key, f"{origin}: types"): _choice(Method, value, f"{origin}: types.{key}")
        for key, value in sections.get("types", {}).items()
    }
    return Policy(
        name=str(top["name"]),
        digest=digest,
        default=_choice(Method, top["default"], f"{origin}: default"),
        types=types,
        paths={
            plain_path(key): _choice(Method, value, f"{origin}: paths.{key}")
            for key, value in sections.get("paths", {}).items()
        },
        date_scope=_choice(DateScope, dates.get("scope", "document"), f"{origin}: dates.scope"),
        name_scope=_choice(NameScope, sections.get("names", {}).get("scope", "feed"), f"{origin}: names.scope"),
        whole_weeks=_flag(dates.get("whole_weeks", False), f"{origin}: dates.whole_weeks"),
        max_shift_days=_days(dates.get("max_shift_days", 365), f"{origin}: dates.max_shift_days"),
        unreadable=_choice(Unreadable, files.get("unreadable", "remove"), f"{origin}: attachments.unreadable"),
        pdf=_choice(Pdf, files.get("pdf", "text"), f"{origin}: attachments.pdf"),
        attachment_url=_choice(AttachmentUrl, files.get("url", "redact"), f"{origin}: attachments.url"),
        record_key=_choice(KeyMode, record.get("key", "identifier"), f"{origin}: record.key"),
        headers=_names(record.get("headers", []), f"{origin}: record.headers"),
    )


def _choice(kind: type[_Choice], value: object, where: str) -> _Choice:
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigurationError(f"{where}: {value!r} is not one of {', '.join(kind)}") from None


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{where}: must be true or false")
    return value


def _days(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 14 <= value <= 3650:
        raise ConfigurationError(f"{where}: must be a whole number of days from 14 to 3650")
    return value


def _names(value: object, where: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigurationError(f"{where}: must be a list of header names")
    return frozenset(item.lower() for item in value)

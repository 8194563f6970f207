"""Surrogates for tests: one key, a scope, and the case tables."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import Scope, Surrogates

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ROOT / "tests" / "cases"
SECRET = b"a secret that is used in tests alone"
SCOPE = Scope(document="D1", patient="P1")
NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})


def surrogates() -> Surrogates:
    return Surrogates(SECRET)


def replace(made: Surrogates, type_: PhiType, value: str, kind: ValueKind | None = None, scope: Scope = SCOPE) -> str:
    """As the de-identifier calls it: names have the kind name, everything else the kind value."""
    default = ValueKind.NAME if type_ in NAMES else ValueKind.VALUE
    return made.replace(type_, value, kind=kind or default, scope=scope)


def groups(name: str = "surrogates.toml") -> Iterator[dict[str, object]]:
    found = tomllib.loads((CASES / name).read_text(encoding="utf-8"))["group"]
    yield from found


def cases() -> list[tuple[PhiType, ValueKind | None, str, str, bool]]:
    """Type, kind, original, expression that the surrogate must match ("" for the same form), whether it may be kept."""
    out: list[tuple[PhiType, ValueKind | None, str, str, bool]] = []
    for group in groups():
        type_ = PhiType(str(group["type"]))
        kind = ValueKind(str(group["kind"])) if "kind" in group else None
        stays = group.get("stays") is True
        values, pairs = group.get("values", []), group.get("cases", [])
        assert isinstance(values, list) and isinstance(pairs, list)
        out += [(type_, kind, str(value), ".*" if stays else "", stays) for value in values]
        out += [(type_, kind, str(value), str(like), stays) for value, like in pairs]
    return out


def form_of(text: str) -> str:
    """Digits as 9, capitals as A, small letters as a, all else as it is."""
    return "".join("9" if c.isdecimal() else "A" if c.isupper() else "a" if c.islower() else c for c in text)

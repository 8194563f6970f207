"""The sealed content of a crosswalk: which original identifier has which code, in one box for each custodian.

The box of the second custodian lies in that of the first, so a thief of one private key opens nothing. A worker seals;
the agent passes the boxes on and never sees an original. The content of the inner box is one JSON object:

    {"at": "2026-03-18T08:15:00.000Z", "pairs": [["Patient.id", "patient-01", "CI7427J0V3QKLK6QIA75"]]}
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deid_agent.agent.dead_letter_keys import PrivateKey, PublicKey
from deid_agent.model import CrosswalkError, DeadLetterError, format_time

MOST_CUSTODIANS: Final = 2
_MOST_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class OpenedPairs:
    """The content of a box: the time at which the record was processed, and path, original and code of its pairs."""

    at: str
    pairs: tuple[tuple[str, str, str], ...]

    def __repr__(self) -> str:
        """Without the pairs, which hold originals."""
        return f"OpenedPairs({len(self.pairs)})"


@dataclass(frozen=True, slots=True)
class PairSealer:
    """Seals the pairs of a record to its custodians, the first of whom opens first."""

    custodians: tuple[PublicKey, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, in the order in which they open."""
        return tuple(key.id for key in self.custodians)

    def seal(self, pairs: Iterable[tuple[str, str, str]], at: float) -> bytes:
        """The members ``codes`` and ``sealed`` of a line; ``at`` is Unix time."""
        distinct = list(dict.fromkeys(pairs))
        # ASCII: an original may hold half of a surrogate pair, which is no UTF-8.
        content = _to_json({"at": format_time(at, "milliseconds"), "pairs": distinct})
        for key in reversed(self.custodians):
            content = key.seal(content)
        codes = _to_json(list(dict.fromkeys(code for _, _, code in distinct)))
        return b'"codes":%s,"sealed":"%s"' % (codes, base64.b64encode(content))


def open_box(sealed: str, key: PrivateKey) -> bytes:
    """The content of a box in base64: the box of the next custodian, or the pairs. Raises ``CrosswalkError``."""
    try:
        box = base64.b64decode(sealed, validate=True)
    except ValueError:  # also for characters that are not ASCII
        raise CrosswalkError("its box is not base64") from None
    try:
        return key.open(box, _MOST_BYTES)
    except DeadLetterError as problem:
        raise CrosswalkError(str(problem)) from None


def read_pairs(content: bytes) -> OpenedPairs:
    """The pairs in an opened box. Raises ``CrosswalkError`` if it holds something else."""
    try:
        data = json.loads(content)
        pairs = tuple((_text(path), _text(original), _text(code)) for path, original, code in data["pairs"])
        return OpenedPairs(_text(data["at"]), pairs)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CrosswalkError("its box holds no pairs") from None


def _text(value: object) -> str:
    """A string. Raises ``TypeError`` for anything else, which the agent never seals."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")

"""Keyed choice: digests, indices and permutations from one secret.

Every surrogate is derived with ``KeyedHash.digest``: BLAKE2b in keyed mode (RFC 7693, section 2.9). The parts are
length-prefixed, so that two lists of parts never give the same message. There is no state, no random source and no
``hash()``: results are the same on every machine and Python version.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import gcd, isqrt

from deid_agent.model import ConfigurationError

_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """A secret of any length, hidden in ``repr``. Raises ``ConfigurationError`` for an empty secret."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.secret:
            raise ConfigurationError("the surrogate secret is empty: give at least 16 random bytes")
        object.__setattr__(self, "secret", blake2b(self.secret, person=b"deid-surrogate").digest())

    def digest(self, *parts: str) -> bytes:
        """32 bytes that only the owner of the secret can compute from ``parts``."""
        message = b"".join(b"%d:%b" % (len(p), p) for p in (_bytes(part) for part in parts))
        return blake2b(message, key=self.secret, digest_size=32).digest()

    def number(self, *parts: str) -> int:
        """A whole number in [0, 2**256)."""
        return int.from_bytes(self.digest(*parts), "big")

    def index(self, size: int, *parts: str) -> int:
        """An index in [0, size); ``size`` must be positive."""
        return self.number(*parts) % size

    def permutation(self, size: int, tweak: str) -> "Permutation":
        """The permutation of [0, size) for ``tweak``."""
        return _permutation(self, size, tweak)


@dataclass(frozen=True, slots=True)
class Permutation:
    """A keyed permutation of [0, size) that is one single cycle.

    p is a generalised Feistel network over [0, rows * columns) with cycle walking (Black & Rogaway 2002, sections 4
    and 5). Each round adds a keyed function of one half to the other half and can be undone by subtraction, so p is a
    bijection. Values out of range are mapped again until they are in range, so p is also a bijection of [0, size).

    Identifiers are mapped by q(x) = p^-1(p(x) + step mod size), with gcd(step, size) = 1. q is a conjugate of a
    rotation by p, hence a bijection. The rotation is one cycle of length ``size``, so q is one cycle too: no x maps to
    itself (size > 1), and the walk x, q(x), q(q(x)), ... visits every value. Therefore, for any subset S of two or
    more values, "apply q until the value is in S again" is a bijection of S without fixed points. This preserves
    checksums, leading zeros and hexadecimal form.
    """

    key: KeyedHash = field(repr=False)
    size: int
    tweak: str
    rows: int
    columns: int
    step: int
    round_keys: tuple[bytes, ...] = field(repr=False)

    def next(self, x: int) -> int:
        """q(x), for x in [0, size); differs from x if size > 1."""
        return self._backward((self._forward(x) + self.step) % self.size)

    def _forward(self, x: int) -> int:
        while True:
            high, low = divmod(x, self.columns)
            for n, key in enumerate(self.round_keys):
                if n % 2:
                    low = (low + _round(key, high)) % self.columns
                else:
                    high = (high + _round(key, low)) % self.rows
            x = high * self.columns + low
            if x < self.size:
                return x

    def _backward(self, x: int) -> int:
        while True:
            high, low = divmod(x, self.columns)
            for n in range(_ROUNDS - 1, -1, -1):
                if n % 2:
                    low = (low - _round(self.round_keys[n], high)) % self.columns
                else:
                    high = (high - _round(self.round_keys[n], low)) % self.rows
            x = high * self.columns + low
            if x < self.size:
                return x


def _round(key: bytes, half: int) -> int:
    """512 bits for one half. Callers keep halves below 256 bits, so that the reduction has no measurable bias."""
    message = half.to_bytes((half.bit_length() + 7) // 8 or 1, "big")
    return int.from_bytes(blake2b(message, key=key, digest_size=64).digest(), "big")


@lru_cache(maxsize=4096)
def _permutation(key: KeyedHash, size: int, tweak: str) -> Permutation:
    if size < 1:
        raise ValueError("a permutation needs at least one value")
    columns = isqrt(size - 1) + 1
    rows = -(-size // columns)
    rounds = tuple(key.digest("round", tweak, str(size), str(n)) for n in range(_ROUNDS))
    step = 1 + key.index(max(size - 1, 1), "step", tweak, str(size))
    while gcd(step, size) != 1:
        step = step % size + 1
    return Permutation(key, size, tweak, rows, columns, step, rounds)


def _bytes(part: str) -> bytes:
    """UTF-8 that also encodes lone surrogates, so that no string raises."""
    return part.encode("utf-8", "surrogatepass")

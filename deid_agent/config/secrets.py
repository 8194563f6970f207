"""Secrets from files, and the secret key from a file or the environment.

A key is at least 32 random bytes: any file content, or hex or base64 in ``DEID_KEY``. It never comes from the command
line and is never shown. A key that can be guessed is refused.
"""

import base64
import binascii
import hashlib
import math
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.model import ConfigurationError, counted


def read_secret_file(path: Path, name: str, how: str = "") -> bytes:
    """The content of a file that only its owner may read. Errors call it ``name`` and end with ``how``.

    Raises ``ConfigurationError`` if it cannot be read or others may read it. A file of another owner may be readable by
    its group: secrets are mounted like this for a process that is not root.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())  # of the opened file: the path may name another one a moment later
            allowed = 0o700 if found.st_uid == os.geteuid() else 0o740
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o777 & ~allowed:
                raise ConfigurationError(f"{name} {path}: others may read it; run: chmod 600 {path}")
            return file.read()
    except OSError as problem:
        raise ConfigurationError(f"{name} {path}: cannot be read ({type(problem).__name__}){how}") from None


def read_password(value: str | None, path: Path | None, setting: str) -> str | None:
    """``value``, else the content of the file without its final line end; None if neither is given.

    ``setting`` is the name of the setting of the value; the setting of the file ends with ``_file``. Raises
    ``ConfigurationError`` if both are given, or if the file is empty or not UTF-8.
    """
    if path is None:
        return value
    if value is not None:
        raise ConfigurationError(f"{setting} and {setting}_file exclude each other; remove one")
    try:
        text = read_secret_file(path, f"{setting}_file").decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{setting}_file {path}: is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ConfigurationError(f"{setting}_file {path}: is empty")
    return text


MIN_BYTES = 32
_HOW = "make one with: (umask 077; head -c 32 /dev/urandom > deid.key)"


_DEMO_SECRET = b"deid-agent demonstration key: everyone knows it"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The secret, and its public name ``id``, which every audit entry has.

    The name is 8 hex digits of a digest of the whole secret. Any other byte, also a line end, makes another key, other
    surrogates and another name. A key of random bytes cannot be computed from its name.
    """

    secret: bytes = field(repr=False)
    demo: bool = False

    def __reduce__(self) -> tuple[type["SecretKey"], tuple[bytes, bool]]:
        """For our own workers, which get it through a pipe while they start. Raises ``TypeError`` otherwise."""
        from multiprocessing.context import get_spawning_popen  # noqa: PLC0415 - commands start without it

        if get_spawning_popen() is None:
            raise TypeError(
                "the key is not pickled, since engines write what they send to disks and logs: load it in each "
                "process from a mounted file, as deid_agent.batch.BatchDeidentifier(table, key_file=...) does"
            )
        return SecretKey, (self.secret, self.demo)

    @property
    def id(self) -> str:
        if self.demo and self.secret == _DEMO_SECRET:
            return "demo"
        id = hashlib.blake2b(self.secret, person=b"deid-key-id", digest_size=4).hexdigest()
        return f"demo-{id}" if self.demo else id

    @property
    def audit_seed(self) -> bytes:
        """The 32-byte seed of the key that signs the audit; it reveals nothing about the secret."""
        return hashlib.blake2b(self.secret, person=b"deid-audit-sign", digest_size=32).digest()


DEMO_KEY = SecretKey(_DEMO_SECRET, demo=True)
"""For demonstrations: anyone can reverse its output."""


def load_key(key_file: Path | None, environ: Mapping[str, str] = os.environ) -> SecretKey:
    """The key of ``key_file``, else of ``$DEID_KEY_FILE``, else of ``$DEID_KEY`` (hex or base64).

    Raises ``ConfigurationError`` if there is no key or two, if it is too short or weak (``find_weakness``), if it
    is the demonstration key, or if others on this machine can read it. No error contains a part of the key.
    """
    path = key_file or (Path(environ["DEID_KEY_FILE"]) if environ.get("DEID_KEY_FILE") else None)
    if path is not None and environ.get("DEID_KEY"):
        raise ConfigurationError(f"two keys: the key file {path} and DEID_KEY; remove one")
    if path is not None:
        return check_key_bytes(read_secret_file(path, "key file", f"; {_HOW}"), f"key file {path}")
    if text := environ.get("DEID_KEY", ""):
        return check_key_bytes(decode_key(text.strip(), "DEID_KEY"), "DEID_KEY")
    raise ConfigurationError(f"no key: set key_file, DEID_KEY_FILE or DEID_KEY; {_HOW}")


def decode_key(text: str, name: str) -> bytes:
    """The bytes of the key ``name`` in hex or base64. Raises ``ConfigurationError`` for any other text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{name}: neither hex nor base64") from None


def check_key_bytes(found: bytes, name: str) -> SecretKey:
    """The key of these bytes. Raises ``ConfigurationError`` if it is too short, weak, or the demonstration key."""
    if len(found) < MIN_BYTES:
        raise ConfigurationError(f"{name}: {counted(len(found), 'byte')}; a key has at least {MIN_BYTES}; {_HOW}")
    if DEMO_KEY.secret in _readings(found):
        raise ConfigurationError(f"{name}: the demonstration key, which everyone knows: use --demo-key, or {_HOW}")
    if weakness := find_weakness(found):
        raise ConfigurationError(f"{name}: {weakness}, so it can be guessed; a key is random; {_HOW}")
    return SecretKey(found)


# The strength of a key. Whoever guesses it reverses every surrogate, and the guess is tested offline, so no cost of a
# single guess helps. An estimate cannot prove that bytes are random; it finds the keys that people type and copy.

MIN_BITS = 128
_WORD = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}")
_MOSTLY_WORDS = 0.9
"""The share of letters in words. Random base64 has about 0.4."""
_FEWEST = 10
"""Letters in words, and pairs of letters, below which a text is not judged by them."""
_RANDOM_SHARE = 0.2
_DEVIATIONS = 5
"""Pairs of random letters are frequent ones in one of six cases. More by five standard deviations are words."""
_PAIRS = (
    "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic "
    "ne ea ra ce li ch ll be ma si om ur ca el la ta un ie ge sc ei do os ad da am em im us ir pa po no na lo il ag et "
    "ho ut ke ow ck ee so su wh wa wo rs ss sh ay ly tr pr pe ac mo di"
)
_FREQUENT_PAIRS = frozenset(_PAIRS.split())
_CLASSES = ((rb"[0-9]", 10), (rb"[a-z]", 26), (rb"[A-Z]", 26), (rb"[ -/:-@\[-`{-~\s]", 34))


def find_weakness(key: bytes) -> str:
    """Why a key can be guessed, in words without any part of it; empty if no reason is found.

    Weak are bytes that repeat, count up or down, or have fewer than 128 bits by alphabet and length, and text that
    consists of words, however long: a sentence has about one bit per letter (Shannon 1951). The same holds for the
    bytes that a text in hex or base64 decodes to. 32 random bytes pass in all three forms.
    """
    for reading in _readings(key):
        if _is_words(reading):
            return "words or a passphrase"
        if _estimate_bits(reading) < MIN_BITS:
            return f"less than {MIN_BITS} bits of entropy (repeated, counted or few different characters)"
    return ""


def _readings(key: bytes) -> list[bytes]:
    """The key without white space around it, and the bytes that it decodes to as hex and as base64."""
    core = key.strip()
    text = core.decode("latin-1")
    found = [core]
    with suppress(ValueError):
        found.append(bytes.fromhex(text).strip())
    with suppress(binascii.Error, ValueError):
        found.append(base64.b64decode(text, validate=True).strip())
    return found


def _is_words(key: bytes) -> bool:
    """True if the key is text of words: by its form, or by the frequent pairs of letters in European languages."""
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if not text.isascii():  # random bytes are no UTF-8; letters of other scripts are words
        return True
    if re.fullmatch(r"[0-9a-f\s]{1,}|[0-9A-F\s]{1,}", text):  # hex: the letters a to f alone form few words
        return False
    letters, words = sum(map(str.isalpha, text)), sum(map(len, _WORD.findall(text)))
    if words >= _FEWEST and words > _MOSTLY_WORDS * letters:
        return True
    pairs = [pair.lower() for pair in re.findall(r"(?=([a-z]{2}|[A-Z]{2}|[A-Z][a-z]))", text)]
    expected = _RANDOM_SHARE * len(pairs)
    highest = expected + _DEVIATIONS * math.sqrt(expected * (1 - _RANDOM_SHARE))
    return len(pairs) >= _FEWEST and sum(pair in _FREQUENT_PAIRS for pair in pairs) > highest


def _estimate_bits(key: bytes) -> float:
    """The length in bits of a description of the key: characters of its alphabet, steps and repeated parts."""
    size = sum(count for pattern, count in _CLASSES if re.search(pattern, key))
    if re.search(rb"[^ -~\s]", key):
        size = 256
    elif re.fullmatch(rb"[0-9a-f\s]{1,}|[0-9A-F\s]{1,}", key) and re.search(rb"[a-fA-F]", key):
        size = 16
    each = math.log2(size or 1)
    bits, at = 0.0, 0
    while at < len(key):
        length = 0
        while at + length < len(key) and key.find(key[at : at + length + 1], 0, at + length) >= 0:
            length += 1
        if length >= 3 or (length > 1 and at + length == len(key)):  # a part that occurred before: its place and length
            bits += math.log2(at + 1) + 2
            at += length
            continue
        steps = at > 1 and (key[at] - key[at - 1] - key[at - 1] + key[at - 2]) % 256 == 0
        bits += 1.0 if steps else each
        at += 1
    return bits

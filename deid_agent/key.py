"""The secret key: from a file or the environment, never from the command line, never shown.

A key is at least 32 bytes: any file content, or hex or base64 in ``DEID_KEY``.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent import secret
from deid_agent.errors import ConfigurationError

MIN_BYTES = 32
_HOW = "make one with: (umask 077; head -c 32 /dev/urandom > deid.key)"


@dataclass(frozen=True, slots=True)
class Key:
    """The secret and its public name, ``id``, which stands in every audit entry.

    The name is 8 hex digits of a digest of the whole secret: another byte anywhere, a line end too, is another key,
    another map and another name. Nothing leads from the name back to a key of random bytes.
    """

    secret: bytes = field(repr=False)
    demo: bool = False

    @property
    def id(self) -> str:
        if self.demo:
            return "demo"
        return hashlib.blake2b(self.secret, person=b"deid-key-id", digest_size=4).hexdigest()

    @property
    def audit_seed(self) -> bytes:
        """32 bytes, from which the key that signs the audit is made; they tell nothing of the secret."""
        return hashlib.blake2b(self.secret, person=b"deid-audit-sign", digest_size=32).digest()


DEMO = Key(b"deid-agent demonstration key: everyone knows it", demo=True)
"""For demonstrations; everything it touched can be reversed by anyone."""


def load(key_file: Path | None, environ: Mapping[str, str] = os.environ) -> Key:
    """The key of ``key_file``, else of ``$DEID_KEY_FILE``, else of ``$DEID_KEY`` (hex or base64).

    The demonstration key is that key from wherever it comes. Raises ``ConfigurationError`` where there is none or two,
    it is too short, or others on this machine can read it.
    """
    path = key_file or (Path(environ["DEID_KEY_FILE"]) if environ.get("DEID_KEY_FILE") else None)
    if path is not None and environ.get("DEID_KEY"):
        raise ConfigurationError(f"two keys: the key file {path} and DEID_KEY; take one of them away")
    if path is not None:
        return _key(secret.read(path, "key file", f"; {_HOW}"), f"key file {path}")
    if text := environ.get("DEID_KEY", ""):
        return _key(_decode(text.strip()), "DEID_KEY")
    raise ConfigurationError(f"no key: set key_file, DEID_KEY_FILE or DEID_KEY; {_HOW}")


def _decode(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError("DEID_KEY: neither hex nor base64") from None


def _key(found: bytes, where: str) -> Key:
    if len(found) < MIN_BYTES:
        raise ConfigurationError(f"{where}: {len(found)} bytes; a key has at least {MIN_BYTES}; {_HOW}")
    return DEMO if found.strip() == DEMO.secret else Key(found)

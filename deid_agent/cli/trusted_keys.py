"""The public keys that a command trusts: those on the command line, else that of the agent's secret key."""

import os
from collections.abc import Collection
from pathlib import Path

from deid_agent.audit import Signer, is_public_key
from deid_agent.config import load_key
from deid_agent.model import ConfigurationError


def find_trusted(public: Collection[str], key_file: Path | None) -> frozenset[str] | None:
    """The trusted keys in hex; None if there is no key at all. Raises ``ConfigurationError`` if one is invalid."""
    if wrong := [text for text in public if not is_public_key(text.lower())]:
        raise ConfigurationError(
            f"--public-key {wrong[0]}: not 64 hex digits; use the output of `deid-agent audit key`"
        )
    if public:
        return frozenset(text.lower() for text in public)
    if key_file is None and not (os.environ.get("DEID_KEY_FILE") or os.environ.get("DEID_KEY")):
        return None
    return frozenset({Signer(load_key(key_file).audit_seed).public})


def require_trusted(public: Collection[str], key_file: Path | None) -> frozenset[str]:
    """The trusted keys. Raises ``ConfigurationError`` if there is none."""
    trusted = find_trusted(public, key_file)
    if trusted is None:
        raise ConfigurationError("no key: give --public-key, the output of `deid-agent audit key FOLDER`")
    return trusted

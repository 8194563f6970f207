"""The signing keys of a trail: one for each epoch, the present one in a file, the former ones destroyed.

The last statement of an epoch names the public key of the next one, so the first public key of a trail authenticates
all others. A thief of the present key can sign for the present epoch and later ones, never for an earlier one.
"""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deid_agent.agent import sync_folder
from deid_agent.audit.storage import Signer, replace_file, write_all
from deid_agent.model import ConfigurationError

KEY_FILE: Final = "signing.key"
SEED_BYTES: Final = 32


def random_seed() -> bytes:
    """The secret of a new key, from the random source of the system."""
    return secrets.token_bytes(SEED_BYTES)


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """The seed of the present epoch and, while one epoch follows another, that of the next."""

    seeds: tuple[bytes, ...] = field(repr=False)

    @property
    def present(self) -> Signer:
        """The key that signs now."""
        return Signer(self.seeds[0])

    @property
    def next(self) -> Signer:
        """The key of the next epoch."""
        return Signer(self.seeds[1])

    def with_next(self, seed: bytes) -> "EpochKeys":
        """The present key and a new one for the next epoch."""
        return EpochKeys((self.seeds[0], seed))

    def advanced(self) -> "EpochKeys":
        """The keys without that of the present epoch, which is over."""
        return EpochKeys(self.seeds[1:])

    def holding(self, public: str) -> "EpochKeys | None":
        """The keys if ``public`` is the present one: a crash can leave the former beside it. None if none is it."""
        return next((EpochKeys((seed,)) for seed in self.seeds if Signer(seed).public == public), None)


def load_keys(folder: Path) -> EpochKeys | None:
    """The keys in the file; None if there is no file. Raises ``ConfigurationError`` if it holds something else."""
    try:
        lines = (folder / KEY_FILE).read_bytes().split()
    except FileNotFoundError:
        return None
    try:
        seeds = tuple(bytes.fromhex(line.decode("ascii")) for line in lines)
    except ValueError:
        seeds = ()
    if not 1 <= len(seeds) <= 2 or any(len(seed) != SEED_BYTES for seed in seeds):
        raise ConfigurationError(f"{folder / KEY_FILE}: is not the signing key of a trail; restore it")
    return EpochKeys(seeds)


def save_keys(folder: Path, keys: EpochKeys) -> None:
    """Replace the keys in the file durably, then overwrite those that it held before."""
    path = folder / KEY_FILE
    former = _open_existing(path)
    try:
        replace_file(path, b"".join(seed.hex().encode() + b"\n" for seed in keys.seeds))
        sync_folder(folder)
        if former is not None:
            # Only now: until here a crash may need them.
            write_all(former, bytes(os.fstat(former).st_size))
            os.fsync(former)
    finally:
        if former is not None:
            os.close(former)


def _open_existing(path: Path) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def keys_for(folder: Path, public: str, make_seed: Callable[[], bytes]) -> EpochKeys:
    """The keys to sign with after an epoch whose key is ``public``; new ones, saved, if no epoch has begun.

    Raises ``ConfigurationError`` if the file does not hold the key of the epoch: without it nobody can continue the
    trail.
    """
    found = load_keys(folder)
    if not public:
        if found is None:
            found = EpochKeys((make_seed(),))
            save_keys(folder, found)
        return EpochKeys(found.seeds[:1])
    kept = found.holding(public) if found is not None else None
    if kept is None:
        raise ConfigurationError(
            f"audit folder {folder}: {KEY_FILE} does not hold the key of the last epoch: restore it, or move the "
            "folder aside and start with a new one"
        )
    if kept != found:
        save_keys(folder, kept)
    return kept

"""Key files name their kind, so that the two keys cannot be confused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from deid_agent.agent.dead_letter_keys import PrivateKey, PublicKey, generate_keys, load_private_key, load_public_key
from deid_agent.model.errors import ConfigurationError


def test_a_key_pair_opens_its_own_seal(tmp_path: Path) -> None:
    public = generate_keys(tmp_path / "k")
    private = load_private_key(tmp_path / "k")
    assert load_public_key(tmp_path / "k.pub") == public == private.public
    assert private.open(public.seal(b"a", b"b"), 10) == b"ab"
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert (tmp_path / "k").read_text().startswith("deid-letters-private-1:")
    assert (tmp_path / "k.pub").read_text().startswith("deid-letters-public-1:")
    assert len((tmp_path / "k").read_text().splitlines()) == 1
    assert generate_keys(tmp_path / "other").id != public.id


@pytest.mark.parametrize("there", ["k", "k.pub"])
def test_nothing_is_overwritten_and_no_half_pair_is_left(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(ConfigurationError, match="never overwritten"):
        generate_keys(tmp_path / "k")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {there: "mine"}


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        generate_keys(tmp_path / "nowhere" / "k")


@pytest.mark.parametrize(
    ("load", "name", "expected"),
    [
        (load_public_key, "k", "holds a private key; name its .pub file"),
        (load_private_key, "k.pub", "this is the public key; name the file without .pub"),
        (load_public_key, "none", "cannot be read"),
        (load_private_key, "none", "dead-letters keygen"),
        (load_public_key, "deid.key", "not a dead-letter key"),
        (load_private_key, "deid.key", "not a dead-letter key"),
        (load_public_key, "cut", "not a dead-letter key"),
        (load_private_key, "letter", "not a dead-letter key"),
    ],
)
def test_a_wrong_key_file_is_named(
    tmp_path: Path, load: Callable[[Path], PublicKey | PrivateKey], name: str, expected: str
) -> None:
    generate_keys(tmp_path / "k")
    (tmp_path / "deid.key").write_bytes(os.urandom(32))
    (tmp_path / "cut").write_bytes((tmp_path / "k.pub").read_bytes()[:-9])
    (tmp_path / "letter").write_text("deid-letters-private-1:***\n")
    (tmp_path / "letter").chmod(0o600)
    secret = (tmp_path / "k").read_text().strip().partition(":")[2]
    with pytest.raises(ConfigurationError, match=expected) as caught:
        load(tmp_path / name)
    assert secret not in str(caught.value)


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    generate_keys(tmp_path / "k")
    (tmp_path / "k").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_private_key(tmp_path / "k")


def test_no_repr_shows_a_private_key() -> None:
    assert "61626364" not in repr(PrivateKey(b"abcd" * 8)) and "abcd" not in repr(PrivateKey(b"abcd" * 8))

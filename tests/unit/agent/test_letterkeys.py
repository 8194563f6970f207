"""Key files say what they are, and nobody mixes them up."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from deid_agent.agent.letterkeys import PrivateKey, PublicKey, generate, load_private, load_public
from deid_agent.errors import ConfigurationError


def test_a_pair_opens_what_it_seals(tmp_path: Path) -> None:
    public = generate(tmp_path / "k")
    private = load_private(tmp_path / "k")
    assert load_public(tmp_path / "k.pub") == public == private.public
    assert private.open(public.seal(b"a", b"b"), 10) == b"ab"
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert (tmp_path / "k").read_text().startswith("deid-letters-private-1:")
    assert (tmp_path / "k.pub").read_text().startswith("deid-letters-public-1:")
    assert len((tmp_path / "k").read_text().splitlines()) == 1
    assert generate(tmp_path / "other").id != public.id


@pytest.mark.parametrize("there", ["k", "k.pub"])
def test_nothing_is_overwritten_and_no_half_pair_is_left(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(ConfigurationError, match="never overwritten"):
        generate(tmp_path / "k")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {there: "mine"}


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        generate(tmp_path / "nowhere" / "k")


@pytest.mark.parametrize(
    ("load", "name", "told"),
    [
        (load_public, "k", "holds a private key; name its .pub file"),
        (load_private, "k.pub", "this is the public key; name the file without .pub"),
        (load_public, "none", "cannot be read"),
        (load_private, "none", "letters keygen"),
        (load_public, "deid.key", "no key of dead letters"),
        (load_private, "deid.key", "no key of dead letters"),
        (load_public, "cut", "no key of dead letters"),
        (load_private, "letter", "no key of dead letters"),
    ],
)
def test_a_wrong_file_is_told(
    tmp_path: Path, load: Callable[[Path], PublicKey | PrivateKey], name: str, told: str
) -> None:
    generate(tmp_path / "k")
    (tmp_path / "deid.key").write_bytes(os.urandom(32))
    (tmp_path / "cut").write_bytes((tmp_path / "k.pub").read_bytes()[:-9])
    (tmp_path / "letter").write_text("deid-letters-private-1:***\n")
    (tmp_path / "letter").chmod(0o600)
    secret = (tmp_path / "k").read_text().strip().partition(":")[2]
    with pytest.raises(ConfigurationError, match=told) as caught:
        load(tmp_path / name)
    assert secret not in str(caught.value)


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    generate(tmp_path / "k")
    (tmp_path / "k").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_private(tmp_path / "k")


def test_no_repr_shows_a_private_key() -> None:
    assert "61626364" not in repr(PrivateKey(b"abcd" * 8)) and "abcd" not in repr(PrivateKey(b"abcd" * 8))

import base64
from pathlib import Path

import pytest

from deid_agent import key
from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.sites import Kind
from deid_agent.surrogate import Scope, Surrogates

SECRET = bytes(range(32))


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_the_file_wins_over_the_environment(tmp_path: Path) -> None:
    chosen = write(tmp_path / "a", SECRET)
    other = write(tmp_path / "b", bytes(40))
    assert key.load(chosen, {"DEID_KEY_FILE": str(other)}).secret == SECRET
    assert key.load(None, {"DEID_KEY_FILE": str(other)}).secret == bytes(40)


def test_two_keys_are_one_too_many(tmp_path: Path) -> None:
    file = write(tmp_path / "a", SECRET)
    for chosen, environ in ((None, {"DEID_KEY_FILE": str(file)}), (file, {})):
        with pytest.raises(ConfigurationError, match="two keys"):
            key.load(chosen, {"DEID_KEY": SECRET.hex(), **environ})


@pytest.mark.parametrize("text", [SECRET.hex(), base64.b64encode(SECRET).decode()])
def test_the_environment_holds_hex_or_base64(text: str) -> None:
    assert key.load(None, {"DEID_KEY": text}).secret == SECRET


@pytest.mark.parametrize(
    ("environ", "told"),
    [({}, "no key"), ({"DEID_KEY": "zz!"}, "neither hex nor base64"), ({"DEID_KEY": "00" * 8}, "8 bytes")],
)
def test_a_missing_or_bad_key_stops(environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        key.load(None, environ)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match="chmod 600"):
        key.load(write(tmp_path / "k", SECRET, mode), {})


def test_a_short_or_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="31 bytes"):
        key.load(write(tmp_path / "k", bytes(31)), {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        key.load(tmp_path / "absent", {})


@pytest.mark.parametrize("at", [0, 31, 64, 99])
def test_every_byte_counts(tmp_path: Path, at: int) -> None:
    """Cut or edited, a key is another one, and its id says so: in a long file beyond what BLAKE2b takes as key, too."""
    whole = bytes(100)
    edited = bytearray(whole)
    edited[at] ^= 1
    keys = [key.load(write(tmp_path / "k", data), {}) for data in (whole, bytes(edited), whole[:-1], whole + b"\n")]
    assert len({loaded.id for loaded in keys}) == 4
    made = {
        Surrogates(loaded.secret).replace(PhiType.MEDICALRECORD, "4471902", kind=Kind.VALUE, scope=Scope("d"))
        for loaded in keys
    }
    assert len(made) == 4


def test_the_id_is_the_same_wherever_the_key_comes_from(tmp_path: Path) -> None:
    from_file = key.load(write(tmp_path / "k", SECRET), {})
    assert from_file.id == key.load(None, {"DEID_KEY": SECRET.hex()}).id == "af6292ae"
    assert len(from_file.id) == 8 and from_file.id not in SECRET.hex()


def test_the_demonstration_key_is_known_in_a_file_too(tmp_path: Path) -> None:
    for data in (key.DEMO.secret, key.DEMO.secret + b"\n"):
        assert key.load(write(tmp_path / "k", data), {}).demo
    assert key.load(None, {"DEID_KEY": key.DEMO.secret.hex()}).id == "demo"


def test_nothing_shows_the_secret() -> None:
    loaded = key.Key(SECRET)
    assert "x01" not in repr(loaded)
    assert loaded.id != key.Key(bytes(32)).id
    assert key.DEMO.id == "demo"

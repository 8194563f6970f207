import base64
import random
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from deid_agent.config.secrets import DEMO_KEY, SecretKey, find_weakness, load_key
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import Scope, Surrogates

SECRET = sha256(b"the key of these tests").digest()
OTHER = SECRET[::-1] + b"another"


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_the_file_wins_over_the_environment(tmp_path: Path) -> None:
    chosen = write(tmp_path / "a", SECRET)
    other = write(tmp_path / "b", OTHER)
    assert load_key(chosen, {"DEID_KEY_FILE": str(other)}).secret == SECRET
    assert load_key(None, {"DEID_KEY_FILE": str(other)}).secret == OTHER


def test_two_key_sources_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a", SECRET)
    for chosen, environ in ((None, {"DEID_KEY_FILE": str(file)}), (file, {})):
        with pytest.raises(ConfigurationError, match="two keys"):
            load_key(chosen, {"DEID_KEY": SECRET.hex(), **environ})


@pytest.mark.parametrize("text", [SECRET.hex(), base64.b64encode(SECRET).decode()])
def test_the_environment_holds_hex_or_base64(text: str) -> None:
    assert load_key(None, {"DEID_KEY": text}).secret == SECRET


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, "no key"), ({"DEID_KEY": "zz!"}, "neither hex nor base64"), ({"DEID_KEY": "00" * 8}, "8 bytes")],
)
def test_a_missing_or_bad_key_stops(environ: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        load_key(None, environ)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_key(write(tmp_path / "k", SECRET, mode), {})


def test_a_short_or_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="31 bytes"):
        load_key(write(tmp_path / "k", bytes(31)), {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_key(tmp_path / "absent", {})


@pytest.mark.parametrize("at", [0, 31, 64, 99])
def test_every_byte_counts(tmp_path: Path, at: int) -> None:
    """A truncated or edited key is another key with another id, also if the file is longer than a BLAKE2b key."""
    whole = random.Random(4).randbytes(100)
    edited = bytearray(whole)
    edited[at] ^= 1
    keys = [load_key(write(tmp_path / "k", data), {}) for data in (whole, bytes(edited), whole[:-1], whole + b"\n")]
    assert len({loaded.id for loaded in keys}) == 4
    made = {
        Surrogates(loaded.secret).replace(PhiType.MEDICALRECORD, "4471902", kind=ValueKind.VALUE, scope=Scope("d"))
        for loaded in keys
    }
    assert len(made) == 4


def test_the_key_id_does_not_depend_on_the_source(tmp_path: Path) -> None:
    from_file = load_key(write(tmp_path / "k", SECRET), {})
    assert from_file.id == load_key(None, {"DEID_KEY": SECRET.hex()}).id == "947e409b"
    assert len(from_file.id) == 8 and from_file.id not in SECRET.hex()


@pytest.mark.parametrize("form", [bytes, bytes.hex, base64.b64encode])
def test_the_demonstration_key_in_a_file_is_refused(tmp_path: Path, form: Callable[[bytes], bytes | str]) -> None:
    written = form(DEMO_KEY.secret)
    data = written.encode() if isinstance(written, str) else written
    for end in (b"", b"\n"):
        with pytest.raises(ConfigurationError, match="everyone knows: use --demo-key"):
            load_key(write(tmp_path / "k", data + end), {})
    with pytest.raises(ConfigurationError, match="everyone knows"):
        load_key(None, {"DEID_KEY": DEMO_KEY.secret.hex()})


WEAK = {
    "equal bytes": b"\x5a" * 32,
    "zeros": bytes(64),
    "a short period": bytes([7, 200, 31, 99, 4]) * 8,
    "a period with a rest": b"\x01\x02" * 16 + b"\x03\x04\x05",
    "a counter": bytes(range(32)),
    "a counter of threes, down": bytes(range(255, 100, -3)),
    "a repeated word": b"deadbeef" * 8,
    "digits": b"31415926535897932384626433832795",
    "a passphrase": b"correct horse battery staple correct",
    "a passphrase without blanks": b"correcthorsebatterystaplecorrecthorse",
    "a passphrase in capitals": b"CORRECT HORSE BATTERY STAPLE CORRECT",
    "a sentence, however long": b"It was the best of times, it was the worst of times, it was the age of wisdom, " * 2,
    "a German sentence": "MeinVaterErklärtMirJedenSonntagUnserePlaneten".encode(),
    "a Spanish sentence": b"MiPerroSeLlamaFirulaisYTieneOchoAnos",
    "Greek words": "σωστό άλογο μπαταρία συνδετήρας".encode(),
    "words of rare letters": b"xkcd-Zebra-Quilt-Fjord-Jumbo-Glyph-Vex",
    "a row of keys": b"qwertyuiopasdfghjklzxcvbnm1234567890",
    "a name with a date": b"OurKey-2024-11-24-Hospital-Prod-0001",
    "words in hex": b"correct horse battery staple correct".hex().encode(),
    "words in base64": base64.b64encode(b"correct horse battery staple correct"),
    "equal bytes in hex": b"ab" * 32,
}


@pytest.mark.parametrize("weak", WEAK.values(), ids=list(WEAK))
def test_a_weak_key_is_refused_and_not_shown(tmp_path: Path, weak: bytes) -> None:
    for environ, file in (({}, write(tmp_path / "k", weak)), ({"DEID_KEY": weak.hex()}, None)):
        with pytest.raises(ConfigurationError, match=r"can be guessed.*head -c 32 /dev/urandom") as caught:
            load_key(file, environ)
        shown = str(caught.value).replace(str(file), "")
        text = weak.decode("latin-1")
        assert not any(text[at : at + 8] in shown for at in range(len(text) - 7))


@pytest.mark.parametrize(
    "form", [bytes, bytes.hex, lambda key: key.hex().upper(), base64.b64encode, base64.urlsafe_b64encode]
)
def test_random_keys_pass_in_every_form(tmp_path: Path, form: Callable[[bytes], bytes | str]) -> None:
    """300 keys of a fixed seed and 50 of this run; a wrong refusal of random base64 has odds of 1 in 100,000."""
    source = random.Random(2026)
    for key in [source.randbytes(32) for _ in range(300)] + [secrets.token_bytes(32) for _ in range(50)]:
        written = form(key)
        data = written.encode() if isinstance(written, str) else written
        assert not find_weakness(data)
        assert load_key(write(tmp_path / "k", data), {}).secret == data


def test_the_repr_of_a_key_does_not_show_the_secret() -> None:
    loaded = SecretKey(SECRET)
    assert "x01" not in repr(loaded)
    assert loaded.id != SecretKey(bytes(32)).id
    assert DEMO_KEY.id == "demo"

import base64

import pytest

from deid_agent import armor

DATA = bytes(range(256))


@pytest.mark.parametrize(
    "value",
    [
        base64.b64encode(DATA).decode(),
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().rstrip("\n").replace("\n", "\r\n"),
        base64.encodebytes(DATA).decode().replace("\n", "\n "),
        base64.urlsafe_b64encode(DATA).decode(),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
        base64.b64encode(DATA).decode().rstrip("="),
        base64.b64encode(DATA[:255]).decode(),
        "",
    ],
)
def test_what_is_read_is_written_alike(value: str) -> None:
    data, layout = armor.read(value)
    assert data == DATA[: len(data)]
    assert armor.write(data, layout).rstrip() == value.rstrip()


@pytest.mark.parametrize("value", ["QUI=QUI=", "Q", "QUI*", "QUÏ", "QUI==", "====", "QUJD="])
def test_what_is_no_base64_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        armor.read(value)


@pytest.mark.parametrize("value", ["00FF7a", "00ff\n7a00\n"])
def test_hex(value: str) -> None:
    data, layout = armor.read_hex(value)
    assert armor.write_hex(data, layout).lower() == value.lower()
    assert armor.write_hex(b"\xab", armor.PLAIN) == "AB"
    with pytest.raises(ValueError, match="hexadecimal"):
        armor.read_hex("0g")


def test_a_value_past_the_limit_is_refused_unread() -> None:
    with pytest.raises(armor.TooLongError):
        armor.read("A" * (armor.LIMIT + 1))


def test_dealing_out() -> None:
    assert armor.deal("abcdefg", [2, 2, 2]) == ["ab", "cd", "efg"]
    assert armor.deal("abc", [2, 2, 2]) == ["ab", "c", ""]
    assert armor.deal("abc", [9]) == ["abc"]

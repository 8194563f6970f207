import base64

import pytest

from deid_agent.model.sites import (
    MAX_ENCODED_BYTES,
    PLAIN_LAYOUT,
    TooLongError,
    decode_base64,
    decode_hex,
    encode_base64,
    encode_hex,
    split_by_lengths,
)

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
def test_a_decoded_value_is_encoded_in_its_layout(value: str) -> None:
    data, layout = decode_base64(value)
    assert data == DATA[: len(data)]
    assert encode_base64(data, layout).rstrip() == value.rstrip()


@pytest.mark.parametrize("value", ["QUI=QUI=", "Q", "QUI*", "QUÏ", "QUI==", "====", "QUJD="])
def test_invalid_base64_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        decode_base64(value)


@pytest.mark.parametrize("value", ["00FF7a", "00ff\n7a00\n"])
def test_hex(value: str) -> None:
    data, layout = decode_hex(value)
    assert encode_hex(data, layout).lower() == value.lower()
    assert encode_hex(b"\xab", PLAIN_LAYOUT) == "AB"
    with pytest.raises(ValueError, match="hexadecimal"):
        decode_hex("0g")


def test_a_value_beyond_the_limit_is_refused_before_decoding() -> None:
    with pytest.raises(TooLongError):
        decode_base64("A" * (MAX_ENCODED_BYTES + 1))


def test_split_by_lengths() -> None:
    assert split_by_lengths("abcdefg", [2, 2, 2]) == ["ab", "cd", "efg"]
    assert split_by_lengths("abc", [2, 2, 2]) == ["ab", "c", ""]
    assert split_by_lengths("abc", [9]) == ["abc"]

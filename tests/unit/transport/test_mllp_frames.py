"""MLLP blocks: any chunking gives the same messages, and no input exceeds the memory limit."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.transport.mllp.protocol import FrameError, FrameReader, FramingFault, frame, unframe

MOST = 64
PIECES = [b"\x0b", b"\x1c", b"\r", b"\x1c\r", b"MSH|", b"\n", b"a", b"\x0bMSH|^~\\&|a\x1c\r", b"x" * 70]


def read(reader: FrameReader, chunks: list[bytes]) -> tuple[list[bytes], FramingFault | None]:
    """The messages, and the fault that ended it."""
    found: list[bytes] = []
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while (message := reader.next()) is not None:
                found.append(message)
    except FrameError as error:
        return found, error.fault
    return found, None


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunking_gives_the_same_messages_and_fault(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    whole = read(FrameReader(MOST), [data])
    assert read(FrameReader(MOST), cut(data, cuts)) == whole
    assert read(FrameReader(MOST), [bytes([byte]) for byte in data]) == whole


@given(st.lists(st.binary(max_size=MOST), max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_framed_message_is_read_back(messages: list[bytes], cuts: list[int]) -> None:
    sent = [message for message in messages if b"\x1c\r" not in message and b"\x0bMSH" not in message]
    data = b"\r\n".join(frame(message) for message in sent)
    assert read(FrameReader(MOST), cut(data, cuts)) == (sent, None)


def test_a_message_that_holds_the_end_of_a_block_is_not_framed() -> None:
    with pytest.raises(FrameError):
        frame(b"MSH|\x1c\rMSH|")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"GET / HTTP/1.1\r\n", FramingFault.JUNK),
        (b"\x0bMSH|one\x1c\rMSH|", FramingFault.JUNK),
        (b"\x0b" + b"x" * 100, FramingFault.TOO_LARGE),
        (b"\x0b" + b"x" * 65 + b"\x1c\r", FramingFault.TOO_LARGE),
        (b"\x0bMSH|torn\x0bMSH|whole\x1c\r", FramingFault.RESTARTED),
    ],
)
def test_an_invalid_block_ends_the_reader(data: bytes, fault: FramingFault) -> None:
    reader = FrameReader(MOST)
    found, reported = read(reader, [data])
    assert reported is fault
    assert found == ([b"MSH|one"] if b"one" in data else [])
    reader.feed(b"\x0bMSH|late\x1c\r")
    with pytest.raises(FrameError, match=fault):
        reader.next()


def test_a_message_of_exactly_the_maximum_length_passes() -> None:
    assert read(FrameReader(MOST), [b"\x0b", b"x" * MOST, b"\x1c", b"\r"]) == ([b"x" * MOST], None)


def test_a_lone_separator_is_content() -> None:
    body = b"MSH|a\x0bb\x1cc"
    assert read(FrameReader(MOST), [frame(body)]) == ([body], None)


def test_a_message_in_small_pieces_is_searched_once() -> None:
    reader = FrameReader(1 << 20)
    reader.feed(b"\x0b")
    for _ in range(20_000):
        reader.feed(b"x")
        assert reader.next() is None
    assert reader._searched >= 20_000


def test_a_block_can_be_unframed() -> None:
    assert unframe(b"\x0bMSH|\r\x1c\r") == unframe(b"MSH|\r") == b"MSH|\r"


def test_repr_and_errors_show_no_byte() -> None:
    reader = FrameReader(MOST)
    _, fault = read(reader, [b"\x0bOkonkwo" + b"x" * 100])
    assert fault is FramingFault.TOO_LARGE
    assert "Okonkwo" not in repr(reader) + repr(FrameError(fault))

"""Charsets in which a character is one byte or several, without shifts: characters and their bytes."""

import codecs
from array import array


def stateless(raw: bytes, charset: str) -> "tuple[str, array[int], array[int]]":
    """The characters of ``raw`` and where each starts and ends; a bad byte is read as latin-1.

    Byte by byte, because a trail byte may equal an ASCII character, and several codes may mean one character.
    """
    decoder = codecs.getincrementaldecoder(charset)()
    out: list[str] = []
    starts, ends = array("Q"), array("Q")
    at = since = 0
    while at < len(raw):
        try:
            text = decoder.decode(raw[at : at + 1], at + 1 == len(raw))
            at += 1
        except UnicodeDecodeError:
            decoder.reset()
            text, at = raw[since : since + 1].decode("latin-1"), since + 1
        if text:
            out.append(text)
            starts.extend([since] * len(text))
            ends.extend([at] * len(text))
            since = at
    return "".join(out), starts, ends

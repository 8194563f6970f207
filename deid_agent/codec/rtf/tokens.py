r"""RTF bytes as tokens: groups, control words and symbols, raw data, text. Nothing is dropped.

Rich Text Format Specification 1.9.1, "RTF Syntax": a control word ends at a space, which is part of it, or at
anything that is no letter or digit; ``\binN`` is followed by N bytes of anything.
"""

import re
from collections.abc import Iterator
from enum import IntEnum

from deid_agent.errors import MessageError, Reason

MAX_TOKENS = 2_000_000
"""More is no document that anybody reads."""
_PIECE = re.compile(
    rb"([^\\{}\r\n]++)|\\'([0-9A-Fa-f]{2})|\\([A-Za-z]++)(-?[0-9]++)? ?|(\{)|(\})|[\r\n]++|\\(\r\n|.)|(\\)", re.DOTALL
)
_FAR = 10


class Token(IntEnum):
    """What a stretch of bytes is."""

    TEXT = 1
    BYTE = 2  # \'hh
    WORD = 3
    OPEN = 4
    CLOSE = 5
    SYMBOL = 6  # a backslash and one other sign
    BREAK = 7  # line breaks of the file, which mean nothing
    DATA = 8  # what follows \binN


_KINDS = (
    Token.BREAK, Token.TEXT, Token.BYTE, Token.WORD, Token.WORD, Token.OPEN, Token.CLOSE, Token.SYMBOL, Token.SYMBOL,
)  # fmt: skip
"""By the last group of ``_PIECE`` that took part."""
_WORDS = (0, 0, 2, 3, 3, 0, 0, 7, 0)

Piece = tuple[Token, int, int, bytes, int | None]
"""Kind, start, end, the word (or symbol, or hexadecimal digits), and the number behind a word."""


def tokens(raw: bytes) -> Iterator[Piece]:
    """Every byte of ``raw`` in exactly one token, in order.

    Raises ``MessageError``: MALFORMED for ``\\bin`` past the end, RESOURCE past ``MAX_TOKENS``.
    """
    at = count = 0
    while at < len(raw):
        for found in _PIECE.finditer(raw, at):
            count += 1
            if count > MAX_TOKENS:
                raise MessageError(Reason.RESOURCE, f"byte {found.start()}", f"more than {MAX_TOKENS} tokens")
            start, at = found.span()
            which = found.lastindex or 0
            word = found[_WORDS[which]] if _WORDS[which] else b""
            number = int(found[4][:_FAR]) if which == 4 else None
            yield _KINDS[which], start, at, word, number
            if word == b"bin" and number and which == 4:
                start, at = at, at + number
                if not start < at <= len(raw):
                    raise MessageError(Reason.MALFORMED, f"byte {start}", "binary data longer than the file")
                yield Token.DATA, start, at, b"", None
                break

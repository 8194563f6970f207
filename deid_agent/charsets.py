"""Text that must go back into the charset it came from."""

import unicodedata

_LOOKALIKES = str.maketrans(
    {
        "ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d",
        "Ð": "D", "þ": "th", "Þ": "Th", "œ": "oe", "Œ": "OE", "ı": "i", "‘": "'", "’": "'", "“": '"', "”": '"',
        "–": "-", "—": "-", "‑": "-", "…": "...", "\u00a0": " ",
    }
)  # fmt: skip


def encode(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; what that can't hold becomes an ASCII look-alike, at worst ``?``."""
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        return "".join(c if _fits(c, charset) else _lookalike(c) for c in text).encode(charset)


def _lookalike(char: str) -> str:
    flat = unicodedata.normalize("NFKD", char).translate(_LOOKALIKES)
    return flat.encode("ascii", "ignore").decode("ascii") or ("" if unicodedata.combining(char) else "?")


def _fits(char: str, charset: str) -> bool:
    try:
        char.encode(charset)
    except UnicodeEncodeError:
        return False
    return True

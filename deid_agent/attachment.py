"""Embedded documents that are plain text: which data read as text, and in which charset.

What a document is is decided by its content. Its label (a media type) can only make that stricter.
"""

import codecs
import re
from dataclasses import dataclass, field

from deid_agent import charsets

NOTICE = b"[attachment removed: its format cannot be searched for identifiers]"
"""What stands in place of an attachment that cannot be read."""

_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_TEXT_APPLICATIONS = frozenset(
    {
        "application/xml", "application/xhtml+xml", "application/json", "application/hl7-v2", "application/text",
        "application/fhir+json", "application/json+fhir", "application/hl7-v2+er7",
    }
)  # fmt: skip
_MISLABELLED = ("image/", "audio/", "video/", "application/pdf", "application/rtf", "application/dicom")
_MISLABELLED_WORD = ("application/msword", "application/vnd.openxmlformats")
_MAGIC = (
    b"{\\rtf", b"%PDF", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*",
    b"RIFF", b"OggS", b"\xd0\xcf\x11\xe0", b"%!PS", b"MIME-Version:", b"-----BEGIN ",
)  # fmt: skip
"""First bytes of formats that are no text, or text that hides something else. RTF and PDF have readers of their own."""
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_READABLE = re.compile(
    r"ascii|utf-(?:8(?:-sig)?|16(?:-[lb]e)?|32(?:-[lb]e)?)|iso8859-\d{1,2}|latin-?1|cp\d{3,5}|koi8-[rtu]|mac-\w+"
    r"|shift_jis(?:_2004|x0213)?|euc_(?:jp|kr|jis_2004|jisx0213)|gb2312|gbk|gb18030|big5(?:hkscs)?|johab|tis-620"
    r"|iso2022_(?:jp|kr)\w*"
)
"""Charsets in which a letter is a letter. Not UTF-7, HZ or Python's own escapes: there ASCII hides other text."""
_ONE_BYTE = re.compile(r"iso8859|latin|cp1|mac|koi8|ascii")
_WORD = re.compile(r"[A-Za-z0-9+/_-]{256,}")
_LINES = re.compile(r"(?:^[ \t>]*[A-Za-z0-9+/_-]{40,}={0,2}[ \t]*\r?\n){4,}", re.MULTILINE)
_UUENCODE = re.compile(r"^begin(?:-base64)? [0-7]{3,4} \S", re.MULTILINE)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:]{0,2}){200,}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, and what gives its bytes back: ``mark + text.encode(charset)``."""

    text: str = field(repr=False)
    charset: str
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """An edited text in the same charset; what it can't hold becomes a look-alike, what was there stays."""
        return self.mark + charsets.encode(text, self.charset)


def reads_as_text(content_type: str, data: bytes) -> bool:
    """True for data that are text all through, and whose label does not stand for an unknown format.

    False for data with control characters whatever the label says (a mislabelled image must not pass), for text
    that only carries something else (base64, hexadecimal, uuencoded), and for labels that nobody here knows.
    """
    media = content_type.split(";", maxsplit=1)[0].strip().lower()
    known = not media or media.startswith("text/") or media in _TEXT_APPLICATIONS
    mislabelled = media.startswith((*_MISLABELLED, *_MISLABELLED_WORD)) or media == "text/rtf"
    if not (known or mislabelled) or data.lstrip()[:64].startswith(_MAGIC):
        return False
    decoded = decode_text(data, content_type)
    if decoded is None or any(c < " " and c not in "\t\n\r\f\v" for c in set(decoded.text)):
        return False
    # Under another label only what says itself that it is text: an image's bytes may decode in a one-byte charset.
    if mislabelled and (decoded.charset not in {"ascii", "utf-8"} or "<svg" in decoded.text.lower()):
        return False
    return not carries_data(decoded.text)


def decode_text(data: bytes, content_type: str) -> Decoded | None:
    """The text of ``data``: by its byte order mark, else as declared, else UTF-8, else the Western one-byte charsets.

    None where a charset is declared in which no name can be found (UTF-7). ``encode`` of the text as it is gives
    the same bytes again.
    """
    for mark, charset in _BOMS:
        if data.startswith(mark) and (text := _exact(data[len(mark) :], charset)) is not None:
            return Decoded(text, charset, mark)
    names = []
    if declared := _CHARSET.search(content_type):
        name = _known(declared[1])
        if name is None:
            return None
        names.append(name)
    # Senders that declare a one-byte charset and send UTF-8 are common; the reverse never reads as UTF-8 by chance.
    if not any(_ONE_BYTE.match(name) for name in names):
        names.append("utf-8")
    else:
        names.insert(0, "utf-8")
    for charset in dict.fromkeys([*names, "cp1252"]):
        if charset and (text := _exact(data, charset)) is not None:
            return Decoded(text, charset)
    return Decoded(data.decode("latin-1"), "latin-1")


def carries_data(text: str) -> bool:
    """True where a text holds bytes in letters: a document within the document that nobody would read."""
    if any(_is_mixed(found[0]) for found in _WORD.finditer(text)) or _UUENCODE.search(text):
        return True
    return any(_is_mixed(found[0]) for found in _LINES.finditer(text)) or _HEX.search(text) is not None


def _is_mixed(word: str) -> bool:
    """Base64 has small and capital letters and digits; a rule of dashes or a gene has not."""
    return any("a" <= c <= "z" for c in word) and any("A" <= c <= "Z" for c in word) and any(c.isdigit() for c in word)


def _exact(data: bytes, charset: str) -> str | None:
    try:
        text = data.decode(charset)
        return text if text.encode(charset) == data else None
    except UnicodeError:
        return None


def _known(name: str) -> str | None:
    """Python's name of a charset; empty for a name that nobody knows, None for one that may hide text."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return ""
    return found if _READABLE.fullmatch(found) else None

"""Attachments that are plain text: detecting and decoding them, and writing any attachment back into its message.

The content of an attachment decides how it is read. Its label (a media type) can only make that stricter.
"""

import binascii
import codecs
import gzip
import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from deid_agent.codec import encode_text, is_western, rewrite_string
from deid_agent.model import (
    Attachment,
    Edit,
    LeafRole,
    Message,
    MessageError,
    Narrative,
    Reason,
    encode_base64,
    encode_hex,
    split_by_lengths,
)

NOTICE = b"[attachment removed: its format cannot be searched for identifiers]"
"""Replaces an attachment that cannot be read."""

_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_TEXT_APPLICATIONS = frozenset(
    {
        "application/xml", "application/xhtml+xml", "application/json", "application/hl7-v2", "application/text",
        "application/fhir+json", "application/json+fhir", "application/fhir+xml", "application/xml+fhir",
        "application/hl7-v2+er7",
    }
)  # fmt: skip
_MISLABELLED = (
    "image/", "audio/", "video/", "application/pdf", "application/rtf", "application/dicom", "application/msword",
    "application/vnd.openxmlformats",
)  # fmt: skip
"""Labels of other formats that senders put on plain text."""
_MAGIC = (
    b"{\\rtf", b"%PDF", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*",
    b"RIFF", b"OggS", b"\xd0\xcf\x11\xe0", b"%!PS", b"MIME-Version:", b"-----BEGIN ",
)  # fmt: skip
"""First bytes of formats that are not text, or are text that hides other data. RTF and PDF have their own readers."""
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_READABLE_CHARSETS = re.compile(
    r"ascii|utf-(?:8(?:-sig)?|16(?:-[lb]e)?|32(?:-[lb]e)?)|iso8859-\d{1,2}|latin-?1|cp\d{3,5}|koi8-[rtu]|mac-\w+"
    r"|shift_jis(?:_2004|x0213)?|euc_(?:jp|kr|jis_2004|jisx0213)|gb2312|gbk|gb18030|big5(?:hkscs)?|johab|tis-620"
    r"|iso2022_(?:jp|kr)\w*"
)
"""Charsets without hidden text. In UTF-7, HZ and Python's own escapes, ASCII letters stand for other characters."""
_ONE_BYTE_CHARSETS = re.compile(r"iso8859|latin|cp1|mac|koi8|ascii")
_WESTERN_CHARSETS = frozenset({"cp1252", "latin-1", "iso8859-1", "iso8859-15"})
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_MARKUP = re.compile(r"<[A-Za-z!/?]|&(?:#[0-9Xx]|[A-Za-z])[0-9A-Za-z]*;")
"""A tag or a character reference."""
_CDA_ELEMENT = re.compile(rb"urn:hl7-org|<(?:text|templateId|component|entry|author|subject|informant)[\s/>]")
_ANCHORS = frozenset({"id", "for", "form", "headers", "target", "usemap"})
"""Attributes that name an element of a page, and so may name a person."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAME_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"[0-9A-Za-z]+(?:[-./ ][0-9A-Za-z]+)*")
_COLOR = re.compile(r"\s*#[0-9A-Fa-f]{3,8}\s*")
_LEAST_NAME, _LEAST_NUMBER, _LEAST_DIGITS = 4, 6, 4
_LONG_WORD = re.compile(r"[A-Za-z0-9+/_-]{256,}")
_ENCODED_LINES = re.compile(r"(?:^[ \t>]*[A-Za-z0-9+/_-]{40,}={0,2}[ \t]*\r?\n){4,}", re.MULTILINE)
_UUENCODE = re.compile(r"^begin(?:-base64)? [0-7]{3,4} \S", re.MULTILINE)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:]{0,2}){200,}")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of an attachment. ``mark + text.encode(charset)`` are its bytes; ``mark`` is a byte order mark."""

    text: str = field(repr=False)
    charset: str
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """An edited text in the same charset. A character that the charset lacks becomes a similar one."""
        return self.mark + encode_text(text, self.charset)


def is_readable_text(content_type: str, data: bytes) -> bool:
    """True for data that are text throughout and have no label of an unknown format.

    False for data with control characters under any label (a mislabelled image must not pass), for text that only
    carries other data (base64, hexadecimal, uuencode), and for an unknown label.
    """
    media = content_type.split(";", maxsplit=1)[0].strip().lower()
    known = not media or media.startswith("text/") or media in _TEXT_APPLICATIONS
    mislabelled = media.startswith(_MISLABELLED) or media == "text/rtf"
    if not (known or mislabelled) or data.lstrip()[:64].startswith(_MAGIC):
        return False
    decoded = decode_text(data, content_type)
    if decoded is None or any(c < " " and c not in "\t\n\r\f\v" for c in set(decoded.text)):
        return False
    if decoded.charset in _WESTERN_CHARSETS and not is_western(decoded.text):
        return False
    # Under the label of another format only ASCII and UTF-8 count: any image decodes in a one-byte charset.
    if mislabelled and (decoded.charset not in {"ascii", "utf-8"} or "<svg" in decoded.text.lower()):
        return False
    return not contains_encoded_data(decoded.text)


def is_fragment(content_type: str, data: bytes) -> bool:
    """True for a text that is labelled as HTML and has markup, although it does not begin like a page.

    Read as plain text, a name with a character reference or a tag in it would be found in part.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media not in _HTML or not is_readable_text(content_type, data):
        return False
    decoded = decode_text(data, content_type)
    # HTML is read in the charset that it declares itself, so a label with another one decides as for plain text.
    known = decoded is not None and decoded.charset in {"ascii", "utf-8", *_WESTERN_CHARSETS}
    return known and decoded is not None and _MARKUP.search(decoded.text) is not None


def is_html_section(data: bytes) -> bool:
    """True for a ``section`` without an element of CDA: HTML has one of that name too."""
    return data.lstrip().startswith(b"<section") and _CDA_ELEMENT.search(data) is None


def decode_text(data: bytes, content_type: str) -> DecodedText | None:
    """Decode ``data`` by its byte order mark, the declared charset, UTF-8, or a Western one-byte charset.

    Returns None if the declared charset hides text from recognizers (UTF-7). ``encode`` of the unchanged text returns
    the same bytes.
    """
    for mark, charset in _BOMS:
        if data.startswith(mark) and (text := _decode_exactly(data[len(mark) :], charset)) is not None:
            return DecodedText(text, charset, mark)
    names = []
    if declared := _CHARSET.search(content_type):
        name = _python_charset(declared[1])
        if name is None:
            return None
        names.append(name)
    # Many senders declare a one-byte charset and send UTF-8. Text in a one-byte charset does not decode as UTF-8.
    if not any(_ONE_BYTE_CHARSETS.match(name) for name in names):
        names.append("utf-8")
    else:
        names.insert(0, "utf-8")
    for charset in dict.fromkeys([*names, "cp1252"]):
        if charset and (text := _decode_exactly(data, charset)) is not None:
            return DecodedText(text, charset)
    return DecodedText(data.decode("latin-1"), "latin-1")


def contains_encoded_data(text: str) -> bool:
    """True if a text contains encoded bytes: a document inside it that no recognizer would read."""
    if any(_looks_like_base64(found[0]) for found in _LONG_WORD.finditer(text)) or _UUENCODE.search(text):
        return True
    return any(_looks_like_base64(found[0]) for found in _ENCODED_LINES.finditer(text)) or _HEX.search(text) is not None


def _looks_like_base64(word: str) -> bool:
    """True for small and capital letters and digits; a line of dashes or a gene sequence lacks one of them."""
    return any("a" <= c <= "z" for c in word) and any("A" <= c <= "Z" for c in word) and any(c.isdigit() for c in word)


def _decode_exactly(data: bytes, charset: str) -> str | None:
    """The text of ``data``; None if the charset does not give the same bytes back."""
    try:
        text = data.decode(charset)
        return text if text.encode(charset) == data else None
    except UnicodeError:
        return None


def _python_charset(name: str) -> str | None:
    """Python's name of a charset. Empty for an unknown name, None for a charset that may hide text."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return ""
    return found if _READABLE_CHARSETS.fullmatch(found) else None


def check_attributes(leaves: Iterable[Narrative], found: Collection[tuple[bool, str]]) -> None:
    """Raises ``MessageError(LEAK)`` if a kept attribute of a page has a value that was found in its text.

    ``found`` are names (true) and others. A class or a style may have one word of a name (``brown``), so there only two
    words of it count.
    """
    names = [parts for is_name, text in found if is_name and (parts := _split_words(text))]
    numbers = {key for is_name, text in found if not is_name for key in _number_keys(text)}
    single = {part for parts in names for part in parts if len(part) >= _LEAST_NAME}
    several: dict[str, list[frozenset[str]]] = {}
    for parts in names:
        for part in parts if len(parts) > 1 else ():
            several.setdefault(part, []).append(parts)
    kept = [leaf for leaf in leaves if leaf.role is LeafRole.KEY] if names or numbers else []
    # Most attributes of a page have one of few values.
    distinct = {
        (leaf.path.rpartition("@")[2] in _ANCHORS, text): leaf
        for leaf in kept
        if not _COLOR.fullmatch(text := leaf.mapped.text)
    }
    for (is_anchor, text), leaf in distinct.items():
        words = _split_words(text)
        named = is_anchor and not single.isdisjoint(words)
        spelled = any(parts <= words for word in words & several.keys() for parts in several[word])
        if named or spelled or not numbers.isdisjoint(_number_keys(text)):
            raise MessageError(Reason.LEAK, leaf.path, "a name or number of the page remains here")


def _split_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _NAME_WORD.findall(_HUMP.sub(" ", text)))


def _number_keys(text: str) -> Iterable[str]:
    """The numbers of a text, with and without the letters around them; short ones are not of one person."""
    for found in _NUMBER.findall(text):
        flat = re.sub(r"[^0-9A-Za-z]", "", found).casefold()
        for each in (flat, *re.findall(r"\d+", flat)):
            if len(each) >= _LEAST_NUMBER and sum(map(str.isdigit, each)) >= _LEAST_DIGITS:
                yield each


# Writing an attachment back


def prefix_error(attachment: Attachment, problem: MessageError) -> MessageError:
    """The same error, with the path of the attachment before the path inside it."""
    return MessageError(problem.reason, f"{attachment.path}/{problem.where}", problem.detail)


def write_attachment(attachment: Attachment, data: bytes, message: Message) -> Iterable[Edit]:
    """The edits that write ``data`` in the original encoding and line layout over the original ranges."""
    ranges = ((attachment.start, attachment.end), *attachment.parts)
    match attachment.encoding:
        case "json" | "raw":
            yield Edit(attachment.start, attachment.end, data)
            return
        case "gzip":
            yield Edit(attachment.start, attachment.end, _compress(data))
            return
        case "string":
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:  # written in the charset that the message declares, inside a JSON string
                detail = "a message in a string must declare UTF-8 as its charset"
                raise MessageError(Reason.UNSUPPORTED, attachment.path, detail) from None
            yield from (Edit(*each) for each in rewrite_string(message.raw, attachment, text, message.encode))
            return
        case "base64+gzip":
            text = encode_base64(_compress(data), attachment.layout)
        case "hex":
            text = encode_hex(data, attachment.layout)
        case "text":
            text = data.decode("utf-8", "replace")
        case _:
            text = encode_base64(data, attachment.layout)
    whole = attachment.encoding == "text"
    pieces = [text] + [""] * len(attachment.parts) if whole else split_by_lengths(text, [b - a for a, b in ranges])
    for (start, end), piece in zip(ranges, pieces, strict=True):
        yield Edit(start, end, message.encode(piece))


def _compress(data: bytes) -> bytes:
    """``data`` in gzip without a time, so that the same message gives the same bytes."""
    return gzip.compress(data, mtime=0)


def update_siblings(attachment: Attachment, data: bytes, media: bytes, message: Message) -> Iterable[Edit]:
    """The edits that update size, hash and media type (FHIR Attachment.hash is the base64 form of SHA-1).

    An empty ``media`` keeps the media type.
    """
    if attachment.size:
        yield Edit(*attachment.size, message.encode(str(len(data))))
    if attachment.digest:
        sha1 = hashlib.sha1(data, usedforsecurity=False).digest()
        yield Edit(*attachment.digest, message.encode(binascii.b2a_base64(sha1, newline=False).decode()))
    for label in (attachment.media, *attachment.labels) if media else ():
        if label:
            yield Edit(*label, media)

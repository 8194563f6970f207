"""Embedded documents as text: what can be read, and in which charset.

A later format (C-CDA, RTF, PDF) joins as a codec of its own; this module
knows plain text only and says no to everything else.
"""

import re

NOTICE = b"[attachment removed: its format cannot be searched for identifiers]"
"""What stands in place of an attachment that cannot be read."""

_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_TEXT_APPLICATIONS = frozenset(
    {"application/xml", "application/xhtml+xml", "application/json", "application/hl7-v2", "application/text"}
)


def reads_as_text(content_type: str, data: bytes) -> bool:
    """True for textual media types, and for data without a type that decodes as text.

    Data with control characters never read as text, whatever their type says: a mislabelled image must not pass.
    """
    media = content_type.split(";", maxsplit=1)[0].strip().lower()
    textual = not media or media.startswith("text/") or media in _TEXT_APPLICATIONS
    if not textual or media == "text/rtf" or data.startswith((b"{\\rtf", b"%PDF")):
        return False
    return not _has_controls(data, media)


def decode_text(data: bytes, content_type: str) -> tuple[str, str]:
    """The text and the charset that gives the same bytes back: declared, else UTF-8, else latin-1."""
    declared = _CHARSET.search(content_type)
    for charset in ([declared[1]] if declared else []) + ["utf-8"]:
        try:
            text = data.decode(charset)
            if text.encode(charset) == data:
                return text, charset
        except (LookupError, UnicodeError):
            continue
    return data.decode("latin-1"), "latin-1"


def _has_controls(data: bytes, media: str) -> bool:
    text, _ = decode_text(data, media)
    return any(c < " " and c not in "\t\n\r\f\v" for c in text)

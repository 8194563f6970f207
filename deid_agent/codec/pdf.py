"""The text layer of a PDF.

ISO 32000-1, 9.10 (extraction of text). Only text is extracted: no pictures, annotations, forms or metadata.
All limits are counts, so that a file gives the same result on every machine.
"""

import io
import logging
import re
import struct
import unicodedata
import zlib
from collections.abc import Mapping

from deid_agent.model import MessageError, Reason

MAX_PAGES = 500
MAX_CHARACTERS = 2_000_000
MAX_OPERATIONS = 400_000
_MAX_STREAM = 8_000_000
_NUMBERED = re.compile(r"/?(?:[A-Za-z]{1,6}[_.]?)?\d{1,5}")
_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""The exceptions that pypdf raises for broken files, besides its own; it has no common class for them."""


class _UnreadableError(Exception):
    """The text is encrypted, or drawn in glyphs without a known character."""


class _TooMuchError(Exception):
    """A limit of this module is exceeded."""


def is_pdf(data: bytes) -> bool:
    """True if a PDF header starts within the first kilobyte, as PDF readers accept it."""
    return b"%PDF-" in data[:1024]


def read_pdf_text(data: bytes, where: str) -> str | None:
    """The text of all pages; None if the file has no text that can be trusted.

    That is so if the file is encrypted or damaged, has only pictures, or has glyphs without a known character. (A font
    without a character map gives letters, but wrong ones, and a name in them would pass unrecognized.)
    ``where`` is the path of the attachment, for errors. Raises ``MessageError(RESOURCE)`` past a limit.
    """
    # Imported here: the import takes as long as the rest of this package, and few messages contain a PDF.
    from pypdf import apply_configuration  # noqa: PLC0415
    from pypdf.errors import DependencyError, DeprecationError, LimitReachedError, PyPdfError  # noqa: PLC0415

    # pypdf quotes the file in its warnings; no part of a message may reach a log.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)
    try:
        with apply_configuration(
            maximum_declared_stream_length=_MAX_STREAM * 8,
            zlib_maximum_output_length=_MAX_STREAM,
            lzw_maximum_output_length=_MAX_STREAM,
            run_length_maximum_output_length=_MAX_STREAM,
            brotli_maximum_output_length=_MAX_STREAM,
            array_based_stream_maximum_output_length=_MAX_STREAM,
            stream_decoding_work_maximum_length=4 * _MAX_STREAM,
            stream_parsing_work_maximum_count=MAX_OPERATIONS,
            page_tree_maximum_entries=4 * MAX_PAGES,
            xform_maximum_invocations_per_extraction=200,
            jbig2dec_binary=None,
            disable_legacy_handling=True,
        ):
            found = _extract_pages(data)
    except (LimitReachedError, _TooMuchError, MemoryError, RecursionError):
        raise MessageError(Reason.RESOURCE, where, "the PDF takes too much to read") from None
    except (_UnreadableError, PyPdfError, DependencyError, DeprecationError, *_FAULTS):
        return None
    return found if _is_prose(found) else None


def _extract_pages(data: bytes) -> str:
    from pypdf import PdfReader  # noqa: PLC0415

    reader = PdfReader(
        io.BytesIO(data), strict=False, root_object_recovery_limit=1000, xref_stream_maximum_entries=200_000
    )
    if reader.is_encrypted:
        raise _UnreadableError
    if len(reader.pages) > MAX_PAGES:
        raise _TooMuchError
    budget = _Budget()
    pages: list[str] = []
    for page in reader.pages:
        contents = page.get_contents()
        budget.spend(len(contents.get_data()) // 20 if contents is not None else 0)
        words = page.extract_text(visitor_operand_before=budget.visit_operation, visitor_text=budget.visit_text)
        budget.add_characters(words)
        pages.append("".join(c if c >= " " or c == "\n" else " " for c in words).strip())
    return "\n\n".join(page for page in pages if page)


class _Budget:
    """Counts the operations and characters of an extraction, and checks every font that draws text."""

    def __init__(self) -> None:
        self._spent = self._characters = 0
        self._fonts: dict[int, tuple[object, bool]] = {}

    def spend(self, operations: int) -> None:
        self._spent += operations
        if self._spent > MAX_OPERATIONS:
            raise _TooMuchError

    def add_characters(self, words: str) -> None:
        self._characters += len(words)
        if self._characters > MAX_CHARACTERS:
            raise _TooMuchError

    def visit_operation(self, *_: object) -> None:
        self.spend(1)

    def visit_text(self, words: str, _user: object, _matrix: object, font: object, _size: object) -> None:
        if not words.strip():
            return
        known = self._fonts.get(id(font))
        if known is None:  # the reference to the font keeps its id() unique
            known = self._fonts[id(font)] = (font, isinstance(font, Mapping) and _has_characters(font))
        if not known[1]:
            raise _UnreadableError


def _has_characters(font: Mapping[str, object]) -> bool:
    """True if the codes of a font map to characters: by its own map or by a standard encoding."""
    if _at(font, "/ToUnicode") is not None:
        return True
    if _at(font, "/Subtype") == "/Type0":
        return False
    encoding = _at(font, "/Encoding")
    differences = _at(encoding, "/Differences") if isinstance(encoding, Mapping) else None
    if isinstance(differences, list):
        names = [str(name) for name in differences if isinstance(name, str)]
        return sum(_NUMBERED.fullmatch(name) is not None for name in names) * 4 <= len(names)
    if encoding is not None:
        return True
    descriptor = _at(font, "/FontDescriptor")
    embedded = isinstance(descriptor, Mapping) and any(
        _at(descriptor, name) is not None for name in ("/FontFile", "/FontFile2", "/FontFile3")
    )
    return not embedded


def _at(mapping: object, key: str) -> object:
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    resolve = getattr(value, "get_object", None)
    return resolve() if resolve is not None else value


def _is_prose(found: str) -> bool:
    """False for text that no recognizer can read: none at all, unassigned characters, or mostly single letters."""
    if not any(c.isalnum() for c in found):
        return False
    odd = sum(unicodedata.category(c) in {"Co", "Cn", "Cs"} or c == "\ufffd" for c in found)
    words = found.split()
    single = sum(len(word) == 1 and word.isalpha() for word in words)
    return odd * 50 <= len(found) and (len(words) < 20 or single * 2 <= len(words))

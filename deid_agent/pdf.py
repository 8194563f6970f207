"""The text layer of a PDF, or nothing.

ISO 32000-1, 9.10 (extraction of text). Nothing but text leaves: no picture, annotation, form or metadata.
All limits are counts, so that one file has one answer on every machine.
"""

import io
import logging
import re
import struct
import unicodedata
import zlib
from collections.abc import Mapping

from pypdf import PdfReader, apply_configuration
from pypdf.errors import DependencyError, DeprecationError, LimitReachedError, PyPdfError

from deid_agent.errors import MessageError, Reason

MAX_PAGES = 500
MAX_CHARACTERS = 2_000_000
MAX_OPERATIONS = 400_000
_MAX_STREAM = 8_000_000
_NUMBERED = re.compile(r"/?(?:[A-Za-z]{1,6}[_.]?)?\d{1,5}")
_FAULTS = (
    PyPdfError,
    DependencyError,
    DeprecationError,
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
"""What pypdf raises on files that are broken: it has no one exception for that."""


class _UnreadableError(Exception):
    """The text is drawn in glyphs that nobody can name."""


class _TooMuchError(Exception):
    """A limit of this module."""


def detect(data: bytes) -> bool:
    """True where a PDF starts within the first kilobyte, as readers accept it."""
    return b"%PDF-" in data[:1024]


def text(data: bytes, where: str) -> str | None:
    """The text of all pages; None where there is none that can be trusted.

    None: encrypted, damaged, pictures only, or glyphs without a meaning (a font without a character map gives
    letters, but the wrong ones, and a name in them would pass unseen). Raises ``MessageError(RESOURCE)`` past a limit.
    """
    # pypdf quotes the file in its warnings; nothing of a message may reach a log.
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
            found = _pages(data)
    except (LimitReachedError, _TooMuchError, MemoryError, RecursionError):
        raise MessageError(Reason.RESOURCE, where, "the PDF takes too much to read") from None
    except (_UnreadableError, *_FAULTS):
        return None
    return found if _is_prose(found) else None


def _pages(data: bytes) -> str:
    reader = PdfReader(
        io.BytesIO(data), strict=False, root_object_recovery_limit=1000, xref_stream_maximum_entries=200_000
    )
    if reader.is_encrypted:
        raise _UnreadableError
    if len(reader.pages) > MAX_PAGES:
        raise _TooMuchError
    watch = _Watch()
    pages: list[str] = []
    for page in reader.pages:
        contents = page.get_contents()
        watch.spend(len(contents.get_data()) // 20 if contents is not None else 0)
        words = page.extract_text(visitor_operand_before=watch.operation, visitor_text=watch.words)
        watch.read(words)
        pages.append("".join(c if c >= " " or c == "\n" else " " for c in words).strip())
    return "\n\n".join(page for page in pages if page)


class _Watch:
    """Counts what an extraction costs, and looks at every font that draws something."""

    def __init__(self) -> None:
        self._spent = self._characters = 0
        self._fonts: dict[int, tuple[object, bool]] = {}

    def spend(self, operations: int) -> None:
        self._spent += operations
        if self._spent > MAX_OPERATIONS:
            raise _TooMuchError

    def read(self, words: str) -> None:
        self._characters += len(words)
        if self._characters > MAX_CHARACTERS:
            raise _TooMuchError

    def operation(self, *_: object) -> None:
        self.spend(1)

    def words(self, words: str, _user: object, _matrix: object, font: object, _size: object) -> None:
        if not words.strip():
            return
        known = self._fonts.get(id(font))
        if known is None:  # the font is kept, so that its id stays its own
            known = self._fonts[id(font)] = (font, isinstance(font, Mapping) and _has_meaning(font))
        if not known[1]:
            raise _UnreadableError


def _has_meaning(font: Mapping[str, object]) -> bool:
    """True where the codes of a font are characters: by its own map, or by an encoding that everybody knows."""
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
    """False for what no recognizer could read: nothing, signs without a meaning, or every letter set apart."""
    if not any(c.isalnum() for c in found):
        return False
    odd = sum(unicodedata.category(c) in {"Co", "Cn", "Cs"} or c == "\ufffd" for c in found)
    words = found.split()
    single = sum(len(word) == 1 and word.isalpha() for word in words)
    return odd * 50 <= len(found) and (len(words) < 20 or single * 2 <= len(words))

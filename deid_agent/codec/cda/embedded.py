"""Documents inside of a C-CDA document: the data type ED in ``nonXMLBody/text``, ``observationMedia/value`` and others.

Source: HL7 v3 data types, ED (mediaType, representation, compression, integrityCheck).
"""

import re

from deid_agent import armor
from deid_agent.codec.cda.sink import Frame, Sink
from deid_agent.codec.markup.charset import View
from deid_agent.codec.markup.reading import value_of
from deid_agent.codec.markup.xml import Part, Token
from deid_agent.errors import MessageError, Reason
from deid_agent.sites import Attachment

UNKNOWN = "application/octet-stream"
_PLAIN = frozenset({"", "text/plain", "text/x-hl7-text+xml"})
_SPACE = re.compile(r"\s+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_DROPPED = re.compile(r"""\s+(?:compression|integrityCheckAlgorithm|integrityCheck)\s*=\s*(?:"[^"]*"|'[^']*')""")
_BETWEEN = re.compile(
    r"""(?:\s+(?:representation|language|charset|integrityCheckAlgorithm|integrityCheck)\s*=\s*"""
    r"""(?:"[!#-%'-~]*"|'[!-%(-~]*'))*\s+compression\s*=\s*["']"""
)


def is_document(frame: Frame) -> bool:
    """True where the content is encoded, compressed or of another media type than text."""
    media = frame.value("mediaType").strip().lower()
    encoded = frame.value("representation").strip().upper() == "B64" or bool(frame.value("compression").strip())
    return (encoded or media not in _PLAIN) and frame.name != "signatureText"


def take(frame: Frame, sink: Sink, *, leaves: bool) -> bool:
    """The attachment of an element that has ended. False where its content is text after all."""
    text = sink.view.text
    runs = [run for run in frame.runs or () if not text[run.first : run.last].isspace()]
    encoded = bool(frame.value("compression").strip()) or frame.value("representation").strip().upper() == "B64"
    dense = _SPACE.sub("", "".join(text[run.first : run.last] for run in runs))
    encoded = encoded or (len(dense) % 4 == 0 and _BASE64.fullmatch(dense) is not None)
    if runs and not encoded and (len(runs) > 1 or frame.mixed):
        return False
    if runs and not leaves:
        sink.attachments.append(_encoded(frame, sink, runs, dense) if encoded else _inline(frame, sink, runs[0]))
    return True


def _inline(frame: Frame, sink: Sink, run: Token) -> Attachment:
    """A document in its own words, escaped or in a CDATA section; written over with its marks."""
    view = sink.view
    inner = view.text[run.first : run.last]
    if run.part is not Part.CDATA:
        inner = value_of(inner, view.starts, view.ends, offset=run.first).text
    data = inner.encode("utf-8", "replace")
    media, plain = _media(frame, sink)
    kind = frame.value("mediaType").strip()
    return Attachment(frame.path, *view.span(run.start, run.end), kind, "text", data, media=media, plain=plain)


def _encoded(frame: Frame, sink: Sink, runs: list[Token], dense: str) -> Attachment:
    """A document in base64. What does not decode, or is compressed, is handed on as nobody's format: never as text."""
    view = sink.view
    packed = bool(frame.value("compression").strip())
    kind = frame.value("mediaType").strip()
    spans = [_core(view, run) for run in runs]
    layout = armor.PLAIN
    try:
        data, layout = armor.read(
            view.text[slice(*spans[0])] if len(runs) == 1 and runs[0].part is Part.TEXT else dense
        )
    except armor.TooLongError:
        raise MessageError(Reason.RESOURCE, frame.path, "an attachment is too long") from None
    except ValueError:
        data, kind = dense.encode("utf-8", "replace"), UNKNOWN
    media, plain = _media(frame, sink)
    check = frame.attributes.get("integrityCheck")
    by_sha1 = frame.value("integrityCheckAlgorithm") in {"", "SHA-1"}
    digest = view.span(check.start, check.end) if check and _is_code(check.value) and by_sha1 and not packed else None
    kind = UNKNOWN if packed else kind
    span, *parts = (view.span(*each) for each in spans)
    return Attachment(
        frame.path,
        *span,
        kind,
        "base64",
        data,
        digest=digest,
        media=media,
        plain=plain,
        parts=tuple(parts),
        armor=layout,
    )


def _core(view: View, run: Token) -> tuple[int, int]:
    """Where a run starts and ends: without white space, a CDATA section with its marks."""
    if run.part is Part.CDATA:
        return run.start, run.end
    text = view.text[run.first : run.last]
    return run.last - len(text.lstrip()), run.first + len(text.rstrip())


def _media(frame: Frame, sink: Sink) -> tuple[tuple[int, int] | None, bytes]:
    """The bytes to be written over where a notice takes the place of the data, and what goes there.

    They reach from the media type to the compression, because a notice is not compressed.
    """
    media, packed = frame.attributes.get("mediaType"), frame.attributes.get("compression")
    view, plain = sink.view, "text/plain"
    if media is None or not _is_code(media.value):
        return None, plain.encode(view.charset)
    first, last = media.start, media.end
    if (
        packed
        and _is_code(packed.value)
        and packed.start > last
        and _BETWEEN.fullmatch(view.text[last + 1 : packed.start])
    ):
        last = packed.end + 1
        plain += _DROPPED.sub("", view.text[media.end : last])
    return view.span(first, last), plain.encode(view.charset, "xmlcharrefreplace")


def _is_code(value: str) -> bool:
    """True for what the walk takes for a code, and offers to nobody."""
    return value != "" and value.isascii() and not any(c.isspace() or c == "&" for c in value)

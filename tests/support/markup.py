"""Helpers for the tests of the markup codecs."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from xml.parsers import expat

from support.edits import apply

from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.html import HtmlCodec
from deid_agent.codec.markup.document import MarkupMessage
from deid_agent.model.sites import Edit, Message
from deid_agent.model.spans import Replacement

RULES = Path(__file__).resolve().parents[2] / "rules"


@lru_cache(maxsize=1)
def cda() -> CdaCodec:
    return CdaCodec(RULES)


@lru_cache(maxsize=1)
def html() -> HtmlCodec:
    return HtmlCodec(RULES)


def document(text: str | bytes) -> MarkupMessage:
    """The one message of a C-CDA document or fragment."""
    (message,) = cda().parse(text.encode() if isinstance(text, str) else text)
    return message


def page(text: str | bytes) -> MarkupMessage:
    """The one message of an HTML page."""
    (message,) = html().parse(text.encode() if isinstance(text, str) else text)
    return message


def ranges(message: Message) -> Iterator[tuple[int, int]]:
    """The byte ranges of all values of a message that may be replaced."""
    for site in message.sites:
        yield site.start, site.end
    for narrative in message.narratives:
        mapped = narrative.mapped
        spans = zip(mapped.starts, mapped.ends, strict=True)
        yield from dict.fromkeys(span for i, span in enumerate(spans) if i not in mapped.separators)
    for attachment in message.attachments:
        yield attachment.start, attachment.end
        yield from attachment.parts
        yield from (mark for mark in (attachment.size, attachment.digest, attachment.media) if mark)


def overwritten(message: Message, new: str) -> bytes:
    """The message with ``new`` in place of every site and every narrative."""
    edits = [Edit(site.start, site.end, message.encode(new)) for site in message.sites]
    for narrative in message.narratives:
        whole = [Replacement(0, len(narrative.mapped.text), new)]
        edits += [Edit(a, b, message.encode(text)) for a, b, text in narrative.mapped.place(whole)]
    return apply(message.raw, edits)


def blanked(message: Message) -> bytes:
    """The message with the blank of every site."""
    return apply(message.raw, [Edit(s.start, s.end, message.encode(s.blank)) for s in message.sites])


def shape(raw: bytes) -> Counter[str]:
    """The number of elements of each name, and of attributes (``@``). Raises if the document is not well-formed."""
    found: Counter[str] = Counter()

    def start(name: str, attributes: dict[str, str]) -> None:
        found[name] += 1
        found["@"] += len(attributes)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.Parse(raw, True)
    return found

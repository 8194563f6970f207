"""An HL7 codec with the shipped rules, and helpers that parse test messages."""

from functools import lru_cache
from pathlib import Path

from deid_agent.codec.hl7v2 import Hl7Codec
from deid_agent.codec.hl7v2.reader import Hl7Message

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"
MSH = "MSH|^~\\&|||||||ADT^A08||P|2.5.1"


@lru_cache(maxsize=1)
def codec() -> Hl7Codec:
    return Hl7Codec(RULES)


def message(*lines: str, header: str = MSH, charset: str = "utf-8") -> Hl7Message:
    """The one message of a header and lines, each terminated by CR."""
    (parsed,) = codec().parse("".join(f"{line}\r" for line in (header, *lines)).encode(charset))
    return parsed


def ranges(parsed: Hl7Message) -> list[tuple[int, int]]:
    """Every byte range that may be edited, in order; the characters of an atom count once."""
    found = [(s.start, s.end) for s in parsed.sites]
    found += [span for a in parsed.attachments for span in ((a.start, a.end), a.media) if span]
    for narrative in parsed.narratives:
        mapped = narrative.mapped
        spans = [(a, b) for a, b in zip(mapped.starts, mapped.ends, strict=True) if a < b]
        found += [span for i, span in enumerate(spans) if i == 0 or span != spans[i - 1]]
    return sorted(found)

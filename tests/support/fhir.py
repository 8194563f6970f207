"""Helpers for the tests of the FHIR codec."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.fhir.codec import FhirMessage

RULES = Path(__file__).resolve().parents[2] / "rules"


@lru_cache(maxsize=1)
def codec() -> FhirCodec:
    return FhirCodec(RULES)


def parsed(resource: object) -> FhirMessage:
    """The one message of a resource given as JSON text or as an object."""
    raw = resource.encode() if isinstance(resource, str) else json.dumps(resource, ensure_ascii=False).encode()
    (message,) = codec().parse(raw)
    return message


def ranges(message: FhirMessage) -> Iterator[tuple[int, int]]:
    """The byte ranges of all values of a message that may be replaced."""
    for site in message.sites:
        yield site.start, site.end
    for narrative in message.narratives:
        mapped = narrative.mapped
        yield from (
            (a, b)
            for i, (a, b) in enumerate(zip(mapped.starts, mapped.ends, strict=True))
            if i not in mapped.separators
        )
    for attachment in message.attachments:
        yield attachment.start, attachment.end
        yield from (mark for mark in (attachment.size, attachment.digest, attachment.media) if mark)


def bundle(*resources: object) -> dict[str, object]:
    """A Bundle with these resources."""
    return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": each} for each in resources]}

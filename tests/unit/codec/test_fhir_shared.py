"""The 727 third-party resources of ``$DEID_SHARED/messages/fhir``."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import orjson
import pytest
from support.edits import apply
from support.fhir import codec, ranges

from deid_agent.codec.fhir.codec import FhirMessage
from deid_agent.model.errors import MessageError
from deid_agent.model.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.model.sites import Edit, ValueKind

SHARED = os.environ.get("DEID_SHARED")
pytestmark = pytest.mark.skipif(not SHARED, reason="DEID_SHARED is not set: no folder of real resources to walk")

NOT_RESOURCES = "onfiguration"
"""Settings of another tool that are among the files; they have no resourceType."""

Object = dict[str, object]


def files() -> list[Path]:
    return sorted(Path(SHARED or ".").glob("messages/fhir/**/*.json"))


def messages() -> Iterator[FhirMessage]:
    for path in files():
        if NOT_RESOURCES not in path.name:
            yield from codec().parse(path.read_bytes())


def test_every_file_parses_or_is_refused_for_a_listed_reason() -> None:
    refused: dict[str, str] = {}
    count = 0
    for path in files():
        try:
            raw = path.read_bytes()
            assert b"".join(message.raw for message in codec().parse(raw)) == raw
            count += 1
        except MessageError as problem:
            refused[path.name] = str(problem)

    assert count >= 700
    assert {reason for reason in refused.values()} <= {"UNSUPPORTED: resourceType: no name of a resource type"}
    assert all(NOT_RESOURCES in name for name in refused)


def test_writing_every_value_back_changes_nothing() -> None:
    for message in messages():
        edits = [
            Edit(site.start, site.end, message.encode(site.value))
            for site in message.sites
            if site.kind is not ValueKind.REDACT
        ]
        for narrative in message.narratives:
            mapped = narrative.mapped
            assert len(mapped.starts) == len(mapped.ends) == len(mapped.text), narrative.path

        assert _loads(apply(message.raw, edits)) == _loads(message.raw), message.identity


def test_no_two_values_share_a_byte() -> None:
    for message in messages():
        at = 0
        for start, end in sorted(ranges(message)):
            assert at <= start < end <= len(message.raw), message.identity
            at = end


def test_references_resolve_after_ids_are_mapped() -> None:
    resolved = 0
    for message in messages():
        before = _loads(message.raw)
        edits = [
            Edit(site.start, site.end, message.encode(_mapped(site.value, site.type)))
            for site in message.sites
            if CATEGORY[site.type] is PhiCategory.ID or site.type is PhiType.URL
            if site.kind is not ValueKind.REDACT
        ]
        after = _loads(apply(message.raw, edits))
        known, targets = _targets(before), _targets(after)
        for old, new in zip(_references(before), _references(after), strict=True):
            if old in known:
                resolved += 1
                assert new in targets, (message.identity, old)
    assert resolved > 500


def test_redaction_leaves_json() -> None:
    for message in messages():
        edits = [Edit(site.start, site.end, message.encode(site.blank)) for site in message.sites]

        assert _loads(apply(message.raw, edits))


def _loads(raw: bytes) -> object:
    return orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))


def _mapped(value: str, type_: PhiType) -> str:
    digest = hashlib.sha256(value.encode()).hexdigest()[:24]
    return f"https://{digest}.example" if type_ is PhiType.URL else digest


def _objects(node: object) -> Iterator[Object]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _objects(child)


def _targets(tree: object) -> set[str]:
    """The possible targets of the references of this message."""
    found: set[str] = set()
    for each in _objects(tree):
        name, key = each.get("resourceType"), each.get("id")
        if isinstance(name, str) and isinstance(key, str):
            found |= {f"{name}/{key}", f"#{key}"}
        if isinstance(url := each.get("fullUrl"), str):
            found.add(url)
    return found


def _references(tree: object) -> list[str]:
    return [cast(str, each["reference"]) for each in _objects(tree) if isinstance(each.get("reference"), str)]

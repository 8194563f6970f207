"""The cases of ``tests/cases/fhir/sites.toml``: exactly the sites and narratives that a resource must give."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from support.fhir import parsed
from support.scopes import scope_of

from deid_agent.model import PhiType

CASES = tomllib.loads((Path(__file__).parents[2] / "cases/fhir/sites.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: Mapping[str, object]) -> None:
    message = parsed(str(case["resource"]).strip())

    found = [[s.path, str(s.type), str(s.kind), str(s.subject), s.value] for s in message.sites]
    assert found == cast(Sequence[list[str]], case["sites"])
    for site in message.sites:
        inside = message.raw[site.start : site.end]
        quoted = message.raw[site.start - 1 : site.start] == b'"' or site.value.encode() != inside
        assert (json.loads(b'"' + inside + b'"') if quoted else inside.decode()) == site.value, site.path
    assert [[n.path, n.mapped.text] for n in message.narratives] == case.get("narratives", [])
    assert not message.attachments
    assert scope_of(message) == case.get("patient")
    if "identity" in case:
        assert message.identity == case["identity"]


def test_parts_of_one_composite_share_a_group() -> None:
    message = parsed(
        {"resourceType": "Patient", "name": [{"family": "Okafor", "given": ["Ada"]}, {"given": ["Uchenna"]}]}
    )

    assert [site.group for site in message.sites] == ["Patient.name[0]", "Patient.name[0]", "Patient.name[1]"]


@pytest.mark.parametrize(
    ("path", "blank"),
    [
        ("Patient.id", "redacted"),
        ("Patient.birthDate", "1900-01"),
        ("Patient.meta.lastUpdated", "1900-01-01T00:00:00Z"),
        ("Patient.photo[0].url", "http://redacted.invalid/"),
        ("Patient.multipleBirthDate", "1900"),
        ("Patient.address[0].postalCode", "0"),
    ],
)
def test_redaction_gives_a_value_that_fhir_accepts(path: str, blank: str) -> None:
    message = parsed(
        {
            "resourceType": "Patient",
            "id": "p",
            "birthDate": "1957-04",
            "meta": {"lastUpdated": "2031-02-03T04:05:06Z"},
            "photo": [{"url": "https://files.example/face.png"}],
            "multipleBirthDate": "1957",
            "address": [{"postalCode": 45601}],
        }
    )

    assert {site.path: site.blank for site in message.sites}[path] == blank


def test_the_number_of_a_card_in_an_extension_is_an_identifier() -> None:
    extension = [
        {"url": "http://x.example/card", "valueString": "378282246310005"},
        {"url": "http://x.example/at", "valueString": "20240101123045"},
    ]
    message = parsed({"resourceType": "Patient", "extension": extension})

    values = [site.value for site in message.sites if site.type is PhiType.IDNUM]
    assert values == ["378282246310005"]

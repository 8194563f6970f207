"""Names of resource types and of members: none of them carries PHI out, and values in unknown members are read."""

import json
from dataclasses import replace

import pytest
from support.edits import apply
from support.fhir import codec, parsed
from support.tables import parts

from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.sites import Edit, LeafRole, ValueKind
from deid_agent.pipeline import load_policy

CANARIES = ("Quixwell", "quixwell", "4471902")


@pytest.mark.parametrize(
    "raw",
    [
        '{"resourceType":"Quixwell","id":"1"}',
        '{"resourceType":"Patient","contained":[{"resourceType":"Quixwell","id":"1"}]}',
        '{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Quixwell"}}]}',
        '{"resourceType":"Patient","thing":{"resourceType":"Quixwell"}}',
        '{"resourceType":"Parameters","parameter":[{"name":"a","resource":{"resourceType":"quixwell"}}]}',
    ],
)
def test_a_type_that_no_release_has_is_refused(raw: str) -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(raw.encode())
    assert caught.value.reason is Reason.UNSUPPORTED and caught.value.where.endswith("resourceType")
    assert not [canary for canary in CANARIES if canary in f"{caught.value} {caught.value!r}"]


@pytest.mark.parametrize(
    "name",
    [
        "MedicationOrder",
        "Conformance",
        "MedicinalProduct",
        "DeviceAlert",
        "Transport",
        "FamilyHistory",
        "Other",
        "Query",
    ],
)
def test_a_type_of_another_release_is_read(name: str) -> None:
    message = parsed(
        {"resourceType": name, "id": "m1", "dateWritten": "2019-03-04", "prescriber": {"reference": "Practitioner/d1"}}
    )
    assert [site.path for site in message.sites] == [
        f"{name}.id",
        f"{name}.dateWritten",
        f"{name}.prescriber.reference",
    ]
    assert codec().parse_leaves(message.raw)


UNKNOWN = {
    "resourceType": "Patient",
    "id": "p1",
    "vendorRank": "seen by Voss",
    "Quixwell": "seen by Voss",
    "_quixwell": {"extension": [{"url": "http://x.example/a", "valueString": "seen by Voss"}]},
    "mrn4471902": True,
    "quixwellQuantity": {"value": 7, "unit": "mg"},
    "Zyblorq Quixwell, 17 Wexcombe Lane": 12,
    "birthDate": "1957-04-22",
    "_birthDate": {"extension": [{"url": "http://x.example/a", "valueString": "seen by Voss"}]},
    "contact": [{"name": {"family": "Okafor", "quixwell": "Zyblorq"}, "will": "x", "redacted": 1}],
    "deceasedDateTime": "2031-01-01",
}


def test_an_unknown_member_may_lose_its_name_and_its_value_is_read() -> None:
    message = parsed(UNKNOWN)
    named = [site for site in message.sites if message.raw[site.end : site.end + 2] == b'":']
    assert [(site.value, site.path) for site in named] == [
        ("Quixwell", "Patient.?"),
        ("_quixwell", "Patient.?"),
        ("mrn4471902", "Patient.?"),
        ("quixwellQuantity", "Patient.?"),
        ("Zyblorq Quixwell, 17 Wexcombe Lane", "Patient.?"),
        ("quixwell", "Patient.contact[0].name.?"),
        ("will", "Patient.contact[0].?"),
        ("redacted", "Patient.contact[0].?"),
    ]
    assert {site.kind for site in named} == {ValueKind.REDACT}
    read = [(n.path, n.mapped.text) for n in message.narratives]
    assert [path for path, text in read if text == "seen by Voss"] == [
        "Patient.vendorRank",
        "Patient.?",
        "Patient.?.extension[0].valueString",
        "Patient._birthDate.extension[0].valueString",
    ]
    made = json.loads(apply(message.raw, [Edit(s.start, s.end, message.encode(s.blank)) for s in named]))
    assert list(made) == [
        *("resourceType", "id", "vendorRank", "redacted3", "redacted4", "redacted5", "redacted6", "redacted7"),
        *("birthDate", "_birthDate", "contact", "deceasedDateTime"),
    ]
    assert list(made["contact"][0]) == ["name", "redacted1", "redacted2"]
    # Again, the names stay.
    again = parsed(made)
    assert [site.blank for site in again.sites if site.kind is ValueKind.REDACT] == [site.blank for site in named]


@pytest.mark.parametrize("policy", ["research", "safe-harbor", "pseudonymised"])
def test_no_name_of_a_member_carries_phi(policy: str) -> None:
    deidentifier = replace(parts(), policy=load_policy(policy, parts().rules)).deidentifier()
    done = deidentifier.message(json.dumps(UNKNOWN).encode())
    text = done.payload.decode() + repr(done.remarks)
    assert not [canary for canary in (*CANARIES, "Zyblorq", "Wexcombe") if canary in text]
    json.loads(done.payload, object_pairs_hook=_refuse_twice)


def _refuse_twice(members: list[tuple[str, object]]) -> dict[str, object]:
    assert len({name for name, _ in members}) == len(members)
    return dict(members)


def test_an_unknown_name_that_stays_is_a_key_of_the_guard() -> None:
    leaves = codec().parse_leaves(json.dumps(UNKNOWN).encode())
    keys = [leaf.mapped.text for leaf in leaves if leaf.role is LeafRole.KEY]
    assert {"vendorRank", "Quixwell", "quixwellQuantity"} <= set(keys)
    assert not [leaf.path for leaf in leaves if any(canary in leaf.path for canary in CANARIES)]


@pytest.mark.parametrize("name", ["04/22/57", "22-04-57", "447-190-2", "123-45-678", "4/22", "Apr 22", "\u738b \u4f1f"])
def test_a_name_made_of_few_digits_or_signs_may_be_phi(name: str) -> None:
    """Each number is short, and each letter is one; together they are a date, a number, or a name."""
    message = parsed({"resourceType": "Patient", "id": "p", name: True, "vendorRank3": 1, "1.2.3": 2})
    assert [site.value for site in message.sites if site.kind is ValueKind.REDACT] == [name]

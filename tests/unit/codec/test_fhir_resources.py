"""The resources of a payload by their ranges, and insertions that leave every other byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fhir import codec, parsed
from support.fhir_payloads import resources

from deid_agent.codec.fhir_resources import (
    SECURITY_LABELS,
    find_base,
    insert_all,
    list_resources,
    list_targets,
    place_entry,
    place_labels,
    write_label,
)
from deid_agent.model.errors import MessageError

PSEUDED = write_label("PSEUDED").decode()


def labelled(raw: str, *codes: str) -> str:
    """The first resource with labels."""
    data = raw.encode()
    insertion = place_labels(list_resources(data)[0], set(codes or ("PSEUDED",)))
    return insert_all(data, [insertion] if insertion else []).decode()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"resourceType":"Patient"}', '{"meta":{"security":[%s]},"resourceType":"Patient"}'),
        ('\ufeff { "resourceType": "Patient" }\n', '\ufeff {"meta":{"security":[%s]}, "resourceType": "Patient" }\n'),
        ('{"resourceType":"Patient","meta":{}}', '{"resourceType":"Patient","meta":{"security":[%s]}}'),
        (
            '{"resourceType":"Patient","meta":{ "versionId":"1"}}',
            '{"resourceType":"Patient","meta":{"security":[%s], "versionId":"1"}}',
        ),
        (
            '{"resourceType":"Patient","meta":{"security":[ ]}}',
            '{"resourceType":"Patient","meta":{"security":[%s ]}}',
        ),
        (
            '{"resourceType":"Patient","meta":{"security":[{"code":"R"}]}}',
            '{"resourceType":"Patient","meta":{"security":[%s,{"code":"R"}]}}',
        ),
        (  # the same code of another system is no label of ours
            '{"resourceType":"Patient","meta":{"security":[{"system":"s","code":"PSEUDED"},null]}}',
            '{"resourceType":"Patient","meta":{"security":[%s,{"system":"s","code":"PSEUDED"},null]}}',
        ),
        (  # names with escapes are names
            '{"resourceType":"Patient","met\\u0061":{}}',
            '{"resourceType":"Patient","met\\u0061":{"security":[%s]}}',
        ),
    ],
)
def test_a_label_is_one_insertion(raw: str, expected: str) -> None:
    assert labelled(raw) == expected.replace("%s", PSEUDED)


@pytest.mark.parametrize("meta", ["null", '"x"', "[]", "7", '{"security":null}', '{"security":{}}', '{"security":"x"}'])
def test_a_resource_with_a_malformed_meta_gets_no_label(meta: str) -> None:
    raw = '{"resourceType":"Patient","meta":' + meta + "}"
    assert labelled(raw) == raw


def test_labels_that_a_sender_wrote_stay_and_do_not_come_twice() -> None:
    raw = labelled('{"resourceType":"Patient"}', "REDACTED")
    assert labelled(raw, "REDACTED") == raw
    both = json.loads(labelled(raw, "ABSTRED", "REDACTED", "PSEUDED"))["meta"]["security"]
    assert [each["code"] for each in both] == ["PSEUDED", "ABSTRED", "REDACTED"]


BUNDLE = """{"resourceType":"Bundle","type":"%s","entry":[
 {"fullUrl":"urn:uuid:0d1e0e0c-93ce-4a59-a1ee-cd6ea10b2b55","resource":{"resourceType":"Patient","id":"p",
   "contained":[{"resourceType":"Patient","id":"inner"}]}},
 {"fullUrl":"https://h.example/fhir/Condition/c","resource":{"resourceType":"Condition","id":"c"}},
 {"resource":{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Patient","id":"deep"}}]}},
 {"response":{"status":"200","outcome":{"resourceType":"OperationOutcome","id":"o"}}},
 {"resource":{"resourceType":"Condition","id":"not an id"}}, null, {"resource":[]}
]}"""


def test_the_resources_of_a_bundle_are_found_at_their_paths_without_contained_ones() -> None:
    raw = (BUNDLE % "collection").encode()
    found = list_resources(raw)
    assert [(each.path, each.type, each.parent) for each in found] == [
        ("Bundle", "Bundle", None),
        ("Bundle.entry[0].resource", "Patient", 0),
        ("Bundle.entry[1].resource", "Condition", 0),
        ("Bundle.entry[2].resource", "Bundle", 0),
        ("Bundle.entry[2].resource.entry[0].resource", "Patient", 3),
        ("Bundle.entry[3].response.outcome", "OperationOutcome", 0),
        ("Bundle.entry[4].resource", "Condition", 0),
    ]
    for each in found:
        assert json.loads(raw[slice(*each.span)])["resourceType"] == each.type
    assert list_targets(found) == [
        "urn:uuid:0d1e0e0c-93ce-4a59-a1ee-cd6ea10b2b55",
        "Condition/c",
        "OperationOutcome/o",
    ]


def test_the_paths_are_those_of_the_sites() -> None:
    bundle = json.loads(BUNDLE % "collection")
    bundle["entry"][2]["resource"]["entry"][0]["resource"]["name"] = [{"family": "Okafor"}]
    bundle["entry"][4]["resource"]["subject"] = {"display": "Okafor"}
    message = parsed(bundle)
    paths = [each.path for each in list_resources(message.raw)]
    assert {max((p for p in paths if site.path.startswith(f"{p}.")), key=len) for site in message.sites} >= {
        "Bundle.entry[2].resource.entry[0].resource",
        "Bundle.entry[4].resource",
    }


def test_parameters_and_their_parts_hold_resources() -> None:
    raw = b"""{"resourceType":"Parameters","parameter":[{"name":"a","resource":{"resourceType":"Patient","id":"a"}},
     {"name":"b","part":[{"name":"c","resource":{"resourceType":"Patient","id":"b"}}]}]}"""
    assert list_targets(list_resources(raw)) == ["Patient/a", "Patient/b"]


def test_the_base_is_the_address_before_type_and_id_of_an_entry() -> None:
    assert find_base(list_resources((BUNDLE % "collection").encode())) == "https://h.example/fhir"
    for url in (
        "https://h.example/fhir/Condition/other",
        "urn:uuid:1/Condition/c",
        "https://a b/Condition/c",
        "Condition/c",
    ):
        raw = (BUNDLE % "collection").replace("https://h.example/fhir/Condition/c", url).encode()
        assert find_base(list_resources(raw)) == ""


@pytest.mark.parametrize("kind", ["collection", "document", "message", "searchset"])
def test_an_entry_is_added_behind_the_last_one(kind: str) -> None:
    raw = (BUNDLE % kind).encode()
    place = place_entry(list_resources(raw)[0], b'{"resourceType":"Provenance"}', "urn:uuid:1")
    assert place is not None
    added = insert_all(raw, [place])
    assert added.replace(place[1], b"") == raw
    entry = json.loads(added)["entry"][-1]
    assert entry == {
        "fullUrl": "urn:uuid:1",
        "resource": {"resourceType": "Provenance"},
        **({"search": {"mode": "include"}} if kind == "searchset" else {}),
    }


@pytest.mark.parametrize("kind", ["transaction", "batch", "history", "transaction-response", "", "Collection"])
def test_a_bundle_of_requests_gets_no_entry(kind: str) -> None:
    """Each entry of it is an instruction to the receiver: one that it refuses would refuse them all."""
    raw = (BUNDLE % kind).encode()
    assert place_entry(list_resources(raw)[0], b"{}", "urn:uuid:1") is None


@pytest.mark.parametrize("entries", ["[]", "{}", "null", '"x"'])
def test_a_bundle_without_entries_gets_none(entries: str) -> None:
    raw = b'{"resourceType":"Bundle","type":"collection","entry":' + entries.encode() + b"}"
    assert place_entry(list_resources(raw)[0], b"{}", "urn:uuid:1") is None


@given(resources(), st.sets(st.sampled_from(SECURITY_LABELS)))
def test_without_the_insertions_every_byte_is_the_same(raw: bytes, codes: set[str]) -> None:
    try:
        messages = codec().parse(raw)
    except MessageError:
        return
    for message in messages:
        found = list_resources(message.raw)
        insertions = [each for each in (place_labels(one, codes) for one in found) if each]
        labelled_raw = insert_all(message.raw, insertions)
        json.loads(labelled_raw.decode("utf-8-sig"))
        for position, data in sorted(insertions):
            assert labelled_raw[position : position + len(data)] == data
            labelled_raw = labelled_raw[:position] + labelled_raw[position + len(data) :]
        assert labelled_raw == message.raw
        assert codec().parse(insert_all(message.raw, insertions)), "a label makes no key come twice"

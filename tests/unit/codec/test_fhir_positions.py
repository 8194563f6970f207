"""The positions of the values of a JSON text, found by the count of quotes."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fhir import RULES, codec, parsed
from support.fhir_payloads import TABLE, resources

from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.fhir.names import ElementNames
from deid_agent.codec.fhir.tokens import StringIndex, count_quotes, scalar_ranges
from deid_agent.codec.fhir.uris import AddressReader, identifying_parts, resource_type_of
from deid_agent.codec.fhir.walk import MAX_PLANS, Plan, Plans, Signature
from deid_agent.model.errors import ConfigurationError, MessageError
from deid_agent.model.sites import Site

segments = st.sampled_from(
    [*("Patient", "Observation", "Other", "p1", "a.pdf", "1.2", ".", "-", "$x", "_history", "metadata", "é", ""),
     *("https:", "ehr.example.org", "urn:uuid:1", "#p", "?a=b", "p|1", "?", "#", "|")]
)  # fmt: skip
addresses = st.lists(segments, min_size=1, max_size=7).map("/".join)


@given(resources())
def test_strings_have_the_positions_that_a_scan_finds(raw: bytes) -> None:
    strings = StringIndex(raw)
    found = [(strings.at[n], strings.at[n + 1] + 1) for n in range(0, strings.quotes, 2)]

    spans = scalar_ranges(raw, len(raw))
    assert found == [(a, b) for a, b in spans if raw[a] == ord('"')]
    assert strings.max_values() >= len(spans)


@given(resources())
def test_values_without_quotes_have_the_positions_that_a_scan_finds(raw: bytes) -> None:
    strings, passed, nth = StringIndex(raw), 0, 0
    for start, end in scalar_ranges(raw, len(raw)):
        if raw[start] == ord('"'):
            passed, nth = passed + 2, 0
        else:
            assert strings.bare(passed, nth) == (start, end)
            nth += 1


@given(st.recursive(st.just(1), lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text("[{}]"), inner))))
def test_depth_is_that_of_the_containers(tree: object) -> None:
    def depth(node: object) -> int:
        if isinstance(node, dict | list):
            return 1 + max(map(depth, node.values() if isinstance(node, dict) else node), default=0)
        return 0

    strings = StringIndex(json.dumps({"x": ["]]", tree, "[[{"]}).encode())

    assert strings.depth() == 2 + depth(tree)


@pytest.mark.parametrize("text", ['"', '\\"', '\\\\"', "\\", '\n\\n"', '"":"', '\\\\\\"', "\u2028\\u0022"])
def test_no_escape_hides_or_adds_a_quote(text: str) -> None:
    for raw in (json.dumps({"a": text, "b": text}), json.dumps({text: "a", "b": text})):
        assert count_quotes(raw.encode()) == 8


@pytest.mark.parametrize(
    "text",
    [
        '[55555]',
        '[1, [true, 55555], null, [[66666], 2], "s", 77777]',
        '[{}, 55555, {"a": []}, 66666, {"b": 7}, 77777]',
        '[{"valueInteger": 5}, 55555]',
        '[{"extension": [{"valueDecimal": 1.5}]}, [55555], {"multipleBirthInteger": 2, "x": 66666}, 77777]',
        '{"a" : 55555 , "b":{"c":66666},"d":[ ],"e":[{}],"f":"1","g":77777}',
        '["5", {"a": "\\\\"}, 55555, "\\"", 66666]',
    ],
)  # fmt: skip
def test_a_number_is_found_after_any_text(text: str) -> None:
    message = parsed(f'{{"resourceType": "Patient", "x": {text}, "y": 88888}}')

    found = [message.raw[site.start : site.end].decode() for site in message.sites]
    assert found == re.findall(r"[5-8]{5}", f"{text} 88888")
    assert [site.value for site in message.sites] == found


def test_objects_with_the_same_members_and_other_kinds_of_values_have_other_plans() -> None:
    """The plan of the first object would take the positions of the second from the wrong strings."""
    uses: tuple[object, ...] = ("usual", 1, True, None, ["a", "b"], {})
    kinds: list[object] = [{"use": use, "family": name} for use in uses for name in ("Ada", 55555)]
    message = parsed({"resourceType": "Patient", "name": [*kinds, *reversed(kinds)]})

    assert [site.value for site in message.sites].count("Ada") == [s.value for s in message.sites].count("55555") == 12
    for site in message.sites:
        assert message.raw[site.start : site.end].decode() == site.value


@given(resources(), resources())
def test_a_message_is_read_the_same_after_any_other(first: bytes, second: bytes) -> None:
    def read(reader: FhirCodec, raw: bytes) -> object:
        try:
            return [(m.sites, [(n.path, n.mapped.text) for n in m.narratives]) for m in reader.parse(raw)]
        except MessageError as problem:
            return problem.reason, problem.where

    alone = FhirCodec.__new__(FhirCodec)
    alone.__dict__.update({**codec().__dict__, "_plans": {}})
    assert read(alone, second) == (read(codec(), first), read(codec(), second))[1]


def test_plans_that_outlive_a_message_have_no_names_of_its_own() -> None:
    known: dict[Signature, Plan] = {}
    plans, patient = Plans(TABLE, ElementNames.of(TABLE), known), TABLE.shapes["Patient"]

    values: list[dict[str, object]] = [{"id": "1", "Ada Okafor": 1}, {"id": "1"}, {"id": 1}]
    for value in values:
        plans.plan((patient, *value, *map(type, value.values())), patient, value)

    assert [signature[1:] for signature in known] == [("id", str), ("id", int)]


def test_plans_have_a_bound() -> None:
    known: dict[Signature, Plan] = {}
    plans, patient = Plans(TABLE, ElementNames.of(TABLE), known), TABLE.shapes["Patient"]

    sizes = []
    for number in range(2 * MAX_PLANS + 1):
        plans.plan((number,), patient, {"id": "1"})
        sizes.append(len(known))

    assert max(sizes) == MAX_PLANS
    assert sum(b < a for a, b in pairwise(sizes)) == 2


def test_a_depth_that_orjson_cannot_write_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at most 250"):
        FhirCodec(RULES, max_depth=251)
    deep = FhirCodec(RULES, max_depth=250)

    assert deep.parse(b'{"resourceType":"Patient","x":' + b"[" * 248 + b"1" + b"]" * 248 + b"}")


@given(addresses)
def test_an_address_is_read_by_the_part_before_its_id(address: str) -> None:
    memo = AddressReader(TABLE.resources)
    memo.simple(address.rpartition("/")[0] + "/other")
    memo.resource_type(address.rpartition("/")[0] + "/Patient")
    found = identifying_parts(address, TABLE.resources)

    assert memo.parts(address) == found
    assert memo.resource_type(address) == resource_type_of(address, TABLE.resources)
    assert memo.simple(address) in {None, *(((part.start, part.end), None) for part in found if len(found) == 1)}
    assert memo.simple(address) == memo.simple(address)


def test_most_addresses_are_read_by_the_fast_path() -> None:
    memo = AddressReader(TABLE.resources, TABLE.definitions, TABLE.site_host)

    assert memo.simple("https://ehr.stmary.org/fhir/Patient/1.2.pdf") == ((36, 39), (8, 22))
    assert memo.simple("http://hl7.org/fhir/Patient/p1") == ((28, 30), None)
    assert memo.simple("Patient/p1") == ((8, 10), None)
    assert memo.simple("Patient/p1/_history/2") is None
    assert memo.simple("Questionnaire/gcs") is None


def test_a_site_has_no_value_in_its_repr_and_is_immutable() -> None:
    site = parsed({"resourceType": "Patient", "name": [{"family": "Okafor77"}]}).sites[0]

    assert site.value == "Okafor77"
    assert "Okafor77" not in repr(site) + str(site) + f"{site}"
    assert repr(site).startswith("Site(path='Patient.name[0].family', start=")
    with pytest.raises(AttributeError):
        site.value = "other"  # type: ignore[misc]
    assert isinstance(site, Site)

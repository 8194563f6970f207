"""Where the values of a JSON text stand, told by counting quotes."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fhir import RULES, codec, parsed
from support.fhir_payloads import TABLE, resources

from deid_agent.codec.fhir import FhirCodec, uris
from deid_agent.codec.fhir.plans import MOST, Plan, Plans, Signature
from deid_agent.codec.fhir.tokens import Strings, quotes, scalars
from deid_agent.errors import ConfigurationError, MessageError
from deid_agent.sites import Site

segments = st.sampled_from(
    [*("Patient", "Observation", "Other", "p1", "a.pdf", "1.2", ".", "-", "$x", "_history", "metadata", "é", ""),
     *("https:", "ehr.example.org", "urn:uuid:1", "#p", "?a=b", "p|1", "?", "#", "|")]
)  # fmt: skip
addresses = st.lists(segments, min_size=1, max_size=7).map("/".join)


@given(resources())
def test_strings_stand_where_a_scan_finds_them(raw: bytes) -> None:
    strings = Strings(raw)
    found = [(strings.at[n], strings.at[n + 1] + 1) for n in range(0, strings.quotes, 2)]

    spans = scalars(raw, len(raw))
    assert found == [(a, b) for a, b in spans if raw[a] == ord('"')]
    assert strings.most() >= len(spans)


@given(resources())
def test_values_without_quotes_stand_where_a_scan_finds_them(raw: bytes) -> None:
    strings, passed, nth = Strings(raw), 0, 0
    for start, end in scalars(raw, len(raw)):
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

    strings = Strings(json.dumps({"x": ["]]", tree, "[[{"]}).encode())

    assert strings.depth() == 2 + depth(tree)


@pytest.mark.parametrize("text", ['"', '\\"', '\\\\"', "\\", '\n\\n"', '"":"', '\\\\\\"', "\u2028\\u0022"])
def test_no_escape_hides_or_makes_a_quote(text: str) -> None:
    for raw in (json.dumps({"a": text, "b": text}), json.dumps({text: "a", "b": text})):
        assert quotes(raw.encode()) == 8


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
def test_a_number_is_found_behind_whatever_stands_before(text: str) -> None:
    message = parsed(f'{{"resourceType": "Patient", "x": {text}, "y": 88888}}')

    found = [message.raw[site.start : site.end].decode() for site in message.sites]
    assert found == re.findall(r"[5-8]{5}", f"{text} 88888")
    assert [site.value for site in message.sites] == found


def test_objects_of_like_members_and_other_kinds_of_values_are_told_apart() -> None:
    """The plan of the first would take the second's places from the wrong strings."""
    uses: tuple[object, ...] = ("usual", 1, True, None, ["a", "b"], {})
    kinds: list[object] = [{"use": use, "family": name} for use in uses for name in ("Ada", 55555)]
    message = parsed({"resourceType": "Patient", "name": [*kinds, *reversed(kinds)]})

    assert [site.value for site in message.sites].count("Ada") == [s.value for s in message.sites].count("55555") == 12
    for site in message.sites:
        assert message.raw[site.start : site.end].decode() == site.value


@given(resources(), resources())
def test_a_message_is_read_the_same_whatever_came_before(first: bytes, second: bytes) -> None:
    def read(reader: FhirCodec, raw: bytes) -> object:
        try:
            return [(m.sites, [(n.path, n.mapped.text) for n in m.narratives]) for m in reader.parse(raw)]
        except MessageError as problem:
            return problem.reason, problem.where

    alone = FhirCodec.__new__(FhirCodec)
    alone.__dict__.update({**codec().__dict__, "_plans": {}})
    assert read(alone, second) == (read(codec(), first), read(codec(), second))[1]


def test_plans_outlive_a_message_without_its_own_names() -> None:
    known: dict[Signature, Plan] = {}
    plans, patient = Plans(TABLE, known), TABLE.shapes["Patient"]

    values: list[dict[str, object]] = [{"id": "1", "Ada Okafor": 1}, {"id": "1"}, {"id": 1}]
    for value in values:
        plans.make((patient, *value, *map(type, value.values())), patient, value)

    assert [signature[1:] for signature in known] == [("id", str), ("id", int)]


def test_plans_have_a_bound() -> None:
    known: dict[Signature, Plan] = {}
    plans, patient = Plans(TABLE, known), TABLE.shapes["Patient"]

    sizes = []
    for number in range(2 * MOST + 1):
        plans.make((number,), patient, {"id": "1"})
        sizes.append(len(known))

    assert max(sizes) == MOST
    assert sum(b < a for a, b in pairwise(sizes)) == 2


def test_depth_past_what_the_proof_can_write_is_no_setting() -> None:
    with pytest.raises(ConfigurationError, match="at most 250"):
        FhirCodec(RULES, max_depth=251)
    deep = FhirCodec(RULES, max_depth=250)

    assert deep.parse(b'{"resourceType":"Patient","x":' + b"[" * 248 + b"1" + b"]" * 248 + b"}")


@given(addresses)
def test_an_address_is_read_by_what_stands_before_its_id(address: str) -> None:
    memo = uris.Addresses(TABLE.resources)
    memo.id_at(address.rpartition("/")[0] + "/other")
    memo.type_of(address.rpartition("/")[0] + "/Patient")
    found = uris.parts(address, TABLE.resources)

    assert memo.parts(address) == found
    assert memo.type_of(address) == uris.type_of(address, TABLE.resources)
    assert memo.id_at(address) in {None, *((part.start, part.end) for part in found if len(found) == 1)}
    assert memo.id_at(address) == memo.id_at(address)


def test_most_addresses_are_read_the_short_way() -> None:
    memo = uris.Addresses(TABLE.resources)

    assert memo.id_at("https://ehr.example.org/fhir/Patient/1.2.pdf") == (37, 40)
    assert memo.id_at("Patient/p1") == (8, 10)
    assert memo.id_at("Patient/p1/_history/2") is None


def test_a_site_shows_no_value_and_never_changes() -> None:
    site = parsed({"resourceType": "Patient", "name": [{"family": "Okafor77"}]}).sites[0]

    assert site.value == "Okafor77"
    assert "Okafor77" not in repr(site) + str(site) + f"{site}"
    assert repr(site).startswith("Site(path='Patient.name[0].family', start=")
    with pytest.raises(AttributeError):
        site.value = "other"  # type: ignore[misc]
    assert isinstance(site, Site)

"""Whatever a message holds, its form in DAPL has none of the forbidden elements, or the message is refused."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.dapl import BUNDLE, DAY, form, walk
from support.fhir import codec

from deid_agent.codec.fhir import find_ages
from deid_agent.model import MessageError

WORD = "Zyblorqvist"
FORBIDDEN = {"line", "city", "birthDate", "telecom", "contact", "note", "contained", "div", "modifierExtension"}
TREE = json.loads(BUNDLE.read_text("utf-8"))
ODD = [
    None,
    7,
    WORD,
    "2024-01-02",
    [[{"text": WORD}]],
    {},
    {"id": WORD},
    {"reference": "#x"},
    {"div": WORD},
    {"extension": [{"url": WORD, "valueString": WORD}]},
    {"resourceType": "Patient", "birthDate": "1900-01-01", "contact": []},
    {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": {"resourceType": "Patient", "note": 1}}]},
]
NAMES = ["extension", "_gender", "entry", "resource", "address", "meta", "reference", "issued", "a.b", "value[x]", WORD]


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or object with each of its keys."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        yield node, key
        yield from places(node[key])


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.booleans())
def test_no_forbidden_element_survives_a_change_of_the_message(random: Any, drops: bool) -> None:
    tree = copy.deepcopy(TREE if random.random() < 0.3 else random.choice(TREE["entry"])["resource"])
    for _ in range(random.randint(1, 6)):
        owner, key = random.choice(list(places(tree)) or [({}, "x")])
        if isinstance(owner, dict) and random.random() < 0.4:
            key = random.choice(NAMES)
        owner[key] = copy.deepcopy(random.choice(ODD))
    raw = json.dumps(tree).encode()
    try:
        codec().parse(raw)
        written, dropped = form(drops=drops).write(raw, find_ages(raw, DAY))
    except MessageError as error:
        assert WORD not in str(error)
        return
    assert WORD not in "".join(dropped)
    found = {path.rpartition(".")[2] for path, _ in walk(json.loads(written))}
    assert not found & FORBIDDEN

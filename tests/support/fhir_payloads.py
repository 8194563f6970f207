"""FHIR JSON for property tests: resources whose elements contain anything."""

import json

from hypothesis import strategies as st
from support.fhir import RULES

from deid_agent.codec.fhir.table import load_fhir_table

TABLE = load_fhir_table(RULES)
ELEMENTS = sorted({name for shape in TABLE.shapes.values() for name in shape.rules} - {"resourceType"})

words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *("Patient/1", "#p", "urn:uuid:0d1e0e0c-93ce-4a59-a1ee-cd6ea10b2b55", "urn:oid:1.2", "urn:uuid:", "#", "/"),
            *("https://h.example/fhir/Patient/1/_history/2", "Patient?identifier=s|1&_id=2", "a=1,2&b", "?", "=", "|"),
            *("2031-02-03", "2031", "2031-02-03T04:05:06Z", "<div>A <b>b</b>&amp;<img alt='x'/></div>", "<", "QUJD"),
            *("http://hl7.org/fhir/x", "mailto:", "tel:1", "phone", "a@b", 'é\U0001f600"\\\u2028', "\n", " "),
        ]
    ),
)
scalars = st.one_of(
    words, st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
keys = st.one_of(st.sampled_from(ELEMENTS), st.sampled_from([f"_{name}" for name in ELEMENTS]), st.text(max_size=6))
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=25,
)
types = st.sampled_from([*sorted(TABLE.resources), "OrderResponse"])


@st.composite
def resources(draw: st.DrawFn) -> bytes:
    """A resource whose elements contain anything; the names are often those of its type."""
    name = draw(types)
    rules = TABLE.shapes[name if name in TABLE.resources else "DomainResource"].rules
    own = st.dictionaries(st.sampled_from(sorted(rules)), trees, max_size=4)
    tree = {**draw(own), **draw(st.dictionaries(keys, trees, max_size=2)), "resourceType": name}
    indent = draw(st.sampled_from([None, 1]))
    return json.dumps(tree, ensure_ascii=draw(st.booleans()), indent=indent, allow_nan=False).encode()

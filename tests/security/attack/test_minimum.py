"""The attacker reads outputs of the policy ``minimum`` and looks for a value outside of its list.

The outputs are read by code that knows nothing of the codecs: separators, and JSON. The message must parse, and each
listed value must equal the output of ``pseudonymised``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shared import shared
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import MessageError
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = ROOT / "rules"
SECRET = SecretKey(b"key of the attack on lists, 32 by")
POLICY = load_policy("minimum", RULES)
assert POLICY.published is not None
LISTED = POLICY.published.paths
FRAME = {"MSH-2", "MSH-7.1", "MSH-9.1", "MSH-9.2", "MSH-9.3", "MSH-10.1", "MSH-11.1", "MSH-11.2", "MSH-12.1", "MSH-18"}
FRAME |= {"FHS-2", "BHS-2", "OBX-2"}
LARGEST = 1_000_000
Fields = list[tuple[str, str]]


def deidentifier(policy: str) -> Deidentifier:
    return WorkerFactory(RULES, SECRET, load_policy(policy, RULES), system="rules").deidentifier()


MINIMUM = deidentifier("minimum")


def hl7_fields(data: bytes) -> Iterator[Fields]:
    """Path and text of every value of each line, by its separators alone."""
    field, component, repetition = "|", "^", "~"
    for line in re.split(r"[\r\n]+", data.decode("latin-1")):
        text = line.strip("\x0b\x1c\x00 \t\xef\xbb\xbf")
        header = text[:3] in {"MSH", "FHS", "BHS"}
        if header:
            field, component, repetition = text[3], text[4:5], text[5:6]
        name, *values = text.split(field)
        type_ = values[1] if name.upper() == "OBX" and len(values) > 1 else ""
        found = [("name", name)]
        for number, value in enumerate(values, start=2 if header else 1):
            if header and number == 2:
                continue
            path = f"{name.upper()}-{number}"
            if whole := {path, f"OBX({type_})-{number}"} & (LISTED | FRAME):
                found.append((whole.pop(), value))
                continue
            for piece in value.split(repetition) if repetition else [value]:
                for order, part in enumerate(piece.split(component) if component else [piece], start=1):
                    shown = f"OBX({type_})-5.{order}" if path == "OBX-5" else f"{path}.{order}"
                    found += [(shown, part)] if part else []
        yield found


def fhir_leaves(value: object, path: str) -> Iterator[str]:
    """The path of every value that is neither an object nor a list, from the innermost resource on."""
    if isinstance(value, dict):
        path = str(value.get("resourceType", path))
        for key, item in value.items():
            yield from fhir_leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from fhir_leaves(item, path)
    else:
        yield path


def is_listed(path: str) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:count]) in LISTED for count in range(2, len(parts) + 1))


def publish(payload: bytes) -> bytes | None:
    try:
        return MINIMUM.message(payload).payload
    except MessageError:
        return None


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (p for p in sorted(shared("messages", folder).rglob("*")) if p.is_file())


def test_no_hl7_value_outside_of_the_list_remains() -> None:
    published = 0
    for path in files("hl7", "hl7-odd", "hl7-batch"):
        if path.stat().st_size > LARGEST or (out := publish(path.read_bytes())) is None:
            continue
        published += 1
        for fields in hl7_fields(out):
            for where, value in fields[1:]:
                assert where in LISTED | FRAME or not value, f"{path.name}: {where}"
    assert published > 600


def test_listed_hl7_values_equal_those_of_pseudonymised() -> None:
    """Numbers, codes and dates; the names of a text may differ, because the dropped texts name nobody here."""
    whole, compared = deidentifier("pseudonymised"), 0
    for path in [*files("hl7")][::7]:
        raw = path.read_bytes()
        if (out := publish(raw)) is None:
            continue
        expected = [dict(fields) for fields in hl7_fields(whole.message(raw).payload)]
        found = [dict(fields) for fields in hl7_fields(out)]
        if [one["name"] for one in expected] != [one["name"] for one in found]:
            continue  # a local segment is gone
        for one, other in zip(found, expected, strict=True):
            for where in {"PID-8", "OBR-7", "OBX(NM)-5", "OBX(SN)-5", "OBX-6", "OBX-11", "OBX-14"} & one.keys():
                assert one[where] == other[where], f"{path.name}: {where}"
                compared += bool(one[where])
    assert compared > 300


def test_no_fhir_value_outside_of_the_list_remains() -> None:
    published = 0
    for path in files("fhir"):
        if path.suffix != ".json" or path.stat().st_size > LARGEST or (out := publish(path.read_bytes())) is None:
            continue
        published += 1
        for leaf in fhir_leaves(json.loads(out), ""):
            assert is_listed(leaf) or leaf.endswith(".resourceType") or leaf == "Bundle.type", f"{path.name}: {leaf}"
    assert published > 100


def test_no_document_passes() -> None:
    for path in [*files("ccda")][::10]:
        assert publish(path.read_bytes()) is None, path.name


PLANTS = ("Quillfeather", "Zbigniewska", "8837721450", "614-555-0177", "1931-08-09", "19310809", "Okonjo-Bell")


def test_an_identifier_planted_beside_the_message_type_is_removed() -> None:
    plant = "^".join(PLANTS)
    head = f"MSH|^~\\&|L|H|C|D|20190304^{plant}|{plant}|ORU^R01^ORU_R01^{plant}|c1^{plant}|P^T^{plant}|2.5.1^{plant}|"
    out = MINIMUM.message(f"{head}{plant}\rPID||||||||F\r".encode()).payload.decode()
    assert not any(plant in out for plant in PLANTS)
    assert "|ORU^R01^ORU_R01^" in out and "|P^T^" in out and "|2.5.1^" in out


@pytest.mark.parametrize("at", range(1, 40))
def test_an_identifier_planted_in_any_field_is_removed(at: int) -> None:
    """Names and numbers in every field and component that is not listed, including undefined fields."""
    plants = "^".join(PLANTS) + "~" + "&".join(PLANTS)
    lines = ["MSH|^~\\&|L|H|C|D|20190304||ORU^R01|c1|P|2.5.1"]
    for name in (
        "PID",
        "NK1",
        "PV1",
        "PV2",
        "ORC",
        "OBR",
        "NTE",
        "OBX",
        "SPM",
        "TQ1",
        "IN1",
        "GT1",
        "ZZZ",
        "DG1",
        "AL1",
    ):
        if not any(path == f"{name}-{at}" or path.startswith(f"{name}-{at}.") for path in LISTED) and name != "OBX":
            lines.append(f"{name}{'|' * at}{plants}")
    if at > 14:
        lines.append(f"OBX|1|NM|2345-7^x^LN||5.1{'|' * (at - 5)}{plants}")
    out = MINIMUM.message("\r".join([*lines, ""]).encode()).payload.decode()
    assert not any(plant in out for plant in PLANTS)
    assert at <= 14 or "OBX|1|NM|2345-7^^LN||5.1" in out

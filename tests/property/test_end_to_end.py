"""Random messages through the whole de-identifier: structure is kept, each change has a remark."""

import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from support.fhir_payloads import resources
from support.hl7_payloads import payloads

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = Path(__file__).resolve().parents[2] / "rules"
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][-+0-9.eE]*')
POLICIES = ("pseudonymised", "safe-harbor")
slow = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@lru_cache(maxsize=4)
def deidentifier(name: str) -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy(name, RULES)).deidentifier()


def done(raw: bytes, name: str) -> Deidentified | None:
    """None for a refusal; its reason must not be an internal fault."""
    try:
        return deidentifier(name).message(raw)
    except MessageError as problem:
        assert problem.reason is not Reason.INTERNAL
        return None


def names(tree: object) -> object:
    if isinstance(tree, dict):
        return [names(value) for value in tree.values()]
    if isinstance(tree, list):
        return [names(value) for value in tree]
    return type(tree) in {int, float} or type(tree)


@pytest.mark.parametrize("name", POLICIES)
@slow
@given(raw=payloads())
def test_hl7(name: str, raw: bytes) -> None:
    result = done(raw, name)
    if result is None:
        return
    mark = raw[raw.find(b"\x53\x48") + 2 :][:1] if raw.find(b"MSH") >= 0 else b"|"
    end = rb"(\r+)" if b"\r" in raw else rb"(\n+)"  # if there is any CR, a bare LF is content
    before, after = (re.split(end, each) for each in (raw, result.payload))
    assert len(before) == len(after)
    if raw.isascii():
        assert [part.count(mark) for part in before] == [part.count(mark) for part in after]
    assert (result.payload == raw) or result.remarks
    assert done(raw, name) == result  # the same result after any other input
    assert deidentifier("keep").message(raw).payload == raw


@pytest.mark.parametrize("name", POLICIES)
@slow
@given(raw=resources())
def test_fhir(name: str, raw: bytes) -> None:
    result = done(raw, name)
    if result is None:
        return
    assert TOKEN.sub(b"#", raw) == TOKEN.sub(b"#", result.payload)
    assert names(json.loads(raw)) == names(json.loads(result.payload))
    assert (result.payload == raw) or result.remarks
    for one, two in zip(TOKEN.findall(raw), TOKEN.findall(result.payload), strict=True):
        assert one == two or json.loads(one) != json.loads(two)
    assert done(raw, name) == result
    assert deidentifier("keep").message(raw).payload == raw

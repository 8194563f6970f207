"""Optional validation: a new problem is named by path and kind, never by value."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.shared import shared

from deid_agent.agent.job import Job, Refused
from deid_agent.app import AuditDigester, JobRunner, WorkerFactory
from deid_agent.cli import main
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.timings import Timings
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.plans import MessagePlan
from deid_agent.pipeline.policy import load_policy
from deid_agent.pipeline.recognition import Recognition
from deid_agent.pipeline.validation import Validator

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "deid_agent" / "samples"
MSH = "MSH|^~\\&|A|B|C|D|20230501||ADT^A08|1|P|2.5.1"


@pytest.fixture(scope="module")
def validator() -> Validator:
    return Validator()


def hl7(*lines: str, header: str = MSH) -> bytes:
    return "".join(f"{line}\r" for line in (header, *lines)).encode()


def patient(**members: object) -> bytes:
    return json.dumps({"resourceType": "Patient", **members}).encode()


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (hl7("PID|1||12||A^B||19620308"), hl7("PID|1||12||C^D||[**DATE**]"), ("PID-7[1].1: DTM ValueError",)),
        (hl7("PID|1||12||A^B||words"), hl7("PID|1||12||C^D||[**DATE**]"), ()),  # it never was a date
        (hl7("PID|1||12||A^B"), hl7("PID|1||||C^D"), ("PID-3: required",)),
        (hl7("PID|1||12||A^B", "PID|2||13||A"), hl7("PID|1||12||A^B", "PID|2||||A"), ("PID(2)-3: required",)),
        (hl7("PID|1||12|||||F|||^^^^^^^^Kent"), hl7("PID|1||12|||||F|||^^^^^^^^" + "K" * 21), ("PID-11[1].9: IS",)),
        (hl7("OBX|1|NM|a||12||||||F"), hl7("OBX|1|NM|a||Ada||||||F"), ("OBX-5[1]: NM ValueError",)),
        (hl7("OBX|1|TX|a||x^y||||||F"), hl7("OBX|1|TX|a||Ada||||||F"), ()),
        (hl7("ZZZ|1"), hl7("ZZZ|Ada"), ()),  # no schema
        (hl7("PID|1||12||A", header="MSH|^~\\&|||||||ADT^A08|1|P|9"), hl7("PID|1||||A"), ("PID-3: required",)),
        (patient(birthDate="1962-03-08"), patient(birthDate="March"), ("birthDate: value_error",)),
        (patient(birthDate="March"), patient(birthDate="April"), ()),
        (patient(id="p1"), patient(id="p 1"), ("id: string_pattern_mismatch",)),
        (patient(meta={"lastUpdated": "2031-02-03T04:05:06Z"}), patient(meta={"lastUpdated": "2031"}), ("meta.last",)),
        (patient(id="p1"), patient(id="p1", Ada=1), ("?: extra_forbidden",)),
        (patient() + b"\n" + patient(), patient() + b"\n" + patient(id="_"), ("line[1].id: string_pattern_mismatch",)),
        (b'{"resourceType": "Ada"}', b'{"resourceType": "Ada", "x": 1}', ()),
        (patient(), b"{", ("json: not JSON",)),
    ],
)
def test_new_errors_are_named(validator: Validator, before: bytes, after: bytes, new: tuple[str, ...]) -> None:
    found = [each for each in validator.added(before, after) if not each.startswith("message")]
    assert len(found) == len(new)
    for each, start in zip(found, new, strict=True):
        assert each.startswith(start)
        assert "Ada" not in each


@pytest.mark.parametrize(
    ("resource", "release"),
    [
        ({"resourceType": "Patient"}, "R4B"),
        ({"resourceType": "ProcessRequest", "action": "poll"}, "STU3"),  # withdrawn in R4
        ({"resourceType": "Transport", "intent": "order"}, "R5"),  # new in R5
    ],
)
def test_the_matching_release_validates(validator: Validator, resource: dict[str, object], release: str) -> None:
    raw = json.dumps(resource).encode()
    assert validator.problems(raw, release) <= validator.problems(raw)
    assert validator._release(raw) == release


class Breaks(Deidentifier):
    """A de-identifier with a fault: it empties a required field."""

    def __init__(self) -> None:
        self._shape = None

    def plan(self, payload: bytes, **_: object) -> MessagePlan:
        return MessagePlan(payload, None, (), (), (), Timings())

    def recognize(self, plans: Sequence[MessagePlan], memory: object = None) -> list[Recognition]:
        return [Recognition([]) for _ in plans]

    def apply(self, plan: MessagePlan, recognition: Recognition, **_: object) -> Deidentified:
        return Deidentified(plan.payload.replace(b"||12||", b"||||"), ())


def test_xml_must_be_well_formed(validator: Validator) -> None:
    raw = b'<Patient xmlns="http://hl7.org/fhir"><id value="1"/></Patient>'

    assert validator.added(raw, raw.replace(b'"1"', b'"2"')) == ()
    assert validator.added(raw, raw.replace(b'"1"', b'"<"')) == ("xml: not well-formed",)


def test_a_job_with_a_less_valid_output_is_refused(validator: Validator) -> None:
    job = Job(hl7("PID|1||12||A^B"), key=None, headers=())
    done = JobRunner(Breaks(), AuditDigester(DEMO_KEY), 10_000, validator)(job)
    assert isinstance(done, Refused)
    assert (done.reason, done.where) == (Reason.INTERNAL, "PID-3")
    assert not isinstance(JobRunner(Breaks(), AuditDigester(DEMO_KEY), 10_000)(job), Refused)


def test_the_error_names_the_first_and_how_many_more(validator: Validator) -> None:
    with pytest.raises(MessageError, match=r"INTERNAL: PID-3: less valid than it came \(required\) and 1 more"):
        validator.check(hl7("PID|1||12||A^B"), hl7("PID|1||||"))


def test_the_command_checks_every_sample(tmp_path: Path) -> None:
    for name in ("pseudonymised", "safe-harbor"):
        arguments = [
            "message",
            str(SAMPLES),
            "--demo-key",
            "--validate",
            "--policy",
            name,
            "--out",
            str(tmp_path / name),
        ]
        done = CliRunner().invoke(main, arguments)
        assert "less valid" not in done.stderr
        assert len(list((tmp_path / name).glob("0*"))) == len(list(SAMPLES.glob("0*"))) - 1  # one is cut off


@pytest.mark.parametrize("name", ["pseudonymised", "safe-harbor"])
@pytest.mark.parametrize(("folder", "every"), [("fhir", 12), ("hl7", 80), ("hl7-odd", 20), ("hl7-batch", 3)])
def test_no_output_is_less_valid_than_its_input(validator: Validator, name: str, folder: str, every: int) -> None:
    """A sample; ``tests/support/formats_report.py`` walks all of them."""
    rules = ROOT / "rules"
    deidentifier = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy(name, rules)).deidentifier()
    paths = sorted(path for path in shared("messages", folder).rglob("*") if path.is_file())[::every]
    checked = 0
    for path in paths:
        raw = path.read_bytes()
        try:
            out = deidentifier.message(raw).payload
        except MessageError:
            continue
        assert validator.added(raw, out) == (), path.name
        checked += 1
    assert checked > len(paths) * 0.9

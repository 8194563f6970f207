"""A batch gives the results of single messages: payload, key, remarks and refusals."""

import base64
import json
from functools import lru_cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.attachments import NOTE, pdf, pdf_text, reference, rtf
from support.corpus import RULES
from support.fhir_payloads import resources
from support.hl7_payloads import payloads

from deid_agent.agent.job import Job, Processed, Refused, attempt
from deid_agent.app import AuditDigester, JobRunner, WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy

HEAD = b"MSH|^~\\&|A|B|C|D|20230501||ORU^R01|1|P|2.5.1\rPID|1||4471902||Okafor^Zebulon||19610504|M\r"


def report(text: str) -> bytes:
    return HEAD + b"OBX|1|TX|1||" + text.encode() + b"||||||F\r"


def holding(data: bytes) -> bytes:
    return HEAD + b"OBX|1|ED|1||^TEXT^^Base64^" + base64.b64encode(data) + b"||||||F\r"


def nested(times: int) -> bytes:
    return holding(nested(times - 1)) if times else report("Seen by Dr. Bellweather on 5/4/2023.")


FIXED = (
    report("Zebulon Okafor came with Mrs. Okafor; phone 740-555-0183."),
    report("Dr. Uchenna Bellweather saw him on March 3rd at Cedar Hill Hospital."),
    report(""),
    holding(NOTE.encode()),
    holding(rtf(NOTE)),
    holding(pdf([pdf_text(NOTE)])),
    holding(b"\x89PNG\r\n\x1a\n"),
    reference(NOTE.encode(), "text/plain"),
    nested(2),
    nested(7),  # refused: too deep
    b"not a message at all",
    b"MSH|^~\\&|",
    json.dumps({"resourceType": "Patient", "name": 7}).encode(),
    b"",
)
keys = st.none() | st.sampled_from([b"4471902", b"Okafor_Zebulon.hl7"])
jobs = st.builds(
    Job,
    st.sampled_from(FIXED) | payloads() | resources(),
    keys,
    st.sampled_from([(), (("trace", b"1"),)]),
) | st.builds(lambda k: Job(b"", k, (), True), keys)


@lru_cache(maxsize=1)
def bench() -> JobRunner:
    parts = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES))
    return JobRunner(parts.deidentifier(), AuditDigester(DEMO_KEY), 1_000_000)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(jobs, max_size=7))
def test_a_batch_gives_the_results_of_its_members(group: list[Job]) -> None:
    found = bench().process_batch(group)
    assert len(found) == len(group)
    for job, (result, seconds) in zip(group, found, strict=True):
        one = attempt(bench(), job)
        assert seconds > 0
        if isinstance(one, Processed) and isinstance(result, Processed):
            assert sum(spent for _, spent in result.timings) <= seconds + 1e-6
            assert {stage for stage, _ in result.timings} == {stage for stage, _ in one.timings}
        assert untimed(result) == untimed(one)


def untimed(result: object) -> object:
    """A result without its duration."""
    if not isinstance(result, Processed):
        assert isinstance(result, Refused)
        return result
    meta = (result.remarks, result.input_digest, result.output_digest, result.found)
    return result.payload, result.key, result.headers, meta

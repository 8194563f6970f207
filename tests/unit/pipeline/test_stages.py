"""The stages plan, recognize and apply: each message gets its own findings, errors and seconds."""

import base64
from collections.abc import Sequence

import pytest
from support.corpus import RULES

from deid_agent.agent.job import Job, Processed, Refused
from deid_agent.app import AuditDigester, JobRunner, WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Source, SourceKind, Span
from deid_agent.model.text import Document
from deid_agent.model.timings import Timings
from deid_agent.pipeline.deidentify import Deidentified, Deidentifier
from deid_agent.pipeline.plans import MessagePlan
from deid_agent.pipeline.policy import load_policy
from deid_agent.pipeline.recognition import PlannedText, Recognition, recognize_texts


class Reader:
    """Finds each text as a whole and takes ten seconds by its own clock. Fails for the text ``bad``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[list[str]] = []

    def find_all(self, documents: Sequence[Document]) -> list[list[Span]]:
        texts = [document.text for document in documents]
        self.calls.append(texts)
        self.now += 10.0
        if "bad" in texts:
            raise MessageError(Reason.RESOURCE, "text")
        return [[Span(0, len(text), PhiType.PATIENT, Source(SourceKind.RULE, text))] for text in texts]

    def clock(self) -> float:
        return self.now

    def recognize(self, *messages: Sequence[str]) -> list[Recognition]:
        plans = [[PlannedText(n, text) for n, text in enumerate(texts)] for texts in messages]
        return recognize_texts(plans, self.find_all, self.clock)


def found(recognition: Recognition) -> list[str]:
    """The texts of a message that were read."""
    assert recognition.error is None
    return [str(span.source) for spans in recognition.spans for span in spans]


def test_texts_of_several_messages_are_read_in_one_call() -> None:
    reader = Reader()
    results = reader.recognize(["a", "b"], [], ["d"], ["e", "f"])
    assert [found(result) for result in results] == [["a", "b"], [], ["d"], ["e", "f"]]
    assert reader.calls == [["a", "b", "d", "e", "f"]]


def test_a_failed_batch_is_an_error_only_for_the_message_at_fault() -> None:
    reader = Reader()
    first, second, third = reader.recognize(["a"], ["b", "bad"], ["c"])
    assert (found(first), found(third)) == (["a"], ["c"])
    assert isinstance(second.error, MessageError)
    assert reader.calls == [["a", "b", "bad", "c"], ["a"], ["b", "bad"], ["c"]]


def test_a_message_that_has_failed_is_read_no_further() -> None:
    reader, large = Reader(), "x" * 65_535
    first, second = reader.recognize(["bad", large, "a"], ["b"])
    assert isinstance(first.error, MessageError)
    assert found(second) == ["b"]
    assert reader.calls == [["bad"], ["b"]]


def test_a_batch_has_a_bounded_size() -> None:
    """A batch takes no more memory than its largest text, whether its texts are of one message or of several."""
    reader, large = Reader(), "x" * 40_000
    messages = [["a", large], [large, "b", 2 * large], ["c"]]
    results = reader.recognize(*messages)
    assert [found(result) for result in results] == messages
    assert reader.calls == [["a", large], [large, "b"], [2 * large], ["c"]]


def test_one_message_alone_is_read_once() -> None:
    reader = Reader()
    (result,) = reader.recognize(["bad"])
    assert isinstance(result.error, MessageError)
    assert reader.calls == [["bad"]]


def test_white_space_is_not_read() -> None:
    reader = Reader()
    first, second = reader.recognize([" \n", ""], [" ", "a"])
    assert found(first) == []
    assert [len(spans) for spans in second.spans] == [0, 1]
    assert reader.calls == [["a"]]


def test_the_reading_time_is_shared_by_the_length_of_the_texts() -> None:
    reader = Reader()
    results = reader.recognize(["aaaa"], ["bbbb"] * 4, [])
    assert [result.seconds for result in results] == [2.0, 8.0, 0.0]


def test_no_text_is_in_a_repr() -> None:
    assert "Okafor" not in repr(PlannedText(0, "Okafor"))
    assert "Okafor" not in repr(Reader().recognize(["Okafor"]))


# The whole de-identifier


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    policy = load_policy("pseudonymised", RULES)
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=policy, system="rules").deidentifier()


HEAD = "MSH|^~\\&|A|B|C|D|20230501||ORU^R01|1|P|2.5.1\rPID|1||4471902||Okafor^Zebulon||19610504|M\r"


def report(*lines: str, head: str = HEAD) -> bytes:
    return (head + "".join(f"{line}\r" for line in lines)).encode()


def attached(data: bytes) -> str:
    return f"OBX|9|ED|1||^TEXT^^Base64^{base64.b64encode(data).decode()}||||||F"


def test_a_plan_lists_the_texts_of_attachments_at_all_levels_with_the_facts_of_the_outer_message(
    deidentifier: Deidentifier,
) -> None:
    inner = report("OBX|1|TX|1||Inner report.||||||F", attached(b"A plain note."), head="MSH|^~\\&|A\rPID|1||77||Bo\r")
    plan = deidentifier.plan(report("OBX|1|TX|1||Outer report.||||||F", attached(inner)))
    assert sorted(text.text for text in plan.texts) == ["A plain note.", "Inner report.", "Outer report."]
    assert [text.index for text in plan.texts] == [0, 1, 2]
    for text in plan.texts:
        values = {fact.value for fact in text.facts}
        assert {"4471902", "Okafor"} <= values
        assert ("77" in values) is (text.text != "Outer report.")


def test_attachments_share_the_scope_of_their_message(deidentifier: Deidentifier) -> None:
    inner = report("OBX|1|TX|1||x||||||F", head="MSH|^~\\&|Z|Y|X|W|20010203||ORU^R01|2|P|2.5\rPID|1||77||Bo\r")
    (outer,) = deidentifier.plan(report(attached(inner))).parts
    content = outer.attachments[0].content
    assert content is not None
    (nested,) = content.parts  # type: ignore[union-attr]
    assert nested.scope.document == outer.scope.document
    assert nested.scope.patient == outer.scope.patient
    assert nested.scope.reference == outer.scope.reference


def test_a_fact_of_an_attachment_is_guarded_in_the_message_that_holds_it(deidentifier: Deidentifier) -> None:
    inner = report("OBX|1|TX|1||x||||||F", head="MSH|^~\\&|A\rPID|1||8812345677||Abernathy^Prudence\r")
    done = deidentifier.message(report("OBX|1|CE|1||Abernathy Prudence^text||||||F", attached(inner)))
    assert b"Abernathy" not in done.payload
    assert any(remark.source == "guard" for remark in done.remarks)


def test_the_seconds_of_recognition_are_a_stage(deidentifier: Deidentifier) -> None:
    plan = deidentifier.plan(report("OBX|1|TX|1||Seen by Dr. Bellweather.||||||F"))
    (recognition,) = deidentifier.recognize([plan])
    recognition.seconds = 7.0
    assert dict(deidentifier.apply(plan, recognition).timings)["recognize"] == 7.0


def test_the_error_of_a_recognition_is_raised(deidentifier: Deidentifier) -> None:
    plan = deidentifier.plan(report("OBX|1|TX|1||x||||||F"))
    with pytest.raises(KeyError):
        deidentifier.apply(plan, Recognition([()], error=KeyError("x")))


# Jobs


class Faulty(Deidentifier):
    """A de-identifier that fails for some payloads, in one stage each."""

    def __init__(self) -> None:  # nothing to hold
        pass

    def plan(self, payload: bytes, **_: object) -> MessagePlan:
        if payload == b"bad plan":
            raise KeyError("Okonkwo")
        return MessagePlan(payload, None, (), (), (), Timings())

    def recognize(self, plans: Sequence[MessagePlan], memory: object = None) -> list[Recognition]:
        return [Recognition([], seconds=100.0 if plan.payload == b"slow" else 0.0) for plan in plans]

    def apply(self, plan: MessagePlan, recognition: Recognition, **_: object) -> Deidentified:
        if plan.payload == b"bad apply":
            raise ValueError("Okonkwo")
        if plan.payload == b"leak":
            raise MessageError(Reason.LEAK, "PID-5")
        return Deidentified(plan.payload, ())


def test_a_fault_ends_one_job_and_shows_no_text() -> None:
    runner = JobRunner(Faulty(), AuditDigester(DEMO_KEY), 100)
    payloads = (b"a", b"bad plan", b"bad apply", b"leak", b"x" * 101, b"slow")
    results = runner.process_batch([Job(payload) for payload in payloads])
    good, planned, applied, leak, large, slow = (result for result, _ in results)
    assert isinstance(good, Processed)
    assert isinstance(slow, Processed)
    assert (good.payload, slow.payload) == (b"a", b"slow")
    assert planned == Refused(Reason.INTERNAL, fault="KeyError")
    assert applied == Refused(Reason.INTERNAL, fault="ValueError")
    assert isinstance(leak, Refused)
    assert (leak.reason, leak.where, leak.stage) == (Reason.LEAK, "PID-5", "deidentify")
    assert isinstance(large, Refused)
    assert (large.reason, large.stage) == (Reason.RESOURCE, "size")
    assert [seconds >= 100.0 for _, seconds in results] == [False] * 5 + [True]


def test_a_single_job_is_a_batch_of_one() -> None:
    runner = JobRunner(Faulty(), AuditDigester(DEMO_KEY), 100)
    assert runner(Job(b"bad plan")) == Refused(Reason.INTERNAL, fault="KeyError")
    result = runner(Job(b"a"))
    assert isinstance(result, Processed)
    assert result.payload == b"a"

"""A worker with projects: each record under its own key and policy, and nothing that two feeds have in common.

The digests of ``default`` were computed with the release before there were projects.
"""

from collections.abc import Mapping

import pytest
from support.projects import digest_of_outputs, finish, records

from deid_agent.agent import Coordinates, Job, OutputMarks, Processed, Record, Refused
from deid_agent.agent.job import BatchProcess, Process
from deid_agent.app import ProjectParts, WorkerFactory
from deid_agent.config import SecretKey, derive_key
from deid_agent.model import Reason
from deid_agent.pipeline import load_policy
from deid_agent.recognize import Tagger, load_tagger
from deid_agent.rules import data_folder

RULES = data_folder("rules")
KEY = SecretKey(bytes(range(7, 39)))
BEFORE = {
    "pseudonymised": "673642b50e059091088f8bd10a7695cf09c463843507e9ed320457cfade3931e",
    "safe-harbor": "badf7dee705261a6afa673ad386cb60c8bb0ba68315098b6a3076aa7fb1484af",
    "keep": "d67435c5a03e88092d547a6a1a8004c419e8e20e3183cde3f593678ce158511d",
}
COUNT = 120


def factory(policy: str = "pseudonymised", projects: Mapping[str, tuple[str, str]] | None = None) -> WorkerFactory:
    """``projects``: name = (domain, policy)."""
    made = tuple(
        ProjectParts(name, derive_key(KEY, domain, 1), load_policy(wanted, RULES), "none", generation=1)
        for name, (domain, wanted) in (projects or {}).items()
    )
    return WorkerFactory(RULES, KEY, load_policy(policy, RULES), system="none", projects=made)


def marks(parts: WorkerFactory, name: str) -> OutputMarks:
    (own,) = (each for each in (parts.default, *parts.projects) if each.name == name)
    return OutputMarks(own.key.secret, own.policy.record_time, name)


@pytest.fixture(scope="module")
def feeds() -> tuple[Process, WorkerFactory]:
    parts = factory(
        projects={
            "a": ("a", "pseudonymised"),
            "b": ("b", "pseudonymised"),
            "twin": ("a", "pseudonymised"),
            "c": ("c", "research"),
        }
    )
    return parts(), parts


@pytest.mark.parametrize("policy", BEFORE)
def test_default_gives_the_bytes_of_the_release_before(policy: str, feeds: tuple[Process, WorkerFactory]) -> None:
    parts = factory(policy)
    one_feed = OutputMarks(KEY.secret, parts.policy.record_time)
    assert digest_of_outputs(parts(), one_feed, 12) == BEFORE[policy]
    if policy == "pseudonymised":  # beside projects too
        assert digest_of_outputs(feeds[0], one_feed, 12) == BEFORE[policy]


def identifiers(record: Record, process: Process, marks: OutputMarks, project: str) -> list[set[bytes]]:
    """The identifiers of an output; then key, headers and the keyed digests of the audit."""
    finished, line = finish(process, marks, record, project)
    assert finished.output is not None
    fields = {
        name: values.split(b"|")
        for name, _, values in (s.partition(b"|") for s in finished.output.payload.split(b"\r"))
    }
    pid = fields[b"PID"]
    ids = {fields[b"MSH"][8], pid[2].split(b"^")[0], pid[12], fields[b"PV1"][18]}
    audit = {part for part in line.split(b'"') if len(part) == 32}
    headers = {value for name, value in finished.output.headers if name != "content-type"}
    return [ids, {finished.output.key or b""}, headers, audit, {pid[4] + pid[10]}, {pid[6]}]


@pytest.mark.parametrize("pair", [("a", "b"), ("default", "a")])
def test_two_domains_have_nothing_keyed_in_common(pair: tuple[str, str], feeds: tuple[Process, WorkerFactory]) -> None:
    process, parts = feeds
    same_births, sides = 0, (set[bytes](), set[bytes]())
    for record in records(COUNT):
        one, other = (identifiers(record, process, marks(parts, name), name) for name in pair)
        for mine, theirs in zip(one[:5], other[:5], strict=True):
            assert b"" not in mine
            assert not mine & theirs
        same_births += one[5] == other[5]
        sides[0].update(*one[1:4])
        sides[1].update(*other[1:4])
    assert not sides[0] & sides[1]
    assert len(sides[0]) == len(sides[1]) == 3 * COUNT  # key, id and digest of each
    assert same_births <= 3  # of 120: two shifts of a birth agree by chance in about one of a thousand


def test_equal_domains_join(feeds: tuple[Process, WorkerFactory]) -> None:
    process, parts = feeds
    for record in records(10):
        one, other = (identifiers(record, process, marks(parts, name), name) for name in ("a", "twin"))
        assert one == other


def test_a_batch_gives_each_job_the_result_it_has_alone(feeds: tuple[Process, WorkerFactory]) -> None:
    parts = feeds[1]
    loaded = parts()
    process = getattr(loaded, "__self__", loaded)  # without models the factory gives the method
    assert isinstance(process, BatchProcess)
    names = ["a", "", "c", "b", "default", "a", "nobody"]
    jobs = [
        Job(record.payload, record.key, source="hl7.raw", project=name)
        for record, name in zip(records(len(names)), names, strict=True)
    ]
    together = [result for result, _ in process.process_batch(jobs)]
    alone = [process(job) for job in jobs]
    assert [getattr(each, "payload", b"") for each in together] == [getattr(each, "payload", b"") for each in alone]
    assert together[-1] == Refused(Reason.INTERNAL, fault="UnknownProject")
    assert all(isinstance(each, Processed) for each in together[:-1])


def test_a_policy_of_a_project_is_its_own(feeds: tuple[Process, WorkerFactory]) -> None:
    record = next(records(1))
    texts = [feeds[0](Job(record.payload, record.key, project=name)) for name in ("a", "c")]
    assert [b"Quarry Lane" in each.payload for each in texts if isinstance(each, Processed)] == [False, False]
    assert len({each.payload for each in texts if isinstance(each, Processed)}) == 2


def test_projects_with_one_system_and_profile_share_a_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[tuple[object, ...]] = []

    def load(*given: object) -> Tagger:
        loads.append(given)
        return load_tagger(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("deid_agent.app.worker_factory.load_tagger", load)
    parts = factory(projects={name: (name, "pseudonymised") for name in "abcdef"})
    process = getattr(parts(), "__self__", None)
    assert len(loads) == 1
    guards = {id(each.deidentifier._guard) for each in process.runners.values()}  # type: ignore[union-attr]
    assert len(guards) == 1


def test_the_id_of_a_record_is_that_of_its_project(feeds: tuple[Process, WorkerFactory]) -> None:
    at = Coordinates("hl7.raw", 0, 7)
    assert len({marks(feeds[1], name).id_of(at, "t1") for name in ("default", "a", "b", "c")}) == 4
    assert marks(feeds[1], "a").id_of(at) == marks(feeds[1], "twin").id_of(at)

"""Jobs of the HTTP interface: answers, files, errors of lines, clients and limits."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from support.http_agent import OPERATION, PATIENCE_S, Start, digest_of, request, until
from support.http_jobs import FHIR, MakeWorld, call, items, path_of, until_empty, whole

from deid_agent.agent.ports import Outcome
from deid_agent.config import ClientToken
from deid_agent.http.service_access import ServiceLogins
from deid_agent.http.service_bodies import LineSplitter
from deid_agent.http.service_job_files import JobFile, JobFolder
from deid_agent.http.service_job_runs import RunLimits
from deid_agent.http.service_jobs import JobLimits
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import ServiceJobEnded

CANARY = "Zyblorqvist"
BUNDLE = b'{"resourceType":"Bundle",\n"type":"collection"}'


async def test_each_line_of_each_file_is_a_record_in_order(world: MakeWorld) -> None:
    w = await world(codes=True)
    w.server.files = {
        "a": whole(b"".join(b'{"n":%d}\n' % n for n in range(300))),
        "b": whole(b"{1}\n\n \r\n{2}"),
        "c": whole(b"\n"),
    }
    started = await w.kick_off(("Patient", "a"), ("Condition", "b"), ("Condition", "c"), Prefer="return=minimal")
    assert "preference-applied" not in started.headers
    found = await w.finish(started)
    assert found["request"] == "http://127.0.0.1/fhir/default/$de-identify"
    assert (found["requiresAccessToken"], found["error"]) == (False, [])
    assert str(found["transactionTime"]).endswith("Z")
    patients, conditions = items(found, "output")
    assert (patients["type"], patients["count"], conditions["type"], conditions["count"]) == (
        "Patient",
        300,
        "Condition",
        2,
    )
    assert await w.read(patients) == b"".join(b'clean {"n":%d}\n' % n for n in range(300))
    assert await w.read(conditions, Accept="application/fhir+ndjson, */*;q=0") == b"clean {1}\nclean {2}\n"
    assert set(w.agent.executor.tasks) == {"line Patient", "line Condition"}
    assert len(w.agent.audit.entries) == 302
    keys = set(w.agent.executor.code_keys)
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert "Accept-Encoding: identity" in w.server.asked[0]
    (ended,) = [each for each in w.agent.telemetry.events if isinstance(each, ServiceJobEnded)]
    assert (ended.state, ended.files, ended.lines, ended.refused) == ("done", 3, 302, 0)


async def test_no_file_appears_before_the_audit_has_its_lines(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{}\n" * 3)}
    w.agent.audit.free.clear()
    started = await w.kick_off(("Patient", "a"))
    path = path_of(started.headers["content-location"])
    await until(lambda: len(w.agent.executor.tasks) == 3)
    await asyncio.sleep(0.05)
    progress = await w.agent.ask(path)
    assert (progress.status, progress.headers["x-progress"]) == (202, "file 1 of 1, 0 lines")
    assert (await w.agent.ask(f"{path}/1.ndjson")).status == 404
    assert not list(w.folder.rglob("*.ndjson"))
    w.agent.audit.free.set()
    assert items(await w.finish(started), "output")[0]["count"] == 3


async def test_a_refused_line_is_one_error_with_its_place(world: MakeWorld) -> None:
    w = await world(limits=JobLimits(RunLimits(100, 1 << 20, 100)))
    w.server.files = {
        "a": whole(b"{1}\nbad " + CANARY.encode() + b"\n{2}\n" + b"x" * 500 + b"\nleave\n"),
        "b": whole(b"bad\n"),
    }
    found = await w.run(("Patient", "a"), ("Patient", "b"))
    (output,) = items(found, "output")
    assert await w.read(output) == b"clean {1}\nclean {2}\n"
    assert await w.errors(found) == [
        ("MALFORMED", "file 1, line 2, byte 3"),
        ("RESOURCE", "file 1, line 4"),
        ("REJECTED", "file 1, line 5, policy"),
        ("MALFORMED", "file 2, line 1, byte 3"),
    ]
    outcomes = [entry.outcome for entry in w.agent.audit.entries]
    assert outcomes.count(Outcome.REFUSED) == 2
    assert Outcome.DEAD_LETTERED not in outcomes
    assert CANARY not in repr(w.agent.telemetry.events) + repr(found)


async def test_a_resource_becomes_a_job_if_the_client_prefers_that(world: MakeWorld) -> None:
    w = await world()
    started = await w.agent.ask(OPERATION, BUNDLE, FHIR, Prefer="handling=strict, Respond-Async; wait=5")
    assert started.headers["preference-applied"] == "respond-async"
    found = await w.finish(started)
    (output,) = items(found, "output")
    assert output["type"] == "Bundle"
    assert await w.read(output) == BUNDLE.replace(b"\n", b" ") + b"\n"
    assert w.agent.executor.tasks == ["resource"]
    assert w.agent.service.budget.held == 0
    assert (await w.agent.ask(OPERATION, BUNDLE, FHIR)).status == 200, "without the preference it is answered at once"
    refused = await w.finish(await w.agent.ask(OPERATION, b"bad", FHIR, Prefer="respond-async"))
    assert refused["output"] == []
    assert await w.errors(refused) == [("MALFORMED", "byte 3")]


async def test_the_bytes_of_a_resource_count_until_its_job_ends(world: MakeWorld) -> None:
    w = await world()
    started = await w.agent.ask(OPERATION, b"hold" + BUNDLE, FHIR, Prefer="respond-async")
    await until(lambda: len(w.agent.executor.pending) == 1)
    assert w.agent.service.budget.held == len(BUNDLE) + 4
    await w.agent.ask(path_of(started.headers["content-location"]), Method="DELETE")
    await until(lambda: w.agent.service.budget.held == 0)


async def test_the_form_of_the_result_is_that_of_darts_if_asked_for(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\nbad\n")}
    started = await w.kick_off(("Patient", "a"), Accept=FHIR)
    await w.finish(started)
    found = await w.finish(started, Accept=FHIR)
    files, outcome = items(found, "parameter")
    assert files["name"] == "de-identifiedDataFileUrls"
    form, data = items(files["resource"], "parameter")  # type: ignore[arg-type]
    assert (form["valueCode"], items(data, "part")[0]["valueCode"]) == ("fhir+ndjson", "Patient")
    assert path_of(items(data, "part")[1]["valueUrl"]).endswith("/1.ndjson")  # type: ignore[arg-type]
    assert outcome["name"] == "outcome"
    path = path_of(started.headers["content-location"])
    for where in (path, f"{path}/1.ndjson"):
        assert code_of_fhir((await w.agent.ask(where, Accept="text/html")).body) == "NOT_ACCEPTABLE"
    assert "GMT" in (await w.agent.ask(path)).headers["expires"]
    for where in ("2", "9", "01", "1.part", "..%2f..%2flock"):
        assert (await w.agent.ask(f"{path}/{where}.ndjson")).status == (200 if where == "2" else 404)


def code_of_fhir(body: bytes) -> str:
    return str(json.loads(body)["issue"][0]["details"]["coding"][0]["code"])


async def test_a_job_is_found_by_its_client_only(world: MakeWorld) -> None:
    tokens = (ClientToken("lab", digest_of("a" * 40)), ClientToken("ward", digest_of("b" * 40)))
    w = await world(logins=ServiceLogins(tokens))
    lab, ward = {"Authorization": "Bearer " + "a" * 40}, {"Authorization": "Bearer " + "b" * 40}
    w.server.files = {"a": whole(b"{1}\n")}
    started = await w.kick_off(("Patient", "a"), **lab)
    await w.finish(started, **lab)
    path = path_of(started.headers["content-location"])
    for where in (path, f"{path}/1.ndjson"):
        assert code_of_fhir((await w.get(where, **ward)).body) == "NOT_FOUND"
        assert (await w.agent.ask(where)).status == 401
    assert (await w.get(path, Method="DELETE", **ward)).status == 404
    assert (await w.get(path.replace("default", "other"), **lab)).status == 404
    assert (await w.get(f"/fhir/default/jobs/{'0' * 32}", **lab)).status == 404
    assert (await w.get(path, **lab)).status == 200
    assert {entry.client for entry in w.agent.audit.entries} == {"lab"}


async def test_a_job_that_is_deleted_ends_and_leaves_nothing(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\nhold\n{2}\n"), "b": whole(b"{}\n")}
    running = path_of((await w.kick_off(("Patient", "a"))).headers["content-location"])
    await until(lambda: len(w.agent.executor.pending) == 1)
    started = await w.kick_off(("Patient", "b"))
    await w.finish(started)
    for path in (running, path_of(started.headers["content-location"])):
        assert (await w.agent.ask(path, Method="DELETE")).status == 202
        assert (await w.agent.ask(path)).status == 404
        assert (await w.agent.ask(f"{path}/1.ndjson")).status == 404
        assert (await w.agent.ask(path, Method="DELETE")).status == 404
    await until_empty(w.folder)
    w.agent.executor.release()
    await until(lambda: all(slot.free for slot in w.agent.transport.slots))
    assert w.agent.telemetry.names(ServiceJobEnded, "state") == ["done", "cancelled"]


async def test_a_kick_off_that_is_repeated_with_its_key_gives_the_same_job(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\n"), "b": whole(b"{1}\n")}
    first = await w.kick_off(("Patient", "a"), Idempotency_Key="k1")
    again = await w.kick_off(("Patient", "a"), Idempotency_Key="k1")
    assert again.headers["content-location"] == first.headers["content-location"]
    assert code_of_fhir((await w.kick_off(("Patient", "b"), Idempotency_Key="k1")).body) == "IDEMPOTENCY"
    other = await w.kick_off(("Patient", "a"), Idempotency_Key="k2")
    assert other.headers["content-location"] != first.headers["content-location"]
    assert code_of_fhir((await w.kick_off(("Patient", "a"), Idempotency_Key="a b")).body) == "PARAMETER"
    path = path_of(first.headers["content-location"])
    await w.agent.ask(path, Method="DELETE")
    assert path_of((await w.kick_off(("Patient", "a"), Idempotency_Key="k1")).headers["content-location"]) == path


async def test_a_client_has_a_number_of_jobs_and_a_job_a_number_of_files_and_bytes(world: MakeWorld) -> None:
    limits = JobLimits(RunLimits(1 << 20, 10, 2), per_client=2, running=1, files=2)
    w = await world(limits=limits)
    w.server.files = {"a": whole(b"{1}\n{2}\n"), "hold": whole(b"hold\n"), "bad": whole(b"bad\n" * 3 + b"{}\n")}
    assert code_of_fhir((await w.kick_off(*[("Patient", "a")] * 3)).body) == "JOB_SIZE"
    found = await w.run(("Patient", "a"), ("Patient", "a"))
    assert [each["count"] for each in items(found, "output")] == [2]
    assert await w.errors(found) == [("JOB_SIZE", "file 2")]
    assert (
        code_of_fhir((await w.agent.ask(OPERATION, call("", ("Patient", "file:///etc/passwd")), FHIR)).body)
        == "ADDRESS"
    )
    await w.kick_off(("Patient", "hold"))
    late = await w.kick_off(("Patient", "a"))
    assert (late.status, code_of_fhir(late.body)) == (429, "JOBS")
    assert (await w.agent.ask(OPERATION, BUNDLE, FHIR, Prefer="respond-async")).status == 429
    assert w.agent.service.budget.held == 0


async def test_an_output_has_no_byte_order_mark(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"\xef\xbb\xbf{1}\n{2}\n")}
    (output,) = items(await w.run(("Patient", "a")), "output")
    assert not (await w.read(output)).startswith(b"\xef\xbb\xbf")


async def test_a_file_of_too_many_refused_lines_is_given_up(world: MakeWorld) -> None:
    w = await world(limits=JobLimits(RunLimits(1 << 20, 1 << 20, 2)))
    w.server.files = {"a": whole(b"{1}\n" + b"bad\n" * 9), "b": whole(b"{2}\n")}
    found = await w.run(("Patient", "a"), ("Patient", "b"))
    assert [each["url"][-8:] for each in items(found, "output")] == ["2.ndjson"]  # type: ignore[index]
    assert [code for code, _ in await w.errors(found)] == ["MALFORMED"] * 3 + ["FILE_ERRORS"]


async def test_jobs_with_files_wait_for_their_turn(world: MakeWorld) -> None:
    w = await world(limits=JobLimits(RunLimits(1 << 20, 1 << 20, 2), running=1))
    w.server.files = {"hold": whole(b"hold\n"), "a": whole(b"{1}\n")}
    first = await w.kick_off(("Patient", "hold"))
    await until(lambda: len(w.agent.executor.pending) == 1)
    second = await w.kick_off(("Patient", "a"))
    waiting = await w.agent.ask(path_of(second.headers["content-location"]))
    assert (waiting.status, waiting.headers["x-progress"]) == (202, "waiting")
    bundle = await w.agent.ask(OPERATION, BUNDLE, FHIR, Prefer="respond-async")
    await w.finish(bundle)
    w.agent.executor.release()
    await w.finish(first)
    await w.finish(second)


async def test_a_client_with_slow_jobs_does_not_stop_the_jobs_of_others(world: MakeWorld) -> None:
    tokens = (ClientToken("lab", digest_of("a" * 40)), ClientToken("ward", digest_of("b" * 40)))
    limits = JobLimits(RunLimits(1 << 20, 1 << 20, 2), running=2)
    w = await world(logins=ServiceLogins(tokens), limits=limits)
    lab, ward = {"Authorization": "Bearer " + "a" * 40}, {"Authorization": "Bearer " + "b" * 40}
    w.server.files = {"hold": whole(b"hold\n"), "a": whole(b"{1}\n")}
    slow = [await w.kick_off(("Patient", "hold"), **lab) for _ in range(2)]
    await until(lambda: len(w.agent.executor.pending) == 1)
    assert items(await w.finish(await w.kick_off(("Patient", "a"), **ward), **ward), "output")
    assert len(w.agent.executor.pending) == 1
    path = path_of(slow[1].headers["content-location"])
    assert (await w.get(path, **lab)).headers["x-progress"] == "waiting"
    assert (await w.get(path, Method="DELETE", **lab)).status == 202
    w.agent.executor.release()
    await w.finish(slow[0], **lab)


async def test_a_job_ends_and_its_files_expire(world: MakeWorld) -> None:
    w = await world(limits=JobLimits(RunLimits(1 << 20, 1 << 20, 2), seconds=1.0))
    w.server.files = {"a": whole(b"{1}\n"), "hold": whole(b"hold\n")}
    started = await w.kick_off(("Patient", "a"), ("Patient", "hold"))
    found = await w.finish(started)
    assert [each["count"] for each in items(found, "output")] == [1]
    assert await w.errors(found) == [("JOB_TIME", "file 2")]
    await until(lambda: w.agent.telemetry.names(ServiceJobEnded, "state") == ["done"])
    await until_empty(w.folder)
    assert (await w.agent.ask(path_of(started.headers["content-location"]))).status == 404


async def test_a_job_of_an_agent_that_stops_has_no_result(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\nhold\n")}
    path = path_of((await w.kick_off(("Patient", "a"))).headers["content-location"])
    await until(lambda: len(w.agent.executor.pending) == 1)
    w.agent.runner.request_stop()
    await until(lambda: w.agent.telemetry.names(ServiceJobEnded, "state") == ["failed"])
    late = await w.agent.ask(path)
    assert (late.status, code_of_fhir(late.body)) == (503, "UNAVAILABLE")
    await w.jobs.close()
    assert [each.name for each in w.folder.iterdir()] == ["lock"]


async def test_an_address_is_that_of_the_request_or_of_the_setting(world: MakeWorld) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\n")}
    started = await w.kick_off(("Patient", "a"), Host="localhost:81")
    assert started.headers["content-location"].startswith("http://localhost:81/fhir/default/jobs/")
    found = await w.finish(started)
    assert str(items(found, "output")[0]["url"]).startswith("http://127.0.0.1/fhir/default/jobs/")
    odd = await w.kick_off(("Patient", "a"), Host="127.0.0.1/x?y=<z>")
    assert odd.headers["content-location"].startswith("/fhir/default/jobs/")
    assert w.agent.service.jobs is not None
    w.agent.service.jobs._base_url = "https://deid.example/api"
    started = await w.kick_off(("Patient", "a"))
    assert started.headers["content-location"].startswith("https://deid.example/api/fhir/default/jobs/")


async def test_a_client_that_does_not_read_its_file_is_left(world: MakeWorld) -> None:
    w = await world(limits=JobLimits(RunLimits(32 << 20, 64 << 20, 2)), idle_s=0.2, message_bytes=32 << 20)
    assert w.agent.service.jobs is not None
    w.agent.service.jobs._idle_s = 0.2
    w.server.files = {"a": whole(b"{" + b"x" * (20 << 20) + b"\n")}
    started = await w.kick_off(("Patient", "a"))
    await w.finish(started)
    reader, writer = await w.agent.open()
    writer.write(request(path_of(started.headers["content-location"]) + "/1.ndjson"))
    await reader.readuntil(b"\r\n\r\n")
    await until(lambda: not w.agent.server._open)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(20 << 20)


async def test_a_full_disk_fails_the_job_and_nothing_else(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    w = await world()
    w.server.files = {"a": whole(b"{1}\n"), "b": whole(b"{2}\n")}
    real, calls = os.fsync, list[int]()

    def full(file: int) -> None:
        """The first file and its name are written."""
        calls.append(file)
        if len(calls) > 2:
            raise OSError(28, f"no space for {CANARY}")
        real(file)

    monkeypatch.setattr("deid_agent.http.service_job_files.os.fsync", full)
    path = path_of((await w.kick_off(("Patient", "a"), ("Patient", "b"))).headers["content-location"])
    await until(lambda: w.agent.telemetry.names(ServiceJobEnded, "state") == ["failed"])
    reply = await w.agent.ask(path)
    assert (reply.status, code_of_fhir(reply.body)) == (500, "STORAGE")
    await until_empty(w.folder)
    assert CANARY not in repr(w.agent.telemetry.events)
    monkeypatch.undo()
    assert items(await w.run(("Patient", "a")), "output")


async def test_a_slow_disk_holds_up_no_request(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deid_agent.http.service_job_files._BUFFER", 1)
    began, free, real = threading.Event(), threading.Event(), JobFile.write

    def slow(file: JobFile) -> None:
        began.set()
        assert free.wait(PATIENCE_S)
        real(file)

    monkeypatch.setattr(JobFile, "write", slow)
    w = await world()
    w.server.files = {"a": whole(b"{1}\n{2}\n")}
    started = await w.kick_off(("Patient", "a"))
    await until(began.is_set)
    assert (await w.agent.ask("/openapi.json", None)).status == 200
    assert not free.is_set()
    free.set()
    (output,) = items(await w.finish(started), "output")
    assert await w.read(output) == b"clean {1}\nclean {2}\n"


async def test_without_jobs_nothing_is_found_and_files_are_refused(start: Start) -> None:
    agent = await start()
    assert (await agent.ask(OPERATION, BUNDLE, FHIR, Prefer="respond-async")).status == 200
    assert (await agent.ask(f"/fhir/default/jobs/{'0' * 32}")).status == 404
    assert "No files" in (await agent.ask("/fhir/default/metadata")).body.decode()


def test_a_folder_of_jobs_is_emptied_and_has_one_owner(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    first = JobFolder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    left = first.make()
    (left / "1.ndjson").write_text("x")
    assert left.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigurationError, match="in use"):
        JobFolder(folder)
    (folder / "mine").mkdir()
    (folder / "0123456789abcdef0123456789abcdef").symlink_to(tmp_path)
    first.close()
    assert sorted(each.name for each in folder.iterdir()) == ["0123456789abcdef0123456789abcdef", "lock", "mine"]
    folder.chmod(0o755)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        JobFolder(folder)
    with pytest.raises(ConfigurationError, match="no folder"):
        JobFolder(folder / "lock")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_do_not_depend_on_the_chunks(size: int) -> None:
    data = b"a\n\nlonger\nxx\r\n" + b"y" * 12 + b"\nend"
    splitter, found = LineSplitter(6), list[bytes | None]()
    for at in range(0, len(data), size):
        found += splitter.feed(data[at : at + size])
    assert [*found, *splitter.end()] == [b"a", b"", b"longer", b"xx\r", None, b"end"]

"""Addresses that a client names for a job: those that it may not reach, and servers and files with faults."""

import asyncio
import gzip
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trustme
from support.http_agent import OPERATION, until
from support.http_jobs import FHIR, FileServer, MakeWorld, Serve, call, items, whole

from deid_agent.http.service_errors import ServiceError
from deid_agent.http.service_job_fetch import CheckedResolver
from deid_agent.http.service_job_inputs import InputRules, read_file_call
from deid_agent.http.service_job_runs import RunLimits
from deid_agent.http.service_jobs import JobLimits

CANARY = "Zyblorqvist"
BASE = "https://fhir.h.example/bulk/"
LINES = b"{1}\n{2}\n"


@pytest.mark.parametrize(
    "rest",
    [
        *("Patient.ndjson", "a/b-c_d~e.f;v=1/x", "x?sig=a%2Bb/c&t=2026-01-01T00:00:00Z", "%41.ndjson", "..a", "a/..."),
        *("@", "%C3%A4.ndjson", "x?X-Amz-Credential=AKIA%2F20260101%2Fus-east-1&X-Amz-Date=20260101T000000Z"),
        *("x?sv=2024-11-04&sig=abc%2Fdef%3D", "x?p=..%2F..%5C%2e%252e"),
    ],
)
def test_a_file_below_a_listed_address_is_permitted(rest: str) -> None:
    assert InputRules((), [BASE]).permits(BASE + rest)


@pytest.mark.parametrize(
    "address",
    [
        "",
        BASE,
        BASE[:-1],
        f"{BASE}a/",
        f"{BASE}/a",
        f"{BASE}../a",
        f"{BASE}a/../../b",
        f"{BASE}./a",
        f"{BASE}..;/a",
        f"{BASE}%2e%2e/a",
        f"{BASE}..%2Fa",
        f"{BASE}..%5ca",
        f"{BASE}..\\a",
        f"{BASE}%252e%252e/a",
        f"{BASE}a%00",
        f"{BASE}a%0d%0aHost:x",
        f"{BASE}a%zz",
        f"{BASE}%c0%ae%c0%ae/a",
        f"{BASE}..%c0%afa",
        f"{BASE}%e0%80%ae%e0%80%ae/a",
        f"{BASE}%ef%bc%8e%ef%bc%8e/a",
        f"{BASE}%e2%80%a5/a",
        f"{BASE}..%ef%bc%8fa",
        f"{BASE}..%ef%bc%bca",
        f"{BASE}%e4",
        f"{BASE}a?b=%0d%0aHost:x",
        f"{BASE}a?b=%zz",
        f"{BASE}%2e%2e/a?b",
        f"{BASE}a b",
        f"{BASE}a\r\nHost: x",
        f"{BASE}a#b",
        f"{BASE}\u212a",
        f"{BASE}{'a' * 3000}",
        "https://fhir.h.example.evil.example/bulk/a",
        "https://fhir.h.example@evil.example/bulk/a",
        "https://user:pw@fhir.h.example/bulk/a",
        "https://fhir.h.example:8443/bulk/a",
        "https://FHIR.h.example/bulk/a",
        "https://fhir.h.example./bulk/a",
        "https://fhir.h.example/other/a",
        "http://fhir.h.example/bulk/a",
        "file:///etc/passwd",
        "file://fhir.h.example/bulk/a",
        "ftp://fhir.h.example/bulk/a",
        "https://2130706433/bulk/a",
        "https://[::ffff:127.0.0.1]/bulk/a",
        "urn:deid:inbox:a",
        "//fhir.h.example/bulk/a",
        "/etc/passwd",
    ],
)
def test_every_other_address_is_refused(address: str) -> None:
    assert not InputRules((), [BASE]).permits(address)


@pytest.mark.parametrize(
    "name", ["", "..", ".", "a/b", "../a", "a\\b", "-a", "a\n", "a\0b", "\u00e9", "a" * 200, "a:b", "%61"]
)
def test_a_file_of_the_inbox_is_named_without_a_path(name: str, tmp_path: Path) -> None:
    rules = InputRules((), (), (), tmp_path)
    assert rules.permits("urn:deid:inbox:Patient-1.ndjson")
    assert not rules.permits(f"urn:deid:inbox:{name}")


@pytest.mark.parametrize(
    ("host", "permitted"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("10.20.3.4", True),
        ("::ffff:10.20.3.4", True),
        ("fd12::1", True),
        ("10.21.0.1", False),
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound
        ("169.254.169.254", False),
        ("192.168.1.1", False),
        ("172.16.0.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("fe80::1", False),
        ("fe80::1%2", False),
        ("fec0::1", False),
        ("fd13::1", False),
        ("ff02::1", False),
    ],
)
def test_the_address_of_a_host_is_public_or_in_a_listed_network(host: str, permitted: bool) -> None:
    networks = [ipaddress.ip_network(each) for each in ("10.20.0.0/16", "fd12::/32")]
    assert InputRules((), [BASE], networks).permits_host(host) is permitted


async def test_a_name_is_resolved_once_and_the_checked_address_is_connected() -> None:
    asked: list[str] = []

    async def lookup(host: str, _: int) -> Sequence[str]:
        asked.append(host)
        return ["93.184.216.34", "2606:2800:220:1::1"] if len(asked) == 1 else ["127.0.0.1"]

    resolver = CheckedResolver(InputRules((), [BASE]), lookup)
    found = await resolver.resolve("fhir.h.example", 443)
    assert [(each["host"], each["family"]) for each in found] == [
        ("93.184.216.34", socket.AF_INET),
        ("2606:2800:220:1::1", socket.AF_INET6),
    ]
    assert all(each["flags"] & socket.AI_NUMERICHOST for each in found), "no number is looked up again"
    with pytest.raises(ServiceError, match="ADDRESS"):
        await resolver.resolve("fhir.h.example", 443)


@pytest.mark.parametrize(
    "hosts", [["127.0.0.1"], ["169.254.169.254"], ["93.184.216.34", "127.0.0.1"], ["::ffff:10.0.0.1"], []]
)
async def test_a_name_that_leads_inside_is_not_connected(world: MakeWorld, hosts: list[str]) -> None:
    async def lookup(_host: str, _port: int) -> Sequence[str]:
        return hosts

    w = await world(urls=[f"https://{CANARY.lower()}.example/bulk/"], lookup=lookup)
    found = await w.run(("Patient", f"https://{CANARY.lower()}.example/bulk/a"))
    assert await w.errors(found) == [("ADDRESS", "file 1")]
    assert w.server.asked == []
    assert CANARY.lower() not in repr(w.agent.telemetry.events) + json.dumps(found)


def _then(data: bytes, *more: bytes, pause_s: float = 0.0) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        for each in more:
            await writer.drain()
            await asyncio.sleep(pause_s)
            writer.write(each)
        await writer.drain()
        if not more:
            await reader.read(1)

    return serve


REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (REDIRECT, "FILE_STATUS"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "FILE_STATUS"),
        (b"HTTP/1.1 206 Partial\r\nContent-Length: 4\r\n\r\n{1}\n", "FILE_STATUS"),
        (b"HTTP/1.1 204 None\r\n\r\n", "FILE_STATUS"),
        (whole(gzip.compress(LINES, mtime=0), Content_Encoding="gzip"), "FILE_ENCODING"),
        (whole(LINES, Content_Encoding="br"), "FILE_ENCODING"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "FILE_ENCODING"),
        (whole(gzip.compress(LINES, mtime=0)), "FILE_ENCODING"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + LINES, "FILE_CUT"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + LINES, "FILE_CUT"),
        (CHUNKED + b"8\r\n" + LINES + b"\r\n", "FILE_CUT"),
        (CHUNKED + b"zz\r\n", "FILE_CUT"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "FILE_CUT"),
        (b"", "FILE_CUT"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{1}\n", "JOB_SIZE"),
        (CHUNKED + b"200000\r\n" + b"x" * 0x200000 + b"\r\n0\r\n\r\n", "JOB_SIZE"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "FILE_CUT"),
        (_then(b""), "FILE_SLOW"),
        (_then(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{1}\n"), "FILE_SLOW"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_file_that_is_not_read_to_its_end_is_one_error(
    world: MakeWorld, response: bytes | Serve, code: str
) -> None:
    w = await world(idle_s=0.5)
    w.server.files = {"a": response, "b": whole(LINES)}
    found = await w.run(("Patient", "a"), ("Patient", "b"))
    assert [each["url"][-8:] for each in items(found, "output")] == ["2.ndjson"]  # type: ignore[index]
    assert await w.errors(found) == [(code, "file 1")]
    assert {head.split("\r\n")[0] for head in w.server.asked} == {f"GET /bulk/{name} HTTP/1.1" for name in "ab"}


async def test_a_file_that_fails_leaves_no_lines_behind(world: MakeWorld) -> None:
    w = await world()
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhold\n{1}\n"
    w.server.files = {"a": cut}
    started = await w.kick_off(("Patient", "a"), ("Patient", "a"))
    await until(lambda: len(w.agent.executor.pending) == 1)
    await asyncio.sleep(0.1)
    assert len(w.server.asked) == 1, "the next file waits for the lines of the one before"
    w.agent.executor.release()
    await until(lambda: len(w.agent.executor.pending) == 1)
    w.agent.executor.release()
    assert await w.errors(await w.finish(started)) == [("FILE_CUT", "file 1"), ("FILE_CUT", "file 2")]


async def test_a_server_that_drips_is_slow_and_an_agent_that_pauses_is_not(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deid_agent.http.service_job_fetch._SLOW_S", 0.3)
    w = await world(idle_s=5.0)
    w.server.files = {"a": _then(CHUNKED, *[b"1\r\n{\r\n"] * 100, pause_s=0.05), "b": whole(b"hold\n" + LINES)}
    found = await w.run(("Patient", "a"))
    assert await w.errors(found) == [("FILE_SLOW", "file 1")]
    started = await w.kick_off(("Patient", "b"))
    await asyncio.sleep(0.5)
    w.agent.executor.release()
    assert items(await w.finish(started), "output")[0]["count"] == 3


async def test_a_server_that_is_not_there_is_one_error(world: MakeWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    w = await world(urls=[f"http://127.0.0.1:{port}/"])
    assert await w.errors(await w.run(("Patient", f"http://127.0.0.1:{port}/a"))) == [("FILE_CUT", "file 1")]


async def test_the_certificate_of_a_server_is_checked(world: MakeWorld) -> None:
    authority = trustme.CA()
    served, trusts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(trusts)
    server = await FileServer({"a": whole(LINES)}).start(served)
    try:
        address = f"https://127.0.0.1:{server.port}/bulk/"
        w = await world(urls=[address], trusts=trusts)
        assert items(await w.run(("Patient", f"{address}a")), "output")[0]["count"] == 2
        await w.jobs.close()
        w = await world(urls=[address])
        assert await w.errors(await w.run(("Patient", f"{address}a"))) == [("FILE_CUT", "file 1")]
        assert len(server.asked) == 1
    finally:
        await server.stop()


async def test_files_of_the_inbox_are_plain_files(world: MakeWorld, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.ndjson").write_bytes(LINES)
    (tmp_path / "secret").write_text(CANARY)
    (inbox / "link").symlink_to(tmp_path / "secret")
    (inbox / "folder").mkdir()
    os.mkfifo(inbox / "pipe")
    w = await world(inbox=inbox)
    names = ("a.ndjson", "link", "folder", "pipe", "none")
    found = await w.run(*(("Patient", f"urn:deid:inbox:{name}") for name in names))
    assert await w.read(items(found, "output")[0]) == b"clean {1}\nclean {2}\n"
    assert await w.errors(found) == [
        ("ADDRESS", "file 2"),
        ("ADDRESS", "file 3"),
        ("ADDRESS", "file 4"),
        ("FILE_STATUS", "file 5"),
    ]


async def test_a_file_that_grows_while_it_is_read_has_no_output(world: MakeWorld, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"hold\n" + b"{}\n" * 100)
    w = await world(inbox=tmp_path, limits=JobLimits(RunLimits(1 << 20, 1 << 20, 5)))
    started = await w.kick_off(("Patient", "urn:deid:inbox:a"))
    await until(lambda: len(w.agent.executor.pending) == 1)
    with file.open("ab") as more:
        more.write(b"{}\n")
    w.agent.executor.release()
    assert await w.errors(await w.finish(started)) == [("FILE_CUT", "file 1")]


GOOD = json.loads(call(BASE, ("Patient", "a")))


def changed(change: Callable[[dict[str, object]], object]) -> bytes:
    tree = json.loads(json.dumps(GOOD))
    change(tree)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("payload", "code", "where"),
    [
        (changed(lambda t: t["parameter"].append(GOOD["parameter"][0])), "UNSUPPORTED", "Parameters.parameter[1]"),  # type: ignore[attr-defined]
        (changed(lambda t: t["parameter"].append({"name": CANARY})), "UNSUPPORTED", "Parameters.parameter[1]"),  # type: ignore[attr-defined]
        (
            changed(lambda t: t["parameter"].append({"name": "identifiableData", "resource": {}})),  # type: ignore[attr-defined]
            "UNSUPPORTED",
            "Parameters.parameter[1]",
        ),
        (
            changed(lambda t: t["parameter"].insert(0, {"name": "policy", "valueString": CANARY})),  # type: ignore[attr-defined]
            "UNSUPPORTED",
            "Parameters.parameter[0]",
        ),
        (changed(lambda t: t["parameter"][0].update(resource={})), "MALFORMED", "Parameters.parameter[0]"),  # type: ignore[index]
        (changed(lambda t: t["parameter"][0].update(extra=1)), "MALFORMED", "Parameters.parameter[0]"),  # type: ignore[index]
        (call(BASE), "MALFORMED", "Parameters.parameter[0]"),
        (call(BASE, ("patient", "a")), "MALFORMED", "Parameters.parameter[0].resource.parameter[1]"),
        (call(BASE, ("Patient", "http://evil.example/")), "ADDRESS", "Parameters.parameter[0].resource.parameter[1]"),
        (
            call(BASE, ("Patient", "a")).replace(b"fhir+ndjson", b"csv"),
            "UNSUPPORTED",
            "Parameters.parameter[0].resource.parameter[0]",
        ),
        (
            call(BASE, ("Patient", "a")).replace(b"resourceUrl", b"url"),
            "MALFORMED",
            "Parameters.parameter[0].resource.parameter[1]",
        ),
        (
            call(BASE, ("Patient", "a")).replace(b'"format"', b'"other"'),
            "MALFORMED",
            "Parameters.parameter[0].resource.parameter[0]",
        ),
    ],
)
def test_parameters_with_a_fault_are_refused_with_its_place(payload: bytes, code: str, where: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_file_call(payload, InputRules(("pseudonymised",), [BASE]), 5)
    assert (caught.value.code, caught.value.where) == (code, where)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"not identifiableDataFileUrls",
        b'"identifiableDataFileUrls"',
        b'{"resourceType":"Bundle","x":"identifiableDataFileUrls"}',
        b'{"resourceType":"Parameters","parameter":["identifiableDataFileUrls"]}',
        call(BASE, ("Patient", "a")) + b" " * (1 << 20),
    ],
)
def test_every_other_payload_is_for_a_worker(payload: bytes) -> None:
    assert read_file_call(payload, InputRules(("pseudonymised",), [BASE]), 5) is None


async def test_an_address_that_is_refused_is_in_no_answer_or_log(world: MakeWorld) -> None:
    w = await world()
    reply = await w.agent.ask(OPERATION, call("", ("Patient", f"http://{CANARY}@169.254.169.254/")), FHIR)
    assert reply.status == 400
    assert CANARY not in repr(reply) + repr(w.agent.telemetry.events)
    assert w.agent.audit.entries == []

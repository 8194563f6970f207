"""``deid-agent run`` over MLLP as an operator starts it: messages, kills, stops, dead letters, and no leaks."""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.audits import verify
from support.mllp_process import MllpProcess
from support.mllp_world import PATIENCE_S, Peer, Receiver, block, control_id, read_answer

from deid_agent.audit.reading import read_entries as read_audit

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"
ADT, ORU = ((SAMPLES / name).read_bytes() for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7"))
FAMILY, GIVEN, MRN, PHONE = "Zyblorqvist", "Quennifer", "QX7719302", "740-555-0177"
CANARIES = [text.encode() for text in (FAMILY, GIVEN, MRN, PHONE)]


def note(number: int, more: str = "") -> bytes:
    """A message full of canaries; its number is its control id, which is mapped, and its sending application."""
    return (
        rf"MSH|^~\&|N{number}|MERCY|EHR|X|20240318143012||ORU^R01^ORU_R01|N{number}|P|2.5.1" + "\r"
        f"PID|1||{MRN}^^^B^MR||{FAMILY}^{GIVEN}||19570422|F|||||{PHONE}\r"
        f"OBX|1|TX|1^Note^L||Mrs. {FAMILY}, {GIVEN} ({MRN}) came in; {PHONE}.||||||F\r{more}"
    ).encode()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


def names(got: list[bytes]) -> list[str]:
    """The numbers of these messages, from a field that no policy changes."""
    return [data.split(b"|")[2].decode() for data in got]


class Sent:
    """The messages sent without an AA yet; the sender repeats them until it arrives."""

    def __init__(self, count: int) -> None:
        self.kept = [note(number) for number in range(count)]
        self.accepted: list[str] = []

    async def run(self, peer: Peer, enough: int) -> None:
        """Send everything that is kept and read answers, until so many were accepted or the connection ends."""
        peer.send(*self.kept)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while len(self.accepted) < enough:
                code, known, _ = await peer.answer()
                assert code == "AA"
                self.kept = [item for item in self.kept if control_id(item).decode() != known]
                self.accepted.append(known)


async def test_a_killed_agent_acknowledges_no_unfinished_message(tmp_path: Path, receiver: Receiver) -> None:
    """At least once: each message reaches the receiver once or twice, and is acknowledged only afterwards."""
    agent = MllpProcess(tmp_path, sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port}})
    sent = Sent(60)
    try:
        for enough in (15, 35):
            peer = await agent.start().peer()
            await sent.run(peer, enough)
            agent.kill()  # with messages taken, some at the receiver, their answers not written
            peer.reset()
            assert set(names(receiver.got)) >= set(sent.accepted)
        peer = await agent.start().peer()
        await sent.run(peer, 60)
        await peer.close()
        assert agent.stop() == 0
    finally:
        agent.end()
    got = names(receiver.got)
    assert len(set(got)) == 60
    assert max(map(got.count, got)) <= 3
    assert not [canary for canary in CANARIES for data in receiver.got if canary in data]
    verify(tmp_path / "audit")


async def test_a_kill_before_the_commit_acknowledges_nothing(tmp_path: Path, receiver: Receiver) -> None:
    agent = MllpProcess(tmp_path, sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port}})
    receiver.verdicts.append("")  # the receiver has it and does not answer; the agent is killed at this moment
    try:
        peer = await agent.start().peer()
        peer.send(note(1))
        async with asyncio.timeout(PATIENCE_S):
            while receiver.verdicts:  # noqa: ASYNC110  the receiver sends no notification
                await asyncio.sleep(0.01)
        agent.kill()
        assert await peer.ended() == b""
        again = await agent.start().peer()
        again.send(note(1))
        assert await again.answer() == ("AA", "N1", "")
        await again.close()
    finally:
        agent.end()
    assert names(receiver.got) == ["N1"]


async def test_a_receiver_that_rejects_everything_stops_the_agent(tmp_path: Path, receiver: Receiver) -> None:
    """One message at a time: each is a separate batch."""
    dead_letters = {"public_key": str(tmp_path / "dead-letters.key.pub"), "run": 3}
    receiver.verdicts.extend(["AR"] * 9)
    agent = MllpProcess(
        tmp_path,
        sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port}, "dead_letters": dead_letters},
    )
    try:
        peer = await agent.start().peer()
        for number in range(3):
            peer.send(note(number))
            assert await peer.answer() == ("AA", f"N{number}", ""), "it is a dead letter"
        peer.send(note(3))
        assert await peer.answer() == ("AE", "N3", "STOPPING")
        assert await asyncio.to_thread(agent.process.wait, 60) == 3
        await peer.close()
    finally:
        agent.end()
    assert "(4 in a row)" in agent.log.read_text()
    assert len(list((tmp_path / "dead").glob("*.sealed"))) == 3


async def test_no_value_of_a_message_is_in_answers_logs_audit_or_dead_letters(
    tmp_path: Path, receiver: Receiver
) -> None:
    agent = MllpProcess(
        tmp_path,
        top={"log_level": "debug"},
        mllp={"max_message_bytes": 20_000},
        sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port, "error_attempts": 1}},
    )
    receiver.verdicts.extend(["AA", "AR", "AE"])
    cut = note(9).replace(b"\rPID|1||", b"\rPID||")[:-30] + b"\xff" + FAMILY.encode()
    try:
        peer = await agent.start().peer()
        peer.send(note(1), note(2), note(3), FAMILY.encode(), cut)
        raw = b"".join([await peer.reader.readuntil(b"\x1c\r") for _ in range(5)])
        peer.send(note(10, f"NTE|1||{FAMILY}\r" * 2000))
        raw += await peer.ended()
        metrics = agent.events("Listening")
        other = await Peer.to(int(str(metrics[0]["port"])))
        other.writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        page = await other.ended()
        await other.close()
        await peer.close()
        assert agent.stop() == 0
    finally:
        agent.end()
    assert b"deid_mllp_answers_total" in page
    answers = [read_answer(b"\r" + item) for item in raw.split(b"\x1c\r")[:-1]]
    assert answers[:4] == [("AA", "N1", ""), ("AA", "N2", ""), ("AA", "N3", ""), ("AR", "", "NOT_HL7")]
    assert answers[-1] == ("AR", "N10", "TOO_LARGE")
    found = [
        f"{name}: {canary!r}"
        for name, data in [("answers", raw), ("page", page), *written(tmp_path)]
        for canary in CANARIES
        if canary.lower() in data.lower()
    ]
    assert found == []
    assert len(list((tmp_path / "dead").glob("mllp-0-*.sealed"))) >= 2
    assert {entry["topic"] for entry in read_audit(tmp_path / "audit")} == {"mllp"}


def written(folder: Path) -> list[tuple[str, bytes]]:
    """Every file."""
    return [(str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file()]


async def test_dead_letters_are_listed_opened_and_replayed_to_the_running_agent(
    tmp_path: Path, receiver: Receiver
) -> None:
    agent = MllpProcess(tmp_path, sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port}})
    receiver.verdicts.append("AR")
    key = ("--private-key", str(tmp_path / "dead-letters.key"))
    try:
        peer = await agent.start().peer()
        peer.send(note(1))
        assert await peer.answer() == ("AA", "N1", "")
        listed = agent.command("dead-letters", "list").stdout.splitlines()
        found = re.match(r"(mllp/0/\d+) +REJECTED +publish +output +1 ", listed[1])
        assert found is not None, listed
        done = agent.command("dead-letters", "open", *key, found[1], "--out", str(tmp_path / "opened"))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "opened").read_bytes() == note(1)
        # Only the agent knows the port that 0 selects; a replay needs it.
        agent.config.write_text(agent.config.read_text().replace('"port" = 0\n"dead', f'"port" = {agent.port}\n"dead'))
        replayed = await asyncio.to_thread(agent.command, "replay", *key, "--all")
        assert replayed.returncode == 0, replayed.stderr
        assert "1 put back, 0 were put back before, 0 failed" in replayed.stderr
        again = await asyncio.to_thread(agent.command, "replay", *key, "--all")
        assert "0 put back, 1 were put back before, 0 failed" in again.stderr
        await peer.close()
        assert agent.stop() == 0
        away = agent.command("replay", *key, "--all", "--again")
        assert away.returncode == 2
        assert "the agent must be running to receive replayed messages" in away.stderr
    finally:
        agent.end()
    assert names(receiver.got) == ["N1"]


async def test_outputs_go_to_a_folder(tmp_path: Path) -> None:
    agent = MllpProcess(tmp_path, top={"output": "directory"}, mllp={"output": str(tmp_path / "out")})
    try:
        peer = await agent.start().peer()
        peer.send(ADT, ORU)
        assert [(await peer.answer())[0] for _ in range(2)] == ["CA", "AA"]
        await peer.close()
        assert agent.stop() == 0
    finally:
        agent.end()
    outputs = [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())]
    assert [data[:9] for data in outputs] == [b"MSH|^~\\&|"] * 2
    assert not [data for data in outputs if b"Okafor" in data]


async def test_check_reports_whether_run_would_start(tmp_path: Path, receiver: Receiver) -> None:
    agent = MllpProcess(tmp_path, sections={"mllp_out": {"host": "127.0.0.1", "port": receiver.port}})
    done = await asyncio.to_thread(agent.command, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok   mllp          127.0.0.1:0, in the clear\n" in done.stdout
    assert f"ok   mllp_out      127.0.0.1:{receiver.port}, in the clear\n" in done.stdout
    taken = MllpProcess(
        tmp_path,
        mllp={"port": receiver.port},
        sections={"mllp_out": {"host": "127.0.0.1", "port": 1}},
    )
    done = await asyncio.to_thread(taken.command, "check")
    assert done.returncode == 2
    assert f"FAIL mllp          mllp.port: {receiver.port} is in use on 127.0.0.1" in done.stdout
    assert "FAIL mllp_out      127.0.0.1:1: cannot be reached (ConnectionRefusedError): check mllp_out" in done.stdout
    offline = await asyncio.to_thread(taken.command, "check", "--offline")
    assert "ok   mllp_out" in offline.stdout


def test_the_demonstration_key_is_refused(tmp_path: Path) -> None:
    agent = MllpProcess(tmp_path, sections={"mllp_out": {"host": "127.0.0.1", "port": 1}})
    environ = {name: value for name, value in agent.environ.items() if name != "DEID_KEY_FILE"}
    done = subprocess.run(
        [sys.executable, "-m", "deid_agent", "run", "--demo-key", "--config", str(agent.config)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "demonstration key" in done.stderr


def test_a_block_follows_the_standard() -> None:
    assert block(b"MSH") == bytes([0x0B]) + b"MSH" + bytes([0x1C, 0x0D])

"""Third-party programs at both ends: python-hl7 and hl7apy; and TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import hl7
import pytest
import trustme
from hl7.client import MLLPClient
from hl7.mllp import HL7StreamReader, HL7StreamWriter, open_hl7_connection, start_hl7_server
from hl7apy.mllp import AbstractHandler, MLLPServer
from hl7apy.parser import parse_message
from support.mllp_agent import Agent, make_settings, until
from support.mllp_world import Receiver, message

from deid_agent.agent.dead_letter_records import FoundDeadLetter
from deid_agent.config import MllpOutSettings, MllpSettings
from deid_agent.model.errors import ConfigurationError, TransientError
from deid_agent.transport.folder.files import FolderSink
from deid_agent.transport.mllp.connection import listener_context, sender_context
from deid_agent.transport.mllp.dead_letters import MllpDeadLetters
from deid_agent.transport.mllp.sender import MllpSink, Sender

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = [(ROOT / "deid_agent" / "samples" / name).read_bytes() for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7")]


def clean(sample: bytes) -> bytes:
    """The result of the test's executor for a message."""
    head, _, body = sample.partition(b"\r")
    return head + b"\rclean " + body


async def test_a_client_of_python_hl7_sends_and_a_server_of_python_hl7_receives(tmp_path: Path) -> None:
    got: list[str] = []

    async def receive(reader: HL7StreamReader, writer: HL7StreamWriter) -> None:
        try:
            while True:
                found = await reader.readmessage()
                got.append(str(found))
                writer.writemessage(found.create_ack())
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    server = await start_hl7_server(receive, "127.0.0.1", 0, encoding="utf-8", limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    sink = MllpSink(MllpOutSettings(host="127.0.0.1", port=port, ack_timeout_s=10))
    agent = await Agent(sink, tmp_path / "letters", make_settings()).start()

    def send() -> list[bytes]:
        with MLLPClient("127.0.0.1", agent.transport.port) as client:
            return [client.send_message(sample) for sample in SAMPLES]

    answers = await asyncio.to_thread(send)
    # The first asks for an accept acknowledgment (MSH-15 is AL), the second asks for none.
    for answer, sample, code in zip(answers, SAMPLES, ("CA", "AA"), strict=True):
        read, sent = (hl7.parse(data.strip(b"\x0b\x1c\r").decode()) for data in (answer, sample))
        assert str(read["MSA"][0][1]) == code
        assert str(read["MSA"][0][2]) == str(sent["MSH"][0][10])
        assert str(read["MSH"][0][5]) == str(sent["MSH"][0][3])
    assert [item.strip("\r").encode() for item in got] == [clean(sample).strip(b"\r") for sample in SAMPLES]
    await agent.end()
    server.close()


async def test_the_asynchronous_client_of_python_hl7_sends_many(tmp_path: Path) -> None:
    agent = await Agent(FolderSink(tmp_path / "out"), tmp_path / "letters", make_settings()).start()
    reader, writer = await open_hl7_connection("127.0.0.1", agent.transport.port, encoding="utf-8")
    for number in range(50):
        writer.writemessage(hl7.parse(message(b"m%d" % number, b"PID|1|\r").decode()))
    for number in range(50):
        async with asyncio.timeout(20):
            answer = await reader.readmessage()
        assert (str(answer["MSA"][0][1]), str(answer["MSA"][0][2])) == ("AA", f"m{number}")
    writer.close()
    assert len(list((tmp_path / "out").glob("mllp-0-*.hl7"))) == 50
    await agent.end()


class Taking(AbstractHandler):  # type: ignore[misc]  # untyped
    """The behaviour of hl7apy: one message per connection, which its server then closes."""

    got: list[str]

    def reply(self) -> str:
        self.got.append(self.incoming_message)
        read = parse_message(self.incoming_message, find_groups=False)
        return f"\x0bMSH|^~\\&|R|R|S|S|20240318||ACK^R01^ACK|1|P|2.5\rMSA|AA|{read.msh.msh_10.value}\r\x1c\r"


@pytest.fixture
def taking() -> Iterator[tuple[int, list[str]]]:
    got: list[str] = []

    class Handler(Taking):
        pass

    Handler.got = got
    server = MLLPServer("127.0.0.1", 0, {"ORU^R01^ORU_R01": (Handler,)})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], got
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_server_of_hl7apy_receives(taking: tuple[int, list[str]]) -> None:
    port, got = taking
    sender = Sender(MllpOutSettings(host="127.0.0.1", port=port, ack_timeout_s=10), None)
    for number in range(3):
        await sender.send(message(b"m%d" % number, b"PID|1\r"))
        await until(
            lambda: sender._connection is not None and not sender._connection.usable
        )  # it closes the connection after each answer
    await sender.close()
    assert [item.split("|")[9] for item in got] == ["m0", "m1", "m2"]


# --- TLS


class Authority:
    """Certificates as files."""

    def __init__(self, folder: Path) -> None:
        ours, others = trustme.CA(), trustme.CA()
        self.file = folder / "ca.pem"
        ours.cert_pem.write_to_path(str(self.file))
        self.other = folder / "other.pem"
        others.cert_pem.write_to_path(str(self.other))
        self.server = self._pair(folder, "server", ours.issue_cert("127.0.0.1"))
        self.client = self._pair(folder, "client", ours.issue_cert("lab@example.org"))
        self.stranger = self._pair(folder, "stranger", others.issue_cert("lab@example.org"))

    @staticmethod
    def _pair(folder: Path, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return certificate, key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def listening(authority: Authority, *, ask: bool) -> MllpSettings:
    certificate, key = authority.server
    return make_settings(tls_certfile=certificate, tls_keyfile=key, tls_client_cafile=authority.file if ask else None)


def sending(port: int, authority: Path, pair: tuple[Path, Path] | None = None) -> MllpOutSettings:
    certificate, key = pair or (None, None)
    return MllpOutSettings(
        host="127.0.0.1",
        port=port,
        connect_timeout_s=2,
        ack_timeout_s=10,
        tls=True,
        tls_cafile=authority,
        tls_certfile=certificate,
        tls_keyfile=key,
    )


async def test_our_sender_and_our_listener_speak_tls_with_certificates_on_both_sides(
    authority: Authority, tmp_path: Path
) -> None:
    sink = FolderSink(tmp_path / "out")
    agent = await Agent(sink, tmp_path / "letters", listening(authority, ask=True)).start()
    for file, pair, works in (
        (authority.file, authority.client, True),
        (authority.file, authority.stranger, False),
        (authority.file, None, False),
        (authority.other, authority.client, False),
    ):
        settings = sending(agent.transport.port, file, pair)
        sender = Sender(settings, sender_context(settings))
        if works:
            assert (await sender.send(message(b"m", b"x"))).value == "A"
        else:
            with pytest.raises(TransientError):
                await sender.send(message(b"m", b"x"))
        await sender.close()
    assert len(list((tmp_path / "out").iterdir())) == 1
    await agent.end()


async def test_a_tls_listener_refuses_a_client_without_tls(authority: Authority, tmp_path: Path) -> None:
    sink = FolderSink(tmp_path / "out")
    agent = await Agent(sink, tmp_path / "letters", listening(authority, ask=False)).start()
    peer = await agent.peer()
    peer.send(message(b"m", b"x"))
    assert b"MSA" not in await peer.ended()
    assert not list((tmp_path / "out").iterdir())
    await agent.end()


async def test_the_asynchronous_client_of_python_hl7_speaks_tls(authority: Authority, tmp_path: Path) -> None:
    agent = await Agent(FolderSink(tmp_path / "out"), tmp_path / "letters", listening(authority, ask=False)).start()
    context = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await open_hl7_connection("127.0.0.1", agent.transport.port, encoding="utf-8", ssl=context)
    writer.writemessage(hl7.parse(message(b"m", b"PID|1|\r").decode()))
    async with asyncio.timeout(20):
        assert str((await reader.readmessage())["MSA"][0][1]) == "AA"
    writer.close()
    await agent.end()


async def test_a_dead_letter_is_replayed_over_tls(authority: Authority, tmp_path: Path) -> None:
    settings = listening(authority, ask=False)
    agent = await Agent(FolderSink(tmp_path / "out"), tmp_path / "letters", settings).start()
    peer = await agent.peer(ssl=ssl.create_default_context(cafile=str(authority.file)))
    peer.send(message(b"m", b"bad"))
    assert await peer.answer() == ("AA", "m", "")
    box = MllpDeadLetters(
        settings.model_copy(update={"port": agent.transport.port, "dead_letters": tmp_path / "letters"}), 1 << 20
    )
    problems: list[str] = []
    await box.replay(
        lambda found: found.open_record(None) if isinstance(found, FoundDeadLetter) else None,
        lambda _, p: problems.append(p),
    )
    assert problems == [""]
    assert [found.replayed async for found in box.dead_letters() if isinstance(found, FoundDeadLetter)] == [1, 0]
    await agent.end()


async def test_certificate_errors_are_reported_with_the_remedy(authority: Authority) -> None:
    receiver = await Receiver().start(ssl=listener_context(listening(authority, ask=False)))
    wrong = sending(receiver.port, authority.other)
    with pytest.raises(TransientError, match=r"set mllp_out\.tls_cafile, correct mllp_out\.host"):
        await Sender(wrong, sender_context(wrong)).send(message(b"m", b"x"))
    plain = await Receiver().start()
    settings = sending(plain.port, authority.file)
    with pytest.raises(TransientError, match=r"127\.0\.0\.1"):
        await Sender(settings, sender_context(settings)).send(message(b"m", b"x"))
    await receiver.stop()
    await plain.stop()


def test_a_key_that_others_may_read_is_refused(authority: Authority) -> None:
    certificate, key = authority.server
    key.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"mllp\.tls_keyfile .*: others may read it; run: chmod 600"):
        listener_context(make_settings(tls_certfile=certificate, tls_keyfile=key))


def test_a_file_that_is_not_a_certificate_is_named_with_its_setting(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"mllp_out\.tls_\*: a file cannot be loaded \(SSLError\)"):
        sender_context(sending(1, tmp_path / "no.pem"))

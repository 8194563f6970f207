"""From settings to transports that take or give HL7 over MLLP, and to other places for outputs."""

import asyncio
import contextlib
import socket
from pathlib import Path

from deid_agent.agent.letterhead import Keeper
from deid_agent.agent.ports import Transport
from deid_agent.config import MllpOutSettings, MllpSettings, Settings, TransportKind
from deid_agent.errors import ConfigurationError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.transport.folder_outlet import FolderOutlet
from deid_agent.transport.folders import can_hold, nested
from deid_agent.transport.kafka_outlet import KafkaOutlet
from deid_agent.transport.kafka_settings import KafkaSettings
from deid_agent.transport.mllp import MllpTransport
from deid_agent.transport.mllp_ack import Verdict
from deid_agent.transport.mllp_listener import advice
from deid_agent.transport.mllp_sender import MllpOutlet, connecting
from deid_agent.transport.mllp_settings import ListenSettings, SendSettings, Tls, Trouble
from deid_agent.transport.outlet import Outlet, OutletTransport


def listener(settings: Settings) -> tuple[MllpSettings, ListenSettings]:
    """The section, and what the listener is told of it. Raises ``ConfigurationError``."""
    ours = settings.mllp
    if ours is None:
        raise ConfigurationError("there is no [mllp] section")
    tls = None
    if ours.tls_certfile is not None:
        tls = Tls(
            certificate=ours.tls_certfile,
            key=ours.tls_keyfile,
            password=ours.key_password(),
            authority=ours.tls_client_cafile,
        )
    return ours, ListenSettings(
        host=ours.host,
        port=ours.port,
        max_connections=ours.max_connections,
        # A message that is read whole must be one that the workers may take.
        max_message_bytes=min(ours.max_message_bytes, settings.agent.max_message_bytes),
        max_pending=ours.max_pending,
        idle_timeout_s=ours.idle_timeout_s,
        read_timeout_s=ours.read_timeout_s,
        answer_s=ours.answer_s,
        trouble=Trouble(ours.trouble),
        refused=Verdict(ours.refused[1]),
        tls=tls,
    )


def receiver(ours: MllpOutSettings | None) -> SendSettings:
    """What the sender is told. Raises ``ConfigurationError``."""
    if ours is None:
        raise ConfigurationError("there is no [mllp_out] section")
    tls = None
    if ours.tls:
        tls = Tls(
            certificate=ours.tls_certfile,
            key=ours.tls_keyfile,
            password=ours.key_password(),
            authority=ours.tls_cafile,
        )
    return SendSettings(
        host=ours.host,
        port=ours.port,
        connections=ours.connections,
        connect_timeout_s=ours.connect_timeout_s,
        ack_timeout_s=ours.ack_timeout_s,
        error_attempts=ours.error_attempts,
        tls=tls,
    )


def mllp_transport(
    settings: Settings, keeper: Keeper, telemetry: Telemetry, kafka: KafkaSettings | None
) -> MllpTransport:
    """Messages from the listener, to wherever the settings say."""
    ours, listening = listener(settings)
    outlet: Outlet
    match settings.goes_to:
        case TransportKind.KAFKA if kafka is not None:
            outlet = KafkaOutlet(kafka)
        case TransportKind.DIRECTORY if ours.output is not None:
            outlet = FolderOutlet(ours.output)
        case _:
            outlet = MllpOutlet(receiver(settings.mllp_out))
    return MllpTransport(listening, outlet, ours.dead_letters, keeper=keeper, telemetry=telemetry)


def sent_out(settings: Settings, source: Transport) -> Transport:
    """``source`` as it is, or with its outputs sent over MLLP."""
    if settings.goes_to is TransportKind.MLLP:
        return OutletTransport(source, MllpOutlet(receiver(settings.mllp_out)))
    return source


def check_mllp_folders(ours: MllpSettings) -> None:
    """``ConfigurationError`` where a folder of the listener cannot serve. Writes nothing."""
    places: list[tuple[str, Path]] = [("dead_letters", ours.dead_letters)]
    if ours.output is not None:
        places.append(("output", ours.output))
        if nested(ours.output, ours.dead_letters):
            raise ConfigurationError(
                f"mllp.dead_letters: they hold PHI and must lie apart from the output; move {ours.dead_letters}"
            )
    for name, path in places:
        if not can_hold(path):
            raise ConfigurationError(
                f"mllp.{name}: {path} cannot be written to; make it writable, or correct the setting"
            )


def check_listener(settings: Settings) -> str:
    """Where it would listen. Raises ``ConfigurationError`` where it could not, as where it does already."""
    _, listening = listener(settings)
    listening.context()
    try:
        found = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
    except OSError as error:
        raise ConfigurationError(advice(listening, error)) from None
    return f"{listening.host}:{listening.port}, {'in the clear' if listening.tls is None else 'TLS'}"


async def check_receiver(settings: Settings, offline: bool) -> str:
    """Where outputs would go; connects and says nothing. Raises ``ConfigurationError`` where it can't."""
    sending = receiver(settings.mllp_out)
    context = sending.context()
    if not offline:
        try:
            async with asyncio.timeout(sending.connect_timeout_s):
                _, writer = await asyncio.open_connection(sending.host, sending.port, ssl=context)
        except OSError as error:
            raise ConfigurationError(f"{sending.place}: {connecting(error)}") from None
        writer.close()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(sending.connect_timeout_s):
                await writer.wait_closed()
    return f"{sending.place}, {'in the clear' if sending.tls is None else 'TLS'}"

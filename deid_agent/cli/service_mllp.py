"""Assembles the transports that receive or send HL7 v2 over MLLP from settings, and checks their settings."""

import asyncio
import contextlib
import socket
from pathlib import Path

from deid_agent.agent import DeadLetterSealer, Transport
from deid_agent.config import MllpOutSettings, MllpSettings, Settings, TransportKind
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry
from deid_agent.transport import Sink, SinkTransport
from deid_agent.transport.folder import FolderSink, can_hold_files, is_nested
from deid_agent.transport.mllp import (
    MllpSink,
    MllpTransport,
    explain_connect_error,
    explain_listen_error,
    listener_context,
    sender_context,
)


def listener_section(settings: Settings) -> MllpSettings:
    """The ``[mllp]`` section. Raises ``ConfigurationError`` if there is none."""
    section = settings.mllp
    if section is None:
        raise ConfigurationError("there is no [mllp] section")
    # The workers must be able to take every message that the listener takes.
    most = min(section.max_message_bytes, settings.agent.max_message_bytes)
    return section.model_copy(update={"max_message_bytes": most})


def receiver_section(settings: Settings) -> MllpOutSettings:
    """The ``[mllp_out]`` section. Raises ``ConfigurationError`` if there is none."""
    if settings.mllp_out is None:
        raise ConfigurationError("there is no [mllp_out] section")
    return settings.mllp_out


def mllp_transport(settings: Settings, sealer: DeadLetterSealer, telemetry: Telemetry) -> MllpTransport:
    """The listener, with outputs to the destination of the settings. Raises ``ConfigurationError``."""
    section = listener_section(settings)
    sink: Sink
    match settings.destination:
        case TransportKind.KAFKA:
            from deid_agent.transport.kafka import KafkaSink, kafka_options  # noqa: PLC0415 - only with Kafka

            sink = KafkaSink(kafka_options(settings))
        case TransportKind.DIRECTORY if section.output is not None:
            sink = FolderSink(section.output)
        case _:
            sink = MllpSink(receiver_section(settings))
    return MllpTransport(section, sink, sealer=sealer, telemetry=telemetry)


def with_mllp_output(settings: Settings, source: Transport) -> Transport:
    """``source`` with its outputs sent over MLLP, if that is their destination; else ``source`` itself."""
    if settings.destination is TransportKind.MLLP:
        return SinkTransport(source, MllpSink(receiver_section(settings)))
    return source


def check_mllp_folders(section: MllpSettings) -> None:
    """Raise ``ConfigurationError`` if a folder of the listener cannot be used. Writes nothing."""
    folders: list[tuple[str, Path]] = [("dead_letters", section.dead_letters)]
    if section.output is not None:
        folders.append(("output", section.output))
        if is_nested(section.output, section.dead_letters):
            raise ConfigurationError(
                f"mllp.dead_letters: they hold PHI and must not be inside the output, nor the output inside them; "
                f"move {section.dead_letters}"
            )
    for name, path in folders:
        if not can_hold_files(path):
            raise ConfigurationError(
                f"mllp.{name}: {path} cannot be written to; make it writable, or correct the setting"
            )


def check_listener(settings: Settings) -> str:
    """The address to listen on. Raises ``ConfigurationError`` if it cannot be used, also if it is in use already."""
    section = listener_section(settings)
    context = listener_context(section)
    try:
        found = socket.getaddrinfo(section.host, section.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
    except OSError as error:
        raise ConfigurationError(explain_listen_error(section, error)) from None
    return f"{section.host}:{section.port}, {'in the clear' if context is None else 'TLS'}"


async def check_receiver(settings: Settings, offline: bool) -> str:
    """The address of the receiver. Connects, unless ``offline``, and sends nothing.

    Raises ``ConfigurationError`` if the certificates do not load or the receiver cannot be reached.
    """
    section = receiver_section(settings)
    context = sender_context(section)
    if not offline:
        try:
            async with asyncio.timeout(section.connect_timeout_s):
                _, writer = await asyncio.open_connection(section.host, section.port, ssl=context)
        except OSError as error:
            raise ConfigurationError(f"{section.address}: {explain_connect_error(error)}") from None
        writer.close()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(section.connect_timeout_s):
                await writer.wait_closed()
    return f"{section.address}, {'in the clear' if context is None else 'TLS'}"

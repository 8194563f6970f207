"""Assembles the HTTP interface from settings, and checks its settings."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from deid_agent.agent import Executor, Health
from deid_agent.app import ProjectParts
from deid_agent.cli.service_jobs import serve_jobs
from deid_agent.config import ServiceSettings, Settings
from deid_agent.http import (
    Project,
    Projects,
    Service,
    ServiceAccess,
    ServiceLimits,
    ServiceLogins,
    ServiceServer,
    explain_service_error,
    make_smart_login,
)
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry
from deid_agent.transport import HttpTransport, server_context


def service_section(settings: Settings) -> ServiceSettings:
    """The ``[service]`` section. Raises ``ConfigurationError`` if there is none."""
    if settings.service is None:
        raise ConfigurationError("there is no [service] section")
    return settings.service


def http_transport(settings: Settings) -> HttpTransport:
    """The transport, with a slot for each request in process. Raises ``ConfigurationError``."""
    return HttpTransport(service_section(settings).max_requests, [feed.project for feed in settings.feeds])


@asynccontextmanager
async def serve_requests(
    settings: Settings,
    transport: HttpTransport,
    parts: Mapping[str, ProjectParts],
    is_ready: Callable[[], bool],
    telemetry: Telemetry,
) -> AsyncIterator[int]:
    """Serve the HTTP interface inside the ``with`` block. Yields the port. Raises ``ConfigurationError``.

    ``parts`` are those of each project of the agent.
    """
    section = service_section(settings)
    logins = _logins(section)
    projects = Projects(
        {feed.project: _describe(parts[feed.project]) for feed in settings.feeds},
        section.permitted_projects(logins.tokens),
    )
    smart = None
    if section.smart is not None:
        await _next_second()
        smart = make_smart_login(section.smart, projects.names_of, telemetry)
    access = ServiceAccess(logins, section.records_per_s, smart=smart)
    policies = {feed.project: parts[feed.project].policy for feed in settings.feeds}
    requires_token = bool(logins.tokens) or smart is not None
    async with serve_jobs(settings, policies, transport, access, requires_token, telemetry) as jobs:
        service = Service(
            transport,
            access,
            projects,
            ServiceLimits(
                message_bytes=settings.agent.max_message_bytes,
                in_flight_bytes=section.max_in_flight_bytes,
                streams=section.max_requests // 2,
                idle_s=section.idle_s,
                answer_s=section.answer_s,
            ),
            is_ready,
            telemetry,
            smart,
            jobs,
        )
        server = ServiceServer(
            section, service.application(), telemetry, _context(section), logins.shown, lambda: service.budget.held
        )
        await server.start()
        try:
            yield server.port
        finally:
            await server.stop()


async def _next_second() -> None:
    """Wait for the next second of the clock.

    Assertions have whole seconds. The ids that a killed agent has accepted are forgotten, so one of the second in which
    this agent starts may have been used before.
    """
    await asyncio.sleep(1.01 - time.time() % 1)


def readiness(health: Health, executor: Executor) -> Callable[[], bool]:
    """Whether requests are taken: started, not stopping, and a worker is up.

    Not all of the workers, as for /readyz: one message that ends a worker must not turn away all others.
    """
    return lambda: executor.up > 0 and not {"starting", "stopping"} & set(health.ready().reasons)


def check_service(settings: Settings) -> str:
    """The address and the logins. Raises ``ConfigurationError`` if they cannot be used, also if the port is in use."""
    section = service_section(settings)
    context, logins = _context(section), _logins(section)
    section.permitted_projects(logins.tokens)
    if section.smart is not None:
        make_smart_login(section.smart, lambda _: (), Telemetry())
    try:
        found = socket.getaddrinfo(section.host, section.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
    except OSError as error:
        raise ConfigurationError(explain_service_error(section, error)) from None
    shown = "in the clear" if context is None else "TLS"
    return f"{section.host}:{section.port}, {shown}, logins: {logins.shown}"


def _context(section: ServiceSettings) -> ssl.SSLContext | None:
    if section.tls_certfile is None:
        return None
    return server_context(
        "service", section.tls_certfile, section.tls_keyfile, section.key_password(), section.tls_client_cafile
    )


def _logins(section: ServiceSettings) -> ServiceLogins:
    return ServiceLogins(
        section.tokens(),
        section.tls_client_cafile is not None,
        frozenset(section.clients),
        section.loopback,
        section.smart is not None,
    )


def _describe(parts: ProjectParts) -> Project:
    return Project(parts.name, parts.policy.name, parts.policy.digest[:16], parts.key.id)

"""Assembles the jobs of the HTTP interface from settings, and checks their settings."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

from deid_agent.agent import DEFAULT_PROJECT
from deid_agent.config import JobCodes, JobSettings, ProjectJobSettings, ServiceSettings, Settings
from deid_agent.http import (
    InputOpener,
    InputRules,
    JobAnswers,
    JobFolder,
    JobLimits,
    RunLimits,
    ServiceAccess,
    ServiceJobs,
    check_job_folder,
)
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import Policy, policy_names
from deid_agent.telemetry import Telemetry
from deid_agent.transport import HttpTransport


@asynccontextmanager
async def serve_jobs(
    settings: Settings,
    policies: Mapping[str, Policy],
    transport: HttpTransport,
    access: ServiceAccess,
    requires_token: bool,
    telemetry: Telemetry,
) -> AsyncIterator[JobAnswers | None]:
    """Run jobs inside the ``with`` block, for the projects of ``policies``. None if there are no ``[jobs]``.

    Raises ``ConfigurationError``.
    """
    section, service = settings.jobs, settings.service
    if section is None or service is None:
        yield None
        return
    rules = job_rules(settings, policies)
    opener = InputOpener(_context(section), service.idle_s)
    limits = JobLimits(
        RunLimits(settings.agent.max_message_bytes, section.max_bytes, section.max_errors),
        per_client=section.max_jobs,
        # Most slots stay free for requests that wait for their answer.
        running=min(section.max_running, max(1, service.max_requests // 4)),
        files=section.max_files,
        seconds=section.hours * 3600,
    )
    jobs = ServiceJobs(
        JobFolder(section.folder),
        rules,
        limits,
        opener,
        transport.claim,
        access.bucket,
        telemetry,
    )
    try:
        yield JobAnswers(
            jobs, base_url=_base_url(section, service), requires_token=requires_token, idle_s=service.idle_s
        )
    finally:
        await jobs.close()


def _base_url(section: JobSettings, service: ServiceSettings) -> str | None:
    if section.base_url is None and service.smart is not None:
        return service.smart.url
    return section.base_url


def job_rules(settings: Settings, policies: Mapping[str, Policy]) -> dict[str, InputRules]:
    """The rules of each project. Raises ``ConfigurationError`` for one that contradicts its policy or has no inbox."""
    return {name: _rules(name, _section(settings, name), policy) for name, policy in policies.items()}


def _section(settings: Settings, name: str) -> ProjectJobSettings:
    section = settings.jobs if name == DEFAULT_PROJECT else settings.projects[name]
    return ProjectJobSettings() if section is None else section


def _rules(name: str, section: ProjectJobSettings, policy: Policy) -> InputRules:
    place = "jobs" if name == DEFAULT_PROJECT else f"projects.{name}"
    common = section.codes is JobCodes.JOB
    if common and not policy.has_link_codes:
        raise ConfigurationError(
            f"{place}.codes: the policy {policy.name} makes no link codes; its ids join in the whole feed, or nowhere: "
            "leave codes out"
        )
    if section.inbox is not None:
        _check_inbox(place, section.inbox)
    return InputRules(
        policy_names(policy),
        section.input_urls,
        tuple(map(ip_network, section.input_networks)),
        section.inbox,
        common,
    )


def _check_inbox(place: str, inbox: Path) -> None:
    try:
        found = inbox.is_dir()
    except OSError:
        found = False
    if not found:
        raise ConfigurationError(f"{place}.inbox: there is no folder {inbox}; make it, or correct the setting")


def check_jobs(settings: Settings, policies: Mapping[str, Policy]) -> str:
    """Where jobs are kept, and which projects have them. Raises ``ConfigurationError``. Writes nothing."""
    section = settings.jobs
    if section is None:
        raise ConfigurationError("there is no [jobs] section")
    check_job_folder(section.folder)
    _context(section)
    shown = [
        f"{name} reads {len(each.urls)} addresses{' and its inbox' if each.inbox else ''}, "
        f"codes by {'job' if each.common_codes else 'record'}"
        for name, each in job_rules(settings, policies).items()
    ]
    return "; ".join([str(section.folder), *shown])


def _context(section: JobSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if section.ca_file is not None:
        try:
            context.load_verify_locations(section.ca_file)
        except OSError as error:
            raise ConfigurationError(
                f"jobs.ca_file: {section.ca_file} cannot be read as PEM ({type(error).__name__})"
            ) from None
    return context

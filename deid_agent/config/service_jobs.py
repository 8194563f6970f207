"""The section ``[jobs]`` and the job settings of a project: files that a client names, de-identified in the background.

A client chooses the addresses that the agent opens. So an operator lists where they may be, and every other address is
refused: else a client could reach whatever the agent's host can reach.
"""

import ipaddress
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator

from deid_agent.config.service import Count, Section

_ADDRESS: Final = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::([1-9][0-9]{0,4}))?/(?:[A-Za-z0-9._~-]+/)*"
)
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


class JobCodes(StrEnum):
    """The records among which the link codes of a policy join."""

    RECORD = "record"
    JOB = "job"


class ProjectJobSettings(Section):
    """The jobs of one project."""

    codes: JobCodes = Field(
        default=JobCodes.RECORD,
        description="link codes join within one record, or within all files of one job: record or job",
    )
    input_urls: tuple[str, ...] = Field(
        default=(),
        description="jobs read files below these addresses only: https://HOST/PATH/, or http:// and a loopback address",
    )
    input_networks: tuple[str, ...] = Field(
        default=(), description="private networks that the hosts of input_urls may be in, such as 10.20.0.0/16"
    )
    inbox: Path | None = Field(
        default=None, description="folder with files that jobs read as urn:deid:inbox:NAME; None is no folder"
    )

    @property
    def has_jobs(self) -> bool:
        """True if any of its settings is set."""
        return bool(self.input_urls or self.input_networks or self.inbox or self.codes is JobCodes.JOB)

    @field_validator("input_urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            _check_url(url)
        return urls

    @field_validator("input_networks")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for each in networks:
            network = ipaddress.ip_network(each)
            if not network.is_private or network.is_loopback or network.is_link_local or network.is_unspecified:
                raise ValueError(f"{each} is not a private network; public addresses need no permission")
        return networks


def _check_url(url: str) -> None:
    found = _ADDRESS.fullmatch(url)
    if found is None or {".", ".."} & set(url.split("/")) or int(found[3] or 0) > 65_535:
        raise ValueError("write https://HOST/PATH/ in small letters, without user, query and escapes, and a final /")
    host = found[2].strip("[]")
    numeric = ":" in host or _NUMERIC.fullmatch(host.rpartition(".")[2]) is not None
    address = ipaddress.ip_address(host) if numeric else None
    if found[1] == "http" and (address is None or not address.is_loopback):
        raise ValueError("http is for loopback addresses only, such as http://127.0.0.1:8080/; write https")


class JobSettings(ProjectJobSettings):
    """Jobs of the HTTP interface. ``codes``, ``input_urls``, ``input_networks`` and ``inbox`` are of project default.

    A job is lost if the agent stops.
    """

    folder: Path = Field(
        description="folder of the outputs, mode 0700; made if it is missing, and emptied at the start"
    )
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s@/?#]+(/[^\s?#]*[^\s?#/])?$")] | None = Field(
        default=None,
        description="address of the interface as clients see it; None is service.smart.url, or that of their requests",
    )
    max_jobs: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=4, description="jobs of one client, ended ones included, until they are deleted or expire"
    )
    max_running: Annotated[int, Field(ge=1, le=256)] = Field(
        default=4, description="jobs with files that run at once, half of them of one client; others wait"
    )
    max_files: Annotated[int, Field(ge=1, le=1000)] = Field(default=100, description="files of one job")
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 << 30, description="bytes of all files of one job")
    max_errors: Count = Field(default=10_000, description="refused lines of one file before the file is given up")
    hours: Annotated[float, Field(gt=0, le=168)] = Field(
        default=24.0, description="longest time of a job, and then the time until its files are removed"
    )
    ca_file: Path | None = Field(
        default=None, description="authority (PEM) of the servers in input_urls, beside those of the system"
    )

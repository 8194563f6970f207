"""The settings of jobs: addresses that an operator may list, and settings that ``check`` and ``run`` refuse."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from support.keys import KEY

from deid_agent.cli import main
from deid_agent.cli.service_jobs import check_jobs, job_rules, serve_jobs
from deid_agent.config import JobSettings, load_settings
from deid_agent.http import ServiceAccess, ServiceLogins
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import Telemetry
from deid_agent.transport import HttpTransport


@pytest.mark.parametrize(
    "url",
    [
        "https://fhir.h.example/",
        "https://fhir.h.example:8443/bulk/2026-01/a_b~c/",
        "https://10.0.0.5/bulk/",
        "https://[fd12::1]:8443/",
        "http://127.0.0.1:8080/",
        "http://[::1]/bulk/",
    ],
)
def test_an_address_may_be_listed(url: str) -> None:
    assert JobSettings(folder=Path("jobs"), input_urls=(url,)).input_urls == (url,)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https://fhir.h.example",
        "https://fhir.h.example/bulk",
        "https://FHIR.h.example/",
        "https://user@fhir.h.example/",
        "https://fhir.h.example/a/../",
        "https://fhir.h.example/a//b/",
        "https://fhir.h.example/a%2f/",
        "https://fhir.h.example/?a=/",
        "https://fhir.h.example/#/",
        "https://fhir.h.example:0/",
        "https://fhir.h.example:99999/",
        "https://*.h.example/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://127.1/",
        "https://[::g]/",
        "https://-a.example/",
        "http://fhir.h.example/",
        "http://localhost/",
        "http://10.0.0.5/",
        "ftp://fhir.h.example/",
        "file:///srv/",
    ],
)
def test_no_other_address_may_be_listed(url: str) -> None:
    with pytest.raises(ValidationError):
        JobSettings(folder=Path("jobs"), input_urls=(url,))


@pytest.mark.parametrize(
    "network", ["0.0.0.0/0", "::/0", "127.0.0.0/8", "169.254.0.0/16", "8.8.8.0/24", "10.1.2.3/8", "fe80::/10", "x"]
)
def test_only_private_networks_may_be_listed(network: str) -> None:
    assert JobSettings(folder=Path("jobs"), input_networks=("10.20.0.0/16", "fd12::/32"))
    with pytest.raises(ValidationError):
        JobSettings(folder=Path("jobs"), input_networks=(network,))


@pytest.mark.parametrize(
    "url", ["https://deid.example/", "deid.example", "https://u@h", "https://h?a", "https://h/a b"]
)
def test_a_base_of_addresses_has_no_final_slash(url: str) -> None:
    for good in ("https://deid.example", "https://deid.example:8443/de/id"):
        assert JobSettings(folder=Path("jobs"), base_url=good).base_url == good
    with pytest.raises(ValidationError):
        JobSettings(folder=Path("jobs"), base_url=url)


def settings_file(folder: Path, jobs: str, policy: str = "safe-harbor", more: str = "") -> Path:
    key, file = folder / "key", folder / "agent.toml"
    key.write_bytes(KEY)
    key.chmod(0o600)
    audit, place = json.dumps(str(folder / "audit")), json.dumps(str(key))
    file.write_text(
        f'transport = "http"\nsystem = "none"\npolicy = "{policy}"\nkey_file = {place}\n[audit]\npath = {audit}\n'
        f"[http]\nenabled = false\n[service]\nport = 0\n{jobs}\n{more}"
    )
    return file


@pytest.mark.parametrize(
    ("lines", "policy", "fault"),
    [
        ('codes = "job"', "pseudonymised", "jobs.codes: the policy pseudonymised makes no link codes"),
        ('inbox = "no-such-folder"', "safe-harbor", "jobs.inbox: there is no folder no-such-folder"),
        ('ca_file = "no-such-file"', "safe-harbor", "jobs.ca_file: no-such-file cannot be read"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, lines: str, policy: str, fault: str) -> None:
    settings = load_settings(settings_file(tmp_path, f'[jobs]\nfolder = "{tmp_path}/jobs"\n{lines}', policy))
    with pytest.raises(ConfigurationError, match=fault):
        check_jobs(settings, {"default": load_policy(policy, data_folder("rules"))})


def test_check_shows_the_inputs_and_writes_nothing(tmp_path: Path) -> None:
    lines = (
        f'[jobs]\nfolder = "{tmp_path}/jobs"\ninbox = "{tmp_path}"\ninput_urls = ["https://a.example/"]\ncodes = "job"'
    )
    shown = CliRunner().invoke(main, ["check", "--config", str(settings_file(tmp_path, lines))]).output
    assert f"ok   jobs          {tmp_path}/jobs; default reads 1 addresses and its inbox, codes by job" in shown
    assert not (tmp_path / "jobs").exists()


def test_a_project_has_its_own_addresses_and_none_of_another(tmp_path: Path) -> None:
    lines = f'[jobs]\nfolder = "{tmp_path}/jobs"\ninput_urls = ["https://a.example/"]\n'
    project = '[projects.p]\ninput_urls = ["https://b.example/"]\ncodes = "job"\n[projects.q]\n'
    settings = load_settings(settings_file(tmp_path, lines, more=project))
    policy = load_policy("safe-harbor", data_folder("rules"))
    rules = job_rules(settings, dict.fromkeys(("default", "p", "q"), policy))
    assert [(each.urls, each.common_codes) for each in rules.values()] == [
        (("https://a.example/",), False),
        (("https://b.example/",), True),
        ((), False),
    ]
    assert "HHS_SAFE_HARBOR_DETERMINISTIC_METHOD" in rules["p"].policies


def test_jobs_need_the_interface_and_projects_need_jobs(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "", more='[projects.p]\ncodes = "job"\n')
    with pytest.raises(ConfigurationError, match=r"projects\.p: it has settings of jobs; add \[jobs\]"):
        load_settings(file)
    text = settings_file(tmp_path, f'[jobs]\nfolder = "{tmp_path}/jobs"').read_text()
    text = text.replace('transport = "http"', 'transport = "directory"').replace("[service]\nport = 0\n", "")
    file.write_text(
        text + '[dead_letters]\nplain = true\n[directory]\ninput = "a"\noutput = "b"\ndead_letters = "c"\nstate = "d"\n'
    )
    with pytest.raises(ConfigurationError, match="jobs: they are part of the HTTP interface"):
        load_settings(file)


@pytest.mark.parametrize(
    ("jobs", "smart", "expected"),
    [
        ("", False, None),
        ("", True, "https://deid.example/api"),
        ('base_url = "https://proxy.example"', True, "https://proxy.example"),
    ],
)
async def test_the_base_of_addresses_is_that_of_the_logins_by_default(
    tmp_path: Path, jobs: str, smart: bool, expected: str | None
) -> None:
    login = '[service.smart]\nmode = "self"\nurl = "https://deid.example/api"\nclients.a = { jwks_file = "keys" }\n'
    lines = f'[jobs]\nfolder = "{tmp_path}/jobs"\n{jobs}'
    settings = load_settings(settings_file(tmp_path, lines, more=login if smart else ""))
    policy = load_policy("safe-harbor", data_folder("rules"))
    access = ServiceAccess(ServiceLogins(), 1.0)
    async with serve_jobs(settings, {"default": policy}, HttpTransport(2), access, smart, Telemetry()) as answers:
        assert answers is not None
        assert answers._base_url == expected
        assert [each.name for each in (tmp_path / "jobs").iterdir()] == ["lock"]

"""deploy/systemd/deid-agent.service: hardened, and consistent with the needs of the agent."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.manifests import DEPLOY, DOCS

from deid_agent.cli.common import Exit
from deid_agent.config import AgentSettings, HttpSettings, MllpSettings, shown_settings

UNIT = DEPLOY / "systemd" / "deid-agent.service"
TEXT = UNIT.read_text("utf-8")
SERVICE: dict[str, list[str]] = {}
for _name, _value in re.findall(r"^(\w+)=(.*)$", TEXT, re.MULTILINE):
    SERVICE.setdefault(_name, []).append(_value)


def test_a_stop_is_left_to_the_agent() -> None:
    assert SERVICE["KillMode"] == ["mixed"], "the agent ends its workers itself"
    assert int(SERVICE["TimeoutStopSec"][0]) >= AgentSettings().drain_s + 20
    assert SERVICE["RestartPreventExitStatus"] == [str(int(Exit.CONFIGURATION))]


def test_it_writes_only_below_its_state_folder() -> None:
    assert SERVICE["ProtectSystem"] == ["strict"] and SERVICE["DynamicUser"] == ["yes"]
    assert SERVICE["StateDirectory"] == ["deid-agent"] and SERVICE["StateDirectoryMode"] == ["0700"]
    environment = dict(value.split("=", 1) for value in SERVICE["Environment"])
    assert environment["DEID_AUDIT__PATH"].startswith("/var/lib/deid-agent/")
    credentials = {value.split(":")[0] for value in SERVICE["LoadCredential"]}
    assert {Path(v).name for v in environment.values() if v.startswith("%d/")} == credentials


def test_optional_lines_name_settings_and_credentials() -> None:
    """The drop-in of the page."""
    (added,) = re.findall(r"^```ini\n(.*?)^```$", (DOCS / "containers.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    named = dict(
        pair.split("=", 1) for line in re.findall(r"^Environment=(.*)$", added, re.MULTILINE) for pair in line.split()
    )
    settings = {shown.name for shown in shown_settings(HttpSettings(), "http.")}
    settings |= {f"mllp.{name}" for name in MllpSettings.model_fields}
    assert {name.removeprefix("DEID_").replace("__", ".").lower() for name in named} <= settings and len(named) > 3
    credentials = set(re.findall(r"^LoadCredential=([^:]+):", added, re.MULTILINE))
    assert {Path(value).name for value in named.values() if value.startswith("%d/")} == credentials


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_finds_no_fault_and_little_exposure(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(TEXT.replace("/opt/deid-agent/bin/deid-agent", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-200:]

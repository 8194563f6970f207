"""The memory limit of each MLLP listener exceeds the most that its settings allow, as docs/sizing.md computes."""

import re
from pathlib import Path

import pytest
from support.chart import KUBERNETES
from support.manifests import DEPLOY, DOCS, containers, documents, pods

from deid_agent.config import MllpSettings, Settings, load_settings

AGENT, WORKER = 100_000_000, 260_000_000
UNITS = {"g": 1 << 30, "gi": 1 << 30, "m": 1 << 20, "mi": 1 << 20}


def most(settings: Settings) -> int:
    """The memory in bytes: agent, workers with ten times the largest message, and the buffers of all senders."""
    assert settings.mllp is not None
    largest = min(settings.mllp.max_message_bytes, settings.agent.max_message_bytes)
    workers = settings.agent.workers * (WORKER + 10 * largest) + (WORKER if settings.http.console_playground else 0)
    return int(AGENT + workers + settings.mllp.max_connections * 2.5 * settings.mllp.max_message_bytes)


def limit(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit.lower()]


def of_pod(path: Path, name: str) -> tuple[str, str]:
    (held,) = (tree for tree in documents(path) if tree["kind"] == "ConfigMap")
    (agent,) = (c for _, pod in pods(documents(path)) for c in containers(pod) if "deid-agent:" in c["image"])
    return held["data"][name], agent["resources"]["limits"]["memory"]


def shipped() -> dict[str, tuple[str, str]]:
    """Settings and the limit that they run under."""
    example = (DEPLOY / "mllp.toml").read_text("utf-8")
    (compose,) = documents(DEPLOY / "compose.yaml")
    unit = re.findall(r"^MemoryMax=(\S+)$", (DEPLOY / "systemd" / "deid-agent.service").read_text(), re.MULTILINE)
    return {
        "compose": (example, compose["services"]["listener"]["mem_limit"]),
        "systemd": (example, unit[0]),
        "chart": of_pod(KUBERNETES / "agent-mllp.yaml", "agent.toml"),
        "sidecar": of_pod(KUBERNETES / "sidecar.yaml", "mllp.toml"),
    }


@pytest.mark.parametrize("name", shipped())
def test_senders_cannot_reach_the_limit(name: str, tmp_path: Path) -> None:
    text, ends = shipped()[name]
    (tmp_path / "agent.toml").write_text(text)
    settings = load_settings(tmp_path / "agent.toml")
    assert most(settings) < 0.9 * limit(ends)


def test_the_defaults_give_the_documented_limit() -> None:
    fields = MllpSettings.model_fields
    held = fields["max_connections"].default * 2.5 * fields["max_message_bytes"].default
    assert f"{held / 1e9:.1f} GB by default, for any sender" in (DOCS / "sizing.md").read_text("utf-8")

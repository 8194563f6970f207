"""deploy/compose.yaml: hardened, on loopback, and every file and setting that it names exists."""

import re
from pathlib import Path

import pytest
from support.kafka_broker import FILES
from support.manifests import DEPLOY, Tree, containerfile, documents

from deid_agent.config import AgentSettings, Settings, TransportKind, load_settings

(COMPOSE,) = documents(DEPLOY / "compose.yaml")
SERVICES: dict[str, Tree] = COMPOSE["services"]
AGENTS = [name for name, service in SERVICES.items() if service["image"].startswith("deid-agent:")]
MADE_BY_HAND = "./local/"  # docs/containers.md makes these


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc"}
    assert service.get("read_only") or name in {"kafka", "topics"}, "only Kafka's image writes into its root"
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in service.get("ports", []))
    assert re.fullmatch(r"[\w./-]+:v?\d[\w.]+", service["image"]), "pinned by tag"
    assert "docker.sock" not in str(service)


@pytest.mark.parametrize("name", AGENTS)
def test_the_agent_has_time_to_stop(name: str) -> None:
    agent = SERVICES[name]
    settings = AgentSettings()
    assert int(agent["stop_grace_period"].removesuffix("s")) >= settings.drain_s + 20
    assert agent["init"] is True
    assert "DEID_USER:?" in agent["user"], "the owner of the secrets must be set"


def test_every_file_that_is_mounted_exists() -> None:
    sources = [
        mount["source"]
        for service in SERVICES.values()
        for mount in service.get("volumes", [])
        if isinstance(mount, dict)
    ]
    assert len(sources) >= 5
    for source in sources:
        assert source.startswith(MADE_BY_HAND) or (DEPLOY / source).exists(), source
    assert all(secret["file"].startswith(MADE_BY_HAND) for secret in COMPOSE["secrets"].values())
    assert (DEPLOY / SERVICES["agent"]["build"]["context"] / SERVICES["agent"]["build"]["dockerfile"]).is_file()


def test_secrets_are_files_alone() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"key|password|secret|token", name, re.IGNORECASE):
                assert str(value).startswith("/run/secrets/"), name
                assert Path(value).name in service["secrets"]


def settings_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings from the file and the environment of a service."""
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, value)
    (mount,) = (m for m in SERVICES[name]["volumes"] if m["target"] == "/etc/deid-agent/agent.toml")
    return load_settings(DEPLOY / mount["source"])


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_starts_with_these_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, settings = SERVICES[name], settings_of(name, monkeypatch)
    assert settings.kafka is not None
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    assert (
        f"kafka:{settings.kafka.bootstrap_servers.split(':')[1]}"
        in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    )
    (volume,) = (step.words[0] for step in containerfile() if step.name == "VOLUME")
    assert str(settings.audit.path).startswith(f"{volume}/")
    assert volume in {m["target"] for m in agent["volumes"]}
    assert settings.http.console and str(settings.http.console_token_file).startswith("/run/secrets/")
    assert not settings.http.console_write
    inside = {port.split(":")[2] for port in agent["ports"]}
    listens = settings.mllp is not None and settings.transport is TransportKind.MLLP
    assert inside == {str(settings.http.port)} | ({str(settings.mllp.port)} if listens and settings.mllp else set())
    exposed = {step.value for step in containerfile() if step.name == "EXPOSE"}
    assert inside <= set(" ".join(exposed).split())


def test_agents_share_neither_state_nor_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AGENTS == ["agent", "listener"]
    states = [m["source"] for name in AGENTS for m in SERVICES[name]["volumes"] if m["target"] == "/var/lib/deid-agent"]
    ports = [port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(set(states)) == len(AGENTS) and len(set(ports)) == len(ports)
    assert SERVICES["listener"]["profiles"] == ["mllp"] and "profiles" not in SERVICES["agent"]
    settings = settings_of("listener", monkeypatch)
    assert settings.mllp is not None and settings.destination is TransportKind.KAFKA
    assert settings.mllp.dead_letters.is_relative_to("/var/lib/deid-agent")


def test_topics_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("agent", monkeypatch)
    assert settings.kafka is not None
    made = re.search(r"for topic in ([\w. ]+);", SERVICES["topics"]["command"][0])
    assert made
    needed = {topic for pair in settings.kafka.routes.items() for topic in pair}
    needed |= {f"{topic}{settings.kafka.dead_letter_suffix}" for topic in settings.kafka.routes}
    assert set(made[1].split()) == needed
    over_mllp = settings_of("listener", monkeypatch).kafka
    assert over_mllp is not None and set(over_mllp.routes.values()) <= needed


def test_kafka_is_the_one_of_the_tests() -> None:
    version = re.search(r"<kafka\.version>([\d.]+)<", (FILES / "pom.xml").read_text())
    assert version
    assert {SERVICES[name]["image"] for name in ("kafka", "topics")} == {f"apache/kafka:{version[1]}"}


def test_grafana_finds_its_files() -> None:
    (source,) = documents(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")
    (dashboards,) = documents(DEPLOY / "grafana/provisioning/dashboards/deid-agent.yaml")
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in SERVICES
    folder = dashboards["providers"][0]["options"]["path"]
    mounted = {m["target"]: m["source"] for m in SERVICES["grafana"]["volumes"]}
    assert mounted[f"{folder}/dashboard.json"] == "./grafana/dashboard.json"
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/dashboard.json"
    (scraped,) = documents(DEPLOY / "prometheus/prometheus.yaml")
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["agent:9464"]}]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in scraped["rule_files"])

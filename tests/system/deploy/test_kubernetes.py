"""The manifests for Kubernetes: hardened, consistent with each other, and with settings that the agent accepts."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from support.chart import KUBERNETES, RENDERED
from support.manifests import DOCS, Tree, containerfile, containers, documents, pods
from support.pod_settings import loaded, secrets_of

from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.config import Settings
from deid_agent.model.errors import ConfigurationError

SIDECAR = KUBERNETES / "sidecar.yaml"
FILES = (*RENDERED, SIDECAR)
PODS = [(path, name, pod) for path in FILES for name, pod in pods(documents(path))]
OURS = [(path, pod, c) for path, _, pod in PODS for c in containers(pod) if "deid-agent:" in c["image"]]
USER = int(next(step.value for step in containerfile() if step.name == "USER").split(":")[0])


def kinds(path: Path, kind: str) -> list[Tree]:
    return [tree for tree in documents(path) if tree["kind"] == kind]


def settings_of(path: Path, folder: Path) -> Settings:
    """The settings of a manifest, loaded from its ConfigMap."""
    return loaded(configurations(path)["agent.toml"], folder)


def configurations(path: Path) -> dict[str, str]:
    (held,) = kinds(path, "ConfigMap")
    return {str(name): str(text) for name, text in held["data"].items()}


def ports_of(settings: Settings) -> Iterator[tuple[str, int]]:
    """Name and number of each port that others reach."""
    yield "http", settings.http.port
    if settings.mllp is not None:
        yield "mllp", settings.mllp.port


@pytest.mark.parametrize(("path", "name", "pod"), PODS, ids=[name for _, name, _ in PODS])
def test_a_pod_has_no_right_that_it_does_not_need(path: Path, name: str, pod: Tree) -> None:
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True and security["runAsUser"] == USER == security["fsGroup"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert [account["automountServiceAccountToken"] for account in kinds(path, "ServiceAccount")] == [False]
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    for container in containers(pod):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False and own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]} and own["privileged"] is False
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
        assert re.search(r":\d[\w.]*$", container["image"]), "pinned by tag"
        assert not [env for env in container.get("env", []) if re.search("KEY|PASSWORD|TOKEN", env["name"])]


@pytest.mark.parametrize(("path", "pod", "agent"), OURS, ids=[path.stem for path, _, _ in OURS])
def test_the_agent_has_probes_and_a_grace_period(path: Path, pod: Tree, agent: Tree, tmp_path: Path) -> None:
    settings = settings_of(path, tmp_path)
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    asked = {probe: agent[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [asked[probe]["path"] for probe in asked] == ["/healthz", "/healthz", "/readyz"]
    assert {ports[get["port"]] for get in asked.values()} == {settings.http.port}
    assert settings.http.host == "0.0.0.0", "a probe comes from outside of the container"  # noqa: S104
    assert all(agent[probe]["timeoutSeconds"] == 5 for probe in asked)
    start = agent["startupProbe"]
    if settings.kafka is not None:
        assert start["periodSeconds"] * start["failureThreshold"] > settings.agent.start_s
    assert pod["terminationGracePeriodSeconds"] >= settings.agent.drain_s + 20
    assert {name.removeprefix("deid-"): port for name, port in ports.items()} == dict(ports_of(settings))
    services = {
        port["targetPort"]: service["spec"] for service in kinds(path, "Service") for port in service["spec"]["ports"]
    }
    assert set(services) == set(ports)
    for name, service in services.items():
        if name == "mllp":
            assert not service.get("publishNotReadyAddresses"), "senders must reach ready pods only"
        else:
            assert service["publishNotReadyAddresses"] is True, "pods that are not ready must be visible"


@pytest.mark.parametrize(("path", "pod", "agent"), OURS, ids=[path.stem for path, _, _ in OURS])
def test_written_paths_are_persistent_and_read_paths_are_mounted(
    path: Path, pod: Tree, agent: Tree, tmp_path: Path
) -> None:
    settings = settings_of(path, tmp_path)
    mounts = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    (stateful,) = kinds(path, "StatefulSet")
    claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert stateful["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    folder = settings.directory
    written = [settings.audit.path, *((folder.output, folder.dead_letters, folder.state) if folder else ())]
    written += [settings.mllp.dead_letters] if settings.mllp else []
    for folder in written:
        (mount,) = (mounts[str(parent)] for parent in (folder, *folder.parents) if str(parent) in mounts)
        assert mount["name"] in claims and not mount.get("readOnly"), folder
    assert all(m["name"] in claims or m["readOnly"] for m in mounts.values())
    assert agent["args"] == ["run", "--config", "/etc/deid-agent/agent.toml"] and "command" not in agent
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    assert secrets["defaultMode"] == 0o440, "owned by root and the group of the agent"
    there = {f"/run/secrets/deid/{item['path']}" for source in secrets["sources"] for item in source["secret"]["items"]}
    assert {str(path) for path in secrets_of(settings)} == there
    assert "/run/secrets/deid" in mounts


def test_the_console_is_off_unless_a_token_is_named(tmp_path: Path) -> None:
    """Other pods can reach the port. If the console is on, it requires a token and is read-only."""
    for path in FILES:
        http = settings_of(path, tmp_path).http
        assert http.console == http.has_token == (path.stem == "agent-mllp") and not http.loopback
        assert not http.console_write


def test_a_console_without_a_token_does_not_start_in_a_pod(tmp_path: Path) -> None:
    """The page quotes the error message."""
    (path,) = (path for path in FILES if path.stem == "agent-mllp")
    kept = [line for line in configurations(path)["agent.toml"].splitlines() if "console_token_file" not in line]
    with pytest.raises(ConfigurationError) as refused:
        loaded("\n".join(kept), tmp_path)
    message = str(refused.value).replace(str(tmp_path), "/etc/deid-agent")
    assert f"deid-agent: {message}\n" in (DOCS / "containers.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["agent.toml", "mllp.toml"])
def test_the_sidecar_has_a_console_if_its_lines_are_uncommented(name: str, tmp_path: Path) -> None:
    manifest = tmp_path / "sidecar.yaml"
    manifest.write_text(SIDECAR.read_text("utf-8").replace("#console ", ""))
    settings = loaded(configurations(manifest)[name], tmp_path)
    assert settings.http.console and settings.http.has_token
    ((_, pod),) = pods(documents(manifest))
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    there = {f"/run/secrets/deid/{item['path']}" for source in secrets["sources"] for item in source["secret"]["items"]}
    assert {str(path) for path in secrets_of(settings)} == there


def test_the_sidecar_serves_mllp_only_within_the_pod(tmp_path: Path) -> None:
    folders = settings_of(SIDECAR, tmp_path)
    settings = loaded(configurations(SIDECAR)["mllp.toml"], tmp_path)
    assert settings.mllp is not None and settings.mllp_out is not None
    assert settings.mllp.host == settings.mllp_out.host == "127.0.0.1"
    assert settings.mllp.dead_letters == (folders.directory and folders.directory.dead_letters)
    assert settings.audit == folders.audit and settings.http == folders.http
    assert secrets_of(settings) == secrets_of(folders)


def test_the_engine_sees_no_secret() -> None:
    """The engine beside the sidecar writes messages and reads sanitized ones. It has no access to the rest."""
    ((_, _, pod),) = (found for found in PODS if found[0].stem == "sidecar")
    (agent,) = pod["initContainers"]
    (engine,) = pod["containers"]
    assert agent["restartPolicy"] == "Always", "it starts before the engine and stops after it"
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in engine["volumeMounts"]}
    assert mounts == {"/messages/inbox": False, "/messages/outbox": True}
    ours = {mount["mountPath"]: mount.get("readOnly", False) for mount in agent["volumeMounts"]}
    assert ours["/messages/inbox"] is True and ours["/messages/outbox"] is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ingress_is_restricted(path: Path) -> None:
    (policy,) = kinds(path, "NetworkPolicy")
    (stateful,) = kinds(path, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"].items()
    chosen = [policy["spec"]["podSelector"]["matchLabels"], stateful["spec"]["selector"]["matchLabels"]]
    chosen += [budget["spec"]["selector"]["matchLabels"] for budget in kinds(path, "PodDisruptionBudget")]
    chosen += [service["spec"]["selector"] for service in kinds(path, "Service")]
    assert len(chosen) == 3 + len(kinds(path, "Service")) and all(selector.items() <= labels for selector in chosen)
    assert "Ingress" in policy["spec"]["policyTypes"]
    assert all(rule.get("from") for rule in policy["spec"]["ingress"])


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_only_the_sender_and_the_receiver_are_allowed(path: Path, tmp_path: Path) -> None:
    settings = settings_of(path, tmp_path)
    (policy,) = kinds(path, "NetworkPolicy")
    let_in = {port["port"]: rule["from"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert set(let_in) == dict(ports_of(settings)).keys() and all(let_in.values())
    let_out = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    wanted = {53}
    if settings.kafka is not None:
        wanted |= {int(server.rpartition(":")[2]) for server in settings.kafka.bootstrap_servers.split(",")}
    if settings.mllp_out is not None:
        wanted |= {settings.mllp_out.port}
    assert let_out == wanted


@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path in FILES for name in configurations(path)],
    ids=lambda part: Path(part).stem,
)
def test_check_accepts_its_settings(path: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``check`` would report a missing rule, policy or setting; the pod's folders are created here."""
    from click.testing import CliRunner  # noqa: PLC0415

    from deid_agent.cli import main  # noqa: PLC0415

    for variable in list(os.environ):
        if variable.startswith("DEID_"):
            monkeypatch.delenv(variable)
    text = re.sub(r'"/(run|var|messages)', rf'"{tmp_path}/\1', configurations(path)[name])
    text = text.replace("port = 2575", "port = 0")
    (tmp_path / "agent.toml").write_text(text)
    secrets = tmp_path / "run/secrets/deid"
    for folder in (secrets, tmp_path / "var/lib/deid-agent", tmp_path / "messages/inbox"):
        folder.mkdir(parents=True)
    generate_keys(secrets / "dead-letters.key")
    authority = trustme.CA()
    issued = authority.issue_cert("deid-agent")
    held = {"ca.crt": authority.cert_pem, "tls.crt": issued.cert_chain_pems[0], "tls.key": issued.private_key_pem}
    files = {f"{side}-{name}": pem.bytes() for side in ("mllp", "mllp-out") for name, pem in held.items()}
    files = {name.replace("-tls", ""): pem for name, pem in files.items()} | {"ca.crt": authority.cert_pem.bytes()}
    passwords = ("deid.key", "sasl-password", "console.token")
    files |= {name: hashlib.sha256(name.encode()).hexdigest().encode() for name in passwords}
    for secret, content in files.items():
        (secrets / secret).write_bytes(content)
        (secrets / secret).chmod(0o600)
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(tmp_path / "agent.toml")])
    assert done.exit_code == 0, done.output

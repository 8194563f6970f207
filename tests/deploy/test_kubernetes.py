"""The manifests for Kubernetes: hardened, at one with each other, and with settings that the agent takes."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml
from support.chart import CHART, KUBERNETES, RENDERED, digest, rendered, template
from support.manifests import DEPLOY, Tree, containerfile, containers, documents, pods

from deid_agent import config
from deid_agent.agent import letterkeys
from deid_agent.config import TransportKind
from deid_agent.errors import ConfigurationError

SIDECAR = KUBERNETES / "sidecar.yaml"
FILES = (*RENDERED, SIDECAR)
PODS = [(path, name, pod) for path in FILES for name, pod in pods(documents(path))]
OURS = [(path, pod, c) for path, _, pod in PODS for c in containers(pod) if "deid-agent:" in c["image"]]
USER = int(next(step.value for step in containerfile() if step.name == "USER").split(":")[0])


def kinds(path: Path, kind: str) -> list[Tree]:
    return [tree for tree in documents(path) if tree["kind"] == kind]


def settings_of(path: Path, folder: Path) -> config.Settings:
    """The settings of a manifest, its configuration put where ``config.load`` finds it."""
    return loaded(configurations(path)["agent.toml"], folder)


def configurations(path: Path) -> dict[str, str]:
    (held,) = kinds(path, "ConfigMap")
    return {str(name): str(text) for name, text in held["data"].items()}


def loaded(text: str, folder: Path) -> config.Settings:
    (folder / "agent.toml").write_text(text)
    return config.load(folder / "agent.toml")


def ports_of(settings: config.Settings) -> Iterator[tuple[str, int]]:
    """Name and number of each port that others reach."""
    yield "http", settings.http.port
    if settings.mllp is not None:
        yield "mllp", settings.mllp.port


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_the_chart_was_rendered_as_it_is(path: Path) -> None:
    """Without Helm the digest tells; with it every value does."""
    assert f"# Chart: {digest()}\n" in path.read_text("utf-8"), "run: python tests/support/chart.py"
    if shutil.which("helm"):
        assert list(yaml.safe_load_all(rendered(path))) == list(yaml.safe_load_all(path.read_text("utf-8")))


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
def test_the_agent_is_asked_and_given_time(path: Path, pod: Tree, agent: Tree, tmp_path: Path) -> None:
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
            assert not service.get("publishNotReadyAddresses"), "who sends is not led to what takes nothing"
        else:
            assert service["publishNotReadyAddresses"] is True, "what is not ready has to be seen"


@pytest.mark.parametrize(("path", "pod", "agent"), OURS, ids=[path.stem for path, _, _ in OURS])
def test_what_it_writes_is_kept_and_what_it_reads_is_there(path: Path, pod: Tree, agent: Tree, tmp_path: Path) -> None:
    settings = settings_of(path, tmp_path)
    mounts = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    (stateful,) = kinds(path, "StatefulSet")
    claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert stateful["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    folder = settings.directory
    written = [settings.audit.path, *((folder.output, folder.dead_letters, folder.state) if folder else ())]
    written += [settings.mllp.dead_letters] if settings.mllp else []
    for place in written:
        (mount,) = (mounts[str(parent)] for parent in (place, *place.parents) if str(parent) in mounts)
        assert mount["name"] in claims and not mount.get("readOnly"), place
    assert all(m["name"] in claims or m["readOnly"] for m in mounts.values())
    assert agent["args"] == ["run", "--config", "/etc/deid-agent/agent.toml"] and "command" not in agent
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    assert secrets["defaultMode"] == 0o440, "root's, and its group is the agent's"
    there = {f"/run/secrets/deid/{item['path']}" for source in secrets["sources"] for item in source["secret"]["items"]}
    assert {str(path) for path in secrets_of(settings)} == there
    assert "/run/secrets/deid" in mounts


def secrets_of(settings: config.Settings) -> set[Path]:
    """Every file of a secret or certificate that the settings name."""
    kafka, mllp, out = settings.kafka, settings.mllp, settings.mllp_out
    named = {settings.key_file, settings.dead_letters.public_key, settings.http.console_token_file}
    named |= {kafka.sasl_password_file, kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile} if kafka else set()
    named |= {mllp.tls_certfile, mllp.tls_keyfile, mllp.tls_client_cafile} if mllp else set()
    named |= {out.tls_cafile, out.tls_certfile, out.tls_keyfile} if out else set()
    return {path for path in named if path}


def test_the_console_is_off_unless_a_token_is_named(tmp_path: Path) -> None:
    """What a pod listens on others reach; with the console on, a token stands before it and nothing may be changed."""
    for path in FILES:
        http = settings_of(path, tmp_path).http
        assert http.console == http.has_token == (path.stem == "agent-mllp") and not http.loopback
        assert not http.console_write


def test_a_console_without_a_token_does_not_start_in_a_pod(tmp_path: Path) -> None:
    """The page shows what the agent says then."""
    (path,) = (path for path in FILES if path.stem == "agent-mllp")
    kept = [line for line in configurations(path)["agent.toml"].splitlines() if "console_token_file" not in line]
    with pytest.raises(ConfigurationError) as refused:
        loaded("\n".join(kept), tmp_path)
    told = str(refused.value).replace(str(tmp_path), "/etc/deid-agent")
    assert f"deid-agent: {told}\n" in (DEPLOY / "containers.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["agent.toml", "mllp.toml"])
def test_the_sidecar_has_a_console_once_its_lines_are_taken_in(name: str, tmp_path: Path) -> None:
    told = tmp_path / "sidecar.yaml"
    told.write_text(SIDECAR.read_text("utf-8").replace("#console ", ""))
    settings = loaded(configurations(told)[name], tmp_path)
    assert settings.http.console and settings.http.has_token
    ((_, pod),) = pods(documents(told))
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    there = {f"/run/secrets/deid/{item['path']}" for source in secrets["sources"] for item in source["secret"]["items"]}
    assert {str(path) for path in secrets_of(settings)} == there


def test_the_sidecar_speaks_mllp_within_the_pod_alone(tmp_path: Path) -> None:
    folders = settings_of(SIDECAR, tmp_path)
    settings = loaded(configurations(SIDECAR)["mllp.toml"], tmp_path)
    assert settings.mllp is not None and settings.mllp_out is not None
    assert settings.mllp.host == settings.mllp_out.host == "127.0.0.1"
    assert settings.mllp.dead_letters == (folders.directory and folders.directory.dead_letters)
    assert settings.audit == folders.audit and settings.http == folders.http
    assert secrets_of(settings) == secrets_of(folders)


def test_the_engine_sees_no_secret() -> None:
    """The sidecar's neighbour reads what is sanitized and writes what is not; the rest is out of its sight."""
    ((_, _, pod),) = (found for found in PODS if found[0].stem == "sidecar")
    (agent,) = pod["initContainers"]
    (engine,) = pod["containers"]
    assert agent["restartPolicy"] == "Always", "it begins before the engine and ends after it"
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in engine["volumeMounts"]}
    assert mounts == {"/messages/inbox": False, "/messages/outbox": True}
    ours = {mount["mountPath"]: mount.get("readOnly", False) for mount in agent["volumeMounts"]}
    assert ours["/messages/inbox"] is True and ours["/messages/outbox"] is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_who_may_reach_it_is_said(path: Path) -> None:
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
def test_who_sends_and_where_it_goes_is_all_that_passes(path: Path, tmp_path: Path) -> None:
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


def test_what_the_chart_sets_itself_cannot_be_said_twice() -> None:
    """A setting that the chart would overwrite is refused by its schema; a new setting of these kinds needs a line."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    settings = schema["properties"]["settings"]
    parts = {"settings": settings} | {name: settings["properties"][name] for name in ("kafka", "mllp", "mllp_out")}
    said = {where: {name for one in part["not"]["anyOf"] for name in one["required"]} for where, part in parts.items()}
    refused = said["settings"] | said["kafka"]
    assert {name for name in config.KafkaSettings.model_fields if "ssl_" in name and "file" in name} - refused == {
        "ssl_password_file"
    }
    assert refused >= {"key_file", "http", "directory", "sasl_password", "sasl_password_file", "instance_id"}
    ours = {"tls_certfile", "tls_keyfile", "tls_password"}
    assert said["mllp"] == ours | {"host", "port", "dead_letters", "output", "tls_client_cafile"}
    assert said["mllp_out"] == ours | {"tls_cafile"}
    for where, model in (("mllp", config.MllpSettings), ("mllp_out", config.MllpOutSettings)):
        files = {name for name in model.model_fields if name.endswith("file")} - said[where]
        assert said[where] <= set(model.model_fields) and files == {"tls_password_file"}


def test_every_value_is_described_by_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, part in values.items():
        described = schema["properties"][name]
        if isinstance(part, dict) and described.get("additionalProperties") is False:
            assert set(part) == set(described["properties"]), name


@pytest.mark.skipif(not shutil.which("helm"), reason="there is no Helm here")
class TestValues:
    """What Helm makes of other values than those of the examples."""

    KAFKA = CHART / "example.yaml"
    MLLP = CHART / "example-mllp.yaml"

    def asked(self, folder: Path, values: Path, said: Tree) -> "subprocess.CompletedProcess[str]":
        """What Helm says to an example with the values of ``said``, by dotted names, in place of its own."""
        tree = yaml.safe_load(values.read_text("utf-8"))
        for name, value in said.items():
            *parents, last = name.split("/")
            at = tree
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = value
        (folder / "values.yaml").write_text(yaml.safe_dump(tree))
        return template(folder / "values.yaml")

    def made(self, folder: Path, values: Path, said: Tree) -> list[Tree]:
        done = self.asked(folder, values, said)
        assert done.returncode == 0, done.stderr
        return [tree for tree in yaml.safe_load_all(done.stdout) if tree]

    def read(self, trees: list[Tree], folder: Path) -> config.Settings:
        (held,) = (tree for tree in trees if tree["kind"] == "ConfigMap")
        return loaded(held["data"]["agent.toml"], folder)

    def test_kafka_to_mllp(self, tmp_path: Path) -> None:
        said = {
            "settings/output": "mllp",
            "settings/mllp_out": {"host": "receiver", "port": 2576},
            "settings/kafka/routes": {"hl7.raw": ""},
        }
        trees = self.made(tmp_path, self.KAFKA, said)
        settings = self.read(trees, tmp_path)
        assert (settings.transport, settings.goes_to) == (TransportKind.KAFKA, TransportKind.MLLP)
        assert settings.mllp is None and settings.mllp_out is not None and not settings.mllp_out.tls
        assert not [tree for tree in trees if tree["metadata"]["name"].endswith("-mllp")], "it does not listen"
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} == {53, 9093, 2576}
        ((_, pod),) = pods(trees)
        assert [env["name"] for env in pod["containers"][0]["env"]] == ["DEID_KAFKA__INSTANCE_ID"]

    def test_mllp_to_kafka(self, tmp_path: Path) -> None:
        said = {
            "settings/transport": "mllp",
            "settings/output": "kafka",
            "settings/mllp": {"refused": "AR"},
            "settings/kafka/routes": {"mllp": "hl7.deid"},
        }
        trees = self.made(tmp_path, self.KAFKA, said)
        settings = self.read(trees, tmp_path)
        assert (settings.transport, settings.goes_to) == (TransportKind.MLLP, TransportKind.KAFKA)
        assert settings.mllp is not None and settings.mllp.refused == "AR" and settings.mllp.tls_certfile is None
        assert settings.kafka is not None and settings.kafka.routes == {"mllp": "hl7.deid"}
        ((_, pod),) = pods(trees)
        assert "env" not in pod["containers"][0], "no group, so no member of it"
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == ["http"]
        assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} == {53, 9093}

    def test_nobody_is_let_in_where_nobody_is_named(self, tmp_path: Path) -> None:
        trees = self.made(tmp_path, self.MLLP, {"networkPolicy/scrapers": [], "networkPolicy/mllp/from": []})
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert policy["spec"]["ingress"] == []

    def test_a_monitor_finds_the_service_and_names_the_job_of_the_alerts(self, tmp_path: Path) -> None:
        said = {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}}
        trees = self.made(tmp_path, self.MLLP, said)
        (monitor,) = (tree for tree in trees if tree["kind"] == "ServiceMonitor")
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = monitor["spec"]["endpoints"]
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        services = [
            tree for tree in trees if tree["kind"] == "Service" and selector <= tree["metadata"]["labels"].items()
        ]
        (scraped,) = (s for s in services if endpoint["port"] in {port["name"] for port in s["spec"]["ports"]})
        assert scraped["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "deid-agent" != scraped["metadata"]["name"]

    def test_certificates_and_addresses(self, tmp_path: Path) -> None:
        said = {
            "secrets/mllpTls/clientCertificates": False,
            "secrets/mllpOutTls/clientCertificate": True,
            "mllp": {"port": 6661, "service": {"type": "LoadBalancer", "annotations": {"a": "b"}}},
            "console/write": True,
        }
        trees = self.made(tmp_path, self.MLLP, said)
        settings = self.read(trees, tmp_path)
        assert settings.mllp is not None and settings.mllp.tls_client_cafile is None and settings.mllp.port == 6661
        assert settings.mllp_out is not None and settings.mllp_out.tls_keyfile is not None
        assert settings.http.console_write
        (service,) = (tree for tree in trees if tree["metadata"]["name"].endswith("-mllp"))
        assert service["spec"]["externalTrafficPolicy"] == "Local" and service["metadata"]["annotations"] == {"a": "b"}
        assert service["spec"]["ports"][0]["port"] == 6661
        ((_, pod),) = pods(trees)
        (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
        there = {f"/run/secrets/deid/{i['path']}" for s in secrets["sources"] for i in s["secret"]["items"]}
        assert {str(path) for path in secrets_of(settings)} == there

    @pytest.mark.parametrize(
        ("values", "name", "value"),
        [
            (KAFKA, "settings/transport", "directory"),
            (KAFKA, "settings/output", "directory"),
            (KAFKA, "settings/output", "mllp"),
            (KAFKA, "settings/kafka/bootstrap_servers", ""),
            (KAFKA, "settings/kafka/routes", {}),
            (KAFKA, "settings/kafka/routes", {"hl7.raw": ""}),
            (KAFKA, "settings/mllp", {"refused": "AR"}),
            (KAFKA, "console/write", True),
            (MLLP, "settings/mllp_out", None),
            (MLLP, "settings/output", "kafka"),
            (MLLP, "settings/mllp", {"port": 2575}),
            (MLLP, "settings/mllp_out/tls_keyfile", "key"),
            (MLLP, "mllp/port", 80),
        ],
    )
    def test_what_the_agent_would_not_take_is_refused(
        self, values: Path, name: str, value: object, tmp_path: Path
    ) -> None:
        assert self.asked(tmp_path, values, {}).returncode == 0
        done = self.asked(tmp_path, values, {name: value})
        assert done.returncode != 0 and "values don't meet the specifications of the schema" in done.stderr, done.stdout

    @pytest.mark.parametrize(
        ("source", "target", "routes"),
        [("kafka", "mllp", {"a": "b"}), ("mllp", "kafka", {"a": "b"}), ("mllp", "kafka", {"mllp": "b", "c": "d"})],
    )
    def test_routes_are_those_of_the_way(
        self, source: str, target: str, routes: dict[str, str], tmp_path: Path
    ) -> None:
        said = {"settings/transport": source, "settings/output": target, "settings/kafka/routes": routes}
        said |= {"settings/mllp_out": {"host": "receiver", "port": 2576}}
        done = self.asked(tmp_path, self.KAFKA, said)
        assert done.returncode != 0 and "settings/kafka/routes" in done.stderr


@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path in FILES for name in configurations(path)],
    ids=lambda part: Path(part).stem,
)
def test_check_takes_its_settings(path: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``check`` would name a rule, policy or setting that there is not; the pod's folders are made here."""
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
    letterkeys.generate(secrets / "letters.key")
    authority = trustme.CA()
    issued = authority.issue_cert("deid-agent")
    held = {"ca.crt": authority.cert_pem, "tls.crt": issued.cert_chain_pems[0], "tls.key": issued.private_key_pem}
    files = {f"{side}-{name}": pem.bytes() for side in ("mllp", "mllp-out") for name, pem in held.items()}
    files = {name.replace("-tls", ""): pem for name, pem in files.items()} | {"ca.crt": authority.cert_pem.bytes()}
    files |= dict.fromkeys(("deid.key", "sasl-password", "console.token"), b"0123456789abcdef" * 4)
    for secret, content in files.items():
        (secrets / secret).write_bytes(content)
        (secrets / secret).chmod(0o600)
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(tmp_path / "agent.toml")])
    assert done.exit_code == 0, done.output

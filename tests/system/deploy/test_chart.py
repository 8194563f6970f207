"""The Helm chart: its schema, the manifests rendered from it, and values other than those of the examples."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support.chart import CHART, RENDERED, digest, rendered, template
from support.manifests import Tree, pods
from support.pod_settings import loaded, secrets_of

from deid_agent.config import KafkaSettings, MllpOutSettings, MllpSettings, Settings, TransportKind


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_the_rendered_chart_is_current(path: Path) -> None:
    """Without Helm the digest is compared, with Helm every value."""
    assert f"# Chart: {digest()}\n" in path.read_text("utf-8"), "run: python tests/support/chart.py"
    if shutil.which("helm"):
        assert list(yaml.safe_load_all(rendered(path))) == list(yaml.safe_load_all(path.read_text("utf-8")))


def test_values_that_the_chart_sets_cannot_be_overridden() -> None:
    """A setting that the chart would overwrite is refused by its schema; a new setting of these kinds needs a line."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    settings = schema["properties"]["settings"]
    parts = {"settings": settings} | {name: settings["properties"][name] for name in ("kafka", "mllp", "mllp_out")}
    given = {where: {name for one in part["not"]["anyOf"] for name in one["required"]} for where, part in parts.items()}
    refused = given["settings"] | given["kafka"]
    assert {name for name in KafkaSettings.model_fields if "ssl_" in name and "file" in name} - refused == {
        "ssl_password_file"
    }
    assert refused >= {"key_file", "http", "directory", "sasl_password", "sasl_password_file", "instance_id"}
    ours = {"tls_certfile", "tls_keyfile", "tls_password"}
    assert given["mllp"] == ours | {"host", "port", "dead_letters", "output", "tls_client_cafile"}
    assert given["mllp_out"] == ours | {"tls_cafile"}
    for where, model in (("mllp", MllpSettings), ("mllp_out", MllpOutSettings)):
        files = {name for name in model.model_fields if name.endswith("file")} - given[where]
        assert given[where] <= set(model.model_fields) and files == {"tls_password_file"}


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
    """The chart rendered with values other than those of the examples."""

    KAFKA = CHART / "example.yaml"
    MLLP = CHART / "example-mllp.yaml"

    def asked(self, folder: Path, values: Path, given: Tree) -> "subprocess.CompletedProcess[str]":
        """The result of Helm for an example in which ``given`` replaces values, by their path."""
        tree = yaml.safe_load(values.read_text("utf-8"))
        for name, value in given.items():
            *parents, last = name.split("/")
            at = tree
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = value
        (folder / "values.yaml").write_text(yaml.safe_dump(tree))
        return template(folder / "values.yaml")

    def made(self, folder: Path, values: Path, given: Tree) -> list[Tree]:
        done = self.asked(folder, values, given)
        assert done.returncode == 0, done.stderr
        return [tree for tree in yaml.safe_load_all(done.stdout) if tree]

    def read(self, trees: list[Tree], folder: Path) -> Settings:
        (held,) = (tree for tree in trees if tree["kind"] == "ConfigMap")
        return loaded(held["data"]["agent.toml"], folder)

    def test_kafka_to_mllp(self, tmp_path: Path) -> None:
        given = {
            "settings/output": "mllp",
            "settings/mllp_out": {"host": "receiver", "port": 2576},
            "settings/kafka/routes": {"hl7.raw": ""},
        }
        trees = self.made(tmp_path, self.KAFKA, given)
        settings = self.read(trees, tmp_path)
        assert (settings.transport, settings.destination) == (TransportKind.KAFKA, TransportKind.MLLP)
        assert settings.mllp is None and settings.mllp_out is not None and not settings.mllp_out.tls
        assert not [tree for tree in trees if tree["metadata"]["name"].endswith("-mllp")], "it does not listen"
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} == {53, 9093, 2576}
        ((_, pod),) = pods(trees)
        assert [env["name"] for env in pod["containers"][0]["env"]] == ["DEID_KAFKA__INSTANCE_ID"]

    def test_mllp_to_kafka(self, tmp_path: Path) -> None:
        given = {
            "settings/transport": "mllp",
            "settings/output": "kafka",
            "settings/mllp": {"refused": "AR"},
            "settings/kafka/routes": {"mllp": "hl7.deid"},
        }
        trees = self.made(tmp_path, self.KAFKA, given)
        settings = self.read(trees, tmp_path)
        assert (settings.transport, settings.destination) == (TransportKind.MLLP, TransportKind.KAFKA)
        assert settings.mllp is not None and settings.mllp.refused == "AR" and settings.mllp.tls_certfile is None
        assert settings.kafka is not None and settings.kafka.routes == {"mllp": "hl7.deid"}
        ((_, pod),) = pods(trees)
        assert "env" not in pod["containers"][0], "no group, so no member of it"
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == ["http"]
        assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} == {53, 9093}

    def test_without_a_named_client_no_ingress_is_allowed(self, tmp_path: Path) -> None:
        trees = self.made(tmp_path, self.MLLP, {"networkPolicy/scrapers": [], "networkPolicy/mllp/from": []})
        (policy,) = (tree for tree in trees if tree["kind"] == "NetworkPolicy")
        assert policy["spec"]["ingress"] == []

    def test_a_monitor_finds_the_service_and_names_the_job_of_the_alerts(self, tmp_path: Path) -> None:
        given = {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}}
        trees = self.made(tmp_path, self.MLLP, given)
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
        given = {
            "secrets/mllpTls/clientCertificates": False,
            "secrets/mllpOutTls/clientCertificate": True,
            "mllp": {"port": 6661, "service": {"type": "LoadBalancer", "annotations": {"a": "b"}}},
            "console/write": True,
        }
        trees = self.made(tmp_path, self.MLLP, given)
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
    def test_values_that_the_agent_refuses_are_refused(
        self, values: Path, name: str, value: object, tmp_path: Path
    ) -> None:
        assert self.asked(tmp_path, values, {}).returncode == 0
        done = self.asked(tmp_path, values, {name: value})
        assert done.returncode != 0 and "values don't meet the specifications of the schema" in done.stderr, done.stdout

    @pytest.mark.parametrize(
        ("source", "target", "routes"),
        [("kafka", "mllp", {"a": "b"}), ("mllp", "kafka", {"a": "b"}), ("mllp", "kafka", {"mllp": "b", "c": "d"})],
    )
    def test_routes_must_match_source_and_target(
        self, source: str, target: str, routes: dict[str, str], tmp_path: Path
    ) -> None:
        given = {"settings/transport": source, "settings/output": target, "settings/kafka/routes": routes}
        given |= {"settings/mllp_out": {"host": "receiver", "port": 2576}}
        done = self.asked(tmp_path, self.KAFKA, given)
        assert done.returncode != 0 and "settings/kafka/routes" in done.stderr

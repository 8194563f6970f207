"""``check`` and ``message`` with a schema registry: the state of each envelope, and outages with exit code 2."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.keys import KEY
from support.protobuf_types import encoded_files
from support.schema_registry import FakeRegistry, Fault, serve_registry

from deid_agent.cli import main

AVRO = {"type": "record", "name": "R", "fields": [{"name": "hl7", "type": "string"}]}
HL7 = b"MSH|^~\\&|A|B|C|D|20240311||ORU^R01|M-1|P|2.5\rPID|1||4471902^^^H^MR||Okafor^Adaeze||19710304|F\r"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key, no models, and the handlers of the root logger that ``check`` adds to."""
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    monkeypatch.setattr("deid_agent.cli.check._recognizers", lambda _: "")
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with serve_registry() as registry:
        yield registry


def check(folder: Path, registry: str, payload: str = "/hl7", *options: str) -> tuple[int, dict[str, str]]:
    """The exit code, and the lines about the registry and the envelope."""
    (folder / "in").mkdir(exist_ok=True)
    at = {name: json.dumps(str(folder / name)) for name in ("in", "out", "dead", "state", "audit")}
    file = folder / "agent.toml"
    file.write_text(
        f'transport = "directory"\n[directory]\ninput = {at["in"]}\noutput = {at["out"]}\ndead_letters = {at["dead"]}\n'
        f"state = {at['state']}\n[audit]\npath = {at['audit']}\n[dead_letters]\nplain = true\n"
        f'[registry]\nurl = "{registry}"\ntimeout_s = 2\n'
        f'[envelopes.files]\npayload = "{payload}"\nschema_registry = true\n'
    )
    done = CliRunner().invoke(main, ["check", "--config", str(file), *options])
    lines = [(line[:5].strip(), line[5:19].strip(), line[19:]) for line in done.stdout.splitlines()]
    return done.exit_code, {name: f"{mark} {rest}" for mark, name, rest in lines if name in {"registry", "envelope"}}


def test_the_newest_schema_has_the_places(tmp_path: Path, served: FakeRegistry) -> None:
    id_ = served.add("files-value", json.dumps(AVRO))
    code, lines = check(tmp_path, served.url)
    assert code == 0
    assert lines["registry"] == f"ok {served.url}: AVRO, JSON, PROTOBUF"
    assert lines["envelope"] == f"ok files: /hl7, text; schema {id_} of files-value, Avro"


def test_a_place_that_the_schema_does_not_have(tmp_path: Path, served: FakeRegistry) -> None:
    served.add("files-value", json.dumps(AVRO))
    code, lines = check(tmp_path, served.url, "/other")
    assert code == 2 and "does not have the places /other" in lines["envelope"]


def test_a_protobuf_schema_and_its_message_types(tmp_path: Path, served: FakeRegistry) -> None:
    event, (common,) = encoded_files()
    served.add("common", common, "PROTOBUF")
    uses: list[dict[str, object]] = [{"name": "common.proto", "subject": "common", "version": 1}]
    served.add("files-value", event, "PROTOBUF", uses)
    assert check(tmp_path, served.url, "/parts/*/data")[0] == 0
    code, lines = check(tmp_path, served.url, "/parts/data")
    assert code == 2 and "Protobuf" not in lines["envelope"]


def test_schemas_that_cannot_be_checked_or_used(tmp_path: Path, served: FakeRegistry) -> None:
    assert check(tmp_path, served.url)[1]["envelope"].endswith("no subject files-value: its schema is not checked")
    served.add("files-value", "{}", "JSON")
    assert check(tmp_path, served.url)[1]["envelope"].endswith("JSON Schema")
    served.add("files-value", "{}")
    code, lines = check(tmp_path, served.url)
    assert code == 2 and lines["envelope"].startswith("FAIL files: schema 2 of files-value: an Avro type")


@pytest.mark.parametrize("fault", [Fault(401), Fault(503), Fault(404, b"<html>")])
def test_a_registry_that_cannot_be_used(tmp_path: Path, served: FakeRegistry, fault: Fault) -> None:
    served.faults.append(fault)
    code, lines = check(tmp_path, served.url)
    assert code == 2 and f"the schema registry answers {fault.status}" in lines["registry"]
    assert lines["envelope"] == "ok files: /hl7, text"
    assert check(tmp_path, "http://127.0.0.1:1", "/hl7", "--offline")[0] == 0


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ('url = "registry:8081"', "write https://host:port"),
        ('url = "https://me:pass@registry"', "credentials have their own settings"),
        ('url = "https://registry"\nusername = "me"', "set username and one of"),
        ('url = "https://registry"\npassword = "secret-1"', "set username and one of"),
        ('url = "http://registry"\nca_file = "ca.pem"', "are for https://"),
        ('url = "https://registry"\nkey_file = "key.pem"', "key_file needs cert_file"),
        ('url = "https://registry"\nca_file = "/missing/ca.pem"', "check ca_file"),
        ('url = "https://registry"\ntimeout_s = 0', "timeout_s"),
    ],
)
def test_wrong_settings_of_the_registry(tmp_path: Path, lines: str, fault: str) -> None:
    file = tmp_path / "envelope.toml"
    file.write_text(f'payload = "/hl7"\nschema_registry = true\n[registry]\n{lines}\n')
    done = CliRunner().invoke(main, ["message", "--demo-key", "--envelope", str(file)], input=b"\0\0\0\0\1")
    assert done.exit_code == 2 and fault in done.stderr
    assert "secret-1" not in done.stderr and "pass@" not in done.stderr


def test_a_record_in_a_file(tmp_path: Path, served: FakeRegistry) -> None:
    id_ = served.add("files-value", json.dumps(AVRO))
    raw = b"\0" + id_.to_bytes(4, "big") + bytes([len(HL7) * 2 & 0x7F | 0x80, len(HL7) * 2 >> 7]) + HL7
    (tmp_path / "record").write_bytes(raw)
    file = tmp_path / "envelope.toml"
    file.write_text(f'payload = "/hl7"\nschema_registry = true\n[registry]\nurl = "{served.url}"\n')
    arguments = ["message", "--demo-key", "--system", "rules", "--envelope", str(file), str(tmp_path / "record")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0 and done.stdout_bytes[:5] == raw[:5] and b"Okafor" not in done.stdout_bytes
    served.faults.append(Fault(503))
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and "record: the schema registry answers 503" in done.stderr

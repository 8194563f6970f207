"""The client of a schema registry: an unknown id is an answer, everything else that fails is an outage."""

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.schema_registry import FakeRegistry, Fault, serve_registry

from deid_agent.model import ConfigurationError, MessageError, Reason, TransientError
from deid_agent.schemas import RecordFormats, RegistryOptions, SchemaRegistry


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with serve_registry() as registry:
        yield registry


def client(served: FakeRegistry, /, *, patience_s: float | None = None, **options: Any) -> SchemaRegistry:
    made = replace(RegistryOptions((served.url,)), **options)
    return SchemaRegistry(made, patience_s, Clock())


def clock(registry: SchemaRegistry) -> Clock:
    assert isinstance(registry.clock, Clock)
    return registry.clock


def test_a_schema_is_asked_for_once(served: FakeRegistry) -> None:
    id_ = served.add("s", '"string"')
    registry = client(served)
    assert [registry.schema(id_).text for _ in range(3)] == ['"string"'] * 3
    assert served.requests == [f"GET /schemas/ids/{id_}"]


def test_the_cache_is_bounded(served: FakeRegistry) -> None:
    ids = [served.add("s", f'"{n}"') for n in range(5)]
    registry = client(served, cache=2)
    for id_ in ids:
        registry.schema(id_)
    for id_ in range(900, 905):
        with pytest.raises(MessageError):
            registry.schema(id_)
    assert len(registry._found) == 2 and len(registry._unknown) <= 2


def test_an_unknown_id_is_the_fault_of_the_record(served: FakeRegistry) -> None:
    registry = client(served)
    for _ in range(3):
        with pytest.raises(MessageError) as refused:
            registry.schema(7)
        assert refused.value.reason is Reason.SCHEMA
    assert len(served.requests) == 1, "it is not asked for again at once"
    served.schemas[7] = {"schema": '"string"', "schemaType": "AVRO", "references": []}
    clock(registry).now += 11
    assert registry.schema(7).text == '"string"', "but later, because replicas are late"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(500), "answers 500"),
        (Fault(503, b'{"error_code": 50301}'), "answers 503"),
        (Fault(429), "answers 429"),
        (Fault(404, b"<html>not here</html>"), "answers 404: check registry.url"),
        (Fault(404, b'{"error_code": 404}'), "answers 404: check registry.url"),
        (Fault(401), "answers 401: check registry.username"),
        (Fault(302), "answers 302: check registry.url"),
        (Fault(422, b'{"error_code": 42201}'), "answers 422"),
        (Fault(200, b"<html>"), "without JSON"),
        (Fault(200, b"[]"), "something else"),
        (Fault(200, b"{}"), "without a schema"),
        (Fault(200, b'{"schema": "x", "references": [{"name": 1}]}'), "names no schema"),
        (Fault(200, b'"' + b"x" * (8 << 20) + b'"'), "more than 8 MiB"),
    ],
)
def test_an_outage_is_transient(served: FakeRegistry, fault: Fault, text: str) -> None:
    id_ = served.add("s", '"string"')
    registry = client(served)
    served.faults.append(fault)
    with pytest.raises(TransientError, match=text):
        registry.schema(id_)
    with pytest.raises(TransientError, match=text):
        registry.schema(id_)
    assert len(served.requests) == 1, "no request in the pause"
    clock(registry).now += 1
    assert registry.schema(id_).text == '"string"'


def test_nobody_listens() -> None:
    registry = SchemaRegistry(RegistryOptions(("http://127.0.0.1:1",)))
    with pytest.raises(TransientError, match=r"cannot be reached \(ConnectionRefusedError\)"):
        registry.schema(1)


def test_a_silent_registry_ends_at_the_timeout(served: FakeRegistry) -> None:
    served.faults.append(Fault(200, b"{}", pause_s=1.0))
    with pytest.raises(TransientError, match="did not answer in time"):
        client(served, timeout_s=0.1).schema(1)


def test_a_worker_does_not_wait_for_a_registry_that_hangs(served: FakeRegistry) -> None:
    id_ = served.add("s", '"string"')
    served.faults.append(Fault(503, pause_s=0.3))
    registry = client(served, patience_s=0.02)
    for _ in range(20):  # each further record costs no wait, for this id or for others
        for each in (id_, 8, 9):
            with pytest.raises(TransientError, match="has not answered yet"):
                registry.schema(each)
    assert len(served.requests) <= 1
    while registry._pending and not all(each.done() for each in registry._pending.values()):
        threading.Event().wait(0.02)
    with pytest.raises(TransientError, match="answers 503"):
        registry.schema(id_)
    clock(registry).now += 60
    registry.patience_s = None
    assert registry.schema(id_).text == '"string"'


def test_a_late_answer_is_kept_for_its_record(served: FakeRegistry) -> None:
    first, second = served.add("s", '"string"'), served.add("s", '"int"')
    served.faults += [Fault(200, b'{"schema": "late"}', pause_s=0.1)] * 2
    registry = client(served, patience_s=0.0)
    for id_ in (first, second):
        with pytest.raises(TransientError, match="has not answered yet"):
            registry.schema(id_)
        while not all(each.done() for each in registry._pending.values()):
            threading.Event().wait(0.02)
    assert [registry.schema(id_).text for id_ in (second, first)] == ["late", "late"]
    assert len(served.requests) == 2


def test_the_second_address_answers_if_the_first_does_not(served: FakeRegistry) -> None:
    id_ = served.add("s", '"string"')
    assert SchemaRegistry(RegistryOptions(("http://127.0.0.1:1", served.url))).schema(id_).text == '"string"'


def test_basic_authentication(served: FakeRegistry) -> None:
    served.user = "deid:p:ssw\u00f6rd"
    id_ = served.add("s", '"string"')
    assert client(served, username="deid", password="p:ssw\u00f6rd").schema(id_).text == '"string"'
    with pytest.raises(TransientError, match="401") as refused:
        client(served, username="deid", password="wrong-one").schema(id_)
    assert "wrong-one" not in str(refused.value)
    assert "wrong-one" not in repr(client(served, username="deid", password="wrong-one"))


def test_tls_with_a_certificate_of_the_client(tmp_path: Path) -> None:
    ours, other = trustme.CA(), trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(server)
    ours.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    mine = ours.issue_cert("client")
    files = {name: tmp_path / name for name in ("ca", "other", "cert", "key")}
    ours.cert_pem.write_to_path(files["ca"])
    other.cert_pem.write_to_path(files["other"])
    mine.cert_chain_pems[0].write_to_path(files["cert"])
    mine.private_key_pem.write_to_path(files["key"])
    with serve_registry(tls=server) as served:
        id_ = served.add("s", '"string"')
        good: dict[str, Any] = {"cert_file": files["cert"], "key_file": files["key"]}
        assert client(served, **good, ca_file=files["ca"]).schema(id_).text == '"string"'
        with pytest.raises(TransientError, match="SSLCertVerificationError"):
            client(served, **good, ca_file=files["other"]).schema(id_)
        with pytest.raises(ConfigurationError, match="check ca_file"):
            client(served, ca_file=tmp_path / "missing")


def test_references_come_before_the_schemas_that_use_them(served: FakeRegistry) -> None:
    served.add("a", "A")
    served.add("b", "B", references=[{"name": "a", "subject": "a", "version": 1}])
    uses = [{"name": "b", "subject": "b", "version": 1}, {"name": "a", "subject": "a", "version": 1}]
    assert client(served).schema(served.add("c", "C", references=uses)).imports == (("a", "A"), ("b", "B"))


def test_the_same_schema_under_the_output_subject(served: FakeRegistry) -> None:
    id_ = served.add("in", '"string"')
    registry = client(served)
    assert registry.register("out/x", id_) == registry.register("out/x", id_) == id_
    assert served.subjects["out/x"] == [id_]
    assert sum(each.startswith("POST") for each in served.requests) == 1
    served.rejected.add("strict")
    with pytest.raises(MessageError) as refused:
        registry.register("strict", id_)
    assert refused.value.reason is Reason.SCHEMA


def test_a_schema_that_cannot_be_used_refuses_its_records(served: FakeRegistry) -> None:
    formats = RecordFormats(client(served))
    for id_ in (served.add("s", "{}"), served.add("x", "x", type_="XML"), served.add("p", "syntax", type_="PROTOBUF")):
        for _ in range(2):
            with pytest.raises(MessageError) as refused:
                formats.open(b"\0" + id_.to_bytes(4, "big") + b"\0")
            assert refused.value.reason is Reason.SCHEMA
    for raw in (b"", b"\0\0\0", b"{}}}}}", b"\1\0\0\0\1x"):
        with pytest.raises(MessageError) as refused:
            formats.open(raw)
        assert refused.value.reason is Reason.MALFORMED

"""Sources of keys: each gives the key once, and one that fails names itself and never its answer."""

import base64
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from deid_agent.config import KeySettings, load_named_key
from deid_agent.config import key_sources as module
from deid_agent.model import ConfigurationError

SECRET = bytes((37 * n * n + 91 * n + 5) % 256 for n in range(32))
ENCODED = base64.b64encode(SECRET).decode()
TOKEN = "hvs.a-token-for-tests"


def source(**given: object) -> KeySettings:
    return KeySettings.model_validate(given)


def private(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)


def fails(settings: KeySettings, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as raised:
        load_named_key("study", settings)
    text = f"{raised.value} {raised.value.__cause__}"
    assert not any(part in text for part in (ENCODED, SECRET.hex(), TOKEN, repr(SECRET)[2:20]))
    assert raised.value.__cause__ is None


def test_a_file(tmp_path: Path) -> None:
    path = private(tmp_path / "k", SECRET)
    assert load_named_key("study", source(source="file", path=path)).secret == SECRET
    Path(path).chmod(0o644)
    fails(source(source="file", path=path), r"keys\.study \(file\) .*: others may read it")
    fails(source(source="file", path=str(tmp_path / "none")), r"keys\.study \(file\) .*cannot be read")
    fails(source(source="file", path=private(tmp_path / "s", SECRET[:20])), r"keys\.study \(file\): 20 bytes")


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUDY_KEY", f" {SECRET.hex()}\n")
    assert load_named_key("study", source(source="env", variable="STUDY_KEY")).secret == SECRET
    monkeypatch.setenv("STUDY_KEY", f"{ENCODED}!")
    fails(source(source="env", variable="STUDY_KEY"), r"keys\.study \(env\): neither hex nor base64")
    monkeypatch.delenv("STUDY_KEY")
    fails(source(source="env", variable="STUDY_KEY"), r"keys\.study \(env\): the variable STUDY_KEY is not set")


def python(code: str) -> KeySettings:
    return source(source="command", command=[sys.executable, "-S", "-c", code])


def test_a_command() -> None:
    assert load_named_key("study", python(f"print({ENCODED!r})")).secret == SECRET
    fails(python(f"import sys; print({ENCODED!r}, file=sys.stderr); sys.exit(3)"), "ended with code 3; run it by hand")
    fails(python(f"print({ENCODED!r}); raise SystemExit(1)"), "ended with code 1")
    fails(python("pass"), "printed no key")
    fails(python(f"print('the key is', {ENCODED!r})"), "neither hex nor base64")
    fails(python("import sys; sys.stdout.buffer.write(b'\\xff' * 32)"), "printed no key")
    fails(python("import sys\nwhile True: sys.stdout.write('a' * 4096)"), "printed more than 65536 bytes")
    fails(source(source="command", command=["/no/such/program"]), "cannot be run")


def test_a_command_gets_no_shell_and_no_input() -> None:
    code = "import sys; sys.exit(0 if sys.argv[1] == '$(true); x' and not sys.stdin.read() else 9)"
    fails(source(source="command", command=[sys.executable, "-S", "-c", code, "$(true); x"]), "printed no key")


def wait_for_end(state: Path) -> None:
    """A process that was killed ends a moment later."""
    with contextlib.suppress(FileNotFoundError):
        while state.read_text().split()[2] not in {"Z", "X"}:
            time.sleep(0.01)


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)"]
)
def test_a_command_that_hangs_is_ended_with_its_children(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMMAND_S", 1.0)
    noted = tmp_path / "pid"
    note = f"open({str(noted)!r}, 'w').write(str(os.getpid())); time.sleep"
    fails(python(f"import os\n{code.replace('time.sleep', note)}"), "took more than 1 s|printed no key")
    if noted.exists():
        wait_for_end(Path(f"/proc/{noted.read_text()}/stat"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"source": "file"}, "source file needs path"),
        ({"source": "file", "path": "x", "variable": "Y"}, "source file has no variable"),
        ({"source": "env", "variable": "DEID_STUDY"}, "names that begin with DEID_"),
        ({"source": "env", "variable": "A B"}, "pattern"),
        ({"source": "command", "command": "vault read"}, "tuple"),
        ({"source": "command", "command": ["vault", "read"]}, "absolute path"),
        ({"source": "vault", "path": "secret/data/x", "address": "https://v"}, "needs token_file"),
        ({"source": "vault", "path": "secret/x", "address": "https://v", "token_file": "t"}, "MOUNT/data/NAME"),
        ({"source": "vault", "path": "secret/data/x", "address": "http://v", "token_file": "t"}, "write https://"),
        ({"source": "vault", "path": "secret/data/x", "address": "https://u@v", "token_file": "t"}, "pattern"),
        ({"source": "aws-kms", "path": "x", "address": "http://kms"}, "write https://"),
        ({"source": "azure"}, "'vault' or 'aws-kms'"),
    ],
)
def test_a_source_has_its_own_settings(given: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        source(**given)


def test_arguments_of_a_command_are_not_shown() -> None:
    assert str(source(source="command", command=["/bin/x", "--token=abc"])) == "command /bin/x"


class FakeVault(ThreadingHTTPServer):
    """Answers of the KV interface of version 2, as Vault 1.14 documents them."""

    answer: tuple[int, object] = (404, {"errors": []})
    asked: list[tuple[str, str]]

    def __init__(self) -> None:
        self.asked = []
        super().__init__(("127.0.0.1", 0), FakeVaultHandler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class FakeVaultHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, FakeVault)
        server.asked.append((self.path, self.headers["X-Vault-Token"]))
        body: object
        status, body = (403, {"errors": ["permission denied"]}) if server.asked[-1][1] != TOKEN else server.answer
        data = json.dumps(body).encode()
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "https://elsewhere.example/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    pytest.importorskip("hvac")
    with FakeVault() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def secret_of(data: object, *, destroyed: bool = False) -> dict[str, object]:
    metadata = {"created_time": "2026-01-01T00:00:00Z", "deletion_time": "", "destroyed": destroyed, "version": 2}
    return {"request_id": "r", "lease_id": "", "data": {"data": data, "metadata": metadata}, "warnings": None}


def test_vault(vault: FakeVault, tmp_path: Path) -> None:
    token = private(tmp_path / "token", f"{TOKEN}\n".encode())
    given = {"source": "vault", "path": "secret/data/deid/study", "address": vault.address, "token_file": token}
    vault.answer = 200, secret_of({"key": ENCODED, "hex": SECRET.hex(), "number": 7})
    assert load_named_key("study", source(**given)).secret == SECRET
    assert load_named_key("study", source(**given, field="hex")).secret == SECRET
    assert vault.asked[0] == ("/v1/secret/data/deid/study", TOKEN)
    fails(source(**given, field="other"), r"keys\.study \(vault\): secret/data/deid/study has no field other")
    fails(source(**given, field="number"), "field number is not text")
    vault.answer = 200, secret_of({"key": f"{ENCODED}\n{ENCODED}"})
    fails(source(**given), "neither hex nor base64")
    vault.answer = 404, secret_of(None, destroyed=True)
    fails(source(**given), "Vault has no secret secret/data/deid/study")
    vault.answer = 404, {"errors": []}
    fails(source(**given), "Vault has no secret secret/data/deid/study")
    vault.answer = 503, {"errors": ["Vault is sealed"]}
    fails(source(**given), r"Vault at http://127\.0\.0\.1:\d+ did not give it \(VaultDown\); check address, seal")
    strange: list[tuple[int, object]] = [
        (200, []),
        (200, {"data": None}),
        (307, {}),
        (200, {"data": {"data": [ENCODED]}}),
    ]
    for answer in strange:
        vault.answer = answer
        fails(source(**given), "did not give it|has no field|has no secret")
    private(tmp_path / "token", b"hvs.another")
    fails(source(**given), "Vault refuses the token; give it a policy that reads secret/data/deid/study")
    (tmp_path / "token").chmod(0o644)
    fails(source(**given), "others may read it")


def test_vault_that_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("hvac")
    token = private(tmp_path / "token", TOKEN.encode())
    given = {"source": "vault", "path": "secret/data/x", "address": "http://127.0.0.1:9", "token_file": token}
    fails(source(**given), "did not give it")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_aws_kms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        client = boto3.client("kms", region_name="eu-central-1", endpoint_url=address)
        key_id = client.create_key()["KeyMetadata"]["KeyId"]
        context = {"deid-agent-key": "study"}
        wrapped = client.encrypt(KeyId=key_id, Plaintext=SECRET, EncryptionContext=context)["CiphertextBlob"]
        path = tmp_path / "wrapped"
        given = {"source": "aws-kms", "path": str(path), "region": "eu-central-1", "address": address}
        for form in (wrapped, base64.b64encode(wrapped) + b"\n"):
            path.write_bytes(form)
            assert load_named_key("study", source(**given)).secret == SECRET
        with pytest.raises(
            ConfigurationError, match=r"keys\.other \(aws-kms\): KMS refuses .*InvalidCiphertext.*=other"
        ):
            load_named_key("other", source(**given))
        path.write_bytes(wrapped[:-1])
        fails(source(**given), "KMS refuses to decrypt")
        path.write_bytes(b"")
        fails(source(**given), "KMS")
        fails(source(**given | {"path": str(tmp_path / "none")}), "cannot be read")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        path.write_bytes(wrapped)
        fails(source(**given), r"KMS did not answer \(NoCredentialsError\)")
    finally:
        server.stop()


class StrangeKms(BaseHTTPRequestHandler):
    answer: tuple[int, bytes]

    def do_POST(self) -> None:
        status, data = self.answer
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_strange_answer_of_kms_ends_in_one_line_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    path, quoted = tmp_path / "wrapped", ENCODED.encode()
    with ThreadingHTTPServer(("127.0.0.1", 0), StrangeKms) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        given = source(source="aws-kms", path=str(path), region="eu-central-1", address=address)
        try:
            path.write_bytes(b"abcde")
            fails(given, "is not whole")
            path.write_bytes(b"\0wrapped")
            # A proxy or a portal in the way answers so.
            answers = (b"", b"{}", quoted, b'["%s"]' % quoted, b"null", b'{"Plaintext":7}', b'{"Plaintext":"a"}')
            for StrangeKms.answer in ((200, body) for body in answers):
                fails(given, r"keys\.study \(aws-kms\): KMS did not answer \(\w+\)")
            for StrangeKms.answer in ((400, b'["%s"]' % quoted), (400, b'{"__type":"%s"}' % quoted), (400, quoted)):
                fails(given, "KMS did not answer|KMS refuses .*unknown error")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("library", "given", "extra"),
    [
        ("hvac", {"source": "vault", "path": "a/data/b", "address": "https://v", "token_file": "t"}, "vault"),
        ("boto3", {"source": "aws-kms", "path": "p"}, "aws"),
    ],
)
def test_a_missing_library_names_its_extra(
    library: str, given: dict[str, object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    fails(source(**given), rf"{library} is not installed; run: pip install 'deid-agent\[{extra}\]'")

"""The sections ``[keys.NAME]``: keys that come from another place than the key file, and the keys of projects.

Each source gives one secret, once, at the start. A source that fails stops the start: its error names the key, the
source and the remedy, never anything that the source returned.
"""

import base64
import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from deid_agent.config.projects import ProjectSettings
from deid_agent.config.secrets import SecretKey, check_key_bytes, decode_key, read_secret_file
from deid_agent.config.service import Section
from deid_agent.model import ConfigurationError

_SALT: Final = b"deid-agent/projects/1"
CONTEXT: Final = "deid-agent-key"
"""The name in the encryption context of AWS KMS; its value is the name of the key."""
_COMMAND_S: Final = 10.0
_NETWORK_S: Final = 10.0
_MOST_BYTES: Final = 64 * 1024


class KeySource(StrEnum):
    """Where a key comes from."""

    FILE = "file"
    ENV = "env"
    COMMAND = "command"
    VAULT = "vault"
    AWS_KMS = "aws-kms"


class KeySettings(Section):
    """One key. Which of the settings are needed depends on the source."""

    source: KeySource = Field(description="file, env, command, vault or aws-kms")
    path: str | None = Field(
        default=None,
        description="file: the key; vault: the secret, as secret/data/NAME; aws-kms: file with the wrapped key",
    )
    variable: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="env: the variable, with the key as hex or base64"
    )
    command: tuple[str, ...] = Field(
        default=(), description="command: program and arguments, without a shell; it prints the key as hex or base64"
    )
    address: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$")] | None = Field(
        default=None, description="vault: its address; aws-kms: an address in place of that of the region"
    )
    token_file: Path | None = Field(default=None, description="vault: file with the token, mode 0600")
    ca_file: Path | None = Field(
        default=None, description="vault: certificate authority (PEM) in place of the system's"
    )
    field: str = Field(default="key", description="vault: field of the secret, with the key as hex or base64")
    region: str | None = Field(default=None, description="aws-kms: region; None is that of the environment")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        given = {name for name in type(self).model_fields if name in self.model_fields_set} - {"source"}
        needed, allowed = _NAMES[self.source]
        if missing := sorted(needed - given):
            raise ValueError(f"source {self.source} needs {missing[0]}")
        if foreign := sorted(given - needed - allowed):
            raise ValueError(f"source {self.source} has no {foreign[0]}")
        if self.variable is not None and self.variable.upper().startswith("DEID_"):
            raise ValueError("variable: names that begin with DEID_ are those of settings; choose another one")
        if self.source is KeySource.COMMAND and not (self.command and self.command[0].startswith("/")):
            raise ValueError("command: write a list whose first item is the absolute path of the program")
        if self.address is not None and not _is_safe(self.address):
            raise ValueError("address: write https://; http:// is for this machine only, because it shows the secret")
        if self.source is KeySource.VAULT and not re.fullmatch(r"[^/\s]+(/[^/\s]+)*?/data(/[^/\s]+)+", self.path or ""):
            raise ValueError("path: write MOUNT/data/NAME, as the KV version 2 interface of Vault has it")
        return self

    def __str__(self) -> str:
        """Without the arguments of a command, which may hold a secret."""
        return f"{self.source} {self.path or self.variable or (self.command or ('',))[0]}"


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or parts.hostname in {"127.0.0.1", "::1", "localhost"}


_NAMES: Final[Mapping[KeySource, tuple[set[str], set[str]]]] = {
    KeySource.FILE: ({"path"}, set()),
    KeySource.ENV: ({"variable"}, set()),
    KeySource.COMMAND: ({"command"}, set()),
    KeySource.VAULT: ({"path", "address", "token_file"}, {"ca_file", "field"}),
    KeySource.AWS_KMS: ({"path"}, {"address", "region"}),
}
"""For each source the settings that it needs, and those that it may have."""


def load_named_key(name: str, source: KeySettings) -> SecretKey:
    """The key ``name`` from its source.

    Raises ``ConfigurationError`` if the source fails, or if a key of these bytes is too short or can be guessed.
    """
    where = f"keys.{name} ({source.source})"
    return check_key_bytes(_LOADERS[source.source](name, source, where), where)


def _load_file(_name: str, source: KeySettings, where: str) -> bytes:
    return read_secret_file(Path(source.path or ""), where)


def _load_variable(_name: str, source: KeySettings, where: str) -> bytes:
    text = os.environ.get(source.variable or "", "").strip()
    if not text:
        raise ConfigurationError(
            f"{where}: the variable {source.variable} is not set; set it to the key as hex or base64"
        )
    return decode_key(text, where)


def _load_from_command(_name: str, source: KeySettings, where: str) -> bytes:
    output = _run(source.command, where)
    try:
        text = output.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise ConfigurationError(f"{where}: the command printed no key; it must print the key as hex or base64")
    return decode_key(text, where)


def _run(command: tuple[str, ...], where: str) -> bytes:
    """The standard output of a command. Its error output is not read, because it may quote a secret."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as problem:
        raise ConfigurationError(
            f"{where}: {command[0]} cannot be run ({type(problem).__name__}); correct it"
        ) from None
    try:
        output, code = _read_output(process, where), process.wait()
    finally:
        # A child of the command may hold the pipe or the secret longer than the command itself.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if code:
        raise ConfigurationError(f"{where}: {command[0]} ended with code {code}; run it by hand to see why")
    return output


def _read_output(process: "subprocess.Popen[bytes]", where: str) -> bytes:
    """The output until its end and the end of the process. Raises ``ConfigurationError`` if it takes too long."""
    found, deadline = bytearray(), time.monotonic() + _COMMAND_S
    pipe = process.stdout
    while pipe is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ConfigurationError(f"{where}: the command took more than {_COMMAND_S:g} s; run it by hand to see why")
        # Asked first: what it wrote before its end is then in the pipe. A child of it may keep the pipe open.
        ended = process.poll() is not None
        if not select.select([pipe], [], [], min(left, 0.1))[0]:
            if ended:
                break
            continue
        if not (data := os.read(pipe.fileno(), 4096)):
            break
        found += data
        if len(found) > _MOST_BYTES:
            raise ConfigurationError(
                f"{where}: the command printed more than {_MOST_BYTES} bytes; it must print the key"
            )
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{where}: the command did not end within {_COMMAND_S:g} s") from None
    return bytes(found)


def _load_from_vault(_name: str, source: KeySettings, where: str) -> bytes:
    try:
        import hvac  # noqa: PLC0415 - an extra
        from requests import RequestException  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(f"{where}: hvac is not installed; run: pip install 'deid-agent[vault]'") from None
    token = read_secret_file(source.token_file or Path(), f"{where} token_file").strip()
    mount, _, path = (source.path or "").partition("/data/")
    try:
        client = hvac.Client(
            url=source.address,
            token=token.decode("ascii"),
            verify=True if source.ca_file is None else str(source.ca_file),
            timeout=_NETWORK_S,
            allow_redirects=False,
        )
        answer = client.secrets.kv.v2.read_secret_version(path, mount_point=mount, raise_on_deleted_version=True)
        value = answer["data"]["data"][source.field]
    except hvac.exceptions.Forbidden:
        raise ConfigurationError(
            f"{where}: Vault refuses the token; give it a policy that reads {source.path}"
        ) from None
    except hvac.exceptions.InvalidPath:
        raise ConfigurationError(f"{where}: Vault has no secret {source.path}; write it, or correct the path") from None
    except KeyError:
        raise ConfigurationError(f"{where}: {source.path} has no field {source.field}; set keys.NAME.field") from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{where} token_file: is not a token; write the token there and nothing else"
        ) from None
    except (hvac.exceptions.VaultError, RequestException, OSError, ValueError, TypeError) as problem:
        raise ConfigurationError(
            f"{where}: Vault at {source.address} did not give it ({type(problem).__name__}); check address, seal and "
            "certificate"
        ) from None
    if not isinstance(value, str):
        raise ConfigurationError(f"{where}: field {source.field} is not text; store the key as hex or base64")
    return decode_key(value.strip(), where)


def _load_from_kms(name: str, source: KeySettings, where: str) -> bytes:
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import ClientError  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(f"{where}: boto3 is not installed; run: pip install 'deid-agent[aws]'") from None
    path = Path(source.path or "")
    try:
        wrapped = path.read_bytes()
    except OSError as problem:
        raise ConfigurationError(f"{where}: {path} cannot be read ({type(problem).__name__})") from None
    if re.fullmatch(rb"[A-Za-z0-9+/\s]+={0,2}\s*", wrapped):  # the form that the command line of AWS prints
        try:
            wrapped = base64.b64decode(wrapped)
        except ValueError:
            raise ConfigurationError(f"{where}: {path} is not whole; write the wrapped key again") from None
    limits = Config(connect_timeout=_NETWORK_S, read_timeout=_NETWORK_S, retries={"total_max_attempts": 2})
    try:
        client = boto3.Session().client("kms", region_name=source.region, endpoint_url=source.address, config=limits)
        answer = client.decrypt(CiphertextBlob=wrapped, EncryptionContext={CONTEXT: name})
        return bytes(answer["Plaintext"])
    except ClientError as problem:
        code = str(problem.response.get("Error", {}).get("Code", ""))
        code = code if re.fullmatch("[A-Za-z]{1,50}Exception", code) else "unknown error"
        raise ConfigurationError(
            f"{where}: KMS refuses to decrypt {path} ({code}); it must be encrypted with the context {CONTEXT}={name}, "
            "and the agent needs kms:Decrypt"
        ) from None
    except Exception as problem:  # noqa: BLE001 - a foreign answer makes any exception there, whose text may quote it
        raise ConfigurationError(
            f"{where}: KMS did not answer ({type(problem).__name__}); check address, region, credentials and network"
        ) from None


_LOADERS: Final[Mapping[KeySource, Callable[[str, KeySettings, str], bytes]]] = {
    KeySource.FILE: _load_file,
    KeySource.ENV: _load_variable,
    KeySource.COMMAND: _load_from_command,
    KeySource.VAULT: _load_from_vault,
    KeySource.AWS_KMS: _load_from_kms,
}


def derive_key(master: SecretKey, domain: str, generation: int) -> SecretKey:
    """The key of a domain and generation: HKDF-SHA256 (RFC 5869) of the master. Nobody can compute one from another."""
    # Imported here: agents without projects and their workers do not need it.
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    info = b"\0".join((b"domain", domain.encode(), str(generation).encode()))
    return SecretKey(HKDF(SHA256(), 32, _SALT, info).derive(master.secret), master.demo)


def load_project_keys(
    projects: Mapping[str, ProjectSettings], keys: Mapping[str, KeySettings], agent_key: SecretKey
) -> Mapping[str, SecretKey]:
    """The key of each project, from ``agent_key`` or one of ``keys``. Each source is asked once.

    Raises ``ConfigurationError`` as ``load_named_key``.
    """
    used = dict.fromkeys(each.key for each in projects.values() if each.key is not None)
    masters = {name: load_named_key(name, keys[name]) for name in used}
    return {
        name: derive_key(agent_key if each.key is None else masters[each.key], each.domain or name, each.generation)
        for name, each in projects.items()
    }

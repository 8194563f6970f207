"""Certificates, users and encrypted listeners of a test broker. Its name is localhost, and no address."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from support.kafka_broker import free_port

USER, PASSWORD = "deid", "hunter2-Okonkwo"
KEY_PASSWORD = "pass-of-the-key-Okonkwo"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_LISTENERS = """\
listener.name.tls.ssl.client.auth=required
listener.name.sasl.ssl.client.auth=none
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
"""


class Certificates:
    """An authority with a broker and a client, and another authority; all as PEM files below ``folder``.

    Two listeners: ``tls`` requires a client certificate, ``sasl`` a user and password.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours, others = trustme.CA(), trustme.CA()
        self.authority = self._write("ca.pem", ours.cert_pem.bytes())
        self.other_authority = self._write("other-ca.pem", others.cert_pem.bytes())
        self._keystore = self._write("broker.pem", _pair(ours.issue_cert("localhost")))
        client = ours.issue_cert("client@example.org")
        self.client = self._write("client.pem", client.cert_chain_pems[0].bytes())
        self.client_key = self._write("client-key.pem", _key(client, KEY_PASSWORD))
        stranger = others.issue_cert("client@example.org")
        self.stranger = self._write("stranger.pem", _pair(stranger))
        self.tls_port, self.sasl_port = free_port(), free_port()

    def settings(self, plain: str) -> str:
        """See ``Security.settings``."""
        added = f",TLS://localhost:{self.tls_port},SASL://localhost:{self.sasl_port}"
        lines = []
        for line in plain.splitlines():
            name = line.partition("=")[0]
            more = {"listeners": added, "advertised.listeners": added}.get(name, "")
            more = ",TLS:SSL,SASL:SASL_SSL" if name == "listener.security.protocol.map" else more
            lines.append(line + more)
        return (
            "\n".join(lines)
            + "\n"
            + _LISTENERS.format(user=USER, password=PASSWORD, keystore=self._keystore, truststore=self.authority)
        )

    def users(self) -> list[str]:
        """See ``Security.users``."""
        return [
            part
            for mechanism in MECHANISMS[1:]
            for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path


def _pair(issued: trustme.LeafCert) -> bytes:
    return _key(issued) + b"".join(blob.bytes() for blob in issued.cert_chain_pems)


def _key(issued: trustme.LeafCert, password: str | None = None) -> bytes:
    """The key as PKCS 8, the only form that Kafka reads."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

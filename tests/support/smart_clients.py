"""Clients of SMART Backend Services: keys and signed tokens, made with ``cryptography`` alone, also wrong ones."""

import base64
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
FORM = "application/x-www-form-urlencoded"
URL = "https://deid.example"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_ids = itertools.count()


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int | None = None) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def public_jwk(key: PrivateKey, kid: str, **members: object) -> dict[str, object]:
    """The public key as a member of a JWKS."""
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {"kty": "RSA", "kid": kid, "n": number(numbers.n), "e": number(numbers.e), **members}
    point, size = key.public_key().public_numbers(), (key.curve.key_size + 7) // 8
    names = {"secp256r1": "P-256", "secp384r1": "P-384"}
    x, y = number(point.x, size), number(point.y, size)
    return {"kty": "EC", "crv": names[key.curve.name], "kid": kid, "x": x, "y": y, **members}


def signature(key: PrivateKey, algorithm: str, data: bytes) -> bytes:
    digest: HashAlgorithm = SHA256() if algorithm.endswith("256") else SHA384()
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), digest)
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest)))
    size = (key.curve.key_size + 7) // 8
    return r.to_bytes(size, "big") + s.to_bytes(size, "big")


def compact(header: object, claims: object, sign: Callable[[bytes], bytes]) -> str:
    """A token of any header and claims."""
    head, body = (encode(json.dumps(part).encode()) for part in (header, claims))
    return f"{head}.{body}.{encode(sign(f'{head}.{body}'.encode()))}"


@dataclass
class SmartClient:
    """One client with its key. Changes to claims and header make wrong assertions; None leaves a member out."""

    name: str = "lab"
    key: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    kid: str = "k1"
    algorithm: str = "ES384"
    url: str = URL

    def jwks(self) -> bytes:
        return json.dumps({"keys": [public_jwk(self.key, self.kid)]}).encode()

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name}.jwks.json"
        path.write_bytes(self.jwks())
        return path

    def claims(self, **changes: object) -> dict[str, object]:
        now = int(time.time())
        found: dict[str, object] = {
            "iss": self.name,
            "sub": self.name,
            "aud": f"{self.url}/token",
            "iat": now,
            "exp": now + 240,
            "jti": f"id-{next(_ids)}",
            **changes,
        }
        return {name: value for name, value in found.items() if value is not None}

    def assertion(self, header: Mapping[str, object] | None = None, **changes: object) -> str:
        return self.sign(self.claims(**changes), header)

    def sign(self, claims: object, header: Mapping[str, object] | None = None) -> str:
        found = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **(header or {})}
        shown = {name: value for name, value in found.items() if value is not None}
        return compact(shown, claims, lambda data: signature(self.key, self.algorithm, data))

    def form(self, assertion: str | None = None, **changes: str | None) -> bytes:
        """The body of a request for a token."""
        found: dict[str, str | None] = {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": self.assertion() if assertion is None else assertion,
            "scope": "deid/default.deidentify",
            **changes,
        }
        return urlencode({name: value for name, value in found.items() if value is not None}).encode()


def unsigned(client: SmartClient) -> str:
    """An assertion without a signature (``none``)."""
    return compact({"alg": "none", "kid": client.kid}, client.claims(), lambda _: b"") + "AA"


def signed_with_public_key(client: SmartClient) -> str:
    """An assertion whose HMAC has the public key as its secret."""
    public: Any = client.key.public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "kid": client.kid}
    return compact(header, client.claims(), lambda data: hmac.new(secret, data, hashlib.sha256).digest())


def tampered(client: SmartClient) -> str:
    """An assertion whose claims were changed after it was signed."""
    head, _, sign = client.assertion().split(".")
    return f"{head}.{encode(json.dumps(client.claims()).encode())}.{sign}"

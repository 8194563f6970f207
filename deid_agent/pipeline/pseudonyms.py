"""The operation ``$pseudonymize``: the surrogates of the project, and on request a digest by the key of the caller.

The digest is that of DARTS: SHA-256 of given name, family name, birth date and key with ``|`` between them, in hex. It
is one more identifier of a Patient. Everybody who has the key can confirm a guess of a person.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from deid_agent.codec import ResourceRange, insert_all, insert_first, list_resources
from deid_agent.model import MessageError, PhiType, Reason
from deid_agent.pipeline.policy import Method, Policy
from deid_agent.pipeline.requests import read_call, wrap_output

SYSTEM: Final = "urn:deid-agent:pseudonym:sha256"
SHORTEST_KEY: Final = 32
"""Bytes of a key. The persons of a shorter one could be found by trying keys and names."""
_ALGORITHM, _KEY, _SHA256 = "algorithm", "key", "SHA256"
_PSEUDONYMS: Final = (
    (PhiType.MEDICALRECORD, "Patient.identifier.value"),
    (PhiType.IDNUM, "Patient.id"),
    (PhiType.PATIENT, "Patient.name.family"),
)
"""Values that join the messages of a person."""
_NO_PSEUDONYMS: Final = "the policy of the project makes no surrogates that are the same in two messages"


@dataclass(frozen=True, slots=True)
class PseudonymInput:
    """The resource of a call. With a ``key`` each Patient of the output gets a digest of its person."""

    resource: bytes = field(repr=False)
    output: str = ""
    """The name of the output parameter; empty if no Parameters were around the resource."""
    key: str = field(default="", repr=False)

    def restore(self, sanitized: bytes) -> bytes:
        """The output of the operation: Parameters for Parameters, a resource for a resource.

        Call it after the resource was parsed, which bounds its depth. Raises ``MessageError``: UNSUPPORTED if a Patient
        lacks the values of a digest, or is not published, MALFORMED if its identifiers are no list.
        """
        if self.key:
            digests, patients = _digest_patients(self.resource, self.key), _patients(sanitized)
            if len(patients) != len(digests):
                raise MessageError(Reason.UNSUPPORTED, "Patient", "the policy of the project removes a Patient")
            sanitized = insert_all(sanitized, (_place(*each) for each in zip(patients, digests, strict=True)))
        return wrap_output(sanitized, self.output)


def read_pseudonymize(payload: bytes, policy: Policy, *, output: str, allows_digests: bool) -> PseudonymInput:
    """The input of ``$pseudonymize``. ``output`` is the name of the output parameter.

    Raises ``MessageError``: MALFORMED for another form, UNSUPPORTED if the policy makes no pseudonyms, for an algorithm
    that the project does not allow, and for a short key.
    """
    if not makes_pseudonyms(policy):
        raise MessageError(Reason.UNSUPPORTED, "policy", _NO_PSEUDONYMS)
    call = read_call(payload, (_KEY, _ALGORITHM))
    if call is None:
        return PseudonymInput(payload)
    given = dict(zip(call.names, call.values, strict=True))
    if len(given) != len(call.names):
        raise MessageError(Reason.MALFORMED, "Parameters.parameter", "a parameter comes twice")
    if not given:
        return PseudonymInput(call.resource, output)
    if given.keys() != {_KEY, _ALGORITHM}:
        raise MessageError(Reason.MALFORMED, "Parameters.parameter", "algorithm and key go together")
    (algorithm_path, algorithm), (key_path, key) = given[_ALGORITHM], given[_KEY]
    if not allows_digests:
        raise MessageError(Reason.UNSUPPORTED, algorithm_path, "the project allows no key of a caller")
    if algorithm != _SHA256:
        raise MessageError(Reason.UNSUPPORTED, algorithm_path, "another algorithm than SHA256")
    if not isinstance(key, str) or len(key.encode("utf-8", "replace")) < SHORTEST_KEY:
        raise MessageError(Reason.UNSUPPORTED, key_path, f"a key of less than {SHORTEST_KEY} bytes")
    return PseudonymInput(call.resource, output, key)


def makes_pseudonyms(policy: Policy) -> bool:
    """True if identifiers and names get surrogates, the same in every message."""
    methods = {policy.method(type_, path) for type_, path in _PSEUDONYMS}
    return methods == {Method.SURROGATE} and not policy.unlinked


def _patients(raw: bytes) -> list[ResourceRange]:
    return [each for each in list_resources(raw) if each.type == "Patient"]


def _digest_patients(raw: bytes, key: str) -> tuple[str, ...]:
    """The digest of each Patient. If one had no name or no birth date, two persons could have the same digest."""
    return tuple(
        digest_person(*_read_person(orjson.loads(raw[slice(*each.span)]), each.path), key) for each in _patients(raw)
    )


def digest_person(given: str, family: str, born: str, key: str) -> str:
    """The pseudonym of DARTS."""
    return hashlib.sha256(f"{given}|{family}|{born}|{key}".encode("utf-8", "surrogatepass")).hexdigest()


def _read_person(patient: Mapping[str, object], path: str) -> tuple[str, str, str]:
    """Given name, family name and birth date: the first of each."""
    names = patient.get("name")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], dict) else {}
    givens = name.get("given")
    given = givens[0] if isinstance(givens, list) and givens else None
    found = {"name[0].given[0]": given, "name[0].family": name.get("family"), "birthDate": patient.get("birthDate")}
    for member, value in found.items():
        if not isinstance(value, str) or not value.strip() or "|" in value:
            raise MessageError(Reason.UNSUPPORTED, f"{path}.{member}", "a digest needs it, without a |")
    given, family, born = map(str, found.values())
    return given, family, born


def _place(patient: ResourceRange, pseudonym: str) -> tuple[int, bytes]:
    """The insertion of an identifier before the others."""
    identifier = orjson.dumps({"system": SYSTEM, "value": pseudonym})
    known = patient.members.get("identifier")
    if known is None:
        return insert_first(patient.span, b'"identifier":[' + identifier + b"]", more=True)
    items = patient.json.items(known)
    if items is None:
        raise MessageError(Reason.MALFORMED, f"{patient.path}.identifier", "no list")
    return insert_first(known, identifier, more=bool(items))

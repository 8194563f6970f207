"""The input of a job: the Parameters that name its files, and the rules of a project about their addresses."""

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import orjson

from deid_agent.http.service_errors import ServiceError
from deid_agent.model import Reason

INBOX: Final = "urn:deid:inbox:"
FORMAT: Final = "fhir+ndjson"
_FILES: Final = "identifiableDataFileUrls"
_MOST_CALL: Final = 1 << 20
_MOST_ADDRESS: Final = 2048
_TYPE: Final = re.compile(r"[A-Z][A-Za-z]{1,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REST: Final = re.compile(r"([!$&-;=@A-Z_a-z~%]+)(?:\?([!$&-;=?@A-Z_a-z~%]*))?")
"""The part of an address below a listed one: a path of the characters of RFC 3986, and perhaps a query."""
_ESCAPED: Final = re.compile(r"%(?:2e|2f|5c|25|[01][0-9a-f]|7f)|%(?![0-9a-f]{2})", re.IGNORECASE)
"""Escapes that servers read as a dot, a slash, a backslash, a control character or an escape; and broken ones."""
_ESCAPED_QUERY: Final = re.compile(r"%(?:[01][0-9a-f]|7f)|%(?![0-9a-f]{2})", re.IGNORECASE)
"""Control characters and broken escapes. Every signed address of AWS, Azure and Google has an escaped slash."""
_GLOBAL: Final = IPv6Network("2000::/3")
_TUNNELS: Final = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
"""Teredo and 6to4: such an address leads to the IPv4 address inside of it."""


@dataclass(frozen=True, slots=True)
class JobInput:
    """One file of a job: the type of its resources, its address, and the path of its parameter."""

    type: str
    address: str = field(repr=False)
    where: str = ""


@dataclass(frozen=True, slots=True)
class InputRules:
    """The jobs of one project. ``policies`` are the names of its policy. ``common_codes``: one key of codes a job."""

    policies: Sequence[str]
    urls: Sequence[str] = ()
    networks: Sequence[IPv4Network | IPv6Network] = ()
    inbox: Path | None = None
    common_codes: bool = False

    def permits(self, address: str) -> bool:
        """True if an address is below a listed one, or a name in the inbox.

        The listed address has scheme, host and port, so a comparison of strings leaves no room for readings of URLs
        that differ from each other.
        """
        if address.startswith(INBOX):
            return self.inbox is not None and _NAME.fullmatch(address.removeprefix(INBOX)) is not None
        listed = next((url for url in self.urls if address.startswith(url)), None)
        if listed is None or len(address) > _MOST_ADDRESS:
            return False
        rest = _REST.fullmatch(address, len(listed))
        if rest is None or _ESCAPED.search(rest[1]) or _ESCAPED_QUERY.search(rest[2] or ""):
            return False
        # Old servers read %c0%ae, a longer form of a dot, as a dot, and newer ones the wide dots of Asian scripts.
        path = unicodedata.normalize("NFKC", unquote(rest[1], errors="replace"))
        if "\ufffd" in path or path.count("/") != rest[1].count("/") or "\\" in path:
            return False
        # Some servers drop the text after a semicolon before they read ".." as the folder above.
        names = {each.partition(";")[0] for each in (*path.split("/"), *rest[1].split("/"))}
        return not {"", ".", ".."} & names

    def permits_host(self, host: str) -> bool:
        """True if a file may come from this address of the network."""
        address = ipaddress.ip_address(host)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        if any(address.version == network.version and address in network for network in self.networks):
            return True
        if isinstance(address, IPv4Address):
            return address.is_global
        return address in _GLOBAL and address.is_global and not any(address in each for each in _TUNNELS)


def read_file_call(payload: bytes, rules: InputRules, most: int) -> tuple[JobInput, ...] | None:
    """The files of a call of ``$de-identify``; None if it names none.

    Raises ``ServiceError``. Only Parameters without a resource of a patient are read here; everything else is for a
    worker, which refuses Parameters with both.
    """
    if len(payload) > _MOST_CALL or f'"{_FILES}"'.encode() not in payload:
        return None
    items = _read_parameters(payload)
    named = [at for at, item in enumerate(items) if isinstance(item, dict) and item.get("name") == _FILES]
    if not named:
        return None
    for at, item in enumerate(items):
        if at != named[0] and _policy_in(item) not in rules.policies:
            raise ServiceError(Reason.UNSUPPORTED.value, _path(at))
    match items[named[0]]:
        case {"resource": {"resourceType": "Parameters", "parameter": [*parts]}, **other} if other.keys() == {"name"}:
            found = _read_files(parts, f"{_path(named[0])}.resource.parameter", rules)
        case {"part": [*parts], **other} if other.keys() == {"name"}:
            found = _read_files(parts, f"{_path(named[0])}.part", rules)
        case _:
            raise ServiceError(Reason.MALFORMED.value, _path(named[0]))
    if not found:
        raise ServiceError(Reason.MALFORMED.value, _path(named[0]))
    if len(found) > most:
        raise ServiceError("JOB_SIZE", _path(named[0]))
    return tuple(found)


def _read_parameters(payload: bytes) -> Sequence[object]:
    """The items of Parameters; none for anything else."""
    try:
        tree = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return ()
    match tree:
        case {"resourceType": "Parameters", "parameter": [*items], **other} if other.keys() <= {"id", "meta"}:
            return items
        case _:
            return ()


def _policy_in(item: object) -> object:
    match item:
        case {"name": "policy", "valueString": value, **other} | {"name": "policy", "valueCode": value, **other}:
            return value if not other else None
        case _:
            return None


def _path(at: int) -> str:
    return f"Parameters.parameter[{at}]"


def _read_files(parts: Sequence[object], path: str, rules: InputRules) -> list[JobInput]:
    found, formats = list[JobInput](), 0
    for at, part in enumerate(parts):
        where = f"{path}[{at}]"
        match part:
            case {"name": "format", "valueCode": str(form), **other} if not other:
                if form != FORMAT:
                    raise ServiceError(Reason.UNSUPPORTED.value, where)
                formats += 1
            case {"name": "data", "part": [*values], **other} if not other:
                found.append(_read_file(values, where, rules))
            case _:
                raise ServiceError(Reason.MALFORMED.value, where)
    if formats != 1:
        raise ServiceError(Reason.MALFORMED.value, path)
    return found


def _read_file(values: Sequence[object], where: str, rules: InputRules) -> JobInput:
    type_ = address = None
    for value in values:
        match value:
            case {"name": "resourceType", "valueCode": str(given), **other} if not other and type_ is None:
                type_ = given
            case {"name": "resourceUrl", "valueUrl": str(given), **other} if not other and address is None:
                address = given
            case _:
                raise ServiceError(Reason.MALFORMED.value, where)
    if type_ is None or address is None or not _TYPE.fullmatch(type_):
        raise ServiceError(Reason.MALFORMED.value, where)
    if not rules.permits(address):
        raise ServiceError("ADDRESS", where)
    return JobInput(type_, address, where)

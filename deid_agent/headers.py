"""Which headers of a record pass: those that the policy lists, and of the known ones only what their grammar allows.

A header's value is free text that nobody de-identifies. ``traceparent``, ``tracestate`` and ``content-type`` have
grammars, and what does not follow them is dropped. Any other header that a policy lists passes as it is.
"""

import re
from collections.abc import Callable, Mapping

from deid_agent import trace

Headers = tuple[tuple[str, bytes], ...]

_MEDIA = """
application/fhir+json application/fhir+ndjson application/fhir+xml application/hl7-sda+xml application/hl7-v2
application/hl7-v2+er7 application/hl7-v2+xml application/json application/json+fhir application/ndjson
application/octet-stream application/x-ndjson application/xml application/xml+fhir text/hl7v2 text/plain text/xml
x-application/hl7-v2+er7 x-application/hl7-v2+xml
"""
_MEDIA_TYPES = frozenset(_MEDIA.split())
"""Media types of what we read. A type is not a value of a patient only where it is one of a list."""
_CHARSET = r"us-ascii|utf-8|utf-16(?:le|be)?|iso-8859-(?:[1-9]|1[0-6])|windows-125[0-8]|shift_jis|iso-2022-jp|gb18030"
_PARAMETER = re.compile(rf'charset="?(?:{_CHARSET})"?|fhirversion="?[0-9]\.[0-9]"?', re.IGNORECASE)

# W3C Trace Context, 3.3: at most 32 members, 512 characters; keys of a narrow alphabet, values of printable ASCII.
_KEY = r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"(?:{_KEY})={_VALUE}")


def kept(headers: Headers, listed: frozenset[str]) -> Headers:
    """The headers of ``listed`` (lower case) that may pass. Of a known one that comes twice none passes."""
    passing = [(name, value) for name, value in headers if name.lower() in listed]
    names = [name.lower() for name, _ in passing]
    return tuple(
        (name, value)
        for name, value in passing
        if (check := _CHECKS.get(name.lower())) is None or (names.count(name.lower()) == 1 and check(value))
    )


def _is_media_type(value: bytes) -> bool:
    kind, *parameters = value.decode("ascii", "replace").split(";")
    fine = all(_PARAMETER.fullmatch(parameter.strip(" \t")) for parameter in parameters)
    return kind.strip(" \t").lower() in _MEDIA_TYPES and len(parameters) <= 2 and fine


def _is_tracestate(value: bytes) -> bool:
    members = [member.strip(" \t") for member in value.decode("ascii", "replace").split(",")]
    named = [member.partition("=")[0] for member in members if member]
    fine = all(_MEMBER.fullmatch(member) for member in members if member)
    return 0 < len(named) <= 32 and len(set(named)) == len(named) and len(value) <= 512 and fine


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    trace.HEADER: lambda value: trace.parse(value) is not None,
    "tracestate": _is_tracestate,
    "content-type": _is_media_type,
}

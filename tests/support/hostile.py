"""Hostile payloads through the whole de-identifier, each in a separate process with measurements and limits.

    python tests/support/hostile.py [NAME...]

One JSON line per case: name, outcome (PUBLISHED, a reason, or the name of an exception), payload and peak memory in
MiB, seconds. In the process nothing may connect to anything (an audit hook raises), and memory is limited.
"""

import base64
import gzip
import json
import os
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

RULES = Path(__file__).resolve().parents[2] / "rules"
SAMPLES = Path(__file__).resolve().parents[2] / "deid_agent" / "samples"
LIMIT = 4 << 30
"""Bytes of address space; past it an allocation fails."""
HANG = 120
"""Seconds after which a case counts as hung: a watchdog, no benchmark."""
_FORBIDDEN = frozenset({"socket.connect", "socket.getaddrinfo", "socket.bind", "urllib.Request", "subprocess.Popen"})
MSH = b"MSH|^~\\&|A|B|C|D|20230501||ORU^R01|1|P|2.5"


@dataclass(frozen=True, slots=True)
class Case:
    """``allowed`` outcomes; ``times`` of its own size that the process may grow by, beside a fixed 64 MiB."""

    build: Callable[[], bytes]
    allowed: frozenset[str]
    times: int = 12


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one case."""

    name: str
    outcome: str
    size: float
    grown: float
    seconds: float
    where: str = ""


def _case(build: Callable[[], bytes], allowed: str, times: int = 12) -> Case:
    return Case(build, frozenset(allowed.split()), times)


def _obx(value: bytes, kind: bytes = b"TX", charset: bytes = b"") -> bytes:
    return MSH + b"|" * 6 + charset + b"\rPID|1||123^^^A^MR||Okafor^Ada\rOBX|1|" + kind + b"|c^d^L||" + value + b"\r"


def _fhir(value: bytes, name: bytes = b"x") -> bytes:
    return b'{"resourceType":"Patient","name":[{"family":"Okafor"}],"' + name + b'":' + value + b"}"


def _document(data: bytes, media: str) -> bytes:
    held = base64.b64encode(data).decode()
    return json.dumps(
        {"resourceType": "DocumentReference", "content": [{"attachment": {"contentType": media, "data": held}}]}
    ).encode()


def _laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE x [<!ENTITY l0 "ha">{entities}]><x>&l11;</x>'.encode()


def _cda(head: bytes, inside: bytes) -> bytes:
    return (
        b'<?xml version="1.0"?>' + head + b'<ClinicalDocument xmlns="urn:hl7-org:v3"><title>' + inside + b"</title>"
        b'<recordTarget><patientRole><id extension="123" root="1.2"/></patientRole></recordTarget></ClinicalDocument>'
    )


def _pdf(stream: bytes, many: int = 1) -> bytes:
    packed = stream
    for _ in range(many):
        packed = zlib.compress(packed, 9)
    filters = b"/FlateDecode " * many
    body = b"<</Length %d/Filter[%s]>>stream\n" % (len(packed), filters) + packed + b"\nendstream"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<<>>>>",
        body,
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj" % number + each + b"endobj\n"
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    at = len(out)
    out += b"xref\n0 5\n0000000000 65535 f \n" + table + b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % at
    return out


def _pictures(count: int, size: int) -> bytes:
    held = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * (size // 256 * 3 // 4))
    each = b'{"resource":{"resourceType":"Binary","contentType":"image/png","data":"' + held + b'"}}'
    return b'{"resourceType":"Bundle","type":"collection","entry":[' + b",".join([each] * count) + b"]}"


MILLION = 1_000_000
CASES: dict[str, Case] = {
    "json: lists 100,000 deep": _case(lambda: _fhir(b"[" * 100_000 + b"]" * 100_000), "MALFORMED RESOURCE"),
    "json: objects 100,000 deep": _case(
        lambda: _fhir(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "MALFORMED RESOURCE"
    ),
    "json: objects 900 deep": _case(lambda: _fhir(b'{"a":' * 900 + b"1" + b"}" * 900), "RESOURCE"),
    "json: never closed": _case(lambda: _fhir(b"[" * MILLION)[:-1], "MALFORMED RESOURCE"),
    "json: three million numbers": _case(lambda: _fhir(b"[" + b"1," * (3 * MILLION) + b"1]"), "RESOURCE", 40),
    "json: overlong UTF-8": _case(lambda: _fhir(b'"\xc0\xaf"'), "MALFORMED"),
    "json: half a surrogate pair": _case(lambda: _fhir(b'"\\ud83d"'), "MALFORMED"),
    "json: encoded surrogate": _case(lambda: _fhir(b'"\xed\xa0\xbd"'), "MALFORMED"),
    "json: escaped NUL": _case(lambda: _fhir(b'"a\\u0000b"'), "PUBLISHED"),
    "json: bare NUL": _case(lambda: _fhir(b'"a\0b"'), "MALFORMED"),
    "json: number of a million digits": _case(lambda: _fhir(b"1" * MILLION), "PUBLISHED MALFORMED"),
    "json: exponent": _case(lambda: _fhir(b"1e999999999"), "PUBLISHED MALFORMED"),
    "json: a key twice": _case(lambda: _fhir(b'1,"x":2'), "MALFORMED"),
    "json: a key of 10 MB": _case(lambda: _fhir(b"1", b"k" * 10_000_000), "PUBLISHED", 40),
    "json: a key of 100 kB of words": _case(lambda: _fhir(b"1", b"Ada " * 25_000), "PUBLISHED", 200),
    "json: base64 of 100 MB": _case(
        lambda: b'{"resourceType":"Binary","contentType":"text/plain","data":"' + b"QUJD" * 25_000_000 + b'"}',
        "RESOURCE UNSUPPORTED",
    ),
    "hl7: base64 of 100 MB": _case(
        lambda: _obx(b"^TEXT^plain^Base64^" + b"QUJD" * 25_000_000, b"ED"), "RESOURCE UNSUPPORTED"
    ),
    "hl7: a segment of a million fields": _case(lambda: MSH + b"\rZZZ" + b"|x" * MILLION, "RESOURCE", 99),
    "hl7: a million empty fields": _case(lambda: MSH + b"\rZZZ" + b"|" * MILLION, "RESOURCE", 99),
    "hl7: a million segments": _case(lambda: MSH + b"\rNTE" * MILLION, "RESOURCE", 30),
    "hl7: a million repetitions": _case(lambda: MSH + b"\rPID|||" + b"1~" * MILLION, "RESOURCE", 99),
    "hl7: a million headers": _case(lambda: (MSH + b"\r") * 200_001, "RESOURCE", 30),
    "hl7: overlong UTF-8": _case(lambda: _obx(b"a\xc0\xafb", charset=b"UNICODE UTF-8"), "PUBLISHED"),
    "hl7: encoded surrogate": _case(lambda: _obx(b"a\xed\xa0\xbdb", charset=b"UNICODE UTF-8"), "PUBLISHED"),
    "hl7: NUL": _case(lambda: _obx(b"a\0b\0"), "PUBLISHED"),
    "hl7: control characters separate": _case(lambda: b"MSH\x01\x02\x03\x04\x05A", "UNSUPPORTED MALFORMED"),
    "hl7: letters separate": _case(lambda: b"MSH|abcd|A\rPID|1", "MALFORMED"),
    "hl7: one separator for all": _case(lambda: b"MSH|||||\rPID|1||123||Okafor^Ada", "PUBLISHED MALFORMED"),
    "hl7: headers that disagree": _case(
        lambda: b"".join(b"MSH|" + bytes([a, b]) + b"|\r" for a in b"^~&!" for b in b"*+,.") + b"PID|1",
        "PUBLISHED RESOURCE",
    ),
    # Each sign is a token that the model reads: planning.MAX_TEXT bounds the cost.
    "hl7: 200,000 backslashes": _case(lambda: _obx(b"\\" * 200_000), "PUBLISHED", 950),
    "hl7: an escape that never ends": _case(lambda: _obx(b"\\X" + b"41" * 100_000), "PUBLISHED", 250),
    "hl7: one escape of 200,000 characters": _case(lambda: _obx(b"\\X" + b"41" * 200_000 + b"\\"), "PUBLISHED", 250),
    "hl7: 40,000 escapes": _case(lambda: _obx(b"\\X41\\\\T\\" * 20_000), "PUBLISHED", 250),
    "hl7: charset switched 50,000 times": _case(
        lambda: _obx(b"\x1b$B;3\x1b(BX" * 50_000, charset=b"~ISO IR87"), "PUBLISHED UNSUPPORTED", 999
    ),
    "hl7: a shift that never ends": _case(
        lambda: _obx(b"\x1b$B;3" * 100_000, charset=b"~ISO IR87"), "PUBLISHED UNSUPPORTED", 999
    ),
    "hl7: an OBX of 10 MB, one token": _case(lambda: _obx(b"x-" * 5_000_000), "RESOURCE", 40),
    "hl7: a token of 1 MB": _case(lambda: _obx(b"Z" * MILLION), "PUBLISHED", 250),
    "hl7: a number of 1 MB": _case(lambda: _obx(b"7" * MILLION), "PUBLISHED", 250),
    "hl7: 50 kB of prose": _case(
        lambda: _obx(b"Seen by Dr. Okafor on 02/24/2024, MRN 123. " * 1_150), "PUBLISHED", 400
    ),
    "gzip bomb": _case(lambda: _document(gzip.compress(bytes(50_000_000)), "application/gzip"), "PUBLISHED", 999),
    "gzip bomb called text": _case(lambda: _document(gzip.compress(bytes(50_000_000)), "text/plain"), "PUBLISHED", 999),
    "pdf bomb": _case(
        lambda: _document(_pdf(bytes(100_000_000)), "application/pdf"), "PUBLISHED RESOURCE UNSUPPORTED", 9999
    ),
    "pdf bomb in a bomb": _case(
        lambda: _document(_pdf(bytes(100_000_000), 3), "application/pdf"),
        "PUBLISHED RESOURCE UNSUPPORTED MALFORMED",
        9999,
    ),
    "xml: a billion laughs": _case(
        lambda: _document(_laughs(), "text/xml"), "PUBLISHED RESOURCE UNSUPPORTED MALFORMED", 999
    ),
    "xml: a billion laughs in a C-CDA": _case(
        lambda: _document(_cda(_laughs()[: _laughs().index(b"<x>")], b"&l11;"), "text/xml"),
        "PUBLISHED RESOURCE UNSUPPORTED MALFORMED",
        999,
    ),
    "xml: an external entity": _case(
        lambda: _document(_cda(b'<!DOCTYPE x [<!ENTITY e SYSTEM "http://192.0.2.1/x">]>', b"&e;"), "text/xml"),
        "UNSUPPORTED MALFORMED RESOURCE",
        999,
    ),
    "xml: an external DTD": _case(
        lambda: _document(_cda(b'<!DOCTYPE x SYSTEM "http://192.0.2.1/x.dtd">', b"x"), "text/xml"),
        "PUBLISHED UNSUPPORTED MALFORMED",
        999,
    ),
    "xml: 100,000 deep": _case(
        lambda: _document(_cda(b"", b"<a>" * 100_000 + b"</a>" * 100_000), "text/xml"),
        "PUBLISHED RESOURCE MALFORMED",
        999,
    ),
    "html: never closed": _case(
        lambda: _document(b"<div><p a='" * 50_000, "text/html"), "PUBLISHED RESOURCE MALFORMED", 999
    ),
    "rtf: 100,000 deep": _case(
        lambda: _document(b"{\\rtf1 " + b"{" * 100_000 + b"}" * 100_000 + b"}", "application/rtf"),
        "PUBLISHED RESOURCE MALFORMED",
        999,
    ),
    "60 MB of pictures": _case(lambda: _pictures(4, 15_000_000), "PUBLISHED", 10),
    "60 MB of results": _case(
        lambda: (
            (MSH + b"\r" + b"OBX|1|NM|2093-3^Cholesterol^LN||180|mg/dL^milligram^UCUM|<200|H|||F|||20240224\r" * 9_000)
            * 80
        ),
        "RESOURCE PUBLISHED",
        10,
    ),
}


def deidentifier() -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES)).deidentifier()


def _forbid(event: str, _: object) -> None:
    if event in _FORBIDDEN:
        raise AssertionError(f"{event} while a message is processed")


def _peak(*, anew: bool = False) -> float:
    """Peak memory since the start, or since the last call with ``anew``, if the system reports it."""
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5", "ascii")
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux


def _run(name: str, case: Case, loaded: Deidentifier, out: int) -> None:
    payload = case.build()
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    signal.alarm(HANG)  # its default action ends the process: a hang has the outcome 14
    sys.addaudithook(_forbid)
    before, start, where = _peak(anew=True), time.perf_counter(), ""
    try:
        loaded.message(payload)
        outcome = "PUBLISHED"
    except MessageError as problem:
        outcome, where = problem.reason.value, str(problem)
    except BaseException as problem:  # noqa: BLE001 - any exception is a finding
        outcome, where = type(problem).__name__, traceback.format_exc(limit=-3)
    seconds = time.perf_counter() - start
    found = {"name": name, "outcome": outcome, "size": len(payload) / 2**20, "grown": _peak() - before}
    os.write(out, json.dumps({**found, "seconds": seconds, "where": where}).encode())


def run(names: Iterable[str]) -> Iterable[Found]:
    """Each case in a fork of this process, which has everything loaded."""
    loaded = deidentifier()
    for sample in sorted(SAMPLES.glob("0[1-5]*")):  # tables that the first text or name of a process builds
        loaded.message(sample.read_bytes())
    for name in names:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _run(name, CASES[name], loaded, writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        yield Found(**json.loads(text)) if text else Found(name, f"ended with {status}", 0, 0, 0)


if __name__ == "__main__":
    for found in run(sys.argv[1:] or CASES):
        line = {field: getattr(found, field) for field in Found.__dataclass_fields__}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

"""Documents made for tests, and a de-identifier over the shipped rules."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import compile_policy, load_policy

RULES = Path(__file__).resolve().parents[2] / "rules"
NOTE = "Seen by Dr. Uchenna Bellweather.\nPatient: Zebulon Okafor, MRN: 00471882. Phone 740-555-0183.\n"
NAMES = ("Okafor", "Zebulon", "Bellweather", "00471882", "555-0183")
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


@lru_cache(maxsize=8)
def deidentifier(unreadable: str = "remove", pdf: str = "text", url: str = "redact") -> Deidentifier:
    """The shipped pipeline under a policy with these lines about attachments."""
    compiled = compile_policy(
        {
            "name": "test",
            "default": "surrogate",
            "attachments": {"unreadable": unreadable, "pdf": pdf, "url": url},
        },
        "test",
    )
    return WorkerFactory(rules=RULES, key=SecretKey(b"k" * 32, demo=True), policy=compiled).deidentifier()


@lru_cache(maxsize=1)
def keeper() -> Deidentifier:
    """The pipeline under the policy ``keep``."""
    return WorkerFactory(
        rules=RULES, key=SecretKey(b"k" * 32, demo=True), policy=load_policy("keep", RULES)
    ).deidentifier()


def rtf(text: str) -> bytes:
    """A small RTF with a header, properties, a picture and ``text``."""
    body = text.replace("\n", "\\par\n").encode("ascii")
    return (
        b"{\\rtf1\\ansi\\ansicpg1252\\deff0{\\fonttbl{\\f0\\fnil\\fcharset0 Arial;}}"
        b"{\\info{\\author Uchenna Bellweather}{\\title Okafor}}"
        b"{\\header Patient: Zebulon Okafor\\par}{\\pict\\pngblip 89504e47}\\pard " + body + b"}\x00"
    )


def pdf(
    pages: Sequence[bytes],
    *,
    font: bytes = FONT,
    trailer: bytes = b"",
    extra: Sequence[bytes] = (),
    packed: bool = False,
) -> bytes:
    """A handwritten PDF: one content stream per page (ISO 32000-1, 7.5)."""
    count = len(pages)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        font,
    ]
    for index, content in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>" % (5 + 2 * index)
        )
        data = zlib.compress(content, 9) if packed else content
        coded = b" /Filter /FlateDecode" if packed else b""
        objects.append(b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(data), coded, data))
    objects += extra
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def pdf_text(text: str) -> bytes:
    """The content stream of a page that shows ``text``, line by line."""
    lines = [line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)") for line in text.splitlines()]
    shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
    return f"BT /F1 12 Tf 72 720 Td {shown} ET".encode("cp1252")


def reference(data: bytes, content_type: str | None, **more: object) -> bytes:
    """A DocumentReference that holds ``data``, its size and its hash."""
    attachment: dict[str, object] = {
        "data": base64.b64encode(data).decode(),
        "size": len(data),
        "hash": base64.b64encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode(),
        "title": "Visit note",
    }
    if content_type is not None:
        attachment["contentType"] = content_type
    return json.dumps(
        {
            "resourceType": "DocumentReference",
            "status": "current",
            "subject": {"reference": "Patient/p1"},
            "content": [{"attachment": attachment}],
            **more,
        }
    ).encode()


def attachment_of(payload: bytes) -> Mapping[str, object]:
    """The first attachment of a DocumentReference."""
    found: Mapping[str, object] = json.loads(payload)["content"][0]["attachment"]
    return found


def data_of(payload: bytes) -> bytes:
    """Its data, after a check of size and hash."""
    found = attachment_of(payload)
    data = base64.b64decode(str(found["data"]), validate=True)
    assert found["size"] == len(data)
    assert found["hash"] == base64.b64encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()
    return data


def oru(*segments: str) -> bytes:
    """An ORU message with these segments after its PID."""
    head = (
        "MSH|^~\\&|LAB|GEN|||203101020304||ORU^R01|77|P|2.5.1\rPID|1||00471882^^^GEN^MR||Okafor^Zebulon||19570422|M\r"
    )
    return (head + "".join(f"{segment}\r" for segment in segments)).encode()

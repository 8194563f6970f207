"""Attachments from end to end: the result of each kind inside FHIR and HL7."""

import base64
import gzip
import re

import pytest
from support.attachments import (
    NAMES,
    NOTE,
    attachment_of,
    data_of,
    deidentifier,
    keeper,
    oru,
    pdf,
    pdf_text,
    reference,
    rtf,
)

from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline.attachments import NOTICE, decode_text

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
READABLE = {
    "text/plain": NOTE.encode(),
    "text/rtf": rtf(NOTE),
    "application/json": reference(NOTE.encode(), "text/plain"),
    "x-application/hl7-v2+er7": oru(f"OBX|1|TX|1||{NOTE.splitlines()[0]}"),
}
UNREADABLE = [
    ("image/png", PNG),
    ("text/plain", PNG),
    ("text/plain", base64.b64encode(PNG * 30)),
    ("text/plain", gzip.compress(NOTE.encode(), mtime=0)),
    ("application/gzip", gzip.compress(NOTE.encode(), mtime=0)),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\x03\x04" + b"\0" * 30),
    ("application/dicom", b"\0" * 128 + b"DICM"),
    ("application/pdf", pdf([b"0 0 10 10 re f"])),
    ("application/x-unknown", NOTE.encode()),
    ("text/plain; charset=utf-7", b"Dr. +AE8-kafor"),
    ("text/plain", b"begin 644 note.txt\n#3V9F\n`\nend\n"),
    ("text/plain", NOTE.encode().hex().encode() * 4),
    ("text/plain", b"%!PS-Adobe-3.0\n(Oka) show (for) show\n"),
    ("text/plain", b"MIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\nT2thZm9y\n"),
    (None, b"\xff\xfe\x00\x01\x02"),
]


def leaks(data: bytes) -> list[str]:
    text = data.decode("latin-1")
    return [name for name in NAMES if name in text]


def ed(data: bytes, main: str, sub: str, width: int = 0) -> str:
    coded = base64.b64encode(data).decode()
    lines = [coded[i : i + width] for i in range(0, len(coded), width)] if width else [coded]
    return f"^{main}^{sub}^Base64^" + "\\.br\\".join(lines)


def document(payload: bytes) -> tuple[str, bytes]:
    """Label and data of the ED of the last OBX."""
    fields = payload.decode().rstrip("\r").split("\r")[-1].split("|")[5].split("^")
    return "/".join(fields[1:3]), base64.b64decode(fields[4].replace("\\.br\\", ""), validate=True)


@pytest.mark.parametrize("content_type", READABLE)
def test_readable_formats_are_edited_inside_fhir(content_type: str) -> None:
    raw = reference(READABLE[content_type], content_type)
    done = deidentifier().message(raw)
    data = data_of(done.payload)
    assert data != READABLE[content_type]
    assert not leaks(data)
    assert attachment_of(done.payload)["contentType"] == content_type
    assert attachment_of(done.payload)["title"] == "Visit note"
    assert any(r.path.startswith("DocumentReference.content[0].attachment.data") for r in done.remarks)


@pytest.mark.parametrize("content_type", READABLE)
def test_readable_formats_are_edited_inside_hl7(content_type: str) -> None:
    main, _, sub = content_type.partition("/")
    done = deidentifier().message(oru(f"OBX|1|ED|1||{ed(READABLE[content_type], main, sub)}"))
    label, data = document(done.payload)
    assert (label, leaks(data)) == (content_type, [])
    assert data != READABLE[content_type]


def test_rtf_keeps_its_form() -> None:
    done = deidentifier().message(reference(rtf(NOTE), "application/rtf"))
    data = data_of(done.payload)
    assert data.startswith(
        b"{\\rtf1\\ansi\\ansicpg1252\\deff0{\\fonttbl{\\f0\\fnil\\fcharset0 Arial;}}{\\header Patient: "
    )
    assert data.endswith(b"\\par\n}\x00")
    assert b"pict" not in data
    assert b"info" not in data
    paths = {remark.path for remark in done.remarks}
    inside = "DocumentReference.content[0].attachment.data/"
    assert {inside + "header", inside + "body", inside + "info", inside + "pict"} <= paths


def test_a_pdf_is_replaced_by_its_text() -> None:
    raw = pdf([pdf_text(NOTE), pdf_text("MRN: 00471882 is well.")], packed=True)
    done = deidentifier().message(reference(raw, "application/pdf"))
    data = data_of(done.payload)
    assert attachment_of(done.payload)["contentType"] == "text/plain"
    assert b"is well." in data
    assert b"Patient: " in data
    assert not leaks(data)
    done = deidentifier().message(oru(f"OBX|1|ED|1||{ed(raw, 'AP', 'PDF')}"))
    assert document(done.payload) == ("text/plain", document(done.payload)[1])
    assert not leaks(document(done.payload)[1])


def test_policy_removes_or_refuses_a_pdf() -> None:
    raw = reference(pdf([pdf_text(NOTE)]), "application/pdf")
    assert data_of(deidentifier(pdf="remove", unreadable="refuse").message(raw).payload) == NOTICE
    with pytest.raises(MessageError, match=re.escape("UNSUPPORTED: DocumentReference.content[0].attachment.data")):
        deidentifier(pdf="refuse").message(raw)
    twice = reference(raw, "application/fhir+json")
    with pytest.raises(MessageError, match=re.escape("data/DocumentReference.content[0].attachment.data: PDF")):
        deidentifier(pdf="refuse").message(twice)


@pytest.mark.parametrize(("content_type", "data"), UNREADABLE)
def test_an_unreadable_attachment_is_removed_or_refused(content_type: str | None, data: bytes) -> None:
    raw = reference(data, content_type)
    done = deidentifier().message(raw)
    assert data_of(done.payload) == NOTICE
    assert attachment_of(done.payload).get("contentType") == (content_type and "text/plain")
    assert ("ATTACHMENT", "redact") in {(r.type, r.method) for r in done.remarks}
    with pytest.raises(MessageError) as refused:
        deidentifier(unreadable="refuse").message(raw)
    assert refused.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("content_type", ["image/png", "application/pdf", "application/rtf", "audio/wav"])
def test_text_under_a_false_label_is_text(content_type: str) -> None:
    done = deidentifier().message(reference(NOTE.encode(), content_type))
    data = data_of(done.payload)
    assert b"Patient: " in data
    assert not leaks(data)


def test_a_pdf_under_a_false_label_is_a_pdf() -> None:
    done = deidentifier().message(reference(pdf([pdf_text(NOTE)]), "text/plain"))
    assert data_of(done.payload).startswith(b"Seen by Dr. ")
    assert not leaks(data_of(done.payload))


def test_structured_attachments_share_the_surrogates_of_the_message() -> None:
    """One patient has one surrogate and one date shift, outside and inside."""
    inner = oru("OBX|1|TX|1||Zebulon Okafor seen on 2031-01-02.").replace(b"|77|", b"|78|")
    done = deidentifier().message(oru(f"OBX|1|ED|1||{ed(inner, 'TX', 'plain')}"))
    _, data = document(done.payload)
    outer_pid, inner_pid = (p.split(b"\r")[1].split(b"|") for p in (done.payload, data))
    assert outer_pid[3:8] == inner_pid[3:8]
    assert "OBX-5[1].5/PID-5[1].1" in {remark.path for remark in done.remarks}


def test_nesting_is_bounded() -> None:
    raw = reference(NOTE.encode(), "text/plain")
    for _ in range(5):
        raw = reference(raw, "application/fhir+json")
    with pytest.raises(MessageError) as refused:
        deidentifier().message(raw)
    assert refused.value.reason is Reason.RESOURCE
    assert refused.value.where.count("/") == 4


@pytest.mark.parametrize("policy_words", [{}, {"unreadable": "refuse"}])
def test_broken_documents_are_unreadable(policy_words: dict[str, str]) -> None:
    raw = reference(b'{"resourceType": "Patient", "name": [{"family": "Okafor"}', "application/json")
    if policy_words:
        with pytest.raises(MessageError, match=r"MALFORMED: DocumentReference.content.0..attachment.data/byte"):
            deidentifier(**policy_words).message(raw)
    else:
        assert data_of(deidentifier().message(raw).payload) == NOTICE


@pytest.mark.parametrize(
    ("charset", "bom"),
    [
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("iso-8859-1", b""),
        ("windows-1252", b""),
    ],
)
def test_a_text_keeps_its_charset(charset: str, bom: bytes) -> None:
    text = "Fieber: 39 °C, Größe 1 µm. Patient: Zebulon Okafor. Dose 40 µg/kg"
    label = "text/plain" if bom else f"text/plain; charset={charset}"
    data = data_of(deidentifier().message(reference(bom + text.encode(charset), label)).payload)
    assert data.startswith(bom)
    back = data[len(bom) :].decode(charset)
    assert back.startswith("Fieber: 39 °C, Größe 1 µm. Patient: ")
    assert back.endswith(". Dose 40 µg/kg")
    assert "Okafor" not in back


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_of_base64_stay_as_long_as_they_were(newline: str) -> None:
    coded = base64.encodebytes(NOTE.encode() * 3).decode().replace("\n", newline)
    raw = reference(b"", "text/plain").replace(
        b'"data": ""', b'"data": "%s"' % coded.replace("\r", "\\r").replace("\n", "\\n").encode()
    )
    found = str(attachment_of(deidentifier().message(raw).payload)["data"])
    lines = found.split(newline)
    assert {len(line) for line in lines[:-2]} == {76}
    assert lines[-1] == ""
    assert not leaks(base64.b64decode(found))
    done = deidentifier().message(oru(f"OBX|1|ED|1||{ed(NOTE.encode() * 3, 'TX', 'plain', 76)}"))
    parts = done.payload.decode().split("^")[-1].split("\\.br\\")
    assert {len(part) for part in parts[:-1]} == {76}


@pytest.mark.parametrize("padding", [True, False])
def test_urlsafe_base64_is_read(padding: bool) -> None:
    text = (NOTE + "???>>>~~~ÿÿÿ").encode()
    coded = base64.urlsafe_b64encode(text).decode()
    assert "_" in coded or "-" in coded
    coded = coded if padding else coded.rstrip("=")
    raw = reference(b"", "text/plain").replace(b'"data": ""', b'"data": "%s"' % coded.encode())
    found = str(attachment_of(deidentifier().message(raw).payload)["data"])
    assert "+" not in found
    assert "/" not in found
    assert not leaks(base64.urlsafe_b64decode(found + "=" * (-len(found) % 4)))


def test_invalid_base64_is_refused() -> None:
    raw = reference(b"", "text/plain").replace(b'"data": ""', b'"data": "QUJD*Okafor"')
    with pytest.raises(MessageError) as refused:
        deidentifier().message(raw)
    assert refused.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("kind", ["TX", "ST", "ED", "FT"])
@pytest.mark.parametrize(
    "document_", [NOTE.encode() * 4, rtf(NOTE * 3), pdf([pdf_text(NOTE)])], ids=["text", "rtf", "pdf"]
)
def test_a_document_over_many_obx_is_one(kind: str, document_: bytes) -> None:
    coded = base64.b64encode(document_).decode()
    lines = [coded[i : i + 50] for i in range(0, len(coded), 50)]
    form = "OBX|{}|{}|11488-4||{}||||||F"
    values = [f"^AP^PDF^Base64^{line}" if kind == "ED" else line for line in lines]
    raw = oru(*(form.format(n, kind, value) for n, value in enumerate(values, start=1)))
    done = deidentifier().message(raw).payload
    segments = [segment.split("|") for segment in done.decode().split("\r")[2:-1]]
    assert [len(segment) for segment in segments] == [12] * len(lines)
    pieces = [segment[5].split("^") for segment in segments]
    data = base64.b64decode("".join(piece[-1] for piece in pieces), validate=True)
    assert not leaks(data)
    assert b"Patient: " in data
    if kind == "ED":
        expected = ["text", "plain"] if document_[:4] == b"%PDF" else ["AP", "PDF"]
        assert all(piece[1:3] == expected for piece in pieces)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_base64_with_line_breaks_in_the_segment_is_one(end: str) -> None:
    coded = base64.encodebytes(NOTE.encode() * 4).decode().rstrip("\n").replace("\n", end)
    done = deidentifier().message(oru(f"OBX|1|ED|1||^TX^plain^Base64^{coded}||||||F")).payload
    value, _, rest = done.decode().partition("Base64^")[2].partition("|")
    assert rest == "|||||F\r"
    assert value.count(end) == coded.count(end)
    data = base64.b64decode(value.replace(end, ""), validate=True)
    assert not leaks(data)
    assert data.count(b"Patient: ") == 4


def test_two_documents_of_one_observation_remain_two() -> None:
    first, second = NOTE.encode() * 3, b"Second note of Zebulon Okafor, who is well and home again."
    done = deidentifier().message(
        oru(f"OBX|1|ED|1|1|{ed(first, 'TX', 'plain')}", f"OBX|2|ED|1|2|{ed(second, 'TX', 'plain')}")
    )
    assert document(done.payload)[1].startswith(b"Second note of ")
    assert document(done.payload)[1].endswith(b" who is well and home again.")


def test_three_documents_of_different_lengths_remain_three() -> None:
    notes = [b"Patient: Zebulon Okafor, MRN: 00471882 " + b"is well. " * n for n in (9, 6, 3)]
    done = deidentifier().message(
        oru(*(f"OBX|{n}|ED|1|{n}|{ed(note, 'TX', 'plain')}" for n, note in enumerate(notes, start=1)))
    )
    values = [segment.split("^")[-1] for segment in done.payload.decode().split("\r")[2:-1]]
    found = [base64.b64decode(value, validate=True) for value in values]
    assert [data.count(b"is well.") for data in found] == [9, 6, 3]
    assert all(data.startswith(b"Patient: ") and not leaks(data) for data in found)


def test_characters_outside_the_charset_become_similar_ones() -> None:
    decoded = decode_text("Größe".encode("latin-1"), "text/plain; charset=iso-8859-1")
    assert decoded is not None
    assert decoded.encode("Größe – Łódź") == "Größe - Lódz".encode("latin-1")


def test_prose_gene_sequences_and_dashed_lines_are_kept() -> None:
    lines = ["ACGTTGCA" * 9, "_" * 300, "-" * 300, "NEGATIVE", "Sequence ends."]
    raw = oru(*(f"OBX|{n}|TX|1||{line}" for n, line in enumerate(lines, start=1)))
    done = deidentifier().message(raw).payload
    assert done.split(b"\r")[2:] == raw.split(b"\r")[2:]


def test_an_address_elsewhere_is_redacted_or_kept_and_a_reference_is_an_id() -> None:
    raw = (
        b'{"resourceType":"DocumentReference","content":[{"attachment":{"url":"https://dav.example/okafor/1.pdf"}},'
        b'{"attachment":{"url":"Binary/okafor-7"}}]}'
    )
    redacted = deidentifier().message(raw).payload
    assert b'"http://redacted.invalid/"' in redacted
    kept = deidentifier(url="keep").message(raw).payload
    assert b'"https://dav.example/okafor/1.pdf"' in kept
    for done in (redacted, kept):
        assert re.search(rb'"Binary/[A-Za-z0-9.-]+"', done)
        assert b"okafor-7" not in done


@pytest.mark.parametrize(
    ("content_type", "data"), [*READABLE.items(), *UNREADABLE, ("application/pdf", pdf([pdf_text(NOTE)]))]
)
def test_keep_changes_nothing(content_type: str | None, data: bytes) -> None:
    raw = reference(data, content_type)
    assert keeper().message(raw).payload == raw


@pytest.mark.parametrize("size", [51_000_000])
def test_long_base64_is_refused_before_it_is_decoded(size: int) -> None:
    coded = b"QUJD" * (size // 3)
    raw = b'{"resourceType":"DocumentReference","content":[{"attachment":{"data":"%s"}}]}' % coded
    for payload in (raw, oru("OBX|1|ED|1||^AP^PDF^Base64^").rstrip(b"\r") + coded + b"\r"):
        with pytest.raises(MessageError) as refused:
            deidentifier().message(payload)
        assert refused.value.reason is Reason.RESOURCE

"""Documents without a message: each result is that of the same document as an attachment."""

import base64
import json

import pytest
from support.attachments import NAMES, NOTE, RULES, data_of, deidentifier, keeper, oru, pdf, pdf_text, reference, rtf
from support.keys import KEY

from deid_agent.agent.job import Job, Processed, Refused
from deid_agent.app import WorkerFactory
from deid_agent.config import SecretKey
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline import facts_from_context, load_policy
from deid_agent.pipeline.policy import compile_policy

PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Okafor</title></head><body>\n"
    f"<p class='a'>{NOTE}</p><b>K 4.10</b></body></html>\n"
)
TABLE = "Patient name,MRN,Result\nZebulon Okafor,00471882,4.10\nAnn Lee,00471883,5.20\n"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
READABLE = {
    "html": ("text/html", PAGE.encode(), "text/html"),
    "fragment": ("text/html", b"<!-- a --> " + NOTE.encode(), "text/html"),
    "rtf": ("application/rtf", rtf(NOTE), "application/rtf"),
    "rtf-text": ("text/rtf", rtf(NOTE), "text/rtf"),
    "pdf": ("application/pdf", pdf([pdf_text(NOTE), pdf_text("K 4.10")], packed=True), "text/plain; charset=utf-8"),
    "text": ("text/plain", NOTE.encode(), "text/plain; charset=utf-8"),
    "latin": ("text/plain", f"{NOTE}M\xfcller\n".encode("latin-1"), "text/plain"),
    "utf-16": ("text/plain", b"\xff\xfe" + NOTE.encode("utf-16-le"), "text/plain"),
    "table": ("text/plain", TABLE.encode(), "text/plain"),
    # The content decides, not the label.
    "pdf-as-html": ("text/html", pdf([pdf_text(NOTE)]), "text/plain; charset=utf-8"),
    "html-as-text": ("text/plain", PAGE.encode(), "text/html"),
    "html-as-pdf": ("application/pdf", PAGE.encode(), "text/html"),
    "text-as-rtf": ("application/rtf", NOTE.encode(), "text/plain; charset=utf-8"),
    "message": ("text/plain", oru(f"OBX|1|TX|1||{NOTE.splitlines()[0]}"), "text/plain"),
}
UNREADABLE = [
    ("application/pdf", pdf([b"0 0 10 10 re f"])),
    ("application/pdf", b"%PDF-1.7\n garbage"),
    ("application/pdf", PNG),
    ("text/plain", PNG),
    ("text/plain", b"PK\x03\x04" + b"\0" * 30),
    ("text/html", b"\x1f\x8b\x08\x00"),
    ("text/plain", b"begin 644 note.txt\n#3V9F\n`\nend\n"),
    ("application/x-unknown", NOTE.encode()),
]


def text_of(data: bytes) -> str:
    return data.replace(b"\0", b"").decode("latin-1")


@pytest.mark.parametrize("kind", READABLE)
def test_a_document_is_sanitized_as_the_same_attachment(kind: str) -> None:
    label, data, media = READABLE[kind]
    done = deidentifier().document(data, label, document="DocumentReference/d1", patient="p1")
    attached = deidentifier().message(reference(data, label, id="d1"))
    assert (done.payload, done.media) == (data_of(attached.payload), media)
    assert not [name for name in NAMES if name in text_of(done.payload)]
    assert text_of(done.payload) != text_of(data)


def test_bytes_outside_of_phi_stay() -> None:
    page = "<!DOCTYPE html>\r\n<P  class=x >Seen by Dr. {}.<BR/>K&nbsp;4.10 &lt; 5,\t<!-- c -->ok</p>"
    done = deidentifier().document(page.format("Uchenna Bellweather").encode(), "text/html")
    before, after = page.split("{}")
    assert done.payload.startswith(before.encode())
    assert done.payload.endswith(after.encode())


@pytest.mark.parametrize("tag", ["section", "article", "strong", "td", "x-note", "!-- a --"])
def test_a_fragment_under_the_label_of_html_is_read_as_html(tag: str) -> None:
    """As plain text, the half of a name before a tag or a character reference would be found, and the rest left."""
    known = facts_from_context({"name": {"family": "M\u00fcllwell", "given": "Wrenna"}, "mrn": "QX771930"})
    page = f"<{tag}>Seen by Dr. Uchenna Bell<b>weather</b>.</{tag}> M&uuml;llwell, M&#252;ll<wbr>well, QX77<i>1930</i>"
    for media in ("text/html", "text/html; charset=UTF-8"):
        done = deidentifier().document(page.encode(), media, facts=known)
        assert not [part for part in (b"weather", b"uuml", b"well", b"1930", b"252") if part in done.payload]
        assert (done.media, done.payload.startswith(f"<{tag}>Seen by Dr. ".encode())) == ("text/html", True)
        assert f"</{tag}>".encode() in done.payload


@pytest.mark.parametrize(
    ("media", "data"),
    [
        ("text/plain", "Seen by Dr. Uchenna Bellweather".encode("cp037")),
        (
            "text/plain",
            "\u041f\u0430\u0446\u0438\u0435\u043d\u0442 \u0418\u0432\u0430\u043d\u043e\u0432".encode("koi8-r"),
        ),
        (
            "text/html",
            "<p>\u041f\u0430\u0446\u0438\u0435\u043d\u0442 \u0418\u0432\u0430\u043d\u043e\u0432</p>".encode("cp1251"),
        ),
    ],
)
def test_a_text_with_unknown_letters_is_refused(media: str, data: bytes) -> None:
    with pytest.raises(MessageError) as refused:
        deidentifier().document(data, media)
    assert refused.value.reason is Reason.UNSUPPORTED
    western = b"\xe9t\xe9, ne\xe9, M\xfcller, Gr\xf6\xdfe 4.10"
    assert b"4.10" in deidentifier().document(western, media).payload
    declared = b"<meta charset=windows-1251>" + data
    assert media != "text/html" or declared.startswith(deidentifier().document(declared, media).payload[:27])


@pytest.mark.parametrize("label", ["text/html", "text/plain"])
def test_a_section_of_cda_is_read_as_cda(label: str) -> None:
    section = "<section><title>Note</title><text>Seen by Dr. Uchenna Bell<content>weather</content>.</text></section>"
    assert deidentifier().document(section.encode(), label).media == "text/plain"


@pytest.mark.parametrize(
    "attribute",
    [
        "id=Bellweather",
        "id='row-bellweather'",
        "for=patientBellweather",
        "class='x Uchenna-Bellweather'",
        "style='content:\"Uchenna Bellweather\"'",
        "id=mrn00471882",
        "class='p00471882'",
        "headers='d 0047-1882'",
    ],
)
def test_a_page_with_a_found_name_or_number_in_a_kept_attribute_is_refused(attribute: str) -> None:
    text = "Seen by Dr. Uchenna Bellweather. MRN: 00471882."
    for page in (f"<div {attribute}>Well.</div><p>{text}</p>", f"<td>{text}</td><td {attribute}>Well.</td>"):
        with pytest.raises(MessageError, match=r"^LEAK: document/\w+/@"):
            deidentifier().document(page.encode(), "text/html")


def test_other_attributes_stay() -> None:
    page = (
        "<div id='notes' class='brown page' style='color:brown;width:100px' headers='h1'>Seen by Dr. {}. MRN: {}.</div>"
    )
    done = deidentifier().document(page.format("Alan Brown", "00471882").encode(), "text/html").payload.decode()
    assert done.startswith(page[: page.index("{}")]) and "Brown." not in done
    # A color has the form of a number, and another attribute of the same color is read as text.
    colors = b"<table bordercolor='#471882' shade='MRN #471882'><td>Well.</table>"
    assert b"bordercolor='#471882'" in deidentifier().document(colors, "text/html").payload


def test_stated_facts_are_found_and_searched_for() -> None:
    known = facts_from_context({"name": {"family": "Quixwell", "given": "Wrenna"}, "mrn": "QX771930"})
    note = "quixwell slept. File qx-771930."
    assert b"quixwell" in deidentifier().document(note.encode()).payload
    done = deidentifier().document(note.encode(), facts=known)
    assert b"quixwell" not in done.payload
    assert b"771930" not in done.payload
    assert done.payload.decode() == deidentifier().text(note, facts=known).text
    # No recognizer reads the class of an element; the leak guard does.
    page = b"<!DOCTYPE html><p class='QX771930'>Well.</p>"
    assert deidentifier().document(page, "text/html").payload == page
    with pytest.raises(MessageError, match=r"^LEAK: document/p/@class"):
        deidentifier().document(page, "text/html", facts=known)


def test_the_patient_of_a_bundle_has_the_same_names_in_a_document() -> None:
    """A document that comes with the identities that a message gives has the surrogates of that message."""
    note = "Mrs. Quixwell (MRN QX771930) slept. Wrenna Quixwell, seen 3/4/2019 by Dr. Uchenna Bellweather."
    patient = {
        "resourceType": "Patient",
        "id": "p1",
        "identifier": [{"type": {"coding": [{"code": "MR"}]}, "value": "QX771930"}],
        "name": [{"family": "Quixwell", "given": ["Wrenna"]}],
    }
    entries = [{"resource": patient}, {"resource": json.loads(reference(note.encode(), "text/plain"))}]
    bundle = {"resourceType": "Bundle", "id": "b1", "type": "collection", "entry": entries}
    done = json.loads(deidentifier().message(json.dumps(bundle).encode()).payload)["entry"][1]["resource"]
    known = facts_from_context({"name": {"family": "Quixwell", "given": "Wrenna"}, "mrn": "QX771930"})
    alone = deidentifier().document(note.encode(), facts=known, document="Bundle/b1")
    assert alone.payload == data_of(json.dumps(done).encode())


@pytest.mark.parametrize(("label", "data"), UNREADABLE)
@pytest.mark.parametrize("unreadable", ["remove", "refuse"])
def test_a_document_that_cannot_be_read_is_refused(label: str, data: bytes, unreadable: str) -> None:
    """In a message the policy may put a notice in its place; alone, the notice would be taken for the document."""
    with pytest.raises(MessageError) as refused:
        deidentifier(unreadable=unreadable).document(data, label)
    assert (refused.value.reason, refused.value.where) == (Reason.UNSUPPORTED, "document")


@pytest.mark.parametrize("unreadable", ["remove", "refuse"])
def test_the_fault_of_a_broken_document_is_named(unreadable: str) -> None:
    with pytest.raises(MessageError, match=r"MALFORMED: document/byte"):
        deidentifier(unreadable=unreadable).document(b'{"resourceType": "Patient", "name": [{"family": "Okafor"}')


@pytest.mark.parametrize("treatment", ["remove", "refuse"])
def test_the_policy_decides_about_pdfs(treatment: str) -> None:
    with pytest.raises(MessageError) as refused:
        deidentifier(pdf=treatment).document(pdf([pdf_text(NOTE)]), "application/pdf")
    assert (refused.value.reason, refused.value.where) == (Reason.REJECTED, "document")
    page = b"<!DOCTYPE html><p>%PDF-1.7 is a header, as Dr. Uchenna Bellweather said.</p>"
    assert b"%PDF-1.7" in deidentifier(pdf=treatment).document(page, "text/html").payload


def test_a_policy_of_listed_paths_publishes_no_document() -> None:
    policy = compile_policy({"name": "t", "default": "surrogate", "publish": {"paths": ["Patient.gender"]}}, "t")
    factory = WorkerFactory(rules=RULES, key=SecretKey(KEY), policy=policy, system="none")
    with pytest.raises(MessageError) as refused:
        factory.deidentifier().document(b"Well.", "text/plain")
    assert (refused.value.reason, refused.value.where) == (Reason.REJECTED, "document")


@pytest.mark.parametrize(("label", "data"), [*((label, data) for label, data, _ in READABLE.values()), *UNREADABLE])
def test_keep_changes_nothing(label: str, data: bytes) -> None:
    done = keeper().document(data, label)
    assert (done.payload, done.media, done.remarks) == (data, label, ())


def test_an_image_inside_a_page_is_removed() -> None:
    image = f"data:image/png;base64,{base64.b64encode(PNG + bytes(40)).decode()}"
    page = f'<html><body><img src="{image}">Well.</body></html>'.encode()
    done = deidentifier().document(page, "text/html")
    assert b"iVBOR" not in done.payload
    with pytest.raises(MessageError, match=r"UNSUPPORTED: document/"):
        deidentifier(unreadable="refuse").document(page, "text/html")


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_an_empty_document_stays_empty(data: bytes) -> None:
    assert deidentifier().document(data, "text/plain").payload == data


def test_a_document_is_bytes() -> None:
    with pytest.raises(TypeError, match="a document is bytes, not str"):
        deidentifier().document(NOTE)  # type: ignore[arg-type]


def test_a_job_runs_a_document() -> None:
    factory = WorkerFactory(
        rules=RULES,
        key=SecretKey(KEY),
        policy=load_policy("pseudonymised", RULES),
        system="rules",
        max_bytes=4096,
        validate=True,
        unexamined=True,
    )
    process = factory()
    done = process(Job(PAGE.encode(), task="document text/html"))
    assert isinstance(done, Processed)
    assert done.headers == (("content-type", b"text/html"),)
    assert done.payload == factory.deidentifier().document(PAGE.encode(), "text/html").payload
    assert {remark["path"] for remark in json.loads(done.remarks)} == {"document/text"}
    found = process(Job(pdf([pdf_text(NOTE)]), task="document application/pdf"))
    assert isinstance(found, Processed)
    assert found.headers == (("content-type", b"text/plain; charset=utf-8"),)
    refused = process(Job(PNG, task="document application/pdf"))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.where) == (Reason.UNSUPPORTED, "document")
    large = process(Job(b"x" * 5000, task="document text/plain"))
    assert isinstance(large, Refused)
    assert large.reason is Reason.RESOURCE

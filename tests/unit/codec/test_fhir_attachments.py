"""Attachments: their data, and the sibling values that change with them."""

import base64

import pytest
from support.fhir import parsed

from deid_agent.codec.fhir.codec import FhirMessage
from deid_agent.model.sites import Attachment


def inside(message: FhirMessage, span: tuple[int, int] | None) -> bytes | None:
    return None if span is None else message.raw[slice(*span)]


def siblings(message: FhirMessage, attachment: Attachment) -> list[bytes | None]:
    return [inside(message, span) for span in (attachment.media, attachment.size, attachment.digest)]


def test_an_attachment_with_all_its_siblings() -> None:
    message = parsed(
        '{"resourceType":"DocumentReference","content":[{"attachment":{"size":3,"data":"QWRh","hash":"aGFzaA==",'
        '"contentType":"text/plain; charset=utf-8"}}]}'
    )

    (attachment,) = message.attachments
    assert attachment.path == "DocumentReference.content[0].attachment.data"
    assert (attachment.data, attachment.encoding) == (b"Ada", "base64")
    assert attachment.content_type == "text/plain; charset=utf-8"
    assert inside(message, (attachment.start, attachment.end)) == b"QWRh"
    assert siblings(message, attachment) == [b"text/plain; charset=utf-8", b"3", b"aGFzaA=="]


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ('{"resourceType":"Binary","contentType":"text/plain","data":"QWRh"}', "Binary.data"),
        ('{"resourceType":"Binary","contentType":"text/plain","content":"QWRh"}', "Binary.content"),
        ('{"resourceType":"Patient","photo":[{"contentType":"text/plain","data":"QWRh"}]}', "Patient.photo[0].data"),
        (
            '{"resourceType":"DiagnosticReport","presentedForm":[{"contentType":"text/plain","data":"QW\\n Rh"}]}',
            "DiagnosticReport.presentedForm[0].data",
        ),
        (
            '{"resourceType":"Patient","extension":[{"url":"x","valueAttachment":{"contentType":"text/plain","data":"QWRh"}}]}',
            "Patient.extension[0].valueAttachment.data",
        ),
        (
            '{"resourceType":"OrderResponse","file":{"contentType":"text/plain","data":"QWRh"}}',
            "OrderResponse.file.data",
        ),
    ],
)
def test_attachments_in_all_elements(resource: str, path: str) -> None:
    message = parsed(resource)

    (attachment,) = message.attachments
    assert (attachment.path, attachment.data, attachment.content_type) == (path, b"Ada", "text/plain")
    assert siblings(message, attachment) == [b"text/plain", None, None]


def test_base64_without_a_type_is_an_attachment_of_unknown_type() -> None:
    message = parsed('{"resourceType":"Patient","extension":[{"url":"x","valueBase64Binary":"QWRh"}]}')

    (attachment,) = message.attachments
    assert (attachment.path, attachment.content_type) == ("Patient.extension[0].valueBase64Binary", "")


def test_siblings_belong_to_one_attachment_only() -> None:
    message = parsed(
        '{"resourceType":"Patient","photo":[{"size":1,"contentType":"image/png"},{"data":"QWRh"},{"size":7}]}'
    )

    (attachment,) = message.attachments
    assert attachment.path == "Patient.photo[1].data"
    assert siblings(message, attachment) == [None, None, None]


def test_a_signature_is_redacted_and_stays_base64() -> None:
    message = parsed('{"resourceType":"Provenance","signature":[{"sigFormat":"image/png","data":"QWRh"}]}')

    (site,) = message.sites
    assert (site.path, site.type, site.blank) == ("Provenance.signature[0].data", "BIOID", "AA==")
    assert base64.b64decode(site.blank, validate=True)


def test_data_with_escaped_slashes() -> None:
    message = parsed('{"resourceType":"Binary","data":"\\/\\/8="}')

    (attachment,) = message.attachments
    assert attachment.data == b"\xff\xff"
    assert inside(message, (attachment.start, attachment.end)) == b"\\/\\/8="

"""Messages that cost much for their size, by format: each case builds one of about so many bytes."""

import base64
import json
import zlib
from collections.abc import Callable, Iterable

Build = Callable[[int], bytes]
MSH = b"MSH|^~\\&|A|B|C|D|20230501||ORU^R01|1|P|2.5\r"
PID = b"PID|1||123^^^A^MR||Okafor^Ada||19620417\r"
PROSE = (
    "Seen by Dr. Okafor on 02/24/2024. Mrs. Ada reports chest pain radiating to the left arm since Tuesday; "
    "BP 140/90, HR 88, troponin 0.02. Plan: continue metoprolol 25 mg BID, follow up at Mercy Clinic. "
)
_WORDS = ("chest", "pain", "left", "arm", "nausea", "denies", "fever", "plan", "continue", "clinic", "stable", "exam")


def fill(piece: str, size: int) -> str:
    """The piece repeated up to about ``size`` characters; ``{n}`` is the number of the repetition."""
    if "{n}" not in piece:
        return piece * max(1, size // len(piece))
    count = max(1, size // len(piece))
    return "".join(piece.replace("{n}", str(number)) for number in range(count))


def word(number: int) -> str:
    """An invented word of its own for each number."""
    letters = "bcdfghjklmnprstvwz"
    out = ""
    number += 7
    while number:
        number, digit = divmod(number, len(letters))
        out += letters[digit] + "aeiou"[digit % 5]
    return out.capitalize()


def obx(value: str, kind: str = "TX") -> bytes:
    return MSH + PID + f"OBX|1|{kind}|c^d^L||{value}\r".encode()


def attached(data: bytes, media: str) -> bytes:
    """A FHIR document with one attachment."""
    held = base64.b64encode(data).decode()
    return json.dumps(
        {"resourceType": "DocumentReference", "content": [{"attachment": {"contentType": media, "data": held}}]}
    ).encode()


def html(body: str) -> bytes:
    """An HTML page in an ED value of HL7."""
    held = base64.b64encode(f"<html><body>{body}</body></html>".encode()).decode()
    return MSH + PID + f"OBX|1|ED|c^d^L||^TEXT^HTML^Base64^{held}\r".encode()


def rtf(body: str) -> bytes:
    return attached(b"{\\rtf1\\ansi " + body.encode() + b"}", "application/rtf")


def cda(body: str, head: str = "") -> bytes:
    return (
        '<?xml version="1.0"?><ClinicalDocument xmlns="urn:hl7-org:v3"><title>Note</title>'
        '<recordTarget><patientRole><id extension="123" root="1.2"/><patient><name><given>Ada</given>'
        f"<family>Okafor</family></name></patient></patientRole></recordTarget>{head}<component><structuredBody>"
        f"<component><section><text>{body}</text></section></component></structuredBody></component></ClinicalDocument>"
    ).encode()


def fhir(inside: str) -> bytes:
    return f'{{"resourceType":"Patient","name":[{{"family":"Okafor","given":["Ada"]}}],{inside}}}'.encode()


def bundle(entries: Iterable[str]) -> bytes:
    inside = ",".join(f'{{"resource":{entry}}}' for entry in entries)
    return f'{{"resourceType":"Bundle","type":"collection","entry":[{inside}]}}'.encode()


def many_names(segment: str, size: int) -> bytes:
    """Half the message names people, and half is a note that repeats some of them."""
    count = size // 2 // (len(segment) + 14)
    people = "".join(segment.format(n=n, family=word(n), given=word(n * 31 + 5)) for n in range(count))
    note = " ".join(f"{word(n * 17 % max(1, count))} {_WORDS[n % len(_WORDS)]}" for n in range(size // 2 // 14))
    return MSH + PID + people.encode() + f"OBX|1|TX|c^d^L||{note}\r".encode()


def nested_documents(size: int) -> bytes:
    """Messages in base64 in messages, four deep."""
    data = obx(fill(PROSE, size // 4))
    for _ in range(4):
        data = attached(data, "text/plain")
    return data


def pdf(text: str, pages: int = 1) -> bytes:
    """A PDF with this text on each page."""
    stream = zlib.compress(f"BT /F1 9 Tf ({text}) Tj ET".encode())
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[" + b" ".join(b"%d 0 R" % (5 + n) for n in range(pages)) + b"]/Count %d>>" % pages,
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n" % len(stream) + stream + b"\nendstream",
        *[
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F1 3 0 R>>>>>>"
            for _ in range(pages)
        ],
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj" % number + each + b"endobj\n"
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    at = len(out)
    return (
        out
        + b"xref\n0 %d\n0000000000 65535 f \n" % size
        + table
        + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, at)
    )


def _joined(size: int, piece: Callable[[int], str], between: str = "") -> str:
    out, length, number = [], 0, 0
    while length < size:
        out.append(piece(number))
        length += len(out[-1]) + len(between)
        number += 1
    return between.join(out)


RESULT = "OBX|{n}|NM|2093-3^Cholesterol^LN||180|mg/dL^milligram^UCUM|<200|H|||F|||20240224\r"
OBSERVATION = (
    '{"resourceType":"Observation","status":"final","code":{"text":"note"},"subject":{"display":"Ada Okafor"},'
    '"effectiveDateTime":"2024-02-24","valueString":"stable, seen by Dr. Okafor"}'
)

CASES: dict[str, Build] = {
    # plain and HL7 v2
    "hl7: prose": lambda s: obx(fill(PROSE, s)),
    "hl7: prose in short OBX": lambda s: MSH + PID + _joined(s, lambda n: f"OBX|{n}|TX|c^d^L||{PROSE[:90]}\r").encode(),
    "hl7: results": lambda s: MSH + PID + fill(RESULT, s).encode(),
    "hl7: one long word": lambda s: obx("Z" * s),
    "hl7: one long word of parts": lambda s: obx("Ab-" * (s // 3)),
    "hl7: one long number": lambda s: obx("7" * s),
    "hl7: digits and dots": lambda s: obx("7." * (s // 2)),
    "hl7: digits and hyphens": lambda s: obx("555-" * (s // 4)),
    "hl7: identical names": lambda s: obx("Okafor " * (s // 7)),
    "hl7: identical titles": lambda s: obx("Dr. " * (s // 4)),
    "hl7: identical dates": lambda s: obx("02/24/2024 " * (s // 11)),
    "hl7: distinct dates": lambda s: obx(_joined(s, lambda n: f"{n % 12 + 1}/{n % 28 + 1}/{1900 + n % 120} ")),
    "hl7: distinct invented names": lambda s: obx(_joined(s, lambda n: f"Dr. {word(n)} {word(n * 7)}, ")),
    "hl7: distinct numbers": lambda s: obx(_joined(s, lambda n: f"MRN {1000003 * (n + 3) % 99999989} ")),
    "hl7: capitals": lambda s: obx(_joined(s, lambda n: word(n).upper(), " ")),
    "hl7: initials": lambda s: obx("A.B. " * (s // 5)),
    "hl7: apostrophes": lambda s: obx("O'" * (s // 2)),
    "hl7: at signs": lambda s: obx("a@" * (s // 2)),
    "hl7: dots": lambda s: obx("." * s),
    "hl7: blanks": lambda s: obx("x" + " " * s + "x"),
    "hl7: slashes": lambda s: obx("1/" * (s // 2)),
    "hl7: colons": lambda s: obx("a:" * (s // 2)),
    "hl7: brackets": lambda s: obx("[" * (s // 2) + "]" * (s // 2)),
    "hl7: addresses": lambda s: obx("12 Elm St, " * (s // 11)),
    "hl7: web addresses": lambda s: obx("http://a.b/c?d=e " * (s // 17)),
    "hl7: one web address": lambda s: obx("http://a.b/" + "c/" * (s // 2)),
    "hl7: line breaks": lambda s: obx("a\\.br\\" * (s // 6)),
    "hl7: escapes": lambda s: obx("\\X41\\\\T\\" * (s // 9)),
    "hl7: combining marks": lambda s: obx("e\u0301" * (s // 3)),
    "hl7: names in NK1": lambda s: many_names("NK1|{n}|{family}^{given}\r", s),
    "hl7: names in ROL": lambda s: many_names("ROL|{n}|AD|AT|{n}^{family}^{given}\r", s),
    "hl7: names in one PID-5": lambda s: (
        MSH
        + b"PID|1||123||"
        + _joined(s // 2, lambda n: f"{word(n)}^{word(n * 3)}", "~").encode()
        + f"\rOBX|1|TX|c||{_joined(s // 2, lambda n: word(n * 5 % 9_000) + ' seen today', ' ')}\r".encode()
    ),
    "hl7: identifiers in PID-3": lambda s: (
        MSH
        + b"PID|1||"
        + _joined(s // 2, lambda n: f"{1000003 * (n + 3) % 99999989}^^^A^MR", "~").encode()
        + b"||Okafor^Ada\r"
        + f"OBX|1|TX|c||{_joined(s // 2, lambda n: f'number {1000003 * (n * 3 + 3) % 99999989}', ' ')}\r".encode()
    ),
    "hl7: names in notes of one word": lambda s: (
        MSH
        + PID
        + _joined(s // 2, lambda n: f"NK1|{n}|{word(n)}^{word(n * 3)}\r").encode()
        + _joined(s // 2, lambda n: f"NTE|{n}||{word(n * 3)}\r").encode()
    ),
    "hl7: repetitions": lambda s: MSH + PID + b"ZZZ|" + b"Ada Okafor~" * (s // 11),
    "hl7: components": lambda s: MSH + PID + b"ZZZ|" + b"Ada^" * (s // 4),
    "hl7: subcomponents": lambda s: MSH + PID + b"ZZZ|" + b"a&" * (s // 2),
    "hl7: Z-segments": lambda s: MSH + PID + _joined(s, lambda n: f"ZX{n % 10}|{word(n)} {word(n * 3)}\r").encode(),
    "hl7: attachments": lambda s: (
        MSH
        + PID
        + _joined(
            s, lambda n: f"OBX|{n}|ED|c||^TEXT^plain^Base64^{base64.b64encode(PROSE[:60].encode()).decode()}\r"
        ).encode()
    ),
    "hl7: many messages": lambda s: (MSH + PID + b"OBX|1|TX|c||Seen by Dr. Okafor\r") * (s // 115),
    # FHIR and JSON
    "fhir: observations": lambda s: bundle([OBSERVATION] * (s // len(OBSERVATION))),
    "fhir: names": lambda s: fhir(
        '"contact":[' + _joined(s, lambda n: f'{{"name":{{"family":"{word(n)}"}}}}', ",") + "]"
    ),
    "fhir: names and note": lambda s: fhir(
        '"contact":['
        + _joined(s // 2, lambda n: f'{{"name":{{"family":"{word(n)}"}}}}', ",")
        + f'],"extension":[{{"url":"x","valueString":"{_joined(s // 2, lambda n: word(n * 3) + " seen", " ")}"}}]'
    ),
    "fhir: extensions": lambda s: fhir(
        '"extension":[' + _joined(s, lambda n: f'{{"url":"http://x/{n}","valueString":"Ada Okafor {n}"}}', ",") + "]"
    ),
    "fhir: unknown members": lambda s: fhir(_joined(s, lambda n: f'"k{n}":"Ada {n}"', ",")),
    "fhir: numbers": lambda s: fhir('"x":[' + "1," * (s // 2) + "1]"),
    "fhir: escapes": lambda s: fhir('"x":"' + "\\u0041\\n" * (s // 8) + '"'),
    "fhir: div with attributes": lambda s: fhir(
        '"text":{"status":"generated","div":"<div xmlns=\'http://www.w3.org/1999/xhtml\'>'
        + _joined(s, lambda n: f"<p title='Ada {n}'>x</p>")
        + '</div>"}'
    ),
    "fhir: attachments": lambda s: bundle(
        [
            '{"resourceType":"Binary","contentType":"text/plain","data":"'
            + base64.b64encode(PROSE[:60].encode()).decode()
            + '"}'
        ]
        * (s // 150)
    ),
    "fhir: identifiers": lambda s: fhir(
        '"identifier":[' + _joined(s, lambda n: f'{{"value":"{n * 7919}"}}', ",") + "]"
    ),
    "fhir: references": lambda s: fhir(
        '"link":[' + _joined(s, lambda n: f'{{"other":{{"reference":"Patient/{n}-{n * 31}"}}}}', ",") + "]"
    ),
    "fhir: local codes": lambda s: fhir(
        '"meta":{"tag":[' + _joined(s, lambda n: f'{{"system":"http://x/s","code":"DR-{n * 7919}"}}', ",") + "]}"
    ),
    "fhir: nested documents": nested_documents,
    "json: ndjson": lambda s: (OBSERVATION.encode() + b"\n") * (s // len(OBSERVATION)),
    # HTML
    "html: prose": lambda s: html(fill(f"<p>{PROSE}</p>", s)),
    "html: attributes": lambda s: html(_joined(s, lambda n: f'<p title="Ada {n}">')),
    "html: attributes of one tag": lambda s: html("<p " + _joined(s, lambda n: f'a{n}="x{n}"', " ") + ">"),
    "html: empty attributes": lambda s: html("<p " + "a " * (s // 2) + ">"),
    "html: classes": lambda s: html(_joined(s, lambda n: f'<i class="c{n} d{n}">x</i>')),
    "html: styles": lambda s: html(_joined(s, lambda n: f'<i style="width:{n}px">x</i>')),
    "html: addresses": lambda s: html(_joined(s, lambda n: f'<a href="http://x/{word(n)}">x</a>')),
    "html: nested tables": lambda s: html("<table><tr><td>" * 60 + "<td>x" * (s // 5)),
    "html: entities": lambda s: html("&amp;" * (s // 5)),
    "html: numeric entities": lambda s: html("&#65;" * (s // 5)),
    "html: short leaves": lambda s: html("<p>a" * (s // 4)),
    "html: split words": lambda s: html("<b>O</b>ka<i>f</i>or " * (s // 21)),
    "html: comments": lambda s: html("<!-- Ada -->" * (s // 12)),
    "html: unclosed tags": lambda s: html("<a <b " * (s // 6)),
    "html: less-than": lambda s: html("<" * s),
    "html: unclosed comments": lambda s: html("<!--" * (s // 4)),
    "html: scripts": lambda s: html("<script>a" * (s // 9)),
    "html: data addresses": lambda s: html(
        f'<img src="data:text/plain;base64,{base64.b64encode(b"Ada Okafor").decode()}">' * (s // 60)
    ),
    # C-CDA
    "cda: prose": lambda s: cda(fill(f"<paragraph>{PROSE}</paragraph>", s)),
    "cda: short leaves": lambda s: cda("<td>a</td>" * (s // 10)),
    "cda: attributes": lambda s: cda(_joined(s, lambda n: f'<td ID="a{n}" styleCode="b{n}">x</td>')),
    "cda: anchors": lambda s: cda(_joined(s, lambda n: f'<td ID="{word(n)}">x</td><x value="#{word(n)}"/>')),
    "cda: names": lambda s: cda(
        fill(PROSE, s // 2),
        _joined(
            s // 2,
            lambda n: (
                f"<author><assignedAuthor><assignedPerson><name><family>{word(n)}</family></name>"
                "</assignedPerson></assignedAuthor></author>"
            ),
        ),
    ),
    "cda: entities": lambda s: cda("&#65;&amp;" * (s // 10)),
    "cda: namespaces": lambda s: cda(_joined(s, lambda n: f'<x:a xmlns:x="urn:{n}"/>')),
    "cda: processing instructions": lambda s: cda("<?a b?>" * (s // 7)),
    "cda: CDATA": lambda s: cda("<![CDATA[a]]>" * (s // 13)),
    # RTF
    "rtf: prose": lambda s: rtf(fill(PROSE + "\\par ", s)),
    "rtf: groups": lambda s: rtf("{a}" * (s // 3)),
    "rtf: nested groups": lambda s: rtf(("{" * 900 + "a" + "}" * 900) * (s // 1801)),
    "rtf: destinations": lambda s: rtf("{\\*\\x a}" * (s // 8)),
    "rtf: escapes": lambda s: rtf("\\'41" * (s // 4)),
    "rtf: unicode": lambda s: rtf("\\u65?" * (s // 5)),
    "rtf: control words": lambda s: rtf("\\b\\b0 " * (s // 6)),
    "rtf: fields": lambda s: rtf(_joined(s, lambda n: f'{{\\field{{\\*\\fldinst HYPERLINK "http://x/{n}"}}}}')),
    # PDF, tables and text
    "pdf: prose": lambda s: attached(pdf(fill(PROSE.replace("(", ""), s)), "application/pdf"),
    "pdf: pages": lambda s: attached(pdf("Seen by Dr. Okafor", s // 130), "application/pdf"),
    "text: prose": lambda s: attached(fill(PROSE, s).encode(), "text/plain"),
    "csv: rows": lambda s: attached(
        ("name,mrn,note\n" + _joined(s, lambda n: f"{word(n)},{n * 7919},stable\n")).encode(), "text/csv"
    ),
}

"""The fields, elements and notes that carry a planted identifier, and the messages around them.

A ``Message`` is a format, a charset, three persons that its structured part names, and the plants. ``Message.render``
writes it with any choice of the plants: the same message with one plant is the smallest that reproduces a survivor.
"""

import base64
import html
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from urllib.parse import quote
from xml.sax.saxutils import escape

from support.oracle.people import SCRIPTS, Kind, Person, invent
from support.oracle.writings import BREAK, NOTE, OFF, ON, Written, write

NEUTRAL = "stable on review"
_CONTEXTS = (
    "Spoke with {} today.",
    "{} was here.",
    "see {} for the rest",
    "result sent, {}, copied",
    "- {} -",
    "[{}]",
    "{}",
    "after lunch {} and then rest",
)
_HL7_ESCAPES = str.maketrans({"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "~": "\\R\\", "&": "\\T\\"})


@dataclass(frozen=True, slots=True)
class Plant:
    """One planted identifier. ``encoding`` is the encoding of its text inside the carrier."""

    role: str
    kind: Kind
    writing: str
    carrier: str
    encoding: str
    context: str = field(repr=False)
    written: Written = field(repr=False)


def _marks(text: str, *, line: str, on: str = "<b>", off: str = "</b>", note: str = "<!-- x -->") -> str:
    return text.replace(BREAK, line).replace(ON, on).replace(OFF, off).replace(NOTE, note)


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "decimal entities": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "hex entities": lambda text: "".join(f"&#x{ord(c):X};" for c in text),
    "percent": lambda text: "https://portal.example.net/find?q=" + quote(text),
    "base64": lambda text: base64.b64encode(f"note: {text}.".encode()).decode(),
    "hl7 hex": lambda text: "".join(f"\\X{c.encode().hex().upper()}\\" for c in text),
    "json": lambda text: "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text),
}
"""Encodings of a text. Those of a format are applied after its own escaping."""


# HL7 v2: a carrier returns whole segments; ``n`` is the number of the plant

Hl7Carrier = Callable[[str, int], list[str]]


def _obx(kind: str, value: str, n: int) -> str:
    return f"OBX|{n}|{kind}|{8000 + n}-1^Comment {n}^LN||{value}||||||F"


def _field(form: str) -> Hl7Carrier:
    """One segment; ``{}`` is the text, a line end is the formatting command."""
    return lambda text, n: [form.format(_marks(text, line="\\.br\\", on="\\H\\", off="\\N\\", note="<!-- x -->"), n=n)]


def _tagged(form: str) -> Hl7Carrier:
    """One segment; emphasis is HTML."""
    return lambda text, n: [form.format(_marks(text, line="\\.br\\"), n=n)]


def _wrapped(form: str) -> Hl7Carrier:
    """One segment for each line."""
    return lambda text, n: [form.format(_marks(line, line=""), n=n, i=i) for i, line in enumerate(text.split(BREAK), 1)]


def _document(media: str, subtype: str) -> Hl7Carrier:
    def carry(text: str, n: int) -> list[str]:
        plain = _from_hl7(text)
        if subtype == "HTML":
            body = f"<html><body><p>Report</p><p>{_marks(plain, line='<br/>')}</p></body></html>"
        else:
            body = f"Report of today.\n{_marks(plain, line=chr(10))}\nEnd of report.\n"
        data = base64.b64encode(body.encode()).decode()
        return [_obx("ED", f"^{media}^{subtype}^Base64^{data}", n)]

    return carry


def _from_hl7(text: str) -> str:
    for mark, sign in (("\\F\\", "|"), ("\\S\\", "^"), ("\\R\\", "~"), ("\\T\\", "&"), ("\\E\\", "\\")):
        text = text.replace(mark, sign)
    return text


HL7: Mapping[str, Hl7Carrier] = {
    "OBX TX": _field("OBX|{n}|TX|8{n}-1^Comment^LN||{}||||||F"),
    "OBX FT": _tagged("OBX|{n}|FT|8{n}-1^Comment^LN||{}||||||F"),
    "OBX ST": _field("OBX|{n}|ST|8{n}-1^Remark^L||{}||||||F"),
    "OBX CE text": _field("OBX|{n}|CE|8{n}-1^Finding^L||X{n}^{}^L||||||F"),
    "OBX CWE alternate text": _field("OBX|{n}|CWE|8{n}-1^Finding^L||X{n}^ok^L^Y{n}^{}^99LOC||||||F"),
    "OBX CWE original text": _field("OBX|{n}|CWE|8{n}-1^Finding^L||X{n}^ok^L^^^^^^{}||||||F"),
    "OBX repetition": _field("OBX|{n}|TX|8{n}-1^Comment^LN||as before~{}~no change||||||F"),
    "OBX wrapped": _wrapped("OBX|{n}{i}|TX|8{n}-1^Comment^LN||{}||||||F"),
    "OBX document": _document("TEXT", "PLAIN"),
    "OBX html document": _document("TEXT", "HTML"),
    "NTE": _tagged("NTE|{n}|L|{}"),
    "NTE wrapped": _wrapped("NTE|{n}|L|{}"),
    "Z field": _field("ZPX|{n}|{}|N"),
    "Z component": _field("ZPX|{n}|A^{}^B|N"),
    "Z subcomponent": _field("ZPX|{n}|A^B&{}&C|N"),
    "Z repetition": _field("ZPX|{n}|A~{}|N"),
    "DG1 description": _field("DG1|{n}|L|Z0{n}^Checkup^L|{}"),
    "DG1 code text": _field("DG1|{n}||Z0{n}^{}^L"),
    "AL1 reaction": _field("AL1|{n}|DA|P{n}^Penicillin^L|MO|{}"),
    "AL1 code text": _field("AL1|{n}|DA|P{n}^{}^99ALG|MO"),
    "PR1 description": _field("PR1|{n}|L|P{n}^Suture^L|{}|20240224"),
    "OBR clinical information": _field("OBR|{n}|O{n}|F{n}|24331-1^Panel^LN|||202402241200||||||{}"),
    "OBX units": _field("OBX|{n}|ST|8{n}-1^Remark^L||done|{}^^L|||||F"),
    "OBX method": _field("OBX|{n}|ST|8{n}-1^Remark^L||done||||||F||||||M{n}^{}^L"),
    "SCH reason": _field("SCH|{n}^APT|||||R{n}^{}^L"),
    "PV2 reason": _field("PV2|||R{n}^{}^L"),
    "TXA title": _field("TXA|{n}|CN|TX|202402241200||||||||D{n}||||{}"),
    "FT1 description": _field("FT1|{n}|||20240224||CG|T{n}^{}^L|x"),
    "RXE instruction": _field("RXE|1^^^20240224|D{n}^Drug^L|1||mg||{n}^{}^L"),
}


# FHIR: a carrier returns a resource; strings are written with the marker of JSON escapes

Resource = dict[str, object]
FhirCarrier = Callable[[str, int], Resource]
_SUBJECT = {"reference": "Patient/pat1"}


def _plain(text: str) -> str:
    return _marks(text, line="\n", on="**", off="**")


def _div(text: str) -> str:
    return f'<div xmlns="http://www.w3.org/1999/xhtml"><p>{_marks(text, line="<br/>")}</p></div>'


def _concept(n: int, display: str, **more: object) -> dict[str, object]:
    return {"coding": [{"system": "urn:oid:2.16.840.1.113883.3.999", "code": f"C{n}", "display": display}], **more}


def _observation(n: int, **more: object) -> Resource:
    code = {"coding": [{"system": "http://loinc.org", "code": "8251-1"}], "text": "Comment"}
    return {"resourceType": "Observation", "id": f"o{n}", "status": "final", "code": code, "subject": _SUBJECT, **more}


def _attachment(media: str, text: str) -> dict[str, str]:
    body = f"<html><body>{_marks(text, line='<br/>')}</body></html>" if "html" in media else f"Note.\n{_plain(text)}\n"
    return {"contentType": media, "data": base64.b64encode(body.encode()).decode()}


def _document_reference(n: int, attachment: Mapping[str, str], **more: object) -> Resource:
    content = [{"attachment": attachment}]
    return {"resourceType": "DocumentReference", "id": f"d{n}", "status": "current", "content": content, **more}


def _questionnaire(n: int, item: Mapping[str, object]) -> Resource:
    more = {"status": "completed", "subject": _SUBJECT, "item": [{"linkId": "1", **item}]}
    return {"resourceType": "QuestionnaireResponse", "id": f"q{n}", **more}


_URL = "http://example.org/fhir/StructureDefinition/remark"
FHIR: Mapping[str, FhirCarrier] = {
    "note": lambda t, n: _observation(n, note=[{"text": _plain(t)}]),
    "valueString": lambda t, n: _observation(n, valueString=_plain(t)),
    "code.text": lambda t, n: _observation(n, valueCodeableConcept={"text": _plain(t)}),
    "coding.display": lambda t, n: _observation(n, valueCodeableConcept=_concept(n, _plain(t))),
    "interpretation": lambda t, n: _observation(n, interpretation=[{"text": _plain(t)}]),
    "extension": lambda t, n: _observation(n, extension=[{"url": _URL, "valueString": _plain(t)}]),
    "nested extension": lambda t, n: _observation(
        n, extension=[{"url": _URL, "extension": [{"url": "r", "valueMarkdown": _plain(t)}]}]
    ),
    "primitive extension": lambda t, n: _observation(
        n, _status={"extension": [{"url": _URL, "valueString": _plain(t)}]}
    ),
    "narrative": lambda t, n: _observation(n, text={"status": "generated", "div": _div(t)}),
    "contained": lambda t, n: _observation(n, contained=[_observation(n, valueString=_plain(t))]),
    "component": lambda t, n: _observation(n, component=[{"code": {"text": "c"}, "valueString": _plain(t)}]),
    "answer": lambda t, n: _questionnaire(n, {"text": "Remarks", "answer": [{"valueString": _plain(t)}]}),
    "item text": lambda t, n: _questionnaire(n, {"text": _plain(t), "answer": [{"valueBoolean": True}]}),
    "answer coding": lambda t, n: _questionnaire(
        n, {"text": "Remarks", "answer": [{"valueCoding": {"code": "x", "display": _plain(t)}}]}
    ),
    "attachment text": lambda t, n: _document_reference(n, _attachment("text/plain", t)),
    "attachment html": lambda t, n: _document_reference(n, _attachment("text/html", t)),
    "attachment title": lambda t, n: _document_reference(n, {"contentType": "text/plain", "title": _plain(t)}),
    "description": lambda t, n: _document_reference(n, {"contentType": "text/plain"}, description=_plain(t)),
    "conclusion": lambda t, n: {
        "resourceType": "DiagnosticReport", "id": f"r{n}", "status": "final", "code": {"text": "Report"},
        "conclusion": _plain(t),
    },
    "payload": lambda t, n: {
        "resourceType": "Communication", "id": f"c{n}", "status": "completed",
        "payload": [{"contentString": _plain(t)}],
    },
    "reaction": lambda t, n: {
        "resourceType": "AllergyIntolerance", "id": f"a{n}", "patient": _SUBJECT,
        "reaction": [{"description": _plain(t), "manifestation": [{"text": "rash"}]}],
    },
    "reference display": lambda t, n: _observation(n, performer=[{"display": _plain(t)}]),
}  # fmt: skip


# CDA: a carrier returns a section

CdaCarrier = Callable[[str, int], str]


def _mixed(text: str) -> str:
    return _marks(text, line="<br/>", on="<content>", off="</content>")


def _flat(text: str) -> str:
    return _marks(text, line="&#10;", on="", off="", note="")


def _section(text: str, n: int, title: str = "Remarks", entry: str = "") -> str:
    code = '<code code="48767-8" codeSystem="2.16.840.1.113883.6.1"/>'
    return f"<component><section>{code}<title>{title}</title><text>{text}</text>{entry}</section></component>"


def _entry(inside: str) -> str:
    code = '<code code="8251-1" codeSystem="2.16.840.1.113883.6.1"/>'
    return f'<entry><observation classCode="OBS" moodCode="EVN">{code}{inside}</observation></entry>'


CDA: Mapping[str, CdaCarrier] = {
    "paragraph": lambda t, n: _section(f"<paragraph>{_mixed(t)}</paragraph>", n),
    "list item": lambda t, n: _section(f"<list><item>ok</item><item>{_mixed(t)}</item></list>", n),
    "table cell": lambda t, n: _section(f"<table><tbody><tr><td>1</td><td>{_mixed(t)}</td></tr></tbody></table>", n),
    "content": lambda t, n: _section(f'<content ID="c{n}">{_mixed(t)}</content>', n),
    "title": lambda t, n: _section("ok", n, title=_flat(t)),
    "caption": lambda t, n: _section(
        f"<table><caption>{_flat(t)}</caption><tbody><tr><td>1</td></tr></tbody></table>", n
    ),
    "comment": lambda t, n: _section(f"ok<!-- {_flat(t).replace('--', '- ')} -->", n),
    "cdata": lambda t, n: _section(f"<![CDATA[{html.unescape(_flat(t))}]]>", n),
    "value": lambda t, n: _section("ok", n, entry=_entry(f'<value xsi:type="ST">{_flat(t)}</value>')),
    "original text": lambda t, n: _section(
        "ok", n, entry=_entry(f'<value xsi:type="CD" nullFlavor="OTH"><originalText>{_flat(t)}</originalText></value>')
    ),
    "displayName": lambda t, n: _section(
        "ok", n, entry=_entry(f'<value xsi:type="CD" code="L{n}" codeSystem="2.16.840.1.113883.3.999" '
                              f'displayName="{_flat(t).replace(chr(34), "&quot;")}"/>')
    ),
    "entry text": lambda t, n: _section("ok", n, entry=_entry(f"<text>{_flat(t)}</text>")),
}  # fmt: skip
CARRIERS: Mapping[str, tuple[str, ...]] = {"hl7": tuple(HL7), "fhir": tuple(FHIR), "cda": tuple(CDA)}
"""The carriers of each format."""
_OF_FORMAT = {"hl7": ("hl7 hex",), "fhir": ("json",), "cda": ()}
_EVERYWHERE = ("decimal entities", "hex entities", "percent", "base64")


def encodings(form: str, carrier: str) -> tuple[str, ...]:
    """The encodings that a text in the carrier may have, except ``none``."""
    inside = "document" in carrier or "attachment" in carrier
    return _EVERYWHERE if inside else (*_EVERYWHERE, *_OF_FORMAT[form])


@dataclass(frozen=True, slots=True)
class Message:
    """A message with three known persons and its plants. ``declared`` is MSH-18, ``charset`` the real charset."""

    form: str
    declared: str
    charset: str
    people: Mapping[str, Person] = field(repr=False)
    plants: tuple[Plant, ...] = field(repr=False)
    control: str = "M1"

    def fits_charset(self) -> bool:
        """True if the charset has all characters of the message."""
        try:
            self._hl7([(n, plant, self._text(plant)) for n, plant in enumerate(self.plants)]).encode(self.charset)
        except UnicodeEncodeError:
            return False
        return True

    def render(self, chosen: Collection[int] | None = None) -> bytes:
        """The message with the plants ``chosen`` (all by default); the others are a neutral text."""
        texts = [
            (n, plant, self._text(plant) if chosen is None or n in chosen else NEUTRAL)
            for n, plant in enumerate(self.plants)
        ]
        match self.form:
            case "hl7":
                return self._hl7(texts).encode(self.charset, "replace")
            case "fhir":
                return self._fhir(texts).encode()
            case _:
                return self._cda(texts).encode()

    def split(self, output: bytes) -> dict[int, bytes]:
        """The parts of an output by the number of the plant; -1 is the structured part. Empty if it was reshaped."""
        match self.form:
            case "hl7":
                segments, sizes = output.split(b"\r"), [len(self._segments(n)) for n in range(len(self.plants))]
                parts, at = {-1: b"\r".join(segments[:4])}, 4
                for n, size in enumerate(sizes):
                    parts[n] = b"\r".join([*segments[at : at + size], b""])
                    at += size
                return parts if at == len(segments) - 1 else {}
            case "fhir":
                entries = json.loads(output)["entry"]
                written = [json.dumps(entry, ensure_ascii=False).encode() for entry in entries]
                return {-1: b"\n".join(written[:3]), **dict(enumerate(written[3:]))}
            case _:
                head, *sections = output.split(b"<component><section>")
                return {-1: head, **dict(enumerate(sections))}

    def _segments(self, n: int) -> list[str]:
        plant = self.plants[n]
        return HL7[plant.carrier](self._text(plant), n)

    def _text(self, plant: Plant) -> str:
        """The text of a plant in its context, escaped and encoded for the format."""
        before, after = (_escape(self.form, plant.carrier, part) for part in plant.context.split("{}"))
        value = plant.written.text
        flat = _marks(value, line=" ", on="", off="", note="")
        match plant.encoding:
            case "none":
                inner = _escape(self.form, plant.carrier, value)
            case "json":
                inner = f"\ue010{_escape(self.form, plant.carrier, value)}\ue011"
            case "hl7 hex":
                inner = ENCODINGS["hl7 hex"](flat)
            case "decimal entities" | "hex entities" if _is_markup(self.form, plant.carrier):
                inner = ENCODINGS[plant.encoding](flat)
            case _:
                inner = _escape(self.form, plant.carrier, ENCODINGS[plant.encoding](flat))
        return f"{before}{inner}{after}"

    def _hl7(self, texts: list[tuple[int, Plant, str]]) -> str:
        patient, relative, clinician = (self.people[role] for role in ("patient", "relative", "clinician"))
        lines = [
            f"MSH|^~\\&|LAB|GEN|EHR|GEN|20240224134009||ORU^R01^ORU_R01|{self.control}|P|2.5.1||||||{self.declared}",
            f"PID|1||{patient.mrn}^^^GEN^MR||{patient.family}^{patient.given}||{patient.born:%Y%m%d}|"
            f"{'F' if patient.female else 'M'}|||{patient.street}^^{patient.city}^MN^{patient.zip}||"
            f"{patient.phone}^PRN^PH^{patient.email}|||||{patient.account}^^^GEN^AN|{patient.ssn}",
            f"NK1|1|{relative.family}^{relative.given}|SPO|{relative.street}^^{relative.city}^MN^{relative.zip}|"
            f"{relative.phone}^PRN^PH^{relative.email}",
            f"PV1|1|I|4W^401^A^GEN||||{clinician.mrn}^{clinician.family}^{clinician.given}^^^^MD",
        ]
        for n, plant, text in texts:
            lines += HL7[plant.carrier](text, n)
        return "".join(f"{line}\r" for line in lines)

    def _fhir(self, texts: list[tuple[int, Plant, str]]) -> str:
        patient, relative, clinician = (self.people[role] for role in ("patient", "relative", "clinician"))
        resources: list[Resource] = [
            {
                "resourceType": "Patient",
                "id": "pat1",
                "identifier": [
                    _identifier("MR", patient.mrn, "urn:oid:1.2.36.146.595.217.0.1"),
                    _identifier("SS", patient.ssn, "http://hl7.org/fhir/sid/us-ssn"),
                    _identifier("AN", patient.account, "urn:oid:1.2.36.146.595.217.0.2"),
                ],
                **_person(patient),
                "gender": "female" if patient.female else "male",
                "birthDate": f"{patient.born:%Y-%m-%d}",
            },
            {"resourceType": "RelatedPerson", "id": "rel1", "patient": _SUBJECT, **_person(relative)},
            {
                "resourceType": "Practitioner",
                "id": "doc1",
                "identifier": [_identifier("PRN", clinician.mrn, "urn:oid:1.2.36.146.595.217.0.3")],
                "name": [{"family": clinician.family, "given": [clinician.given]}],
            },
            *(FHIR[plant.carrier](text, n) for n, plant, text in texts),
        ]
        entries = [{"resource": resource} for resource in resources]
        text = json.dumps({"resourceType": "Bundle", "type": "collection", "entry": entries}, ensure_ascii=False)
        return _write_json_escapes(text)

    def _cda(self, texts: list[tuple[int, Plant, str]]) -> str:
        patient, relative, clinician = (self.people[role] for role in ("patient", "relative", "clinician"))
        sections = "".join(CDA[plant.carrier](text, n) for n, plant, text in texts)
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ClinicalDocument xmlns="urn:hl7-org:v3" '
            'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><typeId root="2.16.840.1.113883.1.3" '
            'extension="POCD_HD000040"/><id root="2.16.840.1.113883.19.5"/><code code="34133-9" '
            'codeSystem="2.16.840.1.113883.6.1"/><title>Summary</title><effectiveTime value="20240224"/>'
            f'<recordTarget><patientRole><id root="2.16.840.1.113883.19.5.1" extension="{patient.mrn}"/>'
            f'<id root="2.16.840.1.113883.4.1" extension="{patient.ssn}"/>{_cda_contact(patient)}<patient>'
            f'{_cda_name(patient)}<administrativeGenderCode code="{"F" if patient.female else "M"}" '
            f'codeSystem="2.16.840.1.113883.5.1"/><birthTime value="{patient.born:%Y%m%d}"/></patient></patientRole>'
            f'</recordTarget><author><time value="20240224"/><assignedAuthor><id root="2.16.840.1.113883.4.6" '
            f'extension="{clinician.mrn}"/><assignedPerson>{_cda_name(clinician)}</assignedPerson></assignedAuthor>'
            f'</author><participant typeCode="IND"><associatedEntity classCode="NOK">{_cda_contact(relative)}'
            f"<associatedPerson>{_cda_name(relative)}</associatedPerson></associatedEntity></participant>"
            f"<component><structuredBody>{sections}</structuredBody></component></ClinicalDocument>"
        )


def _is_markup(form: str, carrier: str) -> bool:
    return (form == "cda" and carrier != "comment") or carrier in {"narrative", "attachment html"}


def _escape(form: str, carrier: str, text: str) -> str:
    if form == "hl7":
        return text.translate(_HL7_ESCAPES)
    return escape(text) if _is_markup(form, carrier) else text


def _identifier(code: str, value: str, system: str) -> dict[str, object]:
    kind = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": code}]}
    return {"type": kind, "system": system, "value": value}


def _person(person: Person) -> dict[str, object]:
    return {
        "name": [{"family": person.family, "given": [person.given]}],
        "telecom": [{"system": "phone", "value": person.phone}, {"system": "email", "value": person.email}],
        "address": [{"line": [person.street], "city": person.city, "postalCode": person.zip}],
    }


def _cda_name(person: Person) -> str:
    return f"<name><given>{escape(person.given)}</given><family>{escape(person.family)}</family></name>"


def _cda_contact(person: Person) -> str:
    return (
        f"<addr><streetAddressLine>{person.street}</streetAddressLine><city>{person.city}</city>"
        f"<state>MN</state><postalCode>{person.zip}</postalCode></addr>"
        f'<telecom value="tel:{person.phone}"/><telecom value="mailto:{person.email}"/>'
    )


def _write_json_escapes(text: str) -> str:
    """Each character between the markers as its escape."""
    pieces = text.split("\ue010")
    done = [pieces[0]]
    for piece in pieces[1:]:
        inside, _, rest = piece.partition("\ue011")
        done.append(_escape_json(inside) + rest)
    return "".join(done)


def _escape_json(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        if text[at] == "\\":
            out.append(text[at : at + 2])
            at += 2
            continue
        code = ord(text[at])
        out.append(f"\\u{code:04x}" if code < 0x10000 else text[at])
        at += 1
    return "".join(out)


# Making messages

_KINDS = {
    "patient": tuple(Kind),
    "relative": (Kind.NAME, Kind.PHONE, Kind.EMAIL, Kind.STREET, Kind.CITY),
    "clinician": (Kind.NAME, Kind.MRN),
}
_FORMS = ("hl7", "hl7", "fhir", "cda")
_CHARSETS = (
    ("UNICODE UTF-8", "utf-8"),
    ("UNICODE UTF-8", "utf-8"),
    ("", "utf-8"),
    ("8859/1", "utf-8"),
    ("GB 18030-2000", "utf-8"),
    ("8859/1", "iso8859-1"),
    ("8859/2", "iso8859-2"),
    ("8859/5", "iso8859-5"),
    ("8859/6", "iso8859-6"),
    ("8859/7", "iso8859-7"),
    ("8859/8", "iso8859-8"),
    ("GB 18030-2000", "gb18030"),
    ("KS X 1001", "cp949"),
    ("SHIFT JIS", "cp932"),
    ("SHIFT JIS", "utf-8"),
)
PLANTS = 24
"""Plants of one message."""


def known_identifiers(form: str) -> list[tuple[str, Kind]]:
    """The role and kind of each identifier that the structured part of a message names."""
    kinds = [(role, kind) for role, of_role in _KINDS.items() for kind in of_role]
    return [each for each in kinds if form != "cda" or each != ("patient", Kind.ACCOUNT)]


def make_message(seed: int, number: int, people: int = 0) -> Message:
    """The message ``number`` of ``seed``. Another value of ``people`` gives the same plants of other persons."""
    rng = Random(f"{seed}/{number}")
    form = rng.choice(_FORMS)
    scripts = [rng.choice(("latin", *SCRIPTS)) for _ in range(3)]
    persons = {
        role: invent(Random(f"{seed}/{number}/{role}/{people}"), script)
        for role, script in zip(_KINDS, scripts, strict=True)
    }
    plants = tuple(_plant(Random(f"{seed}/{number}/{n}"), form, persons) for n in range(PLANTS))
    declared, charset = rng.choice(_CHARSETS) if form == "hl7" else ("", "utf-8")
    message = Message(form, declared, charset, persons, plants)
    if charset != "utf-8" and not message.fits_charset():
        message = replace(message, declared="UNICODE UTF-8", charset="utf-8")
    return message


def _plant(rng: Random, form: str, people: Mapping[str, Person]) -> Plant:
    role, kind = rng.choice(known_identifiers(form))
    if rng.random() < 0.4:
        role, kind = rng.choice(tuple(_KINDS)), Kind.NAME
    carrier = rng.choice(CARRIERS[form])
    encoding = "none" if rng.random() < 0.75 else rng.choice(encodings(form, carrier))
    context = rng.choice(_CONTEXTS)
    writing, written = write(rng, people[role], kind)
    return Plant(role, kind, writing, carrier, encoding, context, written)

"""The kind of each date of a message, by its field or its content, and the dates that stay, with the reason."""

import json

import pytest
from support.fhir import parsed
from support.hl7 import message

from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.dates import find_dates, is_typed_date, is_whole_date, load_birth_labels
from deid_agent.model import DateKind, PhiType
from deid_agent.rules import data_folder

EVENT, BIRTH, TECHNICAL, PUBLIC = DateKind.EVENT, DateKind.BIRTH, DateKind.TECHNICAL, DateKind.PUBLIC
DAY = "20190304"


def hl7_kinds(*lines: str, header: str = "MSH|^~\\&|||||||ADT^A08|1|P|2.5.1") -> dict[str, DateKind]:
    """The kind of each date by its path."""
    return {s.path: s.date_kind for s in message(*lines, header=header).sites if s.type is PhiType.DATE}


def fhir_kinds(resource: dict[str, object]) -> dict[str, DateKind]:
    return {s.path: s.date_kind for s in parsed(resource).sites if s.type is PhiType.DATE}


def field(segment: str, number: int, value: str = DAY) -> str:
    return f"{segment}{'|' * number}{value}"


@pytest.mark.parametrize(
    ("segment", "number", "kind"),
    [
        *(
            (segment, number, BIRTH)
            for segment, number in [("PID", 7), ("NK1", 16), ("GT1", 8), ("IN1", 18), ("STF", 6), ("DON", 17)]
        ),
        *((segment, 1, TECHNICAL) for segment in ("QRD", "URD", "NCK")),
        ("EVN", 2, TECHNICAL),
        *(
            (segment, number, PUBLIC)
            for segment, number in [("RXA", 16), ("RXD", 19), ("RXG", 20), ("IIM", 4), ("INV", 12), ("SFT", 6)]
        ),
        *(
            (segment, number, EVENT)
            for segment, number in [
                *(("EVN", 3), ("EVN", 6), ("PID", 29), ("PID", 30), ("PID", 33), ("OBX", 14), ("OBX", 22)),
                *(("PV1", 44), ("PV2", 27), ("PV2", 30), ("OBR", 7), ("OBR", 22), ("OBR", 23), ("OBR", 27)),
                *(("AIG", 9), ("PRB", 2), ("PRB", 3), ("PRB", 10), ("SPM", 17), ("SPM", 19), ("SPM", 23)),
                *(("ORC", 7), ("ORC", 9), ("TQ1", 7), ("TQ1", 2), ("ZXX", 3), ("PCR", 7), ("BPX", 13), ("MFI", 4)),
                *(("PRT", 17), ("AL1", 6), ("DG1", 5), ("FT1", 4), ("IN1", 12), ("PD1", 13), ("GT1", 13)),
            ]
        ),
    ],
)
def test_the_kind_of_a_date_follows_the_field(segment: str, number: int, kind: DateKind) -> None:
    found = hl7_kinds(field(segment, number))

    assert list(found.values()) == [kind], found


@pytest.mark.parametrize("header", ["MSH|^~\\&|||||20190304101112||ADT^A08|1|P|2.5.1"])
@pytest.mark.parametrize("name", ["MSH", "BHS", "FHS"])
def test_the_times_of_headers_are_technical(header: str, name: str) -> None:
    lines = () if name == "MSH" else (header,)
    assert set(hl7_kinds(*lines, header=header.replace("MSH", name)).values()) == {TECHNICAL}


@pytest.mark.parametrize(
    "line",
    [
        "PID|||1^^^H^MR^F^20190304^20190305",
        "PID|||||A^B^^^^^L^^^^20190304^20190305",
        "PID|||||A^B^^^^^L^^^20190304&20190305",
        "PID|||||||||||1 Elm^^^^^^H^^^^^20190304&20190305",
        "PID||||||||||||||||||||S1^MA^20190304",
        "PRD|||||||1^^^20190304",
        "OBR|||||||||||||||||||||||10^20190304^x",
        "OBR|||||||||||||||||||||||||||1^Q6H^D5^20190304^20190305",
        "TQ1|||^20190304|",
        "ARQ|||||||||||20190304^20190305|||",
        "ARQ|||||||||||||Q1D^20190304",
        "FT1||||20190304^20190305",
        "PV1|||||||||||||||||||||||||||||||||||||1^20190304",
        "PV1|||||A^20190304^20190305",
        "STF||||||||||||20190304^A",
        "ORC||1^A|||||||||||||||||||||||||||||||20190304",
        "ORC||||1&A^2&B^20190304",
        "QRD|||||||||||20190304^20190305",
        "OBX||CP|X||100^UP^20190304^20190305",
        "OBX||SN|X||>^20190304",
        "OBX||NM|X||20190304",
        "OBX||ST|X||20190304101112.123-0500",
        "OBX||TS|X||20190304",
        "OBX||DTM|X||20190304101112",
        "OBX||DT|X||20190304",
        "OBX||DR|X||20190304^20190305",
        "OBX||ID|X||20190304",
        "OBX||CX|X||1^^^H^MR^^20190304",
        "OBX||CE|X||20190304^Visit^L",
        "OBX||XX|X||20190304",
        "OBX||ST|X||3/4/2019",
        "OBX||ST|X||2019-03-04T10:11:12Z",
        "OBX||NM|X||20190304~20190305",
        "NTE|||20190304",
        "NTE||||20190304",
        "ZZ1|20190304|^20190304|^&20190304",
        "SPM|||||||||||||||||20190304^20190305",
        "AIG||||||||20190304|20190304|20190304",
        "PV2||||||||||||||||||||||||||20190304|20190304|20190304|20190304|20190304",
        "DG1||20190304|20190304^^I10|",
    ],
)
def test_no_date_of_a_field_is_kept_by_accident(line: str) -> None:
    parsed_message = message(line)
    covered = [(s.start, s.end) for s in parsed_message.sites]
    for narrative in parsed_message.narratives:
        covered += zip(narrative.mapped.starts, narrative.mapped.ends, strict=True)
    text = parsed_message.raw.decode()
    dates = [span for span in find_dates(text) if "19" in text[slice(*span)] and span[0] > text.index("\r")]
    kept = [text[a:b] for a, b in dates if not any(x <= a < y for x, y in covered)]

    assert kept == (["20190304"] if "^I10" in line else [])


@pytest.mark.parametrize(
    "line",
    [
        "OBX||CWE|1^A^LN^^^^20190304||1^B^SCT^^^^20190304^20190801",
        "OBX||CWE|1^A^LN||20190304^B^SCT",
        "OBX||NM|1^A^LN^2^B^L^20190304^20190801||5",
        "RXA|||||1^A^CVX^^^^20190304",
        "DG1|||20190304^^I10^^^^20190801",
        "OBX||CE|1^A^2.16.840.1.20190304||5",
        "SFT|A^^^^^2.16.840.1.20190304&x&ISO",
    ],
)
def test_versions_and_codes_of_public_systems_and_oids_keep_a_date(line: str) -> None:
    assert not hl7_kinds(line)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("21112-8^Birth date^LN", BIRTH),
        ("X^DOB^L", BIRTH),
        ("^Date of Birth", BIRTH),
        ("184099003^^SCT", BIRTH),
        ("PatientBirthDate", BIRTH),
        ("9^x^LN^L1^Geburtsdatum^L", BIRTH),
        ("8302-2^Body height^LN", EVENT),
        ("1^Birth certificate date^L", EVENT),
        ("1^Newborn screening date^L", EVENT),
    ],
)
@pytest.mark.parametrize(
    ("datatype", "value"), [("TS", "19570422"), ("DT", "19570422"), ("ST", "04/22/1957"), ("NM", "19570422")]
)
def test_the_label_of_an_observation_makes_a_birth(label: str, kind: DateKind, datatype: str, value: str) -> None:
    assert set(hl7_kinds(f"OBX|1|{datatype}|{label}||{value}||||||F|||20190304").values()) == {kind, EVENT}


@pytest.mark.parametrize(
    "value", ["Ada Okafor", "617-555-0123", "83920175", "20191345", "last Tuesday", "about 2019", "x"]
)
@pytest.mark.parametrize("template", ["PID|||||||{}", "OBX||TS|X||{}", "RXA||||||||||||||||{}", "EVN||{}"])
def test_a_date_field_without_a_date_is_removed_by_every_policy(value: str, template: str) -> None:
    (site,) = [s for s in message(template.format(value)).sites if s.value == value]

    assert (site.type, site.kind.value) == (PhiType.IDNUM, "redact")


@pytest.mark.parametrize(
    "value",
    [
        "2019",
        "201903",
        DAY,
        "2019030410",
        "20190304101112.1234-0500",
        "2019-03-04",
        "2019-03-04 10:11",
        "3/4/19",
        "03/04/2019",
        "4 Mar 2019",
        "March 4, 2019",
        "04-MAR-2019",
        "03042019",
        "00000000",
        "0000",
        "99999999",
    ],
)
def test_forms_of_a_typed_date(value: str) -> None:
    assert is_typed_date(value)


@pytest.mark.parametrize(
    "value", ["20190304", "2019-03-04", "20190304101112", "3/4/2019", "2019/03/04", "4 March 2019"]
)
def test_complete_dates_are_recognized(value: str) -> None:
    assert is_whole_date(value)
    assert [f"x {value}, y"[a:b] for a, b in find_dates(f"x {value}, y")] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "201903041",
        "120190304",
        "20191304",
        "20190304.5",
        "1.2.20190304",
        "2019",
        "4",
        "192.168.20190304.1",
        "20190304-1234-4234-8234-123456789abc",
        "aaaaaaaa-1234-4234-8234-201903041234",
        "1/2/3/2019",
        "2019 a",
    ],
)
def test_values_that_are_not_complete_dates(text: str) -> None:
    assert not is_whole_date(text)
    assert not list(find_dates(text))


def test_a_long_run_of_digits_or_months_takes_linear_time() -> None:
    for text in ("2019" * 200_000, "20190304" * 100_000, "3/4/" * 100_000, "mar 4 " * 100_000, "1.20190304" * 50_000):
        assert len(list(find_dates(text))) >= 0


@pytest.mark.parametrize(
    ("resource", "kinds"),
    [
        ({"resourceType": "Patient", "birthDate": "1957-04-22"}, [BIRTH]),
        ({"resourceType": "RelatedPerson", "birthDate": "1957-04-22"}, [BIRTH]),
        ({"resourceType": "Practitioner", "birthDate": "1957-04-22"}, [BIRTH]),
        ({"resourceType": "Person", "birthDate": "1957"}, [BIRTH]),
        ({"resourceType": "Patient", "deceasedDateTime": "2019-03-04"}, [EVENT]),
        ({"resourceType": "FamilyMemberHistory", "bornDate": "1957-04", "deceasedDate": "1999"}, [BIRTH, EVENT]),
        ({"resourceType": "FamilyMemberHistory", "bornPeriod": {"start": "1957", "end": "1958"}}, [BIRTH, BIRTH]),
        ({"resourceType": "FamilyMemberHistory", "bornString": "1957-04-22"}, [BIRTH]),
        ({"resourceType": "OrderResponse", "birthDateTime": "1957-04-22", "when": "2019-03-04"}, [BIRTH, EVENT]),
        ({"resourceType": "Patient", "meta": {"lastUpdated": "2019-03-04T10:11:12Z"}}, [TECHNICAL]),
        ({"resourceType": "Patient", "meta": {"versionId": "20190304101112"}}, [TECHNICAL]),
        ({"resourceType": "Bundle", "timestamp": "2019-03-04T10:11:12Z"}, [TECHNICAL]),
        ({"resourceType": "MessageHeader", "timestamp": "2019-03-04T10:11:12Z"}, [TECHNICAL]),
        ({"resourceType": "Provenance", "recorded": "2019-03-04T10:11:12Z"}, [TECHNICAL]),
        ({"resourceType": "AuditEvent", "recorded": "2019-03-04T10:11:12Z"}, [TECHNICAL]),
        ({"resourceType": "Composition", "date": "2019-03-04"}, [EVENT]),
        ({"resourceType": "Immunization", "expirationDate": "2020-12-31"}, [PUBLIC]),
        ({"resourceType": "Medication", "batch": {"expirationDate": "2020-12-31"}}, [PUBLIC]),
        ({"resourceType": "Device", "expirationDate": "2020-12-31", "manufactureDate": "2018"}, [EVENT, EVENT]),
        ({"resourceType": "CodeSystem", "date": "2019-03-04", "approvalDate": "2019-03-04"}, [PUBLIC, PUBLIC]),
        ({"resourceType": "Patient", "extension": [{"url": "http://x.org/q", "valueDateTime": "2019-03-04"}]}, [EVENT]),
        ({"resourceType": "Patient", "extension": [{"url": "http://x.org/q", "valueInteger": 20190304}]}, [EVENT]),
        ({"resourceType": "Patient", "extension": [{"url": "http://x.org/dateOfBirth", "valueDate": "1957"}]}, [BIRTH]),
        ({"resourceType": "Patient", "contained": [{"resourceType": "Patient", "birthDate": "1957"}]}, [BIRTH]),
        ({"resourceType": "Observation", "valueQuantity": {"value": 20190304}}, [EVENT]),
        ({"resourceType": "Observation", "valueQuantity": {"value": 20190304, "unit": "/uL"}}, []),
        ({"resourceType": "Observation", "code": {"coding": [{"system": "http://snomed.info/sct", "code": DAY}]}}, []),
        ({"resourceType": "Observation", "code": {"coding": [{"system": "http://x.org", "code": DAY}]}}, [EVENT]),
        ({"resourceType": "Observation", "code": {"coding": [{"version": DAY, "code": "1"}]}}, []),
        ({"resourceType": "Patient", "meta": {"profile": [f"http://x.org/StructureDefinition/a|{DAY}"]}}, []),
        ({"resourceType": "Observation", "valuePeriod": {"start": "2019-03-04", "end": "2019"}}, [EVENT, EVENT]),
        (
            {"resourceType": "Encounter", "x": {"repeat": {"boundsPeriod": {"start": "2019-03-04"}}, "event": [DAY]}},
            [EVENT, EVENT],
        ),
    ],
)
def test_the_kind_of_a_date_follows_the_element(resource: dict[str, object], kinds: list[DateKind]) -> None:
    assert list(fhir_kinds(resource).values()) == kinds


def test_the_label_of_an_item_an_observation_or_a_parameter_makes_a_birth() -> None:
    code = {"coding": [{"system": "http://loinc.org", "code": "21112-8"}]}
    found = fhir_kinds(
        {
            "resourceType": "Bundle",
            "entry": [
                {
                    "resource": {
                        "resourceType": "Observation",
                        "code": code,
                        "valueDateTime": "1957-04-22",
                        "issued": "2019-03-04T10:00:00Z",
                    }
                },
                {
                    "resource": {
                        "resourceType": "Observation",
                        "component": [{"code": code, "valueString": "04/22/1957"}],
                    }
                },
                {
                    "resource": {
                        "resourceType": "QuestionnaireResponse",
                        "authored": "2019-03-04",
                        "item": [
                            {"linkId": "1", "text": "Date of birth", "answer": [{"valueDate": "1957-04-22"}]},
                            {"linkId": "2", "text": "Date of visit", "answer": [{"valueDate": "2019-03-04"}]},
                        ],
                    }
                },
                {
                    "resource": {
                        "resourceType": "Parameters",
                        "parameter": [{"name": "birthdate", "valueDate": "1957-04-22"}],
                    }
                },
            ],
        }
    )

    assert [kind.value for kind in found.values()] == ["birth", "event", "birth", "event", "birth", "event", "birth"]


@pytest.mark.parametrize("value", ["Ada Okafor", "617-555-0123", "soon", "20191399"])
def test_a_date_element_without_a_date_is_removed_by_every_policy(value: str) -> None:
    (site,) = parsed({"resourceType": "Patient", "birthDate": value}).sites

    assert (site.type, site.kind.value) == (PhiType.IDNUM, "redact")
    assert json.loads(f'"{site.blank}"').startswith("1900")


@pytest.mark.parametrize(
    "label", ["DOB", "date-of-birth", "Mother's birth date", "birthDate", "BIRTH_TIME", "Né(e): date de naissance"]
)
def test_a_label_of_birth(label: str) -> None:
    assert load_birth_labels(data_folder("rules")).is_birth(label)


@pytest.mark.parametrize(
    "label", ["birth weight", "birth order", "place of birth", "stillbirth", "newborn", "dobutamine", ""]
)
def test_no_label_of_birth(label: str) -> None:
    assert not load_birth_labels(data_folder("rules")).is_birth(label)


DOCUMENT = (
    '<ClinicalDocument xmlns="urn:hl7-org:v3" xmlns:sdtc="urn:hl7-org:sdtc" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">{}</ClinicalDocument>'
)


def cda_kinds(inside: str) -> list[tuple[str, str]]:
    """The last step of the path of each date, and its kind."""
    (found,) = CdaCodec(data_folder("rules")).parse(DOCUMENT.format(inside).encode())
    dates = (s for s in found.sites if s.type is PhiType.DATE)
    return [("/".join(s.path.split("/")[-2:]), s.date_kind.value) for s in dates]


def observed(code: str, value: str) -> str:
    return f'<entry><observation><code {code}/><effectiveTime value="20190304"/>{value}</observation></entry>'


LOINC_BIRTH = 'code="21112-8" codeSystem="2.16.840.1.113883.6.1" codeSystemVersion="2019-03-04"'


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        ('<effectiveTime value="20190304101112-0500"/>', [("effectiveTime/@value", "event")]),
        ('<birthTime value="19570422"/>', [("birthTime/@value", "birth")]),
        ("<birthTime>19570422</birthTime>", [("ClinicalDocument/birthTime", "birth")]),
        ('<sdtc:birthTime value="1957"/>', [("birthTime/@value", "birth")]),
        ('<sdtc:deceasedTime value="2019"/>', [("deceasedTime/@value", "event")]),
        ('<effectiveTime><low value="20190304"/><high nullFlavor="UNK"/></effectiveTime>', [("low/@value", "event")]),
        ('<sdtc:expirationTime value="20201231"/>', [("?/@value", "public")]),
        (
            observed(LOINC_BIRTH, '<value xsi:type="TS" value="19570422"/>'),
            [("effectiveTime/@value", "event"), ("value/@value", "birth")],
        ),
        (
            observed('displayName="Date of birth"', '<value xsi:type="ST">19570422</value>'),
            [("effectiveTime/@value", "event"), ("observation/value", "birth")],
        ),
        (
            observed('code="8302-2"', '<value xsi:type="INT" value="20190305"/>'),
            [("effectiveTime/@value", "event"), ("value/@value", "event")],
        ),
        (
            observed('code="1"', '<value xsi:type="PQ" value="20190304" unit="/uL"/>'),
            [("effectiveTime/@value", "event")],
        ),
        ('<code code="20190304" codeSystem="1.2.3"/>', [("code/@code", "event")]),
        ('<code code="20190304" codeSystem="2.16.840.1.113883.6.96"/>', []),
        ('<templateId root="2.16.840.1.113883.10.20.22.1.2" extension="2015-08-01"/>', []),
        ('<versionNumber value="20190304"/>', [("versionNumber/@value", "event")]),
        (
            '<section ID="s20190304"><text>x <linkHtml href="#s20190304">y</linkHtml></text></section>',
            [("section/@ID", "event"), ("text/@href", "event")],
        ),
    ],
)
def test_the_kind_of_a_date_of_a_document(inside: str, found: list[tuple[str, str]]) -> None:
    assert cda_kinds(inside) == found


@pytest.mark.parametrize("value", ["Okafor", "617-555-0123", "last Tuesday"])
def test_a_time_of_a_document_without_a_date_is_removed_by_every_policy(value: str) -> None:
    (found,) = CdaCodec(data_folder("rules")).parse(DOCUMENT.format(f'<effectiveTime value="{value}"/>').encode())

    assert [(s.type, s.kind.value, s.blank) for s in found.sites] == [(PhiType.IDNUM, "redact", "1900")]


@pytest.mark.parametrize("code", [r"\u00320190304", r"2019\u002d03-04", r"201903\u00304", r"\u0032\u0030190304"])
def test_an_escaped_digit_hides_no_date(code: str) -> None:
    raw = f'{{"resourceType": "Patient", "meta": {{"versionId": "a\\\\u0031-{code}"}}}}'
    (site,) = parsed(raw).sites

    assert json.loads(f'"{site.value}"') in {"20190304", "2019-03-04"}
    assert raw.encode()[site.start : site.end].decode() == code


VACCINATION = "RXA|0|1|20240301||03^MMR^CVX|0.5|mL||||||||A1122XZ|20251231"


@pytest.mark.parametrize(
    ("observation", "kind"),
    [
        ("TS|29768-9^Published^LN|1|20191030", PUBLIC),
        ("ST|29768-9^Published^LN|1|20191030", PUBLIC),
        ("DT|VP^Published^L^29768-9^^LN|1|20191030", PUBLIC),
        ("TS|29769-7^Presented^LN|1|20191030", EVENT),
        ("NM|30973-2^Dose number^LN|1|20191030", EVENT),
        ("TS|29768-9^Published^LN|1|20240301", EVENT),  # the day of the vaccination: it would give its shift
    ],
)
def test_the_edition_of_a_vaccine_information_statement_is_public(observation: str, kind: DateKind) -> None:
    found = hl7_kinds(VACCINATION, f"OBX|1|{observation}")
    assert [found[path] for path in found if path.startswith("OBX-5")] == [kind]


def test_the_number_of_a_lot_is_that_of_a_device_and_its_expiry_is_public() -> None:
    sites = {s.path.partition("[")[0]: (s.type, s.date_kind) for s in message(VACCINATION).sites}
    assert sites["RXA-15"][0] is PhiType.DEVICE
    assert sites["RXA-16"][1] is PUBLIC

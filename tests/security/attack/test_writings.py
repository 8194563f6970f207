"""Attack 10: known PHI in other writings. Each is planted in a text field and searched in the output."""

import base64
import html
import unicodedata
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

import pytest
from support.hl7 import RULES

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

FAMILY, GIVEN, MRN, DOB = "Papadopoulos", "Kyriaki", "88123456", "19550421"


@lru_cache(maxsize=2)
def deidentifier(system: str) -> Deidentifier:
    return WorkerFactory(RULES, DEMO_KEY, load_policy("pseudonymised", RULES), system=system).deidentifier()


def message(text: str, *, name: str = f"{FAMILY}^{GIVEN}", mrn: str = MRN, kind: str = "TX") -> bytes:
    lines = (
        r"MSH|^~\&|LAB|NG|EHR|NG|20260102030405||ORU^R01|1|P|2.5.1||||||UNICODE UTF-8",
        f"PID|1||{mrn}^^^NG^MR||{name}||{DOB}|F",
        f"OBX|1|{kind}|600-7^Note^LN||{text}",
    )
    return "".join(f"{line}\r" for line in lines).encode()


def published(text: str, system: str = "known", **planted: str) -> str:
    return deidentifier(system).message(message(text, **planted)).payload.decode().rpartition("OBX")[2]


def searched(text: str) -> str:
    """The letters and digits of a text, decoded in every way, without code of the product."""
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text).replace("\\T\\", "&")
    plain = html.unescape(unquote_to_bytes(html.unescape(text)).decode("utf-8", "replace"))
    plain = unicodedata.normalize("NFKC", plain)
    for mark in ("<b>", "</b>", "<i>", "<br/>", "<!-- x -->", "<![CDATA[", "]]>", r"\.br\ ".strip(), r"\H" + "\\"):
        plain = plain.replace(mark, "")
    return "".join(c for c in plain.casefold() if c.isalnum())


def wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def split(text: str, mark: str, at: int = 5) -> str:
    return text[:at] + mark + text[at:]


WRITINGS = {
    "fullwidth": wide(FAMILY),
    "fullwidth digits": f"no {wide(MRN)}",
    "Arabic digits": "no " + "".join(chr(0x660 + int(c)) for c in MRN),
    "Devanagari digits": "no " + "".join(chr(0x966 + int(c)) for c in MRN),
    "soft hyphen": split(FAMILY, "\u00ad"),
    "zero-width blank": split(FAMILY, "\u200b"),
    "joiner": split(FAMILY, "\u200d", 3),
    "bidi marks": "\u202a" + split(FAMILY, "\u200e") + "\u202c",
    "byte order mark": split(FAMILY, "\ufeff"),
    "variation selector": split(FAMILY, "\ufe0f"),
    "soft hyphen in a number": split(MRN, "\u00ad"),
    "bold": "Papa<b>do</b>poulos",
    "comment": split(FAMILY, "<!-- x -->"),
    "CDATA": f"<![CDATA[{split(FAMILY, ']]><![CDATA[')}]]>",
    "line command": split(FAMILY, "\\.br\\"),
    "two line commands": split(split(FAMILY, "\\.br\\", 9), "\\.br\\", 4),
    "highlight": split(FAMILY, "\\H\\"),
    "repetition": split(FAMILY, "~"),
    "component": split(FAMILY, "^"),
    "line tag": split(FAMILY, "<br/>"),
    "entities": "".join(f"\\T\\#{ord(c)};" for c in FAMILY),
    "hexadecimal entity": f"\\T\\#x50;{FAMILY[1:]}",
    "bare entity": f"Papa&#100;{FAMILY[5:]}",
    "entity of a soft hyphen": split(FAMILY, "\\T\\shy;"),
    "encoded tag": split(FAMILY, "\\T\\lt;b\\T\\gt;"),
    "percent": quote(FAMILY).replace("p", "%70"),
    "percent in a sentence": f"see {FAMILY.replace('d', '%64')} at ten",
    "percent number": "no " + "".join(f"%3{c}" for c in MRN),
    "glued to Han": f"患者{FAMILY}入院",
    "glued to Hangul": f"환자{FAMILY}님",
    "glued to Thai": f"ผู้ป่วย{FAMILY}มา",
    "number glued to Han": f"病历{MRN}号",
    "OCR": f"PatientName:{FAMILY}{GIVEN}DOB:04211955",
    "OCR without colons": f"PatientName{FAMILY}{GIVEN}DOB04211955MRN{MRN}Sex",
    "OCR in lower case": f"patientname{FAMILY.lower()}{GIVEN.lower()}dob",
    "OCR in capitals": f"PATIENTNAME{FAMILY.upper()}DOB",
    "digits around": f"12{FAMILY}34",
    "underscores": f"scan_{FAMILY}_2.pdf",
    "letter by letter": " ".join(FAMILY.upper()),
    "mathematical letters": "".join(chr(ord(c) + (0x1D3BF if c.isupper() else 0x1D3B9)) for c in FAMILY),
}  # fmt: skip


@pytest.mark.parametrize("system", ["known", "none"])
@pytest.mark.parametrize("name", WRITINGS)
def test_no_writing_of_an_identifier_is_published(name: str, system: str) -> None:
    raw = WRITINGS[name]
    assert any(each in searched(raw) for each in (FAMILY.lower(), MRN)), "the planted text is not an identifier"
    left = searched(published(raw, system))
    assert [each for each in (FAMILY.lower(), GIVEN.lower(), MRN, "04211955") if each in left] == []


@pytest.mark.parametrize("text", [f"{FAMILY} {GIVEN}", f"MRN {MRN} of Ms. {FAMILY}", f"ß {FAMILY}"])
def test_base64_of_a_text_in_a_text(text: str) -> None:
    encoded = base64.b64encode(text.encode()).decode()
    assert encoded not in published(f"scan {encoded} done", "none")
    assert encoded not in published(f"scan {encoded} done")
    other = base64.b64encode(b"Blood pressure 120").decode()
    assert other in published(f"scan {other} done")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("王^小明", "患者王小明今日入院"),
        ("王^小明", "患者王小\\.br\\明今日入院"),
        ("佐藤^花子", "患者：佐藤花\\.br\\子様"),
        ("김^민준", "환자김민준은 호전됨"),
        ("タナカ^ハナコ", "患者ﾀﾅｶﾊﾅｺさん"),
        ("ใจดี^สมชาย", "ผู้ป่วยสมชายใจดีมาพบแพทย์"),
        ("ใจดี^สมชาย", "ผู้ป่วยชื่อสมชายมาพบแพทย์"),
        ("กิตติวัฒน์^สุดา", "นางสุดา กิตติวัฒน์ มา"),
        ("ວົງສາ^ສົມພອນ", "ຄົນເຈັບສົມພອນວົງສາມາ"),
        ("សុខ^ចាន់ថា", "អ្នកជំងឺសុខចាន់ថាមក"),
        ("អោង^សន်", "x"),
        ("မောင်^အောင်ဆန်း", "လူနာအောင်ဆန်းလာ"),
        ("Παπαδόπουλος^Κυριακή", "ΠΑΠΑΔΟΠΟΥΛΟΣ, Παπα\u00adδόπουλος"),
        ("Иванов^Пётр", "пациент Ива\u200bнов Петр"),
        ("محمدي^سارة", "المريضة محـمدي"),
    ],
)
def test_names_of_every_script(name: str, text: str) -> None:
    left = "".join(c for c in unicodedata.normalize("NFKC", published(text, name=name)) if c.isalnum())
    for part in name.split("^"):
        for each in (part, part.casefold(), part.upper()):
            assert "".join(c for c in each if c.isalnum()) not in left.replace("br", "")


@pytest.mark.parametrize(
    ("mrn", "text", "gone"),
    [
        ("12", "MRN 12 seen", True),
        ("7", "MRN: 7 seen", True),
        ("A7", "Patient ID: a7", True),
        ("447", "PatientMRN447 seen", True),
        ("12", "platelets 12, grade 12, no 12, unit 12, case 12, MRI 12, M 12", False),
        ("QXZKW", "seen QXZKW today", True),
        ("qxzkw", "mrn qxzkw today", True),
        ("qxzkw", "seen qxzkw today", False),
        ("CHEST", "CHEST pain, MRN chest", False),
    ],
)
def test_short_ids_and_ids_of_letters(mrn: str, text: str, gone: bool) -> None:
    for system in ("known", "none"):
        assert (text not in published(text, system, mrn=mrn)) is gone


@pytest.mark.parametrize(
    "text",
    [
        "Parkinson disease, son of a smith", "weight 5 in gram", "HbA1c 5.6%20 min", "x < b and y > 3",
        "Escherichia coli",         "AT&T; R&D; 5 &lt; 7", "SpO2 95%20L", "K+ 4.5mEq/L Na140 Cl100", "pH7.35PCO2 40",
        "10^-3", "5'-AMP 12mg",
        "AAAABBBBCCCCDDDD", "ACGTACGTACGTACGT", "dissolved in\\.br\\gram", "hemoglobin A1c12", "1/4/55", "T4N2M0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Parkin^Ann", "Ingram^Ann", "Escher^Ann", "Smithson^Ann"])
def test_clinical_text_is_kept(text: str, name: str) -> None:
    for system in ("known", "none"):
        assert published(text, system, name=name).rstrip("\r").endswith(f"|{text}")

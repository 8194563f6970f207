"""Persons, towns and identifiers in fields for codes, and the codes that stay."""

import pytest
from support.hl7 import RULES, message

from deid_agent.codec.hl7v2.codes import load_code_words
from deid_agent.codec.hl7v2.table_files import load_hl7_table
from deid_agent.model import ConfigurationError, LeafRole


def read(line: str) -> tuple[set[str], set[str]]:
    """The values of sites, and the texts, of a line."""
    parsed = message(line)
    sites = {site.value for site in parsed.sites if not site.path.startswith("MSH")}
    return sites, {part for each in parsed.narratives for part in each.mapped.text.split("\n")}


def field(name: str, value: str) -> str:
    segment, _, number = name.partition("-")
    return segment + "|" * int(number) + value


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        # two components of a person
        ("IN2-57", "Hobbes^Leonor", {"Hobbes", "Leonor"}),
        ("IN2-57", "HOBBES^LEONOR", {"HOBBES", "LEONOR"}),
        ("PV1-4", "Wexcombe^Leonor^Q", {"Wexcombe", "Leonor", "Q"}),
        ("PV2-2", "Hobbes^Leonor", {"Hobbes", "Leonor"}),
        ("NK1-14", "Ekström^Chidubem^S", {"Ekström", "Chidubem", "S"}),
        # one word, of a person or a town
        ("PV1-18", "Leonor", {"Leonor"}),
        ("PV1-18", "LEONOR", {"LEONOR"}),
        ("PV1-18", "Tewkesbury", {"Tewkesbury"}),
        ("PV1-18", "TEWKESBURY", {"TEWKESBURY"}),
        ("PV1-4", "Wexcombe", {"Wexcombe"}),
        ("PV1-36", "O'Hanrahan-Leonor", {"O'Hanrahan-Leonor"}),
        ("AL1-3", "Leonor", {"Leonor"}),
        ("PV1-20", "Leonor", {"Leonor"}),
        # indicators and sexes
        ("PID-24", "Whitby", {"Whitby"}),
        ("PID-24", "WEXCOMBE", {"WEXCOMBE"}),
        ("PID-24", "44 Tannery Row", {"44 Tannery Row"}),
        ("PID-30", "Leonor Hobbes", {"Leonor Hobbes"}),
        ("PID-30", "20070209", {"20070209"}),
        ("PID-8", "Baker", {"Baker"}),
        ("NK1-15", "F^Wexcombe", {"Wexcombe"}),
        # identifiers
        ("PV1-4", "MB99128", {"MB99128"}),
        ("PV1-18", "DL4471WV", {"DL4471WV"}),
        ("DG1-3", "LIC44123", {"LIC44123"}),
        ("PV1-4", "LIC44123^Urgent", {"LIC44123"}),
        ("PR1-3", "882-40-1177", {"882-40-1177"}),
        # units
        ("OBX-6", "7781^Hobbes^Leonor", {"7781", "Hobbes", "Leonor"}),
        ("OBX-6", "Kalamazoo", {"Kalamazoo"}),
        ("PV2-3", "X^Leonor Okafor^L", {"Leonor Okafor"}),
        # fields for numbers and dates
        ("AL1-3", "^WEXCOMBE, LEONOR", {"WEXCOMBE, LEONOR"}),
        ("AIG-9", "HOBBES^LEONOR", {"HOBBES", "LEONOR"}),
        ("BPO-7", "Hobbes^Leonor", {"Hobbes", "Leonor"}),
        ("BPX-14", "Wexcombe", {"Wexcombe"}),
        ("SAC-29", "19361350^^^GEN^MR", {"19361350"}),
        ("OBX-6", "Hobbes^Leonor", {"Hobbes", "Leonor"}),
        ("OBX-6", "Hobbes^Leonor^Q^^^^L", {"Hobbes", "Leonor", "Q"}),
        ("RXE-5", "6175550143", {"6175550143"}),
        ("RXA-7", "7781234^^^GEN^MR", {"7781234"}),
        ("RXO-4", "MB7781234^^^GEN", {"MB7781234"}),
    ],
)
def test_a_person_a_town_or_a_number_in_a_field_for_a_code(name: str, value: str, found: set[str]) -> None:
    assert read(field(name, value))[0] == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PV1-4", "ROUTINE"),
        ("PV1-10", "MED"),
        ("PV1-10", "MEDSURG"),
        ("PV1-10", "Cardiology"),
        ("PV1-2", "INPT"),
        ("PV1-14", "7"),
        ("PV1-18", "Emergency"),
        ("PID-16", "Married"),
        ("PID-17", "Catholic"),
        ("PID-10", "White"),
        ("PID-8", "F"),
        ("PID-8", "Unknown"),
        ("PID-8", "F^Female^HL70001"),
        ("PID-24", "N"),
        ("PID-24", "Twin"),
        ("PID-30", "CD:684730"),
        ("PV2-15", "EMP_ILL"),
        ("PV1-38", "VEG^Vegetarian^L"),
        ("DG1-3", "K50.812"),
        ("DG1-3", "K50812"),
        ("DG1-3", "O360110"),
        ("DG1-3", "Appendicitis"),
        ("DG1-3", "MB99128^Bunion^I10"),
        ("DG1-3", "^LEONOR, STENT"),
        ("PR1-3", "99213"),
        ("PR1-3", "J1234"),
        ("PR1-3", "04V0346"),
        ("FT1-25", "0042T"),
        ("OBR-4", "LAB10082^CBC^L"),
        ("OBX-3", "CBC12"),
        ("FT1-7", "LAB10082"),
        ("PRA-5", "207R00000X^Internal Medicine"),
        ("RXA-5", "0006-4047-20"),
        ("OBX-6", "mg/dL^milligram per deciliter^UCUM"),
        ("OBX-6", "mg/dL^mg/dL^L"),
        ("OBX-6", "10*12/L"),
        ("OBX-6", "100000"),
        ("OBX-6", "Gray"),
        ("OBX-6", "GY^Gray"),
        ("OBX-6", "TAB^Tablet^ISO+"),
        ("RXE-5", "tablets"),
        ("RXO-4", "Puff^Puff"),
        ("RXE-5", "Lozenge"),
        ("OBX-6", "Bethesda Units"),
        ("PV2-40", "X^Wright Giemsa^L"),
        ("SAC-29", ">^10"),
        ("SAC-29", "^1^:^128"),
        ("TQ1-3", "QOD&every other day&HL70335^HD^^^12^min^^ACM^120^s"),
        ("ERR-2", "PID^1^5"),
    ],
)
def test_a_code_stays(name: str, value: str) -> None:
    assert read(field(name, value))[0] == set()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PID|1||12^^^^^^^^^^^Wexcombe", "Wexcombe"),
        ("PID|1||12^^^GEN^Leonor", "Leonor"),
        ("PID|1||12^997591505^M10", "997591505"),
        ("PID|1||12^795K7178^M10", "795K7178"),
        ("PID|1||12^^^GEN^MR^^^^&&Leonor Hobbes&y", "Leonor Hobbes"),
        ("PID|1||12||A^B^^^^^WEXCOMBE", "WEXCOMBE"),
        ("PID|1||12||A^B^^^^^L^H159343", "H159343"),
        ("PID|1||12||A^B^^^^^L^A^&DEL WEXCOMBE", "DEL WEXCOMBE"),
        ("PID|1||12||A^B||||||1 Elm St^^^Wexcombe", "Wexcombe"),
        ("PID|1||12||A^B||||||||^WEXCOMBE^PH", "WEXCOMBE"),
        ("PID|1||12||A^B||||||||^PRN^PH^^^Leonor Hobbes", "Leonor Hobbes"),
        ("IN1|1|||GEN^L^^Leonor Hobbes", "Leonor Hobbes"),
        ("IN1|1|||GEN^^^^^^^^Wexcombe", "Wexcombe"),
        ("PV1|1|I|||||7^Bell^Amy^^^^^^GEN&6156443170", "6156443170"),
        ("ZPX|1|^Hobbes, Leonor", "Hobbes, Leonor"),
        ("ZPX|1|4111111111111111", "4111111111111111"),
        ("ZPX|1|371449635398431", "371449635398431"),
        ("ZPX|1|998877665544332", "998877665544332"),
        ("ZPX|1|KJE-1726", "KJE-1726"),
        ("ZPX|1|KJE1726", "KJE1726"),
        ("ZPX|1|QX 7712 B", "QX 7712 B"),
        ("OBR|1|ORD1^EPIC^8812447", "8812447"),
        ("OBR|1|ORD1^EPIC^PM-4386-AC559", "PM-4386-AC559"),
        ("OBX|1|NM|1^X^LN||4||||||||||||tgraves^Graves^Tobias^G", "Tobias"),
    ],
)
def test_an_identifier_in_a_component_for_something_else(line: str, found: str) -> None:
    assert found in read(line)[0]


@pytest.mark.parametrize(
    "line",
    [
        "PID|1||^7^M10^GENERAL HOSPITAL&1.2.3.4&ISO^MR^Mayo",
        "ORC|1|^Epic Beaker^1.2.3^ISO|^SPHL-000026^1.2^ISO",
        "ORC|1|^Maven EDSS|^STARLIMS.CDC.Prod",
        "ORC|1|^EPIC^2.16.840.1.113883|^LIS^05D0642827",
        "ZPX|GLU1234|LAB1001|CBC 1234|I214|999",
        "SPM|1|||119364003^Serum^SCT^SER^^L^0912017^09012017",
        "SCH|||||||||||||||||||||||||NOSHOW",
        "OBX|1|NM|1^X^LN||HEMOLYZED",
    ],
)
def test_names_of_systems_and_versions_stay(line: str) -> None:
    assert read(line)[0] == set()


@pytest.mark.parametrize(
    "line",
    [
        "OBX|1|ST|P^Method^L||ISE",
        "OBX|1|ST|WBC^WBC^L||WBC",
        "OBX|1|CWE|P^Method^L||ISE^ISE^L",
        "OBX|1|CE|P^Method^L||ELISA",
        "OBX|1|ST|P^Pain (0-10)^L||7/10",
        "OBX|1|CE|P^Finding^L||271594007^Syncope^SCT",
        "OBX|1|NM|777-3^Platelets^LN||245000",
        "OBX|1|SN|P^Ratio^L||^7^/^10",
        "PRA|||MED|I|207R00000X^Internal Medicine",
        "PCR|X|Y|Z|A|",
    ],
)
def test_clinical_values_are_not_read(line: str) -> None:
    parsed = message(line)
    texts = [n.mapped.text for n in parsed.narratives if n.role is not LeafRole.LABEL]
    assert [s.value for s in parsed.sites] + texts in ([], ["Internal Medicine"])


def test_a_word_of_the_clinic_in_a_date_field_is_text() -> None:
    assert read("PCR|X|Y|Z|A|amox") == (set(), {"amox"})
    assert read("PCR|X|Y|Z|A|leonor")[0] == {"leonor"}


@pytest.mark.parametrize("line", ["OBX|1|ST|P^Contact^L||LEE", "OBX|1|TX|P^Report^L||OKON", "OBX|1|CE|P^X^L||LEE^LEE"])
def test_a_short_name_is_read(line: str) -> None:
    sites, texts = read(line)
    assert sites | texts


def test_an_unusable_vocabulary_stops_the_start(tmp_path: pytest.TempPathFactory) -> None:
    folder = RULES.__class__(str(tmp_path)) / "hl7"
    folder.mkdir()
    codes = load_hl7_table(RULES).codes
    text = (RULES / "hl7" / "codes.toml").read_text("utf-8")
    for broken, complaint in (
        (text.replace("units =", "unit ="), "unit"),
        (text.replace("identifier = '", "identifier = '("), "identifier"),
    ):
        (folder / "codes.toml").write_text(broken, "utf-8")
        with pytest.raises(ConfigurationError, match=complaint):
            load_code_words(folder.parent, codes)

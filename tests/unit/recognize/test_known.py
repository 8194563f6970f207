"""Known PHI: values of the structured part in all forms of a note, and text that must not match."""

import pytest
from support.known import KNOWN, fact, found, person

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Subject, ValueKind
from deid_agent.model.text import Document
from deid_agent.recognize.misspellings import is_one_edit_apart

QUILLON = person("Quillon", "Beatrix Ama")


@pytest.mark.parametrize(
    "form",
    [
        "Quillon",
        "QUILLON",
        "quillon",
        "Beatrix",
        "Beatrix Quillon",
        "Beatrix A. Quillon",
        "B. Quillon",
        "B. A. Quillon",
        "Quillon, Beatrix",
        "QUILLON,BEATRIX A",
        "Quillon, Beatrix Ama",
        "quillon beatrix",
        "Beatrix\nQuillon",
        "Quilon",
        "Quilllon",
        "Qiullon",
        "Quillun",
        "B.Q.",
    ],
)
def test_forms_of_a_name(form: str) -> None:
    assert found(f"then {form}'s chart", *QUILLON) == [form]


@pytest.mark.parametrize("family", ["Do", "Le", "Ma", "Pa", "Np"])
def test_a_family_name_that_is_a_title_or_particle_is_found(family: str) -> None:
    text = f"{family}, Beatrix. Beatrix {family} came; Mr Quillon, {family} did not"
    assert found(text, *person(family, "Beatrix")) == [f"{family}, Beatrix. Beatrix {family}"]


@pytest.mark.parametrize("login", ["gohhm", "GOHHM", "hmgoh"])
def test_a_family_name_with_all_initials_is_a_login(login: str) -> None:
    assert found(f"label {login}, gohx", *person("Goh", "Hui Min")) == [login]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("by BeatrixQuillon today", ["BeatrixQuillon"]),
        ("login quillonbeatrix77 failed", ["quillonbeatrix77"]),
        ("login bquillon failed", ["bquillon"]),
        ("Quillon_Beatrix.pdf", ["Quillon", "Beatrix"]),
        ("amabeatrix", ["beatrix"]),
        ("xbeatrix", []),
    ],
)
def test_joined_names(text: str, spans: list[str]) -> None:
    assert found(text, *QUILLON) == spans


@pytest.mark.parametrize(
    ("family", "given", "text", "spans"),
    [
        ("王", "小明", "患者王小明今日入院", ["王小明"]),
        ("王", "小明", "王 小明, 王·小明", ["王 小明", "王·小明"]),
        ("王", "小明", "小明今日好转。王先生", ["小明", "王"]),
        ("王", "小明", "女王来了, 大小", []),
        ("王", "伟", "王伟好, 伟大", ["王伟"]),
        ("김", "민준", "환자 김민준은 호전됨", ["김민준"]),
        ("김", "민준", "민준이 왔다, 시민준비", ["민준"]),
        ("佐藤", "花子", "佐藤花子様と佐藤さん", ["佐藤花子", "佐藤"]),
        ("", "王小明", "患者王小明", ["王小明"]),
    ],
)
def test_names_without_blanks(family: str, given: str, text: str, spans: list[str]) -> None:
    facts = [fact("PATIENT", family, ValueKind.FAMILY), fact("PATIENT", given, ValueKind.GIVEN)]
    assert list(dict.fromkeys(found(text, *facts))) == spans


@pytest.mark.parametrize("id", ["chest", "body-height", "micro", "test", "TEST", "quixotic", "phase2", "patient-1"])
@pytest.mark.parametrize("kind", ["IDNUM", "MEDICALRECORD"])
def test_an_id_that_is_a_word_is_not_searched(id: str, kind: str) -> None:
    text = "chest pain, tested: Body height; Microbiology; quixotic; phase 2 of the test, Patient 1; phase2"
    assert found(text, fact(kind, id)) == []


@pytest.mark.parametrize(
    ("value", "text", "spans"),
    [
        ("447:190", "no 447:190 given", ["447:190"]),
        ("447#19&0", "447#19&0", ["447#19&0"]),
        ("é12345", "É12345 and é12345", ["É12345", "é12345"]),
        ("M&N12", "M&N12, MRN 12", ["M&N12"]),
        ("1:10", "titre 1:10", []),
        ("ab1234", "lab1234, ab1234x, ab1234", ["ab1234"]),
    ],
)
def test_ids_with_unusual_characters(value: str, text: str, spans: list[str]) -> None:
    assert list(dict.fromkeys(found(text, fact("MEDICALRECORD", value)))) == spans


def test_two_mentions_are_two_spans() -> None:
    assert found("Quillon came. Quillon left.", *QUILLON) == ["Quillon", "Quillon"]


@pytest.mark.parametrize("text", ["b q", "aquillon", "quills", "B.P. up", "A. B."])
def test_similar_words_are_not_the_name(text: str) -> None:
    assert found(text, *QUILLON) == []


@pytest.mark.parametrize(
    ("family", "text", "spans"),
    [
        ("van der Berghe", "Mr van der Berghe", ["van der Berghe"]),
        ("van der Berghe", "van der Waals", []),
        ("Kovalenka-Brandte", "Kovalenka called", ["Kovalenka"]),
        ("O'Quilty", "OQuilty and O'Quilty", ["OQuilty", "O'Quilty"]),
        ("Nguyễn-Mỹ", "NGUYEN-MY", ["NGUYEN-MY"]),
        ("Montañez", "Montanez", ["Montanez"]),
    ],
)
def test_compound_and_accented_names(family: str, text: str, spans: list[str]) -> None:
    assert found(text, fact("PATIENT", family, ValueKind.FAMILY)) == spans


@pytest.mark.parametrize(
    ("family", "text", "spans"),
    [
        ("Quillon", "then **Quil**lon came", ["Quil**lon"]),
        ("Quillon", "then Qui llon came", ["Qui llon"]),
        ("Quillon", "then Qui- llon came", ["Qui- llon"]),
        ("Quillon", "then Qui\n a remark \nllon came", ["Qui\n a remark \nllon"]),
        ("Goodman", "a good man\nwas\nhere, good\nno\nman", []),
        ("Quillon", "aqui llon, qui llons", []),
        ("Sædénsson", "SÆDÉNSSON came", ["SÆDÉNSSON"]),
        ("Sædénsson", "PatientNameSædénssonDOB", ["Sædénsson"]),
        ("Þorvaldsdóttir", "Thorvaldsdottir", ["Thorvaldsdottir"]),
        ("Brânzeanu", "Br\n x \nânzeanu today", ["Br\n x \nânzeanu"]),
        ("देशपाण्डेय", "after देश\nपाण्डेय and", ["देश\nपाण्डेय"]),
        ("יהושפטון", "see ליהושפטון now", ["יהושפטון"]),
        ("סימן", "see ולסימן now", ["סימן"]),
        ("סימן", "see אסימן now", []),
        ("سليمانو", "with وسليمانو today", ["سليمانو"]),
        ("イシカワムラ", "[イシカワ\n x \nムラ]", ["イシカワ\n x \nムラ"]),
        ("イシカワムラ", "[イシカワ ムラ]", ["イシカワ ムラ"]),
        ("ทองประดิษฐ์วงศ์", "ทองป\n x \nระดิษฐ์วงศ์", ["ทองป\n x \nระดิษฐ์วงศ์"]),
        ("Orvaldsen", "then Rvaldsen came", ["Rvaldsen"]),
    ],
)
def test_a_name_that_is_cut_or_touches_other_words(family: str, text: str, spans: list[str]) -> None:
    assert found(text, fact("PATIENT", family, ValueKind.FAMILY)) == spans


@pytest.mark.parametrize(
    ("family", "given", "text", "spans"),
    [
        ("Okonkwo", "Adaeze Nkem", "AO seen; pt ANO; AO's husband; Pt: AO", ["AO", "ANO", "AO", "AO"]),
        ("Okonkwo", "Adaeze Nkem", "pt AO x3, AOx3, AO valve, AXO seen, pt an, NO reports, AO/4", []),
        ("de la Cruz", "Marisol", "MDLC seen, M.d.l.C. seen", ["MDLC", "M.d.l.C."]),
        ("van der Berg", "Willem", "WvdB seen", ["WvdB"]),
        ("O'Quilty", "Siobhan", "SO'Q seen, S.O'Q. seen", ["SO'Q", "S.O'Q."]),
        ("Quillon", "Paul Thomas", "PT seen, pt PT, P.T. eval", []),
        ("Quille", "Bea", "the Quilles; Quilles' home", ["Quilles", "Quilles"]),
        ("Tran", "Bao", "trans fat, transfer", []),
        ("Oduya", "Femi", "Odyua and Odduya; Oduxa; Odua", ["Odyua", "Odduya", "Oduxa", "Odua"]),
        ("Smith", "Jon", "Jon Smiht; Jon Smth; Smiht", ["Jon Smiht", "Jon Smth", "Smiht"]),
        ("Quillon", "Bea", "Ouillon", ["Ouillon"]),
        ("Quille", "Will", "she will fret", []),
        ("King", "Bill", "Bill denies pain. bill denies, the Bill", ["Bill"]),
        ("Quille", "Will", "Will: no pain\nWill: so. Will: a\nhe Will: a", ["Will", "Will"]),
        ("Brown", "Xanthe", "Brown: stool", []),
        ("Müllerström", "Åsa", "Muellerstroem; MULLERSTROM; Åsa; ASA 81 mg", ["Muellerstroem", "MULLERSTROM", "Åsa"]),
        ("Müllerström", "Jo", "MÃ¼llerstrÃ¶m, M?llerstr?m", ["MÃ¼llerstrÃ¶m", "M?llerstr?m"]),
        ("Quillon", "Mei Ling", "Meiling or MeiLing", ["Meiling", "MeiLing"]),
        ("Tran", "Bao", "TRANBAO", ["TRANBAO"]),
        ("Quillon", "Bea", "BABYBOYQUILLON, Quillonjr", ["QUILLON", "Quillon"]),
        ("Parkinson", "Bea", "parkinsonism", []),
        ("Long", "Xanthe", "Long/Xanthe; Long_Xanthe.pdf; Xanthe (Long)", ["Long", "Xanthe"] * 2 + ["Xanthe", "Long"]),
        ("Long", "Xanthe", "Long Term/Xanthe; Long, the / Xanthe; long/Xanthe", ["Xanthe"] * 3),
        ("Long", "Xanthe", "Long's wound; Baby Girl Long; twin A Long; née Long; Long III", ["Long"] * 5),
        ("Long", "Xanthe", "long's; Long R hip; Long 3; Long-term; LONG'S", []),
        ("Long", "Xanthe", "Long managed stairs\nLong sitting. So long managed. The Long managed", ["Long"]),
        ("Ng'ang'a", "Josphat", "Ng'ang'a ambulant, Nganga to continue", ["Ng'ang'a", "Nganga"]),
        (
            "Quillon",
            "Gurpreet",
            "gurpreet q. tearful; g_quillon.pdf; gurpreet q3",
            ["gurpreet q", "g_quillon", "gurpreet"],
        ),
        ("Do", "Van Minh", "check: Do, 5 mg; Do not", ["Do"]),
        ("O'Quilty", "Maeve", "MO'Q tolerating diet; (MO'Q)", ["MO'Q"]),
        ("al-Quill", "Fatima", "Patient (FaQ) counselled; Subj FQ", ["FaQ", "FQ"]),
        ("Bell", "Xanthe", "Bell's palsy; Bell's wound", ["Bell"]),
        ("Quillon", "Bea", "Qu1ll0n; Quill0n; T10quixons", ["Qu1ll0n", "Quill0n"]),
    ],
)
def test_unusual_writings_of_a_person(family: str, given: str, text: str, spans: list[str]) -> None:
    assert found(text, *person(family, given)) == spans


def test_a_clinician_signs_with_initials() -> None:
    clinician = [
        fact("DOCTOR", "Brandvold", ValueKind.FAMILY, Subject.PROVIDER),
        fact("DOCTOR", "Sigrid", ValueKind.GIVEN, Subject.PROVIDER),
    ]
    assert found("dict: SB, D: SB, signed by SB; SB seen, SB", *clinician) == ["SB", "SB", "SB"]


@pytest.mark.parametrize(
    ("kind", "value", "text", "spans"),
    [
        ("MEDICALRECORD", "8822769", "- 882\n2769 -", ["882\n2769"]),
        ("MEDICALRECORD", "8822769", "1\n- 882\n2769 -", ["882\n2769"]),
        ("MEDICALRECORD", "8822769", "- 882\n a remark \n2769 -", ["882\n a remark \n2769"]),
        ("MEDICALRECORD", "8822769", "x 0882\n27690 or 9\n8822\n770", []),
        ("ZIP", "45601", "456\n01 mmol", []),
        ("MEDICALRECORD", "M3479085", "M34\n79085", ["M34\n79085"]),
        ("ACCOUNT", "AC2899547", "MRNAC2899547DOB", ["AC2899547"]),
        ("ACCOUNT", "AC2899547", "BAC2899547", []),
        ("MEDICALRECORD", "36766550", "see **367**66550", ["367**66550"]),
        ("PHONE", "(660) 650-1904", "at (660) 650-19\n04 now", ["660) 650-19\n04"]),
        ("SSN", "466-64-8377", "४६६-६४-८३७७", ["४६६-६४-८३७७"]),
        ("DATE", "19330826", "see 1933-\n08-26 and 1933- 08-26", ["1933-\n08-26", "1933- 08-26"]),
        ("EMAIL", "ada@jeiken.net", "to ada@ jeiken.net", ["ada@ jeiken.net"]),
        ("CITY", "Veigikrourt", "[Veigi\xadkrourt]", ["Veigi\xadkrourt"]),
        ("CITY", "Zwolle Oord", "bm90ZTogWndvbGxlwqBPb3JkLg==", ["bm90ZTogWndvbGxlwqBPb3JkLg=="]),
    ],
)
def test_a_value_that_is_cut_or_touches_other_text(kind: str, value: str, text: str, spans: list[str]) -> None:
    assert found(text, fact(kind, value)) == spans


@pytest.mark.parametrize("value", ["Quillon, Beatrix A.", "Dr. Beatrix Ama Quillon, MD", "Beatrix Quillon"])
def test_a_whole_name_in_one_value(value: str) -> None:
    assert found("B. Quillon and Beatrix", fact("DOCTOR", value, ValueKind.NAME, Subject.PROVIDER)) == [
        "B. Quillon",
        "Beatrix",
    ]


def test_nicknames() -> None:
    assert found("Liz came", *person("Quillon", "Elizabeth")) == ["Liz"]


def test_type_and_source_come_from_the_fact() -> None:
    spans = list(
        KNOWN.recognize(Document("Vanterpool", (fact("DOCTOR", "Vanterpool", ValueKind.FAMILY, Subject.PROVIDER),)))
    )
    assert [(s.type, str(s.source)) for s in spans] == [(PhiType.DOCTOR, "known:provider-name")]


@pytest.mark.parametrize(
    ("kind", "value", "text", "spans"),
    [
        ("MEDICALRECORD", "004471902", "MRN 4471902, 0004471902; 447-19-02", ["4471902", "0004471902", "447-19-02"]),
        ("MEDICALRECORD", "H-12/345", "h12345 and H 12 345", ["h12345", "H 12 345"]),
        ("MEDICALRECORD", "4471902", "14471902 44719021 4471902.5 4.4471902", []),
        ("MEDICALRECORD", "4471", "4471 mL; MRN 4471", ["4471"]),
        ("MEDICALRECORD", "447", "MRN 447, no 447, 447 mL", ["447"]),
        ("ACCOUNT", "V00618823", "v00618823", ["V00618823".lower()]),
        (
            "PHONE",
            "(740) 555-0183",
            "740.555.0183 or 7405550183 or 740 555 0183",
            ["740.555.0183", "7405550183", "740 555 0183"],
        ),
        ("SSN", "123-45-6789", "123456789, xxx-xx-6789, last 4: 6789, code 6789", ["123456789", "6789", "6789"]),
        ("ZIP", "45601", "45601 and 45601-2210", ["45601", "45601"]),
        ("DATE", "19410917", "born 17 Sep 1941, 9/17/41; seen 9/18/41", ["17 Sep 1941", "9/17/41"]),
        ("EMAIL", "Ada@Example.org", "ada@example.org, xada@example.org", ["ada@example.org"]),
        ("STREET", "218 Tannery Row Apt 4", "218 tannery row, apt 4; 218 Tannery Row; on Tannery Row", None),
        ("STREET", "4417 Windermere", "near Windermere", ["Windermere"]),
        ("STREET", "4417B Windermere Hollow", "on windermere hollow", ["windermere hollow"]),
        ("STREET", "9 Elm Street", "9 Elm St. and 9 elm street", ["9 Elm St", "9 elm street"]),
        ("CITY", "Chillicothe", "CHILLICOTHE", ["CHILLICOTHE"]),
        ("CITY", "Reading", "reading well", []),
        ("STATE", "OR", "to the OR", []),
        ("HOSPITAL", "Holloway Memorial Hospital", "Holloway Memorial; HOLLOWAY MEMORIAL HOSPITAL", None),
    ],
)
def test_values(kind: str, value: str, text: str, spans: list[str] | None) -> None:
    got = found(text, fact(kind, value))
    if spans is None:
        assert {part.strip() for part in text.replace("on Tannery", "Tannery").split(";")} <= set(got)
    else:
        assert got == spans


def test_without_facts_nothing_is_found() -> None:
    assert found("Quillon 4471902") == []


@pytest.mark.parametrize(
    ("a", "b", "close"),
    [
        ("quillon", "quilon", True),
        ("quillon", "qiullon", True),
        ("quillon", "quillons", True),
        ("quillon", "quillan", True),
        ("quillon", "quillon", False),
        ("quillon", "qillan", False),
        ("quillon", "quiollnn", False),
        ("abcdef", "badcfe", False),
    ],
)
def test_one_edit(a: str, b: str, close: bool) -> None:
    assert is_one_edit_apart(a, b) is close
    assert is_one_edit_apart(b, a) is close


@pytest.mark.parametrize(
    ("family", "given", "text", "spans"),
    [
        ("O'Leary", "Ines", "O‘Leary, O`LEARY; o'lery", ["O‘Leary", "O`LEARY", "o'lery"]),
        ("Ng'ang'a", "Josphat", "NG'ANG'A and Ngʼangʼa", ["NG'ANG'A", "Ngʼangʼa"]),
        ("van der Quell", "Ines", "vanderquell; vn der Quell", ["vanderquell", "vn der Quell"]),
        ("St Quell", "Ines", "StQuell then St Qell", ["StQuell", "St Qell"]),
        ("Kahananui", "Kealiʻi", "Keali'i slept", ["Keali'i"]),
        ("Quellan", "Jean-Luc", "Jean-Lcu Quellan", ["Jean-Lcu", "Quellan"]),
        ("Quelling", "Ines", "Quel-\nling", ["Quel-\nling"]),
        ("Fernández", "Ines", "Femández; Fernand3z; F3rnandez", ["Femández", "Fernand3z", "F3rnandez"]),
        ("Quixwell", "Ines", "Quixvvell; QuixweIl; Qu1xwe1l", ["Quixvvell", "QuixweIl", "Qu1xwe1l"]),
        ("Zhang", "Ines", "Zhng; Zhagn; zhxng", ["Zhng", "Zhagn", "zhxng"]),
        ("Castlereagh", "Ines", "castelraegh; Castlerehg", ["castelraegh", "Castlerehg"]),
        ("Kos", "Ivo", "K o s; the Koss; ivokos", ["K o s", "Koss", "ivokos"]),
        ("Okafor", "Ada", "PtOkaforseen; adokafor; okafora2", ["Okafor", "adokafor", "okafora2"]),
        ("Bauer", "Ines", "Bayer aspirin; the baker; tibial", []),
        ("Tibbia", "Ines", "the tibia; tibial", []),
    ],
)
def test_careless_writings(family: str, given: str, text: str, spans: list[str]) -> None:
    covered = ["."] * len(text)
    for span in KNOWN.recognize(Document(text, person(family, given))):
        covered[span.start : span.end] = text[span.start : span.end]
    assert [part for part in "".join(covered).split(".") if part] == spans

"""The entry, the key, the lists and the other methods of a policy."""

import gc
import pickle
import re
import shutil
import time
from pathlib import Path

import pytest
from support.surrogates import ROOT, SCOPE, SECRET, replace, surrogates

from deid_agent import policy, resources
from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.policy import Method
from deid_agent.recognize.registry import load_rules
from deid_agent.replacer import Replacer
from deid_agent.sites import Kind
from deid_agent.spans import Span
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import ANY, PARTS, load
from deid_agent.surrogate.methods import RESTRICTED_ZIP3, generalize, mask, redact
from deid_agent.surrogate.names import _ENOUGH, _LETTERS, one_edit_apart
from deid_agent.surrogate.shape import fold

MADE = surrogates()
LISTS = load(resources.folder("rules"))


def test_an_empty_secret_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="16 random bytes"):
        Surrogates(b"")


def test_a_shift_range_without_a_week_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="at least 7"):
        Surrogates(SECRET, max_shift_days=6)


def test_a_rules_folder_without_names_stops_the_start(tmp_path: Path) -> None:
    shutil.copytree(resources.folder("rules") / "surrogate", tmp_path / "surrogate")
    shutil.rmtree(tmp_path / "surrogate" / "names")
    with pytest.raises(ConfigurationError, match="no surrogate lists of names"):
        Surrogates(SECRET, rules=tmp_path)


def test_nothing_of_scope_key_or_maker_shows_in_a_repr() -> None:
    scope = Scope("the document", "the patient", people=(("Ada", "Okafor"),))
    shown = repr(scope) + repr(MADE) + repr(Key(SECRET)) + repr(MADE._make_namer(PhiType.PATIENT, "s", (("Ada", "O"),)))
    assert not any(word in shown for word in ("the document", "the patient", "Ada", "secret", str(SECRET)))


def test_the_maker_is_not_pickled_with_its_secret() -> None:
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(MADE)


def test_the_name_scope_says_within_what_names_agree() -> None:
    scopes = [Scope(f"d{n}", f"p{n}") for n in range(20)]
    by_feed, by_patient = MADE, Surrogates(SECRET, name_scope="patient")
    assert len({replace(by_feed, PhiType.PATIENT, "Ada Okafor", scope=scope) for scope in scopes}) == 1
    assert len({replace(by_patient, PhiType.PATIENT, "Ada Okafor", scope=scope) for scope in scopes}) > 10
    assert len({replace(by_patient, PhiType.DOCTOR, "Ada Okafor", scope=scope) for scope in scopes}) == 1
    one, again = Scope("d1", "p1"), Scope("d9", "p1")
    assert replace(by_patient, PhiType.PATIENT, "Okafor", scope=one) == replace(
        by_patient, PhiType.PATIENT, "Okafor", scope=again
    )


def test_an_area_code_maps_alike_alone_and_in_its_number() -> None:
    whole = replace(MADE, PhiType.PHONE, "740-555-0183", scope=Scope("d"))
    parts = [replace(MADE, PhiType.PHONE, part, scope=Scope("d")) for part in ("740", "5550183")]
    assert whole.replace("-", "") == "".join(parts)


def test_date_scope_says_what_shares_a_shift() -> None:
    by_document, by_patient = Surrogates(SECRET), Surrogates(SECRET, date_scope="patient")
    scopes = [Scope(f"d{n}", "p1") for n in range(20)]
    assert len({by_document.shift_days(scope) for scope in scopes}) > 10
    assert len({by_patient.shift_days(scope) for scope in scopes}) == 1
    assert by_patient.shift_days(Scope("d1")) == by_document.shift_days(Scope("d1"))
    names = [f"n{n}" for n in range(20)]
    assert any(by_patient.shift_days(Scope(name)) != by_patient.shift_days(Scope("", name)) for name in names)


def test_a_patient_never_takes_the_scope_of_a_document() -> None:
    scopes, by_patient = (Scope("x"), Scope("y", "x")), Surrogates(SECRET, name_scope="patient")
    assert len({replace(by_patient, PhiType.PATIENT, "Ada Okafor", scope=scope) for scope in scopes}) == 2


def test_patient_and_doctor_of_one_name_are_apart() -> None:
    names = ["Okafor", "Smith", "Keller", "Haverty", "Castellano", "Lindqvist", "Ruiz", "Ito", "Novak", "Berg"] * 3
    pairs = [replace(MADE, t, name, scope=Scope("d")) for name in names for t in (PhiType.PATIENT, PhiType.DOCTOR)]
    assert sum(a != b for a, b in zip(pairs[::2], pairs[1::2], strict=True)) > 20


def test_identifiers_join_across_types_scopes_and_writing() -> None:
    made = {
        replace(MADE, type_, value, scope=scope).replace("-", "")
        for type_ in (PhiType.MEDICALRECORD, PhiType.IDNUM, PhiType.ACCOUNT)
        for value in ("1234567", "123-4567")
        for scope in (SCOPE, Scope(""))
    }
    assert len(made) == 1


def test_leading_zeros_separators_and_case_join_an_identifier() -> None:
    def made(value: str) -> str:
        return replace(MADE, PhiType.MEDICALRECORD, value)

    assert made("0004471902") == f"000{made('4471902')}"
    assert made("04471902") == f"0{made('4471902')}"
    letters, figures = made("AB-4471902").split("-")
    assert (made("AB4471902"), made("ab 4471902")) == (letters + figures, f"{letters.lower()} {figures}")
    assert made("AB0004471902") == f"{letters}000{figures}"
    assert replace(MADE, PhiType.ZIP, "45601-1234")[:5] == replace(MADE, PhiType.ZIP, "45601")


@pytest.mark.parametrize(
    ("forms", "people"),
    [
        ("O'Brien|OBRIEN|O Brien|o’brien|Obrien|O'BRIEN", ()),
        ("D'Angelo|DANGELO|d angelo", ()),
        ("O'Zyblorq|OZYBLORQ|O Zyblorq", (("Ada", "O'Zyblorq"),)),
    ],
)
@pytest.mark.parametrize("like", ["{}", "Ada {}", "{}, Ada", "Mrs. {}", "{}'s"])
def test_an_elided_letter_is_one_name_in_all_its_forms(
    forms: str, people: tuple[tuple[str, str], ...], like: str
) -> None:
    scope = Scope("d", people=people)
    for kind in (Kind.NAME, Kind.FAMILY) if like == "{}" else (Kind.NAME,):
        new = [replace(MADE, PhiType.PATIENT, like.format(f), kind=kind, scope=scope) for f in forms.split("|")]
        assert len({re.sub(r"[ '’]", "", name).lower() for name in new}) == 1
        assert [re.sub(r"[^ '’]+", "", name) for name in new] == [
            re.sub(r"[^ '’]+", "", like.format(f)) for f in forms.split("|")
        ]


def test_an_initial_with_its_full_stop_is_no_elided_letter() -> None:
    assert not replace(MADE, PhiType.PATIENT, "Ada O. Brien", kind=Kind.NAME).split()[1].startswith("O")


def test_the_last_four_agree_with_the_whole_number() -> None:
    whole = replace(MADE, PhiType.SSN, "123-45-6789")
    assert replace(MADE, PhiType.SSN, "6789") == whole[-4:]
    assert replace(MADE, PhiType.SSN, "xxx-xx-6789") == f"xxx-xx-{whole[-4:]}"


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        ("SSN", "219-09-9999"),
        ("SSN", "xxx-xx-1234"),
        ("PHONE", "740-555-0184"),
        ("PHONE", "(740) 555-0184 x12"),
        ("FAX", "+44 20 7946-0418"),
        ("MEDICALRECORD", "447-19-02"),
        ("DATE", "03-04-2019"),
    ],
)
@pytest.mark.parametrize("dash", "\u2010\u2011\u2012\u2013\u2212")
@pytest.mark.parametrize("blank", " \u00a0\u202f")
def test_a_number_with_other_dashes_and_blanks_is_the_same_number(
    type_: str, plain: str, dash: str, blank: str
) -> None:
    signs = {ord("-"): dash, ord(" "): blank}
    expected = replace(MADE, PhiType(type_), plain).translate(signs)
    assert replace(MADE, PhiType(type_), plain.translate(signs)) == expected


def test_a_social_security_number_with_room_around_its_dashes_is_the_same_number() -> None:
    expected = replace(MADE, PhiType.SSN, "219-09-9999")
    assert replace(MADE, PhiType.SSN, "219 - 09 - 9999") == expected.replace("-", " - ")
    assert replace(MADE, PhiType.SSN, "219-09-\r\n9999") == expected[:7] + "\r\n" + expected[7:]


def test_a_local_number_agrees_with_its_full_one() -> None:
    full = replace(MADE, PhiType.PHONE, "(617) 253-1000")
    assert replace(MADE, PhiType.FAX, "253-1000") == full[-8:]
    assert replace(MADE, PhiType.PHONE, "+1 617.253.1000")[-12:].replace(".", "") == full.replace(") ", "").strip(
        "("
    ).replace("-", "")


def test_gender_and_origin_are_kept() -> None:
    scopes = [Scope("d", f"p{n}") for n in range(40)]
    women = {replace(MADE, PhiType.PATIENT, "Elizabeth", Kind.GIVEN, scope) for scope in scopes}
    assert all(LISTS.has("female", name.lower()) for name in women)
    names = {replace(MADE, PhiType.PATIENT, "Hernández", Kind.FAMILY, scope) for scope in scopes}
    spanish = {word.lower() for word in LISTS.pools["es", "family"].words}
    assert sum(name.lower() in spanish for name in names) > len(names) // 2


def test_an_organisation_is_one_in_the_whole_feed_and_initials_follow_it() -> None:
    full = replace(MADE, PhiType.HOSPITAL, "Roper Bend Hospital")
    assert full == replace(MADE, PhiType.HOSPITAL, "Roper Bend Hospital", scope=Scope("other"))
    first, second, _ = full.split()
    assert replace(MADE, PhiType.HOSPITAL, "RBH") == f"{first[0]}{second[0]}H"


def test_zip_and_state_agree_for_every_prefix() -> None:
    states = {p: state for state, ranges in LISTS.tables["zip3"].items() for p in _prefixes(ranges)}
    for prefix, state in states.items():
        new = replace(MADE, PhiType.ZIP, f"{prefix}17")
        assert states[new[:3]] == state
        if any(p not in RESTRICTED_ZIP3 for p, s in states.items() if s == state):
            assert new[:3] not in RESTRICTED_ZIP3


def _prefixes(ranges: str) -> list[str]:
    parts = [part.split("-") for part in ranges.split()]
    return [f"{n:03d}" for part in parts for n in range(int(part[0]), int(part[-1]) + 1)]


def test_every_letter_has_names_enough_to_begin_with() -> None:
    for letter in _LETTERS:
        for part in PARTS:
            assert len(LISTS.pools["en", part].by_letter[letter]) >= _ENOUGH
            assert all(
                word[0].upper() == letter for word in LISTS.pools["en", part].by_letter[letter] if word.isascii()
            )
    assert LISTS.pools[ANY, "family"].words


def test_broken_lists_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no surrogate lists of names"):
        Surrogates(SECRET, rules=tmp_path)
    names = tmp_path / "surrogate" / "names"
    names.mkdir(parents=True)
    (names / "en.toml").write_text("script = ", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"en\.toml"):
        load.__wrapped__(tmp_path)


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        ("okafor", "okafro", True),
        ("okafor", "okaforr", True),
        ("okafor", "kafor", True),
        ("okafor", "okafur", True),
        ("okafor", "okafor", False),
        ("okafor", "okfaro", False),
        ("okafor", "oka", False),
        ("", "a", True),
    ],
)
def test_one_edit(a: str, b: str, near: bool) -> None:
    assert one_edit_apart(a, b) == near == one_edit_apart(b, a)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("DATE", "20240224134009", "2024"),
        ("DATE", "20240224", "2024"),
        ("DATE", "2024-02-24", "2024"),
        ("DATE", "2024-02", "2024"),
        ("DATE", "2015-02-07T13:28:17.239+02:00", "2015"),
        ("DATE", "2024", "2024"),
        ("DATE", "2019T10:00", "2019"),
        ("DATE", "202402", "2024"),
        ("DATE", "3/4/2019", "2019"),
        ("DATE", "3/4/19", "2019"),
        ("DATE", "March 4th, 2019", "2019"),
        ("DATE", "'98", "1998"),
        ("DATE", "spring of 2014", "2014"),
        ("DATE", "06141955", "1955"),
        ("DATE", "3/4", "[**DATE**]"),
        ("DATE", "Tuesday", "[**DATE**]"),
        ("DATE", "13/45/99", "[**DATE**]"),
        ("ZIP", "02139", "021"),
        ("ZIP", "03601-1234", "000"),
        ("ZIP", "K1A 0B1", "[**ZIP**]"),
        ("AGE", "47", "47"),
        ("AGE", "89", "89"),
        ("AGE", "90", "90 or older"),
        ("AGE", "ninety-two", "90 or older"),
        ("AGE", "93 months", "93 months"),
        ("AGE", "92.5", "90 or older"),
        ("AGE", "92 M", "90 or older"),
        ("STATE", "TX", "TX"),
        ("PATIENT", "Ada", "[**PATIENT**]"),
        ("LOCATION-OTHER", "Ada Park", "[**LOCATION-OTHER**]"),
    ],
)
def test_generalize(type_: str, value: str, expected: str) -> None:
    assert generalize(PhiType(type_), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1933-12-31", "1934"),  # 90 or older, in one category: 45 CFR 164.514(b)(2)(i)(C)
        ("19200719", "1934"),
        ("1920", "1934"),
        ("1934-03-01", "1934"),
        ("1935-01-01", "1935"),
        ("2024-03-11", "2024"),
        ("Tuesday", "[**DATE**]"),
    ],
)
def test_a_year_that_tells_an_age_over_89_joins_one_category(value: str, expected: str) -> None:
    assert generalize(PhiType.DATE, value, now=2024) == expected


def test_other_methods() -> None:
    assert generalize(PhiType.DATE, "Tuesday", blank="") == ""
    assert redact(PhiType.PATIENT) == ""
    assert all(not set(mask(type_)) & set('|^~\\&<>"\n') for type_ in PhiType)
    assert len(RESTRICTED_ZIP3) == 17
    assert MADE.replace(PhiType.IDNUM, "4711", kind=Kind.REDACT, scope=SCOPE) == "[**IDNUM**]"


@pytest.mark.parametrize("type_", list(PhiType))
@pytest.mark.parametrize("unit", ["a", "1", "-", "ab:", "x ", "1/", "('", "a@", "\n", "1:", "Mar "])
def test_long_values_take_no_long_time(type_: PhiType, unit: str) -> None:
    """A hostile message must not hold a worker: fifty thousand characters of anything stay under two seconds."""
    value = unit * (50_000 // len(unit))
    gc.disable()  # to collect the garbage of a process that ran all tests takes seconds, too
    begin = time.process_time()
    try:
        replace(MADE, type_, value)
    finally:
        gc.enable()
    assert time.process_time() - begin < 2


def test_no_letter_of_clinic_days_tells_the_shift() -> None:
    """T alone is a Tuesday, not the T of a time stamp: where it stayed, others beside it would tell the move."""
    for number in range(40):
        scope = Scope(f"D{number}")
        moved = [replace(MADE, PhiType.DATE, day, scope=scope) for day in ("M", "T", "W", "Th", "F", "S", "Su")]
        assert all(new != old for new, old in zip(moved, ("M", "T", "W", "Th", "F", "S", "Su"), strict=True))
        assert moved[1].upper() == replace(MADE, PhiType.DATE, "t", scope=scope).upper()
    assert replace(MADE, PhiType.DATE, "00000000T000000") == "00000000T000000"


def test_a_season_alone_is_never_what_patients_do() -> None:
    made = {replace(MADE, PhiType.DATE, "winter", scope=Scope(f"D{number}")) for number in range(60)}
    assert made == {"autumn", "spring", "summer", "winter"}
    assert "fall" in {replace(MADE, PhiType.DATE, "winter 2006", scope=Scope(f"D{n}")).split()[0] for n in range(60)}


def test_a_known_name_is_known_wherever_it_stands() -> None:
    """The tagger joins names over a line end: the second line's family name stands behind the first line's comma."""
    scope = Scope("d", people=(("Ada", "Okafor"),))
    family, given = replace(MADE, PhiType.PATIENT, "Okafor, Ada", scope=scope).split(", ")
    joined = replace(MADE, PhiType.PATIENT, "Okafor, Ada\nOKAFOR", scope=scope)
    assert joined == f"{family}, {given}\n{family.upper()}"


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("Do", "Minh"),
        ("Le", "Minh Duc"),
        ("Van", "Sokha"),
        ("Du", "Wei"),
        ("Ni", "Hao Ran"),
        ("Abu", "Kofi"),
        ("Pa", "Chou"),
        ("Ma", "Yo"),
        ("Miss", "Ann"),
        ("Md", "Rahman"),
        ("Nguyen", "Van"),
    ],
)
def test_a_name_that_is_a_particle_title_or_credential_too_is_replaced(family: str, given: str) -> None:
    scope = Scope("d", people=((given, family),))
    new = replace(MADE, PhiType.PATIENT, family, Kind.FAMILY, scope=scope)
    first = replace(MADE, PhiType.PATIENT, given, Kind.GIVEN, scope=scope)
    for written in ("{0} {1}", "{1} {0}", "{0}, {1}"):
        was, expected = written.format(family, given), written.format(new, first)
        assert replace(MADE, PhiType.PATIENT, was, scope=scope) == expected
        assert replace(MADE, PhiType.PATIENT, was.upper(), scope=scope) == expected.upper()


@pytest.mark.parametrize(
    ("name", "stays"),
    [("van Berg", "van"), ("Baby Okafor", "Baby"), ("Okafor, MD", "MD"), ("Dr Okafor", "Dr"), ("Okafor MA", "MA")],
)
def test_a_word_that_names_nobody_stays_in_a_text_that_tells_no_people(name: str, stays: str) -> None:
    made = Replacer(policy.load("pseudonymised", ROOT / "rules"), MADE)
    (new,) = made.findings(name, [Span(0, len(name), PhiType.DOCTOR, "a")], [Method.SURROGATE], Scope("d"))
    assert stays in re.findall(r"\w+", new)
    told = Scope("d", people=(("Baby", "Okafor"), ("Jr", "Okafor")))
    assert replace(MADE, PhiType.PATIENT, "Baby Okafor Jr", scope=told).startswith("Baby ")


def test_an_irish_particle_stays_in_field_and_text() -> None:
    family = replace(MADE, PhiType.PATIENT, "Ó Súilleabháin", Kind.FAMILY)
    assert family.startswith("Ó ")
    assert replace(MADE, PhiType.PATIENT, "Súilleabháin", Kind.FAMILY) == family[2:]
    assert replace(MADE, PhiType.PATIENT, "Ó Súilleabháin, Tadhg").startswith(f"{family}, ")


@pytest.mark.parametrize(
    ("value", "like"),
    [
        ("45 Park Ave", "[1-9][0-9] (?!Park)[A-Z][a-z]+ Ave"),
        ("12 N Hill St", "[1-9][0-9] N (?!Hill)[A-Z][a-z]+ St"),
        ("South Street", "(?!South)[A-Z][a-z]+ Street"),
        ("388 East 700 North", "(?!388)[0-9]{3} East (?!700)[0-9]{3} North"),
        ("RR 2 Box 118", "RR [13-9] Box (?!118)[0-9]{3}"),
        ("146-01 45th Ave", "(?!146)[0-9]{3}-0[2-9] (?!45)[1-9][0-9](?:st|nd|rd|th) Ave"),
        ("1455 7th Avenue, 2nd Floor", "(?!1455)[0-9]{4} [1-9](?:st|nd|rd|th) Avenue, [1-9](?:st|nd|rd|th) Floor"),
        ("1 Valley Rd", "[2-9] [A-Z][a-z]+ Rd"),
        ("725 Mt. Rushmore Rd", "[1-9][0-9]{2} Mt[.] [A-Z][A-Za-z]+ Rd"),
    ],
)
def test_streets_lose_name_and_every_number(value: str, like: str) -> None:
    """A street named after a kind of street; numbers beside an ordinal; no house is number 0."""
    for number in range(30):
        made = Surrogates(b"a secret of streets %d" % number)
        assert re.fullmatch(like, replace(made, PhiType.STREET, value)), value


@pytest.mark.parametrize("word", ["Methodist", "Baptist", "Dialysis", "Retreat", "Assisted Living"])
def test_the_kind_of_a_site_stays(word: str) -> None:
    new = replace(MADE, PhiType.HOSPITAL, f"Whetstone {word}")
    assert new.endswith(f" {word}")
    assert "Whetstone" not in new


def test_a_kind_alone_is_a_name() -> None:
    assert replace(MADE, PhiType.HOSPITAL, "Methodist") != "Methodist"
    assert not replace(MADE, PhiType.HOSPITAL, "Baptist Hospital").startswith("Baptist")


def test_no_surrogate_name_is_an_ordinary_word() -> None:
    """A tagger, and a reader, would take "Dr. More" or "Foley" for something else."""
    lexicons = load_rules(ROOT / "rules").lexicons
    words = lexicons["common"] | lexicons["not-name"] | lexicons["name-title"] | LISTS.sets["ordinary"]
    latin = [pool for pool in LISTS.pools.values() if pool.by_letter]
    assert latin
    assert not {fold(name) for pool in latin for name in pool.words} & {fold(word) for word in words}
    assert not [name for pool in latin for name in pool.words if name.isupper()]
    assert LISTS.has("family", "foley"), "it is still read as a name"


def test_typists_initials_stay_initials() -> None:
    assert re.fullmatch("[a-z]{3}", replace(MADE, PhiType.DOCTOR, "plk"))
    assert len(replace(MADE, PhiType.DOCTOR, "obi")) > 2


@pytest.mark.parametrize("kind", ["payers", "public_payers", "state_payers"])
def test_a_payer_of_a_country_becomes_another_of_them(kind: str) -> None:
    payers = LISTS.phrases[kind]
    made = [replace(MADE, PhiType.ORGANIZATION, payer) for payer in payers]
    assert sorted(made) == sorted(payers)
    assert all(new != old for new, old in zip(made, payers, strict=True))
    assert replace(MADE, PhiType.ORGANIZATION, payers[0].upper()) == made[0].upper()


@pytest.mark.parametrize(
    ("type_", "value", "like"),
    [
        (PhiType.ZIP, "LS21 3HJ", "(?!LS)[A-Z]{2}[1-9][0-9] [0-9][ABD-HJLNP-UW-Z]{2}"),
        (PhiType.ZIP, "W1A 1AA", "[BEGLMNS][1-9][A-Z] [0-9][ABD-HJLNP-UW-Z]{2}"),
        (PhiType.ZIP, "H91 YR71", "[AC-FKNPRTV-Y][0-9]{2} [AC-FHKNPRTV-Y]{2}[0-9]{2}"),
        (PhiType.ZIP, "D6W XH70", "[AC-FHKNPRTV-Y][0-9]W [AC-FHKNPRTV-Y]{2}[0-9]{2}"),
        (PhiType.VEHICLE, "1FUJGEDV8ELFS4417", "[0-9][A-HJ-NPR-Z]{7}[0-9][A-HJ-NPR-Z]{4}[0-9]{4}"),
        (PhiType.HEALTHPLAN, "1EG4-TE5-MK73", "[1-9]LL[0-9]-LL[0-9]-LL[0-9]{2}".replace("L", "[AC-HJKMNP-RT-Y]")),
    ],
)
def test_letters_are_those_that_the_form_allows(type_: PhiType, value: str, like: str) -> None:
    for number in range(40):
        new = replace(Surrogates(b"a secret of forms %d" % number), type_, value)
        assert re.fullmatch(like, new)
        assert new != value


def test_clinic_days_in_small_letters_move_too() -> None:
    assert replace(MADE, PhiType.DATE, "mwf") == replace(MADE, PhiType.DATE, "MWF").lower() != "mwf"


def test_a_known_particle_in_capitals_is_no_given_name() -> None:
    scope = Scope("d", people=(("Pieter", "van der Berg"),))
    family = replace(MADE, PhiType.PATIENT, "van der Berg", Kind.FAMILY, scope=scope)
    assert replace(MADE, PhiType.PATIENT, "VAN DER BERG", scope=scope) == family.upper()
    assert family.startswith("van der ")


def test_a_document_that_comes_again_finds_its_values_in_the_cache() -> None:
    made = surrogates()
    for name in ("a", "b", "a", "b"):
        made.replace(PhiType.CITY, "Harlow", kind=Kind.VALUE, scope=Scope(name))
    assert made._replace.cache_info().misses == 2


@pytest.mark.parametrize("unit", ["Ada-", "Ada ", "A-", "Ada, "])
def test_a_name_of_thousands_of_words_is_replaced_too(unit: str) -> None:
    value = unit * 5_000 + "Vane"
    new = MADE.replace(PhiType.PATIENT, value, kind=Kind.NAME, scope=SCOPE)
    assert "Ada" not in new
    assert "Vane" not in new


@pytest.mark.parametrize("value", ["3/4/19 3/5/19", "3/4/2019, 3/5/2019", "2019-03-04 2019-03-05", "3/4/19\n3/5/19"])
def test_a_second_date_in_one_value_does_not_stay(value: str) -> None:
    new = MADE.replace(PhiType.DATE, value, kind=Kind.VALUE, scope=SCOPE)
    assert not [day for day in re.split(r",?\s", value) if day in new]


def test_a_second_address_in_one_value_does_not_stay() -> None:
    new = MADE.replace(PhiType.EMAIL, "ada.vane@x.org okafor@y.org", kind=Kind.VALUE, scope=SCOPE)
    assert "okafor" not in new
    assert "y.org" not in new


@pytest.mark.parametrize(("value", "mark"), [("M/W/F", "/"), ("M W F", " "), ("Tu/Th", "/")])
def test_clinic_days_apart_move_as_those_together_do(value: str, mark: str) -> None:
    new = replace(MADE, PhiType.DATE, value)
    assert new.replace(mark, "") == replace(MADE, PhiType.DATE, value.replace(mark, "")) != value.replace(mark, "")
    assert new.count(mark) == value.count(mark)


@pytest.mark.parametrize("value", ["M-F", "M/W/X", "W/wound"])
def test_what_is_no_list_of_clinic_days_is_masked(value: str) -> None:
    assert replace(MADE, PhiType.DATE, value) == "[**DATE**]"


@pytest.mark.parametrize("town", ["Karak", "Ponce", "Bauan", "Rome"])
def test_a_short_town_in_capitals_is_the_same_town(town: str) -> None:
    assert replace(MADE, PhiType.CITY, town.upper()) == replace(MADE, PhiType.CITY, town).upper()
    assert len(replace(MADE, PhiType.CITY, "NYC")) == 3


def test_initials_and_mount_agree_in_a_site_and_in_its_line_in_capitals() -> None:
    for site in ("Kinnaird TB Services", "Mt Tyson Hospital", "Mount Tyson Hospital"):
        new = replace(MADE, PhiType.HOSPITAL, site)
        assert replace(MADE, PhiType.HOSPITAL, site.upper()) == new.upper()
        assert not {"tyson", "kinnaird", "tb"} & set(new.lower().split())


@pytest.mark.parametrize("kind", ["Road Surgery", "Street Surgery", "Base Hospital", "Polyclinic"])
def test_what_a_site_is_called_by_stays_beside_its_name(kind: str) -> None:
    """Picton Road Surgery and PICTON ROAD SURGERY are found again as a site, and name another road."""
    for written in (str, str.upper):
        new = replace(MADE, PhiType.HOSPITAL, written(f"Picton {kind}"))
        assert new.endswith(written(kind))
        assert "picton" not in new.lower()


def test_a_kind_that_is_a_surname_too_does_not_stay() -> None:
    assert "Chu" not in replace(MADE, PhiType.HOSPITAL, "Chu & Park Dental")
    assert "Lane" not in replace(MADE, PhiType.HOSPITAL, "Ada Lane Clinic")

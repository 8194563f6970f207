"""Surrogates of identifiers and telephone numbers."""

import re

import pytest
from support.surrogates import SCOPE, replace, surrogates

from deid_agent.model.phi import PhiType
from deid_agent.surrogate import Scope, Surrogates

MADE = surrogates()


def test_an_area_code_maps_alike_alone_and_in_its_number() -> None:
    whole = replace(MADE, PhiType.PHONE, "740-555-0183", scope=Scope("d"))
    parts = [replace(MADE, PhiType.PHONE, part, scope=Scope("d")) for part in ("740", "5550183")]
    assert whole.replace("-", "") == "".join(parts)


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


def test_a_social_security_number_with_spaces_around_its_dashes_is_the_same_number() -> None:
    expected = replace(MADE, PhiType.SSN, "219-09-9999")
    assert replace(MADE, PhiType.SSN, "219 - 09 - 9999") == expected.replace("-", " - ")
    assert replace(MADE, PhiType.SSN, "219-09-\r\n9999") == expected[:7] + "\r\n" + expected[7:]


def test_a_local_number_agrees_with_its_full_one() -> None:
    full = replace(MADE, PhiType.PHONE, "(617) 253-1000")
    assert replace(MADE, PhiType.FAX, "253-1000") == full[-8:]
    assert replace(MADE, PhiType.PHONE, "+1 617.253.1000")[-12:].replace(".", "") == full.replace(") ", "").strip(
        "("
    ).replace("-", "")


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
def test_surrogates_use_only_letters_that_the_form_allows(type_: PhiType, value: str, like: str) -> None:
    for number in range(40):
        new = replace(Surrogates(b"a secret of forms %d" % number), type_, value)
        assert re.fullmatch(like, new)
        assert new != value

"""Properties of surrogates for every string, key and scope."""

import re
from datetime import date, datetime, timedelta

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.surrogates import NAMES, SCOPE, SECRET, form_of, replace, surrogates

from deid_agent.model.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules.checks import checksum_scheme, is_dea, is_nhs, is_npi, is_vin
from deid_agent.surrogate import DateShifts, NamedPerson, Scope, Surrogates
from deid_agent.surrogate.dates import DEFAULTS
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.shape import fold, fold_all, has_content, is_same_text

MADE = surrogates()
ANOTHER = Surrogates(b"another secret of the tests")
TYPES = st.sampled_from(sorted(PhiType))
IDS = sorted(t for t in PhiType if CATEGORY[t] is PhiCategory.ID)
MUST_DIFFER = sorted(set(PhiType) - {PhiType.AGE, PhiType.STATE, PhiType.COUNTRY, PhiType.DATE})
ANY_TEXT = st.text(max_size=40) | st.text("AaBz09 -.,/'\"()\n\r\t@:#x", max_size=40)
DAYS = st.dates(min_value=date(1900, 1, 1), max_value=date(2150, 12, 31)).filter(lambda day: day not in DEFAULTS)


@settings(max_examples=400)
@given(TYPES, ANY_TEXT, st.sampled_from(list(ValueKind)), st.text(max_size=5), st.none() | st.text(max_size=5))
@example(PhiType.DATE, "March\n4,\r\n2019", ValueKind.VALUE, "", None)
@example(PhiType.PATIENT, "\ud800", ValueKind.NAME, "\ud800", None)
@example(PhiType.PHONE, "²³", ValueKind.VALUE, "", "")
def test_no_string_raises_and_outer_spaces_and_line_breaks_are_kept(
    type_: PhiType, value: str, kind: ValueKind, document: str, patient: str | None
) -> None:
    new = MADE.replace(type_, value, kind=kind, scope=Scope(document, patient))
    assert bool(new) == bool(value)
    assert new.count("\n") == value.count("\n")
    core = value.strip()
    assert new.startswith(value[: len(value) - len(value.lstrip())])
    assert not core or new.endswith(value[len(value.rstrip()) :])
    assert new == MADE.replace(type_, value, kind=kind, scope=Scope(document, patient))


@settings(max_examples=400)
@given(st.sampled_from(MUST_DIFFER), ANY_TEXT)
def test_never_the_original(type_: PhiType, value: str) -> None:
    if has_content(value):
        assert not is_same_text(replace(MADE, type_, value), value)


@settings(max_examples=200)
@given(st.sampled_from(IDS), st.text("AZaz09-./ ", min_size=1, max_size=20))
def test_ids_keep_their_form_and_lose_no_character(type_: PhiType, value: str) -> None:
    new = replace(MADE, type_, value)
    if type_ is not PhiType.SSN and not is_vin("".join(c for c in value.upper() if c.isalnum())):
        assert form_of(new) == form_of(value)
    assert len(new) == len(value)


@settings(max_examples=200)
@given(st.text("0123456789", min_size=2, max_size=12), st.data())
def test_punctuation_and_case_do_not_change_an_id(digits: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(digits) - 1))
    plain = replace(MADE, PhiType.MEDICALRECORD, "ab" + digits)
    spaced = replace(MADE, PhiType.IDNUM, f"AB{digits[:at]}-{digits[at:]}")
    assert spaced.replace("-", "").lower() == plain


@settings(max_examples=300)
@given(st.sampled_from(["", "H", "AB", "V-"]), st.integers(10**3, 10**8), st.integers(1, 5))
def test_leading_zeros_do_not_change_an_id(prefix: str, number: int, zeros: int) -> None:
    """Except in forms whose zeros can make a checksum valid: ten digits with one zero (CHI), AB0123456 (DEA)."""
    padded = f"{prefix}{'0' * zeros}{number}"
    assume(not checksum_scheme("".join(c for c in padded if c.isalnum())))
    assume(len(f"{'0' * zeros}{number}") != 10 or prefix or zeros > 1)
    assume(prefix != "AB" or len(f"{'0' * zeros}{number}") != 7)
    plain = replace(MADE, PhiType.MEDICALRECORD, f"{prefix}{number}")
    assert replace(MADE, PhiType.MEDICALRECORD, padded) == f"{plain[: len(prefix)]}{'0' * zeros}{plain[len(prefix) :]}"


@settings(max_examples=300)
@given(st.integers(1, 400), st.text(max_size=4), st.binary(min_size=1, max_size=8))
def test_permutation_is_one_cycle(size: int, tweak: str, secret: bytes) -> None:
    permutation = KeyedHash(secret).permutation(size, tweak)
    at, seen = 0, set()
    for _ in range(size):
        at = permutation.next(at)
        seen.add(at)
    assert seen == set(range(size))
    assert at == 0


@settings(max_examples=40)
@given(st.integers(0, 10**9 - 1))
def test_valid_checksums_stay_valid(number: int) -> None:
    text = f"{number:09d}"
    for first, check in (("1", is_npi), ("", is_nhs)):
        whole = next(
            (first + text[len(first) :] + d for d in "0123456789" if check(first + text[len(first) :] + d)), ""
        )
        # A number may be right by both sums; then one is kept.
        if whole and int(whole) > 9 and not (is_npi(whole) and is_nhs(whole)):
            assert check(replace(MADE, PhiType.LICENSE, whole))
    dea = next("AB" + text[:6] + d for d in "0123456789" if is_dea("AB" + text[:6] + d))
    assert is_dea(replace(MADE, PhiType.LICENSE, dea))


_FORMS = (
    "%m/%d/%Y",
    "%Y-%m-%d",
    "%Y%m%d",
    "%B %d, %Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d%b%Y",
    "%A, %B %d, %Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
)


def _read(text: str, form: str) -> date:
    """The day of ``text``. May is its own short form, so it may have become a full month."""
    if "%b" in form:
        text = text.replace("Sept", "Sep") if "September" not in text else text
        form = (
            form
            if any(part.istitle() and len(part) == 3 for part in re.findall(r"[A-Za-z]+", text))
            else form.replace("%b", "%B")
        )
    return datetime.strptime(text, form).date()


@settings(max_examples=300)
@given(DAYS, DAYS, st.sampled_from(_FORMS), st.sampled_from(_FORMS), st.text(max_size=6))
def test_intervals_are_exact_across_forms(a: date, b: date, one: str, other: str, document: str) -> None:
    scope = Scope(document)
    left = _read(replace(MADE, PhiType.DATE, a.strftime(one), scope=scope), one)
    right = _read(replace(MADE, PhiType.DATE, b.strftime(other), scope=scope), other)
    assert right - left == b - a
    assert left - a == timedelta(MADE.shift_days(scope))
    assert left < a


@settings(max_examples=200)
@given(DAYS, st.sampled_from(["", "13", "1340", "134009", "134009.1234"]), st.sampled_from(["", "+0100", "-0500"]))
def test_hl7_and_fhir_times_keep_time_and_zone(day: date, time: str, zone: str) -> None:
    new = replace(MADE, PhiType.DATE, f"{day:%Y%m%d}{time}{zone}")
    moved = day + timedelta(MADE.shift_days(SCOPE))
    assert new == f"{moved:%Y%m%d}{time}{zone}"
    assert replace(MADE, PhiType.DATE, f"{day}T13:40:09.5+01:00") == f"{moved}T13:40:09.5+01:00"


@settings(max_examples=200)
@given(
    st.text(max_size=10),
    st.none() | st.text(max_size=10),
    st.builds(DateShifts, st.booleans(), st.integers(0, 5), st.booleans(), st.integers(14, 3000)),
)
def test_shift_is_in_range_and_never_zero(document: str, patient: str | None, dates: DateShifts) -> None:
    days = Surrogates(SECRET, dates=dates).shift_days(Scope(document, patient))
    assert -dates.max_shift_days <= days < 0
    assert (days % 7 == 0) == dates.whole_weeks
    assert days > -363 or 2 <= -days % 365.2425 <= 363.2425


@settings(max_examples=200)
@given(DAYS, st.text(max_size=4))
def test_a_complete_date_is_always_replaced(day: date, document: str) -> None:
    for form in (*_FORMS, "%m/%d", "%d.%m.%y"):
        text = day.strftime(form)
        assert replace(MADE, PhiType.DATE, text, scope=Scope(document)) != text


GIVEN = st.sampled_from(["Ada", "Ludwig", "Mary", "Ngozi", "José", "Tamsin", "Li"])
FAMILY = st.sampled_from(["Okafor", "Smith", "Garcia", "Petrossian", "Nguyen", "Fry", "Montgomery"])


@settings(max_examples=100)
@given(GIVEN, FAMILY, st.sampled_from(sorted(NAMES)), st.text(max_size=3), st.booleans())
def test_all_writings_of_one_person_agree(given: str, family: str, type_: PhiType, patient: str, known: bool) -> None:
    scope = Scope("d", patient, people=(NamedPerson(given, family),) if known else ())

    def new(value: str, kind: ValueKind = ValueKind.NAME) -> str:
        return MADE.replace(type_, value, kind=kind, scope=scope)

    first, last = new(f"{given} {family}").split(" ")
    assert new(f"{family}, {given}") == f"{last}, {first}"
    assert new(f"{family.upper()}, {given.upper()}").casefold() == f"{last}, {first}".casefold()
    if type_ is PhiType.DOCTOR and not known:  # a surname alone has no feed-wide surrogate
        return
    assert new(f"Mr. {family}") == f"Mr. {last}"
    assert new(f"{given[0]}.{family[0]}.") == f"{first[0]}.{last[0]}."
    assert new(f"{given[0]}. {family}") == f"{first[0]}. {last}"
    assert new(family, ValueKind.FAMILY) == last
    assert new(given, ValueKind.GIVEN) == first
    if known and len(family) > 5:
        assert new(f"Mr. {family[:2]}{family[3]}{family[2]}{family[4:]}") == f"Mr. {last}"


@settings(max_examples=60)
@given(st.sampled_from(MUST_DIFFER), st.text("ABCDEFGHabcdefgh0123456789", min_size=12, max_size=30))
def test_another_key_gives_another_surrogate(type_: PhiType, value: str) -> None:
    assume(len(value.replace("0", "")) > 7)  # leading zeros stay: a text of zeros leaves a key ten values
    if type_ in (*IDS, PhiType.USERNAME):
        assert replace(MADE, type_, value) != replace(ANOTHER, type_, value)


@pytest.mark.parametrize(
    ("form", "count"),
    [
        ("{:05d}", 100_000),
        ("10{:05d}", 100_000),
        ("3f2504e0-4f89-41d3-9a0c-0305e8{:06x}", 100_000),
        ("AB-{:06d}", 20_000),
        ("M0042{:05d}", 20_000),
        ("123-45-{:04d}", 10_000),
        ("1.2.840.99.7{:06d}", 20_000),
        ("9434{:06d}", 20_000),
        ("0106{:06d}", 20_000),  # of which every eleventh is a CHI number
        ("A0B{:06d}", 20_000),
        ("AB0{:06d}", 20_000),  # of which every tenth is a DEA number
        ("000{:09d}", 20_000),
        ("1EG4TE5MK{:02d}", 100),
        ("1FUJGEDV8ELFS{:04d}", 10_000),  # of which every eleventh is a VIN
    ],
)
def test_no_two_ids_share_a_surrogate(form: str, count: int) -> None:
    """Every number of five digits, and runs of consecutive numbers, in which a weak Feistel network fails first."""
    made = {replace(MADE, PhiType.MEDICALRECORD, form.format(n)) for n in range(count)}
    assert len(made) == count


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_TEXT.map(lambda text: text.replace("\n", " ")), max_size=6))
@example(
    [
        "Ødegård",
        "",
        "Æsa",
        "ŁUKASZ",
        "Straße",
        "O'Neil-Ito",
        "\u0301e\u0327\u0301",
        "\u0327",
        "กานต์",
        "हिन्दी",
        "각",
        "٣",
    ]
)
def test_words_folded_together_are_those_folded_alone(words: list[str]) -> None:
    assert fold_all(words) == [fold(word) for word in words]

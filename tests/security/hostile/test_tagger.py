"""The trained system (``hybrid``, recall) over any text: valid spans, no exception, linear work.

Every text passes through the complete de-identifier, including surrogates. Work is counted in function calls;
``tests/bench/bench_tagger.py`` measures the seconds for a text of four times the length.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.spans import is_disjoint
from deid_agent.pipeline import DeidentifiedText, Deidentifier
from deid_agent.pipeline.language import OtherLanguage
from deid_agent.pipeline.planning import MAX_TEXT
from deid_agent.pipeline.policy import load_policy

RULES = Path(__file__).resolve().parents[3] / "rules"
MILLION = 1_000_000
NOTE = (
    "Patient: Okafor, Adaeze M.   MRN: 4471902   DOB: 04/22/1957\n"
    "Mrs. Okafor is a 66-year-old woman with heart failure who came in on 3/12/2024 with five days of orthopnea.\n"
    "Her husband Chidi (740-555-0184), a welder from Dubuque, Iowa, was taught daily weights at Mercy Ridge.\n"
    "Labs 3/4/24 3/5/24 3/6/24 stable. Follow-up with Dr. Ines Castellano on 3/25. Mail: a.okafor@mailhaven.net\n\n"
)
CONTROLS = "".join(map(chr, [*range(32), *range(127, 160)])) + "\u2028\u2029\ufeff\u200b\u00ad"
TEXTS: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "a token of 1 MB": lambda: "Z" * MILLION,
    "100,000 digits": lambda: "7" * 100_000,
    "digits in groups": lambda: "1234567890-" * 5_000,
    "a million blank lines": lambda: "\n" * MILLION,
    "100,000 line ends of two signs": lambda: "\r\n" * 100_000,
    "blank lines around a date": lambda: "\n" * 50_000 + "3/4/2019" + "\n" * 50_000,
    "controls": lambda: CONTROLS * 100 + "3/4/2019",
    "a note between controls": lambda: "".join(c + CONTROLS[n % 64] for n, c in enumerate(NOTE)),
    "NUL": lambda: "\0" * 1_000 + "Dr. Vane\0 " * 1_000,
    "lone surrogates": lambda: "\udfff" * 5_000 + "Dr. Vane \ud800 3/4/2014 " * 500,
    "right to left": lambda: "\u202eהערה מטופל\u202c Dr. כהן 3/4/2014 مريض محمد 740-555-0184 " * 300,
    "combining": lambda: "Dr. Jose\u0301 Montan\u0303o\u0301\u0301, 3/4/2014 " * 500,
    "200,000 marks on a letter": lambda: "a" + "\u0301" * 200_000,
    "emoji": lambda: "🙂👩\u200d⚕️Dr. Vane🙂 3/4/2014 " * 500 + "🙂" * 5_000,
    "astral letters": lambda: "𝒜𝒹𝒶 𝒱𝒶𝓃𝑒 𠀀𠀁 " * 2_000,
    "longer in lower case": lambda: "İSTANBUL ẞ ﬁ " * 2_000,
    "all capitals": lambda: NOTE.upper() * 30,
    "no capitals": lambda: NOTE.lower() * 30,
    "no blanks": lambda: NOTE.replace(" ", "") * 30,
    "one line": lambda: NOTE.replace("\n", " ") * 30,
    "dates in a row": lambda: "3/4/19 " * 3_000,
    "a name that never ends": lambda: "Ada-" * 5_000,
    "names that never end": lambda: "Ada Okafor " * 3_000,
    "credentials": lambda: "Dr. Vane" + ", MD" * 5_000,
    "open brackets": lambda: "([{<" * 5_000,
}
UNITS = (
    "3/4/19 ",
    "Ada-",
    "Ada Okafor ",
    "Dr. Ab Cd ",
    "Mr. Okafor, ",
    "a ",
    "A.",
    "740-555-0184 ",
    "x@b.org ",
    "\n",
    "\u0301",
)


@pytest.fixture(scope="module")
def hybrid() -> Deidentifier:
    shipped = load_policy("pseudonymised", RULES)
    chosen = replace(shipped, languages=replace(shipped.languages, other=OtherLanguage.READ))  # some texts are Hebrew
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=chosen, system="hybrid").deidentifier()


def _sound(text: str, done: DeidentifiedText) -> None:
    assert is_disjoint(done.spans)
    for span in done.spans:
        inside = text[span.start : span.end]
        assert span.end <= len(text)
        assert inside == inside.strip() and any(c.isalnum() for c in inside)


@pytest.mark.parametrize("name", TEXTS)
def test_spans_are_valid_for_any_text(name: str, hybrid: Deidentifier) -> None:
    text = TEXTS[name]()
    done = hybrid.text(text)
    _sound(text, done)
    assert not [day for day in ("3/4/2019", "3/4/2014", "3/4/19") if day in done.text], "a date that any rule sees"


@pytest.mark.full
def test_the_maximum_number_of_one_letter_tokens(hybrid: Deidentifier) -> None:
    text = "a " * (MAX_TEXT // 2)
    _sound(text, hybrid.text(text))


@pytest.mark.parametrize("size", [MAX_TEXT + 1, 10 * MILLION])
def test_a_text_beyond_the_limit_is_refused_before_reading(size: int, hybrid: Deidentifier) -> None:
    with pytest.raises(MessageError) as problem:
        hybrid.text("Ada Okafor " * (size // 11) + "x" * (size % 11))
    assert problem.value.reason is Reason.RESOURCE
    assert "Okafor" not in str(problem.value)


@pytest.mark.parametrize("change", [str, str.upper, str.lower], ids=["as it is", "capitals", "no capitals"])
def test_no_identifier_of_the_note_remains(change: Callable[[str], str], hybrid: Deidentifier) -> None:
    done = hybrid.text(change(NOTE)).text.lower()
    values = ("4471902", "740-555-0184", "04/22/1957", "a.okafor@", "3/4/24", "3/5/24", "3/6/24")
    assert not [value for value in values if value in done]


def _calls(work: Callable[[], object]) -> int:
    """The number of function calls in ``work``, in Python and in C."""
    count = 0

    def count_call(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_the_cost_of_a_note_is_linear_in_its_pages(hybrid: Deidentifier) -> None:
    page = NOTE * 7  # 3,000 characters
    hybrid.text(page)  # the same names come on every page: their surrogates are kept
    # A text of few units takes fewer calls by another path: all of these are longer.
    six, twelve, more = (_calls(lambda n=n: hybrid.text(page * n)) for n in (6, 12, 24))  # type: ignore[misc]
    assert 1.6 * twelve < more < 2.2 * twelve
    assert twelve < 2.2 * six


@pytest.mark.parametrize("unit", UNITS)
def test_four_times_the_text_takes_four_times_the_work(unit: str, hybrid: Deidentifier) -> None:
    short, long = (unit * (size // len(unit)) for size in (12_000, 48_000))  # no text of few units
    hybrid.text(NOTE)  # tables load on first use
    few, many = (_calls(lambda text=text: hybrid.text(text)) for text in (short, long))  # type: ignore[misc]
    assert many < 4.6 * few

"""Formats of identifiers, and whether two of a format share a surrogate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules.checks import is_dea, is_nhs, is_npi, is_vin
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.shape import is_same_text

_STRIDE = 7_368_787  # prime, so that it meets every number of a format
_ALPHABETS = {"9": "0123456789", "A": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "a": "abcdefghijklmnopqrstuvwxyz"}
_ALPHABETS |= {
    "f": "0123456789abcdef",
    "N": "12",
    "1": "123456789",
    "D": "ABCD",
    "L": "ABCEGHJKLMNOPRSTWXYZ",
    "V": "ABCDEFGHJKLMNPRSTUVWXYZ",
}


@dataclass(frozen=True, slots=True)
class Format:
    """``template``: 9 digit, 1 digit but 0, A and a letters, f hexadecimal, L, D, V, N letters or digits of one scheme,
    ``{}`` around literal text.

    ``check`` returns True for a number with a valid checksum; then ``?`` is the character that does.
    """

    name: str
    type: PhiType
    template: str
    check: Callable[[str], bool] | None = None
    one_to_one: bool = True

    def originals(self, count: int) -> Iterator[str]:
        """``count`` distinct ones, or all: consecutive ones first, then as many spread over the whole format."""
        positions = _positions(self.template)
        size = 1
        for choices in positions:
            size *= len(choices)
        near = min(count // 2, size)
        rest = size - near
        numbers = (*range(near), *(near + n * _STRIDE % rest for n in range(min(rest, 2 * count))))
        return islice(filter(None, (self._written(number, positions) for number in numbers)), count)

    def _written(self, number: int, positions: list[str]) -> str:
        out: list[str] = []
        for choices in reversed(positions):
            number, at = divmod(number, len(choices))
            out.append(choices[at])
        text = "".join(reversed(out))
        if self.check is None:
            return text
        return next((new for c in "0123456789X" if self.check(_plain(new := text.replace("?", c)))), "")


def _positions(template: str) -> list[str]:
    """The characters that are allowed at each position."""
    out: list[str] = []
    fixed = False
    for c in template:
        if c in "{}":
            fixed = c == "{"
        else:
            out.append(c if fixed else _ALPHABETS.get(c, c))
    return out


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def _is_sin(text: str) -> bool:
    """Luhn, as on every Canadian social insurance number."""
    return text.isdigit() and sum(sum(divmod(int(c) * (1 + n % 2), 10)) for n, c in enumerate(text)) % 10 == 0


_MRN, _ID = PhiType.MEDICALRECORD, PhiType.IDNUM
FORMATS = (
    *(Format(f"record number, {n} digits", _MRN, "9" * n) for n in (5, 6, 7, 8, 9, 10, 12)),
    Format("record number, letter and digits", _MRN, "A9999999"),
    Format("record number, letters and digits", _MRN, "AA999999"),
    Format("record number, letters between", _MRN, "9A9a99"),
    Format("record number, dashes", _MRN, "99-99-99"),
    Format("record number, prefix and zeros", _MRN, "{MRN-000}999999"),
    Format("SSN", PhiType.SSN, "999-99-9999"),
    Format("SSN of one area", PhiType.SSN, "{401}-99-9999"),
    Format("SSN of one last four", PhiType.SSN, "999-99-{6789}"),
    Format("SSN, last four", PhiType.SSN, "{xxx-xx-}9999", lambda text: text[-4:] != "0000"),
    Format("SIN", PhiType.SSN, "199 999 99?", _is_sin),
    Format("NINO", PhiType.SSN, "LA 99 99 99 D"),
    Format("NPI", PhiType.LICENSE, "N99999999?", lambda text: text.isdigit() and is_npi(text)),
    Format("NHS", PhiType.HEALTHPLAN, "199 999 999?", lambda text: text.isdigit() and is_nhs(text)),
    Format("CHI", PhiType.HEALTHPLAN, "{0}1{11}99999?", lambda text: text.isdigit() and is_nhs(text)),
    Format("DEA", PhiType.LICENSE, "AA999999?", is_dea),
    Format("VIN", PhiType.VEHICLE, "{1}V{8}VV99V?{X}V999999", is_vin),
    Format("plate", PhiType.VEHICLE, "9AAA999"),
    Format("driver's licence", PhiType.LICENSE, "A9999-99999-99999"),
    Format("MBI", PhiType.HEALTHPLAN, "1{E}9{4}-{T}99-{MK}99"),
    Format("account", PhiType.ACCOUNT, "{V000}9999999"),
    Format("account with its date", PhiType.ACCOUNT, "{2019}9999-999"),
    Format("device serial", PhiType.DEVICE, "{SN }99999999"),
    Format("accession", _ID, "{S24-}999999"),
    Format("UUID", _ID, "ffffffff-{4f89-41d3-9a0c-}ffffffffffff"),
    Format("OID tail", _ID, "{1.2.840.99.}1999999"),
    Format("OID tail, two arcs", _ID, "{1.2.840.99.}1999.1999"),
    Format("digest", _ID, "ffff{4e04f8941d39a0c0305e82c3}ffff"),
    Format("FHIR id", _ID, "{patient-}9999999"),
    Format("longer than one piece", _ID, "9999999" + "{" + "X7" * 30 + "}"),
    Format("user name", PhiType.USERNAME, "aaa999"),
    Format("mail of one host", PhiType.EMAIL, "aaa.a999{@hospital.org}"),
    Format("web page of one host", PhiType.URL, "{https://www.clinic.org/p/}9999999"),
    Format("phone, other countries", PhiType.PHONE, "{+49 30 }9999999"),
    Format("extension", PhiType.PHONE, "{x}99999"),
    Format("phone, North America", PhiType.PHONE, "(199) 199-9999", one_to_one=False),
    Format("IPv4", PhiType.IPADDRESS, "10.199.199.199", one_to_one=False),
)


def meets(made: Surrogates, form: Format, count: int) -> tuple[int, int, int]:
    """The numbers of originals, of repeated surrogates, and of surrogates that equal their original."""
    scope = Scope("D", "P")
    seen: set[str] = set()
    total = again = own = 0
    for value in form.originals(count):
        new = made.replace(form.type, value, kind=ValueKind.VALUE, scope=scope)
        total += 1
        again += new in seen
        own += is_same_text(new, value)
        seen.add(new)
    return total, again, own

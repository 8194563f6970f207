"""The labels of other corpora as ours.

Sources: Stubbs & Uzuner 2015, Table 1 (2014 i2b2/UTHealth); Uzuner, Luo & Szolovits 2007, "Evaluating the
State-of-the-Art in Automatic De-identification" (2006 i2b2).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.spans import Span, in_order

_OTHERS: Mapping[str, PhiType] = MappingProxyType(
    {
        "IPADDR": PhiType.IPADDRESS,
        "IPADDRESS": PhiType.IPADDRESS,
        "DEPARTMENT": PhiType.HOSPITAL,
        "ROOM": PhiType.LOCATION_OTHER,
        "OTHER": PhiType.LOCATION_OTHER,
        "ID": PhiType.IDNUM,
        "LOCATION": PhiType.CITY,
    }
)


def type_of(label: str) -> PhiType | None:
    """Our type for a label of ours or of i2b2, whatever its case; ``None`` for one that nobody knows."""
    name = label.strip().upper().replace("_", "-")
    try:
        return PhiType(name)
    except ValueError:
        return _OTHERS.get(name)


def coarse(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Findings as the annotators of 2006 would name them: eight types, where ours has twenty-eight.

    IDNUM stands for every id, CITY for every place but hospitals, PHONE for every telephone; what they did not annotate
    (professions, organisations, logins, addresses of the net) is left out on both sides.
    """
    kept = (Span(s.start, s.end, kind, s.source) for s in spans if (kind := _coarse(s.type)) is not None)
    return tuple(in_order(kept))


def _coarse(kind: PhiType) -> PhiType | None:
    if kind in {PhiType.HOSPITAL, PhiType.PATIENT, PhiType.DOCTOR, PhiType.DATE, PhiType.AGE}:
        return kind
    if CATEGORY[kind] is PhiCategory.ID:
        return PhiType.IDNUM
    if kind in {PhiType.PHONE, PhiType.FAX}:
        return PhiType.PHONE
    if CATEGORY[kind] is PhiCategory.LOCATION and kind is not PhiType.ORGANIZATION:
        return PhiType.CITY
    return None

"""Prints surrogates of fixed values as JSON: run under each Python, compared with the golden file.

PYTHONPATH=. python tests/support/surrogate_golden.py
"""

import json
import sys
from datetime import date

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import NamedPerson, Scope, Surrogates

VALUES: dict[PhiType, tuple[str, ...]] = {
    PhiType.PATIENT: (
        "Okafor, Ada M.",
        "A.O.",
        "José Peña",
        "van der Berg",
        "蔡美玲",
        "김민준",
        "Иван",
        "محمد",
        "Ełk Øst",
        "Straße",
    ),
    PhiType.DOCTOR: ("Okafor", "R. Nisar", "RBK", "Ada Okafor, MD"),
    PhiType.USERNAME: ("rjm47",),
    PhiType.PROFESSION: ("welder", "Line Cooks"),
    PhiType.HOSPITAL: ("Roper Hospital", "SSH", "5E"),
    PhiType.ORGANIZATION: ("First Baptist Church", "Medicare"),
    PhiType.STREET: ("77 Land's End Rd, Apt 4B", "S 19th"),
    PhiType.CITY: ("Saint Paul", "北京"),
    PhiType.STATE: ("TX",),
    PhiType.COUNTRY: ("Nigeria", "NGA"),
    PhiType.ZIP: ("02139", "K1A 0B1", "LS9 2QT"),
    PhiType.LOCATION_OTHER: ("PO Box 118", "Golden Gate Bridge"),
    PhiType.AGE: ("47", "93"),
    PhiType.DATE: (
        "3/4/2019",
        "20240224134009+0100",
        "March 4th",
        "Tues",
        "late 60s",
        "Thanksgiving",
        "13/45/99",
        "٣/٤/٢٠١٩",
    ),
    PhiType.PHONE: ("617-253-1000 x12", "07911 123456", "x64410"),
    PhiType.FAX: ("+49 30 123456",),
    PhiType.EMAIL: ("j.ruiz22@mail.hospital.org",),
    PhiType.URL: ("https://www.smithclinic.org/dr-smith.html",),
    PhiType.IPADDRESS: ("10.44.7.212", "fe80:aa1:11a2::4b"),
    PhiType.SSN: ("123-45-6789", "6789", "QQ 12 34 56 C"),
    PhiType.MEDICALRECORD: ("0012345", "AB-123456", "x" * 120, "É12٣"),
    PhiType.HEALTHPLAN: ("943 476 5919",),
    PhiType.ACCOUNT: ("V0001234567",),
    PhiType.LICENSE: ("1234567893", "AB1234563"),
    PhiType.VEHICLE: ("1M8GDM9AXKP042788",),
    PhiType.DEVICE: ("SN 00123456",),
    PhiType.BIOID: ("VP-7-A1B2",),
    PhiType.IDNUM: ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "1.2.840.113619.2.55", "deadbeefcafe0123"),
}


def golden() -> dict[str, str]:
    """``TYPE value`` to surrogate, in two scopes."""
    made = Surrogates(b"the golden secret of the tests")
    scopes = (
        Scope("D1", "P1", reference=date(2024, 3, 20), people=(NamedPerson("Ada", "Okafor"),)),
        Scope("D2", day_first=True),
    )
    return {
        f"{scope.document} {type_} {value}": made.replace(
            type_,
            value,
            kind=ValueKind.NAME if type_ in (PhiType.PATIENT, PhiType.DOCTOR) else ValueKind.VALUE,
            scope=scope,
        )
        for scope in scopes
        for type_, values in VALUES.items()
        for value in values
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(json.dumps(golden(), ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n")

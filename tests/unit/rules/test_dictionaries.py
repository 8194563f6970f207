"""Dictionaries: loading, invalid files, and the tags of tokens."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.text import Document
from deid_agent.rules.dictionaries import LONGEST, Dictionaries, load_words

RULES = Path(__file__).resolve().parents[3] / "rules"
OURS = Dictionaries.load(RULES)


def write(folder: Path, name: str, text: str | bytes) -> Path:
    (folder / "dictionary").mkdir(exist_ok=True)
    (folder / "senses.txt").write_text("0/0/0 york\n", "utf-8")
    (folder / "dictionary" / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def small(folder: Path) -> Dictionaries:
    write(folder, "city.txt", "# head\nnew york\n?reading\nst. louis\nyork\n")
    write(folder, "state.txt", "new york\n")
    return Dictionaries.load(folder)


def tags_of(lists: Dictionaries, text: str) -> list[tuple[str, set[str]]]:
    doc = Document(text)
    return [(text[a:b], set(tags)) for (a, b), tags in zip(doc.tokens, lists.tag_tokens(doc), strict=True)]


def test_the_longest_term_of_each_list(tmp_path: Path) -> None:
    assert tags_of(small(tmp_path), "New York, York") == [
        ("New", {"city:B", "state:B"}),
        ("York", {"city:I", "state:I"}),
        (",", set()),
        ("York", {"city:U"}),
    ]


def test_an_ambiguous_term_is_marked(tmp_path: Path) -> None:
    assert tags_of(small(tmp_path), "READING") == [("READING", {"city?:U"})]


@pytest.mark.parametrize("text", ["St. Louis", "ST LOUIS", "st.\nlouis", "St.-Louis"])
def test_punctuation_inside_a_term_is_ignored(tmp_path: Path, text: str) -> None:
    assert {tag for _, tags in tags_of(small(tmp_path), text) for tag in tags} == {"city:B", "city:I"}


@pytest.mark.parametrize("gap", ["\n\n", "\n \r\n", "\t", ", "])
def test_a_term_spans_no_empty_line_tab_or_comma(tmp_path: Path, gap: str) -> None:
    assert tags_of(small(tmp_path), f"New{gap}York")[-1] == ("York", {"city:U"})


def test_the_longer_of_two_overlapping_terms_counts(tmp_path: Path) -> None:
    write(tmp_path, "site.txt", "a b\nb c d\n")
    tags = [next(iter(t), "") for _, t in tags_of(Dictionaries.load(tmp_path), "a b c d")]
    assert tags == ["site:B", "site:B", "site:I", "site:I"]


def test_entries_have_the_characters_of_the_text(tmp_path: Path) -> None:
    text = "cafe\u0301 in Ne\u0301w York"
    doc = Document(text)
    found = {(text[slice(*e.range(doc))], tuple(sorted(e.lists))) for e in small(tmp_path).find_entries(doc)}
    assert found == {("Ne\u0301w York", ("city", "state")), ("York", ("city",))}


def test_lists_of_a_term(tmp_path: Path) -> None:
    lists = small(tmp_path)
    assert lists.lists_of("New York") == {"city", "state"}
    assert lists.lists_of("Reading") == {"city?"}
    assert lists.lists_of("new") == lists.lists_of("new york new") == lists.lists_of("") == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# head\nb\na\n", "x.txt:3: .*order"),
        ("a\n?a\n", "x.txt:2: .*twice"),
        ("a\nBc\n", "x.txt:2: .*folded"),
        ("a\né\n", "x.txt:2: .*folded"),
        ("a\nb \n", "x.txt:2: .*folded"),
        ("a\n\nb\n", "x.txt:2: .*words"),
        ("a\nb b b b b b b b b\n", "x.txt:2: .*words"),
        ("a\nb-b-b-b-b-b-b-b-b\n", "x.txt:2: .*words"),
        ("a\n b\n", "x.txt:2: .*folded"),
        ("a\n--\n", "x.txt:2: .*words"),
        ("a\n??b\n", "x.txt:2: .*folded"),
        ("# head\na\n# b\n", "x.txt:3: .*folded"),
        ("a\nc?\nb-c\n", "x.txt:3: .*order"),
        ("?\n", "x.txt:1: .*words"),
        ("# head only\n", "x.txt: .*empty"),
        ("", "x.txt: .*empty"),
        (b"\xff", "x.txt: .*UTF-8"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, text: str | bytes, expected: str) -> None:
    write(tmp_path, "x.txt", text)
    with pytest.raises(ConfigurationError, match=expected):
        Dictionaries.load(tmp_path)


def test_an_edited_list_takes_effect_at_the_next_load(tmp_path: Path) -> None:
    """A list is read once for all its users, as long as it does not change."""
    assert small(tmp_path).lists_of("york") == {"city"}
    before = load_words(write(tmp_path, "drug.txt", "abc\n"))
    write(tmp_path, "city.txt", "new york\nyonkers\n")
    edited = Dictionaries.load(tmp_path)
    assert edited.lists_of("york") == frozenset()
    assert edited.lists_of("yonkers") == {"city"} and edited.lists_of("new york") == {"city", "state"}
    assert before == {"abc"}
    assert load_words(write(tmp_path, "drug.txt", "abcd x\n")) == {"abcd", "x"}


def test_terms_of_several_lists_and_forms(tmp_path: Path) -> None:
    """Terms of one token with signs or digits, and terms whose first token is a sign."""
    write(tmp_path, "a.txt", "# head\n# more\n'n b\n12\na-\nb & c\nb12\nst. x\nx\n")
    write(tmp_path, "b.txt", "?12\n?b & c\n?x\n")
    lists = Dictionaries.load(tmp_path)
    assert {term: lists.lists_of(term) for term in ("n b", "12", "a", "b & c", "b12", "st x", "x", "b", "&")} == {
        **{"n b": {"a"}, "12": {"a", "b?"}, "a": {"a"}, "b & c": {"a", "b?"}, "b12": {"a"}, "st x": {"a"}},
        **{"x": {"a", "b?"}, "b": frozenset(), "&": frozenset()},
    }
    assert [sorted(tags) for _, tags in tags_of(lists, "b & c 12")] == [
        ["a:B", "b?:B"],
        ["a:I", "b?:I"],
        ["a:I", "b?:I"],
        ["a:U", "b?:U"],
    ]


def test_a_folder_without_lists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no list"):
        Dictionaries.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Okafor", "family:U"),
        ("Will", "family?:U"),
        ("Saskatchewan", "state:U"),
        ("Portuguese", "language:U"),
        ("truck driver", "profession:B"),
        ("Christmas Eve", "holiday:B"),
        ("Foley", "eponym:U"),
        ("Protonix", "drug:U"),
        ("Winston-Salem", "city:B"),
        ("NY", "state-abbrev:U"),
        ("Lizzie", "nickname:U"),
        ("Maricopa County", "county:B"),
        ("the", "common-word:U"),
        ("Xeljanz", "drug:U"),
        ("Yasmin", "drug?:U"),
        ("Magic mouthwash", "drug:B"),
        ("Dexcom G7", "device:B"),
        ("Watchman", "device?:U"),
        ("E. coli", "organism:B"),
        ("C. diff", "organism:B"),
        ("Staphylococcus", "organism:U"),
        ("Wilson's disease", "eponym:B"),
        ("MLH1", "gene:B"),
        ("KIT", "gene?:U"),
        ("PERRLA", "shorthand:U"),
        ("L&D", "shorthand:B"),
        ("MAE", "shorthand?:U"),
    ],
)
def test_our_lists(text: str, tag: str) -> None:
    assert tag in tags_of(OURS, text)[0][1]


TEXT = "Ada Okafor St . Louis New York City - ' the Will Portuguese truck driver Christmas Eve 12 Ó"
WORDS = st.sampled_from(TEXT.split(" "))


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=30), st.lists(WORDS, max_size=30))
def test_tags_depend_on_a_window_only(left: list[str], right: list[str]) -> None:
    """Text beyond ``LONGEST`` words (here words of no list) changes no tag."""
    wall = ["zzq"] * LONGEST
    alone = OURS.tag_tokens(Document(" ".join(right)))
    beside = OURS.tag_tokens(Document(" ".join(left + wall + right)))
    assert beside[len(beside) - len(alone) :] == alone


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=30))
def test_case_and_accents_change_no_tag(words: list[str]) -> None:
    text = " ".join(words)
    as_is = OURS.tag_tokens(Document(text))
    assert OURS.tag_tokens(Document(text.upper())) == as_is == OURS.tag_tokens(Document(text.lower()))
    assert OURS.tag_tokens(Document(text.replace("o", "o\u0308").replace("e", "é"))) == as_is


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_one_set_of_tags_for_each_token_of_any_text(text: str) -> None:
    doc = Document(text)
    assert len(OURS.tag_tokens(doc)) == len(doc.tokens)
    for entry in OURS.find_entries(doc):
        start, end = entry.range(doc)
        assert 0 <= start < end <= len(text)


def test_an_excluded_list_is_missing_everywhere(tmp_path: Path) -> None:
    """A term of two lists remains in the other list."""
    blind = small(tmp_path).without_lists("city")
    assert tags_of(blind, "New York, York") == [
        ("New", {"state:B"}),
        ("York", {"state:I"}),
        (",", set()),
        ("York", set()),
    ]
    assert [entry.lists for entry in blind.find_entries(Document("New York, York"))] == [frozenset({"state"})]
    assert (blind.lists_of("York"), blind.lists_of("new york")) == (frozenset(), frozenset({"state"}))
    assert small(tmp_path).lists_of("york") == frozenset({"city"})


PEOPLE = ("given-female", "given-male", "nickname", "family", "family-rare", "profession")
PLACES = ("city", "city-world", "county", "state", "state-abbrev", "country", "organization", "hospital")


@pytest.mark.parametrize("name", ["drug", "device", "organism", "gene", "shorthand"])
def test_a_term_that_is_also_a_name_is_marked(name: str) -> None:
    """Also a place, an organization or a job: a model takes a term without a mark for no name."""
    rows = (RULES / "dictionary" / f"{name}.txt").read_text("utf-8").splitlines()
    plain = [row for row in rows if not row.startswith(("#", "?"))]
    assert len(plain) > 500
    found = {row: OURS.lists_of(row) for row in plain}
    assert {row for row, lists in found.items() if {n.rstrip("?") for n in lists} & {*PEOPLE, *PLACES}} == set()

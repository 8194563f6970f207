"""Site folders: their files, the reading of their lists, and errors that reveal nothing."""

from pathlib import Path

import pytest
from support.sites import PATTERN, VETO, make_site

from deid_agent.model import ConfigurationError, Document, Fact, PhiType, Subject, ValueKind
from deid_agent.rules import CHECKS, data_folder, digest_sites, find_rules, fits, load_ruleset, merge_values
from deid_agent.rules.ruleset import Ruleset, SiteRules
from deid_agent.rules.site_folder import load_lists
from deid_agent.rules.site_terms import LONGEST_VALUE, MOST_LINES, read_values, split_name

RULES = data_folder("rules", environ={})
CANARY = "Qwertzan"


def load(site: Path) -> SiteRules:
    found = load_ruleset(RULES, CHECKS, [site]).site
    assert found is not None
    return found


@pytest.fixture(scope="module")
def shipped() -> Ruleset:
    return load_ruleset(RULES, CHECKS)


def test_a_ruleset_without_a_site_has_none(shipped: Ruleset) -> None:
    assert shipped.site is None


def test_a_site_adds_lists_rules_and_removals(tmp_path: Path, shipped: Ruleset) -> None:
    remove = 'rules = ["dose", "zip-canada"]\n[terms]\nCITY = ["Mobile"]\n'
    site = load(make_site(tmp_path / "s", remove, PATTERN, VETO, DOCTOR="Keller, Ruth\n", HOSPITAL="Harbor View\n"))
    assert [rule.id for rule in (*site.patterns, *site.vetoes)] == ["our-badge", "our-machine"]
    assert site.removed == {"dose", "zip-canada"} <= {rule.id for rule in shipped.every_rule}
    assert site.cleared == {PhiType.CITY: {"mobile"}}
    assert site.lists.starts == {"keller", "harbor"}
    assert site.summary == "2 values in 2 lists, 1 pattern, 1 veto, 3 removed"
    assert "Keller" not in repr(site) + repr(site.lists.names) + repr(
        site.lists.names[PhiType.DOCTOR].families("keller", "")
    )


def test_a_rule_may_use_shipped_fragments_and_checks(tmp_path: Path) -> None:
    own = PATTERN.replace("heron[0-9]{2}", "(?&month)-?[0-9]{6}").replace("heron17", "March-123456")
    (rule,) = load(make_site(tmp_path / "s", patterns=own + 'check = "six"\n'.replace("six", "five-digits"))).patterns
    assert list(rule.find(Document("badge March-123456 left"))) == [(6, 18)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("notes.txt", "x", r"notes.txt: unknown: a site folder has lists/, patterns/, vetoes/ and remove.toml"),
        ("lists/DOCTORS.txt", "x", r"DOCTORS.txt: unknown: a list is a file TYPE.txt, with one of PATIENT, DOCTOR"),
        ("lists/DOCTOR.csv", "x", r"DOCTOR.csv: unknown: a list"),
        ("patterns/readme", "x", r"readme: unknown: a rule is a file ID.toml"),
        ("remove.toml", "rule = []", r"remove.toml: unknown key rule"),
        ("remove.toml", f'rules = ["{CANARY}"]', r"remove.toml: rules: no shipped rule has id number 1"),
        ("remove.toml", f'[terms]\n{CANARY} = ["x"]', r"remove.toml: terms: key 1 is no type: one of PATIENT"),
        ("remove.toml", f'[terms]\nCITY = "{CANARY}"', r"remove.toml: terms.CITY: must be a list"),
        ("remove.toml", '[terms]\nCITY = [" "]', r"remove.toml: terms.CITY: a text is empty"),
        ("patterns/dose.toml", PATTERN.replace("our-badge", "dose"), r"dose.toml: id: a shipped rule has this id"),
        ("lists/DOCTOR.txt", "", r"DOCTOR.txt: the list is empty"),
        ("lists/DOCTOR.txt", "# only a comment\n\n", r"DOCTOR.txt: the list is empty"),
        ("lists/DOCTOR.txt", f"Keller\n{CANARY}\0x\n", r"DOCTOR.txt:2: a control character"),
        ("lists/DOCTOR.txt", f"{CANARY}\x85x\n", r"DOCTOR.txt:1: a control character"),
        ("lists/DOCTOR.txt", f"Keller\n\n{CANARY * 20}\n", rf"DOCTOR.txt:3: more than {LONGEST_VALUE} characters"),
        ("lists/DOCTOR.txt", "12345\n", r"DOCTOR.txt:1: the value has no family name"),
        ("lists/DOCTOR.txt", ", Ruth\n;;\n", r"DOCTOR.txt:2: the value has no family name"),
        ("lists/IDNUM.txt", "1234\n", r"IDNUM.txt:1: the value has no letter and fewer than 5 digits"),
        ("lists/CITY.txt", "***\n", r"CITY.txt:1: the value has no letter"),
        ("lists/CITY.txt", "x\n", r"CITY.txt:1: the value has no letter"),
        ("lists/CITY.txt", f"{CANARY}\udcff\n", r"CITY.txt: cannot be read as UTF-8"),
    ],
)
def test_errors_name_file_and_line_and_no_value(tmp_path: Path, name: str, content: str, expected: str) -> None:
    path = make_site(tmp_path / "s") / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=expected) as fault:
        # A whole rule set takes a tenth of a second.
        load_lists([tmp_path / "s"], frozenset()) if name.startswith("lists/") else load(tmp_path / "s")
    assert CANARY not in str(fault.value)


def test_two_sites_may_not_share_an_id(tmp_path: Path) -> None:
    sites = [make_site(tmp_path / name, patterns=PATTERN) for name in "ab"]
    with pytest.raises(ConfigurationError, match=r"our-badge\.toml: id: another rule of a site has this id"):
        load_ruleset(RULES, CHECKS, sites)


def test_hidden_files_do_not_belong_to_a_site(tmp_path: Path) -> None:
    site = make_site(tmp_path / "s", DOCTOR="Keller\n")
    before = digest_sites([site])
    (site / ".git").mkdir()
    (site / "lists" / ".DOCTOR.txt.swp").write_text("x")
    load(site)
    assert digest_sites([site]) == before
    (site / "lists" / "DOCTOR.txt").write_text("Kellar\n")
    assert digest_sites([site]) != before


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("Keller, Ruth\r\nOkafor\r\n", {"keller", "okafor"}),
        ("Keller\rOkafor", {"keller", "okafor"}),
        ("\ufeffKeller, Ruth\n", {"keller"}),
        ("  Keller ,  Ruth  \n\n\n# Okafor\n", {"keller"}),
        ("\u202bכהן, דוד\u202c\n", {"כהן"}),
        ("\u200fالمصري، سامي\n", {"سامي"}),
        ("Müller-Lüdenscheidt, Jürgen\n", {"ludenscheidt"}),
        ("O’Leary, Pat\nd'Arcy, Ann\n", {"leary", "arcy"}),
        ("中村 太郎\n", {"太郎"}),
        ("Ruth Keller, MD, PhD\nDr. Minh Do\nRUTH OKAFOR RN\nSmith Jr., Bob\n", {"keller", "do", "okafor", "smith"}),
        ("Keller\tRuth\n", {"ruth"}),
    ],
)
def test_lists_as_people_and_programs_write_them(tmp_path: Path, text: str, starts: set[str]) -> None:
    site = make_site(tmp_path / "s", DOCTOR=text)
    assert load_lists([site], frozenset()).starts == starts


@pytest.mark.parametrize(
    ("value", "family", "given"),
    [
        ("Keller, Ruth M", "keller", "ruth m"),
        ("Ruth M. Keller", "keller", "ruth m"),
        ("Dr. Ruth Keller, MD", "keller", "ruth"),
        ("Ruth van der Berg", "van der berg", "ruth"),
        ("VAN DER BERG, RUTH", "van der berg", "ruth"),
        ("Do, Minh", "do", "minh"),
        ("DO, MINH", "do", "minh"),
        ("Minh Do", "do", "minh"),
        ("Ruth Keller MD", "keller", "ruth"),
        ("Keller", "keller", ""),
        ("Smith-Jones, Anne-Marie", "smith jones", "anne marie"),
        ("Ruth Keller Jr.", "keller", "ruth"),
        (", ,", "", ""),
    ],
)
def test_names_are_split(value: str, family: str, given: str) -> None:
    assert split_name(value, frozenset({"van", "der"})) == (tuple(family.split()), tuple(given.split()))


def test_a_million_lines_load_and_more_are_an_error(tmp_path: Path) -> None:
    site = make_site(tmp_path / "s", DOCTOR="Keller, Ruth\n" * MOST_LINES)
    assert load_lists([site], frozenset()).starts == {"keller"}
    with (site / "lists" / "DOCTOR.txt").open("a") as file:
        file.write("Okafor\n" * 2)
    with pytest.raises(ConfigurationError, match="more than 1000000 lines"):
        load_lists([site], frozenset())


def test_folders_of_settings(tmp_path: Path) -> None:
    site = make_site(tmp_path / "s", DOCTOR="Keller\n")
    environ = {"DEID_RULES": str(RULES)}
    assert find_rules(None, {}).folder == find_rules((), {}).folder == find_rules("shipped", {}).folder == RULES
    assert find_rules(["shipped", str(site)], {}).sites == (site,)
    assert find_rules(RULES, {}) == find_rules((str(RULES),), {}) == find_rules(None, environ)
    for given, expected in (
        (str(site), "is a site folder: put shipped before it"),
        (("shipped", str(tmp_path / "no")), "no: no such folder; correct the rules"),
        (("shipped", str(site), site), "given twice"),
        (("shipped", "shipped"), "site folder shipped: no such folder"),
        ((str(tmp_path / "no"), str(site)), "no such folder"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            find_rules(given, {})


def test_a_copy_of_the_rules_is_refused_as_a_site(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "fragments.toml").touch()
    with pytest.raises(ConfigurationError, match=r"fragments\.toml: unknown: a site folder has"):
        load(tmp_path / "s")


def test_merged_lists_are_sorted_private_and_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "site" / "lists" / "DOCTOR.txt"
    assert merge_values(path, ["Okafor, Ada", "Keller, Ruth", "keller,  RUTH", "Åberg, Lena"]) == (3, 3)
    assert merge_values(path, ["Keller, Ruth", "Vane, Ada"]) == (1, 4)
    assert [value for _, value in read_values(path)] == ["Åberg, Lena", "Keller, Ruth", "Okafor, Ada", "Vane, Ada"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    before = path.read_bytes()
    path.write_bytes(b"# from HR\n" + before)
    path.chmod(0o644)
    assert merge_values(path, []) == (0, 4)
    assert path.read_bytes() == b"# from HR\n" + before
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["DOCTOR.txt"]


def test_values_that_fit_a_list() -> None:
    for value, kind in (("Keller", PhiType.DOCTOR), ("4B", PhiType.HOSPITAL), ("12345", PhiType.IDNUM)):
        assert fits(value, kind)
    for value, kind in (("", PhiType.CITY), ("#1", PhiType.CITY), ("12", PhiType.DOCTOR), ("4", PhiType.HOSPITAL)):
        assert not fits(value, kind)


def test_a_cleared_text_is_phi_if_the_message_gives_it(tmp_path: Path) -> None:
    site = load(make_site(tmp_path / "s", '[terms]\nCITY = ["Mobile"]\n'))
    known = Fact(PhiType.CITY, ValueKind.VALUE, Subject.PATIENT, "a", "MOBILE")
    assert site.clears(Document("mobile"), 0, 6, PhiType.CITY)
    assert not site.clears(Document("mobile"), 0, 6, PhiType.HOSPITAL)
    assert not site.clears(Document("mobile", (known,)), 0, 6, PhiType.CITY)

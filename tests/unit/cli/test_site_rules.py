"""Site folders at the command line, in Python, in settings, in the audit's build and in batch builds."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.sites import PATTERN, make_site

import deid_agent
from deid_agent.app import make_factory
from deid_agent.batch.frames import BatchDeidentifier
from deid_agent.batch.outputs import OutputFormat
from deid_agent.batch.systems import EngineSystem, make_head, plain_rules
from deid_agent.batch.tables import Table, load_table
from deid_agent.cli import main
from deid_agent.cli.inventory import RunningAgent, read_inventory
from deid_agent.cli.service_parts import describe_build, make_worker_factory
from deid_agent.config import DEMO_KEY, Settings, load_settings
from deid_agent.model import ConfigurationError
from deid_agent.rules import data_folder, digest_sites

CANARY = "Qwertzan"
NOTE = f"Towels near {CANARY}, badge heron17."
RULES = data_folder("rules", environ={})


def call(*args: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, list(map(str, args)), input=stdin)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_site(tmp_path / "our site", patterns=PATTERN, DOCTOR=f"{CANARY}, Ada\n")


def settings_of(folder: Path, rules: str, system: str = "rules") -> Settings:
    for name in ("in", "out", "dead"):
        (folder / name).mkdir(exist_ok=True)
    file = folder / "agent.toml"
    file.write_text(
        f'transport = "directory"\nsystem = "{system}"\n{rules}\n[directory]\ninput = "{folder}/in"\n'
        f'output = "{folder}/out"\ndead_letters = "{folder}/dead"\nstate = "{folder}/state"\n'
        f'[dead_letters]\nplain = true\n[audit]\npath = "{folder}/audit"\n',
        "utf-8",
    )
    return load_settings(file)


def test_text_with_a_site(site: Path) -> None:
    bare = call("text", "--demo-key", "--system", "rules", stdin=NOTE)
    assert CANARY in bare.stdout
    for rules in (("--rules", "shipped"), ("--rules", RULES)):
        done = call(
            "text",
            "--demo-key",
            "--system",
            "rules",
            *rules,
            "--rules",
            site,
            "--jsonl",
            stdin=json.dumps({"id": "a", "text": NOTE}),
        )
        assert done.exit_code == 0, done.stderr
        line = json.loads(done.stdout)
        assert [span["source"] for span in line["spans"]] == ["site-name:doctor", "our-badge"]
        assert CANARY not in line["text"] and "heron17" not in line["text"]


def test_the_variable_is_one_folder(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_RULES", str(site))
    refused = call("text", "--demo-key", stdin=NOTE)
    assert refused.exit_code == 2
    assert "our site is a site folder: put shipped before it" in refused.stderr
    assert call("text", "--demo-key", "--system", "rules", "--rules", "shipped", stdin=NOTE).exit_code == 0


def test_rules_list_and_test_include_the_site(site: Path) -> None:
    (site / "remove.toml").write_text('rules = ["dose"]\n')
    both = ("--rules", "shipped", "--rules", site)
    before, after = (set(call("rules", "list", *rules).stdout.splitlines()) for rules in ((), both))
    assert {line.split()[1] for line in after - before} == {"our-badge"}
    assert {line.split()[1] for line in before - after} == {"dose"}
    assert call("rules", "test", *both).exit_code == 0
    path = site / "patterns" / "our-badge.toml"
    path.write_text(path.read_text().replace("heron17", "heron1x"))
    failed = call("rules", "test", *both)
    assert failed.exit_code == 2
    assert "our-badge: hit 1" in failed.stderr


def test_python_takes_a_list(site: Path) -> None:
    made = deid_agent.load(demo_key=True, system="rules", rules=["shipped", site])
    assert CANARY not in made.text(NOTE).text
    with pytest.raises(ConfigurationError, match="no such folder"):
        deid_agent.load(demo_key=True, rules=["shipped", "no-such"])


def test_the_build_has_the_digest_of_the_sites(site: Path, tmp_path: Path) -> None:
    plain = settings_of(tmp_path, "")
    assert "site" not in describe_build(plain, make_worker_factory(plain, DEMO_KEY))
    listed = settings_of(tmp_path, f'rules = ["shipped", "{site}"]')
    parts = make_worker_factory(listed, DEMO_KEY)
    build = describe_build(listed, parts)
    assert build["site"] == digest_sites([site])[:16]
    assert build["rules"] == describe_build(plain, make_worker_factory(plain, DEMO_KEY))["rules"]
    shown = read_inventory(RunningAgent(parts, listed, build))
    assert shown["changed"] == []
    rules = shown["rules"]
    assert isinstance(rules, list)
    assert [rule["digest"] != "" for rule in rules if rule["id"] == "our-badge"] == [True]
    assert CANARY not in json.dumps(shown)
    (site / "lists" / "DOCTOR.txt").write_text("Other\n")
    assert read_inventory(RunningAgent(parts, listed, build))["changed"] == ["site"]


@pytest.mark.parametrize("rules", ["", 'rules = "own"'])
def test_the_form_of_a_folder_in_the_configuration_digest_is_the_former_one(tmp_path: Path, rules: str) -> None:
    dumped = json.loads(settings_of(tmp_path, rules).model_dump_json())
    assert dumped["rules"] == ("own" if rules else None)


@pytest.mark.parametrize("rules", ["rules = []", "rules = 3", "rules = [3]"])
def test_settings_of_another_form_are_refused(tmp_path: Path, rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"agent\.toml: rules"):
        settings_of(tmp_path, rules)


def test_a_variable_of_digits_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_RULES", "123")
    assert settings_of(tmp_path, "").rules == Path("123")


def test_check_shows_the_site_and_its_faults(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", "0123456789abcdef0123456789abcdef")
    settings_of(tmp_path, f'rules = ["shipped", "{site}"]', "none")
    good = call("check", "--config", tmp_path / "agent.toml", "--offline")
    assert (
        f"site          1 value in 1 list, 1 pattern, 0 vetoes, 0 removed, digest {digest_sites([site])[:16]}"
        in good.stdout
    )
    (site / "lists" / "DOCTOR.txt").write_text(f"{CANARY}\0\n")
    bad = call("check", "--config", tmp_path / "agent.toml", "--offline")
    assert bad.exit_code == 2
    assert "DOCTOR.txt:1: a control character" in bad.stdout
    assert CANARY not in bad.output


def test_builds_of_batch_runs_never_mix(site: Path, tmp_path: Path) -> None:
    table = load_table("omop/note", RULES)

    def build(*rules: str | Path) -> str:
        parts = make_factory(DEMO_KEY, policy="research", profile="recall", system="rules", rules=rules)
        return make_head(table, parts, OutputFormat.CSV).build

    first = build("shipped", site)
    assert len({build(), first}) == 2
    assert build("shipped", site) == first
    (site / "lists" / "DOCTOR.txt").write_text("Other\n")
    assert build("shipped", site) != first


def test_engines_get_absolute_folders(tmp_path: Path) -> None:
    system = EngineSystem(rules=("shipped", "site")).resolve(tmp_path)
    assert system.rules == ("shipped", str(tmp_path / "site"))
    assert EngineSystem(rules="own").resolve(tmp_path).rules == str(tmp_path / "own")
    assert plain_rules(["shipped", tmp_path]) == ("shipped", str(tmp_path))
    assert plain_rules(None) is None


def test_frames_take_a_list(site: Path) -> None:
    table: Table = load_table("omop/note", RULES)
    given: list[list[str | Path] | None] = [None, ["shipped", site]]
    frames = [BatchDeidentifier(table, demo_key=True, system="rules", rules=rules) for rules in given]
    assert len({frame.load() for frame in frames}) == 2


def test_import_merges_and_prints_counts(tmp_path: Path) -> None:
    out, file = tmp_path / "site", tmp_path / "staff.csv"
    file.write_text(f"family,given,ward\n{CANARY},Ada,Harbor View\nKeller,Ruth,Surgery\n1,,4\n")
    done = call("rules", "import", file, "--out", out)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "DOCTOR: 2 new, 2 in all",
        "HOSPITAL: 1 new, 1 in all",
        "left out: 1 ordinary word",
        "left out: 2 values too short, too long or without a name",
    ]
    again = call("rules", "import", file, "--out", out)
    assert again.stdout.splitlines()[:2] == ["DOCTOR: 0 new, 2 in all", "HOSPITAL: 0 new, 1 in all"]
    assert CANARY not in done.output + again.output
    assert (out / "lists" / "DOCTOR.txt").read_text() == f"Keller, Ruth\n{CANARY}, Ada\n"
    found = call("text", "--demo-key", "--system", "rules", "--rules", "shipped", "--rules", out, stdin=NOTE)
    assert CANARY not in found.stdout
    file.write_text("family\n1\n")
    assert call("rules", "import", file, "--out", out).exit_code == 2
    assert call("rules", "import", tmp_path / "none", "--out", out).exit_code == 2


def test_learn_writes_a_rule_that_finds_the_samples(tmp_path: Path) -> None:
    samples, out = tmp_path / "ids.txt", tmp_path / "site"
    samples.write_text("".join(f"HN-{n * 391 % 9999:04}-{n * 7 % 100:02}\n" for n in range(1, 26)))
    options = ("--id", "our-badge", "--type", "IDNUM", "--out", out)
    done = call("rules", "learn", samples, *options)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("our-badge.toml: HN-[0-9]{4}-[0-9]{2}\n")
    text = (out / "patterns" / "our-badge.toml").read_text()
    assert not any(each in text for each in samples.read_text().split())
    both = ("--rules", "shipped", "--rules", out)
    assert call("rules", "test", *both).exit_code == 0
    assert "HN-0391-07" not in call("text", "--demo-key", *both, stdin="see HN-0391-07").stdout
    again = call("rules", "learn", samples, *options)
    assert again.exit_code == 2
    assert "exists; remove it" in again.stderr
    taken = call("rules", "learn", samples, "--id", "dose", "--type", "IDNUM", "--out", out)
    assert "another rule has this id" in taken.stderr
    samples.write_text("".join(f"{n}\n" for n in range(1000000, 1000030)))
    number = call("rules", "learn", samples, "--id", "our-pager", "--type", "PHONE", "--out", out)
    assert "the format is a number" in number.stderr
    wide = call("rules", "learn", samples, "--id", "Our", "--type", "PHONE", "--out", out)
    assert "--id: write small letters" in wide.stderr


def test_eval_takes_a_site(site: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "notes"
    corpus.mkdir()
    (corpus / "aa-01.txt").write_text(
        f"@@PATIENT id=aa-01\n{{}}\n@@NOTE id=aa-01-1 type=note date=2014-02-06\nTowel by [[DOCTOR|{CANARY}]].\n@@END\n"
    )
    scores = []
    for rules in ((), ("--rules", "shipped", "--rules", site)):
        done = call("eval", corpus, "--split", "all", "--system", "rules", *rules, "--json", "-")
        assert done.exit_code == 0, done.stderr
        scores.append(json.loads(done.stdout)["authors"]["aa"]["strict"]["recall"]["value"])
    assert scores == [0.0, 1.0]

"""``deid-agent rules import`` and ``rules learn``: the lists and rules of a site folder.

What they read and write are names and identifiers of people, so they print counts only.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path

import click

from deid_agent.cli.common import Exit, handle_errors, printable, refuse_existing, rules_option
from deid_agent.measure import load_grammar
from deid_agent.model import ConfigurationError, PhiType, counted
from deid_agent.recognize import load_rules
from deid_agent.rules import (
    CHECKS,
    Dictionaries,
    PatternFile,
    RuleCompiler,
    find_clash,
    find_rules,
    fits,
    learn_format,
    merge_values,
    read_import,
    require_id,
    write_private,
)

_PLACES = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION, PhiType.CITY, PhiType.STREET, PhiType.LOCATION_OTHER})
_NO_WORD = frozenset({"city", "city-world", "county", "hospital", "organization"})
_MARKS = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)

out_option = click.option(
    "--out", metavar="SITE", required=True, type=click.Path(path_type=Path), help="The site folder."
)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@out_option
@handle_errors
def import_lists(file: Path, out: Path) -> Exit:
    """Add the staff and places of FILE to the lists of a site folder.

    FILE is a CSV with a header, an HL7 master file (MFN^M02, MFN^M05), or FHIR: a resource, a bundle or NDJSON. Single
    ordinary words are left out: a ward Surgery would hide each mention of surgery. Prints counts and no value.
    """
    found = read_import(file)
    ordinary = _OrdinaryWords()
    values: dict[PhiType, list[str]] = {}
    left: Counter[str] = Counter()
    for kind, value in found:
        if not fits(value, kind):
            left["unreadable"] += 1
        elif kind in _PLACES and ordinary.is_word(value):
            left["ordinary"] += 1
        else:
            values.setdefault(kind, []).append(value)
    if not values:
        raise ConfigurationError(f"{printable(file)}: no value that a list may have")
    for kind in sorted(values):
        new, total = merge_values(out / "lists" / f"{kind}.txt", values[kind])
        click.echo(f"{kind}: {new} new, {total} in all")
    if left["ordinary"]:
        click.echo(f"left out: {counted(left['ordinary'], 'ordinary word')}")
    if left["unreadable"]:
        click.echo(f"left out: {counted(left['unreadable'], 'value')} too short, too long or without a name")
    return Exit.DONE


class _OrdinaryWords:
    """Which single words are words of English or medicine; the dictionaries are read when the first one is asked."""

    def __init__(self) -> None:
        self._lists: Dictionaries | None = None

    def is_word(self, value: str) -> bool:
        if not value.isalpha():
            return False
        if self._lists is None:
            self._lists = Dictionaries.load(find_rules().folder)
        return not self._lists.lists_of(value) <= _NO_WORD


@click.command("learn")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--id", "id_", metavar="ID", required=True, help="The id of the new rule.")
@click.option("--type", "kind", type=click.Choice([each.value for each in PhiType]), required=True, help="Its type.")
@click.option("--label", default="", help="The word before each value; needed for numbers.")
@out_option
@rules_option
@handle_errors
def learn(samples: Path, id_: str, kind: str, label: str, out: Path, rules: tuple[str, ...]) -> Exit:
    """Write a pattern rule for identifiers of the form of SAMPLES, 20 or more, one a line.

    The rule holds invented samples, not those of the file. A form that clinical texts have too is refused.
    """
    path = out / "patterns" / f"{require_id(id_)}.toml"
    refuse_existing("--id", path)
    try:
        given = samples.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{printable(samples)}: cannot be read as UTF-8 ({type(problem).__name__})") from None
    made = learn_format(given, " ".join(label.split()))
    text = made.rule_file(id_, PhiType(kind), {sample.strip() for sample in given})
    found = find_rules(rules)
    loaded = load_rules(found.folder, found.sites)
    if any(rule.id == id_ for rule in loaded.every_rule):
        raise ConfigurationError(f"--id {id_}: another rule has this id; choose another one")
    compiler = RuleCompiler.for_folder(found.folder, CHECKS)
    rule = compiler.compile_file(path, PatternFile.model_validate(tomllib.loads(text)))
    forms = load_grammar(found.folder).forms
    measured = [_MARKS.sub(r"\1", sample) for form in forms for sample in form.rule.hit]
    if clash := find_clash(rule, loaded, measured):
        raise ConfigurationError(f"the format matches {clash}: give --label WORD, or write a rule by hand")
    write_private(path, text)
    click.echo(f"{printable(path)}: {made.pattern}{f' after {label}' if label else ''}")
    return Exit.DONE

"""``deid-agent rules``: what is loaded, and every rule against its own samples."""

import click
import orjson

from deid_agent import resources, ruleset
from deid_agent.cli.common import Exit, guarded, say
from deid_agent.recognize import registry


@click.group()
def rules() -> None:
    """List the rules, or test each against its own hits and misses."""


@rules.command("list")
@click.option("--rules", "folder", metavar="DIR", help="Rules folder in place of the packaged one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per rule.")
@guarded
def list_(folder: str | None, as_json: bool) -> Exit:
    """Every rule that is loaded, with its types and why it exists."""
    loaded = registry.load_rules(resources.folder("rules", folder))
    for kind, group in (("pattern", loaded.patterns), ("veto", loaded.vetoes)):
        for rule in group:
            types = [t.value for t in rule.types]
            if as_json:
                click.echo(orjson.dumps({"id": rule.id, "kind": kind, "types": types, "why": rule.why}).decode())
            else:
                click.echo(f"{kind:8} {rule.id:28} {', '.join(types) or 'every type':24} {rule.why}")
    return Exit.DONE


@rules.command("test")
@click.option("--rules", "folder", metavar="DIR", help="Rules folder in place of the packaged one.")
@guarded
def test(folder: str | None) -> Exit:
    """Run every rule over its own hits and misses; a failing one makes the exit code 2."""
    loaded = registry.load_rules(resources.folder("rules", folder))
    faults = ruleset.check(loaded)
    for fault in faults:
        say(fault)
    samples = sum(len(rule.hit) + len(rule.miss) for rule in (*loaded.patterns, *loaded.vetoes))
    right = samples - len(faults)
    say(f"{len(loaded.patterns)} patterns, {len(loaded.vetoes)} vetoes: {right} of {samples} samples hold")
    return Exit.CONFIGURATION if faults else Exit.DONE

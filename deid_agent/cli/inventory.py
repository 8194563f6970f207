"""The inventory of an agent, for the console, and ``deid-agent rules``, which lists and tests the rules.

The inventory names rules, word lists, models, policy and configuration with their digests. Its functions read files and
block, so the console calls them in a thread.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import orjson

from deid_agent.app import WorkerFactory
from deid_agent.cli.common import Exit, echo_error, handle_errors, rules_option
from deid_agent.cli.site_rules import import_lists, learn
from deid_agent.config import Settings, shown_settings
from deid_agent.measure import check_forms, load_grammar
from deid_agent.model import counted
from deid_agent.pipeline import Policy
from deid_agent.recognize import SYSTEMS, load_rules
from deid_agent.rules import (
    Rule,
    Ruleset,
    check_contexts,
    check_samples,
    data_folder,
    digest_folder,
    digest_sites,
    find_rules,
)


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """The settings and parts that the agent was started with. ``build`` is the build that its audit records."""

    parts: WorkerFactory
    settings: Settings = field(repr=False)
    build: Mapping[str, str]
    demo: bool = False


def read_inventory(agent: RunningAgent) -> dict[str, object]:
    """Everything the agent loads, as JSON values for the page "Rules and models".

    ``changed`` names the folders whose files differ from those at the start; the agent still runs with the old ones.
    Raises ``ConfigurationError`` if a folder cannot be read any more.
    """
    parts, build = agent.parts, agent.build
    models = parts.models or data_folder("models")
    loaded = load_rules(parts.rules, parts.sites)
    now = {"rules": digest_folder(parts.rules)[:16], "models": digest_folder(models)[:16]}
    if parts.sites:
        now["site"] = digest_sites(parts.sites)[:16]
    used = {name for name, _ in SYSTEMS[parts.system].models} if parts.system in SYSTEMS else set()
    return {
        "build": dict(build),
        "changed": [name for name, digest in now.items() if digest != build.get(name)],
        "system": parts.system,
        "profile": parts.profile,
        "bound": "" if parts.bound is None else parts.bound.sentence,
        "key": {"id": parts.key.id, "demo": parts.key.demo},
        "rules": [
            {
                "id": rule.id,
                "kind": kind,
                "types": [t.value for t in rule.types],
                "confidence": rule.confidence.value if kind == "pattern" else None,
                "why": rule.why,
                "digest": _digest_file(folder / f"{rule.id}.toml"),
            }
            for kind, folder, rule in _list_rules(loaded)
        ],
        "lists": [{"id": name, "words": len(words)} for name, words in sorted(loaded.lexicons.items())],
        "models": _describe_models(models, used),
        "policy": _describe_policy(parts.policy),
        "projects": [
            {
                "name": each.name,
                "policy": each.policy.name,
                "digest": each.policy.digest,
                "key": each.key.id,
                "generation": each.generation,
                "routes": [
                    f"{feed.topic} to {feed.target}" for feed in agent.settings.feeds if feed.project == each.name
                ],
            }
            for each in ((parts.default, *parts.projects) if agent.settings.has_projects else ())
        ],
        "configuration": [asdict(setting) for setting in shown_settings(agent.settings)],
    }


def _list_rules(loaded: Ruleset) -> Iterator[tuple[str, Path, Rule]]:
    """Each rule that runs, with its kind and its folder; those of site folders last."""
    site = loaded.site
    for kind, folder, rules, own in (
        ("pattern", "patterns", loaded.patterns, site.patterns if site else ()),
        ("veto", "vetoes", loaded.vetoes, site.vetoes if site else ()),
        ("late veto", "late-vetoes", loaded.late_vetoes, ()),
    ):
        yield from (
            (kind, loaded.folder / folder, rule) for rule in rules if site is None or rule.id not in site.removed
        )
        folders = site.folders if site else ()
        places = {path.stem: path.parent for each in folders for path in (each / folder).glob("*.toml")}
        yield from ((kind, places[rule.id], rule) for rule in own)


def _describe_models(folder: Path, names: Set[str]) -> list[dict[str, object]]:
    """Every model of the folder. Word vectors are in use if a model of the running system was trained with them."""
    manifests = {path.stem: _read_manifest(path) for path in sorted(folder.glob("*.json"))}
    needed = {manifests[name].get("vectors") for name in names & manifests.keys()} - {None, ""}
    return [
        _describe_model(name, manifest, name in names or manifest.get("sha256") in needed)
        for name, manifest in manifests.items()
    ]


def _describe_model(name: str, manifest: dict[str, object], used: bool) -> dict[str, object]:
    return {
        "id": name,
        "used": used,
        "about": str(manifest.get("about", "")),
        "kind": str(manifest.get("kind", "")),
        "digest": str(manifest.get("sha256", "")),
        "trained": _dict_or_empty(manifest.get("corpus")),
        "versions": manifest.get("versions", {}),
        "scores": _dict_or_empty(manifest.get("scores")),
    }


def _read_manifest(path: Path) -> dict[str, object]:
    try:
        return _dict_or_empty(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}


def _dict_or_empty(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _describe_policy(policy: Policy) -> dict[str, object]:
    return {
        "name": policy.name,
        "digest": policy.digest,
        "default": policy.default.value,
        "types": {kind.value: method.value for kind, method in sorted(policy.types.items())},
        "paths": {path: method.value for path, method in sorted(policy.paths.items())},
        "dates": "patient" if policy.dates.by_patient else "document",
        "places": policy.place_scope.value,
        "max_shift_days": policy.dates.max_shift_days,
        "offset_days": policy.dates.offset_days,
        "technical": policy.technical.value,
        "record_key": policy.record_key.value,
        "headers": sorted(policy.headers),
        "attachments": {
            "pdf": policy.pdf.value,
            "url": policy.attachment_url.value,
            "unreadable": policy.unreadable.value,
        },
    }


def _digest_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


@click.group()
def rules() -> None:
    """List and test rules; make the lists and rules of a site."""


rules.add_command(import_lists)
rules.add_command(learn)


@rules.command("list")
@rules_option
@click.option("--json", "as_json", is_flag=True, help="One JSON line per rule.")
@handle_errors
def list_(rules: tuple[str, ...], as_json: bool) -> Exit:
    """List every rule and every form of a measurement, with its types and the reason for it."""
    found = find_rules(rules)
    loaded = load_rules(found.folder, found.sites)
    for kind, _, rule in _list_rules(loaded):
        types = [t.value for t in rule.types]
        if as_json:
            click.echo(orjson.dumps({"id": rule.id, "kind": kind, "types": types, "why": rule.why}).decode())
        else:
            click.echo(f"{kind:9} {rule.id:28} {', '.join(types):24} {rule.why}")
    for form in load_grammar(loaded.folder).forms:
        measured = f"{form.kind}, {form.veto}"
        if as_json:
            row = {"id": form.rule.id, "kind": "form", "measure": form.kind, "veto": form.veto, "why": form.rule.why}
            click.echo(orjson.dumps(row).decode())
        else:
            click.echo(f"{'form':8} {form.rule.id:28} {measured:24} {form.rule.why}")
    return Exit.DONE


@rules.command("test")
@rules_option
@handle_errors
def test(rules: tuple[str, ...]) -> Exit:
    """Test every rule against its own samples.

    The exit code is 2 if a sample fails.
    """
    found = find_rules(rules)
    loaded = load_rules(found.folder, found.sites)
    grammar = load_grammar(loaded.folder)
    faults = [*check_samples(loaded), *check_forms(grammar), *check_contexts(loaded.contexts)]
    for fault in faults:
        echo_error(fault)
    tested = (*loaded.every_rule, *(form.rule for form in grammar.forms))
    contexts = tuple(context for entries in loaded.contexts.values() for context in entries.values())
    samples = sum(len(rule.hit) + len(rule.miss) for rule in tested)
    samples += sum(len(context.hit) + len(context.miss) for context in contexts)
    right = samples - len(faults)
    patterns = (*loaded.patterns, *(loaded.site.patterns if loaded.site else ()))
    vetoes = (*loaded.vetoes, *(loaded.site.vetoes if loaded.site else ()))
    echo_error(
        f"{counted(len(patterns), 'pattern')}, {counted(len(vetoes), 'veto', 'vetoes')}, "
        f"{counted(len(loaded.late_vetoes), 'late veto', 'late vetoes')}, {counted(len(grammar.forms), 'form')}, "
        f"{counted(len(contexts), 'context')}: "
        f"{right} of {counted(samples, 'sample')} pass"
    )
    return Exit.CONFIGURATION if faults else Exit.DONE

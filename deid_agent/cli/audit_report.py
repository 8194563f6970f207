"""``deid-agent audit report``: the report of a study, of an audit trail or of the folder of a batch run."""

import re
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import click
import orjson

from deid_agent import __version__
from deid_agent.agent import DEFAULT_PROJECT
from deid_agent.audit import (
    Finding,
    Signer,
    StudyFigures,
    StudyPeriod,
    StudyProof,
    StudyReport,
    TrailReport,
    describe_proof,
    read_entries,
    study_json,
    study_page,
    study_trails,
)
from deid_agent.cli.common import Exit, echo_error, fault_text, handle_errors, printable, refuse_existing, write_new
from deid_agent.cli.trusted_keys import find_trusted
from deid_agent.cli.unexamined_file import parse_ledger
from deid_agent.config import DEMO_KEY
from deid_agent.model import ConfigurationError, counted
from deid_agent.pipeline import Method, Policy, load_policy
from deid_agent.rules import find_rules

_MANIFEST = "_manifest.jsonl"
_METHODS: Mapping[Method, str] = {
    Method.SURROGATE: "replaced by invented values",
    Method.LINK: "replaced by codes that are equal within one record only",
    Method.REDACT: "removed",
    Method.MASK: "masked by the name of their type",
    Method.GENERALIZE: "made coarser",
    Method.KEEP: "kept",
}
_DAY = click.DateTime(["%Y-%m-%d"])
_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("folders", metavar="FOLDER...", type=_PATH, nargs=-1, required=True)
@click.option("--project", default=DEFAULT_PROJECT, show_default=True, help="The project; of a batch run only a title.")
@click.option("--from", "first", metavar="DATE", type=_DAY, help="The first day (UTC), such as 2026-01-31.")
@click.option("--to", "last", metavar="DATE", type=_DAY, help="The last day (UTC).")
@click.option("--out", metavar="PAGE", type=_PATH, required=True, help="New file: the report as an HTML page.")
@click.option("--json", "json_file", metavar="FILE", type=_PATH, help="New file: the report as JSON.")
@click.option("--policy", "policies", metavar="FILE", multiple=True, help="A policy file of yours, to show its words.")
@click.option("--unexamined", metavar="FILE", type=_PATH, help="The ledger that the agent wrote (audit.unexamined).")
@click.option("--public-key", "public", metavar="HEX", multiple=True, help="Trusted public key; see `audit key`.")
@click.option("--key-file", metavar="FILE", type=_PATH, help="The agent's secret key.")
@click.option("--head", metavar="FILE", type=_PATH, help="Heads kept elsewhere: a copy of head.json, or a witness.")
@click.option("--unauthenticated", is_flag=True, help="Trust the keys that the trail names: shows consistency only.")
@handle_errors
def report(
    folders: tuple[Path, ...],
    project: str,
    first: datetime | None,
    last: datetime | None,
    out: Path,
    json_file: Path | None,
    policies: tuple[str, ...],
    unexamined: Path | None,
    public: tuple[str, ...],
    key_file: Path | None,
    head: Path | None,
    unauthenticated: bool,
) -> Exit:
    """Write a report for a data-use committee: counts, reasons, policy and versions, without a value of a message.

    FOLDER is that of an audit trail, or of the outputs of `batch run`; several are the trails of the agents of one
    group. They are verified while they are read: the exit code is 1, and the report begins with it, if one is not
    intact. Without a key the call is refused, as by `audit verify`.
    """
    _check_new("--out", out)
    _check_new("--json", json_file)
    if json_file is not None and json_file.resolve() == out.resolve():
        raise ConfigurationError("--json and --out name one file")
    project = printable(project)
    period = StudyPeriod(first and first.date(), last and last.date())
    if period.first is not None and period.last is not None and period.first > period.last:
        raise ConfigurationError(f"--from {period.first} is after --to {period.last}")
    if missing := next((folder for folder in folders if not folder.is_dir()), None):
        raise ConfigurationError(f"{printable(missing)}: no such folder")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigurationError("a folder is given twice")
    if head is not None and len(folders) > 1:
        raise ConfigurationError("--head has the heads of one trail: verify each trail with its own by `audit verify`")
    trusted = None if unauthenticated else find_trusted(public, key_file)
    if trusted is None and not unauthenticated:
        raise ConfigurationError(
            "no key: give --public-key, the output of `deid-agent audit key FOLDER` when the trail was new, or "
            "--unauthenticated for a report that does not show who wrote the trail"
        )
    files = _read_policies(policies)
    ledger = None if unexamined is None else _read_ledger(unexamined)
    if any((folder / _MANIFEST).is_file() for folder in folders):
        if len(folders) > 1:
            raise ConfigurationError("a batch run has a report of its own: name one folder")
        if first is not None or last is not None:
            raise ConfigurationError("--from and --to: the folder of a batch run is one run; leave them out")
        figures, proof = _study_batch(folders[0], project, trusted, head)
    else:
        figures, found = study_trails(folders, project, period, trusted, head, _refuse_batch_trail)
        proof = _prove(found, trusted, compared=_is_kept_elsewhere(head, folders))
    words = {policy: _find_words(policy, files, figures) for policy in figures.policies}
    made = StudyReport(figures, proof, words, ledger, time.time())
    write_new(out, study_page(made), 0o644)
    if json_file is not None:
        write_new(json_file, orjson.dumps(study_json(made), option=orjson.OPT_INDENT_2).decode() + "\n", 0o644)
    click.echo(
        f"{counted(figures.messages, figures.unit)}, {counted(figures.replaced, 'value')} replaced, "
        f"{figures.refused} refused: {printable(out)}"
    )
    if not proof.sound:
        echo_error(f"deid-agent: {describe_proof(made)}")
    return Exit.DONE if proof.sound else Exit.REFUSED


def _check_new(option: str, file: Path | None) -> None:
    """Raise ``ConfigurationError`` now if a file could not be made after minutes of reading."""
    if file is None:
        return
    refuse_existing(option, file)
    if file.is_symlink() or file.exists():
        raise ConfigurationError(f"{option} {printable(file)}: exists; name a new file")
    if not file.absolute().parent.is_dir():
        raise ConfigurationError(f"{option} {printable(file)}: its folder does not exist; make it first")


def _refuse_batch_trail(found: TrailReport) -> None:
    if found.entries and set(found.streams) == {"manifest/0"}:
        raise ConfigurationError(
            "this is the trail of a batch run, with an entry for each file: name its output folder"
        )
    if not found.segments:
        raise ConfigurationError("the folder has no segment of a trail: name audit.path, or the OUT of a batch run")


def _prove(found: Sequence[TrailReport], trusted: Collection[str] | None, *, compared: bool) -> StudyProof:
    demo = Signer(DEMO_KEY.audit_seed).public
    several = len(found) > 1
    faults, warnings, facts = list[Finding](), list[Finding](), dict[str, str | int]()
    for number, trail in enumerate(found, 1):
        place = f"trail {number}, " if several else ""
        faults += [(f"{place}{one.where}", str(one.code), one.detail) for one in trail.faults]
        warnings += [(f"{place}{one.where}", str(one.code), one.detail) for one in trail.warnings]
        names = ", ".join(name or "an unnamed agent" for name in trail.agents) or "nobody"
        facts[f"Trail {number}" if several else "Trail"] = f"{trail.trail} of {names}, first key {trail.first_key}"
    facts["Entries"] = sum(trail.entries for trail in found)
    facts["Signed statements"] = sum(trail.checkpoints for trail in found)
    facts["Numbers of messages that a trail skips"] = sum(
        stream.absent for trail in found for stream in trail.streams.values()
    )
    trust = _describe_trust(trusted, anchored=trusted is not None and all(each.first_key in trusted for each in found))
    if any(each.keys == [demo] for each in found):
        trust += " It was made with the public demonstration key, which anyone can use."
    return StudyProof(trust, tuple(faults), tuple(warnings), facts, trusted is not None, compared)


def _is_kept_elsewhere(head: Path | None, folders: Sequence[Path]) -> bool:
    """Whether heads were given that are not those beside the trail, which are cut off with it."""
    return head is not None and not any(head.resolve().is_relative_to(folder.resolve()) for folder in folders)


def _describe_trust(trusted: Collection[str] | None, *, anchored: bool) -> str:
    if trusted is None:
        return "No key was given for this check: it does not show who wrote the trail, or whether it was written anew."
    if anchored:
        return "It was begun under the first key that was given for this check."
    return "It was begun by a holder of the secret key, who could also have written another trail in its place."


def _study_batch(
    folder: Path, project: str, trusted: Collection[str] | None, head: Path | None
) -> tuple[StudyFigures, StudyProof]:
    """The figures of a batch run, and the verification of its folder."""
    from deid_agent import batch  # noqa: PLC0415 - only for a batch run

    check = batch.verify_folder(folder, trusted, head)
    try:
        manifest = batch.read_manifest(folder)
    except batch.ManifestError as problem:
        manifest = problem.rest
    if manifest is None or not manifest.finished:
        raise ConfigurationError("the folder of the batch run has no finished unit")
    try:
        entries = read_entries(batch.trail_folder(folder))
        times = [at for each in entries if isinstance(at := each.get("time"), int | float)]
    except ConfigurationError:
        times = []  # a finding of the verification
    span = (min(times), max(times)) if times else (float("nan"), float("nan"))
    figures = batch.make_study(batch.make_report(manifest), manifest, project, span)
    proof = StudyProof(
        _describe_trust(trusted, anchored=check.anchored),
        tuple((printable(one.place), str(one.code), one.detail) for one in check.findings),
        facts={
            "Run": f"build {manifest.head.build}, table {manifest.head.table}",
            "First key": check.first_key,
            "Output files": check.units,
            "Signed lines": check.lines,
            "Rows without a patient": sum(each.no_patient for each in manifest.finished),
        },
        authenticated=trusted is not None,
        compared=_is_kept_elsewhere(head, [folder]),
    )
    return figures, proof


def _read_ledger(path: Path) -> dict[str, int]:
    """The counts of a ledger by reason. Raises ``ConfigurationError``."""
    try:
        counts = parse_ledger(path.read_text("utf-8"))
    except OSError as problem:
        raise ConfigurationError(f"--unexamined {printable(path)}: {fault_text(problem)}") from None
    except ValueError:
        raise ConfigurationError(f"--unexamined {printable(path)}: is not a ledger of unexamined values") from None
    found = Counter[str]()
    for (_, _, why), count in counts.items():
        found[why] += count
    return dict(found.most_common())


def _read_policies(files: Collection[str]) -> dict[str, str]:
    """The words of policy files, by name and digest as a build has them."""
    return dict(_describe_file(each) for each in files)


def _describe_file(name_or_file: str) -> tuple[str, str]:
    """A policy as a build names it, and its words. Raises ``ConfigurationError``."""
    policy = load_policy(name_or_file, find_rules("shipped").folder)
    shipped = _shipped_file(name_or_file)
    path = shipped if shipped.is_file() else Path(name_or_file)
    why = " ".join(str(tomllib.loads(path.read_text("utf-8")).get("why", "")).split())
    return f"{policy.name}:{policy.digest[:16]}", f"{why} {_describe_methods(policy)}".strip()


def _shipped_file(name: str) -> Path:
    return find_rules("shipped").folder / "policies" / f"{name}.toml"


def _describe_methods(policy: Policy) -> str:
    """The methods of a policy, in a sentence."""
    groups: dict[Method, list[str]] = {}
    for kind, method in policy.types.items():
        if method is not policy.default:
            groups.setdefault(method, []).append(kind)
    others = "".join(f"; {_METHODS[method]}: {', '.join(sorted(kinds))}" for method, kinds in groups.items())
    paths = f"; {counted(len(policy.paths), 'path')} with a rule of its own" if policy.paths else ""
    return f"Values are {_METHODS[policy.default]}{others}{paths}."


def _find_words(policy: str, files: Mapping[str, str], figures: StudyFigures) -> str:
    """The words of a policy that a build names: those of a file with its digest, and nothing else."""
    if policy in files:
        return files[policy]
    name, _, digest = policy.partition(":")
    # The name comes from the trail, which anybody may have written: it is never a path.
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not _shipped_file(name).is_file():
        return ""
    named, words = _describe_file(name)
    if named == policy:
        return words
    # The build of a batch run has the name alone.
    same = not digest and all(use.build.get("version") == __version__ for use in figures.builds)
    return f"As release {__version__} ships it: {words}" if same and words else ""

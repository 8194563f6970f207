"""``deid-agent evidence``: a signed report about a feed, and its verification."""

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import click

from deid_agent import __version__
from deid_agent.audit import Signer
from deid_agent.cli.common import Exit, echo_error, handle_errors, printable, rules_option, warn_of_demo
from deid_agent.cli.projects import describe_policy
from deid_agent.cli.trusted_keys import require_trusted
from deid_agent.config import DEMO_KEY, load_key
from deid_agent.eval import CorpusFormat, Note, read_annotated
from deid_agent.evidence import (
    EvidenceReport,
    ParrotTools,
    check_origin,
    evidence_page,
    load_evidence_lists,
    make_sections,
    read_feed,
    read_patients,
    refuse_report,
    verify_report,
    write_report,
)
from deid_agent.model import ConfigurationError, Document, PhiType, format_time
from deid_agent.pipeline import load_policy
from deid_agent.recognize import Profile, load_rules, load_tagger
from deid_agent.review import read_random_sample
from deid_agent.rules import Dictionaries, RuleFolders, data_folder, digest_folder, digest_sites, find_rules
from deid_agent.surrogate import list_words, load_lists
from deid_agent.train import CrfSettings, require_extra, train_crf


class _ReportByDefault(click.Group):
    """``evidence ORIGINALS OUTPUTS`` is ``evidence report ORIGINALS OUTPUTS``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["report", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # An option before the folders is one of the report; click would read it as one of the group.
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["report", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ReportByDefault)
def evidence() -> None:
    """Report about a de-identified feed: leaks, equity, utility."""


@evidence.command()
@click.argument("originals", metavar="ORIGINALS", type=click.Path(path_type=Path))
@click.argument("outputs", metavar="OUTPUTS", type=click.Path(path_type=Path))
@click.option("--out", metavar="DIR", required=True, type=click.Path(path_type=Path), help="Folder of the report.")
@click.option(
    "--sample",
    metavar="GOLD",
    type=click.Path(path_type=Path),
    help="Reviewed sample: originals with all identifiers annotated.",
)
@click.option("--review", metavar="FOLDER", type=click.Path(path_type=Path), help="A review folder in place of GOLD.")
@click.option("--review-key", metavar="FILE", type=click.Path(path_type=Path), help="The key that opens its gold.")
@click.option("--format", "format_name", type=click.Choice([f.value for f in CorpusFormat]), help="Format of GOLD.")
@click.option(
    "--patients",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="CSV of groups: patient,sex,birth_year,name_origin,...",
)
@click.option(
    "--audit", metavar="FOLDER", type=click.Path(path_type=Path), help="Trail of the agent that made the outputs."
)
@click.option("--policy", "policy_name", metavar="NAME", help="Policy of the outputs: a profile name or a policy file.")
@click.option("--sign-key", metavar="FILE", type=click.Path(path_type=Path), help="Secret key that signs the report.")
@click.option("--demo-key", is_flag=True, help="Sign with the public demonstration key.")
@click.option("--attacks/--no-attacks", default=True, show_default=True, help="Attack the outputs of the sample.")
@click.option("--accept-missing", is_flag=True, help="Originals without an output were refused: count them.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the resamples of patients.")
@click.option(
    "--time",
    "made",
    metavar="TIME",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"]),
    help="Time of the report in UTC; by default now.",
)
@rules_option
@handle_errors
def report(
    originals: Path,
    outputs: Path,
    out: Path,
    sample: Path | None,
    review: Path | None,
    review_key: Path | None,
    format_name: str | None,
    patients: Path | None,
    audit: Path | None,
    policy_name: str | None,
    sign_key: Path | None,
    demo_key: bool,
    attacks: bool,
    accept_missing: bool,
    seed: int,
    made: datetime | None,
    rules: tuple[str, ...],
) -> Exit:
    """Write evidence.html, evidence.json and, with a key, evidence.sig about a feed.

    ORIGINALS and OUTPUTS are two folders with files of the same names (notes, JSON lines, HL7 v2, FHIR in JSON), or two
    files. The report has figures only. The time apart, the same inputs and seed give the same bytes.
    """
    if sign_key is not None and demo_key:
        raise ConfigurationError("--demo-key and --sign-key exclude each other")
    if sample is not None and review is not None:
        raise ConfigurationError("--sample and --review exclude each other")
    if patients is not None and sample is None and review is None:
        raise ConfigurationError("--patients compares leaks in the sample: give --sample or --review too")
    refuse_report(out)
    signer = None
    if sign_key is not None or demo_key:
        key = DEMO_KEY if demo_key else load_key(sign_key)
        warn_of_demo(key)
        signer = Signer(key.audit_seed)
    found = find_rules(rules)
    policy = None if policy_name is None else load_policy(policy_name, found.folder)
    at = time.time() if made is None else made.replace(tzinfo=UTC).timestamp()
    groups = None if patients is None else read_patients(patients, datetime.fromtimestamp(at, UTC).year)
    notes = _read_sample(sample, format_name) if review is None else read_random_sample(review, review_key)
    feed = read_feed(originals, outputs, accept_missing=accept_missing)
    if feed.pairs and feed.unchanged == len(feed.pairs):
        echo_error("deid-agent: warning: nothing is replaced in any text: are OUTPUTS the outputs?")
    origin = None if audit is None else check_origin(audit, feed.output_digests)
    tools = make_tools(found) if attacks and notes else "--no-attacks was given"
    sections = make_sections(feed, load_evidence_lists(found.folder), notes, groups, policy, tools, seed)
    build = _describe_build(found)
    settings = {
        "seed": seed,
        "policy": None if policy is None else describe_policy(policy),
        "sample": _digest_notes(notes) if notes else None,
        "sample_notes": len(notes),
        "sample_is_random": review is not None,
        "patients": None if patients is None else hashlib.sha256(patients.read_bytes()).hexdigest()[:16],
        "attacks": attacks,
        "accept_missing": accept_missing,
    }
    if origin is not None:
        build["audit"] = origin
    made_report = EvidenceReport(format_time(at), feed.describe(), build, settings, sections)
    write_report(out, evidence_page(made_report), made_report.encode(), made_report.time, signer)
    for sentence in made_report.findings:
        click.echo(sentence)
    for section in sections:
        if section.absent:
            echo_error(f"deid-agent: {section.title}: no figures: {section.absent}")
    if signer is None:
        echo_error("deid-agent: the report is not signed: give --sign-key")
    else:
        click.echo(f"signed by {signer.public}")
    return Exit.DONE


_KEPT = frozenset({PhiType.AGE, PhiType.STATE, PhiType.COUNTRY})
"""Types that outputs may keep: an attacker does not look for them."""


def make_tools(found: RuleFolders) -> ParrotTools | str:
    """The means of an attacker with this software; a reason if it cannot train."""
    try:
        require_extra()
    except ConfigurationError as problem:
        return str(problem)
    settings = CrfSettings(l1=0.3, l2=0.2, iterations=40)
    rules = load_rules(found.folder, found.sites)
    tagger = load_tagger(rules, data_folder("models"), "default", Profile.RECALL)

    def find(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        spans = tagger.find_all([Document(text) for text in texts])
        return [[(s.start, s.end) for s in each if s.type not in _KEPT] for each in spans]

    return ParrotTools(
        lambda extractor, chains: train_crf(extractor, chains, settings),
        Dictionaries.load(found.folder),
        find,
        list_words(load_lists(found.folder)),
    )


def _read_sample(path: Path | None, format_name: str | None) -> tuple[Note, ...]:
    if path is None:
        return ()
    corpus = read_annotated(path, CorpusFormat(format_name) if format_name else None)
    for remark in corpus.remarks:
        echo_error(remark)
    return corpus.notes


def _digest_notes(notes: Sequence[Note]) -> str:
    digest = hashlib.sha256()
    for note in notes:
        spans = [(span.start, span.end, span.type.value) for span in note.annotated.spans]
        digest.update(repr((note.annotated.text, spans)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _describe_build(found: RuleFolders) -> dict[str, object]:
    """Versions and digests of the software that made the report."""
    terms = resources.files("deid_agent.evidence").joinpath("clinical-terms.txt").read_bytes()
    return {
        "version": __version__,
        "rules": digest_folder(found.folder)[:16],
        **({"site": digest_sites(found.sites)[:16]} if found.sites else {}),
        "models": digest_folder(data_folder("models"))[:16],
        "clinical_terms": hashlib.sha256(terms).hexdigest()[:16],
    }


@evidence.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "--public-key",
    "public",
    metavar="HEX",
    multiple=True,
    help="Trusted public key: the output of `audit key --key-file`.",
)
@click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key that signed it.")
@handle_errors
def verify(folder: Path, public: tuple[str, ...], key_file: Path | None) -> Exit:
    """Check that a report is the one that was signed. The exit code is 1 if it is not."""
    checked = verify_report(folder, require_trusted(public, key_file))
    for fault in checked.faults:
        click.echo(printable(fault))
    if checked.faults:
        click.echo("NOT SOUND")
        return Exit.REFUSED
    click.echo(printable(f"sound: made {checked.time}, signed by {checked.key}"))
    return Exit.DONE

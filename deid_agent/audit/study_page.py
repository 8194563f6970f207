"""The report of a study as a page that prints on two sheets, and as JSON: counts, codes and digests, and no value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Final

from deid_agent import __version__
from deid_agent.agent import Outcome
from deid_agent.audit.faults import FaultCode
from deid_agent.audit.study import OTHER, StudyFigures
from deid_agent.model import PhiType, Reason, counted, format_time
from deid_agent.web import PAPER_STYLE, close_page, open_page, render_table

TYPE_WORDS: Final[Mapping[str, str]] = {
    PhiType.PATIENT: "names of patients and relatives",
    PhiType.DOCTOR: "names of staff",
    PhiType.USERNAME: "user names",
    PhiType.PROFESSION: "professions",
    PhiType.HOSPITAL: "hospitals, wards and clinics",
    PhiType.ORGANIZATION: "other organizations",
    PhiType.STREET: "streets",
    PhiType.CITY: "towns",
    PhiType.STATE: "states",
    PhiType.COUNTRY: "countries",
    PhiType.ZIP: "postal codes",
    PhiType.LOCATION_OTHER: "other places",
    PhiType.AGE: "ages",
    PhiType.DATE: "dates",
    PhiType.PHONE: "telephone numbers",
    PhiType.FAX: "fax numbers",
    PhiType.EMAIL: "e-mail addresses",
    PhiType.URL: "web addresses",
    PhiType.IPADDRESS: "network addresses",
    PhiType.SSN: "social security numbers",
    PhiType.MEDICALRECORD: "medical record numbers",
    PhiType.HEALTHPLAN: "health plan numbers",
    PhiType.ACCOUNT: "account numbers",
    PhiType.LICENSE: "license numbers, also of staff",
    PhiType.VEHICLE: "vehicle numbers",
    PhiType.DEVICE: "device numbers",
    PhiType.BIOID: "biometric identifiers",
    PhiType.IDNUM: "other identifying numbers and codes",
    OTHER: "of a kind that this release does not know",
}
METHOD_WORDS: Final[Mapping[str, str]] = {
    "surrogate": "invented value",
    "link": "code of the record",
    "redact": "removed",
    "mask": "masked",
    "generalize": "made coarser",
    "drop": "left out",
    OTHER: "otherwise",
}
REASON_WORDS: Final[Mapping[str, str]] = {
    Reason.MALFORMED: "incomplete, or not in a known form",
    Reason.UNSUPPORTED: "of a kind that is not supported, or that the policy does not publish",
    Reason.RESOURCE: "too large",
    Reason.REJECTED: "the receiver did not accept the output",
    Reason.KEYLESS: "the output has no key, and its receiver needs one",
    Reason.LEAK: "an identifier was still in the output, which was withheld",
    Reason.LANGUAGE: "in a language that is not configured",
    Reason.SCHEMA: "its form is not registered",
    Reason.POISON: "processing did not end",
    Reason.INTERNAL: "a fault of the program",
    OTHER: "of a kind that this release does not know",
}
UNREAD_WORDS: Final[Mapping[str, str]] = {
    "policy": "the policy keeps them",
    "code": "codes, such as those of a diagnosis",
    "number": "plain numbers, such as results",
    "key": "names of members that are not in the tables",
    "table": "kept by the tables of the standard",
}
_OUTCOME_WORDS: Final = (
    (Outcome.PUBLISHED, "Published under the policy"),
    (Outcome.SUPPRESSED, "Not published, because the policy leaves them out"),
    (Outcome.DEAD_LETTERED, "Refused and kept for repair; not published"),
    (Outcome.REFUSED, "Refused and returned to their sender; not published"),
)
_NOT_COVERED: Final = (
    "Identifiers that were missed. The report counts the values that were found. How many remain is measured on notes "
    "that people have read, in another report.",
    "Messages that never reached the program, that another instance processed, or that were processed without it.",
    "The use of the outputs: who received them, and which data was joined with them later.",
    "Whether a person can be recognized by rare facts, such as a rare diagnosis. That is for an expert to judge.",
    "Images, sounds and other attachments without text, which the policy removes or refuses and never reads.",
)
_GLOSSARY: Final = (
    ("Audit trail", "the list of all processed messages. It holds counts and codes, and no value of a message."),
    ("Digest", "a fingerprint of a file or setting: two that are equal have the same content."),
    ("Intact", "each entry follows from the one before by a digest, and the signatures hold."),
    ("Key", "the secret that invented values are made with. Its id does not reveal it."),
    ("Message", "one HL7 message, FHIR resource or bundle, document or note."),
    ("Policy", "the file that defines how each type of value is replaced."),
    ("Project", "the outputs for one recipient, with a key and policy of their own."),
    ("Refused", "not published because of an error: nothing of the message leaves."),
    ("Unexamined", "published as it was, because neither a table nor a recognizer looks at its place."),
    ("Value", "one name, date, number or place at one position of a message."),
)
Finding = tuple[str, str, str]
"""Place, code and meaning."""
_FINDING: Final = ("where", "code", "detail")
_MOST_BUILDS, _MOST_FAULTS, _MOST_POLICIES = 8, 5, 4


@dataclass(frozen=True, slots=True)
class StudyProof:
    """The result of the verification: a sentence about the key, the faults, and facts by name.

    A fault has its place, its code and its meaning. The trail is intact without one; ``warnings`` are none.
    ``authenticated`` is false if no key was given, ``compared`` if no head that was kept elsewhere was given.
    """

    trust: str
    faults: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    facts: Mapping[str, str | int] = field(default_factory=dict)
    authenticated: bool = True
    compared: bool = False

    @property
    def sound(self) -> bool:
        """True without a fault."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class StudyReport:
    """All of a report. ``policies`` are the words of each policy, "" if its file is not at hand.

    ``unexamined`` are the counts of a ledger by reason, None without one. ``made`` is Unix time.
    """

    figures: StudyFigures
    proof: StudyProof
    policies: Mapping[str, str]
    unexamined: Mapping[str, int] | None
    made: float


def describe_proof(report: StudyReport) -> str:
    """Whether the trail is intact, and what the verification does not show, in a few sentences."""
    proof = report.proof
    if not proof.sound:
        return (
            f"The audit trail is NOT intact: the verification found {counted(len(proof.faults), 'fault')}. Do not rely "
            "on the figures of this report until each fault is explained."
        )
    if not proof.authenticated:
        return f"The audit trail is consistent in itself. {proof.trust}"
    words = ["The audit trail is intact: no signed entry was changed, removed or added.", proof.trust]
    if any(code == FaultCode.UNSIGNED for _, code, _ in proof.warnings):
        words.append("It has entries that are not signed yet, see below: a change of them would not be found.")
    words.append(
        "It has all entries up to the head that was kept elsewhere."
        if proof.compared
        else "It was not compared with a head kept elsewhere, so a newer end that was cut off might not be found."
    )
    return " ".join(words)


def study_page(report: StudyReport) -> str:
    """The report as a page."""
    figures, proof = report.figures, report.proof
    parts = [open_page(f"Study report: {figures.project}", PAPER_STYLE)]
    parts.append(f'<p class="{"good" if proof.sound else "warn"}">{escape(describe_proof(report))}</p>')
    if not proof.sound:
        shown = "".join(f"<li>{escape(': '.join(one))}</li>" for one in proof.faults[:_MOST_FAULTS])
        more = len(proof.faults) - _MOST_FAULTS
        parts.append(f"<ul>{shown}{f'<li>and {more} more</li>' if more > 0 else ''}</ul>")
    parts += [_paragraph(_describe_period(figures)), render_table(("", ""), _summary(report))]
    parts += ["<h2>Replaced values by type</h2>", _types_table(figures)]
    parts += ["<h2>Refused, by reason</h2>", _reasons_table(figures), "<h2>Values left unexamined</h2>"]
    parts += [_unexamined(report), "<h2>The policy</h2>", *_policies(report)]
    parts += ["<h2>Versions and digests</h2>", _builds_table(figures), "<h2>The audit trail</h2>"]
    rows = [*proof.facts.items(), *(("Note", f"{code}: {detail}") for _, code, detail in proof.warnings)]
    parts.append(render_table(("", ""), rows))
    parts.append("<h2>Not covered by this report</h2><ul>")
    parts += [f"<li>{escape(text)}</li>" for text in _NOT_COVERED]
    parts.append("</ul><h2>Words</h2><dl>")
    parts += [f"<dt>{escape(word)}:</dt><dd>{escape(text)}</dd>" for word, text in _GLOSSARY]
    parts.append(f"</dl><p>Made by deid-agent {escape(__version__)} at {format_time(report.made)}.</p>")
    return "".join([*parts, close_page()])


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _describe_period(figures: StudyFigures) -> str:
    first, last = figures.period.first, figures.period.last
    asked = f"{f'from {first}' if first else 'from the beginning'} {f'to {last}' if last else 'to the end'}"
    return (
        f"Period: {asked} (days of UTC); the first {figures.unit} was processed at {format_time(figures.first)}, the "
        f"last one at {format_time(figures.last)}."
    )


def _summary(report: StudyReport) -> Iterator[tuple[str, str | int]]:
    figures = report.figures
    yield f"{figures.unit.capitalize()}s processed", figures.messages
    for outcome, words in _OUTCOME_WORDS:
        if outcome is Outcome.PUBLISHED or figures.outcomes.get(outcome):
            yield words, figures.outcomes.get(outcome, 0)
    if OTHER in figures.outcomes:
        yield "With an outcome that this release does not know", figures.outcomes[OTHER]
    if figures.again:
        yield "Of all: processed again after they were refused", figures.again
    if figures.superseded:
        yield (
            "Not counted: earlier entries of a message that was processed again after an interruption",
            figures.superseded,
        )
    yield "Values replaced", figures.replaced
    if figures.changed is not None:
        yield f"{figures.unit.capitalize()}s with a replaced value", figures.changed
    if figures.named is not None:
        yield (
            f"{figures.unit.capitalize()}s with a replaced name of a patient or relative, or a record number",
            figures.named,
        )
    yield "Patients", "not recorded: the audit trail does not show which messages belong to one person"
    if figures.left_out:
        yield "Values not published, because the policy or the form of the outputs leaves them out", figures.left_out
    left = "not recorded" if report.unexamined is None else sum(report.unexamined.values())
    yield "Values left unexamined", left


def _types_table(figures: StudyFigures) -> str:
    if not figures.types:
        return "<p>None.</p>"
    used = [name for name in METHOD_WORDS if any(name in methods for methods in figures.types.values())]
    heads = ("Type", "Code", "Values", *(METHOD_WORDS[name].capitalize() for name in used))
    rows = (
        (
            TYPE_WORDS.get(kind, TYPE_WORDS[OTHER]).capitalize(),
            kind,
            sum(methods.values()),
            *(methods.get(name, 0) for name in used),
        )
        for kind, methods in figures.types.items()
    )
    return render_table(heads, rows)


def _reasons_table(figures: StudyFigures) -> str:
    rows = [(reason, REASON_WORDS.get(reason, REASON_WORDS[OTHER]), n) for reason, n in figures.reasons.items()]
    return render_table(("Reason", "Meaning", "Refused"), rows) if rows else "<p>Nothing was refused.</p>"


def _unexamined(report: StudyReport) -> str:
    if report.unexamined is None:
        return _paragraph(
            "Not recorded, or the ledger was not given. The agent counts them if audit.unexamined names a file."
        )
    rows = [(why, UNREAD_WORDS.get(why, ""), n) for why, n in report.unexamined.items()]
    note = (
        "From the ledger of the agent, which is not signed and counts all projects since it was begun, not the period."
    )
    return render_table(("Reason", "Meaning", "Values"), rows) + _paragraph(note)


def _policies(report: StudyReport) -> Iterator[str]:
    found = report.figures.policies
    if len(found) > 1:
        yield f'<p class="warn">{len(found)} policies applied in the period.</p>'
    for policy, messages in list(found.items())[:_MOST_POLICIES]:
        words = report.policies.get(policy, "") or "Its file is not at hand, so its words are not shown."
        amount = f"{messages:,} {report.figures.unit}{'' if messages == 1 else 's'}"
        yield f"<p><b>{escape(policy)}</b>, {amount}: {escape(words)}</p>"


def _builds_table(figures: StudyFigures) -> str:
    heads = ("Last day", f"{figures.unit.capitalize()}s", "Version", "Rules, site", "Models", "Configuration", "Key id")
    rows = []
    for use in figures.builds[-_MOST_BUILDS:]:
        build = use.build
        generation = f", generation {build['generation']}" if build.get("generation", "0") != "0" else ""
        rules = ", ".join(filter(None, (build.get("rules"), build.get("site"))))
        rows.append(
            (
                format_time(use.last)[:10],
                use.messages,
                build.get("version", ""),
                rules,
                build.get("models", ""),
                build.get("configuration", build.get("build", "")),
                f"{build.get('key', '')}{generation}",
            )
        )
    left = len(figures.builds) - len(rows)
    return render_table(heads, rows) + (_paragraph(f"{left} earlier ones are in the JSON form.") if left else "")


def study_json(report: StudyReport) -> dict[str, object]:
    """The report for machines."""
    figures, proof = report.figures, report.proof
    return {
        "project": figures.project,
        "from": None if figures.period.first is None else figures.period.first.isoformat(),
        "to": None if figures.period.last is None else figures.period.last.isoformat(),
        "unit": figures.unit,
        "records": figures.messages,
        "first_at": format_time(figures.first),
        "last_at": format_time(figures.last),
        "outcomes": dict(figures.outcomes),
        "processed_again": figures.again,
        "superseded_entries": figures.superseded,
        "with_replaced_value": figures.changed,
        "with_replaced_patient": figures.named,
        "patients": None,
        "replaced": figures.replaced,
        "types": {kind: dict(methods) for kind, methods in figures.types.items()},
        "left_out": figures.left_out,
        "refused": dict(figures.reasons),
        "unexamined": None if report.unexamined is None else dict(report.unexamined),
        "policies": [
            {"policy": policy, "records": n, "words": report.policies.get(policy, "")}
            for policy, n in figures.policies.items()
        ],
        "builds": [
            {**use.build, "records": use.messages, "first_at": format_time(use.first), "last_at": format_time(use.last)}
            for use in figures.builds
        ],
        "trail": {
            "sound": proof.sound,
            "words": describe_proof(report),
            "faults": [dict(zip(_FINDING, one, strict=True)) for one in proof.faults],
            "warnings": [dict(zip(_FINDING, one, strict=True)) for one in proof.warnings],
            "facts": dict(proof.facts),
        },
        "made_at": format_time(report.made),
        "made_by": __version__,
    }

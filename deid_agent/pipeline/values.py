"""Replaces single values that come without a message, such as the cells of a table, as the values of a message.

The caller makes the facts and the scope of the person to whom the values belong, and passes each value as a ``Site``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from deid_agent.model import Fact, FoundPatient, PhiType, Remark, Site, Timings, ValueKind
from deid_agent.pipeline.applying import Applier
from deid_agent.pipeline.changes import summarize_changes
from deid_agent.pipeline.facts import make_scope
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.pipeline.link_codes import LinkCodes
from deid_agent.pipeline.notes import find_patient
from deid_agent.pipeline.planning import check_length
from deid_agent.pipeline.policy import Policy
from deid_agent.pipeline.recognition import PlannedText
from deid_agent.pipeline.replacement import Replacer
from deid_agent.pipeline.tracing import NO_TRACE
from deid_agent.surrogate import Scope


@dataclass(frozen=True, slots=True)
class ValueDeidentifier:
    """Replaces values with one policy, replacer and leak guard."""

    policy: Policy
    replacer: Replacer
    guard: LeakGuard

    def find_patient(self, facts: Sequence[Fact], patient: str | None, column: str = "") -> FoundPatient:
        """The patient of ``facts``, else ``patient``, as a note with the same has it."""
        return find_patient(self.policy, facts, patient, column)

    def make_scope(
        self, document: str, patient: FoundPatient, facts: tuple[Fact, ...], reference: date | None = None
    ) -> Scope:
        """The scope of values about a patient, as a note with the same patient and facts has it."""
        return make_scope(document, patient.scope, facts, reference, reference)

    def replace(self, site: Site, scope: Scope) -> str:
        """The replacement of a value by the policy; empty if no part of it may remain."""
        return self.replacer.replace_site(site, self.policy.method(site.type, site.path), scope)

    def replace_id(self, value: str) -> str:
        """The surrogate that an identifier has everywhere, whatever its scope."""
        return self.replacer.surrogates.replace(PhiType.IDNUM, value, kind=ValueKind.VALUE, scope=Scope(document=""))

    def scrub(self, text: str, path: str, facts: Sequence[Fact], scope: Scope) -> str:
        """``text`` without the facts that it states. It is not read otherwise.

        Raises ``MessageError``: RESOURCE for a text that is too long, LEAK if a fact remains.
        """
        return self.scrub_counted(text, path, facts, scope)[0]

    def scrub_counted(
        self, text: str, path: str, facts: Sequence[Fact], scope: Scope
    ) -> tuple[str, tuple[Remark, ...]]:
        """The same, and the remarks about the facts that were replaced."""
        check_length(path, text)
        codes = LinkCodes(self.replacer.surrogates, text.encode("utf-8", "surrogatepass"))
        applier = Applier(self.policy, self.replacer, self.guard, [()], codes, Timings(), NO_TRACE)
        scrubbed = applier.apply_note(PlannedText(0, text, tuple(facts)), path, scope)
        return scrubbed, summarize_changes(applier.counts)

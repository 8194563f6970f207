"""Stage 2 for whole messages: after their texts are read, the names of one text are searched for in the others.

The others are those of the same message, and with a ``NameMemory`` those of later messages about the same patient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deid_agent.model import Document, Range
from deid_agent.pipeline.plans import MessagePlan
from deid_agent.pipeline.recognition import NamingReader, Recognition, recognize_texts
from deid_agent.recognize import Findings, NameMemory, Tagger


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads the texts of plans with ``tagger``, and those that are labels with ``label_tagger``."""

    tagger: Tagger
    label_tagger: Tagger

    def read(self, plans: Sequence[MessagePlan], memory: NameMemory | None = None) -> list[Recognition]:
        """The findings of each plan; see ``Deidentifier.recognize``. An error is kept for the plan that causes it."""
        reader = NamingReader(self.tagger)
        find_all = self.tagger.find_all if memory is None else reader.find_all
        results = recognize_texts([plan.texts for plan in plans], find_all, find_in_labels=self.label_tagger.find_all)
        for plan, result in zip(plans, results, strict=True):
            if result.error is not None:
                continue
            try:
                self._find_across(plan, result)
                if memory is not None:
                    self._remember(plan, result, reader.named, memory)
            except Exception as error:  # noqa: BLE001 - kept for the message at fault
                result.error = error
        return results

    def _remember(
        self, plan: MessagePlan, result: Recognition, named: Mapping[str, list[Range]], memory: NameMemory
    ) -> None:
        """Teach ``memory`` the names of a message, and add the remembered ones to the findings in its texts."""
        parts = [part for outer in plan.parts for part in outer.all_parts()]
        texts = [
            (patient, text, Document(text.text, text.facts))
            for part in parts
            for patient, text in part.own_texts()
            if patient is not None and not text.label
        ]
        # All names are learned before any text is searched: a field of an envelope comes before its message.
        for part in parts:
            if part.scope.patient is not None:
                self.tagger.learn_facts(memory.of_patient(part.scope.patient), part.facts)
        for patient, text, doc in texts:
            findings = Findings(list(result.spans[text.index]), named.get(text.text, []))
            self.tagger.learn_names(memory.of_patient(patient), doc, findings)
        for patient, text, doc in texts:
            names = memory.of_patient(patient)
            result.spans[text.index] = self.tagger.find_remembered(names, doc, result.spans[text.index])

    def _find_across(self, plan: MessagePlan, result: Recognition) -> None:
        """Add the names that one text of the message introduces to the findings in its other texts."""
        prose = [text for text in plan.texts if not text.label]
        spans = self.tagger.find_across([text.text for text in prose], [result.spans[text.index] for text in prose])
        for text, found in zip(prose, spans, strict=True):
            result.spans[text.index] = tuple(found)

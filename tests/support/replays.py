"""A replay of dead letters that a test follows."""

from dataclasses import dataclass, field

from deid_agent.agent.dead_letter_keys import PrivateKey
from deid_agent.agent.dead_letter_records import DamagedDeadLetter, FoundDeadLetter
from deid_agent.agent.ports import Record
from deid_agent.model.errors import DeadLetterError

PRIVATE = PrivateKey(bytes(range(32)))


@dataclass
class Work:
    """Chooses every dead letter that was not replayed, and records the reports."""

    private: PrivateKey | None = PRIVATE
    again: bool = False
    done: list[int] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def pick(self, found: FoundDeadLetter | DamagedDeadLetter) -> Record | None:
        if isinstance(found, DamagedDeadLetter):
            self.failed.append((found.location, found.problem))
            return None
        if found.replayed and not self.again:
            return None
        try:
            return found.open_record(self.private)
        except DeadLetterError as problem:
            self.failed.append((str(found.head.at), str(problem)))
            return None

    def report(self, found: FoundDeadLetter, problem: str) -> None:
        if problem:
            self.failed.append((str(found.head.at), problem))
        else:
            self.done.append(found.head.at.offset)

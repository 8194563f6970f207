"""Telemetry that records for a test."""

from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import Event


class Recording(Telemetry):
    """Also keeps the events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)
        super().emit(event)

    def names(self, kind: type[Event], field: str) -> list[object]:
        return [getattr(event, field) for event in self.events if isinstance(event, kind)]

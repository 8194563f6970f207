"""Compares the documents of a running agent with the samples of its leak bounds, feed by feed.

A feed is a topic (or a listener) with a template. Only counts are kept, in memory and in the file of ``drift.file``.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deid_agent.agent import Processed
from deid_agent.app import (
    BoundFile,
    DriftReference,
    FeatureCounts,
    WorkerFactory,
    add_document,
    compare_window,
    empty_window,
)
from deid_agent.cli.common import fault_text, printable
from deid_agent.cli.counts_file import replace_counts, written_at_intervals
from deid_agent.cli.projects import project_parts
from deid_agent.config import Settings
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import DriftNotWritten, FeedAsSampled, FeedDiffers, Telemetry

OTHER: Final = "other"
"""The template of documents whose own is not frequent in the sample."""
MOST_FEEDS: Final = 64
WINDOWS: Final = 2
"""Windows in a row that differ before the bound no longer covers the feed."""
NOT_COVERED: Final = "the bound does not cover this feed any more: take a new sample"
_INTERVAL_S = 60.0
_MOST_BYTES = 4 << 20
Name = Annotated[str, Field(max_length=260)]


class FeedState(BaseModel):
    """The state of a feed: its unfinished window, and the result of the last one.

    ``run`` counts the windows in a row that differ, ``features`` are those of the last one.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    topic: Name
    template: Name
    bound: Name
    window: list[list[Annotated[int, Field(ge=0)]]]
    documents: Annotated[int, Field(ge=0)] = 0
    compared: Annotated[int, Field(ge=0)] = 0
    run: Annotated[int, Field(ge=0)] = 0
    features: tuple[Annotated[str, Field(pattern=r"^[A-Za-z:-]{1,40}$")], ...] = ()
    day: date | None = None

    @property
    def differs(self) -> bool:
        """Whether the bound does not cover the feed."""
        return self.run >= WINDOWS

    @property
    def remark(self) -> str:
        """The result of the last window, in one line."""
        name = printable(f"{self.topic}, {self.template}")
        if not self.compared:
            return f"{name}: {self.documents} documents, not compared yet"
        if self.differs:
            return f"{name}: differs from the sample in {', '.join(self.features)} ({self.day}): {NOT_COVERED}"
        return f"{name}: like the sample ({self.compared} windows, {self.day})"


class _StateFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: Literal[1] = 1
    feeds: Annotated[list[FeedState], Field(max_length=2 * MOST_FEEDS)]


def read_states(path: Path) -> list[FeedState]:
    """The states in a file of ``DriftMonitor``; none if there is no file, or an empty one.

    Raises ``ConfigurationError`` for any other content.
    """
    try:
        if not path.exists():
            return []
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
        # A host that lost its power may have left an empty file. An agent that does not start for it is worse.
        return _StateFile.model_validate_json(data).feeds if data else []
    except OSError as problem:
        raise ConfigurationError(f"drift.file: {printable(path)}: {fault_text(problem)}") from None
    except ValidationError:
        raise ConfigurationError(
            f"drift.file: {printable(path)}: is not a file of these comparisons; remove it, or name another"
        ) from None


@dataclass(slots=True)
class DriftMonitor:
    """Counts the documents of published records. ``bounds`` are those of topics, ``default`` that of the others."""

    default: BoundFile | None
    bounds: Mapping[str, BoundFile | None]
    telemetry: Telemetry
    size: int = 200
    path: Path | None = None
    _feeds: dict[tuple[str, str], FeedState] = field(default_factory=dict)
    _patients: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _changed: bool = False

    def __post_init__(self) -> None:
        """Continue the file. Raises ``ConfigurationError`` if it is of something else, or has no folder."""
        if self.path is None:
            return
        if not self.path.parent.is_dir():
            raise ConfigurationError(f"drift.file: {printable(self.path.parent)}: no such folder; make it")
        for state in read_states(self.path):
            bound = self._bound_of(state.topic)
            if bound is None or bound.digest != state.bound:
                continue  # of an earlier sample
            shape = [len(feature.counts) for feature in self._features(bound.drift, state.template)]
            if [len(counts) for counts in state.window] == shape:
                if {sum(counts) for counts in state.window} != {state.documents}:
                    # Not what an agent wrote: begin the window again, and keep the result of the last one.
                    state.window, state.documents = [[0] * size for size in shape], 0
                self._feeds[state.topic, state.template] = state
                if state.compared:
                    self._report(state, 0.0)

    def add(self, result: Processed) -> None:
        """Count the document of one published record; compare if that ends a window."""
        document = result.document
        if document is None or (bound := self._bound_of(document.source)) is None:
            return
        key = self._key_of(document.source, document.template, bound)
        state = self._feeds.get(key)
        if state is None:
            window = empty_window(self._features(bound.drift, key[1]))
            state = self._feeds[key] = FeedState(topic=key[0], template=key[1], bound=bound.digest, window=window)
        seen = self._patients.setdefault(key, set())
        if document.patient and document.patient in seen:
            return
        seen.add(document.patient)
        features = self._features(bound.drift, key[1])
        add_document(state.window, features, document)
        state.documents += 1
        self._changed = True
        if state.documents < self.size:
            return
        compared = compare_window(state.window, features)
        state.compared += 1
        state.run = state.run + 1 if compared.differences else 0
        state.features = tuple(each.feature for each in compared.differences)
        state.day = datetime.now(UTC).date()
        self._report(state, max((each.psi for each in compared.differences), default=0.0))
        state.window, state.documents = empty_window(features), 0
        seen.clear()

    def _report(self, state: FeedState, psi: float) -> None:
        at = state.topic, state.template
        if state.differs:
            self.telemetry.emit(FeedDiffers(*at, state.documents, state.run, state.features, round(psi, 2)))
        else:
            self.telemetry.emit(FeedAsSampled(*at, state.documents, state.features))

    def _bound_of(self, topic: str) -> BoundFile | None:
        return self.bounds.get(topic, self.default)

    def _key_of(self, topic: str, template: str, bound: BoundFile) -> tuple[str, str]:
        """The feed of a document. A message names none, except by a template of the sample."""
        key = topic, template if template in bound.drift.templates else OTHER
        # Too many feeds share one for each sample: all windows of a feed have the classes of one reference.
        return key if key in self._feeds or len(self._feeds) < MOST_FEEDS else (OTHER, bound.digest)

    @staticmethod
    def _features(reference: DriftReference, template: str) -> tuple[FeatureCounts, ...]:
        return reference.features_of(template)

    def write(self) -> None:
        """Write the file if a count has changed; a reader never sees an incomplete one."""
        if not self._changed or self.path is None:
            return
        try:
            replace_counts(
                self.path, orjson.dumps(_StateFile(feeds=list(self._feeds.values())).model_dump(mode="json"))
            )
            self._changed = False
        except OSError as problem:
            self.telemetry.emit(DriftNotWritten(fault_text(problem)))

    def kept_written(self) -> AbstractAsyncContextManager[None]:
        """Write at intervals inside the ``with`` block, and at its end."""
        return written_at_intervals(self.write, _INTERVAL_S)


def make_monitor(settings: Settings, parts: WorkerFactory, telemetry: Telemetry) -> DriftMonitor | None:
    """The monitor of an agent; None if no project has a leak bound, or if nothing is compared."""
    made = project_parts(parts)
    if not settings.drift.window or all(each.bound is None for each in made.values()):
        return None
    bounds = {feed.topic: made[feed.project].bound for feed in settings.feeds}
    return DriftMonitor(parts.bound, bounds, telemetry, settings.drift.window, settings.drift.file)

"""The key under which each output of an agent was written last, from the first lines of the segments of its trail."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from deid_agent.audit.storage import LineKind, line_prefix, segment_files
from deid_agent.model import ConfigurationError

_FOLDER = "directory:"
_ENTRY = line_prefix(LineKind.ENTRY)
_SEGMENTS_SEARCHED = 8
"""The newest segments whose entries are searched for sources: half a gigabyte with the default size."""


@dataclass(frozen=True, slots=True)
class TargetKeys:
    """Ids of keys: of each output that a build names, and of each source whose builds named no outputs yet."""

    targets: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    named: bool = False
    """The newest segment names outputs."""

    def of_target(self, target: str) -> str | None:
        """The key of an output, however its folder is written."""
        return self.targets.get(_canonical(target))


def _canonical(target: str) -> str:
    """One name for one folder: a relative path or a link must not make it another output."""
    return f"{_FOLDER}{os.path.realpath(target.removeprefix(_FOLDER))}" if target.startswith(_FOLDER) else target


def read_target_keys(folder: Path, topics: Collection[str]) -> TargetKeys:
    """The last known keys. ``topics`` are the sources to look for in segments from before there were projects.

    It does not verify the trail. Raises ``ConfigurationError`` if a file cannot be read.
    """
    targets, sources, named = dict[str, str](), dict[str, str](), set[str]()
    newest_names = False
    try:
        newest = list(segment_files(folder).values())[::-1]
        for place, path in enumerate(newest):
            with path.open("rb") as file:
                build = _read_build(file.readline())
                projects = build.get("projects")
                if isinstance(projects, dict):
                    newest_names = newest_names or place == 0
                    for source, target, key in _routes(projects):
                        named.add(source)
                        targets.setdefault(_canonical(target), key)
                elif place < _SEGMENTS_SEARCHED and (open_ := {*topics} - named - sources.keys()):
                    seen = {topic for line in file if (topic := _topic_of(line)) in open_}
                    sources.update(dict.fromkeys(seen, str(build.get("key"))))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    return TargetKeys(targets, sources, newest_names)


def _read_build(line: bytes) -> Mapping[str, object]:
    """The build in the first line of a segment; empty for a torn or foreign line, which a verification reports."""
    try:
        build = orjson.loads(line).get("build")
    except (orjson.JSONDecodeError, AttributeError):
        return {}
    return build if isinstance(build, dict) else {}


def _routes(projects: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Source, output and id of the key of each route in a build."""
    for project in projects.values():
        if isinstance(project, dict) and isinstance(routes := project.get("routes"), dict):
            yield from ((str(source), str(target), str(project.get("key"))) for source, target in routes.items())


def _topic_of(line: bytes) -> str:
    """The topic of an entry, which has no quotation mark; empty for another line."""
    return (
        line.partition(b'"topic":"')[2].partition(b'"')[0].decode("utf-8", "replace") if line.startswith(_ENTRY) else ""
    )

"""Folders, which need no bus."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from deid_agent.config.section import Seconds, Section


class DirectorySettings(Section):
    """Folders in place of topics."""

    input: Path = Field(
        description="folder of messages, read recursively without hidden files; written to by `replay` alone"
    )
    output: Path = Field(description="sanitized messages, under the same relative names")
    dead_letters: Path = Field(description="refused messages and why; in the clear or with names they hold PHI")
    state: Path = Field(description="a file: which messages are settled, by keyed digests of name and content")
    watch: bool = Field(default=False, description="keep running and take new and changed files")
    interval_s: Seconds = Field(default=1.0, description="time between two looks at a watched folder")
    settle_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=5.0, description="time for which a file's size and times must stand still before a watch takes it"
    )

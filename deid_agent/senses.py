"""Words that are used alike, of ``rules/senses.txt``: what a model learns of one word it knows of the others.

A line is ``field/group/sense word word ...``: senses are narrow, groups and fields gather them. They take the place
of the Brown clusters of Liu 2015 section 3.2.2.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from deid_agent.errors import ConfigurationError

Sense = tuple[str, str, str]
"""Field, group and sense of a word."""
NO_SENSE: Sense = ("", "", "")

_LINE = re.compile(r"\d+/\d+/\d+(?: [^\s]+)+")


def load(rules: Path) -> Mapping[str, Sense]:
    """The sense of each word in small letters.

    Raises ``ConfigurationError`` naming file and line for what is no such line, or a word that stands twice.
    """
    path = rules / "senses.txt"
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(fault).__name__})") from None
    found: dict[str, Sense] = {}
    words = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        if not _LINE.fullmatch(line):
            raise ConfigurationError(f"{path}:{number}: write field/group/sense and words, as 1/2/3 word word")
        head, *members = line.split(" ")
        field, group, sense = head.split("/")
        found.update(dict.fromkeys(members, (field, group, sense)))
        words += len(members)
        if len(found) < words:
            raise ConfigurationError(f"{path}:{number}: a word of this line stands twice in the file")
    return found

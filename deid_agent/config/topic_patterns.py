"""Input topics by regular expression, with the name of each output topic from a template."""

import re

PLACEHOLDER = "{topic}"
_META = frozenset(".^$*+?{}[]|()")
_QUANTIFIERS = frozenset("*+?{")


def pattern_fault(pattern: str, template: str) -> str:
    """Why this pattern and this template cannot be used; empty if they can.

    An output topic that the pattern matches would be read as an input, whose output is a topic again, for ever. The
    template must therefore begin with text that the begin of every input contradicts. Whether two expressions overlap
    is hard to decide in general, and this rule is easy to follow.
    """
    try:
        re.compile(pattern)
    except re.error as fault:
        return f"kafka.topics_pattern: not a regular expression: {fault.msg} at character {fault.pos or 0}"
    if template.count(PLACEHOLDER) != 1 or not re.fullmatch(r"[A-Za-z0-9._-]*", template.replace(PLACEHOLDER, "", 1)):
        return f"kafka.output: write the name of the output topics with {PLACEHOLDER} once, such as deid.{PLACEHOLDER}"
    begin, output = literal_prefix(pattern), template.partition(PLACEHOLDER)[0]
    if begin.startswith(output) or output.startswith(begin):
        return (
            f"kafka.output: its topics could match kafka.topics_pattern and would be read again for ever: begin "
            f"kafka.topics_pattern with the text that all inputs begin with, and {template!r} with another one"
        )
    return ""


def literal_prefix(pattern: str) -> str:
    """Text with which every match begins. It may be shorter than possible; empty if alternatives are possible."""
    if "|" in pattern:
        return ""
    found: list[str] = []
    rest = pattern.removeprefix("^")
    at = 0
    while at < len(rest):
        char, length = rest[at], 1
        if char == "\\":
            char, length = rest[at + 1 : at + 2], 2
            if char.isalnum() or not char:  # a class such as \\d, or an anchor
                break
        elif char in _META:
            break
        if rest[at + length : at + length + 1] in _QUANTIFIERS - {""}:
            break
        found.append(char)
        at += length
    return "".join(found)

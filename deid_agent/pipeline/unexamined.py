"""The ledger of unexamined values: what leaves a message unchanged and unread, counted by path.

It is made on request, beside the run: it parses the message once more and costs nothing otherwise. It holds no value.
Its paths are names of the standards, with ``?`` for a member that the tables do not know, and no numbers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from deid_agent.model import LeafRole, Message, Narrative
from deid_agent.pipeline.plans import MessagePlan, NestedContent, PartPlan
from deid_agent.pipeline.policy import Method, Policy, strip_numbers


class Unread(StrEnum):
    """Why a value was not examined."""

    POLICY = "policy"  # the policy keeps it
    CODE = "code"  # a code or the name of a code system, kept by table
    NUMBER = "number"  # a number without a label of an identity
    KEY = "key"  # a name that the tables do not know (a JSON key)
    TABLE = "table"  # any other value, kept by table


UnexaminedCounts = Counter[tuple[str, str, str]]
"""Number of values by format, path and ``Unread``."""

_KEPT, _READ = 1, 2


def count_unexamined(plan: MessagePlan, policy: Policy) -> UnexaminedCounts:
    """The values of a planned message, attachments included, that no table and no recognizer examined.

    Values of one character are not counted, and neither is the encoded form of an attachment, whose content is.
    """
    return Counter(found for part in plan.parts for found in _find(part, policy, ""))


def _find(part: PartPlan, policy: Policy, prefix: str) -> Iterator[tuple[str, str, str]]:
    message = part.message
    marks = _mark_examined(message, policy)
    for each in part.dropped.ranges:
        marks[each.start : each.end] = bytes([_READ]) * (each.end - each.start)
    for leaf in part.codec.parse_leaves(message.raw):
        mapped = leaf.mapped
        seen = marks[mapped.starts[0] : mapped.ends[-1]] if mapped.text else b""
        if mapped.text and _READ not in seen:
            yield part.codec.name, prefix + strip_numbers(leaf.path), _explain(leaf, kept=_KEPT in seen)
    for attachment in part.attachments:
        if isinstance(attachment.content, NestedContent):
            path = f"{prefix}{strip_numbers(attachment.attachment.path)}/"
            for inner in attachment.content.parts:
                yield from _find(inner, policy, path)


def _mark_examined(message: Message, policy: Policy) -> bytearray:
    """A mark for each byte: read by a recognizer or a table, kept by the policy, or 0."""
    marks = bytearray(len(message.raw))
    for narrative in message.narratives:
        for start, end in _fragments(narrative):
            marks[start:end] = bytes([_READ]) * (end - start)
    for attachment in message.attachments:
        for start, end in ((attachment.start, attachment.end), *attachment.parts):
            marks[start:end] = bytes([_READ]) * (end - start)
    for site in message.sites:
        mark = _KEPT if policy.method(site.type, site.path) is Method.KEEP else _READ
        marks[site.start : site.end] = bytes([mark]) * (site.end - site.start)
    return marks


def _fragments(narrative: Narrative) -> Iterable[tuple[int, int]]:
    """The byte ranges of the characters of a narrative, neighbours joined."""
    mapped = narrative.mapped
    found: list[tuple[int, int]] = []
    for start, end in zip(mapped.starts, mapped.ends, strict=True):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _explain(leaf: Narrative, *, kept: bool) -> Unread:
    if kept:
        return Unread.POLICY
    if leaf.mapped.text.strip().lstrip("+-<>=").replace(".", "", 1).isdigit():
        return Unread.NUMBER
    if leaf.role is LeafRole.KEY:
        return Unread.KEY
    return Unread.CODE if leaf.role is LeafRole.CODE else Unread.TABLE

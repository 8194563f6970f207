"""Writes annotated text: the inverse of ``deid_agent.model.spans.parse``."""

from collections.abc import Iterable

from deid_agent.model.spans import Span


def render(text: str, spans: Iterable[Span]) -> str:
    """``text`` with the markup of disjoint, sorted ``spans``."""
    out: list[str] = []
    at = 0
    for span in spans:
        out += (text[at : span.start], f"[[{span.type}|", text[span.start : span.end], "]]")
        at = span.end
    out.append(text[at:])
    return "".join(out)

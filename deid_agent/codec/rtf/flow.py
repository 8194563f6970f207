"""One text of a document while it is gathered, and how a changed text goes back into RTF."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.mapped import MappedText
from deid_agent.spans import Replacement

_RUN = re.compile(r"[ -~]+|[\x00-\x1f\x7f]+|[^\x00-\x7f]+")
_SPECIAL = re.compile(r"[\\{}]")
_OPEN_WORD = re.compile(rb"(\\++)[A-Za-z]{1,40}(?:-?[0-9]{1,12})?\Z")


@dataclass(frozen=True, slots=True)
class RtfText(MappedText):
    """Mapped text inside of RTF."""

    raw: bytes = field(default=b"", repr=False)

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MappedText.place``; behind a control word that nothing ends yet, what is written ends it first."""
        for start, end, text in MappedText.place(self, replacements):
            yield start, end, " " + text if is_open(self.raw, start) else text


def is_open(raw: bytes, at: int) -> bool:
    r"""True where a letter at ``at`` would become part of the control word before it (``\b`` and ``Ada``)."""
    found = _OPEN_WORD.search(raw, max(0, at - 64), at)
    return found is not None and len(found[1]) % 2 == 1


class Flow:
    """A text that grows: characters with their bytes, and joints."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._text: list[str] = []
        self._starts, self._ends = array("Q"), array("Q")
        self._joints: list[int] = []

    def add(self, text: str, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Characters with a byte range each."""
        self._text.append(text)
        self._starts.extend(starts)
        self._ends.extend(ends)

    def character(self, char: str, start: int, end: int) -> None:
        self.add(char, (start,), (end,))

    def joint(self, char: str, start: int, end: int) -> None:
        """A character that stands for structure."""
        self._joints.append(len(self._starts))
        self.character(char, start, end)

    @property
    def end(self) -> int:
        """The byte behind the last character; 0 where there is none."""
        return self._ends[-1] if self._ends else 0

    def amend(self, end: int, char: str = "") -> None:
        """The last character reaches to ``end``, and is ``char`` where that is given."""
        self._ends[-1] = end
        if char:
            self._text[-1] = char

    def mapped(self, raw: bytes) -> RtfText | None:
        """None where there is nothing to read."""
        text = "".join(self._text)
        if not text.strip():
            return None
        return RtfText(text, self._starts, self._ends, frozenset(self._joints), raw)


def encode(text: str) -> bytes:
    r"""``text`` as RTF: braces and backslashes escaped, breaks as ``\line``, the rest of Unicode as ``\uN``.

    The group around it makes ``?`` the one character to skip, whatever ``\uc`` holds there.
    """
    out: list[str] = []
    for run in _RUN.findall(text):
        if run < " " or run[0] == "\x7f":
            out.append(_controls(run))
        elif run.isascii():
            out.append(_SPECIAL.sub(r"\\\g<0>", run))
        else:
            units = run.encode("utf-16-le", "surrogatepass")
            codes = (int.from_bytes(units[i : i + 2], "little", signed=True) for i in range(0, len(units), 2))
            out.append("{\\uc1" + "".join(f"\\u{code}?" for code in codes) + "}")
    return "".join(out).encode("ascii")


def _controls(run: str) -> str:
    return "".join({"\n": "\\line ", "\t": "\\tab "}.get(c, " ") for c in run.replace("\r\n", "\n"))

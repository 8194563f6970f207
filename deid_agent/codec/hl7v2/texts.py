"""The free text of one message: fragments to narratives, pieces to documents.

A report is one text over many segments (OBX-5 of one OBX-3, NTE-3), and over the lines into which a sender broke it.
"""

from collections.abc import Sequence

from deid_agent.codec.hl7v2 import attachment, coded, documents, observation
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.narrative import join
from deid_agent.codec.hl7v2.table import Codes, Join
from deid_agent.codec.hl7v2.wire import Fragment, Separators, leaves, parts
from deid_agent.sites import Attachment, Narrative


class Texts:
    """Gathers what is text, segment after segment, until it is whole."""

    def __init__(self, codes: Codes, view: View, marks: Separators) -> None:
        self._codes = codes
        self._view = view
        self._marks = marks
        self._narratives: list[tuple[int, Narrative]] = []
        self._attachments: list[Attachment] = []
        self._documents = documents.Documents(view)
        self._run: tuple[tuple[str, str], list[Fragment]] | None = None
        self._name = ""
        self._fields: Sequence[str] = ()
        self._join: Join | None = None

    def begin(self, name: str, fields: Sequence[str], joined: Join | None) -> None:
        """A segment begins; one whose text is not ``joined`` with that of the next ends what went before."""
        if joined is None:
            self.close()
        self._name, self._fields, self._join = name, fields, joined

    def declare(self, marks: Separators) -> None:
        """Other separators from here on; what was gathered was written with those before."""
        self.close()
        self._marks = marks

    def add(self, fragments: Sequence[Fragment]) -> None:
        """One whole text."""
        if not fragments:
            return
        if len(fragments) > 1 or fragments[0][1][1] - fragments[0][1][0] >= attachment.LONG:
            fragments = self._without_documents(fragments)
        mapped = join(self._view, [piece for _, piece in fragments], self._marks) if fragments else None
        if mapped is not None:
            self._narratives.append((fragments[0][1][0], Narrative(fragments[0][0], mapped)))

    def extend(self, text: str, at: int, path: str) -> None:
        """A field of the present segment that goes on with the text of the segment before, if that is of its kind."""
        self._finish()
        key = self._kind()
        if self._run is None or self._run[0] != key:
            self.end()
            self._run = (key, [])
        run = self._run[1]
        for number, piece in enumerate(parts(text, self._marks.repetition), start=1):
            words = parts(piece, self._marks.component)
            if len(words) > 2 and coded.is_coded(words, self._codes):
                run += coded.texts(words, at, f"{path}[{number}]")
            else:
                run.append((f"{path}[{number}]", (at, at + len(piece))))
            at += len(piece) + 1

    def interrupt(self) -> None:
        """A value that is no text stands where a text goes on: a number among the lines of a report."""
        self._finish()

    def stray(self, a: int, b: int, path: str) -> None:
        """A line without a segment name, or an ADD, goes on with the text before it: a report's own line breaks."""
        pieces = leaves(self._view.text, a, b, self._marks)
        if self._documents.more(path, pieces[0], self._view.text[slice(*pieces[0])]):
            del pieces[0]
        fragments = [(path, piece) for piece in pieces]
        if self._run is not None:
            self._run[1].extend(fragments)
        else:
            self.add(fragments)

    def document(self, words: Sequence[str], at: int, path: str) -> list[Fragment]:
        """Take the ED whose first component begins at character ``at``; what of it is text is left to the caller."""
        found, rest = observation.document(self._view, words, at, path, self._marks, self._kind())
        if isinstance(found, Attachment):
            self._attachments.append(found)
        elif found is not None:
            self._documents.add(found)
        return rest

    def end(self) -> None:
        """The text so far is whole."""
        if self._run is not None:
            self.add(self._run[1])
            self._run = None

    def close(self) -> None:
        """The text and the documents so far are whole."""
        self.end()
        self._finish()

    def taken(self) -> tuple[tuple[Narrative, ...], tuple[Attachment, ...]]:
        """All narratives and attachments in byte order."""
        self.close()
        narratives = sorted(self._narratives, key=lambda item: item[0])
        return tuple(n for _, n in narratives), tuple(sorted(self._attachments, key=lambda a: a.start))

    def _finish(self) -> None:
        if self._documents:
            self._attachments += self._documents.take(f"text{self._marks.component}plain".encode())

    def _kind(self) -> tuple[str, str]:
        """The segment's name, and what it observes (OBX-3): what the pieces of one text or document share."""
        by = self._join.by if self._join is not None else None
        return self._name, observation.first(self._fields, by, self._marks) if by else ""

    def _without_documents(self, fragments: Sequence[Fragment]) -> Sequence[Fragment]:
        """The fragments that are text; those that are a document become one."""
        text = self._view.text
        if sum(b - a for _, (a, b) in fragments) < attachment.LONG or not any(
            " " not in text[a : min(a + 20, b)] for _, (a, b) in fragments if b - a >= 20
        ):
            return fragments
        lines = [plain(self._view, *piece, self._marks) for _, piece in fragments]
        rest: list[Fragment] = []
        at = 0
        for start, end in documents.runs(lines):
            rest += fragments[at:start]
            spans = [piece for _, piece in fragments[start:end]]
            self._attachments.append(documents.bare(self._view, spans, lines[start:end], fragments[start][0]))
            at = end
        return [*rest, *fragments[at:]]

"""Reads the exports of annotation tools: JSON of Label Studio, UIMA CAS XMI of INCEpTION.

Both count offsets in units of UTF-16, since they are written in JavaScript and Java. Errors name the file and numbers
of tasks or elements, never text.

Sources: labelstud.io/guide/export (the formats JSON and JSON-MIN); the XMI CAS serialization of the UIMA references.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import orjson

from deid_agent.eval import LeftOut, Note, ParseLabel
from deid_agent.model import ANNOTATION, Annotated, ConfigurationError, Span, in_order

MOST_BYTES = 256 << 20
"""Bytes of a file."""
_CAS = "http:///uima/cas.ecore"
_XMI = "http://www.omg.org/XMI"
_INITIAL = "_InitialView"
_MOST_DIGITS = 12
_SHORTEST_TEXT = 3
_FEATURES = ("value", "label")
_PLACES = {"start", "end", "startOffset", "endOffset", "globalOffsets", "text"}
"""Members of a span of Label Studio that describe its place only."""
_NOT_BEGUN = "INITIAL_CAS"
"""The name of the file of a document that nobody has annotated, in an export of a project."""
_NO_LABELS = ("segmentation", "metadata", "lexmorph", "syntax", "morph", "cas.ecore", "tcas.ecore")
"""Parts of the namespaces of layers that are no labels, such as tokens, lemmas and parts of speech."""


class _Offsets:
    """Converts offsets in units of UTF-16 to offsets in characters of one text."""

    def __init__(self, text: str) -> None:
        wide = () if text.isascii() else (at for at, char in enumerate(text) if char > "\uffff")
        self._length = len(text)
        self._wide = [at + number for number, at in enumerate(wide)]  # each of two units; their places in units

    def convert(self, units: int, place: str) -> int:
        """The number of characters. Raises ``ConfigurationError`` if it is not that of a place in the text."""
        before = bisect_left(self._wide, units)
        inside = before > 0 and self._wide[before - 1] + 1 == units
        if inside or not 0 <= units - before <= self._length:
            raise ConfigurationError(f"{place}: a span ends outside of the text, or inside a character")
        return units - before


def read_label_studio(path: Path, parse: ParseLabel, annotator: str = "") -> list[Note]:
    """The notes of an export in the format JSON or JSON-MIN. ``annotator`` is the id or e-mail address of one.

    Raises ``ConfigurationError`` naming the task, also if several people have annotated it and none is chosen.
    """
    try:
        tasks = orjson.loads(read_file(path).removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        raise ConfigurationError(f"{path}: not JSON") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ConfigurationError(f"{path}: expected a list of tasks: export JSON or JSON-MIN")
    notes, people = [], set[str]()
    for number, task in enumerate(tasks, 1):
        place = f"{path}: task {number}"
        try:
            results = _find_results(task, place, annotator)
            if results is None:
                continue
            people |= _annotators_of(task)
            if not annotator and len(people) > 1:
                raise ConfigurationError(f"{path}: several people have annotated: choose one with --annotator ID")
            text, id_ = _find_text(task, place), str(task.get("id", number))
            offsets = _Offsets(text)
            found = [_read_result(each, text, offsets, place, parse) for each in results]
        except (KeyError, TypeError, AttributeError):
            raise ConfigurationError(f"{place}: not in the format of Label Studio") from None
        spans = {span for span in found if span is not None}
        notes.append(Note(id_, "", "", id_, Annotated(text, tuple(in_order(spans))), {}))
    return notes


def _find_results(task: Mapping[str, Any], place: str, annotator: str) -> list[Mapping[str, Any]] | None:
    """The results of the one annotation of a task; None if it has none."""
    if "annotations" not in task:  # JSON-MIN has the results in members named like the tags
        if annotator and str(task.get("annotator")) != annotator:
            return None
        lists = [value for value in task.values() if isinstance(value, list)]
        found = [each for some in lists for each in some if isinstance(each, dict)]
        return [each for each in found if _labels_of(each, place) is not None]
    done = [each for each in task["annotations"] if not each.get("was_cancelled")]
    if annotator:
        done = [each for each in done if annotator in _people(each.get("completed_by"))]
    if len(done) > 1:
        several = not annotator and len(_annotators_of(task)) > 1
        advice = "choose one with --annotator ID" if several else "all by one person: delete all but one"
        raise ConfigurationError(f"{place}: has {len(done)} annotations: {advice}")
    if not done:
        return None
    found = [each["value"] for each in done[0]["result"] if "value" in each]
    return [each for each in found if _labels_of(each, place) is not None]


def _annotators_of(task: Mapping[str, Any]) -> set[str]:
    """Who has annotated a task: one name for each person."""
    if "annotations" not in task:
        return {str(task["annotator"])} if "annotator" in task else set()
    done = [each.get("completed_by") for each in task["annotations"] if not each.get("was_cancelled")]
    return {str(each.get("id", each.get("email")) if isinstance(each, dict) else each) for each in done}


def _people(found: object) -> set[str]:
    return {str(found.get("id")), str(found.get("email"))} if isinstance(found, dict) else {str(found)}


def _labels_of(value: Mapping[str, Any], place: str) -> list[str] | None:
    """The labels of a span; None for a value that is no span, such as a choice.

    Raises ``ConfigurationError`` for a span without labels, and for one of another kind of text: a span that is left
    out in silence is a name that counts as no PHI.
    """
    if not {"start", "end"} <= value.keys():
        return None
    labels = value.get("labels", value.get("hypertextlabels"))
    if isinstance(labels, list):
        return labels
    if not value.keys() - _PLACES:
        raise ConfigurationError(f"{place}: a span has 0 labels: give each span one")
    if any(name.endswith("labels") for name in value):
        raise ConfigurationError(f"{place}: spans of another kind than those of a text: annotate plain text")
    return None  # an answer about a span


def _find_text(task: Mapping[str, Any], place: str) -> str:
    data = task.get("data", task)
    found = data.get("text")
    if found is None and "data" in task:
        texts = [value for value in data.values() if isinstance(value, str)]
        found = texts[0] if len(texts) == 1 else None
    if not isinstance(found, str):
        raise ConfigurationError(f'{place}: its data has no "text"')
    return found


def _read_result(value: Mapping[str, Any], text: str, offsets: _Offsets, place: str, parse: ParseLabel) -> Span | None:
    labels = _labels_of(value, place) or []
    if len(labels) != 1 or not isinstance(labels[0], str):
        raise ConfigurationError(f"{place}: a span has {len(labels)} labels: give each span one")
    start, end = value["start"], value["end"]
    if type(start) is not int or type(end) is not int:
        raise ConfigurationError(f"{place}: a span has no whole numbers as offsets: annotate text, not HTML")
    quoted = value.get("text")
    if isinstance(quoted, str) and 0 <= start < end and text[start:end] == quoted:
        begin, stop = start, end  # some versions of the tool count characters
    else:
        begin, stop = offsets.convert(start, place), offsets.convert(end, place)
    if isinstance(quoted, str) and text[begin:stop].split() != quoted.split():
        raise ConfigurationError(f"{place}: the text of a span differs from the text at its offsets")
    return _make_span(begin, stop, labels[0], place, parse)


def _make_span(begin: int, end: int, label: str, place: str, parse: ParseLabel) -> Span | None:
    kind = parse(label)
    if isinstance(kind, LeftOut):
        return None
    if kind is None:
        raise ConfigurationError(f"{place}: a span of an unknown label")
    if begin >= end:
        raise ConfigurationError(f"{place}: a span is empty")
    return Span(begin, end, kind, ANNOTATION)


def read_inception(path: Path, parse: ParseLabel, feature: str = "") -> list[Note]:
    """The notes of an ``.xmi`` file, or of those of a folder. ``feature`` has the labels (default: value, label).

    Raises ``ConfigurationError`` naming file and line. A document type is refused, so no entity is expanded.
    """
    files = sorted(each for each in path.rglob("*.xmi") if each.stem != _NOT_BEGUN) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"{path}: holds no *.xmi: export UIMA CAS XMI (XML 1.0), and unzip it")
    return [_read_cas(file, parse, feature) for file in files]


def _read_cas(path: Path, parse: ParseLabel, feature: str) -> Note:
    cas = _Cas(path, (feature,) if feature else _FEATURES)
    cas.parse()
    if cas.text is None:
        raise ConfigurationError(f"{path}: has no text: not an XMI of a CAS")
    if not cas.labels and cas.unlabelled:
        shown = ", ".join(sorted(cas.unlabelled)[:8])
        raise ConfigurationError(f"{path}: no annotation has a label; name its feature with --feature ({shown})")
    spans, offsets = set[Span](), _Offsets(cas.text)
    for line, first, last, label in cas.labels:
        place = f"{path}:{line}"
        begin, end = offsets.convert(first, place), offsets.convert(last, place)
        if end - begin >= _SHORTEST_TEXT and cas.text[begin:end].casefold() in label.casefold():
            # The caller shows unknown labels, and this one is PHI.
            raise ConfigurationError(f"{place}: a label is the text of its span: name another feature with --feature")
        span = _make_span(begin, end, label, place, parse)
        if span is not None:
            spans.add(span)
    # The folder of an exported document has its name; a file has that of its annotator.
    return Note(path.stem, "", "", path.stem, Annotated(cas.text, tuple(in_order(spans))), {})


@dataclass(slots=True)
class _Found:
    """An annotation. ``features`` are the names of its features."""

    line: int
    sofa: str
    begin: str
    end: str
    kind: str
    label: str = field(repr=False)
    features: set[str]


class _Cas:
    """The text of a CAS, and the annotations of this text with labels: of its first view, or of ``_InitialView``."""

    def __init__(self, path: Path, features: Sequence[str]) -> None:
        self.text: str | None = None
        self.labels: list[tuple[int, int, int, str]] = []
        self.unlabelled: set[str] = set()
        self._path = path
        self._features = features
        self._texts: list[tuple[str, str, str]] = []
        self._found: list[_Found] = []
        self._open: list[_Found | None] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def parse(self) -> None:
        try:
            self._parser.Parse(read_file(self._path), True)
        except expat.ExpatError as error:
            detail = expat.ErrorString(error.code)
            raise ConfigurationError(f"{self._path}:{error.lineno}: XML that is not well-formed: {detail}") from None
        # The text may come after the annotations.
        self._texts.sort(key=lambda each: each[0] != _INITIAL)
        _, sofa, self.text = self._texts[0] if self._texts else ("", "", None)
        texts, kinds = {each[1] for each in self._texts}, {each.kind for each in self._found if each.label}
        for each in self._found:
            if not each.label:
                self.unlabelled |= each.features
                if each.kind in kinds:
                    raise ConfigurationError(f"{self._path}:{each.line}: an annotation has no label: give it one")
            elif each.sofa == sofa:
                self.labels.append((each.line, *self._offsets(each.line, each.begin, each.end), each.label))
            elif each.sofa in texts:
                raise ConfigurationError(
                    f"{self._path}:{each.line}: an annotation of another view than that of the text: export one view"
                )

    def _offsets(self, line: int, begin: str, end: str) -> tuple[int, int]:
        if not (begin.isascii() and begin.isdigit() and end.isascii() and end.isdigit()):
            raise ConfigurationError(f"{self._path}:{line}: an annotation has no numbers as offsets")
        return int(begin[:_MOST_DIGITS]), int(end[:_MOST_DIGITS])

    def _refuse(self, *_: object) -> None:
        raise ConfigurationError(f"{self._path}:{self._parser.CurrentLineNumber}: has a document type: remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, kind = name.rpartition(" ")
        parent = self._open[-1] if self._open else None
        self._open.append(None)
        if space == _CAS and kind == "Sofa":
            if "sofaString" in attributes:
                own = attributes.get("sofaID", ""), attributes.get(f"{_XMI} id", ""), attributes["sofaString"]
                self._texts.append(own)
        elif {"begin", "end", "sofa"} <= attributes.keys() and not any(part in space for part in _NO_LABELS):
            label = next((attributes[each] for each in self._features if attributes.get(each)), "")
            own_features = {each for each in attributes if " " not in each} - {"begin", "end", "sofa"} or {kind}
            place = attributes["sofa"], attributes["begin"], attributes["end"]
            self._found.append(_Found(self._parser.CurrentLineNumber, *place, name, label, own_features))
            self._open[-1] = self._found[-1]
        elif parent is not None and name in self._features and not parent.label:
            # A feature with several values has an element for each.
            raise ConfigurationError(
                f"{self._path}:{self._parser.CurrentLineNumber}: an annotation has a list of labels: give it one"
            )

    def _end(self, _name: str) -> None:
        self._open.pop()


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises ``ConfigurationError`` if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path}: has more than {MOST_BYTES >> 20} MB: divide it")
    return data

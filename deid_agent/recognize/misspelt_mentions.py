"""Finds further mentions of the names of a document that are misspelt: ``Featherstone`` and later ``Fetherstone``.

A word counts that is in no list, or only in lists of names, and that is one edit from a name of at least six letters,
or two edits from one of at least nine that begins alike.
"""

import re
from collections.abc import Iterator, Sequence

from deid_agent.model import Document, PhiType, Source, Span, fold_accents
from deid_agent.recognize.known_people import count_edits, is_one_edit_apart, without_each_letter
from deid_agent.rules import Dictionaries, list_of_tag

_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_NAME_LISTS = frozenset({"given-female", "given-male", "nickname", "family", "family-rare"})
_OTHER_MEANINGS = frozenset({"common-word", "abbreviation", "drug"})
_WORD = re.compile(r"(?<![\w'’@.-])[^\W\d_]{5,24}(?![\w@])")
_SHORTEST, _LONG = 6, 9
_MOST_NAMES = 400


def find_misspelt(doc: Document, spans: Sequence[Span], lists: Dictionaries, low: frozenset[Source]) -> Iterator[Span]:
    """The misspelt names in ``doc`` outside of its ``spans``, which are disjoint and in order; those of ``low`` give
    no names. The source of a span is that of the name. Time is linear in the text.
    """
    names: dict[str, Span] = {}
    for span in spans:
        if span.type in _NAMES and span.source not in low:
            for word in _WORD.findall(doc.text[span.start : span.end]):
                name = fold_accents(word)
                if len(name) >= _SHORTEST and _OTHER_MEANINGS.isdisjoint(map(list_of_tag, lists.lists_of(name))):
                    names.setdefault(name, span)
    if not 0 < len(names) <= _MOST_NAMES:
        return
    near: dict[str, list[str]] = {}
    for name in names:
        for key in without_each_letter(name):
            near.setdefault(key, []).append(name)
    meant: dict[str, str] = {}
    at = 0
    for found in _WORD.finditer(doc.text):
        while at < len(spans) and spans[at].end <= found.start():
            at += 1
        if at < len(spans) and spans[at].start < found.end():
            continue
        word = fold_accents(found[0])
        if word not in meant:
            meant[word] = _meaning(word, near, names, lists)
        if meant[word]:
            yield Span(found.start(), found.end(), names[meant[word]].type, names[meant[word]].source)


def _meaning(word: str, near: dict[str, list[str]], names: dict[str, Span], lists: Dictionaries) -> str:
    """The name that ``word`` misspells, or an empty text."""
    close = {name for key in without_each_letter(word) for name in near.get(key, ()) if is_one_edit_apart(word, name)}
    if not close and len(word) >= _LONG - 2:
        close = {
            name
            for name in names
            if len(name) >= _LONG
            and name[0] == word[0]
            and abs(len(name) - len(word)) <= 2
            and count_edits(name, word) <= 2
        }
    if not close or not _is_only_a_name(word, lists):
        return ""
    return min(close)


def _is_only_a_name(word: str, lists: Dictionaries) -> bool:
    return {list_of_tag(name) for name in lists.lists_of(word)} <= _NAME_LISTS

"""The contents of ``corpus/``, one line per prefix: ``tests/cases/corpus.toml``.

``PYTHONPATH=tests python -m support.corpus_list`` (from the project's root) writes it; a test compares.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deid_agent.eval.markup import Note, read_corpus

ROOT = Path(__file__).resolve().parents[2]
LISTED = ROOT / "tests/cases/corpus.toml"
HEADER = """\
# What corpus/ holds, so that no change of it goes unseen. Made by tests/support/corpus_list.py.
# PREFIX = [patients, notes, spans, "SHA-256 over the names and bytes of its files"]
"""


def listing(notes: Sequence[Note], files: Sequence[Path]) -> str:
    """The file's text."""
    lines = []
    for author in sorted({note.author for note in notes}):
        own = [note for note in notes if note.author == author]
        spans = sum(len(note.annotated.spans) for note in own)
        lines.append(f'{author} = [{len({n.patient for n in own})}, {len(own)}, {spans}, "{_digest(author, files)}"]')
    return HEADER + "\n".join(lines) + "\n"


def _digest(author: str, files: Sequence[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(files):
        if path.name.startswith(f"{author}-"):
            total.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


if __name__ == "__main__":
    folder = ROOT / "corpus"
    LISTED.write_text(listing(list(read_corpus(folder)), sorted(folder.glob("*-*.txt"))), "utf-8")

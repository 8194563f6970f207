"""Report of a recognizer system over the annotated corpus: who looks, what is missed.

``PYTHONPATH=tests python -m support.corpus_report CORPUS [--system default] [--authors da,db] [--misses TYPE]
[--alarms TYPE] [--profile recall] [--facts]``
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.scoring import Score

from deid_agent.context import facts_of_context
from deid_agent.eval.markup import read_corpus
from deid_agent.recognize.registry import assemble, load_rules
from deid_agent.resolve import Profile, Resolver
from deid_agent.spans import Span
from deid_agent.text import Document


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--rules", type=Path, default=Path("rules"))
    parser.add_argument("--system", default="default")
    parser.add_argument("--profile", default="recall")
    parser.add_argument("--authors", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--misses", default="")
    parser.add_argument("--alarms", default="")
    parser.add_argument("--facts", action="store_true")
    args = parser.parse_args(arguments)
    rules = load_rules(args.rules)
    recognizers = assemble(rules, args.system)
    resolver = Resolver(Profile(args.profile), rules)
    score, spent, size = Score(), 0.0, 0
    for note in read_corpus(args.corpus):
        if (args.authors and note.author not in args.authors.split(",")) or note.author in args.skip.split(","):
            continue
        text = note.annotated.text
        doc = Document(text, facts_of_context(note.profile) if args.facts else ())
        begin = time.perf_counter()
        found = resolver.resolve([s for r in recognizers for s in r.recognize(doc)], doc)
        spent += time.perf_counter() - begin
        size += len(doc.tokens)
        score.add(text, note.annotated.spans, found)
        _show("-", args.misses, note.annotated.spans, found, note.id, text)
        _show("+", args.alarms, found, note.annotated.spans, note.id, text)
    sys.stdout.write(score.report() + f"\n{size / spent:.0f} tokens/s, {size} tokens\n")


def _key(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.type


def _show(sign: str, types: str, spans: Sequence[Span], others: Sequence[Span], note: str, text: str) -> None:
    """One line for each of ``spans`` that is not among ``others``. Prints text: for the synthetic corpus only."""
    known = {_key(span) for span in others}
    for span in spans:
        if (types == "all" or span.type in types.split(",")) and _key(span) not in known:
            left = text[max(0, span.start - 45) : span.start].replace("\n", "~")
            right = text[span.end : span.end + 25].replace("\n", "~")
            inside = text[span.start : span.end].replace("\n", "~")
            sys.stdout.write(f"{sign} {note} {span.type} {span.source}: {left}<<{inside}>>{right}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The contribution of decoding, joining and the grammar of measurements to the default system: writes
``models/levers.md``. Run by hand, some ten minutes on one core::

    python .ci/ablate_levers.py

Each row is the system on dev without one step. The models keep their columns and are not trained again.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from deid_agent.eval.claims import count_altered
from deid_agent.eval.counts import Criterion
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.eval.score import Pair, score_notes
from deid_agent.measure import EMPTY_GRAMMAR, Grammar, Veto
from deid_agent.model import Document
from deid_agent.nlp import TokenCrf
from deid_agent.recognize import Profile, Tagger, load_rules, load_tagger, resolve

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "models/levers.md"
HEADER = """\
# Contribution of each step around the models

The default system on dev without one step each; the models are the shipped ones and were not trained again, so the row
of the grammar shows its use by the models and its vetoes together. The 95 % interval in brackets comes from resampling
patients. "Altered" counts words, and words with a digit, that are no PHI, of 1,000 tokens. Made by
`.ci/ablate_levers.py`.

| profile | system | strict F1 | leaked | altered words | altered numbers |
|---|---|---|---|---|---|
"""


def token_model(tagger: Tagger) -> TokenCrf:
    (model,) = (each for each in tagger.models if isinstance(each, TokenCrf))
    return model


def with_token_model(tagger: Tagger, model: TokenCrf) -> Tagger:
    return replace(tagger, models=tuple(model if isinstance(each, TokenCrf) else each for each in tagger.models))


def without_affinities(tagger: Tagger) -> Tagger:
    model = token_model(tagger)
    trained = replace(model.model, affinities=np.zeros_like(model.model.affinities))
    return with_token_model(tagger, replace(model, model=trained))


def without_lean(tagger: Tagger) -> Tagger:
    return with_token_model(tagger, replace(token_model(tagger), lean=1.0))


def with_grammar(tagger: Tagger, grammar: Grammar) -> Tagger:
    changed = replace(tagger, resolver=replace(tagger.resolver, grammar=grammar))
    return with_token_model(changed, replace(token_model(tagger), grammar=grammar))


def without_hard_marks(tagger: Tagger) -> Tagger:
    forms = tuple(replace(form, veto=Veto.SOFT) for form in tagger.resolver.grammar.forms)
    return with_grammar(tagger, Grammar(forms))


SYSTEMS: dict[str, Callable[[Tagger], Tagger]] = {
    "whole": lambda tagger: tagger,
    "without affinities of labels": without_affinities,
    "without lean": without_lean,
    "without joining": lambda tagger: tagger,
    "without hard marks": without_hard_marks,
    "without the grammar": lambda tagger: with_grammar(tagger, EMPTY_GRAMMAR),
    "without further mentions": lambda tagger: replace(tagger, consistency=None),
}


def main() -> None:
    notes = select_part(read_corpus(ROOT / "corpus"), CorpusPart.DEV)
    rules = load_rules(ROOT / "rules")
    lines = []
    for profile in (Profile.BALANCED, Profile.RECALL):
        shipped = load_tagger(rules, ROOT / "models", "default", profile)
        for name, change in SYSTEMS.items():
            if name == "without lean" and profile is Profile.BALANCED:
                continue
            tagger = change(shipped)
            joined = resolve.complete_spans if name != "without joining" else lambda spans, _: list(spans)
            with patch.object(resolve, "complete_spans", joined):
                pairs = [Pair(note, tuple(tagger.find(Document(note.annotated.text)))) for note in notes]
            scores, altered = score_notes(pairs), count_altered(pairs)
            strict, leaked = scores.prf(Criterion.STRICT).f, scores.leaked()
            lines.append(
                f"| {profile} | {name} | {strict.value:.3f} ({strict.low:.3f} to {strict.high:.3f})"
                f" | {100 * leaked.value:.1f} % ({100 * leaked.low:.1f} to {100 * leaked.high:.1f})"
                f" | {altered.words_per_thousand:.1f} | {altered.numbers_per_thousand:.2f} |"
            )
            sys.stderr.write(lines[-1] + "\n")
    TABLE.write_text(HEADER + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""The scores of the default tagger and the contribution of each part: writes ``models/README.md``. Run by hand::

    deid-agent eval corpus --split dev --profile balanced --ablate --json out/balanced.json
    deid-agent eval corpus --split dev --profile recall --ablate --benign FOLDER --json out/recall.json
    deid-agent eval corpus --split dev --profile recall --context profile --json out/context.json
    deid-agent eval corpus --split sites --profile recall --json out/sites.json
    deid-agent eval corpus --split dev --profile balanced --system NAME --models FOLDER --json out/NAME.json
    python .ci/system_card.py out

If a file is missing, the page keeps its section. The figures are those of the files; nothing is counted here.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "models/README.md"
HEADER = """\
# Models

A model has three files. `<name>.json` holds its schema, how it was trained and its scores, `<name>.md` shows the same
for people, and `<name>.npz` holds its arrays. The arrays are opened only if their SHA-256 equals the one in the
`.json`. They hold numbers and words, never pickled objects. `deid-agent train` trains one model and `make models` the
two of the default. Those two were trained on this corpus with the rules of this tree, as a test of their digests
proves. [token](token.md) labels tokens with a conditional random field over
words, lists, layout and rules. [network](network.md) labels them with a recurrent network, which reads
`vectors.npz`, word vectors of 8 bits that `.ci/freeze_vectors.py` made.
The default system decides by the mean of their probabilities. `features`
runs without the network, `network` without the CRF, and `union` takes the findings of both.
[ablations.md](ablations.md) lists the contribution of each part of the network, [levers.md](levers.md) that of each
step around the models, [authors.md](authors.md) the scores on notes of authors that were left out of the training.

The other models are the trained parts of [five published systems](../docs/published-systems.md), which the default
does not load; `deid-agent train published` trains them. Their cards record the notes and the rules that they were
trained with, which may be older than those of this tree: the test of the digests covers the models of the default only.

The scores below are those of the whole tagger on dev: notes of authors and patients that no model was trained on,
without the context of a message unless stated. **All notes are synthetic**: the scores compare parts, and do not
predict the scores on your records. Annotate some of your own and run `deid-agent eval` before you rely on it. The
95 % interval in brackets comes from resampling patients. Made by `.ci/system_card.py`, which names the commands.
"""
_TOTALS = (("strict", "strict"), ("token", "token"), ("binary-hipaa-token", "binary HIPAA token"),
           ("binary-covered", "binary HIPAA token, covered by any type"), ("names", "names, covering"))  # fmt: skip


def read(folder: Path, name: str) -> dict[str, object] | None:
    path = folder / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def number(figure: object) -> str:
    if isinstance(figure, dict):
        return f"{figure['value']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"
    return f"{figure:.3f}"


def totals(report: dict[str, object]) -> Iterator[str]:
    yield "| criterion | precision | recall | F |\n|---|---|---|---|"
    for key, words in _TOTALS:
        row = report["totals"].get(key)
        if row:
            one = row["micro"]
            figures = " | ".join(number(one[name]) for name in ("precision", "recall", "f"))
            yield f"| {words}{' (F2)' if key == 'names' else ''} | {figures} |"
    yield f"\nLeaked, of the annotations: {number(report['leaked'])}."
    if altered := report.get("altered"):
        words, numbers = (1000 * altered[key] / altered["tokens"] for key in ("words", "numbers"))
        yield f"\nAltered text that is no PHI: {words:.1f} words and {numbers:.1f} numbers of 1,000 tokens."
    if benign := report.get("benign"):
        where = f"{benign['notes']} notes nearly without PHI ({benign['words']:,} words)"
        yield f"\nFalse alarms, ages apart, on {where}: {benign['per_thousand_words']:.1f} of 1,000 words."


def ablation(report: dict[str, object]) -> Iterator[str]:
    rows = report.get("ablation")
    if not rows:
        return
    names = list(next(iter(rows.values())))
    yield "\nThe contribution of each part is the score with it minus the score without it. The models were trained"
    yield "with every list and are not retrained without it, so the row of a list shows how much it is used, not the"
    yield "score of a model without it."
    yield "The network is a member of the ensemble of `token`: without `token` both are missing.\n"
    yield f"| part | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
    for part, less in rows.items():
        yield f"| {part} | {' | '.join(f'{less[name]:+.4f}' for name in names)} |"


def kept(title: str) -> str:
    """The present section of the page under a heading."""
    _, found, rest = OUT.read_text("utf-8").partition(f"\n## {title}\n")
    return f"\n## {title}\n{rest.partition(chr(10) + '## ')[0].rstrip()}" if found else ""


def section(folder: Path, name: str, title: str) -> Iterator[str]:
    if report := read(folder, name):
        yield from (f"\n## {title}\n", *totals(report), *ablation(report))
    elif section_text := kept(title):
        yield section_text


def main(folder: Path) -> None:
    lines = [HEADER]
    for name, title in (
        ("balanced", "The default under `balanced`"),
        ("recall", "The default under `recall`"),
        ("context", "The default under `recall`, with the facts of the message about the patient"),
        ("sites", "The default under `recall`, at two invented sites that no model learned from"),
    ):
        lines += section(folder, name, title)
    for name in (
        "features",
        "network",
        "union",
        "rules",
        "token",
        "dernoncourt2016",
        "dehghan2015",
        "zuccon2014",
        "liu2015",
        "ferrandez2012",
    ):
        lines += section(folder, name, f"`{name}` alone")
    OUT.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

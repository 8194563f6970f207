"""What the default tagger scores and what each of its parts adds: makes ``models/README.md``. Run by hand::

    deid-agent eval corpus --split dev --profile balanced --ablate --json out/balanced.json
    deid-agent eval corpus --split dev --profile recall --ablate --benign FOLDER --json out/recall.json
    deid-agent eval corpus --split dev --profile recall --context profile --json out/context.json
    deid-agent eval corpus --split dev --profile balanced --system NAME --models FOLDER --json out/NAME.json
    python .ci/system_card.py out

Of files that are not there the page keeps what it says. Figures are those of the files; nothing is counted here.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "models/README.md"
HEADER = """\
# Models

A model is three files: `<name>.json` says what it is, how it was made and what it scored, `<name>.md` says the same for
people, `<name>.npz` holds its arrays. The arrays are opened only after their SHA-256 was found to be the one in the
`.json`, and hold numbers and words, never pickled objects. `deid-agent train` makes them, `make models` all that are
shipped, with the rules of this tree; those that stand here were made from this corpus with earlier rules, each with
those whose SHA-256 its page names. [token](token.md) labels tokens by a conditional random field that sees words,
lists, layout and rules; [network](network.md) does the same by a recurrent network, which reads `vectors.npz`, word
vectors of 8 bits that `.ci/freeze_vectors.py` made. The default decides by the mean of their probabilities; `features`
goes without the network, `network` without the field, `union` takes what either finds. [ablations.md](ablations.md)
tells what each part of the network adds.

Below is the whole tagger on dev: notes of hands and patients that no model learned from, without any context of a
message unless it says so. **All notes are synthetic**: this tells how parts compare, not what you will see on your
records. Annotate some of your own and run `deid-agent eval` before you rely on it. In brackets stands what holds the
figure with 95 %, patients drawn again. Made by `.ci/system_card.py`, which names the commands.
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


def totals(told: dict[str, object]) -> Iterator[str]:
    yield "| criterion | precision | recall | F |\n|---|---|---|---|"
    for key, words in _TOTALS:
        row = told["totals"].get(key)
        if row:
            one = row["micro"]
            figures = " | ".join(number(one[name]) for name in ("precision", "recall", "f"))
            yield f"| {words}{' (F2)' if key == 'names' else ''} | {figures} |"
    yield f"\nLeaked, of the annotations: {number(told['leaked'])}."
    if benign := told.get("benign"):
        where = f"{benign['notes']} notes nearly without PHI ({benign['words']:,} words)"
        yield f"\nFalse alarms, ages apart, on {where}: {benign['per_thousand_words']:.1f} of 1,000 words."


def ablation(told: dict[str, object]) -> Iterator[str]:
    rows = told.get("ablation")
    if not rows:
        return
    names = list(next(iter(rows.values())))
    yield "\nWhat each part adds: the figure with it less the figure without it. A list is hidden from a model that"
    yield "learned with it: the figure says how much is made of it, not what a model without it would reach."
    yield "The network is a voice of `token`: without that both are gone.\n"
    yield f"| part | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
    for part, less in rows.items():
        yield f"| {part} | {' | '.join(f'{less[name]:+.4f}' for name in names)} |"


def kept(title: str) -> str:
    """What the page says under a heading so far."""
    _, found, rest = OUT.read_text("utf-8").partition(f"\n## {title}\n")
    return f"\n## {title}\n{rest.partition(chr(10) + '## ')[0].rstrip()}" if found else ""


def section(folder: Path, name: str, title: str) -> Iterator[str]:
    if told := read(folder, name):
        yield from (f"\n## {title}\n", *totals(told), *ablation(told))
    elif said := kept(title):
        yield said


def main(folder: Path) -> None:
    lines = [HEADER]
    for name, title in (
        ("balanced", "The default under `balanced`"),
        ("recall", "The default under `recall`"),
        ("context", "The default under `recall`, knowing what the message says of the patient"),
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

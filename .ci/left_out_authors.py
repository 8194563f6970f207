"""The shipped recipe on notes of authors that it was not trained on: writes ``models/authors.md``. Run by hand, 90
minutes on one core::

    python .ci/left_out_authors.py FOLDER

Ten authors of the corpus are left out in two folds of five; both models of the default are trained without them. The
other two authors of whole notes, ``dd`` and ``dk``, are those of dev and test and are always left out. What FOLDER
already has (models, scores) is not made again.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "models/authors.md"
FOLDS = {"A": ("da", "dc", "df", "dh", "dl"), "B": ("db", "de", "dg", "di", "dj")}
Report = dict[str, Any]
PROFILES = ("balanced", "recall")
HEADER = """\
# Authors left out

The default system, with both models trained by the shipped recipe without the notes of the author, on all notes of the
author: ten authors in two folds of five. Dev (`dd`, `dk`) has the shipped models, which never see these two. The 95 %
interval in brackets comes from resampling patients. "Altered" counts words, and words with a digit, that are no PHI, of
1,000 tokens. Made by `.ci/left_out_authors.py`.

| author | notes | profile | strict F1 | leaked | altered words | altered numbers |
|---|---|---|---|---|---|---|
"""


def run(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "deid_agent", *map(str, arguments)], cwd=ROOT, check=True)


def train(folder: Path, authors: str) -> Path:
    models = folder / "models"
    if not models.exists():
        shutil.copytree(ROOT / "models", models)
        for kind in ("network", "token"):
            run("train", kind, "--corpus", "corpus", "--hold-out", authors, "--out", models, "--quiet")
    return models


def score(folder: Path, author: str, profile: str, *options: str | Path) -> Report:
    path = folder / f"{author}-{profile}.json"
    if not path.exists():
        run("eval", "corpus", "--profile", profile, *options, "--json", path)
    found: Report = json.loads(path.read_text("utf-8"))
    return found


def row(name: str, profile: str, report: Report) -> tuple[str, float]:
    authors, leaked, altered = report["authors"], report["leaked"], report["altered"]
    strict = report["totals"]["strict"]["micro"]["f"]
    notes = sum(each["notes"] for each in authors.values())
    share = {key: 1000 * altered[key] / altered["tokens"] for key in ("words", "numbers")}
    text = (
        f"| {name} | {notes} | {profile} | {strict['value']:.3f} ({strict['low']:.3f} to {strict['high']:.3f}) "
        f"| {leaked['value']:.1%} ({leaked['low'] * 100:.1f} to {leaked['high'] * 100:.1f}) "
        f"| {share['words']:.1f} | {share['numbers']:.2f} |"
    )
    return text.replace("% (", " % ("), strict["value"]


def rows(out: Path) -> Iterator[str]:
    found: dict[str, list[float]] = {profile: [] for profile in PROFILES}
    for fold, authors in FOLDS.items():
        models = train(out / fold, ",".join(authors))
        for author in authors:
            for profile in PROFILES:
                options = ("--split", "all", "--authors", author, "--models", models)
                text, strict = row(f"`{author}`", profile, score(out / fold, author, profile, *options))
                found[profile].append(strict)
                yield text
    for profile in PROFILES:
        yield row("dev", profile, score(out, "dev", profile, "--split", "dev"))[0]
    yield ""
    for profile, values in found.items():
        mean = sum(values) / len(values)
        yield f"Strict F1 of the ten authors, `{profile}`: mean {mean:.3f}, least {min(values):.3f}."


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(HEADER + "\n".join(rows(out)) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""The table of ``docs/published-systems.md``. Run by hand, with NAME each system of ``SYSTEMS``::

    deid-agent eval corpus --split dev --profile balanced --system NAME --json out/NAME.json
    python tests/bench/bench_network.py --notes 30 --profiles balanced --systems NAME,NAME > out/speed.md
    python .ci/published_systems.py out

Replaces the table of the page. The figures are those of the files; nothing is counted here but the sizes of the models.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deid_agent.recognize import SYSTEMS as REGISTERED  # noqa: E402

PAGE = ROOT / "docs/published-systems.md"
SYSTEMS = ("hybrid", "dernoncourt2016", "zuccon2014", "liu2015", "dehghan2015", "ferrandez2012")
HEAD = (
    "| System | Strict F1 | Token F1 | HIPAA recall | HIPAA precision | Leaked | Speed | Models in MB |\n"
    "|---|---|---|---|---|---|---|---|"
)


def number(figure: dict[str, float]) -> str:
    return f"{figure['value']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"


def megabytes(system: str) -> str:
    """The arrays of the system's models, and the word vectors if one of them was trained with them."""
    names = [name for name, _ in REGISTERED[system].models]
    cards = [json.loads((ROOT / "models" / f"{name}.json").read_text("utf-8")) for name in names]
    if any(card.get("vectors") for card in cards):
        names.append("vectors")
    return f"{sum((ROOT / 'models' / f'{name}.npz').stat().st_size for name in names) / 1e6:.1f}"


def speeds(text: str) -> dict[str, float]:
    """The tokens per second of each system."""
    rows = re.findall(r"^\| (\w+) \| balanced \| ([\d,]+) \|", text, re.MULTILINE)
    return {name: float(figure.replace(",", "")) for name, figure in rows}


def main(folder: Path) -> None:
    speed = speeds((folder / "speed.md").read_text("utf-8"))
    rows = [HEAD]
    for system in SYSTEMS:
        report = json.loads((folder / f"{system}.json").read_text("utf-8"))
        total = {key: report["totals"][key]["micro"] for key in ("strict", "token", "binary-hipaa-token")}
        hipaa = total["binary-hipaa-token"]
        figures = (total["strict"]["f"], total["token"]["f"], hipaa["recall"], hipaa["precision"], report["leaked"])
        ratio = f"{speed[system] / speed[SYSTEMS[0]]:.2f}"
        rows.append(f"| `{system}` | {' | '.join(map(number, figures))} | {ratio} | {megabytes(system)} |")
    text, count = re.subn(
        r"^\| System \| Strict.*?\n(?=\n)", "\n".join(rows) + "\n", PAGE.read_text("utf-8"), flags=re.M | re.S
    )
    if count != 1:
        raise SystemExit(f"{PAGE}: no table to replace")
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

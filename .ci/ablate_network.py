"""The ablations of Dernoncourt 2016 (sections 3.6 and 3.7) over ``corpus/``: makes ``models/ablations.md`` and
``models/learning-curve.svg``. Run by hand, an hour on two cores::

    python .ci/ablate_network.py out            # trains the networks missing in out/, then writes both
    python .ci/ablate_network.py out --page     # writes both from the existing files

Every network is the paper's own (``dernoncourt-network``), trained for ``EPOCHS`` epochs and scored on dev, alone.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE, CURVE = ROOT / "models/ablations.md", ROOT / "models/learning-curve.svg"
EPOCHS = 5
FRACTIONS = (0.1, 0.25, 0.5, 0.75)
WITHOUT = ("characters", "tokens", "pre-training", "transitions")
CRITERIA = (("strict", "strict F1"), ("token", "token F1"), ("binary-hipaa-token", "binary HIPAA token F1"))
HEADER = f"""\
# Contribution of each part of the network

The ablations of Dernoncourt 2016, sections 3.6 and 3.7, with the paper's own network (`dernoncourt-network`: words
and characters, no rules, no lists), {EPOCHS} epochs each, scored alone on dev. The shipped network reads more and
trains longer: its card is [network.md](network.md). The number of epochs is the same for all, so fewer patients also
mean fewer steps; the curve shows the effect of both. The 95 % interval in brackets comes from resampling patients.
Made by `.ci/ablate_network.py`.

| network | strict F1 | token F1 | binary HIPAA token F1 | leaked |
|---|---|---|---|---|
"""


def runs() -> dict[str, list[str]]:
    """Each run by name, with its additional options."""
    found: dict[str, list[str]] = {"whole": []}
    found |= {f"without-{part}": ["--without", part] for part in WITHOUT}
    return found | {f"fraction-{share}": ["--fraction", str(share)] for share in FRACTIONS}


def train(out: Path) -> None:
    for name, options in runs().items():
        if (out / f"{name}.json").is_file():
            continue
        command = [
            sys.executable,
            "-m",
            "deid_agent",
            "train",
            "dernoncourt-network",
            "--epochs",
            str(EPOCHS),
            *options,
        ]
        scores = out / f"{name}.part"
        subprocess.run([*command, "--out", str(out / name), "--json", str(scores)], check=True, cwd=ROOT)
        scores.rename(out / f"{name}.json")


def read(out: Path, name: str) -> dict[str, object] | None:
    path = out / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def figure(one: dict[str, float]) -> str:
    return f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"


def page(out: Path) -> None:
    rows, points = [], []
    for name in runs():
        if not (report := read(out, name)):
            continue
        figures = [report["totals"][key]["micro"]["f"] for key, _ in CRITERIA]
        shown = " | ".join(figure(one) for one in (*figures, report["leaked"]))
        rows.append(f"| {name.replace('-', ' ', 1).replace('fraction ', 'share of patients ')} | {shown} |\n")
        if name == "whole" or name.startswith("fraction-"):
            points.append((1.0 if name == "whole" else float(name[9:]), [one["value"] for one in figures]))
    TABLE.write_text(HEADER + "".join(rows) + "\n![F1 by share of training patients](learning-curve.svg)\n", "utf-8")
    CURVE.write_text(curve(sorted(points)), "utf-8")


def curve(points: list[tuple[float, list[float]]]) -> str:
    """F1 over the share of training patients, one line for each criterion."""
    wide, high, left, top = 560, 300, 50, 20
    low = min(value for _, values in points for value in values) // 0.05 * 0.05

    def place(share: float, value: float) -> str:
        return f"{left + share * wide:.1f},{top + (1 - value) / (1 - low) * high:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 250}" height="{high + 70}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{wide + 250}" height="{high + 70}" fill="white"/>',
    ]
    for step in range(round((1 - low) / 0.05) + 1):
        value = low + step * 0.05
        x, y = place(0, value).split(",")
        parts.append(
            f'<path d="M{x},{y}h{wide}" stroke="#ddd"/><text x="{float(x) - 32:.0f}" y="{y}">{value:.2f}</text>'
        )
    for share, _ in points:
        x = place(share, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{top + high + 18}" text-anchor="middle">{share:.0%}</text>')
    parts.append(f'<text x="{left + wide / 2}" y="{top + high + 40}" text-anchor="middle">share of patients</text>')
    for at, ((_, words), colour) in enumerate(zip(CRITERIA, ("#1b6ca8", "#c0392b", "#27864e"), strict=True)):
        line = " ".join(place(share, values[at]) for share, values in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            '<circle cx="{}" cy="{}" r="3" fill="{}"/>'.format(*place(share, values[at]).split(","), colour)
            for share, values in points
        ]
        x, y = place(*((points[-1][0], points[-1][1][at]))).split(",")
        parts.append(f'<text x="{float(x) + 10:.0f}" y="{float(y) + 4:.0f}" fill="{colour}">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(out: Path, *, train_first: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if train_first:
        train(out)
    page(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), train_first="--page" not in sys.argv[2:])

"""The manifests of deploy/kubernetes that are made from the Helm chart, for whoever has no Helm.

``python tests/support/chart.py`` (with ``helm`` on the path, from the project's root) writes them. Their first lines
hold a digest of the chart, so that a test without Helm still finds a file that is no longer the chart's.
"""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "deid-agent"
KUBERNETES = ROOT / "deploy" / "kubernetes"
# Each with its values and the name of its release: two agents of one namespace have different ones.
RENDERED = {
    KUBERNETES / "agent.yaml": (CHART / "example.yaml", "deid"),
    KUBERNETES / "agent-mllp.yaml": (CHART / "example-mllp.yaml", "mllp"),
}


def digest() -> str:
    """SHA-256 (hex) over the names and contents of the chart's files."""
    total = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(CHART).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def head(values: Path) -> str:
    """The lines that a file begins with."""
    return (
        f"# The Helm chart as manifests, for the values of {values.relative_to(ROOT)}: replace what is yours.\n"
        "# Made by tests/support/chart.py; edit the chart, not this.\n"
        f"# Chart: {digest()}\n"
    )


def template(values: Path, release: str = "deid") -> "subprocess.CompletedProcess[str]":
    """What Helm makes of the chart, or why it refuses to."""
    command = ("helm", "template", release, str(CHART), "--values", str(values), "--kube-version", "1.30")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rendered(path: Path) -> str:
    """One of ``RENDERED`` as it should be. Needs ``helm``."""
    values, release = RENDERED[path]
    done = template(values, release)
    done.check_returncode()
    return head(values) + done.stdout


if __name__ == "__main__":
    for target in RENDERED:
        target.write_text(rendered(target), "utf-8")

"""Java programs for tests, in jars that Maven fetches once into ``.cache``."""

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FETCH_LIMIT_S = 300.0


class NoJars(Exception):
    """A Java program cannot run here; the text names the reason and the remedy."""


def require_program(name: str, remedy: str) -> None:
    """Raises ``NoJars`` if there is no such program."""
    if shutil.which(name) is None:
        raise NoJars(f"there is no {name} on the path: {remedy}")


def find_jars(name: str, pom: Path, expected: str, version: str = "") -> str:
    """The jars of a pom as a Java class path, fetched if they are missing. Raises ``NoJars``.

    The property ``NAME.version`` of the pom is the version, unless another one is given. ``expected`` is the pattern of
    a jar without which the others are useless.
    """
    if not version:
        in_pom = re.search(rf"<{name}\.version>([\d.]+)<", pom.read_text())
        assert in_pom is not None, f"{pom} names no {name}.version"
        version = in_pom[1]
    jars = ROOT / ".cache" / f"{name}-{version}"
    if not jars.is_dir():
        _fetch(jars, pom, expected, f"-D{name}.version={version}")
    return f"{jars}/*"


def _fetch(jars: Path, pom: Path, expected: str, version: str) -> None:
    require_program("mvn", f"install Maven, which fetches {jars}")
    jars.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
        fetched = Path(folder) / "jars"
        goal = ["mvn", "-q", "-B", "-f", str(pom), version, "dependency:copy-dependencies"]
        goal += ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        try:
            done = subprocess.run(goal, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as slow:
            raise NoJars(f"mvn took more than {FETCH_LIMIT_S:.0f} s to fetch {jars.name}") from slow
        if done.returncode != 0 or not any(fetched.glob(expected)):
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
            raise NoJars(f"mvn cannot fetch {jars.name}: {lines[0] if lines else 'no reason given'}")
        with contextlib.suppress(OSError):  # another run may have put them there first
            fetched.rename(jars)

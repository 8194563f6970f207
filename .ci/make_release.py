"""The files of a release, in ``dist``: wheel, sdist, SBOM, provenance and checksums. ``make release`` runs it::

    python .ci/make_release.py [--out dist] [--allow-dirty]

- ``deid-agent-VERSION.cdx.json``: a CycloneDX 1.6 SBOM. Its components are the packages that the wheel needs at run
  time, with version, digests and licence; from ``requirements.lock`` and the metadata of the installed packages.
- ``deid-agent-VERSION.provenance.json``: an in-toto statement with SLSA provenance 1.0: digests of the files, commit,
  commands, and the digests of lock file and models. It is unsigned: sign it with the key or service of the publisher.
- ``SHA256SUMS``: the digests of all of these, for ``sha256sum --check``.

The time in both files is that of the commit, so two builds of one commit give the same bytes.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
BUILD = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
PURL = "pkg:pypi/{}@{}"
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)(?: *; *([^\\\n]+))?", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
Json = dict[str, object]


def git(*arguments: str) -> str:
    """The output of git in the project."""
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_lock(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Version and digests of each locked package, by canonical name, for this Python."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    entries = list(_LOCKED.finditer(text))
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        if entry[3] and not Marker(entry[3].strip()).evaluate():
            continue
        block = text[entry.start() : following.start() if following else len(text)]
        found[canonicalize_name(entry[1])] = entry[2], tuple(_HASH.findall(block))
    return found


def find_needed(name: str) -> dict[str, set[str]]:
    """The packages that ``name`` needs at run time, directly or not, each with those that it needs itself."""
    edges: dict[str, set[str]] = {}
    todo: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
    while todo:
        current, extras = todo.pop()
        edges.setdefault(current, set())
        for line in distribution(current).requires or ():
            needed = Requirement(line)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                continue
            other = canonicalize_name(needed.name)
            if other not in edges:
                todo.append((other, frozenset(needed.extras)))
            edges[current].add(other)
    return edges


def licence_of(name: str) -> list[Json]:
    """The licences that the metadata of an installed package names."""
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return []
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = [line.split(" :: ")[-1] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    text = (metadata.get("License") or "").strip()
    names = classifiers or ([text] if text and "\n" not in text and len(text) < 80 else [])
    return [{"license": {"name": each}} for each in names]


def make_sbom(version: str, files: list[Path], lock: str, at: str) -> Json:
    """The SBOM of the wheel. Raises ``ValueError`` if a needed package is not locked."""
    locked, edges = read_lock(lock), find_needed("deid-agent")
    own = PURL.format("deid-agent", version)
    if missing := sorted(edges.keys() - locked.keys() - {"deid-agent"}):
        raise ValueError(f"not in requirements.lock: {', '.join(missing)}")
    purls = {name: PURL.format(name, locked[name][0]) for name in sorted(edges) if name != "deid-agent"}
    components = [
        {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": locked[name][0],
            "purl": purl,
            "licenses": licence_of(name),
            "properties": [{"name": "deid-agent:locked-sha256", "value": digest} for digest in locked[name][1]],
        }
        for name, purl in purls.items()
    ]
    for component in components:
        if not component["licenses"]:
            del component["licenses"]
    models = [
        {
            "type": "machine-learning-model",
            "bom-ref": f"model:{path.stem}",
            "name": path.stem,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": sha256(path)}],
        }
        for path in sorted((ROOT / "models").glob("*.npz"))
    ]
    purls["deid-agent"] = own
    wheel = next(path for path in files if path.suffix == ".whl")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + sha256(wheel))}",
        "version": 1,
        "metadata": {
            "timestamp": at,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "deid-agent",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}],
            },
        },
        "components": [*components, *models],
        "dependencies": [
            {"ref": purls[name], "dependsOn": sorted(purls[other] for other in needed)}
            for name, needed in sorted(edges.items())
        ],
    }


def make_provenance(files: list[Path], commit: str, at: str) -> Json:
    """An in-toto statement: the files, and how they were built."""
    materials = [{"uri": "git+file:deid-agent", "digest": {"gitCommit": commit}}]
    for path in (ROOT / "requirements.lock", *sorted((ROOT / "models").glob("*.npz"))):
        materials.append({"uri": str(path.relative_to(ROOT)), "digest": {"sha256": sha256(path)}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"commit": commit, "target": "release"},
                "internalParameters": {"python": platform.python_version(), "machine": platform.machine()},
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": os.environ.get("DEID_BUILDER_ID", "local")},
                "metadata": {"invocationId": commit, "startedOn": at},
            },
        },
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, default=ROOT / "dist")
    options.add_argument(
        "--allow-dirty", action="store_true", help="build a tree with uncommitted changes, for a trial"
    )
    chosen = options.parse_args()
    if git("status", "--porcelain") and not chosen.allow_dirty:
        sys.exit("uncommitted changes: the provenance would name a commit that does not have them; commit first")
    commit = git("rev-parse", "HEAD")
    epoch = git("show", "-s", "--format=%ct", "HEAD")
    at = datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    chosen.out.mkdir(parents=True, exist_ok=True)
    if any(chosen.out.iterdir()):
        sys.exit(f"{chosen.out}: not empty; a file of an earlier release would be among the checksums")
    subprocess.run(
        [*BUILD, chosen.out, ROOT],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        stdout=subprocess.DEVNULL,
    )
    built = sorted(chosen.out.iterdir())
    version = next(path.name.split("-")[1] for path in built if path.suffix == ".whl")
    bom = chosen.out / f"deid-agent-{version}.cdx.json"
    sbom = make_sbom(version, built, (ROOT / "requirements.lock").read_text("utf-8"), at)
    bom.write_text(json.dumps(sbom, indent=1) + "\n", "utf-8")
    statement = make_provenance([*built, bom], commit, at)
    provenance = chosen.out / f"deid-agent-{version}.provenance.json"
    provenance.write_text(json.dumps(statement, indent=1) + "\n", "utf-8")
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in (*built, bom, provenance))
    (chosen.out / "SHA256SUMS").write_text(sums, "utf-8")
    sys.stdout.write(sums)


if __name__ == "__main__":
    main()

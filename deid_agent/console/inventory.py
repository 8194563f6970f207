"""What runs: rules, word lists, models, policy and configuration, with their digests. Blocking: for a thread."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deid_agent import resources
from deid_agent.config import Settings, told
from deid_agent.policy import Policy
from deid_agent.recognize import registry
from deid_agent.systems import SYSTEMS
from deid_agent.wiring import Workshop


@dataclass(frozen=True, slots=True)
class Running:
    """What the agent was started with. ``build`` is what its audit says of it."""

    parts: Workshop
    settings: Settings = field(repr=False)
    build: Mapping[str, str]
    demo: bool = False


def inventory(running: Running) -> dict[str, object]:
    """Everything that is loaded. Raises ``ConfigurationError`` where a folder cannot be read any more.

    ``changed`` names folders whose files are no longer those of the start: the agent runs on with the old ones.
    """
    parts, build = running.parts, running.build
    models = parts.models or resources.folder("models")
    loaded = registry.load_rules(parts.rules)
    now = {"rules": resources.digest(parts.rules)[:16], "models": resources.digest(models)[:16]}
    used = {name for name, _ in SYSTEMS[parts.system].models} if parts.system in SYSTEMS else set()
    patterns = [("pattern", "patterns", rule) for rule in loaded.patterns]
    vetoes = [("veto", "vetoes", rule) for rule in loaded.vetoes]
    return {
        "build": dict(build),
        "changed": [name for name, digest in now.items() if digest != build.get(name)],
        "system": parts.system,
        "profile": parts.profile,
        "key": {"id": parts.key.id, "demo": parts.key.demo},
        "rules": [
            {
                "id": rule.id,
                "kind": kind,
                "types": [t.value for t in rule.types],
                "confidence": rule.confidence.value if kind == "pattern" else None,
                "why": rule.why,
                "digest": _digest(parts.rules / folder / f"{rule.id}.toml"),
            }
            for kind, folder, rule in (*patterns, *vetoes)
        ],
        "lists": [{"id": name, "words": len(words)} for name, words in sorted(loaded.lexicons.items())],
        "models": _models(models, used),
        "policy": _policy(parts.policy),
        "configuration": [asdict(one) for one in told(running.settings)],
    }


def _models(folder: Path, systems: Set[str]) -> list[dict[str, object]]:
    """Each model of the folder; word vectors are in use where a model of the running system was trained with them."""
    said = {path.stem: _manifest(path) for path in sorted(folder.glob("*.json"))}
    needed = {said[name].get("vectors") for name in systems & said.keys()} - {None, ""}
    return [_model(name, one, name in systems or one.get("sha256") in needed) for name, one in said.items()]


def _manifest(path: Path) -> dict[str, object]:
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return _table(said)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _model(name: str, said: dict[str, object], used: bool) -> dict[str, object]:
    """What the manifest of a model says of it."""
    return {
        "id": name,
        "used": used,
        "about": str(said.get("about", "")),
        "kind": str(said.get("kind", "")),
        "digest": str(said.get("sha256", "")),
        "trained": _table(said.get("corpus")),
        "versions": said.get("versions", {}),
        "scores": _table(said.get("scores")),
    }


def _policy(policy: Policy) -> dict[str, object]:
    return {
        "name": policy.name,
        "digest": policy.digest,
        "default": policy.default.value,
        "types": {kind.value: method.value for kind, method in sorted(policy.types.items())},
        "paths": {path: method.value for path, method in sorted(policy.paths.items())},
        "dates": policy.date_scope.value,
        "names": policy.name_scope.value,
        "max_shift_days": policy.max_shift_days,
        "record_key": policy.record_key.value,
        "headers": sorted(policy.headers),
        "attachments": {
            "pdf": policy.pdf.value,
            "url": policy.attachment_url.value,
            "unreadable": policy.unreadable.value,
        },
    }


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""

"""Parsers for the files of deploy/."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs"
Tree = dict[str, Any]


def documents(path: Path) -> list[Tree]:
    """All YAML documents of a file that are not empty. A duplicate key is an error."""
    return [found for found in yaml.load_all(path.read_text("utf-8"), _Strict) if found]


class _Strict(yaml.SafeLoader):
    """Refuses duplicate keys. The parser would use the last one without a warning, and a limit could get lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.YAMLError(f"{node.start_mark}: duplicate keys: {twice}")
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Instruction:
    """One line of a Containerfile, its continuations joined."""

    stage: int
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The words of an instruction in exec form. Raises ``ValueError`` for the shell form."""
        found = json.loads(self.value)
        if not isinstance(found, list):
            raise ValueError(self.value)
        return [str(word) for word in found]


def containerfile(path: Path = DEPLOY / "Containerfile") -> list[Instruction]:
    """The instructions with the number of their stage. Those before the first FROM have stage -1."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found, stage = [], -1
    for line in joined.splitlines():
        if not line.strip():
            continue
        name, _, value = line.strip().partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, " ".join(value.split())))
    return found


def labels_of(instruction: Instruction) -> Mapping[str, str]:
    """The pairs of a LABEL or ENV instruction."""
    return dict(pair.split("=", 1) for pair in shlex.split(instruction.value))


def pods(trees: list[Tree]) -> Iterator[tuple[str, Tree]]:
    """Name and pod template of every workload."""
    for tree in trees:
        if tree["kind"] in {"StatefulSet", "Deployment", "DaemonSet", "Job"}:
            yield tree["metadata"]["name"], tree["spec"]["template"]["spec"]


def containers(pod: Tree) -> list[Tree]:
    """All containers of a pod, including init containers."""
    return [*pod.get("initContainers", []), *pod["containers"]]

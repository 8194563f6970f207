"""The files of deploy/, read as what they are."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
Tree = dict[str, Any]


def documents(path: Path) -> list[Tree]:
    """All YAML documents of a file that are not empty; a key that stands twice is an error."""
    return [found for found in yaml.load_all(path.read_text("utf-8"), _Strict) if found]


class _Strict(yaml.SafeLoader):
    """Where a key stands twice the last one counts in silence, and a limit is gone."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.YAMLError(f"{node.start_mark}: keys that stand twice: {twice}")
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Instruction:
    """One line of a Containerfile, its continuations joined."""

    stage: int
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The value of one in exec form; ``ValueError`` where it is a shell's."""
        found = json.loads(self.value)
        if not isinstance(found, list):
            raise ValueError(self.value)
        return [str(word) for word in found]


def containerfile(path: Path = DEPLOY / "Containerfile") -> list[Instruction]:
    """What the file says, stage by stage; those before the first FROM are of stage -1."""
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
    """The pairs of a LABEL or ENV."""
    return dict(pair.split("=", 1) for pair in shlex.split(instruction.value))


def pods(trees: list[Tree]) -> Iterator[tuple[str, Tree]]:
    """Name and pod of everything that makes pods."""
    for tree in trees:
        if tree["kind"] in {"StatefulSet", "Deployment", "DaemonSet", "Job"}:
            yield tree["metadata"]["name"], tree["spec"]["template"]["spec"]


def containers(pod: Tree) -> list[Tree]:
    """All containers of a pod, those that begin first too."""
    return [*pod.get("initContainers", []), *pod["containers"]]

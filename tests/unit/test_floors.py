"""A module imports only from the floors below its own (style: module map)."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "deid_agent"

# Longest prefix wins. Modules that share a name and a floor (one package) may import each other.
FLOORS = {
    "phi": 0,
    "spans": 0,
    "errors": 0,
    "mapped": 1,
    "armor": 1,
    "literal": 1,
    "charsets": 1,
    "pdf": 1,
    "sites": 1,
    "text": 1,
    "markup": 1,
    "linear": 1,
    "boundaries": 1,
    "ruleset": 1,
    "rulefile": 1,
    "lexicon": 1,
    "dictionary": 1,
    "senses": 1,
    "resources": 1,
    "crf": 1,
    "neural": 1,
    "key": 1,
    "secret": 1,
    "trace": 1,
    "headers": 1,
    "laps": 1,
    "codec": 2,
    "recognize": 2,
    "resolve": 2,
    "surrogate": 2,
    "policy": 2,
    "attachment": 2,
    "context": 2,
    "guard": 2,  # what finds known PHI is handed to it, so it needs no floor above recognize
    "validation": 2,
    "rewrap": 2,
    "replacer": 3,
    "recordkey": 3,
    "case": 3,
    "narratives": 3,
    "tagger": 3,
    "together": 3,
    "systems": 3,
    "deidentify": 3,
    "eval": 4,
    "agent": 4,
    "telemetry": 4,
    "audit": 5,
    "transport": 5,
    "operator": 5,
    "changes": 2,
    "console": 7,
    "train": 5,  # scores what it trained by eval
    "config": 5,
    "wiring": 6,
    "cli": 8,
    "probe": 6,
    "__main__": 9,
    "__init__": 0,
}
# Floors whose modules are one row of small parts that may build on each other, without a cycle.
ROWS_OF_PARTS = {0, 1, 3}
# aiokafka and click appear in one place each, so that either can be replaced there.
ONLY_IN = {
    "aiokafka": {"transport"},
    "aiohttp": {"operator", "console"},
    "prometheus_client": {"operator"},
    "click": {"cli"},
    "pydantic": {"config"},
    "pydantic_settings": {"config"},
    "jax": {"train"},
    "optax": {"train"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if "_data" not in parts:
            yield ".".join(parts), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = (PACKAGE.parent / Path(*name.split("."))).with_suffix(".py").exists()
                yield name if is_module else str(node.module)


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_go_down(name: str, path: Path) -> None:
    top = name.split(".", maxsplit=1)[0]
    floor = FLOORS[top]
    for target in imports(path):
        root, _, rest = target.partition(".")
        if root != "deid_agent":
            assert top in ONLY_IN.get(root, {top}), f"{name} imports {root}, which belongs to {ONLY_IN.get(root)}"
            continue
        other = rest.split(".", maxsplit=1)[0] or "__init__"
        same_part = other == top or (FLOORS[other] == floor and floor in ROWS_OF_PARTS)
        below = FLOORS[other] < floor or {top, other} == {"agent", "telemetry"}
        assert same_part or below, f"{name} (floor {floor}) imports {other} (floor {FLOORS[other]})"


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Not inside of functions either: what floors allow among parts of one row."""
    files = {f"deid_agent.{name}".removesuffix(".__init__"): path for name, path in modules()}
    graph = {name: {each for each in imports(path) if each in files and each != name} for name, path in files.items()}
    TopologicalSorter(graph).prepare()  # raises where there is a cycle, and names it


def test_the_map_names_no_module_that_is_gone() -> None:
    present = {name.split(".", maxsplit=1)[0] for name, _ in modules()}
    assert set(FLOORS) <= present

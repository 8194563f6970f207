"""The layout of the package: a module imports only from lower layers, and only names that a package exports."""

import ast
import importlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "deid_agent"

# From the bottom to the top. Packages of one layer do not import each other.
LAYERS = (
    {"__init__", "core", "probe", "model", "web"},
    {"rules", "config", "telemetry", "schemas"},
    {"codec", "measure", "surrogate", "agent"},
    {"nlp", "transport", "audit"},
    {"recognize"},
    {"pipeline", "http"},
    {"app", "eval"},
    {"train", "api", "batch", "review", "evidence"},
    {"cli"},
    {"__main__"},
)
LAYER_OF: Mapping[str, int] = {name: number for number, layer in enumerate(LAYERS) for name in layer}
# Each library appears in one place, so that it can be replaced there.
ONLY_IN = {
    "aiokafka": {"transport"},
    "aiohttp": {"http"},
    "prometheus_client": {"telemetry"},
    "click": {"cli"},
    "pydantic_settings": {"config"},
    "jax": {"train"},
    "optax": {"train"},
    "pyarrow": {"batch"},
    "hvac": {"config"},
    "boto3": {"config"},
    "jwt": {"http"},
}
MOST_IN_THE_ROOT = 5
MOST_IN_ALL = 457  # modules with code: the files that only export names are not counted


def modules() -> Mapping[str, Path]:
    """Dotted names below ``deid_agent`` (a package under its own name) with their files."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if "_data" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each imported name with the module that it is taken from; inside functions too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((str(node.module), alias.name) for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[str, str]]:
    """The imports of our own, as the module below ``deid_agent`` and the name; a submodule counts as the module."""
    for module, name in imports(path):
        root, _, rest = module.partition(".")
        if root == "deid_agent":
            whole = f"{rest}.{name}".strip(".")
            yield (whole, "") if whole in MODULES else (rest or "__init__", name)


def top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name: str) -> None:
    for target, _ in own_imports(MODULES[name]):
        if name == "__init__" and target == "api":
            continue  # for type checkers only, see test_importing_the_package_imports_nothing_else
        if top(target) != top(name):
            assert LAYER_OF[top(target)] < LAYER_OF[top(name)], f"{name} imports {target}"


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, deid_agent; print([name for name in sys.modules if name.startswith('deid_agent.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", MODULES)
def test_a_library_is_imported_in_one_place(name: str) -> None:
    for module, _ in imports(MODULES[name]):
        allowed = ONLY_IN.get(top(module), {top(name)})
        assert top(name) in allowed, f"{name} imports {module}, which belongs in {sorted(allowed)}"


@pytest.mark.parametrize("name", MODULES)
def test_other_packages_are_imported_by_their_exports(name: str) -> None:
    """From another package only names that its ``__init__`` (or that of a package inside of it) exports."""
    for target, wanted in own_imports(MODULES[name]):
        if top(target) == top(name) or wanted == "*":  # all exports, for type checkers
            continue
        # A package may offer a module as a whole.
        package, item = (target, wanted) if wanted else (target.rpartition(".")[0], target.rpartition(".")[2])
        path = MODULES[package or "__init__"]
        assert path.name == "__init__.py" or path.parent == PACKAGE, f"{name} imports {package} past its package"
        if path.name == "__init__.py" and package not in {"", "__init__"}:
            exported = importlib.import_module(f"deid_agent.{package}").__all__
            assert item in exported, f"{name} imports {item}, which {package} does not export"


@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].name == "__init__.py"])
def test_a_package_has_every_name_that_it_exports(name: str) -> None:
    package = importlib.import_module(f"deid_agent.{name}".removesuffix(".__init__"))
    assert not [item for item in getattr(package, "__all__", ()) if not hasattr(package, item)]


@pytest.mark.parametrize("name", ["agent", "codec", "config"])
def test_a_package_that_imports_on_first_use_has_no_other_names(name: str) -> None:
    package = importlib.import_module(f"deid_agent.{name}")
    assert not hasattr(package, "no_such_name")
    lazy = next(iter(package._LAZY.values()))[0]
    assert getattr(package, lazy) is vars(package)[lazy], "a name is imported once"


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: {target for target, _ in own_imports(path)} - {name} for name, path in MODULES.items()}
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # A package imports its modules to export them; a module that imports from its own package would be a cycle.
    TopologicalSorter({name: seen for name, seen in graph.items() if name not in packages}).prepare()
    for name in packages:
        for inner, seen in graph.items():
            assert not (inner.startswith(f"{name}.") and name in seen), f"{inner} imports from its own package"


def test_no_two_classes_share_a_name() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(name)
    assert not {name: places for name, places in defined.items() if len(places) > 1}


def test_the_package_stays_small() -> None:
    assert len([name for name, path in MODULES.items() if path.parent == PACKAGE]) <= MOST_IN_THE_ROOT
    assert len([name for name, path in MODULES.items() if path.name != "__init__.py"]) <= MOST_IN_ALL


def test_the_map_names_every_package_and_no_other() -> None:
    assert set(LAYER_OF) == {top(name) for name in MODULES}

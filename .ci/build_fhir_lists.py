"""Builds ``rules/fhir/lists.json``: the elements of each type that FHIR JSON writes as lists.

    python .ci/build_fhir_lists.py rules/fhir/lists.json

FHIR XML repeats an element and does not show if a single one is a list. If versions of FHIR disagree, R4B decides, then
R5, then STU3. Only this script needs ``fhir.resources``; the agent reads the table.

Source: FHIR R4B, R5 and STU3, resource and datatype definitions.
"""

import ast
import json
import runpy
import sys
from pathlib import Path

from deid_agent.model.errors import ConfigurationError

_VERSIONS = ("R4B", "", "STU3")
_SCRIPT = Path(__file__).with_name("build_fhir_table.py")


def build_lists(models: Path) -> dict[str, str]:
    """Type name to its repeating elements, divided by spaces. ``models`` is the folder of ``fhir.resources``."""
    found: dict[str, dict[str, bool]] = {}
    for version in _VERSIONS:
        for path in sorted((models / version).glob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    elements = found.setdefault(node.name, {})
                    for item in node.body:
                        if name := _element_name(item):
                            elements.setdefault(name, _is_list(item))
    rows = {name: " ".join(sorted(e for e, repeats in row.items() if repeats)) for name, row in sorted(found.items())}
    return {name: row for name, row in rows.items() if row}


def _element_name(item: ast.stmt) -> str:
    """The name of an element, else an empty string."""
    if not (isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Call)):
        return ""
    alias = next((word.value for word in item.value.keywords if word.arg == "alias"), None)
    known = isinstance(alias, ast.Constant) and isinstance(alias.value, str) and not alias.value.startswith("_")
    return str(alias.value) if known and isinstance(alias, ast.Constant) else ""


def _is_list(item: ast.stmt) -> bool:
    nodes = ast.walk(item.annotation) if isinstance(item, ast.AnnAssign) else ()
    return any(isinstance(node, ast.Attribute) and node.attr == "List" for node in nodes)


def render_lists(table: dict[str, str]) -> str:
    """The content of the file: one type per line."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the table to the path that is the only argument."""
    if len(arguments) != 1:
        raise ConfigurationError("name one file to write, as in rules/fhir/lists.json")
    models = runpy.run_path(str(_SCRIPT))["models_folder"]()
    Path(arguments[0]).write_text(render_lists(build_lists(models)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

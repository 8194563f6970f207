"""Builds ``rules/fhir/required.json``: the members that FHIR requires of each type.

    python .ci/build_fhir_required.py rules/fhir/required.json

The members are read from the models of the ``fhir.resources`` package (R4B, R5, STU3). A member counts if every version
that has the type requires it. ``medication[x]`` names the members of a choice, of which one is required. Only this
script needs ``fhir.resources``; the agent reads the table.

Source: FHIR R4B, R5 and STU3, resource and datatype definitions.
"""

import ast
import json
import runpy
import sys
from pathlib import Path

from deid_agent.model.errors import ConfigurationError

_VERSIONS = ("", "R4B", "STU3")
_SCRIPT = Path(__file__).with_name("build_fhir_table.py")


def build_required(models: Path) -> dict[str, str]:
    """Type name to its required members, divided by spaces. ``models`` is the folder of ``fhir.resources``."""
    found: dict[str, set[str]] = {}
    for version in _VERSIONS:
        for path in sorted((models / version).glob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    required = {name for item in node.body if (name := _required_name(item))}
                    found[node.name] = found.get(node.name, required) & required
    return {name: " ".join(sorted(members)) for name, members in sorted(found.items()) if members}


def _required_name(item: ast.stmt) -> str:
    """The name of a member if it is required, else an empty string."""
    if not (isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Call)):
        return ""
    options = {word.arg: word.value for word in item.value.keywords}
    alias = options.get("alias")
    extra = options.get("json_schema_extra")
    if not (isinstance(alias, ast.Constant) and isinstance(alias.value, str)) or alias.value.startswith("_"):
        return ""
    facts: dict[str, object] = {}
    if isinstance(extra, ast.Dict):
        pairs = zip(extra.keys, extra.values, strict=True)
        facts = {str(k.value): v.value for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)}
    if facts.get("one_of_many_required"):
        return f"{facts['one_of_many']}[x]"
    default = options.get("default")
    obligatory = isinstance(default, ast.Constant) and default.value is ...
    return alias.value if obligatory or facts.get("element_required") else ""


def render_required(table: dict[str, str]) -> str:
    """The content of the file: one type per line."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the table to the path that is the only argument."""
    if len(arguments) != 1:
        raise ConfigurationError("name one file to write, as in rules/fhir/required.json")
    models = runpy.run_path(str(_SCRIPT))["models_folder"]()
    Path(arguments[0]).write_text(render_required(build_required(models)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

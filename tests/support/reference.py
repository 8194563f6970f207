"""The settings table of docs/reference.md, generated from the settings.

``python tests/support/reference.py`` (from the project's root) writes it; a test compares.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
NAMES = {"envelopes": "TOPIC"}
"""The placeholder of a table of sections, if it is not NAME."""
BEGIN, END = "<!-- settings: made by tests/support/reference.py -->", "<!-- end of settings -->"


def variable(name: str) -> str:
    """The environment variable of a setting; none in a section that the operator names, and in an item of a list."""
    return "-" if '"' in name or "[]" in name else f"`DEID_{name.upper().replace('.', '__')}`"


def rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Dotted name, default and meaning of every setting, sections after the plain ones."""
    sections: list[tuple[str, type[BaseModel]]] = []
    for name, info in model.model_fields.items():
        kinds = [info.annotation, *getattr(info.annotation, "__args__", ())]
        section = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if section is not None and section is not model:  # a section inside itself is one row
            origin: object = getattr(info.annotation, "__origin__", None)
            many = {dict: f'{name}."{NAMES.get(name, "NAME")}"', tuple: f"{name}[]"}
            sections.append((next((form for kind, form in many.items() if origin is kind), name), section))
            continue
        default = info.default
        shown = "required" if default is PydanticUndefined else "-" if default is None else default
        if isinstance(shown, bool):
            shown = str(shown).lower()
        yield (
            f"{prefix}{info.alias or name}",
            str(shown.value if isinstance(shown, StrEnum) else shown),
            info.description or "",
        )
    for name, section in sections:
        yield from rows(section, f"{prefix}{name}.")


def table() -> str:
    """The table between the two markers."""
    lines = [
        "| Setting | Environment variable | Default | Description |",
        "|---|---|---|---|",
        *(f"| `{name}` | {variable(name)} | {default} | {meaning} |" for name, default, meaning in rows(Settings)),
    ]
    return "\n".join(lines)


def page(text: str) -> str:
    """``text`` with a new table between the markers."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")

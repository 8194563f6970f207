"""Site folders for tests."""

from pathlib import Path


def make_site(folder: Path, remove: str = "", patterns: str = "", vetoes: str = "", **lists: str) -> Path:
    """A site folder with lists by type (``LOCATION_OTHER`` for ``LOCATION-OTHER``), and one rule of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in lists.items():
        (folder / "lists").mkdir(exist_ok=True)
        (folder / "lists" / f"{name.replace('_', '-')}.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    for kind, text in (("patterns", patterns), ("vetoes", vetoes)):
        if text:
            (folder / kind).mkdir(exist_ok=True)
            (folder / kind / (text.split('"')[1] + ".toml")).write_text(text, "utf-8")
    if remove:
        (folder / "remove.toml").write_text(remove, "utf-8")
    return folder


PATTERN = """id = "our-badge"
type = "IDNUM"
why = "Badges"
pattern = '''heron[0-9]{2}'''
hit = ["badge [[IDNUM|heron17]] left"]
"""
VETO = """id = "our-machine"
types = ["PATIENT", "DOCTOR"]
why = "The name of a machine"
pattern = '''Zyltrak Mark [0-9]{1,2}'''
hit = ["the [[PATIENT|Zyltrak Mark 4]] hums"]
"""

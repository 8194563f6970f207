"""The files of the pages, from the package: read once, and only those that are there are ever served."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import resources as packaged

from deid_agent import __version__

PAGES: Mapping[str, str] = {
    "": "Overview",
    "letters": "Dead letters",
    "audit": "Audit",
    "rules": "Rules and models",
    "playground": "Playground",
    "evaluation": "Evaluation",
}
"""Name in the address, and title."""
_MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Assets:
    """``files`` by name with their media types; ``pages`` are whole documents by name in the address."""

    files: Mapping[str, tuple[bytes, str]] = field(repr=False)
    pages: Mapping[str, str] = field(repr=False)
    login: str = field(repr=False)


def load() -> Assets:
    """Everything there is in ``deid_agent/web``."""
    folder = packaged.files("deid_agent") / "web"
    files: dict[str, tuple[bytes, str]] = {}
    parts: dict[str, str] = {}
    for item in folder.iterdir():
        name = item.name
        end = name[name.rfind(".") :]
        if end in _MEDIA:
            files[name] = (item.read_bytes(), _MEDIA[end])
        elif end == ".html":
            parts[name.removesuffix(".html")] = item.read_text("utf-8")
    pages = {name: _page(parts, name, title) for name, title in PAGES.items()}
    return Assets(files, pages, _login(parts))


def _page(parts: Mapping[str, str], name: str, title: str) -> str:
    links = "".join(
        f'<li><a href="/console/{each}"{" aria-current=page" if each == name else ""}>{escape(what)}</a></li>'
        for each, what in PAGES.items()
    )
    return _filled(parts["shell"], title, name or "overview", parts[name or "overview"], links)


def _login(parts: Mapping[str, str]) -> str:
    return _filled(parts["shell"], "Log in", "login", parts["login"], "")


def _filled(shell: str, title: str, script: str, main: str, links: str) -> str:
    filled = shell.replace("{title}", escape(title)).replace("{script}", script).replace("{links}", links)
    return filled.replace("{version}", escape(__version__)).replace("{main}", main)

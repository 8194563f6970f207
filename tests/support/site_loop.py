"""The loop of an invented site: lists, reviewed notes, adapted models, a bound, and a report of evidence.

Each step is a command of the program, and decisions are made by keyboard in the console or by its JSON interface. The
reviewers decide as the annotations of the corpus do; one of them misses a span in each third note.
"""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
from playwright.async_api import Page
from support.consoles import ACT

from deid_agent.eval.markup import CorpusPart, Note, read_corpus, select_part
from deid_agent.http.access import PAGE_HEADER
from deid_agent.http.review_view import TYPE_KEYS
from deid_agent.model import PhiType, Span
from deid_agent.rules import fits

ROOT = Path(__file__).resolve().parents[2]
ANNA, BEN, CARA = "anna", "ben", "cara"
_LISTED = {
    PhiType.DOCTOR: "name",
    PhiType.HOSPITAL: "site",
    PhiType.ORGANIZATION: "organization",
    PhiType.STREET: "street",
}
_DIFFERS = 3
"""Each third note is disputed."""

Spans = list[dict[str, Any]]


@dataclass(frozen=True)
class SiteNotes:
    """The notes of a site in two halves by patient: those that it uses, and those that are scored."""

    used: tuple[Note, ...]
    scored: tuple[Note, ...]

    @classmethod
    def of(cls, prefix: str, used: int | None = None, scored: int | None = None) -> Self:
        """The halves of an invented site, or the first notes of both."""
        notes = [n for n in select_part(read_corpus(ROOT / "corpus"), CorpusPart.SITES) if n.patient.startswith(prefix)]
        odd = set(sorted({note.patient for note in notes})[::2])
        return cls(
            tuple(note for note in notes if note.patient in odd)[:used],
            tuple(note for note in notes if note.patient not in odd)[:scored],
        )


def write_notes(path: Path, notes: Iterable[Note], *, gold: bool = False) -> Path:
    """Notes as JSON lines with their patients; with their spans if ``gold``."""
    with path.open("w", encoding="utf-8") as file:
        for note in notes:
            line: dict[str, object] = {"id": note.id, "patient_id": note.patient, "text": note.annotated.text}
            if gold:
                line = {"id": note.id, "patient": note.patient, "text": note.annotated.text, "spans": spans_of(note)}
            file.write(json.dumps(line) + "\n")
    return path


def spans_of(note: Note) -> Spans:
    """The annotations of a note, in the form of JSON lines."""
    return [{"start": s.start, "end": s.end, "type": s.type.value} for s in note.annotated.spans]


def write_staff(path: Path, notes: Iterable[Note]) -> Path:
    """A CSV of the staff and the places in the annotations, as a site exports them. Patients are never in it."""
    rows = set()
    for note in notes:
        for span in note.annotated.spans:
            value = " ".join(note.annotated.text[span.start : span.end].split())
            if span.type in _LISTED and fits(value, span.type) and sum(map(str.isalpha, value)) > 3:
                rows.add((_LISTED[span.type], value))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(_LISTED.values()))
        writer.writeheader()
        writer.writerows({kind: value} for kind, value in sorted(rows))
    return path


@dataclass(frozen=True)
class Site:
    """A folder in which the commands run. ``tokens`` are those of the reviewers."""

    root: Path
    tokens: Mapping[str, str]

    def run(self, *words: object, models: Path | None = None, allowed: Sequence[int] = (0,)) -> str:
        """The output of a command. Raises ``AssertionError`` with its errors for another exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "deid_agent", *map(str, words)],
            cwd=self.root,
            env=_environ(models),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in allowed, (words, done.returncode, done.stderr[-2000:])
        return done.stdout

    @classmethod
    def make(cls, root: Path) -> Self:
        """A folder of reviewed notes for three reviewers, and the settings of a console."""
        shown = cls(root, {}).run(
            "review", "make", "review", "--key-file", "review.key", "--reviewers", "anna,ben,cara"
        )
        (root / "agent.toml").write_text(
            'transport = "directory"\n[agent]\nworkers = 0\n[http]\nport = 0\n[audit]\npath = "audit"\n'
            '[directory]\ninput = "in"\noutput = "out"\ndead_letters = "dead"\nstate = "state"\n'
            "[dead_letters]\nplain = true\n"
        )
        (root / "in").mkdir()
        return cls(root, dict(line.split() for line in shown.splitlines()))

    @contextmanager
    def console(self) -> Iterator[str]:
        """The address of a console with the review, in a process of its own."""
        words = ("console", "--config", "agent.toml", "--demo-key", "--port", "0")
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "deid_agent", *words, "--review", "review", "--review-key", "review.key"],
            cwd=self.root,
            env=_environ(None),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found, line
            yield found[0]
        finally:
            process.terminate()
            process.communicate()


def _environ(models: Path | None) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    return own | ({} if models is None else {"DEID_MODELS": str(models)})


@dataclass(frozen=True)
class Reviewer:
    """A reviewer's session at the JSON interface of the review."""

    session: aiohttp.ClientSession
    base: str
    name: str
    page: str

    @classmethod
    @asynccontextmanager
    async def of(cls, base: str, name: str, token: str) -> AsyncIterator[Self]:
        """Log in as a page does."""
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
            session.post(f"{base}/console/api/login", json={"token": token}, headers=ACT) as answer,
        ):
            assert answer.status == 200, await answer.text()
            yield cls(session, base, name, (await answer.json())["page"])

    async def get(self, path: str) -> Any:
        """The answer to a request."""
        headers = {PAGE_HEADER: self.page}
        async with self.session.get(f"{self.base}/console/api/review/{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def finish(self, note: str, spans: Spans, *, adjudicates: bool = False) -> str:
        """Finish a note. Returns its state."""
        body = {"reviewer": self.name, "finished": True, "adjudicates": adjudicates, "spans": spans}
        headers = {**ACT, PAGE_HEADER: self.page}
        url = f"{self.base}/console/api/review/notes/{note}"
        async with self.session.post(url, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return str((await answer.json())["state"])


def decide(gold: Sequence[Span], number: int = 1) -> Spans:
    """The decision of a reviewer; without the last span in each third note."""
    kept = gold[:-1] if number % _DIFFERS == 0 else gold
    return [{"begin": s.start, "end": s.end, "type": s.type.value} for s in kept]


async def review_by_interface(
    base: str, site: Site, gold: Mapping[str, Note], adjudicate: bool = True
) -> dict[str, int]:
    """Both decisions of each note that has none yet, and the third one of those that differ. Counts states."""
    states: dict[str, int] = {}
    for name in (ANNA, BEN, *((CARA,) if adjudicate else ())):
        async with Reviewer.of(base, name, site.tokens[name]) as reviewer:
            for item in (await reviewer.get("queue"))["notes"]:
                if item["state"] not in ({"disputed"} if name == CARA else {"open", "draft"}):
                    continue
                shown = await reviewer.get(f"notes/{item['note']}")
                number = int(item["note"], 36) if name == BEN else 1
                spans = decide(gold[shown["text"]].annotated.spans, number)
                state = await reviewer.finish(item["note"], spans, adjudicates=len(shown["others"]) == 2)
                states[state] = states.get(state, 0) + 1
    return states


# By keyboard alone, in a page of the review.

_POSITION = """() => {
  const mark = document.querySelector("#text mark.range") ?? document.querySelector("#text mark.on");
  if (!mark) return [-1, -1];
  const range = document.createRange();
  range.setStart(document.getElementById("text"), 0);
  range.setEnd(mark, 0);
  const begin = range.toString().length;
  const pieces = [...document.querySelectorAll("#text mark")].filter((one) =>
    mark.classList.contains("range") ? one.classList.contains("range") : one.dataset.n === mark.dataset.n);
  return [begin, begin + pieces.reduce((sum, one) => sum + one.textContent.length, 0)];
}"""


def is_typeable(note: Note) -> bool:
    """Whether each annotation can be searched for: it is on one line, and offsets are those of JavaScript."""
    text = note.annotated.text
    return text.isascii() and not any("\n" in text[s.start : s.end] for s in note.annotated.spans)


async def log_in(page: Page, base: str, token: str) -> None:
    """Log in by keyboard."""
    await page.goto(f"{base}/console/review")
    await page.wait_for_url("**/console/login")
    await page.keyboard.type(token)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#queue:visible")


async def review_by_keyboard(page: Page, base: str, name: str, note: Note, proposals: Spans) -> int:
    """Turn the proposals of a note into its annotations, and finish it. Returns the number of keys."""
    await page.goto(f"{base}/console/review#{name}")
    await page.wait_for_selector(f"#name:has-text('{name}')")
    await page.wait_for_selector("#text mark, #text:not(:empty)")
    wanted = {(s.start, s.end): s.type for s in note.annotated.spans}
    shown = {(s["begin"], s["end"]): s["type"] for s in proposals}
    pressed = 0

    async def press(*keys: str) -> None:
        nonlocal pressed
        for key in keys:
            pressed += 1
            await page.keyboard.press(key)

    async def place() -> tuple[int, int]:
        begin, end = await page.evaluate(_POSITION)
        return begin, end

    async def go_to(span: tuple[int, int]) -> None:
        for _ in range(len(shown) + 1):
            if await place() == span:
                return
            await press("n")
        raise AssertionError(f"no span is at {span}")

    for span in [span for span in shown if span not in wanted]:
        await go_to(span)
        await press("d")
        del shown[span]
    for span, kind in shown.items():
        if wanted[span] != kind:
            await go_to(span)
            await press("t", TYPE_KEYS[wanted[span]])
    for span, kind in wanted.items():
        if span in shown:
            continue
        for _ in range(60):
            await press("/")
            await page.keyboard.type(note.annotated.text[span[0] : span[1]])
            await press("Enter")
            if await place() == span:
                break
        else:
            raise AssertionError(f"the search does not reach {span}")
        await press("Enter", TYPE_KEYS[kind])
        shown[span] = kind
    await press("f")
    if await page.is_visible("#desk") and "Finish again" in await page.inner_text("#message"):
        await press("f")
    await page.wait_for_function(
        "(name) => document.getElementById('name').textContent !== name || document.getElementById('desk').hidden",
        arg=name,
    )
    return pressed


async def adjudicate_by_keyboard(page: Page, base: str, name: str, differences: int) -> None:
    """Take the first reviewer's decision at each difference of a disputed note, and finish it."""
    await page.goto(f"{base}/console/review#{name}")
    await page.wait_for_selector("#both:visible")
    for _ in range(differences):
        await page.keyboard.press("1")
    await page.keyboard.press("f")
    await page.wait_for_function(
        "(name) => document.getElementById('name').textContent !== name || document.getElementById('desk').hidden",
        arg=name,
    )

"""A real browser, headless, and the folders of an agent for its console.

Without a browser these tests are skipped with a reason, or fail if CI requires them.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.consoles import CANARY, ran

REQUIRED = "DEID_REQUIRE_BROWSER"


def _missing(why: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{why}; {REQUIRED}=1 requires it")
    pytest.skip(why)


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """The path of the browser."""
    found = os.environ.get("DEID_TEST_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _missing("no chromium: apt-get install chromium, or name one in DEID_TEST_BROWSER")
    yield str(found)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's folders with markup in every text of dead letters and audit that a sender or a forger controls."""
    root = tmp_path_factory.mktemp("agent")
    file = ran(root, sealed=False)
    (root / "dead" / f"files-{CANARY.replace('/', '')}-1.json").write_text("none")
    dead_letter = next((root / "dead").glob("files-0-*2.json"))
    fields = json.loads(dead_letter.read_text())
    dead_letter.write_text(json.dumps(fields | {"deid.error.where": CANARY}))
    path = root / "audit" / "00000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    forged = lines[2].replace(b'"topic":"files"', b'"topic":' + json.dumps(CANARY).encode())
    remark = {"path": CANARY, "type": CANARY, "method": CANARY, "source": CANARY, "count": 1}
    forged = forged.replace(b'"remarks":[', b'"remarks":[' + json.dumps(remark).encode() + b",")
    odd = b'{"kind":"entry","time":"never","offset":9,"outcome":7,"remarks":["x",{"count":"many"}]}\n'
    path.write_bytes(b"".join([*lines, odd, forged]))
    return file


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return ran(tmp_path, sealed=False)

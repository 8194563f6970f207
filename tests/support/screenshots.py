"""Makes the screenshots of docs/images from a demonstration that has run for a while.

Run ``python tests/support/screenshots.py`` from the root of the project. It needs Chromium and the dev dependencies.
The screenshots show the sample messages and an invented note, which contain no real person. With the argument
``review`` only the screenshot of the review is made.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from PIL import Image  # noqa: E402
from support.browser import browsing  # noqa: E402
from support.consoles import OPEN, ran, world  # noqa: E402
from support.review_desks import ANNA, TOKEN_OF, MemoryDesk, span  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MOST = 150_000
"""The largest screenshot in bytes, because they are part of the repository."""


async def shoot(base: str, executable: str) -> None:
    """Take each screenshot once its page has loaded its data."""
    async with browsing(executable, width=1200, height=672) as seen:
        page = seen.page
        await page.goto(f"{base}/console/")
        await page.click("[data-minutes='5']")
        await page.wait_for_selector("#phi path.area")
        await page.screenshot(path=IMAGES / "console-overview.png")
        await page.goto(f"{base}/console/playground")
        await page.wait_for_selector("#state:has-text('Ready')")
        await page.click("#sample")
        await page.click("button[type=submit]")
        await page.locator(".text mark").nth(2).hover()
        await page.locator("#result section").screenshot(path=IMAGES / "console-playground.png")
        await page.goto(f"{base}/console/audit")
        await page.wait_for_selector("#chain .notice")
        await page.click(".entry summary")
        await page.screenshot(path=IMAGES / "console-audit.png")
    async with browsing(executable, width=360, height=760) as seen:
        await seen.page.goto(f"{base}/console/")
        await seen.page.wait_for_selector("#throughput path.area")
        await seen.page.screenshot(path=IMAGES / "console-phone.png")


REVIEWED = """DISCHARGE SUMMARY
Patient: Okafor, Adaeze M.   MRN: 4471902   DOB: 04/22/1957
Mrs. Okafor is a 66-year-old retired teacher from Zanesville with heart failure (EF 35%).
Furosemide 40 mg IV BID. No Parkinson disease. Foley catheter removed POD 2.
Her husband Chidi (740-555-0184) was taught daily weights.
Follow-up with Dr. Ines Castellano on 3/25 at 10:30.
"""


async def shoot_review(file: Path, executable: str) -> None:
    """Take the screenshot of a note in the review, of which some spans are uncertain."""
    found = (
        ("Okafor, Adaeze M.", "PATIENT", "crf:token", False), ("4471902", "MEDICALRECORD", "rule:mrn-labelled", False),
        ("04/22/1957", "DATE", "rule:date", False), ("teacher", "PROFESSION", "crf:token", True),
        ("Zanesville", "CITY", "network", True), ("Foley", "DOCTOR", "network", True),
        ("Chidi", "PATIENT", "crf:token", False),
        ("740-555-0184", "PHONE", "rule:phone", False), ("Ines Castellano", "DOCTOR", "rule:doctor-title", False),
        ("3/25", "DATE", "rule:date", False),
    )  # fmt: skip
    proposed = tuple(span(REVIEWED, value, kind, source, uncertain=doubt) for value, kind, source, doubt in found)
    desk = MemoryDesk({"5f0c2b9a71de4406b3f1": (REVIEWED, proposed)})
    async with world(file, OPEN, desk=desk) as shown, browsing(executable, width=1200, height=672) as seen:
        await seen.page.goto(f"{shown.base}/console/review")
        await seen.page.fill("#token", TOKEN_OF[ANNA])
        await seen.page.keyboard.press("Enter")
        await seen.page.click("#start")
        await seen.page.wait_for_selector("#text mark.on")
        await seen.page.screenshot(path=IMAGES / "console-review.png")


def make_review() -> None:
    """Take the screenshot of the review alone."""
    executable = shutil.which("chromium")
    assert executable is not None
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(shoot_review(ran(Path(folder), sealed=False), executable))


def main() -> int:
    """Run the demonstration, take the screenshots, and end it."""
    executable = shutil.which("chromium")
    if executable is None:
        sys.stderr.write("no chromium: apt-get install chromium\n")
        return 2
    IMAGES.mkdir(exist_ok=True)
    make_review()
    if sys.argv[1:] == ["review"]:
        return shrink([IMAGES / "console-review.png"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = (
            sys.executable,
            "-m",
            "deid_agent",
            "demo",
            "--serve",
            "--port",
            str(port),
            "--out",
            f"{folder}/demo",
        )
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if running.poll() is None:
                asyncio.run(
                    waited(f"http://127.0.0.1:{port}", executable, float(os.environ.get("SECONDS_OF_FEED", "150")))
                )
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(30)
    return shrink(sorted(IMAGES.glob("*.png")))


def shrink(paths: Sequence[Path]) -> int:
    """Reduce the colours of pictures; 1 if one is still too large."""
    for path in paths:
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256)
        small.save(path, optimize=True)
        size = path.stat().st_size
        sys.stdout.write(f"{path.relative_to(ROOT)} {size} bytes\n")
        if size > MOST:
            sys.stderr.write(f"{path}: over {MOST} bytes\n")
            return 1
    return 0


async def waited(base: str, executable: str, seconds: float) -> None:
    """Take the screenshots after so many seconds of messages."""
    await asyncio.sleep(seconds)
    await shoot(base, executable)


if __name__ == "__main__":
    sys.exit(main())

"""A real browser, headless. Without one its tests say why they skip, and fail where CI asked for them."""

import os
import shutil
from collections.abc import Iterator

import pytest

REQUIRED = "DEID_REQUIRE_BROWSER"


def _missing(why: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{why}; {REQUIRED}=1 asks for it")
    pytest.skip(why)


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """Where the browser is."""
    found = os.environ.get("DEID_TEST_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _missing("no chromium: apt-get install chromium, or name one in DEID_TEST_BROWSER")
    yield str(found)

"""Short fuzz runs; for a long one run ``python tests/property/fuzz/fuzz.py 1000000``."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.fuzz_documents import check_document, check_work
from support.markup import RULES, html

from deid_agent.codec.html import HtmlCodec
from deid_agent.codec.markup.document import MarkupMessage

SCRIPT = Path(__file__).with_name("fuzz.py")


@pytest.mark.parametrize("codecs", ["hl7v2,fhir", "html,rtf,cda"])
def test_three_thousand_executions_neither_crash_nor_hang(codecs: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "3000", "--seconds-each", "30", "--codecs", codecs],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 executions, 0 wrong" in done.stdout


def test_documents_are_checked() -> None:
    """The checks find a parser that loses text or makes too many calls."""
    raw = b"<p>Ada</p>" * 50
    assert check_document(html(), raw) == "parsed"
    with pytest.raises(AssertionError, match="not disjoint"):
        check_document(Twice(), raw)
    with pytest.raises(AssertionError, match="calls"):
        check_work(Twice(), raw)


class Twice(HtmlCodec):
    """A parser that returns each text twice and takes quadratic time."""

    def __init__(self) -> None:
        super().__init__(RULES)

    def parse(self, raw: bytes) -> list[MarkupMessage]:
        for byte in raw:
            sum(raw.count(byte) for _ in range(100))
        return [replace(page, narratives=page.narratives * 2) for page in super().parse(raw)]

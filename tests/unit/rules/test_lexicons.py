"""Word lists."""

from pathlib import Path

import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.rules.files import load_lexicons


def write(folder: Path, name: str, data: bytes) -> None:
    (folder / "lexicon").mkdir(exist_ok=True)
    (folder / "lexicon" / name).write_bytes(data)


def test_terms_in_lower_case_without_comments(tmp_path: Path) -> None:
    write(tmp_path, "places.txt", "# head\nThe Elms\nmr#\n  Ós   # accents stay\n\n".encode())
    assert load_lexicons(tmp_path) == {"places": frozenset({"the elms", "mr#", "ós"})}


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"a\nb\nA\n", "places.txt:3"), (b"# nothing\n", "places.txt"), (b"\xff\xfe", "places.txt")],
)
def test_faults_name_the_file(tmp_path: Path, data: bytes, expected: str) -> None:
    write(tmp_path, "places.txt", data)
    with pytest.raises(ConfigurationError, match=expected):
        load_lexicons(tmp_path)

"""Corpus files in the project's markup."""

from pathlib import Path

import pytest

from deid_agent.eval.markup import read_corpus, read_file
from deid_agent.model.errors import ConfigurationError

GOOD = """\
@@PATIENT id=qa-01
{"name": {"family": "Quill"}}
@@NOTE id=qa-01-1 type=letter date=2014-02-06
Dear Dr. [[DOCTOR|Vane]],

seen [[DATE|3/4]].
@@END
@@NOTE id=qa-01-2 type=note date=2014-03-06
nothing
@@END
"""


def test_notes_carry_their_patient(tmp_path: Path) -> None:
    (tmp_path / "qa-01.txt").write_text(GOOD, "utf-8")
    first, second = read_corpus(tmp_path)
    assert (first.id, first.kind, first.date, first.patient, first.author) == (
        "qa-01-1",
        "letter",
        "2014-02-06",
        "qa-01",
        "qa",
    )
    assert first.annotated.text == "Dear Dr. Vane,\n\nseen 3/4."
    assert second.profile == {"name": {"family": "Quill"}}
    assert "Vane" not in repr(first)
    assert "Quill" not in repr(first)


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        (GOOD.replace("[[DATE|", "[[DAY|"), 6),
        (GOOD.replace("@@END\n", ""), 3),
        (GOOD.replace('{"name": {"family": "Quill"}}', "{"), 2),
        (GOOD.replace("@@NOTE id=qa-01-2", "@@NOTE"), 8),
        ("stray\n" + GOOD, 1),
    ],
)
def test_faults_name_file_and_line_and_no_text(tmp_path: Path, broken: str, line: int) -> None:
    path = tmp_path / "qa-01.txt"
    path.write_text(broken, "utf-8")
    with pytest.raises(ConfigurationError) as fault:
        list(read_file(path))
    assert str(fault.value).startswith(f"{path}:{line}: ")
    assert "Quill" not in str(fault.value)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no \*\.txt"):
        list(read_corpus(tmp_path))

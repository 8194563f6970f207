"""Recall by groups of patients."""

from pathlib import Path

import pytest

from deid_agent.evidence.equity import compare_groups, read_patients
from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection
from deid_agent.evidence.leaks import SampledNote
from deid_agent.model import ConfigurationError, PhiType

HEAD = "patient,sex,birth_year,name_origin\n"


def notes(leaks: dict[str, int], of: int = 10) -> list[SampledNote]:
    return [
        SampledNote(patient, {PhiType.PATIENT: of // 2, PhiType.DATE: of // 2}, {PhiType.PATIENT: lost} if lost else {})
        for patient, lost in leaks.items()
    ]


def report(tmp_path: Path, rows: str, sample: list[SampledNote], head: str = HEAD) -> EvidenceSection:
    path = tmp_path / "patients.csv"
    path.write_text(head + rows, "utf-8")
    return compare_groups(sample, read_patients(path, 2026), 1)


def figure(section: EvidenceSection, name: str) -> EvidenceFigure:
    return next(each for each in section.figures if each.name == name)


def test_recall_and_differences_by_group(tmp_path: Path) -> None:
    people = {f"a{n}": n // 12 for n in range(13)} | {f"b{n}": 2 + n % 3 for n in range(12)}
    rows = "".join(
        f"{name},{'F' if name[0] == 'a' else 'M'},1990,{'North' if name[0] == 'a' else 'South'}\n" for name in people
    )
    section = report(tmp_path, rows, notes(people))
    assert figure(section, "sex: female: recall").count == 129
    south = figure(section, "name origin: South: recall of names")
    assert (south.count, south.of, south.value) == (24, 60, 0.4)
    apart = figure(section, "name origin: South: recall, difference to the others")
    assert apart.value == pytest.approx(0.7 - 129 / 130)
    assert apart.high is not None and apart.high < -0.2
    assert figure(section, "age: 18-44: recall").of == 250, "one class has everybody, and nobody to compare with"
    assert "age: 18-44: recall, difference to the others" not in {each.name for each in section.figures}


def test_groups_of_few_patients_have_no_figure_and_free_labels_no_name(tmp_path: Path) -> None:
    people = {f"a{n}": 0 for n in range(15)}
    rows = "".join(f"{name},{'F' if n < 10 else 'M'},{1930 + 5 * n},Zyblorq{n}\n" for n, name in enumerate(people))
    section = report(tmp_path, rows, notes(people))
    text = str(section.as_json())
    assert "Zyblorq" not in text
    assert figure(section, "name origin: 15 other groups").remark == "too few patients"
    for name in ("sex: female", "sex: male"):
        assert figure(section, name) == EvidenceFigure(name, 0, 0, remark="too few patients")
    assert not any(each.of for each in section.figures)


def test_eleven_patients_are_enough(tmp_path: Path) -> None:
    people = {f"a{n}": 0 for n in range(11)}
    rows = "".join(f"{name},F,1990,North\n" for name in people)
    assert figure(report(tmp_path, rows, notes(people)), "sex: female: recall").of == 110


def test_further_columns_are_groups_too(tmp_path: Path) -> None:
    people = {f"a{n}": 0 for n in range(11)}
    rows = "".join(f"{name},F,1990,North,ward one\n" for name in people)
    section = report(tmp_path, rows, notes(people), HEAD.replace("\n", ",admitted_to\n"))
    assert figure(section, "admitted to: ward one: recall").value == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("patient,sex\nZyblorq,F\n", "has no column birth_year"),
        (HEAD + "Zyblorq,F,1990\n", "line 2: has another number of cells"),
        (HEAD + "Zyblorq,F,1990,North,Zyblorq\n", "line 2: has another number of cells"),
        (HEAD + "Zyblorq,F,1990,North\nZyblorq,F,1990,North\n", "line 3: the patient is missing"),
        (HEAD + "Zyblorq,F,Zyblorq,North\n", "line 2: birth_year"),
        (HEAD + "Zyblorq,F,1789,North\n", "line 2: birth_year"),
        (HEAD + 'Zyblorq,F,1990,"North\n', "not CSV"),
        (HEAD, "has no patient"),
        (HEAD.replace("\n", ",Zyblorq\n") + "a,F,1990,North,x\n", "columns need different names"),
    ],
)
def test_errors_name_the_line_and_no_value(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "patients.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_patients(path, 2026)
    assert "Zyblorq" not in str(caught.value)


def test_a_table_of_other_patients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has none of the 2 patients"):
        report(tmp_path, "z,F,1990,North\n", notes({"a": 0, "b": 1}))

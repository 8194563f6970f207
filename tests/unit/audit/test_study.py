"""The counts of a study, and its page."""

import asyncio
import json
import re
import tracemalloc
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
from support.trails import SIGNER, SMALL, Clock, entry, trail

from deid_agent.agent import AuditEntry, Outcome
from deid_agent.audit import StudyFigures, StudyPeriod, StudyProof, StudyReport, study_json, study_page, study_trails
from deid_agent.audit import study as study_module
from deid_agent.audit.study_page import METHOD_WORDS, REASON_WORDS, TYPE_WORDS, UNREAD_WORDS, describe_proof
from deid_agent.audit.trail import TrailSettings
from deid_agent.model import ConfigurationError, PhiType, Reason
from deid_agent.pipeline import Method
from deid_agent.pipeline.changes import DROP, UNLISTED
from deid_agent.pipeline.unexamined import Unread

DAY = 86400
FIRST = date(2023, 11, 14)
"""The day of ``Clock``."""


def remarks(*found: tuple[str, str, int]) -> bytes:
    return json.dumps(
        [{"path": "PID-5", "type": t, "method": m, "source": "structure", "count": n} for t, m, n in found]
    ).encode()


def refused(offset: int, reason: str = "MALFORMED", **more: str) -> AuditEntry:
    return AuditEntry(entry(offset).coordinates, Outcome.DEAD_LETTERED, reason=reason, stage="process", **more)  # type: ignore[arg-type]


def write(folder: Path, days: Sequence[Sequence[AuditEntry]], settings: TrailSettings = SMALL) -> Path:
    """A trail with one batch of entries a day."""

    async def run() -> None:
        clock = Clock()
        log = trail(folder, settings, clock=clock)
        for batch in days:
            await log.append(batch)
            clock.now += DAY
        await log.close()

    asyncio.run(run())
    return folder


def study(folder: Path, project: str = "default", first: date | None = None, last: date | None = None) -> StudyFigures:
    figures, (report,) = study_trails([folder], project, StudyPeriod(first, last), {SIGNER.public})
    assert not report.faults
    return figures


NAMES = remarks(("PATIENT", "surrogate", 3), ("DATE", "surrogate", 1), ("UNLISTED", "drop", 2))
DATES = remarks(("DATE", "generalize", 4))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    days = [
        [entry(0, remarks=NAMES), entry(1, remarks=DATES), refused(2)],
        [entry(3, remarks=DATES, project="trial"), entry(4), refused(5, "LEAK")],
        [AuditEntry(entry(6).coordinates, Outcome.SUPPRESSED), entry(7, remarks=NAMES, replay_of=entry(2).coordinates)],
    ]
    return write(tmp_path / "audit", days)


def test_the_figures_are_those_of_a_count_by_hand(folder: Path) -> None:
    found = study(folder)
    assert (found.messages, found.replaced, found.refused, found.left_out) == (7, 12, 2, 4)
    assert found.outcomes == {"published": 4, "dead_lettered": 2, "suppressed": 1}
    assert found.types == {"DATE": {"generalize": 4, "surrogate": 2}, "PATIENT": {"surrogate": 6}}
    assert (found.changed, found.named, found.again, found.superseded) == (3, 2, 1, 0)
    assert found.reasons == {"MALFORMED": 1, "LEAK": 1}
    assert found.policies == {"p:ab": 7}
    assert study(folder, "trial").messages == 1


def test_only_the_last_entry_of_a_record_counts(tmp_path: Path) -> None:
    """After a crash a record is processed again, even three times, and its outcome may be another one."""
    again = [
        [entry(0, remarks=NAMES), entry(1, remarks=NAMES), entry(5000)],
        [entry(1, remarks=NAMES), entry(0, partition=1)],
        [refused(1), entry(0, partition=1, topic_id="new"), entry(2, remarks=DATES)],
    ]
    found = study(write(tmp_path / "audit", again))
    assert (found.messages, found.superseded) == (6, 2)
    assert (found.outcomes, found.replaced) == ({"published": 5, "dead_lettered": 1}, 8)


def test_a_period_has_both_of_its_days(folder: Path) -> None:
    second = date(2023, 11, 15)
    assert [study(folder, first=a, last=b).messages for a, b in ((FIRST, FIRST), (second, None), (None, second))] == [
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("project", "first", "words"),
    [
        ("cohort", None, "no entry of a project cohort: it has default, trial"),
        ("default", date(2024, 1, 1), "is in the period; its entries are of 2023-11-14 to 2023-11-16"),
    ],
)
def test_a_report_without_an_entry_is_refused(folder: Path, project: str, first: date | None, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        study(folder, project, first)


def test_an_empty_trail_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no entry.*NOT intact"):
        study(tmp_path)


def test_words_of_a_forger_are_not_repeated(tmp_path: Path) -> None:
    """A type, a reason and a method are words of a list, or "other"."""
    forged = entry(0, remarks=remarks(("Quixwell", "Zyblorq", 2), ("DATE", "Quixwell", 1 << 40)))
    bad = refused(1, "Quixwell")
    made = StudyReport(study(write(tmp_path / "audit", [[forged, bad]])), StudyProof("t"), {}, None, 0.0)
    text = study_page(made) + json.dumps(study_json(made))
    assert "Quixwell" not in text and "Zyblorq" not in text
    assert made.figures.types == {"other": {"other": 2}, "DATE": {"other": 0}}


def test_memory_does_not_grow_with_the_trail(tmp_path: Path) -> None:
    def peak(entries: int) -> int:
        path = write(
            tmp_path / str(entries),
            [[entry(n, remarks=NAMES) for n in range(at, at + 100)] for at in range(0, entries, 100)],
            TrailSettings(checkpoint_s=0, segment_bytes=1 << 18),
        )
        study(path)  # caches of the first reading are not those of a long trail
        tracemalloc.start()
        try:
            assert study(path).messages == entries
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(4000) < 2 * peak(500), "eight times the entries"


def test_each_word_of_the_trail_has_plain_words() -> None:
    assert set(TYPE_WORDS) >= set(PhiType) and set(REASON_WORDS) >= set(Reason) and set(UNREAD_WORDS) == set(Unread)
    assert set(METHOD_WORDS) >= {*Method} - {Method.KEEP} | {DROP}
    assert UNLISTED not in TYPE_WORDS


def test_the_page_begins_with_the_state_of_the_trail_and_loads_nothing(folder: Path) -> None:
    evil = "<script>alert(1)</script>\"'&"
    figures = study(folder)
    fault = (evil, "CHAIN", evil)
    for proof, first in (
        (StudyProof("Trusted."), "The audit trail is intact: no signed entry was changed, removed or added. Trusted."),
        (StudyProof("", (fault,) * 9), "The audit trail is NOT intact: the verification found 9 faults."),
    ):
        page = study_page(StudyReport(figures, proof, {"p:ab": evil}, {"code": 3, evil: 1}, 0.0))
        begin = re.sub(r"<[^>]*>", "", page.partition("</h1>")[2])
        assert begin.startswith(first)
        assert re.findall(r"(?:https?:|<script|<img|<link|url\()", page) == [] and "default-src 'none'" in page
        assert "unsafe-inline" not in page


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"entry","time":1e300,"topic":["x"],"offset":-5,"build":{"id":7},"remarks":{"type":3}}\n',
        b'{"kind":"entry","time":"now","project":{},"offset":99999999999999999999999,"remarks":[1,{"count":-1}]}\n',
        b'{"kind":"entry","time":true,"outcome":[],"reason":{},"policy":1,"replay_of":null,"remarks":[{"type":[]}]}\n',
        b'{"kind":"entry",\xff\n',
    ],
)
def test_a_hostile_line_is_a_fault_and_no_crash(folder: Path, line: bytes) -> None:
    path = max(folder.glob("*.jsonl"))
    path.write_bytes(path.read_bytes() + line)
    figures, (report,) = study_trails([folder], "default", StudyPeriod(), {SIGNER.public})
    assert report.faults
    assert study_page(StudyReport(figures, StudyProof("", (("", "CHAIN", ""),)), {}, None, 1e300))
    json.dumps(study_json(StudyReport(figures, StudyProof(""), {}, None, 0)))


def test_the_trails_of_a_group_are_one_feed(tmp_path: Path) -> None:
    """Records of a Kafka topic have its id, and a record in both trails counts once; files of two agents differ."""
    one = write(tmp_path / "one", [[entry(0, topic_id="k"), entry(1, topic_id="k"), entry(0, partition=1)]])
    two = write(tmp_path / "two", [[entry(1, topic_id="k"), entry(2, topic_id="k"), entry(0, partition=1)]])
    figures, reports = study_trails([one, two], "default", StudyPeriod(), {SIGNER.public})
    assert (figures.messages, figures.superseded, [each.entries for each in reports]) == (5, 1, [3, 3])


def test_entries_that_are_written_meanwhile_are_verified_and_not_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study_module._find_occurrences

    def slow(*given: object) -> int:
        found = first(*given)  # type: ignore[arg-type]
        write(folder, [[entry(0), entry(99)]])
        return found

    monkeypatch.setattr(study_module, "_find_occurrences", slow)
    figures, (report,) = study_trails([folder], "default", StudyPeriod(), {SIGNER.public})
    assert (figures.messages, report.entries, report.faults) == (7, 10, [])


def test_a_report_names_each_gap_of_its_verification(folder: Path) -> None:
    figures, unsigned = study(folder), ("00000001.jsonl:9", "UNSIGNED", "1 entry")

    def words(proof: StudyProof) -> str:
        return describe_proof(StudyReport(figures, proof, {}, None, 0.0))

    assert "intact" not in words(StudyProof("No key.", authenticated=False))
    assert "not compared with a head" in words(StudyProof("")) and "not signed yet" not in words(StudyProof(""))
    assert "not signed yet" in words(StudyProof("", warnings=(unsigned,)))
    assert "up to the head" in words(StudyProof("", compared=True))

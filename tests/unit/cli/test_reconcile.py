"""``deid-agent audit reconcile`` over folders and MLLP; tests/system/broker has it over Kafka."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.trails import trail

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.cli import main
from deid_agent.transport.folder.files import FileState
from deid_agent.transport.folder.journal import Journal, Version, read_journal
from deid_agent.transport.mllp.numbers import SequenceNumbers

STATE: FileState = (1, 2, 3)


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["audit", "reconcile", "--config", str(folder / "agent.toml"), *words])


def configured(folder: Path, transport: str) -> None:
    (folder / "agent.toml").write_text(
        f'transport = "{transport}"\n[audit]\npath = "{folder}/audit"\n[dead_letters]\nplain = true\n'
        f'[directory]\ninput = "{folder}/in"\noutput = "{folder}/out"\ndead_letters = "{folder}/letters"\n'
        f'state = "{folder}/state"\n[mllp]\nport = 0\ndead_letters = "{folder}"\noutput = "{folder}/out"\n'
    )
    if transport == "mllp":
        path = folder / "agent.toml"
        path.write_text('output = "directory"\n' + path.read_text())


def audited(folder: Path, topic: str, offsets: list[int]) -> None:
    async def write() -> None:
        log = trail(folder / "audit")
        await log.append([AuditEntry(Coordinates(topic, 0, offset), Outcome.PUBLISHED) for offset in offsets])
        await log.close()

    asyncio.run(write())


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEID_KEY", "DEID_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_files_are_accounted_for_by_the_journal(tmp_path: Path) -> None:
    configured(tmp_path, "directory")
    journal = Journal(tmp_path / "state")
    names = [b"a", b"b", b"c"]
    assert [offset for offset, _ in journal.offsets(names)] == [0, 1, 2]
    # The second file changed before it was committed, and was read again under another offset.
    assert journal.offsets([b"b"], above=2) == [(3, b"b")]
    version = Version(STATE, "ab")
    journal.commit({0: b"a", 2: None, 3: b"b"}, {0: version, 2: version, 3: version})
    journal.close()
    assert read_journal(tmp_path / "state").given_up == {1}
    audited(tmp_path, "files", [0, 2, 3])
    done = call(tmp_path)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "accounted for: every record, once"), done.output
    journal = Journal(tmp_path / "state")
    journal.offsets([b"gone"])
    journal.offsets([b"d"])
    journal.commit({5: b"d"}, {5: version})
    journal.close()
    done = call(tmp_path)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1:] == [
        "files/0/4: no audit entry",
        "files/0/5: no audit entry",
        "NOT ACCOUNTED FOR: 2 offsets",
    ]
    (line,) = (json.loads(text) for text in call(tmp_path, "--json").stdout.splitlines())
    assert [fault["offset"] for fault in line["faults"]] == [4, 5]


def test_messages_over_mllp_are_accounted_for_by_their_numbers(tmp_path: Path) -> None:
    async def use() -> None:
        numbers = SequenceNumbers(tmp_path / "numbers", 2, lambda: 500)
        await numbers.use(0, 504)
        numbers.close()

    asyncio.run(use())
    configured(tmp_path, "mllp")
    audited(tmp_path, "mllp", [500, 501, 503, 504, 505])
    done = call(tmp_path)
    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines()[1] == "mllp/0/502: no audit entry"
    audited(tmp_path, "mllp", [502])
    assert call(tmp_path).exit_code == 0
    (tmp_path / "numbers").unlink()
    assert call(tmp_path).exit_code == 2


def test_missing_files_are_an_error_of_the_call(tmp_path: Path) -> None:
    configured(tmp_path, "directory")
    done = call(tmp_path)
    assert done.exit_code == 2
    assert "state file" in done.stderr
    (tmp_path / "state").write_text("x\n")
    assert "is damaged" in call(tmp_path).stderr

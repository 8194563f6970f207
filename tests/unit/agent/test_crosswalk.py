"""The boxes of a crosswalk: both custodians open everything, one of them and the agent nothing."""

import base64
import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from support.runner_bench import A, RunnerHarness, virtual
from support.virtual import pass_time

from deid_agent.agent.crosswalk import PairSealer, open_box, read_pairs
from deid_agent.agent.dead_letter_keys import (
    KeyUse,
    PrivateKey,
    generate_keys,
    load_private_key,
    load_public_key,
    parse_private_key,
)
from deid_agent.agent.job import Processed, Refused
from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.worker_frames import decode_result, encode_result, pack_frame, unpack_frame
from deid_agent.model.errors import ConfigurationError, CrosswalkError, Reason, UnsafeError

PAIRS = (("Patient.id", "patient-01", "CI74"), ("Bundle.entry.resource.id", "p\ud8001", "CI75"))
USE = KeyUse.CROSSWALK


def custodian(number: int) -> PrivateKey:
    return PrivateKey(bytes([number]) * 32, USE)


FIRST, SECOND, THIRD = map(custodian, (1, 2, 3))
SEALER = PairSealer((FIRST.public, SECOND.public))


def box(members: bytes) -> str:
    return str(json.loads(b"{%s}" % members)["sealed"])


def test_both_custodians_open_all_pairs_in_their_order() -> None:
    members = SEALER.seal((*PAIRS, PAIRS[0]), 1_700_000_000.5)
    assert json.loads(b"{%s}" % members)["codes"] == ["CI74", "CI75"]
    inner = open_box(box(members), FIRST)
    found = read_pairs(open_box(base64.b64encode(inner).decode(), SECOND))
    assert (found.at, found.pairs) == ("2023-11-14T22:13:20.500Z", PAIRS)
    assert "patient-01" not in repr(found)
    assert SEALER.ids == (FIRST.id, SECOND.id)


def test_the_host_and_one_custodian_open_nothing() -> None:
    """Everything that the agent has, and either private key, tried on every box that these open."""
    members = SEALER.seal(PAIRS, 1.0)
    for key in (FIRST, SECOND, THIRD):
        boxes = [box(members)]
        for sealed in boxes:
            try:
                content = open_box(sealed, key)
            except CrosswalkError as problem:
                assert "patient" not in str(problem)
                continue
            assert key == FIRST
            assert all(original.encode("utf-8", "surrogatepass") not in content for _, original, _ in PAIRS)
            with pytest.raises(CrosswalkError):
                read_pairs(content)
            boxes.append(base64.b64encode(content).decode())
        assert len(boxes) == (2 if key == FIRST else 1)
    assert b"patient-01" not in members


def test_only_the_two_keys_in_their_order_open() -> None:
    members = SEALER.seal(PAIRS, 1.0)
    opened = []
    for one, two in permutations((FIRST, SECOND, THIRD), 2):
        try:
            inner = open_box(box(members), one)
            opened.append((one, two, read_pairs(open_box(base64.b64encode(inner).decode(), two)).pairs))
        except CrosswalkError:
            pass
    assert opened == [(FIRST, SECOND, PAIRS)]


def test_every_flipped_bit_of_a_box_is_found() -> None:
    raw = bytearray(base64.b64decode(box(SEALER.seal(PAIRS[:1], 1.0))))
    for at in range(len(raw)):
        raw[at] ^= 1
        with pytest.raises(CrosswalkError, match="damaged"):
            open_box(base64.b64encode(raw).decode(), FIRST)
        raw[at] ^= 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"at":"x"}',
        b'{"at":"x","pairs":[["a"]]}',
        b"\xff",
        b'{"at":"x","pairs":[["a",null,"c"]]}',
        b'{"at":"x","pairs":[["a",["b"],"c"]]}',
        b'{"at":1,"pairs":[]}',
        b"[" * 100_000,
    ],
)
def test_a_box_with_another_content_is_refused(content: bytes) -> None:
    with pytest.raises(CrosswalkError, match="holds no pairs"):
        read_pairs(content)
    for box_ in ("a box", "\u00e4\u00e4\u00e4\u00e4", "AAA"):
        with pytest.raises(CrosswalkError, match="not base64"):
            open_box(box_, FIRST)


def test_keys_of_dead_letters_and_of_crosswalks_are_never_mixed(tmp_path: Path) -> None:
    generate_keys(tmp_path / "dead")
    public = generate_keys(tmp_path / "mine", USE)
    assert load_public_key(tmp_path / "mine.pub", "x", USE) == public
    assert load_private_key(tmp_path / "mine", USE).public == public
    with pytest.raises(
        ConfigurationError, match=r"not a crosswalk key but a dead-letter key; create.* crosswalk keygen"
    ):
        load_public_key(tmp_path / "dead.pub", "crosswalks.a.seal_to", USE)
    with pytest.raises(ConfigurationError, match="not a crosswalk key but a dead-letter key"):
        load_private_key(tmp_path / "dead", USE)
    with pytest.raises(ConfigurationError, match="not a dead-letter key but a crosswalk key"):
        load_public_key(tmp_path / "mine.pub")
    with pytest.raises(ConfigurationError, match="holds a private key"):
        load_public_key(tmp_path / "mine", "x", USE)
    with pytest.raises(ConfigurationError, match="not a dead-letter key but a crosswalk key"):
        parse_private_key((tmp_path / "mine").read_text(), "the file chosen")
    (tmp_path / "mine").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_private_key(tmp_path / "mine", USE)
    # The same secret has another id under another use.
    assert PrivateKey(b"k" * 32).id != PrivateKey(b"k" * 32, USE).id


def test_sealed_pairs_pass_from_the_worker_to_the_agent() -> None:
    result = Processed(b"x", b"k", (("h", b"v"),), sealed=SEALER.seal(PAIRS, 1.0))
    frame = pack_frame(encode_result(7, result, 5))
    assert decode_result(unpack_frame(frame[4:])) == result
    assert "sealed" not in repr(result)


class ListCrosswalk:
    """Keeps records, and the numbers of audited and committed records at each append."""

    def __init__(self, bench: RunnerHarness) -> None:
        self.records: list[tuple[str, bytes]] = []
        self.before: list[tuple[int, int]] = []
        self.error: UnsafeError | None = None
        self._bench = bench

    async def append(self, records: Sequence[tuple[str, bytes]]) -> None:
        self.before.append((len(self._bench.audit.entries), len(self._bench.cluster.finished[A])))
        if self.error is not None:
            raise self.error
        self.records += records


@virtual
async def test_pairs_are_durable_before_the_audit_and_the_output() -> None:
    bench = RunnerHarness()
    crosswalk = ListCrosswalk(bench)
    bench.crosswalks = {"default": crosswalk}
    bench.fill(4)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(result=Processed(b"a", sealed=b"pairs a"))
    bench.executor.finish(result=Refused(Reason.MALFORMED))
    bench.executor.finish(result=Processed(b"c"))  # no link code
    bench.executor.finish(result=Processed(b"d", sealed=b"pairs d"))
    await task
    assert [sealed for _, sealed in crosswalk.records] == [b"pairs a", b"pairs d"]
    assert crosswalk.before == [(0, 0)]
    assert {record for record, _ in crosswalk.records} < {entry.id for entry in bench.audit.entries}
    assert bench.offsets() == [0, 1, 2, 3]


@virtual
async def test_without_its_line_a_record_is_neither_audited_nor_published() -> None:
    bench = RunnerHarness()
    crosswalk = ListCrosswalk(bench)
    crosswalk.error = UnsafeError("the crosswalk trail cannot be written: No space left on device")
    bench.crosswalks = {"default": crosswalk}
    bench.fill(1)
    task = bench.start()
    await pass_time(1)
    bench.executor.finish(result=Processed(b"a", sealed=b"pairs a"))
    with pytest.raises(UnsafeError, match="crosswalk"):
        await task
    assert (bench.audit.entries, bench.offsets()) == ([], [])


@virtual
async def test_pairs_go_to_the_crosswalk_of_their_project_alone() -> None:
    for project, expected in (("registry", (1, 0)), ("trial", (0, 0))):
        bench = RunnerHarness(projects={"adt": OutputMarks(b"p" * 32, project=project)})
        ours, others = ListCrosswalk(bench), ListCrosswalk(bench)
        bench.crosswalks = {"registry": ours, "default": others}
        bench.fill(1)
        task = bench.start()
        await pass_time(1)
        bench.executor.finish(result=Processed(b"a", sealed=b"pairs a"))
        await task
        assert (len(ours.records), len(others.records)) == expected

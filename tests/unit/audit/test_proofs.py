"""Proofs of entries and of growth: they hold without the trail, and no changed one does."""

import json
from pathlib import Path

import pytest
from support.trails import EPOCH_KEYS, OTHER, SIGNER, entry, head_at, lines, trail, written

from deid_agent.audit.proofs import ProofError, check_proof, prove_entry, prove_growth, read_proof
from deid_agent.audit.reading import EntryFilter, first_public_key
from deid_agent.audit.trail import TrailSettings
from deid_agent.model.errors import ConfigurationError

SETTINGS = TrailSettings(checkpoint_s=0, segment_bytes=5000, epoch_s=3600)
Parts = dict[str, object]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    await written(tmp_path / "audit", [[entry(n), entry(n, 1)] for n in range(7)], SETTINGS)
    return tmp_path / "audit"


def passed(proof: object) -> Parts:
    """The proof after a way through a file."""
    found = read_proof(json.dumps(proof).encode())
    assert isinstance(found, dict)
    return found


def test_every_entry_is_proven_under_the_key_of_its_epoch(folder: Path) -> None:
    first = first_public_key(folder)
    for offset in range(7):
        for trusted in (first, SIGNER.public):
            proof = passed(prove_entry(folder, EntryFilter("adt", 1, offset)))
            found = check_proof(proof, {trusted})
            assert (found.entry["partition"], found.entry["offset"]) == (1, offset)
            assert found.head["epoch"] == len(proof["keys"])  # type: ignore[arg-type]
        with pytest.raises(ProofError, match="neither is trusted"):
            check_proof(proof, {OTHER.public})


def test_a_changed_proof_does_not_hold(folder: Path) -> None:
    first = first_public_key(folder)
    good = passed(prove_entry(folder, EntryFilter("adt", 0, 4)))
    other = passed(prove_entry(folder, EntryFilter("adt", 0, 6)))
    changes: list[Parts] = [
        {"entry": str(good["entry"]).replace("published", "suppressed")},
        {"entry": other["entry"]},
        {"index": 3},
        {"index": None},
        {"path": good["path"][:-1]},  # type: ignore[index]
        {"path": ["ab"]},
        {"path": None},
        {"keys": good["keys"][1:]},  # type: ignore[index]
        {"keys": []},
        {"keys": [None]},
        {"head": other["head"]},
        {"head": str(good["head"]).replace('"size":', '"size":1')},
        {"head": good["segment"]},
        {"segment": str(good["segment"]).replace('"epoch":0', '"epoch":1')},
        {"segment": []},
        {"kind": "consistency"},
    ]
    for change in changes:
        with pytest.raises(ProofError):
            check_proof({**good, **change}, {first})
    empty: Parts = {}
    for nonsense in (None, empty, "x"):
        with pytest.raises(ProofError):
            check_proof(nonsense, {first})
    unsigned = str(good["segment"]).partition(',"signature":')[0].replace('"public_key":"', '"public_key":"x')
    odd = SIGNER.sign(unsigned.encode()).decode() + "}"
    with pytest.raises(ProofError, match="does not begin a trail"):
        check_proof({**good, "segment": odd}, {first, SIGNER.public})
    with pytest.raises(ProofError, match="JSON"):
        read_proof(b"{")


def test_a_thief_of_a_later_key_proves_nothing_about_an_earlier_epoch(folder: Path) -> None:
    good = passed(prove_entry(folder, EntryFilter("adt", 0, 0)))
    stolen = [EPOCH_KEYS[str(line["public_key"])] for line in lines(folder) if line["kind"] == "key"]
    for key in stolen:
        forged = key.sign(str(good["head"]).partition(',"signature":')[0].encode()) + b"}"
        with pytest.raises(ProofError, match="not signed by the key of that epoch"):
            check_proof({**good, "head": forged.decode()}, {first_public_key(folder)})


def test_an_entry_is_proven_under_a_head_that_a_witness_kept(folder: Path) -> None:
    first, count = first_public_key(folder), len(lines(folder))
    head = head_at(folder, count - 3)
    found = check_proof(passed(prove_entry(folder, EntryFilter("adt", 0, 1), head)), {first})
    assert found.head["kind"] == "head"
    assert found.head["size"] == json.loads(head)["size"]
    with pytest.raises(ConfigurationError, match="that the head covers"):
        prove_entry(folder, EntryFilter("adt", 0, 6), head_at(folder, 10))
    with pytest.raises(ConfigurationError, match="not one of a trail"):
        prove_entry(folder, EntryFilter("adt", 0, 1), b'{"kind":"head"}\n')


def test_the_growth_since_every_head_is_proven_and_no_other(folder: Path) -> None:
    first, count = first_public_key(folder), len(lines(folder))
    for at in range(2, count + 1, 3):
        old = head_at(folder, at)
        proof = passed(prove_growth(folder, old))
        assert check_proof(proof, {first}).head["size"] == 14
        if 0 < json.loads(old)["size"] < 14:
            with pytest.raises(ProofError):
                check_proof({**proof, "old": head_at(folder, at - 2)[:-1].decode()}, {first})
                check_proof({**proof, "path": []}, {first})


async def test_an_unsigned_or_incomplete_trail_is_an_error(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="no entry matches"):
        prove_entry(folder, EntryFilter(offset=99))
    log = trail(folder, TrailSettings(checkpoint_s=3600, epoch_s=1e9))
    await log.append([entry(50)])
    await log.append([entry(51)])
    with pytest.raises(ConfigurationError, match="not signed yet"):
        prove_entry(folder, EntryFilter(offset=51))
    await log.close()
    assert check_proof(prove_entry(folder, EntryFilter(offset=51)), {SIGNER.public}).entry["offset"] == 51
    (folder / "00000001.jsonl").unlink()
    with pytest.raises(ConfigurationError, match="segments are missing"):
        prove_entry(folder, EntryFilter(offset=51))
    with pytest.raises(ConfigurationError, match="No such file"):
        prove_entry(tmp_path / "nowhere", EntryFilter(offset=1))

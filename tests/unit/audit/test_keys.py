"""A key for each epoch: the lines that a thief of a key can sign, and which keys an agent accepts."""

import json
from pathlib import Path

import pytest
from support.trails import EPOCH_KEYS, SIGNER, SMALL, TRUSTED, entry, lines, make_seed, sound, trail, written

from deid_agent.audit.keys import KEY_FILE, EpochKeys, load_keys, save_keys
from deid_agent.audit.reading import first_public_key, verify_trail
from deid_agent.audit.storage import TAIL, chain_value, line_end
from deid_agent.audit.trail import TrailSettings
from deid_agent.model.errors import ConfigurationError

HOURLY = TrailSettings(checkpoint_s=0, segment_bytes=100_000, epoch_s=3600)


def saved(folder: Path) -> EpochKeys:
    found = load_keys(folder)
    assert found is not None
    return found


async def test_the_key_changes_with_time_and_at_a_stop_and_the_former_is_destroyed(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(n)] for n in range(6)], HOURLY)
    named = [str(line["public_key"]) for line in lines(folder) if line["kind"] in {"segment", "key"}]
    assert len(named) == len(set(named)) == 4
    assert saved(folder).present.public == named[-1]
    assert first_public_key(folder) == named[0]
    secrets = [EPOCH_KEYS[public]._key.encode().hex().encode() for public in named]
    kept = b"".join(path.read_bytes() for path in folder.iterdir())
    assert [secret in kept for secret in secrets] == [False, False, False, True]
    report = verify_trail(folder, {named[0]})
    assert (report.faults, report.epochs, report.first_key) == ([], 4, named[0])
    assert verify_trail(folder, {named[1]}).faults, "only the first key authenticates the whole trail"


async def test_a_thief_of_the_present_key_cannot_rewrite_an_earlier_epoch(tmp_path: Path) -> None:
    """The thief has the secret of the agent and the key of the last epoch, and computes everything again."""
    folder = tmp_path / "audit"
    await written(folder, [[entry(n)] for n in range(5)], HOURLY)
    first = first_public_key(folder)
    path, stolen = folder / "00000001.jsonl", saved(folder).present
    rewritten, chain = list[bytes](), b"0" * 64
    for line in path.read_bytes().splitlines(keepends=True):
        body = line[:-TAIL].replace(b'"offset":1', b'"offset":9')
        if b'"signature"' in body and not body.startswith(b'{"kind":"segment"'):
            fields = json.loads(line)
            statement = body.partition(b',"signature":')[0].replace(str(fields["head"]).encode(), chain)
            body = stolen.sign(statement)
        chain = chain_value(chain, body)
        rewritten.append(body + line_end(chain))
    path.write_bytes(b"".join(rewritten))
    for trusted in ({first}, TRUSTED):
        assert "SIGNATURE" in {fault.code for fault in verify_trail(folder, trusted).faults}


async def test_an_agent_without_the_key_of_the_last_epoch_does_not_continue(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)]])
    key = folder / KEY_FILE
    whole = key.read_bytes()
    for content in (None, b"", b"key", make_seed().hex().encode(), whole[:40], whole * 3):
        key.unlink() if content is None else key.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"signing\.key"):
            trail(folder)
    key.write_bytes(make_seed().hex().encode() + b"\n" + whole)
    await trail(folder).close()
    assert key.read_bytes() == whole, "only the present key is kept"
    assert sound(folder)


def test_keys_show_no_secret(tmp_path: Path) -> None:
    keys = EpochKeys((make_seed(),))
    assert repr(keys) == "EpochKeys()"
    save_keys(tmp_path, keys)
    assert load_keys(tmp_path) == keys
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_segment_of_another_agent_is_detected(tmp_path: Path) -> None:
    """Both agents have the same secret and begin their trails alike."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], SMALL)
    one, other = folders
    first = first_public_key(one)
    assert first != first_public_key(other)
    assert "KEY" in {fault.code for fault in verify_trail(other, {first}).faults}
    for number in (1, 2, 3):
        name, kept = f"{number:08}.jsonl", (one / f"{number:08}.jsonl").read_bytes()
        (one / name).write_bytes((other / name).read_bytes())
        codes = {fault.code for fault in verify_trail(one, TRUSTED).faults}
        assert codes & {"TRAIL", "KEY"} or "CHAIN" in codes
        (one / name).write_bytes(kept)
    assert sound(one)


async def test_a_forged_identity_is_detected(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    await written(folder, [[entry(0)]])
    path = folder / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"agent":""', b'"agent":"x"', 1))
    assert {"SIGNATURE", "CHAIN"} <= {fault.code for fault in verify_trail(folder, {SIGNER.public}).faults}

import json

import pytest
from support.trails import BUILD, ORIGIN, OTHER, SIGNER, entry

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.audit.merkle import Frontier, leaf_hash, parse_frontier
from deid_agent.audit.storage import (
    START,
    TAIL,
    ChainPosition,
    LineKind,
    build_id,
    chain_value,
    encode_entry,
    encode_segment,
    encode_statement,
    is_public_key,
    is_signed,
    line_end,
)
from deid_agent.config.secrets import DEMO_KEY, SecretKey

TREE = Frontier().add(leaf_hash(b"a")).add(leaf_hash(b"b")).add(leaf_hash(b"c"))


def whole(body: bytes) -> bytes:
    return body + line_end(chain_value(START, body))


def test_an_entry_contains_the_outcome_and_its_build() -> None:
    full = entry(7, input_digest="i", output_digest="o", remarks=b'[{"path":"PID-5","count":2}]')
    line = whole(encode_entry(full, "b1", 12.3456))
    assert line.startswith(b'{"kind":"entry",')
    assert line.endswith(b'"}\n')
    found = json.loads(line)
    assert len(found.pop("chain")) == 64
    assert found == {
        "kind": "entry",
        "time": 12.346,
        "topic": "adt",
        "partition": 0,
        "offset": 7,
        "outcome": "published",
        "input_digest": "i",
        "output_sha256": "o",
        "build": "b1",
        "remarks": [{"path": "PID-5", "count": 2}],
    }


def test_a_refusal_has_its_reason() -> None:
    dead_letter = AuditEntry(Coordinates("adt", 0, 1), Outcome.DEAD_LETTERED, "POISON", "PID-5", "worker", 3)
    line = json.loads(whole(encode_entry(dead_letter, "", 0)))
    names = ("outcome", "reason", "where", "stage", "attempts")
    assert [line[name] for name in names] == ["dead_lettered", "POISON", "PID-5", "worker", 3]


def test_a_replay_names_the_first_position_of_its_record() -> None:
    line = json.loads(whole(encode_entry(entry(7, replay_of=Coordinates("adt", 0, 3)), "", 0)))
    assert line["replay_of"] == "adt/0/3"


def test_remarks_never_break_a_line() -> None:
    assert whole(encode_entry(entry(1, remarks=b"[\n]"), "", 0)).count(b"\n") == 1


def test_a_segment_names_its_predecessor_and_its_configuration() -> None:
    line = json.loads(whole(encode_segment(3, ChainPosition(9, b"ab", TREE), ORIGIN, OTHER.public, SIGNER, BUILD, 1)))
    assert (line["segment"], line["lines"], line["previous"], line["public_key"]) == (3, 9, "ab", OTHER.public)
    assert (line["trail"], line["agent"], line["epoch"], line["identity"]) == ("0" * 32, "ward-3", 0, SIGNER.public)
    assert parse_frontier(line["size"], line["peaks"]) == TREE
    assert line["build"] == {"id": build_id(BUILD), **BUILD}
    assert build_id(dict(reversed(BUILD.items()))) == build_id(BUILD) != build_id({**BUILD, "key": "other"})


def test_a_signature_covers_all_preceding_bytes_and_nothing_may_follow() -> None:
    body = SIGNER.sign(encode_statement(LineKind.CHECKPOINT, ChainPosition(4, b"cd"), ORIGIN, 1))
    assert is_signed(body, SIGNER.public)
    assert not is_signed(body, OTHER.public)
    assert not is_signed(body.replace(b'"lines":4', b'"lines":5'), SIGNER.public)
    assert not is_signed(body + b',"lines":5', SIGNER.public), "a second member of that name would win"
    assert not is_signed(body.replace(b"checkpoint", b"head"), SIGNER.public)
    assert not is_signed(b"", SIGNER.public)
    assert not is_signed(body, "no key")


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "ab " * 32, "a" * 63])
def test_invalid_public_keys_are_refused(text: str) -> None:
    assert not is_public_key(text)
    assert is_public_key(SIGNER.public)


def test_the_tail_is_the_part_outside_the_chain_value() -> None:
    assert len(line_end(START)) == TAIL == 77


def test_the_signing_key_does_not_reveal_the_secret_and_depends_on_it() -> None:
    seeds = {SecretKey(bytes([n]) * 32).audit_seed for n in range(3)} | {DEMO_KEY.audit_seed}
    assert len(seeds) == 4
    assert "5920e7" not in repr(SecretKey(bytes(32)))
    assert repr(SIGNER) == f"Signer({SIGNER.public})"

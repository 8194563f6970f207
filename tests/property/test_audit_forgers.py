"""A forger recomputes the chain, signs with another key or makes a head: without the signing key it is detected."""

import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from support.changed_trails import (
    Trail,
    codes,
    lines_of_trail,
    names,
    often,
    original,
    seldom,
    true_head,
    verify_changed,
)
from support.trails import OTHER

from deid_agent.audit.merkle import leaf_hash
from deid_agent.audit.storage import (
    START,
    TAIL,
    ChainPosition,
    LineKind,
    Signer,
    TrailOrigin,
    chain_value,
    encode_segment,
    encode_statement,
    line_end,
    trail_id,
)


def chained(trail: Trail) -> None:
    """The chain values of the present lines: anybody can compute them."""
    chain, count = START, 0
    for name in names():
        if name not in trail:
            continue
        for index, line in enumerate(trail[name]):
            body = line[:-TAIL]
            if body.startswith(b'{"kind":"segment"'):
                body = replaced(body, b'"previous":"', chain + b'"')
            chain = chain_value(chain, body)
            trail[name][index] = body + line_end(chain)
            count += 1


def replaced(body: bytes, mark: bytes, new: bytes) -> bytes:
    begin = body.index(mark) + len(mark)
    return body[:begin] + new + body[begin + len(new) :]


def checkpoints(trail: Trail) -> Iterator[tuple[str, int]]:
    for name in names():
        for index, line in enumerate(trail[name]):
            if line.startswith((b'{"kind":"checkpoint"', b'{"kind":"key"')):
                yield name, index


@often
@given(lines_of_trail(least=2), st.booleans())
def test_an_entry_rewritten_with_its_chain_is_detected_at_the_next_checkpoint(
    where: tuple[str, int], key: bool
) -> None:
    name, index = where
    rewritten = original()[name][index].replace(b'"outcome":"published"', b'"outcome":"suppressed"')
    if rewritten == original()[name][index]:
        return  # a checkpoint

    def rewrite(trail: Trail) -> None:
        trail[name][index] = rewritten
        chained(trail)

    report = verify_changed(rewrite, key=key)
    nearest = next(
        checkpoint for checkpoint in checkpoints({n: list(v) for n, v in original().items()}) if checkpoint > where
    )
    first = report.faults[0]
    assert (first.code, first.segment, first.line - 1) == ("SIGNATURE", *nearest)
    assert "HEAD" in codes(report)


@often
@given(lines_of_trail(least=2), st.booleans())
def test_checkpoints_signed_by_another_key_are_detected(where: tuple[str, int], named: bool) -> None:
    """The whole trail rewritten and signed again: the known public key reveals it."""
    name, index = where

    def forge(trail: Trail) -> None:
        del trail[name][index]
        resigned(trail, OTHER, named=named)

    report = verify_changed(forge)
    assert codes(report) >= ({"KEY"} if named else {"SIGNATURE"})
    if named:
        assert not verify_changed(forge, key=False).faults, (
            "without a key such a trail looks sound, and verify reports that no key was given"
        )


def resigned(trail: Trail, signer: Signer, *, named: bool) -> None:
    """Every line as an agent with this one key would have written it; ``named``: its first lines name the key."""
    place, count = ChainPosition(), 0
    first = json.loads(trail[names()[0]][0])
    origin = TrailOrigin(trail_id(signer.public) if named else first["trail"], first["agent"])
    for name in names():
        for index, line in enumerate(trail[name]):
            fields = json.loads(line)
            if fields["kind"] == "segment":
                key = signer.public if named else fields["public_key"]
                body = encode_segment(fields["segment"], place, origin, key, signer, fields["build"], 1)
            elif fields["kind"] == "entry":
                body = line[:-TAIL]
            else:
                body = signer.sign(encode_statement(LineKind.CHECKPOINT, place, origin, 1))
            chain = chain_value(place.chain, body)
            trail[name][index] = body + line_end(chain)
            is_entry = fields["kind"] == "entry"
            tree = place.tree.add(leaf_hash(trail[name][index][:-1])) if is_entry else place.tree
            count += 1
            place = ChainPosition(count, chain, tree)
    trail["head.json"] = [signer.sign(encode_statement(LineKind.HEAD, place, origin, 1)) + b"}\n"]


@seldom
@given(st.data())
def test_truncation_at_a_checkpoint_is_detected_by_the_signed_head(data: st.DataObject) -> None:
    whole = {name: list(lines) for name, lines in original().items()}
    name, index = data.draw(st.sampled_from(list(checkpoints(whole))[:-1]))

    def cut(trail: Trail) -> None:
        del trail[name][index + 1 :]
        for later in names():
            if later > name:
                del trail[later]

    def with_its_checkpoint(trail: Trail) -> None:
        cut(trail)
        trail["head.json"] = [trail[name][index]]

    def without_head(trail: Trail) -> None:
        cut(trail)
        del trail["head.json"]

    assert codes(verify_changed(cut)) == {"TRUNCATED"}
    assert codes(verify_changed(with_its_checkpoint)) == {"HEAD"}
    kept = original()["head.json"][0]
    assert "TRUNCATED" in codes(verify_changed(without_head, kept=kept))
    faults = verify_changed(without_head).faults
    if (name, index) == (names()[0], 1):
        assert not faults, "no remaining entry needs a head; a separately kept head reveals the change"
    else:
        assert [str(fault.code) for fault in faults] == ["HEAD"]


@often
@given(st.data())
def test_start_and_verify_reject_a_head_made_without_the_key(data: st.DataObject) -> None:
    """The trail truncated anywhere, with any head: of any line, unsigned, signed by another key or by a checkpoint."""
    whole = {name: list(lines) for name, lines in original().items()}
    name, index = data.draw(lines_of_trail())
    chains = [line[-67:-3] for each in names() for line in whole[each]]
    count = data.draw(st.integers(-1, len(chains) + 1))
    chain = chains[count - 1] if 0 < count <= len(chains) else START
    newest = json.loads(original()["head.json"][0])
    origin = TrailOrigin(newest["trail"], newest["agent"], data.draw(st.integers(0, newest["epoch"])))
    body = encode_statement(LineKind.HEAD, ChainPosition(count, chain), origin, 1)
    at = data.draw(st.sampled_from(list(checkpoints(whole))))
    theirs = b',"signature":' + whole[at[0]][at[1]].partition(b',"signature":')[2][:-TAIL]
    head = data.draw(st.sampled_from([body, OTHER.sign(body), body + theirs])) + b"}\n"

    def forge(trail: Trail) -> None:
        del trail[name][index + 1 :]
        for later in names():
            if later > name:
                del trail[later]
        trail["head.json"] = [head]

    report = verify_changed(forge, started=False)
    assert codes(report) & {"HEAD", "TRUNCATED"}


@seldom
@given(st.data())
def test_a_head_of_an_earlier_segment_is_rejected_once_the_last_segment_has_an_entry(data: st.DataObject) -> None:
    """Signed by the true key. Start and verify accept it only after a crash before the first entry."""
    last = names()[-1]
    name = data.draw(st.sampled_from(names()[:-1]))
    kept = data.draw(st.integers(1, len(original()[last])))
    chains = [line[-67:-3] for each in names() if each <= name for line in original()[each]]
    head = true_head(len(chains))

    def crash(trail: Trail) -> None:
        del trail[last][kept:]
        trail["head.json"] = [head]

    before_an_entry = kept <= 2 and name == names()[-2]
    report = verify_changed(crash, started=before_an_entry)
    assert codes(report) == (set() if before_an_entry else {"HEAD"})
    assert not verify_changed(lambda trail: None, kept=head).faults, "a head kept elsewhere may be of any age"

"""The tree against its definition (RFC 9162, section 2.1), and the proofs of every leaf and every former size."""

from functools import cache

import pytest

from deid_agent.audit.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_ranges,
    hash_ranges,
    inclusion_ranges,
    is_consistent,
    is_included,
    leaf_hash,
    node_hash,
    parse_frontier,
)

LEAVES = [leaf_hash(b"%d" % number) for number in range(40)]
SIZES = (*range(18), 31, 32, 33, 40)


def defined(leaves: list[bytes]) -> bytes:
    """The root as the standard defines it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY_ROOT
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    return node_hash(defined(leaves[:left]), defined(leaves[left:]))


@cache
def tree(size: int) -> Frontier:
    return tree(size - 1).add(LEAVES[size - 1]) if size else Frontier()


def test_the_roots_of_certificate_transparency() -> None:
    """The inputs and roots that the reference implementation of certificate transparency tests."""
    data = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
    found = Frontier()
    for text in data:
        found = found.add(leaf_hash(bytes.fromhex(text)))
    assert found.root.hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    assert Frontier().root.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("size", SIZES)
def test_every_leaf_has_a_proof_and_no_other_place(size: int) -> None:
    root = tree(size).root
    assert root == defined(LEAVES[:size])
    for index in range(size):
        path = hash_ranges(LEAVES[:size], inclusion_ranges(index, size))
        assert is_included(LEAVES[index], index, size, path, root)
        assert not is_included(LEAVES[(index + 1) % 40], index, size, path, root)
        assert not is_included(LEAVES[index], index, size, [*path, root], root)
        assert not is_included(LEAVES[index], index, size, path[:-1], root) or not path
        assert not is_included(LEAVES[index], index + 1, size, path, root)
    assert not is_included(LEAVES[0], 0, 0, [], EMPTY_ROOT)


@pytest.mark.parametrize("size", SIZES)
def test_every_former_tree_is_proven_and_no_other(size: int) -> None:
    root = tree(size).root
    for old in range(size + 1):
        path = hash_ranges(LEAVES[:size], consistency_ranges(old, size))
        assert is_consistent(old, tree(old).root, size, root, path)
        other = defined(LEAVES[1 : old + 1])
        assert not is_consistent(old, other, size, root, path) or not old
        assert not is_consistent(old, tree(old).root, size, other, path) or old == 0
        assert not is_consistent(old, tree(old).root, size, root, [*path, root])
    assert not is_consistent(size + 1, root, size, root, [])


def test_a_frontier_is_read_back_and_another_form_is_not() -> None:
    peaks: list[object] = [peak.hex() for peak in tree(13).peaks]
    assert parse_frontier(13, peaks) == tree(13)
    for size, wrong in ((12, peaks), (-1, []), (True, peaks[:1]), ("13", peaks), (1, ["ab"]), (1, [7]), (1, None)):
        assert parse_frontier(size, wrong) is None

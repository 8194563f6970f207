"""A Merkle tree over the entries of a trail, hashed as in RFC 9162 (section 2.1): roots, proofs, and their checks.

Leaves are added in order and not kept. A tree of any size is described by the roots of its complete subtrees, at most
one for each bit of the size, so a trail is continued and proven in little memory.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EMPTY_ROOT = hashlib.sha256().digest()
"""The root of a tree without leaves."""

_HASH_BYTES = 32

LeafRange = tuple[int, int]
"""Leaves from the first index up to, and without, the second."""


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees. Its prefix differs from that of a leaf, so no entry can pass for a subtree."""
    return hashlib.sha256(b"\1" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """A tree of ``size`` leaves: the roots of its complete subtrees, the largest first."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def add(self, leaf: bytes) -> "Frontier":
        """The tree with one more leaf hash."""
        kept, node, size = len(self.peaks), leaf, self.size
        while size & 1:
            kept -= 1
            node = node_hash(self.peaks[kept], node)
            size >>= 1
        return Frontier(self.size + 1, (*self.peaks[:kept], node))

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        if not self.peaks:
            return EMPTY_ROOT
        node = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            node = node_hash(peak, node)
        return node


def parse_frontier(size: object, peaks: object) -> Frontier | None:
    """A frontier from the members of a line; None if they describe no tree."""
    if type(size) is not int or size < 0 or not isinstance(peaks, list) or len(peaks) != size.bit_count():
        return None
    try:
        hashes = tuple(bytes.fromhex(peak) for peak in peaks)
    except (TypeError, ValueError):
        return None
    return Frontier(size, hashes) if all(len(peak) == _HASH_BYTES for peak in hashes) else None


def inclusion_ranges(index: int, size: int) -> list[LeafRange]:
    """The ranges whose roots are the inclusion proof of a leaf, the deepest first."""
    begin, end, found = 0, size, list[LeafRange]()
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((begin, middle))
            begin = middle
    return found[::-1]


def consistency_ranges(old: int, size: int) -> list[LeafRange]:
    """The ranges whose roots prove that the tree of ``size`` leaves begins with that of ``old`` leaves."""
    if not 0 < old < size:
        return []
    begin, end, found, whole = 0, size, list[LeafRange](), True
    while end != old:
        middle = begin + _split(end - begin)
        if old <= middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((begin, middle))
            begin, whole = middle, False
    # The old tree itself is known to the verifier; a subtree of it is not.
    return (found if whole else [*found, (begin, end)])[::-1]


def hash_ranges(leaves: Iterable[bytes], ranges: Sequence[LeafRange]) -> list[bytes]:
    """The roots of disjoint ranges of the leaf hashes, in one pass over them."""
    order = sorted(range(len(ranges)), key=lambda number: ranges[number])
    trees = [Frontier()] * len(ranges)
    at = 0
    for index, leaf in enumerate(leaves):
        while at < len(order) and ranges[order[at]][1] <= index:
            at += 1
        if at == len(order):
            break
        if ranges[order[at]][0] <= index:
            trees[order[at]] = trees[order[at]].add(leaf)
    return [tree.root for tree in trees]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """True if the path proves that this leaf hash has this index in the tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    node, at, last = leaf, index, size - 1
    for step in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            node = node_hash(step, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = node_hash(node, step)
        at, last = at >> 1, last >> 1
    return last == 0 and node == root


def is_consistent(old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """True if the path proves that the tree begins with the old one (RFC 9162, 2.1.4.2)."""
    if not 0 <= old <= size:
        return False
    if old in {0, size}:
        return not path and old_root == (root if old == size else EMPTY_ROOT)
    steps = [old_root, *path] if old.bit_count() == 1 else list(path)
    if not steps:
        return False
    at, last = old - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    former = node = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            former, node = node_hash(step, former), node_hash(step, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = node_hash(node, step)
        at, last = at >> 1, last >> 1
    return last == 0 and former == old_root and node == root


def _split(size: int) -> int:
    """The largest power of two below ``size``: the leaves of the left subtree."""
    return 1 << (size - 1).bit_length() - 1

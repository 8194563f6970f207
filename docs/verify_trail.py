"""Verifies an audit trail without deid-agent: python verify_trail.py FOLDER FIRST_KEY [HEADS ...]

FIRST_KEY is the first public key of the trail, kept since the trail was new. HEADS are files of heads that witnesses
kept, one a line. The page audit.md describes the format. Needs the package cryptography.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def require(condition, where, text):
    if not condition:
        sys.exit(f"{where}: {text}")


def check(body, key, state, kinds, where):
    """The members of a statement that the key signed and that describes this state of the trail."""
    statement, _, signature = body.partition(b',"signature":"')
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature[:-1].decode()), statement)
    except (InvalidSignature, ValueError):
        sys.exit(f"{where}: is not signed by the key of its epoch")
    claim = json.loads(statement + b"}")
    stated = [claim.get(name) for name in ("trail", "epoch", "lines", "head", "size", "root")]
    require(claim["kind"] in kinds and stated == state, where, "signs another trail")
    return claim


def add(peaks, size, node):
    """One more leaf in a tree (RFC 9162) that is given by its complete subtrees, the largest first."""
    while size & 1:
        node, size = sha256(b"\1" + peaks.pop() + node).digest(), size >> 1
    peaks.append(node)


def root(peaks):
    node = peaks[-1] if peaks else sha256().digest()
    for peak in peaks[-2::-1]:
        node = sha256(b"\1" + peak + node).digest()
    return node.hex()


folder, key, files = Path(sys.argv[1]), sys.argv[2], [Path(sys.argv[1], "head.json"), *map(Path, sys.argv[3:])]
heads = [(f"{file.name}:{n}", line) for file in files for n, line in enumerate(file.read_bytes().splitlines(), 1)]
wanted, states, size, peaks, unsigned = {json.loads(head)["lines"] for _, head in heads}, {}, 0, [], 0
trail, epoch, lines, chain = "", 0, 0, "0" * 64
for number, path in enumerate(sorted(folder.glob("*.jsonl")), 1):
    require(int(path.stem) == number, path.name, "a segment before it is missing")
    for count, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):  # the last line may be incomplete
        where, body, kind, previous = f"{path.name}:{count}", line[:-76], line[9:12], chain
        chain = sha256(chain.encode() + body).hexdigest()
        require(line[-76:] == b',"chain":"%s"}' % chain.encode(), where, "does not follow from the line before")
        if kind == b"seg" and (opening := json.loads(line))["format"] == 2:
            trail = trail or sha256(bytes.fromhex(key)).hexdigest()[:32]
            stated = [opening[name] for name in ("trail", "epoch", "public_key", "peaks")]
            require(stated == [trail, epoch, key, [peak.hex() for peak in peaks]], where, "belongs to another trail")
        elif kind in (b"ent", b"cro", b"ope") and trail:  # the chain alone covers lines of the former format
            add(peaks, size, sha256(b"\0" + line).digest())
            size, unsigned = size + 1, unsigned + 1
        elif trail:
            state = [trail, epoch, lines, previous, size, root(peaks)]
            claim, unsigned = check(body, key, state, ("checkpoint", "key"), where), 0
            epoch, key = (epoch + 1, claim["public_key"]) if kind == b"key" else (epoch, key)
        lines += 1
        if lines in wanted:
            states[lines] = (key, [trail, epoch, lines, chain, size, root(peaks)])
for where, head in heads:
    require((at := json.loads(head)["lines"]) in states, where, f"signs {at} lines, the trail is cut off after {lines}")
    check(head[:-1], *states[at], ("head",), where)
sys.stdout.write(f"sound: trail {trail}, {size} entries, {len(heads)} heads, {unsigned} entries not signed yet\n")

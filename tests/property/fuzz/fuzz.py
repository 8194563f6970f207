"""Fuzzing of the parsers: seeded mutations of real messages, of synthetic documents and of small grammars.

    python tests/property/fuzz/fuzz.py EXECUTIONS [--codecs hl7v2,fhir] [--seed N] [--seconds-each 5]

One execution is one payload through ``parse`` and, if that succeeds, ``parse_leaves``. Any exception other than
``MessageError``, and any payload that takes longer than the alarm, is a finding: it is printed, kept as a file, and the
exit code is 1.
Seeds of messages are those of ``support.made_messages`` and, if ``$DEID_SHARED`` is set, of its folder ``messages``.
Documents (html, rtf, cda) are mutations of ``support.fuzz_documents`` alone. One in fifty of them also goes through the
whole pipeline, and for one in fifty the function calls are counted, which are bounded by its size.
"""

import argparse
import copy
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support import fuzz_documents as documents
from support.edits import apply
from support.made_messages import bundle, hl7

from deid_agent.codec.base import Codec
from deid_agent.codec.cda import CdaCodec
from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.hl7v2 import Hl7Codec
from deid_agent.codec.html import HtmlCodec
from deid_agent.codec.rtf import RtfCodec
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit

RULES = Path(__file__).resolve().parents[3] / "rules"
SMALL = 3_000
"""The most bytes of a seed: parsers fail on forms and not on length, and small inputs allow more executions."""
_HL7 = [
    *(b"|", b"^", b"~", b"\\", b"&", b"\r", b"\n", b"\r\n", b'""', b"MSH|^~\\&|", b"OBX|1|TX|a||", b"ADD|", b"\\.br\\"),
    *(
        b"\\X0D\\",
        b"\\X",
        b"\\C2842\\",
        b"\x1b$B",
        b"\x1b(B",
        b"\x0b",
        b"\x1c\r",
        b"\xef\xbb\xbf",
        b"\x85",
        b"\xff",
        b"\xdf",
        b"\0",
    ),
    *(
        b"ED",
        b"Base64",
        b"QUJD",
        b"FHS|",
        b"BHS|",
        b"BTS|",
        b"|||||||||||||||||",
        b"UNICODE UTF-8",
        b"~ISO IR87",
        b"RP",
    ),
]
_FHIR = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'"',
        b"\\",
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"true",
        b"1e9",
        b"-0",
        b"1" * 20,
    ),
    *(
        b'"resourceType":',
        b'"Patient"',
        b'"id":"a"',
        b'"extension":[',
        b'"_birthDate":',
        b'"contained":[{',
        b"urn:uuid:",
    ),
    *(
        b'"data":"QUJD"',
        b'"div":"<div>',
        b"<!--",
        b"<![CDATA[",
        b"&amp;",
        b"&#1;",
        b"<b a='",
        b"Patient/1?a=b|c,d",
        b"#",
    ),
    *(
        b"2031-02-03T04:05:06Z",
        b'"reference":"',
        b'"valueQuantity":{',
        b"\xef\xbb\xbf",
        b"\n",
        b"\xc3",
        b"\xf0\x9f\x98\x80",
    ),
]


def seeds(folders: Sequence[str], made: Sequence[bytes]) -> list[bytes]:
    """Synthetic messages, and small third-party messages if there are any."""
    shared = os.environ.get("DEID_SHARED", "")
    found = list(made)
    for folder in folders if shared else ():
        paths = sorted(p for p in Path(shared, "messages", folder).rglob("*") if p.suffix in {".hl7", ".json"})
        found += [p.read_bytes() for p in paths if p.stat().st_size <= SMALL]
    return found


def mutate(chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed with one to six mutations: delete, repeat, insert a word, change bytes, splice with another seed."""
    raw = bytearray(chance.choice(pool))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(raw) + 1)
        until = min(len(raw), at + int(chance.expovariate(1 / 20)))
        match chance.randrange(7):
            case 0:
                del raw[at:until]
            case 1:
                raw[at:at] = raw[at:until] * chance.randint(1, 4)
            case 2:
                raw[at:at] = chance.choice(words)
            case 3:
                raw[at:until] = chance.choice(words)
            case 4 if at < len(raw):
                raw[at] = chance.randrange(256)
            case 5:
                other = chance.choice(pool)
                start = chance.randrange(len(other) + 1)
                raw[at:until] = other[start : start + chance.randint(0, 200)]
            case _:
                raw[at:at] = b"".join(chance.choices(words, k=chance.randint(1, 5)))
    return bytes(raw)


def generate(chance: random.Random, words: Sequence[bytes], head: bytes) -> bytes:
    """A payload of random words after a head that the codec detects."""
    return head + b"".join(chance.choices(words, k=chance.randint(0, 60)))


_VALUES: list[object] = [
    *(
        None,
        True,
        0,
        -1,
        2**70,
        0.1,
        "",
        " ",
        "Patient/1",
        "#a",
        "urn:uuid:1",
        "urn:oid:1.2",
        "http://a/Patient/1?b=c|d,e",
    ),
    *(
        "2031",
        "2031-02",
        "2031-02-03T04:05:06Z",
        "<div>a<!--b--><![CDATA[c]]>&amp;&#x41;<b a='c'/></div>",
        "<",
        "QUJD",
        "A",
    ),
    *(
        "tel:1",
        "a@b",
        "\0",
        "\ud83d\ude00",
        'a"b\\',
        [],
        {},
        [[]],
        [{}],
        {"resourceType": "Patient"},
        {"url": "a", "valueX": 1},
    ),
    *(
        {"reference": "#a", "display": "B"},
        {"system": "phone", "value": "1"},
        {"div": "<p>"},
        {"contentType": "a", "data": "QUJD"},
    ),
]


def _value(chance: random.Random) -> object:
    return copy.deepcopy(chance.choice(_VALUES))


def mutate_json(chance: random.Random, pool: Sequence[bytes]) -> bytes:
    """A JSON seed with one to five values, names or positions changed: still JSON, but invalid for its type."""
    tree = json.loads(chance.choice(pool))
    for _ in range(chance.randint(1, 5)):
        nodes: list[dict[str, object] | list[object]] = []
        _containers(tree, nodes)
        node = chance.choice(nodes)
        if isinstance(node, list):
            node.insert(chance.randint(0, len(node)), _value(chance))
            continue
        key = chance.choice([*node, "x"])
        other = chance.choice(nodes)
        match chance.randrange(4):
            case 0:
                node[key] = _value(chance)
            case 1:
                node[chance.choice(["_", "value", "Ada "]) + key] = node.get(key)
            case 2:
                node[key] = [node.get(key), _value(chance)]
            case _ if isinstance(other, dict) and other:
                node[key] = json.loads(json.dumps(other[chance.choice([*other])]))
            case _:
                node.pop(key, None)
    text = json.dumps(tree, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1]))
    return text.encode("utf-8", "replace")


def _containers(node: object, found: list[dict[str, object] | list[object]]) -> None:
    if isinstance(node, dict | list):
        found.append(node)
        for inner in node.values() if isinstance(node, dict) else node:
            _containers(inner, found)


def check(codec: Codec, raw: bytes) -> str:
    """Check one execution: each site is replaced by its own value. Raises on any fault."""
    try:
        messages = codec.parse(raw)
    except MessageError as problem:
        return problem.reason
    if b"".join(message.raw for message in messages) != raw:
        raise AssertionError("bytes were lost")
    for message in messages:
        edits = [Edit(site.start, site.end, message.encode(site.value)) for site in message.sites]
        apply(message.raw, edits)
    codec.parse_leaves(raw)
    return "parsed"


class Hang(Exception):
    """One execution took longer than the alarm."""


def _alarm(_: int, __: FrameType | None) -> None:
    raise Hang


Kind = tuple[Codec, Callable[[], bytes], Callable[[int, bytes], str]]
PARSERS = ("hl7v2", "fhir")
DOCUMENTS = {"html": "text/html", "rtf": "text/rtf", "cda": ""}
"""The media type of the attachment that contains the document; a C-CDA document is a message."""
SAMPLE = 50


def kinds(names: Sequence[str], chance: random.Random) -> list[Kind]:
    """Parser, payload generator and check for each of ``names``."""
    return [_message(name, chance) if name in PARSERS else _document(name, chance) for name in names]


def _message(name: str, chance: random.Random) -> Kind:
    if name == "fhir":
        fhir = FhirCodec(RULES)
        return fhir, _json_maker(chance, seeds(["fhir"], [bundle(2_000)])), lambda _, raw: check(fhir, raw)
    codec = Hl7Codec(RULES)
    make = _maker(chance, seeds(["hl7", "hl7-odd"], [hl7(10), hl7(30)]), _HL7, b"MSH|^~\\&|A|B\r")
    return codec, make, lambda _, raw: check(codec, raw)


def _document(name: str, chance: random.Random) -> Kind:
    made = documents.seeds(name), documents.words(name)
    codec: Codec
    if name == "rtf":
        codec, make = RtfCodec(), _maker(chance, *made, b"{\\rtf1\\ansi ")
    elif name == "html":
        codec, make = HtmlCodec(RULES), _maker(chance, *made, b"<p>")
    else:
        codec, broken = CdaCodec(RULES), _maker(chance, *made, b"<section xmlns='urn:hl7-org:v3'>")

        def make() -> bytes:
            return documents.mutate_cda(chance) if chance.random() < 0.85 else broken()

    documents.check_pipeline(codec, made[0][0], DOCUMENTS[name])  # loads the models before the alarm is set

    def check_one(number: int, raw: bytes) -> str:
        outcome = documents.check_document(codec, raw)
        if number % SAMPLE == 0:
            documents.check_work(codec, raw)
        elif number % SAMPLE == 1 and outcome == "parsed":
            outcome = documents.check_pipeline(codec, raw, DOCUMENTS[name])
        return outcome

    return codec, make, check_one


def run(
    executions: int, seed: int, seconds: int, keep: Path | None = None, names: Sequence[str] = PARSERS
) -> tuple[Counter[str], list[str]]:
    """Run ``executions`` executions, the parsers in turn. Returns the counts of outcomes, and the findings."""
    chance = random.Random(seed)
    each = kinds(names, chance)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    before = signal.signal(signal.SIGALRM, _alarm)
    try:
        for number in range(executions):
            codec, make, check_one = each[number % len(each)]
            raw = make()
            signal.alarm(seconds)
            try:
                outcomes[f"{codec.name} {check_one(number // len(each), raw)}"] += 1
            except Exception as problem:  # noqa: BLE001 - the finding
                wrong.append(f"{codec.name} execution {number}: {traceback.format_exception(problem)[-2:]}")
                if keep is not None:
                    (keep / f"{codec.name}-{seed}-{number}").write_bytes(raw)
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcomes, wrong


def _json_maker(chance: random.Random, pool: Sequence[bytes]) -> Callable[[], bytes]:
    """Three in four payloads are JSON; most others are refused at their first wrong byte."""
    whole = [each for each in pool if _is_json(each)]
    broken = _maker(chance, pool, _FHIR, b'{"resourceType":"Patient",')
    return lambda: mutate_json(chance, whole) if chance.random() < 0.75 else broken()


def _is_json(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except ValueError:
        return False


def _maker(chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes], head: bytes) -> Callable[[], bytes]:
    return lambda: mutate(chance, pool, words) if chance.random() < 0.8 else generate(chance, words, head)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executions", type=int)
    parser.add_argument("--codecs", default=",".join(PARSERS), help="of " + ", ".join((*PARSERS, *DOCUMENTS)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds-each", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for payloads of findings")
    args = parser.parse_args()
    names = args.codecs.split(",")
    if unknown := set(names) - {*PARSERS, *DOCUMENTS}:
        parser.error(f"no parser {sorted(unknown)[0]}")
    start, done, total, bad = time.perf_counter(), 0, Counter[str](), 0
    while done < args.executions:
        step = min(10_000, args.executions - done)
        outcomes, wrong = run(step, args.seed + done, args.seconds_each, args.keep, names)
        total += outcomes
        done, bad = done + step, bad + len(wrong)
        sys.stdout.write("".join(f"WRONG {each}\n" for each in wrong))
        spent = time.perf_counter() - start
        sys.stdout.write(f"{done} executions, {bad} wrong, {spent:.0f} s, {dict(sorted(total.items()))}\n")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

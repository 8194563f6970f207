"""The structural pass (no recognizers): CPU time by kind of message, and its ratio between two checkouts.

    python tests/bench/bench_structural.py
    python tests/bench/bench_structural.py --base ../an-older-checkout --files a-folder-of-messages

``parse`` is bytes to sites. ``whole`` is a message from bytes to sanitized bytes: parse, surrogates, edits and leak
guard. Each checkout runs in a process of its own. They take turns, message by message, so a busy machine slows both;
the ratio is the median of the paired rounds. Names, numbers and days of the made messages differ in each round, so no
cache of values helps. Public messages (``--files``) are the same in each round.
"""

import argparse
import base64
import gc
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TREE = Path(__file__).resolve().parents[2]
FILES = {"HL7 files": "*.hl7", "FHIR files": "*.json", "C-CDA files": "*.xml"}
SAMPLE, LARGEST = 120, 60_000
PER_TURN = 6
"""Made messages of each kind in one turn; one of the large bundle."""
_FAMILY = ("Okafor", "Lindqvist", "Baptiste", "Moreno", "Castellanos", "Whitfield", "Nakamura", "Adeyemi", "Kowalczyk")
_GIVEN = ("Ada", "Tomas", "Marisol", "Henrik", "Priya", "Lucille", "Winston", "Yolanda", "Desmond", "Kirsten")
_STREET = ("Land's End Rd", "Harbour Street", "Old Mill Lane", "Prospect Avenue", "Cedar Court", "Alder Way")


class Codec(Protocol):
    """The interface of a codec that the benchmark uses, in every checkout."""

    def detect(self, raw: bytes) -> bool:
        """True if the codec reads this payload."""

    def parse(self, raw: bytes) -> object:
        """The messages of the payload."""


@dataclass(frozen=True, slots=True)
class Product:
    """The structural pass of one checkout."""

    parse: Callable[[bytes], object]
    whole: Callable[[bytes], object]
    refusal: type[Exception]


@dataclass(frozen=True, slots=True)
class Person:
    """The values of one made message."""

    family: str
    given: str
    number: int
    birth: str
    day: str
    street: str
    phone: str

    @property
    def iso_birth(self) -> str:
        return f"{self.birth[:4]}-{self.birth[4:6]}-{self.birth[6:]}"

    @property
    def iso_day(self) -> str:
        return f"{self.day[:4]}-{self.day[4:6]}-{self.day[6:]}"


def make_person(seed: str) -> Person:
    """A person with a name, a number and days that follow from ``seed``."""
    draw = random.Random(seed)
    return Person(
        draw.choice(_FAMILY) + draw.choice(("", "son", "-" + draw.choice(_FAMILY))),
        draw.choice(_GIVEN),
        draw.randrange(10**6, 10**7),
        f"{draw.randrange(1930, 2010)}{draw.randrange(1, 13):02}{draw.randrange(1, 29):02}",
        f"{draw.randrange(2018, 2025)}{draw.randrange(1, 13):02}{draw.randrange(1, 29):02}",
        f"{draw.randrange(1, 900)} {draw.choice(_STREET)}",
        f"651555{draw.randrange(10**4):04}",
    )


def make_adt(seed: str) -> bytes:
    """An admission, as a registration system sends it."""
    p, doctor, kin = make_person(seed), make_person(seed + "d"), make_person(seed + "k")
    attending = f"{doctor.number}^{doctor.family}^{doctor.given}^K^^^MD^^NPI"
    lines = (
        f"MSH|^~\\&|ADT|GENERAL|EHR|GENERAL|{p.day}134009||ADT^A01^ADT_A01|MSG{p.number}|P|2.5.1",
        f"EVN|A01|{p.day}134000|||{doctor.number}^{doctor.family}^{doctor.given}",
        f"PID|1||{p.number}^^^GENERAL^MR~{kin.number}^^^GENERAL^PI||{p.family}^{p.given}^M^^^^L||{p.birth}|F||2106-3|"
        f"{p.street}^Apt 4^Saint Paul^MN^55106^USA^H||^PRN^PH^^1^{p.phone[:3]}^{p.phone[3:]}|||M|CHR|{doctor.number}",
        f"NK1|1|{p.family}^{kin.given}^^^|SPO^Spouse|{p.street}^^Saint Paul^MN^55106|({kin.phone[:3]}){kin.phone[3:]}",
        f"PV1|1|I|4W^401^A^GENERAL||||{attending}|{attending}||MED||||ADM|A0||{attending}|IP|{p.number}8|||||||||||||||"
        f"|||||||||{p.day}134000",
        "AL1|1|DA|70618^Penicillin^RXNORM|SV|Hives",
        f"DG1|1|ICD-10|I10^Essential hypertension^I10||{p.day}|A",
        f"GT1|1||{p.family}^{kin.given}||{p.street}^^Saint Paul^MN^55106|{kin.phone}||{kin.birth}|M||SPO",
        f"IN1|1|HMO|7781|Great Lakes Health|PO Box 98^^Duluth^MN^55802||800555{kin.phone[6:]}|G{kin.number}|||||||HMO|"
        f"{p.family}^{p.given}|SEL|{p.birth}|{p.street}^^Saint Paul^MN^55106|||||||||||||||||W{p.number}",
    )
    return "".join(f"{line}\r" for line in lines).encode()


def make_oru(seed: str) -> bytes:
    """A laboratory result with numbers, codes and comments."""
    p, doctor = make_person(seed), make_person(seed + "d")
    orderer = f"{doctor.number}^{doctor.family}^{doctor.given}"
    lines = [
        f"MSH|^~\\&|LAB|GENERAL|EHR|GENERAL|{p.day}134009+0100||ORU^R01^ORU_R01|MSG{p.number}|P|2.5.1",
        f"PID|1||{p.number}^^^GENERAL^MR||{p.family}^{p.given}^M||{p.birth}|M|||{p.street}^^Saint Paul^MN^55106",
        f"PV1|1|I|4W^401^A^GENERAL||||{orderer}^K^^^MD|||MED||||||||{p.number}1",
        f"ORC|RE|ORD{p.number}^EHR|ACC{doctor.number}^LAB||CM||||{p.day}120000|||{orderer}",
        f"OBR|1|ORD{p.number}^EHR|ACC{doctor.number}^LAB|24331-1^Lipid panel^LN|||{p.day}120000|||||||||{orderer}",
    ]
    for at in range(1, 16):
        lines.append(
            f"OBX|{at}|NM|{2093 + at}-3^Cholesterol in Serum^LN||{120 + at}|mg/dL^milligram per deciliter^UCUM|<200|N"
            f"|||F|||{p.day}120000||{doctor.number}^{doctor.family}^{doctor.given}"
            if at % 3
            else f"OBX|{at}|TX|8251-1^Comment^LN||Seen by Dr. {doctor.family} on {p.day}, no change since then.||||||F"
        )
    lines.append(f"NTE|1|L|Result called to the ward; {p.given} {p.family} was informed.")
    return "".join(f"{line}\r" for line in lines).encode()


def make_reference(seed: str) -> bytes:
    """A document reference with a short note inside."""
    p, doctor = make_person(seed), make_person(seed + "d")
    note = f"{p.given} {p.family} was seen by Dr. {doctor.family} on {p.iso_day}. MRN {p.number}. Follow up in 2 weeks."
    return _write(
        {
            "resourceType": "DocumentReference",
            "id": f"doc-{p.number}",
            "meta": {"lastUpdated": f"{p.iso_day}T13:40:09Z", "source": "https://ehr.general.example.org/fhir"},
            "identifier": [{"system": "urn:oid:2.16.840.1.113883.19.5", "value": f"N{p.number}"}],
            "status": "current",
            "type": _concept("http://loinc.org", "18842-5", "Discharge summary"),
            "subject": {"reference": f"Patient/{p.number}", "display": f"{p.given} {p.family}"},
            "date": f"{p.iso_day}T13:40:00+01:00",
            "author": [
                {"reference": f"Practitioner/{doctor.number}", "display": f"Dr. {doctor.given} {doctor.family}"}
            ],
            "description": f"Discharge summary of {p.given} {p.family}",
            "content": [{"attachment": {"contentType": "text/plain", "data": _base64(note), "title": "Summary"}}],
            "context": {
                "encounter": [{"reference": f"Encounter/E{doctor.number}"}],
                "period": {"start": p.iso_day, "end": p.iso_day},
            },
        }
    )


def make_bundle(seed: str, visits: int) -> bytes:
    """A bundle of one patient with an encounter, five vital signs and a condition for each visit."""
    p = make_person(seed)
    entries = [_entry(_patient(p))]
    for number in range(visits):
        entries += map(_entry, _visit(p, make_person(f"{seed}.{number % 5}"), make_person(f"{seed}-{number}")))
    return _write({"resourceType": "Bundle", "type": "collection", "entry": entries})


def _patient(p: Person) -> dict[str, object]:
    return {
        "resourceType": "Patient",
        "id": f"p{p.number}",
        "text": {
            "status": "generated",
            "div": f'<div xmlns="http://www.w3.org/1999/xhtml"><b>{p.given} {p.family}</b>, born {p.iso_birth}</div>',
        },
        "identifier": [{"system": "urn:oid:1.2.36.146.595.217.0.1", "value": str(p.number)}],
        "name": [{"use": "official", "family": p.family, "given": [p.given, "M"]}],
        "telecom": [{"system": "phone", "value": p.phone, "use": "home"}],
        "gender": "female",
        "birthDate": p.iso_birth,
        "address": [{"line": [p.street], "city": "Saint Paul", "state": "MN", "postalCode": "55106"}],
    }


def _visit(p: Person, doctor: Person, visit: Person) -> Iterator[dict[str, object]]:
    subject = {"reference": f"Patient/p{p.number}", "display": f"{p.given} {p.family}"}
    context, day = {"reference": f"Encounter/e{visit.number}"}, visit.iso_day
    seen = {"reference": f"Practitioner/d{doctor.number}", "display": f"Dr. {doctor.given} {doctor.family}"}
    yield {
        "resourceType": "Encounter",
        "id": f"e{visit.number}",
        "status": "finished",
        "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "AMB"},
        "type": [_concept("http://snomed.info/sct", "185345009", "Encounter for symptom")],
        "subject": subject,
        "participant": [{"individual": seen}],
        "period": {"start": f"{day}T10:00:00+01:00", "end": f"{day}T10:40:00+01:00"},
    }
    for at in range(5):
        yield {
            "resourceType": "Observation",
            "id": f"o{visit.number}-{at}",
            "status": "final",
            "category": [_concept("http://snomed.info/sct", "46680005", "Vital signs")],
            "code": _concept("http://loinc.org", f"85{at}4-{at}", "Diastolic blood pressure"),
            "subject": subject,
            "encounter": context,
            "effectiveDateTime": f"{day}T10:2{at}:00+01:00",
            "issued": f"{day}T10:2{at}:00.000+01:00",
            "valueQuantity": {
                "value": 70.5 + at,
                "unit": "mm[Hg]",
                "system": "http://unitsofmeasure.org",
                "code": "mm",
            },
        }
    yield {
        "resourceType": "Condition",
        "id": f"c{visit.number}",
        "code": _concept("http://snomed.info/sct", "38341003", "Hypertension"),
        "subject": subject,
        "encounter": context,
        "onsetDateTime": day,
        "note": [{"text": f"Seen by Dr. {doctor.family}, stable since the last visit; {p.given} will call on Monday."}],
    }


def _concept(system: str, code: str, display: str) -> dict[str, object]:
    return {"coding": [{"system": system, "code": code, "display": display}], "text": display}


def _entry(resource: dict[str, object]) -> dict[str, object]:
    url = f"https://ehr.general.example.org/fhir/{resource['resourceType']}/{resource['id']}"
    return {"fullUrl": url, "resource": resource}


def _write(resource: dict[str, object]) -> bytes:
    return json.dumps(resource, indent=2).encode()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


MADE: dict[str, Callable[[str], bytes]] = {
    "ADT": make_adt,
    "ORU": make_oru,
    "DocumentReference": make_reference,
    "Bundle, 9 kB": lambda seed: make_bundle(seed, 1),
    "Bundle, 150 kB": lambda seed: make_bundle(seed, 18),
}


def load_product() -> Product:
    """The product on the module path: this checkout or one before the packages were moved."""
    try:
        app = importlib.import_module("deid_agent.app")
    except ModuleNotFoundError:
        return _load_before_app()
    config, pipeline = importlib.import_module("deid_agent.config"), importlib.import_module("deid_agent.pipeline")
    rules = importlib.import_module("deid_agent.rules").data_folder("rules")
    policy = pipeline.load_policy("pseudonymised", rules)
    product = app.WorkerFactory(rules, config.DEMO_KEY, policy, "none").deidentifier()
    refusal = importlib.import_module("deid_agent.model").MessageError
    return Product(_choose_parse(product._codecs, refusal), product.message, refusal)


def _load_before_app() -> Product:
    wiring, policies = importlib.import_module("deid_agent.wiring"), importlib.import_module("deid_agent.policy")
    rules = importlib.import_module("deid_agent.resources").folder("rules")
    key = importlib.import_module("deid_agent.key").DEMO
    product = wiring.Workshop(rules, key, policies.load("pseudonymised", rules), "none").deidentifier()
    refusal = importlib.import_module("deid_agent.errors").MessageError
    return Product(_choose_parse(product._codecs, refusal), product.message, refusal)


def _choose_parse(codecs: Iterable[Codec], refusal: type[Exception]) -> Callable[[bytes], object]:
    codecs = tuple(codecs)

    def parse(raw: bytes) -> object:
        for codec in codecs:
            if codec.detect(raw):
                return codec.parse(raw)
        raise refusal

    return parse


def measure(product: Product, messages: Iterable[bytes]) -> tuple[float, float]:
    """The CPU seconds of ``parse`` and of ``whole`` over the messages."""
    begin = time.process_time()
    for raw in messages:
        product.parse(raw)
    between = time.process_time()
    for raw in messages:
        product.whole(raw)
    return between - begin, time.process_time() - between


def answer_requests() -> None:
    """Run as one side: read requests from standard input, a JSON object a line, and answer each on a line."""
    product, files = load_product(), dict[str, list[bytes]]()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        kind, seed = request["kind"], request["seed"]
        if paths := request.get("paths"):
            files[kind] = [Path(path).read_bytes() for path in paths]
            answer: object = [_is_accepted(product, raw) for raw in files[kind]]
        elif kind in files:
            answer = [measure(product, (files[kind][at],)) for at in request["chosen"]]
        else:
            count = 1 if "150 kB" in kind else PER_TURN
            answer = [measure(product, [MADE[kind](f"{seed}-{at}") for at in range(count)])]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _is_accepted(product: Product, raw: bytes) -> bool:
    try:
        product.whole(raw)
    except product.refusal:
        return False
    return True


class Side:
    """A checkout that is measured, in a process of its own with one thread."""

    def __init__(self, tree: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [sys.executable, str(Path(__file__).resolve()), "--answer"]
        self._process = subprocess.Popen(
            command, cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: object) -> list[list[float]]:
        """The answer to one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: list[list[float]] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(sides: Sequence[Side], kind: str, rounds: int, chosen: Sequence[int]) -> list[list[list[float]]]:
    """For each side and round: CPU seconds of parse and whole. The first round warms up and does not count."""
    found: list[list[list[float]]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for at in range(len(sides)):
            side = (at + number) % len(sides)
            times = sides[side].ask(kind=kind, seed=number, chosen=chosen)
            if number:
                found[side].append([sum(each) for each in zip(*times, strict=True)])
    return found


def choose_files(sides: Sequence[Side], kind: str, folder: Path) -> list[int]:
    """A fixed sample of the files of a kind; only files that every side accepts."""
    paths = sorted(path for path in folder.rglob(FILES[kind]) if 200 < path.stat().st_size < LARGEST)
    sample = [str(path) for path in paths[:: max(1, len(paths) // SAMPLE)]]
    if not sample:
        return []
    accepted = [side.ask(kind=kind, seed=0, paths=sample) for side in sides]
    return [at for at in range(len(sample)) if all(each[at] for each in accepted)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--base", type=Path, help="another checkout, to which the ratios are")
    parser.add_argument("--files", type=Path, help="a folder of public messages")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer_requests()
        return
    sides = [Side(TREE)] + ([Side(options.base.resolve())] if options.base else [])
    write = sys.stdout.write
    write("| message | parse, ms | whole, ms |" + (" parse, ratio | whole, ratio |\n" if options.base else "\n"))
    write("|---|---|---|" + ("---|---|\n" if options.base else "\n"))
    for kind in [*MADE, *(FILES if options.files else ())]:
        chosen = choose_files(sides, kind, options.files) if kind in FILES else []
        if kind in FILES and not chosen:
            continue
        rounds = max(3, options.rounds // 3) if kind in FILES else options.rounds
        found = compare(sides, kind, rounds, chosen)
        each = len(chosen) or (1 if "150 kB" in kind else PER_TURN)
        cells = [f"{1000 * statistics.median(column) / each:.2f}" for column in zip(*found[0], strict=True)]
        if options.base:
            pairs = list(zip(*found, strict=True))
            cells += [f"{statistics.median(new[at] / old[at] for new, old in pairs):.2f}" for at in (0, 1)]
        write(f"| {kind} | " + " | ".join(cells) + " |\n")
        sys.stdout.flush()
    for side in sides:
        side.close()


if __name__ == "__main__":
    main()

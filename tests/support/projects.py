"""Records of one topic for tests of projects, and all that leaves an agent for them."""

import hashlib
from collections.abc import Iterator

from deid_agent.agent import Coordinates, Job, Process, Processed, Record
from deid_agent.agent.job import Completed
from deid_agent.agent.outcomes import OutputMarks, finish_record, make_audit_entry
from deid_agent.agent.ports import FinishedRecord
from deid_agent.audit.storage import encode_entry

TRACE = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
GIVEN = ("Marisol", "Anselm", "Odalys", "Ferdinand", "Ingrid", "Casimir", "Beatrix", "Tomasz")
FAMILY = ("Okafor", "Lindqvist", "Baranski", "Thistlewood", "Quintero", "Haverford", "Nakagawa")


def adt(number: int) -> bytes:
    """One admission; every identifying field differs from those of other numbers."""
    given, family = GIVEN[number % len(GIVEN)], FAMILY[number // 3 % len(FAMILY)]
    record, born = 4_471_902 + 7919 * number, f"19{40 + number % 50}{1 + number % 12:02}{1 + number % 28:02}"
    return (
        f"MSH|^~\\&|LAB|WARD|DEID|RES|20240314{number % 24:02}3012||ADT^A01|{88_000_000 + 104_729 * number}|P|2.5\r"
        f"PID|1||{record}^^^H^MR||{family}^{given}||{born}|F|||{100 + 7 * number} Quarry Lane^^Ashford^KY^40{number:03}"
        f"||(502)555-{1000 + 13 * number % 9000:04}\r"
        f"PV1|1|I|3N^{200 + number}||||||||||||||||{6_100_000 + 15_485 * number}\r"
    ).encode()


def records(count: int) -> Iterator[Record]:
    for number in range(count):
        key = str(4_471_902 + 7919 * number).encode()
        yield Record(
            Coordinates("hl7.raw", number % 3, number), adt(number), key, (TRACE,), 1_710_426_612_345, topic_id="t1"
        )


def finish(process: Process, marks: OutputMarks, record: Record, project: str = "") -> tuple[FinishedRecord, bytes]:
    """The finished record and its line in the audit."""
    job = Job(record.payload, record.key, record.headers, source=record.coordinates.topic, project=project)
    result = process(job)
    assert isinstance(result, Processed), result
    done = Completed(result)
    finished = finish_record(record, done, marks)
    return finished, encode_entry(make_audit_entry(finished, done, project), "build", 1_710_426_613.0)


def digest_of_outputs(process: Process, marks: OutputMarks, count: int) -> str:
    """SHA-256 of every byte that leaves for the records: outputs with keys, headers and times, and the audit."""
    total = hashlib.sha256()
    for record in records(count):
        finished, line = finish(process, marks, record)
        assert finished.output is not None
        out = finished.output
        total.update(repr((out.payload, out.key, out.headers, out.timestamp_ms, line)).encode())
    return total.hexdigest()

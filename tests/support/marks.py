"""The id and the time that outputs get in tests."""

from support.keys import KEY

from deid_agent.agent import DEID_ID, Coordinates, FinishedRecord, Headers, Outcome, Output, OutputMarks, Record
from deid_agent.model import RecordTime

MARKS = OutputMarks(KEY, RecordTime.DAY)
"""Under the key of the agents that tests start as processes."""


def id_header(at: Coordinates, marks: OutputMarks = MARKS) -> tuple[str, bytes]:
    """The header that names the record at ``at``."""
    return DEID_ID, marks.id_of(at).encode()


def ids_of(topic: str, partitions: int, count: int, topic_id: str) -> dict[str, Coordinates]:
    """The records of a topic with ``count`` records in each partition, by their ids."""
    coordinates = (Coordinates(topic, number, offset) for number in range(partitions) for offset in range(count))
    return {MARKS.id_of(at, topic_id): at for at in coordinates}


def published_output(record: Record, payload: bytes, key: bytes | None, headers: Headers = ()) -> FinishedRecord:
    """``record`` as an agent finishes it: with its id, and with the time of its day."""
    marked = (*headers, id_header(record.coordinates))
    output = Output(payload, key, marked, MARKS.time.coarsen(record.timestamp_ms))
    return FinishedRecord(record, Outcome.PUBLISHED, output, id=MARKS.id_of(record.coordinates))

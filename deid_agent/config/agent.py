"""The agent itself, and what it keeps of its work: dead letters and audit."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from deid_agent.config.section import Count, Seconds, Section


class AgentSettings(Section):
    """How much runs at once, and for how long."""

    workers: Annotated[int, Field(ge=0, le=256)] = Field(
        default=2, description="worker processes; 0 runs in the agent's own process (tests only)"
    )
    deadline_s: Seconds = Field(default=60.0, description="longest time for one message before its worker is replaced")
    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="tries of a message whose worker died, before it is dead-lettered as POISON"
    )
    max_in_flight: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=512, description="records at work per partition before it is paused"
    )
    batch: Count = Field(default=100, description="most records settled at once (one transaction)")
    drain_s: Seconds = Field(default=20.0, description="time to finish work on a rebalance; a stop is over by then")
    start_s: Seconds = Field(default=60.0, description="time for the broker to answer at the start, before giving up")
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024, description="larger messages are dead-lettered as RESOURCE"
    )
    validate_output: bool = Field(
        default=False, description="check with hl7apy and fhir.resources that no output is less valid than its input"
    )


class DeadLetterSettings(Section):
    """How refused messages are kept, and how many are too many. One of the first two must be said."""

    public_key: Path | None = Field(
        default=None, description="they are sealed to the key in this .pub file of `deid-agent letters keygen`"
    )
    plain: bool = Field(default=False, description="they are kept in the clear, with all PHI; in place of a key")
    ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description="most dead letters among the last 1,000 records of a partition; one more stops the agent",
    )
    run: Count = Field(default=500, description="most dead letters in a row of one partition; one more stops the agent")


class AuditSettings(Section):
    """What was done, without a value."""

    path: Path = Field(description="a folder: chained lines in segments, synced before any position moves")
    checkpoint_s: Seconds = Field(default=1.0, description="time after which what was written is signed, at the latest")
    segment_bytes: Annotated[int, Field(ge=65_536)] = Field(
        default=64 * 1024 * 1024, description="size at which a segment ends and the next begins"
    )
    topic: str | None = Field(
        default=None, min_length=1, description="Kafka topic that gets every entry too, with the outputs"
    )

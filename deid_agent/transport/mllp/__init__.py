"""HL7 v2 over MLLP as a source, a sink and a dead-letter store."""

from deid_agent.transport.mllp.connection import listener_context, sender_context
from deid_agent.transport.mllp.dead_letters import MllpDeadLetters
from deid_agent.transport.mllp.listener import explain_listen_error
from deid_agent.transport.mllp.numbers import numbers_file, read_numbers
from deid_agent.transport.mllp.protocol import AckResult
from deid_agent.transport.mllp.sender import MllpSink, explain_connect_error
from deid_agent.transport.mllp.source import MllpTransport

__all__ = [
    "AckResult",
    "MllpDeadLetters",
    "MllpSink",
    "MllpTransport",
    "explain_connect_error",
    "explain_listen_error",
    "listener_context",
    "numbers_file",
    "read_numbers",
    "sender_context",
]

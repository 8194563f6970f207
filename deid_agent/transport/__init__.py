"""Transports: they deliver records to the agent and commit finished ones. Each package here implements one.

kafka/ is a member of a consumer group with one writer for each assigned partition, folder/ reads and writes files,
mllp/ listens for HL7 v2 connections, and http.py takes the requests of the HTTP server. ``Sink`` and ``SinkTransport``
(sinks.py) combine the input of one transport with the output of another.

To add a transport: implement ``Transport`` from ``deid_agent.agent`` (and ``KnowsLag`` if the lag is known), build dead
letters with a ``DeadLetterSealer``, implement ``DeadLetterStore`` so that they can be listed and replayed, and raise
only the errors of ``deid_agent.model``. Give it a section in ``deid_agent.config`` and a branch in
``deid_agent.cli.service``. Its tests subclass ``TransportContract`` (tests/support/transport_contract.py), which checks
order, positions, redelivery, dead letters and pausing.
"""

from deid_agent.transport.http import HttpTransport, RequestSlot
from deid_agent.transport.sinks import Sink, SinkTransport
from deid_agent.transport.tls import server_context

__all__ = [
    "HttpTransport",
    "RequestSlot",
    "Sink",
    "SinkTransport",
    "server_context",
]

"""The HTTP server of a running agent: health, metrics and the console."""

from deid_agent.http.access import AccessSettings
from deid_agent.http.console import CONSOLE_LIMITS, console_routes
from deid_agent.http.history import History
from deid_agent.http.playground_process import PLAYGROUND_BYTES, PlaygroundProcess
from deid_agent.http.server import OperatorServer, operator_routes
from deid_agent.http.views import ConsoleSources

__all__ = [
    "CONSOLE_LIMITS",
    "PLAYGROUND_BYTES",
    "AccessSettings",
    "ConsoleSources",
    "History",
    "OperatorServer",
    "PlaygroundProcess",
    "console_routes",
    "operator_routes",
]

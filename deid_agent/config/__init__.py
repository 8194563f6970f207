"""One frozen ``Settings`` from flags, environment and a TOML file, in that order of precedence.

Unknown keys are errors, in the file and in the environment: a mistyped
``DEID_POLCY`` that silently ran the default policy would leak.
"""

from deid_agent.config.agent import AgentSettings, AuditSettings, DeadLetterSettings
from deid_agent.config.directory import DirectorySettings
from deid_agent.config.http import HttpSettings
from deid_agent.config.kafka import DeliveryKind, KafkaSettings
from deid_agent.config.loading import load, refuse_unknown_variables
from deid_agent.config.mllp import MllpOutSettings, MllpSettings
from deid_agent.config.settings import Settings, TransportKind
from deid_agent.config.shown import Told, told

__all__ = [
    "AgentSettings",
    "AuditSettings",
    "DeadLetterSettings",
    "DeliveryKind",
    "DirectorySettings",
    "HttpSettings",
    "KafkaSettings",
    "MllpOutSettings",
    "MllpSettings",
    "Settings",
    "Told",
    "TransportKind",
    "load",
    "refuse_unknown_variables",
    "told",
]

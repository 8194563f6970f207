"""Settings as one frozen ``Settings``, and the secret key.

Options take precedence over the environment, which takes precedence over the TOML file. Unknown keys are errors, in the
file and in the environment. The names that need pydantic are imported when they are first used: commands that read no
settings file start without it.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.config.environment import (
    RENAMED,
    limit_blas_threads,
    limit_loaded_blas,
    refuse_unknown_variables,
    variable_name,
)
from deid_agent.config.secrets import DEMO_KEY, SecretKey, load_key, read_secret_file

if TYPE_CHECKING:
    from deid_agent.config.envelopes import EnvelopeFile, EnvelopeSettings, load_envelope
    from deid_agent.config.http_service import (
        LOCAL_CLIENT,
        ClientPermissions,
        ClientToken,
        ServiceSettings,
        is_client_name,
    )
    from deid_agent.config.key_sources import (
        KeySettings,
        KeySource,
        derive_key,
        load_named_key,
        load_project_keys,
    )
    from deid_agent.config.loading import load_settings
    from deid_agent.config.projects import CrosswalkSettings, Feed, ProjectSettings, RouteSettings, http_topic
    from deid_agent.config.registry import RegistrySettings
    from deid_agent.config.service import (
        AgentSettings,
        AuditSettings,
        DeadLetterSettings,
        HttpSettings,
        ShownSetting,
        shown_settings,
    )
    from deid_agent.config.service_jobs import JobCodes, JobSettings, ProjectJobSettings
    from deid_agent.config.settings import Settings, TransportKind
    from deid_agent.config.smart import SmartClientSettings, SmartMode, SmartSettings
    from deid_agent.config.transports import (
        Delivery,
        DirectorySettings,
        FailureReply,
        KafkaSettings,
        MllpOutSettings,
        MllpSettings,
    )

__all__ = [
    "DEMO_KEY",
    "LOCAL_CLIENT",
    "RENAMED",
    "AgentSettings",
    "AuditSettings",
    "ClientPermissions",
    "ClientToken",
    "CrosswalkSettings",
    "DeadLetterSettings",
    "Delivery",
    "DirectorySettings",
    "EnvelopeFile",
    "EnvelopeSettings",
    "FailureReply",
    "Feed",
    "HttpSettings",
    "JobCodes",
    "JobSettings",
    "KafkaSettings",
    "KeySettings",
    "KeySource",
    "MllpOutSettings",
    "MllpSettings",
    "ProjectJobSettings",
    "ProjectSettings",
    "RegistrySettings",
    "RouteSettings",
    "SecretKey",
    "ServiceSettings",
    "Settings",
    "ShownSetting",
    "SmartClientSettings",
    "SmartMode",
    "SmartSettings",
    "TransportKind",
    "derive_key",
    "http_topic",
    "is_client_name",
    "limit_blas_threads",
    "limit_loaded_blas",
    "load_envelope",
    "load_key",
    "load_named_key",
    "load_project_keys",
    "load_settings",
    "read_secret_file",
    "refuse_unknown_variables",
    "shown_settings",
    "variable_name",
]

_LAZY = {
    "envelopes": ("EnvelopeFile", "EnvelopeSettings", "load_envelope"),
    "http_service": ("LOCAL_CLIENT", "ClientPermissions", "ClientToken", "ServiceSettings", "is_client_name"),
    "key_sources": ("KeySettings", "KeySource", "derive_key", "load_named_key", "load_project_keys"),
    "loading": ("load_settings",),
    "projects": ("CrosswalkSettings", "Feed", "ProjectSettings", "RouteSettings", "http_topic"),
    "registry": ("RegistrySettings",),
    "service": (
        "AgentSettings",
        "AuditSettings",
        "DeadLetterSettings",
        "HttpSettings",
        "ShownSetting",
        "shown_settings",
    ),
    "service_jobs": ("JobCodes", "JobSettings", "ProjectJobSettings"),
    "settings": ("Settings", "TransportKind"),
    "smart": ("SmartClientSettings", "SmartMode", "SmartSettings"),
    "transports": (
        "Delivery",
        "DirectorySettings",
        "FailureReply",
        "KafkaSettings",
        "MllpOutSettings",
        "MllpSettings",
    ),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)

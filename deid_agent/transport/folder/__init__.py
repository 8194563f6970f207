"""A folder of files as a source, a sink and a dead-letter store."""

from deid_agent.transport.folder.dead_letters import FolderDeadLetters
from deid_agent.transport.folder.files import (
    FolderSink,
    Skipped,
    can_hold_files,
    check_audit_folder,
    check_transport_folders,
    is_nested,
    walk_files,
)
from deid_agent.transport.folder.journal import read_journal
from deid_agent.transport.folder.source import FolderTransport

__all__ = [
    "FolderDeadLetters",
    "FolderSink",
    "FolderTransport",
    "Skipped",
    "can_hold_files",
    "check_audit_folder",
    "check_transport_folders",
    "is_nested",
    "read_journal",
    "walk_files",
]

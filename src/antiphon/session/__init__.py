"""Sessions: when an agent is saved, where, and how it comes back."""

from antiphon.session.base import SessionManager
from antiphon.session.health import SaveHealth
from antiphon.session.snapshots import OnSaveError, SaveLatestStrategy, SnapshotSessionManager, SnapshotTrigger

__all__ = [
    "OnSaveError",
    "SaveHealth",
    "SaveLatestStrategy",
    "SessionManager",
    "SnapshotSessionManager",
    "SnapshotTrigger",
]

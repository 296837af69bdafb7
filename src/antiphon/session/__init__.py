"""Sessions: when an agent is saved, where, and how it comes back."""

from antiphon.session.base import SessionManager
from antiphon.session.health import SaveHealth
from antiphon.session.snapshots import OnSaveError, SaveLatestStrategy, SnapshotSessionManager, SnapshotTrigger
from antiphon.session.tree import SessionTree, SnapshotNode, read_tree

__all__ = [
    "OnSaveError",
    "SaveHealth",
    "SaveLatestStrategy",
    "SessionManager",
    "SessionTree",
    "SnapshotNode",
    "SnapshotSessionManager",
    "SnapshotTrigger",
    "read_tree",
]

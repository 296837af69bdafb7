"""Session stores: the contract `SessionStore`, and what fulfils it."""

from antiphon.store.base import (
    ANY_TIP,
    IdempotencyReader,
    Lease,
    PruneReport,
    SessionCatalogue,
    SessionExporter,
    SessionInfo,
    SessionLease,
    SessionPage,
    SessionRedactor,
    SessionSnapshot,
    SessionStore,
    SnapshotMetadataReader,
    SnapshotPage,
    SnapshotStatus,
    SnapshotSubscriber,
    Tip,
    add_usage,
    with_expiry,
)
from antiphon.store.line_store import LineStore
from antiphon.store.memory import InMemorySessionStore
from antiphon.store.messages import StoredMessages
from antiphon.store.opening import open_store
from antiphon.store.sync import SyncSessionStore

__all__ = [
    "ANY_TIP",
    "IdempotencyReader",
    "InMemorySessionStore",
    "Lease",
    "LineStore",
    "PruneReport",
    "SessionCatalogue",
    "SessionExporter",
    "SessionInfo",
    "SessionLease",
    "SessionPage",
    "SessionRedactor",
    "SessionSnapshot",
    "SessionStore",
    "SnapshotMetadataReader",
    "SnapshotPage",
    "SnapshotStatus",
    "SnapshotSubscriber",
    "StoredMessages",
    "SyncSessionStore",
    "Tip",
    "add_usage",
    "open_store",
    "with_expiry",
]

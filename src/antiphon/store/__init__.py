"""Session stores: the contract `SessionStore`, and what fulfils it. Names are loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.store.base import (
        ANY_TIP,
        Change,
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
    from antiphon.store.file.store import FileSessionStore
    from antiphon.store.genkit import GenkitImport, import_genkit_folder
    from antiphon.store.line_store import LineStore
    from antiphon.store.lineage import SnapshotTree, session_tree, snapshot_diff
    from antiphon.store.memory import InMemorySessionStore
    from antiphon.store.messages import StoredMessages
    from antiphon.store.opening import open_store
    from antiphon.store.plain import decode_row, encode_row, settled_row
    from antiphon.store.postgres.session_store import PostgresSessionStore
    from antiphon.store.sqlite.store import SQLiteSessionStore
    from antiphon.store.sync import SyncSessionStore
else:
    _NAMES = {
        "ANY_TIP": "antiphon.store.base",
        "Change": "antiphon.store.base",
        "FileSessionStore": "antiphon.store.file.store",
        "GenkitImport": "antiphon.store.genkit",
        "IdempotencyReader": "antiphon.store.base",
        "InMemorySessionStore": "antiphon.store.memory",
        "Lease": "antiphon.store.base",
        "LineStore": "antiphon.store.line_store",
        "PostgresSessionStore": "antiphon.store.postgres.session_store",
        "PruneReport": "antiphon.store.base",
        "SQLiteSessionStore": "antiphon.store.sqlite.store",
        "SessionCatalogue": "antiphon.store.base",
        "SessionExporter": "antiphon.store.base",
        "SessionInfo": "antiphon.store.base",
        "SessionLease": "antiphon.store.base",
        "SessionPage": "antiphon.store.base",
        "SessionRedactor": "antiphon.store.base",
        "SessionSnapshot": "antiphon.store.base",
        "SessionStore": "antiphon.store.base",
        "SnapshotMetadataReader": "antiphon.store.base",
        "SnapshotPage": "antiphon.store.base",
        "SnapshotStatus": "antiphon.store.base",
        "SnapshotSubscriber": "antiphon.store.base",
        "SnapshotTree": "antiphon.store.lineage",
        "StoredMessages": "antiphon.store.messages",
        "SyncSessionStore": "antiphon.store.sync",
        "Tip": "antiphon.store.base",
        "add_usage": "antiphon.store.base",
        "decode_row": "antiphon.store.plain",
        "encode_row": "antiphon.store.plain",
        "import_genkit_folder": "antiphon.store.genkit",
        "open_store": "antiphon.store.opening",
        "session_tree": "antiphon.store.lineage",
        "settled_row": "antiphon.store.plain",
        "snapshot_diff": "antiphon.store.lineage",
        "with_expiry": "antiphon.store.base",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "ANY_TIP",
    "Change",
    "FileSessionStore",
    "GenkitImport",
    "IdempotencyReader",
    "InMemorySessionStore",
    "Lease",
    "LineStore",
    "PostgresSessionStore",
    "PruneReport",
    "SQLiteSessionStore",
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
    "SnapshotTree",
    "StoredMessages",
    "SyncSessionStore",
    "Tip",
    "add_usage",
    "decode_row",
    "encode_row",
    "import_genkit_folder",
    "open_store",
    "session_tree",
    "settled_row",
    "snapshot_diff",
    "with_expiry",
]

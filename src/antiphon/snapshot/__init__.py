"""Snapshots: the versioned envelope, which fields go in, how they are checked and how they get to disk."""

from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot, encode_snapshot_parts, read_parent_id
from antiphon.snapshot.fields import LIVE, TURNS, AgentKind, SnapshotField, SnapshotPreset, resolve_fields
from antiphon.snapshot.ledger import MessageLedger
from antiphon.snapshot.upgrade import register_upgrade

__all__ = [
    "LIVE",
    "SCHEMA_VERSION",
    "TURNS",
    "AgentKind",
    "MessageLedger",
    "Snapshot",
    "SnapshotField",
    "SnapshotPreset",
    "encode_snapshot_parts",
    "read_parent_id",
    "register_upgrade",
    "resolve_fields",
]

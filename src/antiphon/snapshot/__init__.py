"""Snapshots: the versioned envelope, which fields go in, how they are checked and how they get to disk."""

from antiphon.snapshot.diff import SnapshotDiff, diff_snapshots
from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot, encode_snapshot_parts, read_parent_id
from antiphon.snapshot.fields import LIVE, TURNS, AgentKind, SnapshotField, SnapshotPreset, resolve_fields
from antiphon.snapshot.ledger import MessageLedger
from antiphon.snapshot.patch import JsonPatch, apply_patch, make_patch
from antiphon.snapshot.upgrade import register_upgrade

__all__ = [
    "LIVE",
    "SCHEMA_VERSION",
    "TURNS",
    "AgentKind",
    "JsonPatch",
    "MessageLedger",
    "Snapshot",
    "SnapshotDiff",
    "SnapshotField",
    "SnapshotPreset",
    "apply_patch",
    "diff_snapshots",
    "encode_snapshot_parts",
    "make_patch",
    "read_parent_id",
    "register_upgrade",
    "resolve_fields",
]

"""Rows in one piece: what a store of one's own needs that keeps every row whole."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from antiphon.errors import CorruptStoreError, StaleEpochError, TerminalStatusError
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import IN_FLIGHT, SessionSnapshot
from antiphon.store.rows import check_row

_TIMES = ("created_at", "updated_at", "heartbeat_at")


def settled_row(snapshot_id: str, before: SessionSnapshot | None, wanted: object) -> SessionSnapshot:
    """What a store has to keep when `fn` returned `wanted`.

    Args:
        snapshot_id: The row's id, which is the store's decision.
        before: The row as it is stored; None when it is new.
        wanted: What `fn` gave; not None.

    Raises:
        SessionRowError: If it cannot be stored.
        TerminalStatusError: If the row has settled and the status would change.
        StaleEpochError: If the row belongs to a later epoch.
    """
    row = check_row(wanted, snapshot_id, None if before is None else before.session_id)
    status = row.status or "completed"
    if before is not None:
        if before.status not in IN_FLIGHT and status != before.status:
            raise TerminalStatusError(snapshot_id, before.status, status)
        if row.epoch < before.epoch:
            raise StaleEpochError(snapshot_id, row.epoch, before.epoch)
    session_id = row.session_id if before is None else before.session_id
    return replace(row, snapshot_id=snapshot_id, session_id=session_id, status=status)


def encode_row(row: SessionSnapshot) -> bytes:
    """A row as JSON.

    Raises:
        NotJsonError: If a part cannot be stored; with its path.
    """
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(row)}
    loaded = row.loaded()
    values["snapshot"] = None if loaded is None else loaded.to_dict()
    for name in _TIMES:
        values[name] = None if values[name] is None else values[name].astimezone(UTC).isoformat()
    return encode_json({name: copy_json(value, name) for name, value in values.items()})


def decode_row(data: bytes) -> SessionSnapshot:
    """The row that `encode_row` wrote; it is the caller's own.

    Raises:
        CorruptStoreError: If `data` is something else.
    """
    try:
        values: dict[str, Any] = decode_json(data)
        for name in _TIMES:
            values[name] = None if values[name] is None else datetime.fromisoformat(values[name])
        if values["snapshot"] is not None:
            values["snapshot"] = Snapshot.from_dict(values["snapshot"])
        return SessionSnapshot(**values)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptStoreError(f"a row cannot be read: {error}") from error

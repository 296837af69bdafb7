"""Waiting for a row to settle."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import cast

from antiphon.bounded import within
from antiphon.clock import Clock
from antiphon.errors import SessionStoreError, SnapshotNotFoundError
from antiphon.store.base import (
    SessionSnapshot,
    SessionStore,
    SnapshotMetadataReader,
    SnapshotStatus,
    SnapshotSubscriber,
)

_POLL_S = 2.0
"""How often a row is read where no store tells of changes."""
_LIVENESS_S = 15.0
"""How often it is read where one does: nothing is written when a worker falls silent."""
_SHORTEST_S = 0.05
_WATCH_S = 0.5
"""How often a worker looks whether it is to end, where the store does not tell it."""

_log = logging.getLogger(__name__)


async def settled(store: SessionStore, snapshot_id: str, *, clock: Clock, expire_after: float) -> SessionSnapshot:
    """The row, once it is settled, or its worker has gone silent (`status_at` says `expired` then).

    Raises:
        SnapshotNotFoundError: If the row is not there (any more).
    """
    while True:
        row = await _glance(store, snapshot_id)
        if row is None:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
        now = clock.utc()
        if row.terminal or row.status_at(now, expires_after=expire_after) == "expired":
            whole = await store.get_snapshot(snapshot_id)
            if whole is None:
                raise SnapshotNotFoundError("snapshot", snapshot_id)
            if whole.terminal or whole.status_at(now, expires_after=expire_after) == "expired":
                return whole
            continue  # its worker has come back
        pause = _LIVENESS_S
        if row.heartbeat_at is not None:
            pause = min(pause, expire_after - (now - row.heartbeat_at).total_seconds() + _SHORTEST_S)
        if not isinstance(store, SnapshotSubscriber):
            await clock.sleep(min(_POLL_S, pause))
            continue
        with suppress(TimeoutError):
            await within(clock, max(pause, _SHORTEST_S), _changed(store, snapshot_id, row.status))


async def _glance(store: SessionStore, snapshot_id: str) -> SessionSnapshot | None:
    if isinstance(store, SnapshotMetadataReader):
        return await store.get_snapshot_metadata(snapshot_id)
    return await store.get_snapshot(snapshot_id)


async def _changed(store: SnapshotSubscriber, snapshot_id: str, known: str) -> None:
    statuses = cast("AsyncGenerator[SnapshotStatus, None]", store.on_snapshot_status_change(snapshot_id))
    async with aclosing(statuses):
        async for status in statuses:
            if status != known:
                return


async def told_to_end(store: SessionStore, snapshot_id: str, *, clock: Clock) -> str | None:
    """The row's status, once it is no longer `pending`; None when the row is not there (any more)."""
    while True:
        try:
            if isinstance(store, SnapshotSubscriber):
                statuses = cast("AsyncGenerator[SnapshotStatus, None]", store.on_snapshot_status_change(snapshot_id))
                async with aclosing(statuses):
                    async for status in statuses:
                        if status != "pending":
                            return status
                return None
            row = await _glance(store, snapshot_id)
            if row is None or row.status not in {"pending", "expired"}:
                return None if row is None else row.status
        except SessionStoreError as error:
            _log.warning("whether %r is to end cannot be told for now: %s", snapshot_id, error)
        await clock.sleep(_WATCH_S)

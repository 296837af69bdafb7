"""Session stores for plain code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from antiphon.snapshot.diff import SnapshotDiff
from antiphon.store.base import (
    ANY_TIP,
    Change,
    PruneReport,
    RedactMessage,
    RedactPart,
    SessionPage,
    SessionSnapshot,
    SnapshotPage,
    SnapshotStatus,
    Tip,
)
from antiphon.store.core import StoreCore
from antiphon.store.export import export_lines, import_rows, parse_export
from antiphon.store.lineage import PAGE, SnapshotTree, difference, tree_of
from antiphon.store.operations import (
    delete_session,
    erasure_pending,
    get,
    keyed,
    latest,
    list_sessions,
    list_snapshots,
    prune,
    query_of,
    redact,
    sweep,
)
from antiphon.store.saving import save
from antiphon.store.tenants import Prefix, current_tenant


class SyncSessionStore:
    """A store's operations, each of which blocks until it is done; also inside a running event loop.

    They are the same operations on the same threads (`LineStore.sync`). Waiting for a status or for one's turn is for
    coroutines only.
    """

    __slots__ = ("_core", "_prefix")

    def __init__(self, core: StoreCore, prefix: Prefix) -> None:
        self._core, self._prefix = core, prefix

    def get_snapshot(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return self._core.run_blocking(get(self._core, self._tenant(), snapshot_id))

    def get_latest_snapshot(self, session_id: str, /, *, agent_id: str | None = None) -> SessionSnapshot | None:
        return self._core.run_blocking(latest(self._core, self._tenant(), session_id, agent_id))

    def save_snapshot(
        self, snapshot_id: str, fn: Change, /, *, expected_tip: str | Tip | None = ANY_TIP
    ) -> SessionSnapshot | None:
        return self._core.run_blocking(save(self._core.known, self._tenant(), snapshot_id, fn, expected_tip))

    def get_snapshot_metadata(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return self._core.run_blocking(get(self._core, self._tenant(), snapshot_id, state=False))

    def get_latest_snapshot_metadata(
        self, session_id: str, /, *, agent_id: str | None = None
    ) -> SessionSnapshot | None:
        return self._core.run_blocking(latest(self._core, self._tenant(), session_id, agent_id, state=False))

    def get_snapshot_by_key(self, idempotency_key: str, /) -> SessionSnapshot | None:
        return self._core.run_blocking(keyed(self._core, self._tenant(), idempotency_key))

    def list_sessions(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: SnapshotStatus | None = None,
        agent_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> SessionPage:
        query = query_of(limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until)
        return self._core.run_blocking(list_sessions(self._core, self._tenant(), query, status))

    def list_snapshots(
        self,
        session_id: str,
        /,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: SnapshotStatus | None = None,
        agent_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> SnapshotPage:
        query = query_of(limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until)
        return self._core.run_blocking(list_snapshots(self._core, self._tenant(), session_id, query, status))

    def tree(self, session_id: str, /) -> SnapshotTree:
        rows: list[SessionSnapshot] = []
        pinned = SyncSessionStore(self._core, self._tenant())
        page = pinned.list_snapshots(session_id, limit=PAGE)
        while page.cursor is not None:
            rows += page.snapshots
            page = pinned.list_snapshots(session_id, limit=PAGE, cursor=page.cursor)
        return tree_of(session_id, [*rows, *page.snapshots])

    def diff(self, one: str, other: str, /) -> SnapshotDiff:
        pinned = SyncSessionStore(self._core, self._tenant())
        return difference((one, pinned.get_snapshot(one)), (other, pinned.get_snapshot(other)))

    def delete_session(self, session_id: str, /) -> bool:
        return self._core.run_blocking(delete_session(self._core, self._tenant(), session_id))

    def prune(
        self,
        session_id: str,
        /,
        *,
        keep: int | None = None,
        older_than: datetime | None = None,
        max_bytes: int | None = None,
    ) -> PruneReport:
        return self._core.run_blocking(
            prune(self._tenant(), session_id, keep=keep, older_than=older_than, max_bytes=max_bytes)
        )

    def sweep(self, session_id: str | None = None, /, *, grace: float = 0.0) -> int:
        return self._core.run_blocking(sweep(self._core, self._tenant(), session_id, grace))

    def export(self, session_id: str, /) -> Iterator[bytes]:
        return iter(self._core.run_blocking(export_lines(self._tenant(), session_id)))

    def import_(self, lines: Iterable[bytes], /) -> str:
        return self._core.run_blocking(import_rows(self._tenant(), parse_export(lines)))

    def redact(self, session_id: str, message: RedactMessage, /, *, part: RedactPart | None = None) -> int:
        return self._core.run_blocking(redact(self._core, self._tenant(), session_id, message, part))

    def erasure_pending(self) -> bool:
        return self._core.run_blocking(erasure_pending(self._tenant()))

    def _tenant(self) -> str:
        return current_tenant(self._prefix)

"""Reading and branching what is stored, as it may leave the server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from antiphon.clock import Clock
from antiphon.errors import InvalidInputError, NotResumableError, NotSupportedError, SnapshotNotFoundError
from antiphon.ids import check_id, new_uuid7
from antiphon.runner.outputs import RunError
from antiphon.runner.presenting import StateTransform, TransformContext, shaped, shaped_error
from antiphon.store.base import SessionCatalogue, SessionSnapshot, SessionStore, SnapshotMetadataReader, with_expiry
from antiphon.store.lineage import SnapshotTree, session_tree, tree_of

_SHOWN = ("messages", "state", "artifacts", "interrupt_state", "state_version")


@dataclass(frozen=True, slots=True)
class Reader:
    """Shows the rows of a store.

    Attributes:
        store: The store.
        agent_id: Whose latest rows are shown.
        clock: Tells whether a worker has gone silent.
        expire_after: Seconds without a heartbeat after which it has.
        transform: Shapes what leaves the server.
    """

    store: SessionStore
    agent_id: str
    clock: Clock
    expire_after: float
    transform: StateTransform | None

    async def by_id(self, snapshot_id: str, session_id: str | None, *, metadata_only: bool) -> SessionSnapshot:
        """A row as it may leave.

        Raises:
            SnapshotNotFoundError: If there is none of this id.
            InvalidInputError: If it is another session's.
            StateTransformError: If it could not be shaped.
        """
        check_id("snapshot_id", snapshot_id)
        if metadata_only and isinstance(self.store, SnapshotMetadataReader):
            row = await self.store.get_snapshot_metadata(snapshot_id)
        else:
            row = await self.store.get_snapshot(snapshot_id)
        if row is None:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
        if session_id is not None and row.session_id != session_id:
            raise InvalidInputError(f"snapshot {snapshot_id!r} does not belong to session {session_id!r}")
        return await self.shown(row, metadata_only=metadata_only)

    async def latest(self, session_id: str, *, metadata_only: bool) -> SessionSnapshot:
        """The newest row of a session, as it may leave.

        Raises:
            SnapshotNotFoundError: If the session has none.
            StateTransformError: If it could not be shaped.
        """
        check_id("session_id", session_id)
        if metadata_only and isinstance(self.store, SnapshotMetadataReader):
            row = await self.store.get_latest_snapshot_metadata(session_id, agent_id=self.agent_id)
        else:
            row = await self.store.get_latest_snapshot(session_id, agent_id=self.agent_id)
        if row is None:
            raise SnapshotNotFoundError("session", session_id)
        return await self.shown(row, metadata_only=metadata_only)

    async def settled(self, session_id: str | None, snapshot_id: str | None) -> SessionSnapshot:
        """A row whose run has ended, as it is stored: this one, or the session's newest.

        Raises:
            InvalidInputError: If neither is given, or the row is another session's, or another agent's.
            SnapshotNotFoundError: If there is no such row.
            NotResumableError: If its run has not ended.
        """
        if snapshot_id is not None:
            row = await self.store.get_snapshot(check_id("snapshot_id", snapshot_id))
        elif session_id is not None:
            row = await self.store.get_latest_snapshot(check_id("session_id", session_id), agent_id=self.agent_id)
        else:
            raise InvalidInputError("give a session_id or a snapshot_id")
        if row is None:
            raise SnapshotNotFoundError(
                "session" if snapshot_id is None else "snapshot", snapshot_id or session_id or ""
            )
        if session_id is not None and row.session_id != session_id:
            raise InvalidInputError(f"snapshot {snapshot_id!r} does not belong to session {session_id!r}")
        if row.agent_id not in {None, self.agent_id}:
            raise InvalidInputError(f"snapshot {row.snapshot_id!r} is of agent {row.agent_id!r}, not {self.agent_id!r}")
        if not row.terminal:
            status = row.status_at(self.clock.utc(), expires_after=self.expire_after)
            raise NotResumableError(row.snapshot_id, status, "its run has not ended: wait for it", row.snapshot_id)
        return row

    async def shown(self, row: SessionSnapshot, *, metadata_only: bool = False) -> SessionSnapshot:
        """A row as it may leave, with the defaults of its times and its present status."""
        row = with_expiry(row, self.clock.utc(), self.expire_after)
        row = replace(row, updated_at=row.updated_at or row.created_at)
        if metadata_only:
            row = replace(row, snapshot=None, journal=None)
        if self.transform is None:
            return row
        snapshot = row.loaded()
        view: dict[str, Any] = {}
        if snapshot is not None:
            view = {name: snapshot.data[name] for name in _SHOWN if name in snapshot.data}
            view["app_data"] = snapshot.app_data
        error = None if row.error is None else RunError.from_dict(row.error)
        if error is not None:
            view["error"] = error.to_dict()
        left = await shaped(self.transform, view, TransformContext(row.session_id, row.snapshot_id, "snapshot"))
        told = shaped_error(error, left or {})
        if snapshot is not None:
            data = {name: value for name, value in (left or {}).items() if name in _SHOWN}
            app_data = (left or {}).get("app_data")
            snapshot = replace(
                snapshot, data=data, app_data=cast("dict[str, Any]", app_data) if isinstance(app_data, dict) else {}
            )
        # The journal holds messages that nobody has shaped.
        return replace(
            row,
            snapshot=None if left is None else snapshot,
            journal=None,
            error=None if told is None else told.to_dict(),
        )

    async def tree(self, session_id: str) -> SnapshotTree:
        """A session as a tree, its rows as they may leave.

        Raises:
            NotSupportedError: If the store lists no rows.
            StateTransformError: If a row could not be shaped.
        """
        if not isinstance(self.store, SessionCatalogue):
            raise NotSupportedError(f"{type(self.store).__name__} lists no rows, and so tells no tree")
        tree = await session_tree(self.store, check_id("session_id", session_id))
        return tree_of(session_id, [await self.shown(row, metadata_only=True) for row in tree.rows])

    async def branch(self, snapshot_id: str, new_session_id: str | None) -> SessionSnapshot:
        """Begin a session of its own with the state of a row.

        Raises:
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If it is another agent's, which a run of this one would not find in the new session.
            NotResumableError: If it holds no settled state.
            SessionConflictError: If the new session is there already.
        """
        row = await self.store.get_snapshot(check_id("snapshot_id", snapshot_id))
        if row is None:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
        if row.agent_id not in {None, self.agent_id}:
            raise InvalidInputError(f"snapshot {snapshot_id!r} is of agent {row.agent_id!r}, not {self.agent_id!r}")
        if not row.terminal or row.snapshot is None:
            raise NotResumableError(
                snapshot_id, row.status, "only a settled row with a state can be branched from", row.parent_id
            )
        session_id = new_uuid7() if new_session_id is None else check_id("new_session_id", new_session_id)
        new_id, source, now = new_uuid7(), row, self.clock.utc()

        def begin(found: SessionSnapshot | None) -> SessionSnapshot:
            return found or replace(
                source,
                snapshot_id=new_id,
                session_id=session_id,
                parent_id=source.snapshot_id,
                created_at=now,
                updated_at=now,
                owner=None,
                epoch=0,
                idempotency_key=None,
            )

        saved = await self.store.save_snapshot(new_id, begin, expected_tip=None)
        assert saved is not None  # noqa: S101 - `begin` never declines
        return await self.shown(saved)

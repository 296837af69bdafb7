"""What a run goes on from: which row, and whether one may."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.clock import Clock
from antiphon.conversation.journal import Journal
from antiphon.errors import InvalidInputError, NotResumableError, SnapshotNotFoundError
from antiphon.ids import new_uuid7
from antiphon.session.rows import Sighting
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import IN_FLIGHT, SessionSnapshot, SessionStore, SnapshotMetadataReader

DETACHED = "detached"
"""The `finish_reason` of a row in flight whose run goes on without its caller; only such a row is adopted."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a run goes on from.

    Attributes:
        session_id: The conversation.
        snapshot: The state to load; None for a new session.
        journal: What was open beside it.
        usage: Tokens of the session so far.
        row: The row; None for a new session, and where the client keeps it.
        seen: The row and the newest one, for the writer of rows.
        branches: Whether the row is not the newest, and was named: the run is a branch.
        forked: Whether the newest row was being worked on, so that the run goes on from one before it.
    """

    session_id: str
    snapshot: Snapshot | None = None
    journal: Journal | None = None
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    row: SessionSnapshot | None = None
    seen: Sighting | None = None
    branches: bool = False
    forked: bool = False


@dataclass(frozen=True, slots=True)
class Grounds:
    """Finds what runs go on from, in a store.

    Attributes:
        store: The store.
        agent_id: Whose rows.
        clock: Tells whether a worker has gone silent.
        expire_after: Seconds without a heartbeat after which it has.
        fork: Whether a run may pass by a row that is being worked on.
    """

    store: SessionStore
    agent_id: str
    clock: Clock
    expire_after: float
    fork: bool = False

    async def find(self, session_id: str | None, snapshot_id: str | None) -> Ground:
        """What a run goes on from.

        Args:
            session_id: The session; a new one, where there is none of this id.
            snapshot_id: A row; with both, it must be the session's.

        Raises:
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If the row is another session's, or another agent's.
            NotResumableError: If no turn can go on from the row.
        """
        if snapshot_id is not None:
            row = await self.store.get_snapshot(snapshot_id)
            if row is None:
                raise SnapshotNotFoundError("snapshot", snapshot_id)
            if session_id is not None and row.session_id != session_id:
                raise InvalidInputError(f"snapshot {snapshot_id!r} does not belong to session {session_id!r}")
            if row.agent_id != self.agent_id:
                raise InvalidInputError(f"snapshot {snapshot_id!r} is of agent {row.agent_id!r}, not {self.agent_id!r}")
            tip = await self.tip(row.session_id) or row
        elif session_id is not None:
            latest = await self.store.get_latest_snapshot(session_id, agent_id=self.agent_id)
            if latest is None:
                return Ground(session_id)
            row = tip = latest
        else:
            return Ground(new_uuid7())
        accepted = await self._accept(row)
        if accepted is None:
            return Ground(row.session_id, seen=Sighting(row, tip.snapshot_id, tip.created_at, 0), forked=True)
        return Ground(
            row.session_id,
            accepted.loaded(),
            None if accepted.journal is None else Journal.from_dict(accepted.journal),
            accepted.usage or {},
            accepted,
            Sighting(accepted, tip.snapshot_id, tip.created_at, 0),
            branches=snapshot_id is not None and snapshot_id != tip.snapshot_id,
            forked=accepted.snapshot_id != row.snapshot_id,
        )

    async def tip(self, session_id: str) -> SessionSnapshot | None:
        """The newest row of this agent in a session, as cheaply as the store can tell."""
        if isinstance(self.store, SnapshotMetadataReader):
            return await self.store.get_latest_snapshot_metadata(session_id, agent_id=self.agent_id)
        return await self.store.get_latest_snapshot(session_id, agent_id=self.agent_id)

    async def _accept(self, row: SessionSnapshot) -> SessionSnapshot | None:
        """The row to go on from; None: a run that forks found none. Writers of ours make no circles of parents."""
        while True:
            now = self.clock.utc()
            status = row.status_at(now, expires_after=self.expire_after)
            if status == "expired" and row.finish_reason != DETACHED:
                row = await self.seal_dead(row)
                status = row.status_at(now, expires_after=self.expire_after)
            if status in {"completed", "failed", "aborted"} and row.snapshot is not None:
                return row
            if not self.fork or status == "expired":
                raise self._refusal(row, status)
            if row.parent_id is None or (parent := await self.store.get_snapshot(row.parent_id)) is None:
                return None
            row = parent

    async def seal_dead(self, row: SessionSnapshot) -> SessionSnapshot:
        """End the row of a worker that has gone silent. What it had begun is known, and it can write no more.

        Returns:
            The row as it is now: of a worker that has come back meanwhile, as that left it.
        """
        now = self.clock.utc()

        def end(found: SessionSnapshot | None) -> SessionSnapshot | None:
            if found is None or found.status not in IN_FLIGHT or found.heartbeat_at != row.heartbeat_at:
                return None
            aborted = found.status == "aborting"
            return replace(
                found,
                status="aborted" if aborted else "failed",
                finish_reason="aborted" if aborted else "failed",
                error={"status": "ABORTED", "message": "the process that worked on this turn has gone silent"},
                heartbeat_at=None,
                updated_at=now,
                owner=None,
                epoch=found.epoch + 1,
            )

        sealed = await self.store.save_snapshot(row.snapshot_id, end)
        return sealed or await self.store.get_snapshot(row.snapshot_id) or row

    def _refusal(self, row: SessionSnapshot, status: str) -> NotResumableError:
        parent = row.parent_id
        back = "it has none, so begin a new session" if parent is None else f"resume from its parent {parent!r}"
        resume_from = parent
        match status:
            case "expired" if row.snapshot is not None:
                remedy = "its worker has gone silent: adopt it, or abort it and then resume from this same snapshot"
                resume_from = row.snapshot_id
            case "expired":
                remedy = f"its worker has gone silent: adopt it, or abort it and then {back}"
            case "aborting":
                remedy = "its worker is still winding down: wait, and then resume from this same snapshot"
                resume_from = row.snapshot_id
            case "pending":
                remedy = "a run is at work on it: wait until it has ended, or abort it"
            case _:
                remedy = f"it holds no state to go on from: {back}"
        return NotResumableError(row.snapshot_id, status, remedy, resume_from)

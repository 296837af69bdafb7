"""The row writer: keeps the newest row of an agent, in any session store, without ever forking a session silently.

A writer *begins* a row, *grows* it in place as the conversation goes on, and *seals* it; the next row descends from it. A
row that grows has an `owner`, the writer; a sealed one has none, and no writer touches it again. Nor does one touch a row
that is not the newest of its agent any more: so rows that a dead process left behind stay as they are.

Each write says which row it takes for the newest (`expected_tip`). Where somebody else has added one meanwhile, nothing is
written (`SessionConflictError`), until `restored` tells the writer on what to go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from antiphon.clock import Clock
from antiphon.errors import ContendedError, SessionConflictError, StaleEpochError
from antiphon.ids import check_id, new_uuid7
from antiphon.store.base import SessionSnapshot, SessionStore, SnapshotMetadataReader

RowChange: TypeAlias = Callable[[SessionSnapshot], SessionSnapshot]
"""Makes the next state of a row; pure, since it may be called again. Identity, lineage, owner, epoch, `created_at` and
`updated_at` are the writer's: what it says of those does not matter."""

_TRIES = 4
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a writer stands in a session.

    Attributes:
        tip: The agent's newest row, as far as the writer knows; None: there is none.
        tip_at: When that was created.
        parent: What the next row descends from.
        head: The row that grows; None: the next write begins one. It is the tip, unless a writer was told to let others
            stand after it.
    """

    tip: str | None = None
    tip_at: datetime | None = None
    parent: str | None = None
    head: str | None = None

    def moment(self, now: datetime) -> datetime:
        """When a row that is begun `now` is said to be created: after the tip, although clocks disagree."""
        return now if self.tip_at is None or now > self.tip_at else self.tip_at + _MICROSECOND

    def written(self, row: SessionSnapshot, *, sealed: bool) -> Position:
        """After `row` was begun, grown or sealed."""
        tip, tip_at = row.snapshot_id, row.created_at
        if self.head is not None and self.tip != self.head:
            tip, tip_at = self.tip or tip, self.tip_at or tip_at
        return (
            Position(tip, tip_at, row.snapshot_id) if sealed else Position(tip, tip_at, row.parent_id, row.snapshot_id)
        )


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row that was read, and the newest one at that time.

    Attributes:
        row: The row; its messages are in its snapshot.
        tip: The newest row's id.
        tip_at: When that was created.
        writes: How many rows the writer had written by then.
    """

    row: SessionSnapshot
    tip: str
    tip_at: datetime
    writes: int


class RowWriter:
    """Writes the rows of one agent in one session. One operation at a time: whoever shares it sees to that.

    Args:
        store: Where to.
        session_id: The session.
        agent_id: The agent. Tips are counted for each agent by itself.
        clock: Dates the rows.
        owner: The writer's name, different for each one that was ever made.
        epoch: Raised by whoever adopts a run.

    Attributes:
        position: Where it stands.

    Raises:
        InvalidIdError: If an id cannot name anything.
    """

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        *,
        agent_id: str,
        clock: Clock,
        owner: str | None = None,
        epoch: int = 0,
    ) -> None:
        self.store = store
        self.session_id = check_id("session_id", session_id)
        self.agent_id = check_id("agent_id", agent_id)
        self.owner = owner or new_uuid7()
        self.epoch = epoch
        self.position = Position()
        self._clock = clock
        self._writes = 0
        self._minted = new_uuid7()

    @property
    def next_id(self) -> str:
        """The row that the next write goes to: the head, or one that it will begin."""
        return self.position.head or self._minted

    async def put(self, change: RowChange, *, seal: bool = False) -> SessionSnapshot:
        """Grow the head, or begin it.

        A write that was reported as failed, although it was done, is known again by the next one.

        Args:
            change: Gets the row, a fresh one without a state if it is begun.
            seal: Whether this is its last state.

        Returns:
            The row as it is stored.

        Raises:
            SessionConflictError: If somebody else has added a row, or deleted the session. Every write is refused from
                then on, until `restored`.
            StaleEpochError: If the head was adopted by a writer of a later epoch.
            SessionStoreError: What else the store raised.
        """
        for _ in range(_TRIES):
            at, snapshot_id = self.position, self.next_id
            write = _Write(self, at, snapshot_id, change, self._clock.utc(), seal=seal)
            try:
                row = await self.store.save_snapshot(snapshot_id, write, expected_tip=at.tip)
            except SessionConflictError as error:
                if at.head is not None or error.found != snapshot_id:
                    raise
                # The write that began this row was done, but reported as failed.
                self.position = replace(at, tip=snapshot_id, head=snapshot_id)
                continue
            if row is not None:
                self._writes += 1
                self._move(at.written(row, sealed=seal))
                return row
            self._move(Position(snapshot_id, write.sealed_at or at.tip_at, snapshot_id))
        raise ContendedError(f"session {self.session_id!r}, agent {self.agent_id!r}: every row turned out to be sealed")

    def _move(self, position: Position) -> None:
        if position.head is None:
            self._minted = new_uuid7()
        self.position = position

    async def read_latest(self) -> Sighting | None:
        """The newest row. The writer's position stays as it is."""
        writes = self._writes
        row = await self.store.get_latest_snapshot(self.session_id, agent_id=self.agent_id)
        return None if row is None else Sighting(row, row.snapshot_id, row.created_at, writes)

    async def read(self, snapshot_id: str) -> Sighting | None:
        """A row of this agent; None when there is none of this id. The writer's position stays as it is."""
        writes = self._writes
        row = await self.store.get_snapshot(snapshot_id)
        if row is None or row.session_id != self.session_id or row.agent_id != self.agent_id:
            return None
        if isinstance(self.store, SnapshotMetadataReader):
            tip = await self.store.get_latest_snapshot_metadata(self.session_id, agent_id=self.agent_id)
        else:
            tip = await self.store.get_latest_snapshot(self.session_id, agent_id=self.agent_id)
        tip = tip or row
        return Sighting(row, tip.snapshot_id, tip.created_at, writes)

    def restored(self, seen: Sighting, *, grow: bool = False) -> None:
        """Go on from a row that was read: the next write begins one that descends from it.

        Where another writer's row was in the way, it is known from now on: what is written next stands after it or beside
        it, as the caller has chosen.

        Args:
            seen: The row.
            grow: Grow it further, if it is this writer's own and the newest.
        """
        row = seen.row
        tip, tip_at = seen.tip, seen.tip_at
        if self._writes != seen.writes and self.position.tip is not None:
            tip, tip_at = self.position.tip, self.position.tip_at or tip_at  # written by this one after it had looked
        if grow and row.snapshot_id == tip and row.owner == self.owner:
            self._move(Position(tip, tip_at, row.parent_id, tip))
        else:
            self._move(Position(tip, tip_at, row.snapshot_id))

    def begin_anew(self) -> None:
        """Take the session for empty."""
        self._move(Position())


class _Write:
    """`fn` of one attempt.

    Attributes:
        sealed_at: When the row was created that turned out to be sealed.
    """

    def __init__(
        self, writer: RowWriter, at: Position, snapshot_id: str, change: RowChange, now: datetime, *, seal: bool
    ) -> None:
        self.sealed_at: datetime | None = None
        self._writer, self._at, self._snapshot_id = writer, at, snapshot_id
        self._change, self._now, self._seal = change, now, seal

    def __call__(self, current: SessionSnapshot | None) -> SessionSnapshot | None:
        writer, now = self._writer, self._now
        if current is not None and current.epoch > writer.epoch:
            raise StaleEpochError(self._snapshot_id, writer.epoch, current.epoch)
        if current is not None and current.owner is None:
            self.sealed_at = current.created_at
            return None  # by a write that was reported as failed: it is not touched again
        base = current or SessionSnapshot(
            session_id=writer.session_id,
            snapshot_id=self._snapshot_id,
            agent_id=writer.agent_id,
            parent_id=self._at.parent,
            created_at=self._at.moment(now),
        )
        return replace(
            self._change(base),
            session_id=base.session_id,
            agent_id=base.agent_id,
            parent_id=base.parent_id,
            created_at=base.created_at,
            updated_at=max(now, base.created_at),
            owner=None if self._seal else writer.owner,
            epoch=writer.epoch,
        )

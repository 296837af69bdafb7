"""The rows of one run: begun when something must be known of a turn, grown with it, and sealed at its end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Literal

from antiphon.clock import Clock
from antiphon.errors import SessionConflictError, SessionStoreError
from antiphon.runner.ground import DETACHED
from antiphon.runner.outputs import FinishReason, RunError
from antiphon.session.rows import RowChange, RowWriter
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import IN_FLIGHT, SessionSnapshot, SessionStore, SnapshotMetadataReader, SnapshotStatus

_TRIES = 4
_PAUSE_S = 0.05
_AIMS = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """An agent at one moment, as a row keeps it.

    Attributes:
        snapshot: Its state.
        journal: What is open beside it; None: nothing.
        usage: Tokens of the session so far.
    """

    snapshot: Snapshot
    journal: dict[str, Any] | None
    usage: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended."""

    status: Literal["completed", "failed", "aborted"]
    finish_reason: FinishReason
    error: RunError | None = None

    @classmethod
    def failure(cls, error: BaseException) -> Ending:
        """A turn that failed."""
        return cls("failed", "failed", RunError.of(error))


class RunRows:
    """Writes the rows of a run, one for each turn.

    Args:
        writer: Writes rows; it stands where the run goes on from.
        clock: Paces retries and dates heartbeats.
        branches: Whether the run goes on from a row that was not the newest when it began: rows that others add meanwhile
            are then no conflict.
        fork: Whether a run that meets another one goes on beside it.
        idempotency_key: Marks the first row.
        detached: Whether the run goes on without its caller: its rows say so while they are in flight.

    Attributes:
        forked: Whether it met another run, and went on beside it.
    """

    def __init__(
        self,
        writer: RowWriter,
        *,
        clock: Clock,
        branches: bool = False,
        fork: bool = False,
        idempotency_key: str | None = None,
        detached: bool = False,
    ) -> None:
        self.forked = False
        self._finish_in_flight = DETACHED if detached else None
        self._writer, self._clock = writer, clock
        self._branches, self._fork = branches, fork
        self._key = idempotency_key

    @property
    def store(self) -> SessionStore:
        """Where they are written."""
        return self._writer.store

    @property
    def snapshot_id(self) -> str:
        """The row of the turn that is under way."""
        return self._writer.next_id

    @property
    def parent_id(self) -> str | None:
        """The row that it descends from."""
        return self._writer.position.parent

    @property
    def pending(self) -> bool:
        """Whether the turn that is under way has a row already."""
        return self._writer.position.head is not None

    async def pend(self, content: Content) -> SessionSnapshot:
        """Keep what a turn has come to so far, and what is open in it: for who goes on should this process end.

        Returns:
            The row: `aborting`, where somebody wants that.

        Raises:
            SessionConflictError: If another run has moved the session on.
            StaleEpochError: If another worker has adopted the row.
            SessionStoreError: What else the store raised, after retries.
        """
        now, key, finish = self._clock.utc(), self._key, self._finish_in_flight

        def change(row: SessionSnapshot) -> SessionSnapshot:
            status: SnapshotStatus = "aborting" if row.status == "aborting" else "pending"
            return replace(
                row,
                status=status,
                finish_reason=finish,
                heartbeat_at=now,
                snapshot=content.snapshot,
                journal=content.journal,
                usage=content.usage,
                idempotency_key=key,
            )

        return await self._put(change, seal=False)

    async def settle(self, content: Content, ending: Ending) -> SessionSnapshot:
        """End the turn's row. A row that somebody wants to be aborted is aborted, whatever it came to.

        Raises:
            SessionConflictError: If another run has moved the session on.
            StaleEpochError: If another worker has adopted the row.
            SessionStoreError: What else the store raised, after retries.
        """
        key = self._key

        def change(row: SessionSnapshot) -> SessionSnapshot:
            aborted = row.status == "aborting"
            return replace(
                row,
                status="aborted" if aborted else ending.status,
                finish_reason="aborted" if aborted else ending.finish_reason,
                error=None if ending.error is None else ending.error.to_dict(),
                heartbeat_at=None,
                snapshot=content.snapshot,
                journal=content.journal,
                usage=content.usage,
                idempotency_key=key,
            )

        row = await self._put(change, seal=True)
        self._key = None
        return row

    async def beat(self) -> SnapshotStatus | None:
        """Give a sign of life. Nothing else of the row changes.

        Returns:
            The row's status as it is stored; None when no row is in flight, or it is another's.

        Raises:
            SessionStoreError: What the store raised.
        """
        head = self._writer.position.head
        if head is None:
            return None
        now, owner = self._clock.utc(), self._writer.owner

        def change(row: SessionSnapshot | None) -> SessionSnapshot | None:
            if row is None or row.status not in IN_FLIGHT or row.owner != owner:
                return None
            return replace(row, heartbeat_at=now)

        row = await self._writer.store.save_snapshot(head, change)
        return None if row is None or row.status == "" else row.status

    async def _put(self, change: RowChange, *, seal: bool) -> SessionSnapshot:
        failures = aims = 0
        while True:
            snapshot_id = self._writer.next_id
            try:
                return await self._writer.put(change, seal=seal)
            except SessionConflictError as error:
                # Its own row may go on growing beside what others branched off meanwhile.
                own = self.pending
                aims += 1
                if error.found is None or aims > _AIMS or not (own or self._branches or self._fork):
                    raise
                if not await self._aim(error.found):
                    raise
                self.forked = self.forked or not (own or self._branches)
                self._branches = True
            except SessionStoreError as error:
                failures += 1
                if error.status != "UNAVAILABLE" or failures >= _TRIES:
                    raise
                _log.warning("row %r could not be written, try %d: %s", snapshot_id, failures, error)
                await self._clock.sleep(_PAUSE_S * 2**failures)
                if seal and (row := await self._landed(snapshot_id)) is not None:
                    return row

    async def _aim(self, tip: str) -> bool:
        """Take another row for the newest. Whether it is there."""
        store = self._writer.store
        if isinstance(store, SnapshotMetadataReader):
            found = await store.get_snapshot_metadata(tip)
        else:
            found = await store.get_snapshot(tip)
        if found is None:
            return False
        self._writer.position = replace(self._writer.position, tip=tip, tip_at=found.created_at)
        return True

    async def _landed(self, snapshot_id: str) -> SessionSnapshot | None:
        """The row, if the write of it that was reported as failed was done all the same."""
        try:
            seen = await self._writer.read(snapshot_id)
        except SessionStoreError:
            return None
        if seen is None or not seen.row.terminal or seen.row.epoch != self._writer.epoch:
            return None
        self._writer.restored(seen)
        return seen.row

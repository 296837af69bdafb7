"""Runs that go on without their caller: workers, and how any process sees, ends and adopts what they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

from antiphon.bounded import within
from antiphon.clock import Clock
from antiphon.errors import (
    InvalidInputError,
    NotResumableError,
    SessionStoreError,
    SnapshotNotFoundError,
    TaskLostError,
)
from antiphon.ids import check_id
from antiphon.runner.foreground import end_run
from antiphon.runner.ground import DETACHED, Ground, Grounds
from antiphon.runner.inputs import ReadInput
from antiphon.runner.making import RunMaker
from antiphon.runner.plan import Plan
from antiphon.runner.run import Run
from antiphon.runner.waiting import settled, told_to_end
from antiphon.store.base import (
    IN_FLIGHT,
    SessionSnapshot,
    SessionStore,
    SnapshotMetadataReader,
    SnapshotStatus,
)

_ABORT_S = 2.0
"""How long `abort` waits for the worker to settle."""
_OUTAGE_S = 60.0
"""How long a store may be out of reach before `wait` gives up."""
_RETRY_S = 0.25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Background:
    """The detached runs of a runner. Its workers live in the event loop that started them.

    Attributes:
        maker: Makes the runs.
        grounds: Finds rows.
        clock: Paces everything.
    """

    maker: RunMaker
    grounds: Grounds
    clock: Clock
    _workers: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def _store(self) -> SessionStore:
        return self.grounds.store

    async def detach(
        self, ground: Ground, inputs: Sequence[ReadInput], idempotency_key: str | None, turn: AsyncExitStack
    ) -> str:
        """Begin a run in the background.

        Args:
            ground: What it goes on from.
            inputs: One for each turn.
            idempotency_key: Marks its row.
            turn: Closed by the worker when the run has ended; taken over once this returns.

        Returns:
            The id of its row, which is written.

        Raises:
            SessionConflictError: If another run has moved the session on.
            IdempotencyKeyError: If another row has the key.
            SessionStoreError: What else the store raised.
        """
        plan = Plan(inputs)
        rows = self.maker.rows(ground, self.grounds, idempotency_key, detached=True)
        snapshot_id = rows.snapshot_id
        run = self.maker.run(ground, plan=plan, rows=rows)
        await self._start(run, plan, snapshot_id, turn)
        return snapshot_id

    async def adopt(self, snapshot_id: str, turn: AsyncExitStack) -> None:
        """Go on with a detached run whose worker has gone silent. That one can write no more.

        Args:
            snapshot_id: The run's row.
            turn: As for `detach`.

        Raises:
            SnapshotNotFoundError: If there is no such row.
            InvalidInputError: If it is another agent's.
            NotResumableError: If the row is none of a detached run, or its worker is alive.
            CorruptStoreError: If the row does not tell what is left to do.
            SessionStoreError: What else the store raised.
        """
        row = await self._adoptable(snapshot_id)
        tip = await self.grounds.tip(row.session_id) or row
        snapshot = row.loaded()
        plan = Plan.from_data({} if snapshot is None else snapshot.data, f"snapshot {snapshot_id!r}")
        ground, rows, writer = self.maker.adopting(row, tip)
        run = self.maker.run(ground, plan=plan, rows=rows)
        now, to_be_aborted = self.clock.utc(), False

        def claim(found: SessionSnapshot | None) -> SessionSnapshot | None:
            nonlocal to_be_aborted
            to_be_aborted = False  # of a call before this one, which was shown a row that was out of date
            if found is None or (found.epoch, found.heartbeat_at) != (row.epoch, row.heartbeat_at):
                return None
            to_be_aborted = found.status == "aborting"
            if found.status != "pending":
                return None
            return replace(found, owner=writer.owner, epoch=writer.epoch, heartbeat_at=now, updated_at=now)

        claimed = await self._store.save_snapshot(snapshot_id, claim)
        if to_be_aborted:
            await self.grounds.seal_dead(row)
            return
        if claimed is None or claimed.owner != writer.owner:
            raise NotResumableError(snapshot_id, "pending", "its worker has come back, or another one was faster: wait")
        await self._start(run, plan, snapshot_id, turn)

    async def _adoptable(self, snapshot_id: str) -> SessionSnapshot:
        row = await self._store.get_snapshot(check_id("snapshot_id", snapshot_id))
        if row is None:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
        if row.agent_id != self.maker.name:
            raise InvalidInputError(f"snapshot {snapshot_id!r} is of agent {row.agent_id!r}, not {self.maker.name!r}")
        status = row.status_at(self.clock.utc(), expires_after=self.grounds.expire_after)
        if status == "expired" and row.finish_reason == DETACHED:
            return row
        if status == "expired":
            remedy = "its run was not detached: run with this snapshot_id, which goes on from what was saved"
        elif status in IN_FLIGHT:
            remedy = "its worker is alive: wait until it has ended, or abort it"
        else:
            remedy = "it has ended: run with this snapshot_id to go on from it"
        raise NotResumableError(snapshot_id, status, remedy, snapshot_id)

    async def abort(self, snapshot_id: str) -> SnapshotStatus | None:
        """Have a run end, whichever process works on it, and wait up to 2 s until it has.

        Returns:
            The row's status before (`expired`: of a worker that has gone silent); None when there is no row.

        Raises:
            SessionStoreError: What the store raised.
        """
        check_id("snapshot_id", snapshot_id)
        found_before: list[SessionSnapshot | None] = []
        now = self.clock.utc()

        def flip(found: SessionSnapshot | None) -> SessionSnapshot | None:
            found_before.append(found)
            if found is None or found.status != "pending":
                return None
            return replace(found, status="aborting", updated_at=now)

        await self._store.save_snapshot(snapshot_id, flip)
        found = found_before[-1]
        if found is None:
            return None
        status = found.status_at(now, expires_after=self.grounds.expire_after)
        if status == "expired":
            await self.grounds.seal_dead(found)
        elif status in IN_FLIGHT:
            with suppress(TimeoutError, SnapshotNotFoundError):
                await within(
                    self.clock,
                    _ABORT_S,
                    settled(self._store, snapshot_id, clock=self.clock, expire_after=self.grounds.expire_after),
                )
        return status

    async def wait(self, snapshot_id: str) -> SessionSnapshot:
        """The row, once it is settled. A store that is out of reach for less than a minute is asked again.

        Raises:
            SnapshotNotFoundError: If the row is not there (any more).
            TaskLostError: If its worker has gone silent.
            SessionStoreError: What the store raised.
        """
        check_id("snapshot_id", snapshot_id)
        failing_since: float | None = None
        while True:
            asked = self.clock.now()
            try:
                row = await settled(self._store, snapshot_id, clock=self.clock, expire_after=self.grounds.expire_after)
            except SessionStoreError as error:
                now = self.clock.now()
                if failing_since is None or now - asked > _OUTAGE_S / 2:  # it had answered in between
                    failing_since = now
                if error.status != "UNAVAILABLE" or now - failing_since > _OUTAGE_S:
                    raise
                _log.warning("snapshot %r could not be read, and is waited for all the same: %s", snapshot_id, error)
                await self.clock.sleep(_RETRY_S)
                continue
            if row.terminal:
                return row
            raise TaskLostError(snapshot_id)

    async def poll(self, snapshot_id: str) -> SessionSnapshot | None:
        """The row without its state, now."""
        if isinstance(self._store, SnapshotMetadataReader):
            return await self._store.get_snapshot_metadata(snapshot_id)
        return await self._store.get_snapshot(snapshot_id)

    async def close(self, *, drain: bool) -> None:
        """End the workers of this loop without ending their runs: others may adopt these, once they have expired.

        Args:
            drain: Wait until the runs have ended instead.
        """
        loop = asyncio.get_running_loop()
        workers = {worker for worker in self._workers if worker.get_loop() is loop}
        if not drain:
            for worker in workers:
                worker.cancel()
        if workers:
            await asyncio.wait(workers)

    async def _start(self, run: Run, plan: Plan, snapshot_id: str, turn: AsyncExitStack) -> None:
        try:
            await run.reserve()
        except BaseException:
            await run.rest()
            raise
        # Kept until it has ended; `close` ends it.
        worker = asyncio.create_task(self._work(run, plan, snapshot_id, turn.pop_all()), name="worker")  # noqa: TID251
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, run: Run, plan: Plan, snapshot_id: str, turn: AsyncExitStack) -> None:
        async with turn:
            task = asyncio.create_task(run.go(plan.left()), name="run")  # noqa: TID251 - ended below
            watch = asyncio.create_task(told_to_end(self._store, snapshot_id, clock=self.clock), name="watch")  # noqa: TID251 - as above
            try:
                await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    await end_run(run, task, self.clock)
            finally:
                watch.cancel()
                task.cancel()
                await asyncio.wait({task, watch})
            if task.cancelled():
                return
            if (error := task.exception()) is not None:
                _log.error("the detached run %r ended without a settled row: %r", snapshot_id, error)
            elif (failure := task.result().error) is not None:
                kind = (failure.details or {}).get("type", failure.status)
                _log.warning("the detached run %r has failed: %s: %s", snapshot_id, kind, failure.message)

"""A handle on a run in the background."""

from __future__ import annotations

from typing import Protocol

from antiphon.store.base import SessionSnapshot, SnapshotStatus


class TaskRunner(Protocol):
    """What a task needs of its runner."""

    async def get_snapshot(
        self, snapshot_id: str, *, session_id: str | None = None, metadata_only: bool = False
    ) -> SessionSnapshot: ...

    async def wait(self, snapshot_id: str, *, timeout: float | None = None) -> SessionSnapshot: ...

    async def abort(self, snapshot_id: str) -> SnapshotStatus | None: ...


class Task:
    """A run in the background: of this process, or of any other one on the same store.

    It holds nothing but the id, so that `runner.task(id)` finds it again wherever the store is.

    Attributes:
        snapshot_id: The run's row.
    """

    __slots__ = ("_runner", "snapshot_id")

    def __init__(self, runner: TaskRunner, snapshot_id: str) -> None:
        self.snapshot_id = snapshot_id
        self._runner = runner

    def __repr__(self) -> str:
        return f"Task({self.snapshot_id!r})"

    async def poll(self) -> SessionSnapshot:
        """How it stands: the row without its state. Its status may be `expired`.

        Raises:
            SnapshotNotFoundError: If there is no such row.
        """
        return await self._runner.get_snapshot(self.snapshot_id, metadata_only=True)

    async def wait(self, *, timeout: float | None = None) -> SessionSnapshot:
        """The row, once the run has ended. See `Runner.wait`."""
        return await self._runner.wait(self.snapshot_id, timeout=timeout)

    async def abort(self) -> SnapshotStatus | None:
        """Have it end; the status before. See `Runner.abort`."""
        return await self._runner.abort(self.snapshot_id)

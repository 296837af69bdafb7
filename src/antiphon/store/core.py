"""Carries out what a store plans: on which thread, in which order, and who is told.

What stores do is written once, as generators (`Steps`): each `yield` asks for a `Read`, a `Write`, or for a pause (None). A
`StoreCore` runs them for coroutines and for plain code alike.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.iothread import IOThread
from antiphon.store.backend import Backend, Job, Outcome, Reading
from antiphon.store.base import EXPIRES_AFTER
from antiphon.store.known import KnownRows
from antiphon.store.watching import Hub

T = TypeVar("T")

_BATCH = 128  # jobs that may share a transaction


@dataclass(frozen=True, slots=True)
class Read:
    """A look at one tenant's rows; the answer is what `look` returns."""

    tenant: str
    look: Callable[[Reading], Any]


@dataclass(frozen=True, slots=True)
class Write:
    """A change; the answer is what its work returns.

    Attributes:
        job: The change.
        wakes: Whose watchers are told afterwards: a row's, or those of `EVERY_ROW`; None: nobody's.
    """

    job: Job
    wakes: str | None = None


EVERY_ROW = "*"  # not an id: `ids.check_id` lets it pass, but a watcher of such a row is only told more often


Steps: TypeAlias = Generator[Read | Write | None, Any, T]


class _Ticket:
    """A change that waits for its turn."""

    __slots__ = ("outcome", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.outcome: Outcome | None = None


class StoreCore:
    """What the views of one store share: its backend, threads, watchers and what it knows of rows.

    Args:
        backend: The place; it belongs to this from now on.
        name: What its threads are called.
        clock: What decides whether a row has expired, and a lease.
        expires_after: Seconds without a heartbeat after which a row in flight reads as expired.
    """

    def __init__(
        self, backend: Backend, *, name: str, clock: Clock = SYSTEM_CLOCK, expires_after: float = EXPIRES_AFTER
    ) -> None:
        self.backend, self.clock, self.expires_after = backend, clock, expires_after
        self.hub = Hub(backend.watch)
        self.known = KnownRows()
        self._reads, self._writes = IOThread(f"{name}-reads"), IOThread(f"{name}-writes")
        self._waiting: deque[_Ticket] = deque()

    async def run(self, steps: Steps[T]) -> T:
        """Run steps for a coroutine: what may block is done on the store's threads."""
        self.hub.resume()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = error = None
            try:
                if request is None:
                    await asyncio.sleep(0)
                elif not self.backend.blocking:
                    answer = self._carry_out(request)
                elif isinstance(request, Read):
                    answer = await self._reads.run(self.backend.read, request.tenant, request.look)
                else:
                    answer = await self._writes.run(self._commit, self._handed_in(request))
            except Exception as failed:  # noqa: BLE001 - it belongs to the steps, which may try again
                error = failed

    def run_blocking(self, steps: Steps[T]) -> T:
        """Run steps for plain code, also inside a running event loop, on the same threads."""
        self.hub.resume()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = error = None
            try:
                if request is None:
                    continue
                if not self.backend.blocking:
                    answer = self._carry_out(request)
                elif isinstance(request, Read):
                    answer = self._reads.call(self.backend.read, request.tenant, request.look)
                else:
                    answer = self._writes.call(self._commit, self._handed_in(request))
            except Exception as failed:  # noqa: BLE001 - it belongs to the steps, which may try again
                error = failed

    def close(self) -> None:
        """Finish what was handed in, end the threads and close the backend. The next operation opens everything again."""
        self.hub.pause()
        try:
            self._writes.close()
            self._reads.close()
            self.backend.close()
        finally:
            self.hub.closed()

    def _carry_out(self, request: Read | Write) -> Any:
        if isinstance(request, Read):
            return self.backend.read(request.tenant, request.look)
        return self._commit(self._handed_in(request))

    def _handed_in(self, write: Write) -> _Ticket:
        ticket = _Ticket(write)
        self._waiting.append(ticket)
        return ticket

    def _commit(self, ticket: _Ticket) -> Any:
        """Carry out a change, together with those that wait beside it (group commit)."""
        if not self.backend.blocking:  # on the caller's thread: each for itself
            self._waiting.remove(ticket)
            self._carry_out_batch([ticket])
        while ticket.outcome is None:
            batch: list[_Ticket] = []
            while self._waiting and len(batch) < _BATCH:
                batch.append(self._waiting.popleft())
            self._carry_out_batch(batch)
        if ticket.outcome.error is not None:
            raise ticket.outcome.error
        return ticket.outcome.value

    def _carry_out_batch(self, batch: list[_Ticket]) -> None:
        try:
            outcomes = self.backend.write([ticket.write.job for ticket in batch])
        except BaseException as error:  # noqa: BLE001 - each of them waits for an outcome
            outcomes = [Outcome(error=error)] * len(batch)
        for ticket, outcome in zip(batch, outcomes, strict=True):
            ticket.outcome = outcome
        for ticket in batch:
            write = ticket.write
            if write.wakes is not None and ticket.outcome is not None and ticket.outcome.error is None:
                self.hub.wake(write.job.tenant, None if write.wakes == EVERY_ROW else write.wakes)

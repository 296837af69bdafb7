"""Blocking libraries as streams: a function on a thread of its own puts what it has, and a task takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from antiphon.iothread import run_in_worker

T = TypeVar("T")

Put = Callable[[T], bool]
"""Hands one item over, from the thread. False: nobody listens any more, and the function should end."""


async def from_thread(work: Callable[[Put[T]], None], *, leave: Callable[[], None]) -> AsyncGenerator[T, None]:
    """What a blocking function puts, as it comes. It runs on a new thread, in the caller's context.

    When the listener stops before the function has ended (its task is cancelled, or it closes the generator), `leave` is
    called at once, and `put` answers False from then on; nobody waits for the thread, and its errors are nobody's.

    Args:
        work: Called on the thread with `put`.
        leave: Makes the function end soon, for example by cutting the connection it reads from. Called on the loop's
            thread; it must not block.

    Raises:
        BaseException: Whatever `work` raises, after what it had put.
    """
    feed: _Feed[T] = _Feed(asyncio.get_running_loop())
    # The supervised task of this generator; it ends with it.
    task = asyncio.create_task(run_in_worker(feed.run, work))  # noqa: TID251
    task.add_done_callback(lambda _: feed.ready.set())
    try:
        while True:
            while feed.items:
                yield feed.items.popleft()
            if task.done():
                break
            feed.ready.clear()
            await feed.ready.wait()
        if (error := await task) is not None:
            raise error
    finally:
        feed.gone = True
        if not task.done():
            leave()
            task.cancel()
            await asyncio.wait([task])


class _Feed(Generic[T]):
    """Between one thread and one loop. What was put stands in the loop's queue before the thread's end does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.items: deque[T] = deque()
        self.ready = asyncio.Event()
        self.gone = False

    def run(self, work: Callable[[Put[T]], None]) -> BaseException | None:
        """On the thread. The error is returned: one that nobody waits for is no news."""
        try:
            work(self._put)
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: every error belongs to the listener
            return error
        return None

    def _put(self, item: T) -> bool:
        if not self.gone:
            try:
                self._loop.call_soon_threadsafe(self._arrive, item)
            except RuntimeError:  # the listener's loop is closed
                self.gone = True
        return not self.gone

    def _arrive(self, item: T) -> None:
        self.items.append(item)
        self.ready.set()

"""Trying again: back-off, and the task that does it beside the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from antiphon.clock import Clock

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0


def pause_after(attempts: int) -> float:
    """Seconds to wait after so many failed attempts in a row.

    >>> [pause_after(attempts) for attempts in (1, 2, 3, 9)]
    [0.25, 0.5, 1.0, 5.0]
    """
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 10))


class Retrier:
    """At most one task at a time that repeats an attempt, with back-off, until it succeeds.

    Args:
        clock: Measures the pauses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the task is there, and its loop runs."""
        return self._task is not None and not self._task.done() and self._task.get_loop().is_running()

    def start(self, attempt: Callable[[], Awaitable[bool]], failures: int) -> None:
        """Begin, after so many failures in a row. `attempt` says whether it succeeded; it raises nothing."""
        if self.running:
            return

        async def repeat() -> None:
            count = failures
            await self._clock.sleep(pause_after(count))
            while not await attempt():
                count += 1
                await self._clock.sleep(pause_after(count))

        # Not in a task group: it outlives the hook that starts it. It ends with `stop()`, with success, or with its loop.
        self._task = asyncio.get_running_loop().create_task(repeat(), name="antiphon-save-again")

    async def stop(self) -> None:
        """End the task and wait for its end."""
        task, self._task = self._task, None
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        task.cancel()
        await asyncio.wait((task,))

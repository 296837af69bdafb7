"""Waiting with a bound that a clock of one's own measures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from antiphon.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled when it takes longer than `seconds`.

    Raises:
        TimeoutError: If it did.
        Exception: What `work` raises.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_outcome(work))
        alarm = group.create_task(clock.sleep(seconds))
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        alarm.cancel()
        if not task.done():
            task.cancel()
    if task.cancelled():
        raise TimeoutError(f"not done within {seconds:g} s")
    value, error = task.result()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


async def _outcome(work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - handed to the caller as it is; a task group would wrap it
        return None, error


async def settle(clock: Clock, seconds: float, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Return when all `tasks` have ended, or after `seconds`. Nothing is cancelled, and no error of theirs is raised."""
    running = [task for task in tasks if not task.done()]
    if running and seconds > 0:
        async with asyncio.TaskGroup() as group:
            alarm = group.create_task(clock.sleep(seconds))
            for task in running:
                task.add_done_callback(lambda _: alarm.cancel() if all(one.done() for one in running) else None)
            await asyncio.wait({alarm})

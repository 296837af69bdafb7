"""Waiting with a bound that a clock of one's own measures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from antiphon.clock import Clock
from antiphon.errors import AgentStateError

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled when it takes longer than `seconds`.

    Work that does not end although it is cancelled is left alone.

    Raises:
        TimeoutError: If it took longer.
        AgentStateError: If something that it waited for was cancelled by others.
        Exception: What `work` raises.
    """
    task = asyncio.create_task(_outcome(work))  # noqa: TID251 - waited for below, or left alone because it must be
    alarm = asyncio.create_task(clock.sleep(seconds))  # noqa: TID251 - cancelled below
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_S)
            raise TimeoutError(f"not done within {seconds:g} s")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_S)
        raise
    finally:
        await _ended(alarm)
        if task.done():
            work.close()  # a task that is cancelled before its first step leaves it as it is
    value, error = task.result()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


_CANCEL_S = 1.0
"""Real seconds that cancelled work has to end."""


async def _ended(alarm: asyncio.Task[None]) -> None:
    alarm.cancel()
    await asyncio.wait({alarm})


async def _outcome(work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    try:
        return await work, None
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        return None, AgentStateError("something that was waited for was cancelled")
    except Exception as error:  # noqa: BLE001 - handed to the caller as it is; a task group would wrap it
        return None, error


async def settle(clock: Clock, seconds: float, tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Return when all `tasks` have ended, or after `seconds`. Nothing is cancelled, and no error of theirs is raised."""
    running = [task for task in tasks if not task.done()]
    if running and seconds > 0:
        alarm = asyncio.create_task(clock.sleep(seconds))  # noqa: TID251 - cancelled below
        try:
            waiting: set[asyncio.Task[Any]] = set(running)
            while waiting and not alarm.done():
                await asyncio.wait({*waiting, alarm}, return_when=asyncio.FIRST_COMPLETED)
                waiting = {task for task in waiting if not task.done()}
        finally:
            await _ended(alarm)

"""A single alarm that is set often and rings seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from antiphon.clock import Clock

_SLACK_S = 0.001


class Alarm:
    """Calls `ring` at the time it was set to. Setting it later than it is costs nothing: it rings, and is set again."""

    __slots__ = ("_at", "_clock", "_ring", "_spawn", "_task")

    def __init__(
        self, clock: Clock, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], ring: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._spawn = spawn
        self._ring = ring
        self._at = 0.0
        self._task: asyncio.Task[None] | None = None

    def set(self, at: float) -> None:
        """Ring at `at` (as `clock.now()` counts) at the latest."""
        if self._task is not None:
            if at >= self._at - _SLACK_S:
                return
            self._task.cancel()
        self._at = at
        self._task = self._spawn(self._wait(at))

    async def _wait(self, at: float) -> None:
        await self._clock.sleep(at - self._clock.now())
        self._task = None
        self._ring()

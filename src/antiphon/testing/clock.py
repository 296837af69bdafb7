"""A clock that tests drive."""

from __future__ import annotations

import asyncio
import heapq
import math
import weakref
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from antiphon.errors import AgentStateError
from antiphon.iothread import pending

_POLL_S = 0.001
"""How often a clock looks whether the threads are done; real seconds."""

_ROUNDS_WITHOUT_A_LOOK = 20
"""Turns of a loop that hides what is ready (uvloop does) after which it counts as idle."""

_looking: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()
"""How many clocks have their own callback in a loop's queue: those do not make the loop busy."""


@dataclass(order=True, slots=True)
class _Sleeper:
    due: float
    number: int
    future: asyncio.Future[None] = field(compare=False)


class VirtualClock:
    """Time that passes only when nothing else can happen. Implements `antiphon.clock.Clock`.

    Whenever the event loop has nothing to do and no thread of ours is at work (`antiphon.iothread.pending`), the clock
    jumps to the next due moment and wakes exactly one sleeper; those due at one moment are woken in the order in which
    they lay down, and each may finish what it does before the next one wakes. So an hour takes no time, and comes out
    the same each time.

    One clock serves one event loop at a time, and another one after it. Loops that keep `_ready` (asyncio's do) are
    asked what is ready; another loop counts as idle after 20 turns without a jump. Network peers and child
    processes are not seen: give `settle` when a test waits for one.

    Args:
        autojump: Jump by itself. False: time passes only in `advance`.
        start: What `utc()` says at the beginning; `now()` begins at 0.
        settle: Real seconds for which the loop must have been idle before a jump.

    Attributes:
        autojump: May be set at any time.
    """

    def __init__(
        self, *, autojump: bool = True, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), settle: float = 0.0
    ) -> None:
        self.autojump = autojump
        self._start = start.astimezone(UTC)
        self._settle = settle
        self._now = 0.0
        self._count = 0
        self._sleepers: list[_Sleeper] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching = False
        self._idle_rounds = 0

    def now(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._now

    def utc(self) -> datetime:
        """The start date plus what has passed since."""
        return self._start + timedelta(seconds=self._now)

    @property
    def sleepers(self) -> int:
        """How many tasks are asleep."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock; at once, but not before others had a turn, when it is not positive."""
        if math.isnan(seconds):
            raise ValueError("cannot sleep for nan seconds")
        loop = self._bind()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        sleeper = _Sleeper(self._now + seconds, self._count, loop.create_future())
        heapq.heappush(self._sleepers, sleeper)
        self._watch(loop)
        try:
            await sleeper.future
        finally:
            if sleeper in self._sleepers:  # cancelled
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    async def advance(self, seconds: float, *, wait_for_threads: bool = True) -> None:
        """Let `seconds` pass, waking one sleeper after another, and return when the loop is idle again.

        Args:
            seconds: Virtual seconds; 0 lets everything that can happen now happen.
            wait_for_threads: Whether threads of ours are waited for before time passes. Not, when one of them waits for
                what this very passing of time will bring.
        """
        loop = self._bind()
        target = self._now + seconds
        autojump, self.autojump = self.autojump, False
        try:
            await self._until_idle(loop, wait_for_threads=wait_for_threads)
            while self._sleepers and self._sleepers[0].due <= target:
                self._wake_next()
                await self._until_idle(loop, wait_for_threads=wait_for_threads)
            self._now = max(self._now, target)
        finally:
            self.autojump = autojump
            if self._sleepers:
                self._watch(loop)

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed() and self._sleepers:
                raise AgentStateError(
                    "another event loop's tasks are asleep on this clock: it serves one loop at a time"
                )
            self._loop, self._sleepers, self._watching = loop, [], False
        return loop

    def _wake_next(self) -> None:
        sleeper = heapq.heappop(self._sleepers)
        self._now = max(self._now, sleeper.due)
        if not sleeper.future.done():
            sleeper.future.set_result(None)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.autojump and not self._watching:
            self._watching = True
            self._idle_rounds = 0
            self._look_soon(loop)

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        _looking[loop] = _looking.get(loop, 0) + 1
        loop.call_soon(self._look_queued, loop)

    def _look_queued(self, loop: asyncio.AbstractEventLoop) -> None:
        _looking[loop] -= 1
        self._look(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Jump if the loop is idle and was so a turn ago; between the two it has asked its sockets."""
        if not (self.autojump and loop is self._loop and self._sleepers and math.isfinite(self._sleepers[0].due)):
            self._watching = False
            return
        # First the threads: an outcome is in the loop's queue before its call stops being counted.
        if pending():
            self._idle_rounds = 0
            loop.call_later(_POLL_S, self._look, loop)
            return
        if _is_busy(loop):
            self._idle_rounds = 0
            self._look_soon(loop)
            return
        self._idle_rounds += 1
        if self._idle_rounds < _rounds(loop):
            if self._settle > 0:
                loop.call_later(self._settle, self._look, loop)
            else:
                self._look_soon(loop)
            return
        self._idle_rounds = 0
        self._wake_next()
        self._look_soon(loop)

    async def _until_idle(self, loop: asyncio.AbstractEventLoop, *, wait_for_threads: bool) -> None:
        rounds = 0
        while rounds < _rounds(loop):
            await asyncio.sleep(self._settle if rounds else 0)
            if wait_for_threads and pending():
                rounds = 0
                await asyncio.sleep(_POLL_S)
            elif _is_busy(loop):
                rounds = 0
            else:
                rounds += 1


def _rounds(loop: asyncio.AbstractEventLoop) -> int:
    return 2 if hasattr(loop, "_ready") else _ROUNDS_WITHOUT_A_LOOK


def _is_busy(loop: asyncio.AbstractEventLoop) -> bool:
    ready: Any = getattr(loop, "_ready", ())
    return len(ready) > _looking.get(loop, 0)

"""How an invocation is cancelled: at once, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Cancelled(Exception):
    """The invocation was cancelled. Never leaves it."""


class Cancellation:
    """Whether, how and why one invocation is to end early. Made in the invocation's event loop.

    Attributes:
        message: What the answer is to say, where the caller gave a word.
        now: Whether it is to end at once.
        deferred: Whether it is to end after the tools that run.
        signal: Handed to tools; of this invocation alone, so that a tool that was left behind sees it set for ever.
    """

    def __init__(self, agent_signal: threading.Event) -> None:
        """Begin: clears the agent's own signal."""
        agent_signal.clear()
        self._agent_signal = agent_signal
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._waiting: asyncio.Timeout | None = None
        self.message: str | None = None
        self.now = False
        self.deferred = False
        self.signal = threading.Event()

    def request(self, message: str | None, *, after_current_tools: bool) -> None:
        """Ask for the end, from any thread."""
        if message is not None:
            self.message = message
        if after_current_tools:
            self.deferred = True
            return
        self.now = True
        self.signal.set()
        self._agent_signal.set()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fire)

    def check(self) -> None:
        """Go on only if nobody asked for the end.

        Raises:
            Cancelled: If somebody did.
        """
        if self.now:
            raise Cancelled

    async def run(self, work: Awaitable[T]) -> T:
        """Await `work`, but no longer than until the end is asked for. One at a time.

        Raises:
            Cancelled: If it was asked for; `work` is cancelled then.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._waiting = scope
                if self.now:  # asked for before this began: cancelled at its first wait
                    self._fire()
                return await work
        except TimeoutError:
            if scope.expired():
                raise Cancelled from None
            raise
        finally:
            self._waiting = None

    async def wait(self) -> None:
        """Return when the end is asked for."""
        await self._wake.wait()

    def _fire(self) -> None:
        self._wake.set()
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(self._loop.time())

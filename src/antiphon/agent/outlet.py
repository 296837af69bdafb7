"""Where an invocation tells what happens in it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

_BEHIND = 64


class Outlet(Protocol):
    """Takes the events of an invocation."""

    @property
    def full(self) -> bool:
        """Whether the listener is so far behind that the model should wait (see `room`)."""
        ...

    def put(self, event: dict[str, Any]) -> None:
        """Tell something. Never waits."""
        ...

    async def room(self) -> None:
        """Return when the listener has caught up."""
        ...


class Deaf:
    """Nobody listens."""

    full = False

    def put(self, event: dict[str, Any]) -> None:
        pass

    async def room(self) -> None:
        pass


class EventQueue:
    """Events for one listener on the same event loop. A model waits for a listener that is 64 events behind."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def full(self) -> bool:
        return len(self._events) >= _BEHIND

    def put(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        self._changed.set()

    async def room(self) -> None:
        while self.full:
            await self._change()

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        self._changed.set()

    async def take(self) -> dict[str, Any] | None:
        """The next event; None when there will be none."""
        while not self._events:
            if self._closed:
                return None
            await self._change()
        event = self._events.popleft()
        self._changed.set()
        return event

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

"""What a run tells, on its way to whoever listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Any

from antiphon.runner.outputs import ArtifactChunk, ModelChunk, TurnEnd

_BEHIND = 64


@dataclass(frozen=True, slots=True)
class TurnBegins:
    """A turn begins.

    Attributes:
        snapshot_id: The row that it will be saved under.
    """

    snapshot_id: str | None


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The session's state is this now."""

    state: dict[str, Any]


Told = TurnBegins | StateChanged | ModelChunk | ArtifactChunk | TurnEnd


class Feed:
    """For one listener. Things may be put from any thread; they are taken in the event loop that made the feed."""

    def __init__(self) -> None:
        self._items: deque[Told] = deque()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def put(self, item: Told) -> None:
        """Tell something; nothing happens when the feed is closed."""
        if self._closed:
            return
        self._items.append(item)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._changed.set)

    async def room(self) -> None:
        """Return when the listener is less than 64 behind."""
        while len(self._items) >= _BEHIND and not self._closed:
            await self._change()

    def close(self, *, drop: bool = False) -> None:
        """Nothing more will come; with `drop`, not even what is there."""
        self._closed = True
        if drop:
            self._items.clear()
        self._changed.set()

    async def take(self) -> Told | None:
        """The next thing; None when there will be none."""
        while not self._items:
            if self._closed:
                return None
            await self._change()
        item = self._items.popleft()
        self._changed.set()
        return item

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

"""Who waits for changes of which rows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from antiphon.clock import Clock
from antiphon.store.backend import Wake


class Watcher:
    """Somebody on an event loop who wants to know when a row may have changed. A context manager: at its end it is over."""

    __slots__ = ("_event", "_hub", "_loop", "key")

    def __init__(self, hub: Hub, key: tuple[str, str]) -> None:
        self.key = key
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._hub.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.remove(self)

    async def changed(self) -> None:
        """Return when the row may have changed since this last returned."""
        await self._event.wait()
        self._event.clear()

    async def changed_or(self, clock: Clock, seconds: float) -> None:
        """Like `changed`, but after `seconds` of `clock` at the latest."""

        async def alarm() -> None:
            await clock.sleep(seconds)
            self._event.set()

        async with asyncio.TaskGroup() as group:
            timer = group.create_task(alarm())
            await self.changed()
            timer.cancel()

    def wake(self) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)


class Hub:
    """Wakes watchers: for what this process writes, and for what the backend hears of others while anybody watches.

    Args:
        watch: `Backend.watch`.
    """

    def __init__(self, watch: Callable[[Wake], Callable[[], None]]) -> None:
        self._watch = watch
        self._lock = threading.RLock()
        self._watchers: dict[tuple[str, str], list[Watcher]] = {}
        self._stop: Callable[[], None] | None = None
        self._is_paused = False
        self._is_closing = False

    def add(self, watcher: Watcher) -> None:
        """Begin to wake it."""
        with self._lock:
            self._watchers.setdefault(watcher.key, []).append(watcher)
            if self._stop is None and not self._is_paused:
                self._stop = self._watch(self.wake)

    def remove(self, watcher: Watcher) -> None:
        """Wake it no more."""
        with self._lock:
            left = self._watchers.get(watcher.key, [])
            if watcher in left:
                left.remove(watcher)
            if not left:
                self._watchers.pop(watcher.key, None)
            stop = None
            if not self._watchers:
                stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def pause(self) -> None:
        """Hear of others no more, because the backend is about to be closed; watchers stay."""
        with self._lock:
            stop, self._stop = self._stop, None
            self._is_paused = self._is_closing = True
        if stop is not None:
            stop()

    @property
    def is_paused(self) -> bool:
        """Whether the backend was closed, and not used since."""
        return self._is_paused

    def closed(self) -> None:
        """The backend is closed: from now on `resume` may open it again. Earlier, it would watch what is being closed."""
        self._is_closing = False

    def resume(self) -> None:
        """Hear of others again after `pause`, as the store is used again; what was missed is made up for."""
        if not self._is_paused or self._is_closing:
            return
        with self._lock:
            if self._is_paused and self._watchers and self._stop is None:
                self._stop = self._watch(self.wake)
            self._is_paused = False
        self.wake(None, None)

    def wake(self, tenant: str | None, snapshot_id: str | None) -> None:
        """See `backend.Wake`."""
        with self._lock:
            found = [
                watcher
                for key, watchers in self._watchers.items()
                if tenant in (None, key[0]) and snapshot_id in (None, key[1])
                for watcher in watchers
            ]
        for watcher in found:
            watcher.wake()

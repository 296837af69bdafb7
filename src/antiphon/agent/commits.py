"""Hooks of a live call, one after the other, away from the loop that applies the model's events.

A slow hook (a save, most often) delays later hooks and whoever asked to wait for it, never the sound. The task that calls
them is there while there is something to call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from antiphon.errors import AgentStateError
from antiphon.hooks.registry import BaseHookEvent, HookRegistry


class CommitLane:
    """Hook events in order of posting."""

    __slots__ = ("_hooks", "_on_error", "_queue", "_spawn", "_task")

    def __init__(self, hooks: HookRegistry, on_error: Callable[[Exception], None]) -> None:
        self._hooks = hooks
        self._on_error = on_error
        self._queue: list[tuple[BaseHookEvent, asyncio.Future[None] | None]] = []
        self._spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        """Call listeners from now on, in tasks that `spawn` makes."""
        self._spawn = spawn
        self._work()

    def end(self) -> None:
        """Call nobody any more."""
        self._spawn = None

    def post(self, event: BaseHookEvent, *, wanted: bool = False) -> asyncio.Future[None] | None:
        """Call the listeners of `event` after those of everything posted before.

        Args:
            event: The event.
            wanted: Whether the caller waits for the outcome; an error then goes to the future that is returned. Else
                it ends the call.

        Returns:
            A future, when it is wanted and somebody listens.
        """
        if not self._hooks.listens(type(event)):
            return None
        done: asyncio.Future[None] | None = asyncio.get_running_loop().create_future() if wanted else None
        self._put(event, done)
        return done

    async def call(self, event: BaseHookEvent) -> None:
        """Like `post`, and return when they have run.

        Raises:
            Exception: What a listener raised.
        """
        if asyncio.current_task() is self._task:
            # A hook that needs another hook: waiting for its turn would wait for itself.
            await self._hooks.invoke_callbacks_async(event)
            return
        if self._hooks.listens(type(event)) or self._queue:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._put(event, done)
            await done

    async def flush(self) -> None:
        """Return when everything posted so far has run."""
        await self.call(_Nothing())

    def _put(self, event: BaseHookEvent, done: asyncio.Future[None] | None) -> None:
        self._queue.append((event, done))
        self._work()

    def _work(self) -> None:
        if self._queue and self._spawn is not None and (self._task is None or self._task.done()):
            self._task = self._spawn(self._run())
            # Cancelled from outside (the loop is torn down), it leaves what is behind it to another one.
            self._task.add_done_callback(lambda _: self._work())

    async def _run(self) -> None:
        while self._queue:
            # It leaves the queue only when it has run, so that `call` waits for it.
            event, done = self._queue[0]
            try:
                await self._invoke(event)
            except Exception as error:  # noqa: BLE001 - a listener may raise anything; it goes to whoever waits
                if done is None:
                    self._on_error(error)
                elif not done.done():
                    done.set_exception(error)
            else:
                if done is not None and not done.done():
                    done.set_result(None)
            finally:
                del self._queue[0]
                if done is not None:
                    done.cancel()  # has no effect on one that is settled

    async def _invoke(self, event: BaseHookEvent) -> None:
        try:
            await self._hooks.invoke_callbacks_async(event)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Nobody cancelled this task, so that whoever waits must not end like one that was.
            raise AgentStateError(f"a hook for {type(event).__name__} awaited something that was cancelled") from error


class _Nothing(BaseHookEvent):
    """Nobody listens to it: it marks a place in the queue."""

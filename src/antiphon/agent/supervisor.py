"""The life of a live call: one supervised task, and the tasks that live and end with it.

A task group would wait for ever for a tool or a model that refuses to end. This keeps the rule (no task outlives its call)
for all that obey a cancellation, and names those that do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

from antiphon.bounded import settle, within
from antiphon.clock import Clock
from antiphon.errors import AgentNotStartedError, AgentStateError, StopError

PART_BOUND_S = 30.0
"""How long each part of the closing may take."""
ABANDON_S = 2.0
"""How long a cancelled task has to end."""

_inside: ContextVar[tuple[Supervisor, ...]] = ContextVar("antiphon_inside_calls", default=())
"""The calls within which the current task runs."""


class Supervisor:
    """Starts, carries and closes one call.

    Attributes:
        begun: Whether the call is open.
        errors: What failed while it was closed.
    """

    __slots__ = ("_clock", "_context", "_end", "_fail", "_task", "_tasks", "_why_not", "begun", "errors")

    def __init__(self, clock: Clock, fail: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._fail = fail
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: Context | None = None  # of start(): what is spawned sees its variables
        self._why_not: Exception | None = None
        self.begun = False
        self.errors: list[Exception] = []

    @property
    def ending(self) -> bool:
        """Whether the end was asked for."""
        return self._end.done()

    def finish(self, why: Exception | None = None) -> None:
        """Let the call end. One that is still being opened fails to start, because of `why`."""
        if not self._end.done():
            self._why_not = why
            self._end.set_result(None)

    async def start(
        self,
        *,
        opening: Callable[[], Coroutine[Any, Any, None]],
        undo: Callable[[], Coroutine[Any, Any, None]],
        begin: Callable[[], None],
        closing: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
    ) -> None:
        """Open the call, and return when it has begun.

        Args:
            opening: Opens it; cancelled when the end is asked for meanwhile.
            undo: Closes what `opening` opened, when it must not begin after all.
            begin: Called when it is open.
            closing: Closes what was begun; always.
            ended: Called when nothing of the call is left.

        Raises:
            Exception: What `opening` raises.
            AgentStateError: If the end was asked for while it was opened.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ready.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to ask for it
        run = self._run(ready, opening, undo, begin, closing)
        self._task = asyncio.create_task(run)  # noqa: TID251 - the supervised task
        self._task.add_done_callback(lambda _: ended())
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            self.finish()  # nobody will call stop(): it closes by itself
            with suppress(asyncio.CancelledError):  # whoever cancels twice does not want to wait
                await asyncio.wait({self._task})
            raise
        except BaseException:
            await asyncio.wait({self._task})
            raise

    async def _run(
        self,
        ready: asyncio.Future[None],
        opening: Callable[[], Coroutine[Any, Any, None]],
        undo: Callable[[], Coroutine[Any, Any, None]],
        begin: Callable[[], None],
        closing: Callable[[], Awaitable[None]],
    ) -> None:
        _inside.set((*_inside.get(), self))
        self._context = copy_context()
        try:
            if (refused := await self._open(opening(), undo)) is not None:
                ready.set_exception(refused)
                return
            self.begun = True
            try:
                begin()
                ready.set_result(None)
                await self._end
            finally:
                self.finish()
                await closing()
        finally:
            self.finish()
            await self._end_tasks()

    async def _open(
        self, work: Coroutine[Any, Any, None], undo: Callable[[], Coroutine[Any, Any, None]]
    ) -> Exception | None:
        refused: list[Exception] = []

        async def opening() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - handed to whoever called start()
                refused.append(error)

        task = self._create(opening())
        await asyncio.wait({task, self._end}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            task.cancel()
            await settle(self._clock, ABANDON_S, [task])
            return self._why_not or AgentStateError("the agent was stopped while it was starting")
        if refused:
            return refused[0]
        if self._end.done():  # asked for in the moment in which it was open
            await self.attempt("closing what was just opened", undo())
            return self._why_not or AgentStateError("the agent was stopped while it was starting")
        return None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` within the call; an error of it ends the call.

        Raises:
            AgentNotStartedError: If the call is over.
        """
        if self._context is None or (self._task is not None and self._task.done()):
            work.close()
            raise AgentNotStartedError("agent not started | call start before sending")
        return self._create(self._guard(work), work)

    def _create(
        self, work: Coroutine[Any, Any, None], inner: Coroutine[Any, Any, None] | None = None
    ) -> asyncio.Task[None]:
        context = self._context.copy() if self._context is not None else None
        task = asyncio.create_task(work, context=context)  # noqa: TID251 - ended by _end_tasks
        self._tasks.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if inner is not None:
                inner.close()  # a task that is cancelled before its first step leaves it as it is

        task.add_done_callback(ended)
        return task

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            self._fail(AgentStateError("something that the call waited for was cancelled"))
        except Exception as error:  # noqa: BLE001 - a task's edge: the call ends with it, and receive() raises it
            self._fail(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - such as a test framework's own
            failure = AgentStateError(f"the call was ended by {error!r}")
            failure.__cause__ = error
            self._fail(failure)

    async def attempt(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do a part of the closing, for a bounded time; what fails is kept in `errors`."""
        try:
            await within(self._clock, PART_BOUND_S, work)
        except TimeoutError:
            self.errors.append(AgentStateError(f"{what} did not end within {PART_BOUND_S:g} s"))
        except Exception as error:  # noqa: BLE001 - a model or a hook may raise anything
            self.errors.append(error)

    async def _end_tasks(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await settle(self._clock, ABANDON_S, tasks)
        if left := [task for task in tasks if not task.done()]:
            self.errors.append(AgentStateError(f"{len(left)} tasks did not end although they were cancelled: {left!r}"))

    async def stop(self, failure: Exception | None) -> None:
        """End the call and return when nothing of it is left.

        From within the call (a tool, a hook, or a task of theirs) it returns at once: it would wait for itself.

        Args:
            failure: Why the call had ended before, when nobody was told of it yet.

        Raises:
            Exception: What failed, when one thing did.
            StopError: When several things did.
        """
        self.finish()
        if self._task is None or self in _inside.get():
            return
        await asyncio.wait({self._task})
        errors, self.errors = self.errors, []
        if failure is not None:
            errors.insert(0, failure)
        if not self._task.cancelled() and isinstance(broken := self._task.exception(), Exception):
            errors.append(broken)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise StopError(errors)

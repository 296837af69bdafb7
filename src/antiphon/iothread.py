"""Threads that do the waiting, so that no event loop has to.

`IOThread` is one thread for one resource: what is handed to it runs in the order in which it was handed in, whichever
event loops and threads that came from. `run_in_worker` gives a single blocking function a thread of its own.

`pending()` counts what is under way in all of them. `antiphon.testing.VirtualClock` reads it: no virtual time passes
while a thread is at work.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from antiphon.errors import AgentStateError, MovedError

P = ParamSpec("P")
T = TypeVar("T")

Deliver = Callable[[Any, BaseException | None], None]

_log = logging.getLogger(__name__)

_EXIT_S = 5.0
"""How long closing waits for coroutines, and the end of the process for everything that was handed in."""


class _Count:
    """Calls in flight. An object, so that a forked child can begin with a new one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value = 0

    def add(self, number: int) -> None:
        with self.lock:
            self.value += number


_count = _Count()


def pending() -> int:
    """How many calls are in flight: handed to a thread, and their outcome not yet handed back."""
    return _count.value


class _Call:
    """One call: what to run, and whom to tell. Counted from its making until its outcome is delivered."""

    __slots__ = ("_count", "_deliver", "_work")

    def __init__(self, work: Callable[[], Any], deliver: Deliver) -> None:
        self._work, self._deliver, self._count = work, deliver, _count
        self._count.add(1)

    def run(self, worker: _Worker | None = None) -> None:
        """Run it to its end; no error leaves this."""
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: every error belongs to the caller
            self.settle(None, error)
        else:
            self.settle(result, None)

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Hand the outcome back."""
        if isinstance(error, StopIteration):  # no future takes it
            wrapped = RuntimeError("the call raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        try:
            self._deliver(result, error)
        finally:
            # Last: whoever sees nothing pending may rely on it that every outcome stands in its loop's queue.
            self._count.add(-1)


def _to_loop(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> Deliver:
    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            if error is not None:
                _tell(error, "a call failed after its caller had stopped waiting")
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def deliver(result: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the caller's loop is closed
            if error is not None:
                _tell(error, "a call failed after its caller's loop was closed")

    return deliver


def _tell(error: BaseException, what: str) -> None:
    """Log what nobody waits for any more. What only asks to be tried again, with nothing done, is no failure then."""
    _log.log(logging.DEBUG if isinstance(error, MovedError) else logging.WARNING, what, exc_info=error)


def _to_thread(future: Future[Any]) -> Deliver:
    def deliver(result: Any, error: BaseException | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return deliver


class _Worker:
    """The thread of an `IOThread`, and its queue. It does not know its owner, so that the owner can be collected."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[_Worker], None] | None] = queue.SimpleQueue()
        # Reentrant: a garbage collection while it is held may end the very owner of this worker, which calls `put`.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def put(self, call: Callable[[_Worker], None] | None) -> None:
        """Append a call; None ends the thread after everything before it."""
        with self._lock:
            self._calls.put(call)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._drain)

    def begin(self, coroutine: Callable[[], Coroutine[Any, Any, Any]], call: _Call) -> None:
        """On this thread: run a coroutine as a task of the thread's loop, which the first of them makes."""
        if self._loop is None:
            self._live(lambda: self.begin(coroutine, call))
            return

        async def run() -> Any:
            return await coroutine()

        def settle(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                call.settle(None, AgentStateError("the coroutine was cancelled on its thread"))
            else:
                error = task.exception()
                call.settle(None if error else task.result(), error)

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(settle)

    def _work(self) -> None:
        while not self._ended:
            call = self._calls.get()
            if call is None:
                return
            call(self)
            del call  # or its arguments and its result would live until the next one

    def _live(self, first: Callable[[], None]) -> None:
        """Run an event loop on this thread until the end; plain calls are its callbacks from now on, in their order."""
        loop = asyncio.new_event_loop()
        try:
            with self._lock:  # what was put before this is drained below; what comes after it wakes the loop
                self._loop = loop
            loop.call_soon(first)
            loop.call_soon(self._drain)
            loop.run_forever()
        finally:
            if self._tasks:
                loop.run_until_complete(asyncio.wait(set(self._tasks), timeout=_EXIT_S))
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                loop.run_until_complete(asyncio.wait(set(self._tasks)))
            with self._lock:
                self._loop = None
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _drain(self) -> None:
        while not self._ended:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is None:
                self._ended = True
                if self._loop is not None:
                    self._loop.stop()
                return
            call(self)

    def join(self, timeout: float | None) -> None:
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout)


class IOThread:
    """A thread of its own for one resource, started when it is first used.

    One object serves any number of event loops and threads. Calls run one at a time, in the order in which they were
    handed in, and to their end: when the task that awaits one is cancelled, the call is still made, so that nothing is
    half done. Coroutines given to `run_async` run concurrently, on the thread's own event loop.

    The thread ends with `close()`, with the object, or with the process (which waits for what was handed in, for at
    most 5 s). After `close()`, and in a forked child, the next call starts a new one.

    Args:
        name: The thread's name, for people who look at a stack dump.

    >>> io = IOThread("sums")
    >>> io.call(sum, [1, 2])
    3
    >>> io.close()
    """

    __slots__ = ("__weakref__", "_end", "_lock", "_name", "_worker")

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        _threads.add(self)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` on the thread, without blocking the caller's event loop, and return what it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(lambda: function(*args, **kwargs), _to_loop(loop, future))
        return await future

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` on the thread and block until it has returned. Also inside a running event loop."""
        if self._is_here():
            return function(*args, **kwargs)
        future: Future[T] = Future()
        self._put(lambda: function(*args, **kwargs), _to_thread(future))
        return future.result()

    async def run_async(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine on the thread's own event loop, from any other."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put_async(lambda: function(*args, **kwargs), _to_loop(loop, future))
        return await future

    def call_async(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine on the thread's own event loop and block until it is done.

        Raises:
            AgentStateError: If the caller is on that thread: it would wait for itself.
        """
        if self._is_here():
            raise AgentStateError(f"thread {self._name!r} cannot wait for itself: use run_async")
        future: Future[T] = Future()
        self._put_async(lambda: function(*args, **kwargs), _to_thread(future))
        return future.result()

    def close(self, timeout: float | None = None) -> None:
        """Finish what was handed in and end the thread. May be called again, and from any thread.

        Coroutines get 5 s and are cancelled then.

        Args:
            timeout: How long to wait for it, in seconds; None waits until it is done.
        """
        with self._lock:
            worker, self._worker = self._worker, None
            end, self._end = self._end, None
        if end is not None:
            end.detach()
        if worker is not None:
            worker.put(None)
            worker.join(timeout)

    def _is_here(self) -> bool:
        worker = self._worker
        return worker is not None and worker.thread is threading.current_thread()

    def _running(self) -> _Worker:
        """The worker, started if it is not. Call it with the lock held."""
        worker = self._worker
        if worker is None:
            worker = self._worker = _Worker(self._name)
            self._end = weakref.finalize(self, worker.put, None)
            self._end.atexit = False
        return worker

    def _put(self, work: Callable[[], Any], deliver: Deliver) -> None:
        with self._lock:
            worker = self._running()
            worker.put(_Call(work, deliver).run)

    def _put_async(self, coroutine: Callable[[], Coroutine[Any, Any, Any]], deliver: Deliver) -> None:
        with self._lock:
            worker = self._running()
            call = _Call(lambda: None, deliver)
            worker.put(lambda worker: worker.begin(coroutine, call))

    def renew_after_fork(self) -> None:
        """In a forked child: the thread is not there, its lock may be held, and what it was doing is the parent's."""
        if self._end is not None:
            self._end.detach()
        if self._worker is not None:
            # Kept for ever: closing a loop that came through a fork would deregister the parent's descriptors.
            _inherited.append(self._worker)
        self._lock, self._worker, self._end = threading.Lock(), None, None


async def run_in_worker(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function on a new thread, in the caller's context (`contextvars`), and return what it returns.

    Like `asyncio.to_thread`, save that nobody waits for a slot behind a function that hangs, that the process can
    end in spite of one, and that `pending()` counts it. A cancelled caller stops waiting; the function runs to its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    call = _Call(lambda: context.run(function, *args, **kwargs), _to_loop(loop, future))
    try:
        threading.Thread(target=call.run, name="antiphon-worker", daemon=True).start()
    except RuntimeError as error:  # no more threads
        call.settle(None, error)
    return await future


_threads: weakref.WeakSet[IOThread] = weakref.WeakSet()
_inherited: list[_Worker] = []


def _end_all() -> None:
    for thread in list(_threads):
        thread.close(_EXIT_S)


def _renew_after_fork() -> None:
    global _count  # noqa: PLW0603 - the parent's lock may be held by a thread that does not exist here
    _count = _Count()
    for thread in list(_threads):
        thread.renew_after_fork()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_renew_after_fork)

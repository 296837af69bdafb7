"""IOThread and run_in_worker."""

import asyncio
import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from antiphon.errors import AgentStateError, MovedError
from antiphon.iothread import IOThread, pending, run_in_worker


@pytest.fixture
def io() -> Iterator[IOThread]:
    thread = IOThread("antiphon-test")
    yield thread
    thread.close()


async def nothing_pending() -> None:
    """A call is counted until just after its outcome is delivered."""
    while pending():  # noqa: ASYNC110 - the count has no event
        await asyncio.sleep(0)


async def test_calls_run_on_another_thread_in_the_order_they_were_handed_in(io: IOThread) -> None:
    done: list[int] = []
    threads: set[int] = set()

    def work(number: int) -> int:
        done.append(number)
        threads.add(threading.get_ident())
        return number * 2

    results = await asyncio.gather(*(io.run(work, number) for number in range(100)))
    assert results == [number * 2 for number in range(100)]
    assert done == list(range(100))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), KeyboardInterrupt("no")], ids=repr)
async def test_an_error_reaches_the_caller_and_the_thread_goes_on(io: IOThread, error: BaseException) -> None:
    def fail() -> None:
        raise error

    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    with pytest.raises(expected):
        io.call(fail)
    if not isinstance(error, KeyboardInterrupt):  # a loop lets that one through to its runner
        with pytest.raises(expected):
            await io.run(fail)
    assert io.call(int) == 0
    await nothing_pending()


async def test_a_cancelled_caller_leaves_the_call_running_to_its_end(io: IOThread) -> None:
    started, gate, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        gate.wait(10)
        done.set()

    task = asyncio.get_running_loop().create_task(io.run(work))
    await asyncio.sleep(0)
    waiting = asyncio.get_running_loop().create_task(io.run(int))
    await run_in_worker(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pending() >= 1
    gate.set()
    await waiting
    assert done.is_set()


async def test_a_failure_nobody_waits_for_any_more_is_logged(io: IOThread, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def work() -> None:
        gate.wait(10)
        raise ValueError("disk full")

    task = asyncio.get_running_loop().create_task(io.run(work))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    gate.set()
    await io.run(int)
    assert "stopped waiting" in caplog.text
    assert "disk full" in caplog.text


async def test_a_call_that_asks_to_be_tried_again_is_no_failure_when_nobody_waits(
    io: IOThread, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def work() -> None:
        gate.wait(10)
        raise MovedError("snapshot 's' has changed")

    task = asyncio.get_running_loop().create_task(io.run(work))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    gate.set()
    await io.run(int)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_a_synchronous_call_works_inside_a_running_loop(io: IOThread) -> None:
    assert io.call(sum, [1, 2]) == 3


def test_a_call_from_the_thread_itself_runs_at_once(io: IOThread) -> None:
    assert io.call(lambda: io.call(lambda: io.call(int))) == 0


async def echo(value: int) -> tuple[int, int]:
    await asyncio.sleep(0)
    return value, id(asyncio.get_running_loop())


async def test_coroutines_run_on_the_threads_own_loop_and_calls_keep_their_order(io: IOThread) -> None:
    done: list[int] = []
    io.call(done.append, 0)
    one, loop = await io.run_async(echo, 1)
    two, again = io.call_async(echo, 2)
    assert (one, two) == (1, 2)
    assert loop == again != id(asyncio.get_running_loop())
    await asyncio.gather(*(io.run(done.append, number) for number in range(1, 50)))
    assert done == list(range(50))
    with pytest.raises(ZeroDivisionError):

        async def fail() -> None:
            _ = 1 / 0

        await io.run_async(fail)


async def test_the_thread_cannot_wait_for_its_own_coroutine(io: IOThread) -> None:
    async def inner() -> int:
        with pytest.raises(AgentStateError, match="cannot wait for itself"):
            io.call_async(echo, 1)
        return (await io.run(lambda: 5)) + io.call(lambda: 6)

    assert await io.run_async(inner) == 11


def test_one_object_serves_loops_in_several_threads(io: IOThread) -> None:
    results: list[list[int]] = []

    def other() -> None:
        async def main() -> list[int]:
            return await asyncio.gather(*(io.run(abs, -number) for number in range(200)))

        results.append(asyncio.run(main()))

    threads = [threading.Thread(target=other) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [list(range(200))] * 4


def test_closing_finishes_what_was_handed_in_and_a_later_call_starts_anew() -> None:
    io = IOThread("antiphon-test")
    io.close()
    first = io.call(threading.get_ident)
    io.call_async(echo, 1)
    io.close()
    io.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "antiphon-test"]
    assert io.call(int) == 0
    assert first
    io.close()


def test_a_forgotten_object_ends_its_thread_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        io = IOThread("antiphon-forgotten")
        io.call_async(echo, 1)
        thread = io.call(threading.current_thread)
        del io
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()
        gc.collect()


async def test_closing_gives_up_on_nobody(io: IOThread) -> None:
    """A coroutine that would never end is told so, instead of leaving its caller to wait for ever."""
    begun = threading.Event()

    async def never() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(int)

    task = asyncio.get_running_loop().create_task(io.run_async(never))
    await run_in_worker(begun.wait, 10)
    assert pending() >= 1
    io.call_async(_cancel_others)
    with pytest.raises(AgentStateError, match="cancelled"):
        await task


async def _cancel_others() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def test_a_worker_runs_in_the_callers_context() -> None:
    variable.set("mine")
    assert await run_in_worker(variable.get) == "mine"
    with pytest.raises(ValueError, match="invalid literal"):
        await run_in_worker(int, "x")
    await nothing_pending()


async def test_fifty_blocked_workers_do_not_keep_the_next_one_waiting() -> None:
    gate = threading.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(run_in_worker(gate.wait, 10))
        await asyncio.sleep(0)
        assert await run_in_worker(lambda: 7) == 7
        gate.set()


FORK = """
import asyncio, os, sys, threading, warnings
warnings.simplefilter("error")
from antiphon.iothread import IOThread, pending
io, busy, gate = IOThread("io"), IOThread("busy"), threading.Event()
async def one(): return 1
assert io.call(lambda: 1) == 1 and io.call_async(one) == 1
threading.Thread(target=busy.call, args=(gate.wait, 20), daemon=True).start()
while not pending(): pass
child = os.fork()
if child == 0:
    assert pending() == 0
    assert io.call(lambda: 2) == 2 and io.call_async(one) == 1 and asyncio.run(busy.run(lambda: 3)) == 3
    io.close(); busy.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert io.call_async(one) == 1 and io.call(lambda: 4) == 4  # the parent's loop still works
gate.set()
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_gets_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)


EXIT = """
import asyncio, sys, time
from antiphon.iothread import IOThread
io = IOThread("io")
async def one(): return 1
io.call_async(one)
async def main():
    task = asyncio.get_running_loop().create_task(io.run(lambda: (time.sleep(0.05), print("written", flush=True))))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""


def test_the_process_ends_after_what_was_handed_in_and_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", EXIT],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("written\n", "", 0)

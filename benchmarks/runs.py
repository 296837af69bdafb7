"""Our runner over each of our stores, with a model that does nothing, and runs that another process aborts."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from antiphon.agent.turns import Agent
from antiphon.models.base import Model, StreamEvent
from antiphon.runner.runner import Runner
from antiphon.store.line_store import LineStore
from antiphon.store.opening import open_store
from benchmarks.child import Numbers, Work

Open = Callable[[str], AbstractContextManager[str]]
"""Makes room for a store, given a folder: its URL, for as long as the context lasts."""

_AT_ONCE = 16
_BOUND_S = 30.0


class IdleModel(Model):
    """Says one word at once, or never.

    Args:
        silent: Called when it is asked; the answer then never comes.
        cancelled: Called when a silent one is cancelled.
    """

    def __init__(self, silent: Callable[[], None] | None = None, cancelled: Callable[[], None] = lambda: None) -> None:
        self._silent, self._cancelled = silent, cancelled

    def get_config(self) -> dict[str, Any]:
        return {}

    def update_config(self, **config: Any) -> None:
        pass

    async def stream(self, messages: Any, *rest: Any, **named: Any) -> AsyncIterator[StreamEvent]:
        yield {"messageStart": {"role": "assistant"}}
        if self._silent is not None:
            self._silent()
            try:
                await asyncio.Event().wait()
            finally:
                self._cancelled()
        yield {"contentBlockDelta": {"delta": {"text": "Yes"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def runner_cases(open_place: Open, *, shared: bool = True) -> Mapping[str, Work]:
    """The cases of the runner suite over a store.

    Args:
        open_place: Makes room for it.
        shared: Whether other processes can open it.
    """

    async def runs(*, quick: bool) -> Numbers:
        with tempfile.TemporaryDirectory() as folder, open_place(folder) as url:
            async with open_store(url) as store:
                return await _runs(store, quick=quick)

    async def abort(*, quick: bool) -> Numbers:
        with tempfile.TemporaryDirectory() as folder, open_place(folder) as url:
            return await _aborts(url, 2 if quick else 20)

    return {"runs": runs, **({"abort": abort} if shared else {})}


def local(scheme: str, name: str = "store") -> Open:
    """A store in the folder itself."""
    return lambda folder: nullcontext(f"{scheme}:{os.path.join(folder, name)}")


async def _runs(store: LineStore, *, quick: bool) -> Numbers:
    turns, sessions = (5, 20) if quick else (300, 1000)
    model = IdleModel()
    runner = Runner(lambda: Agent(model), store=store)
    await runner.run("Hi", session_id="warm")
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(turns):
        await runner.run("Hi", session_id="one")
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    bare = time.process_time()
    for _ in range(turns):
        await Agent(model).invoke_async("Hi")
    bare = time.process_time() - bare
    many = 0.0
    for measured in (False, True):  # the first round begins the sessions
        begin = time.perf_counter()
        await _each(runner, sessions)
        many = time.perf_counter() - begin if measured else 0.0
    return {
        "runner_one": turns / wall,
        "runner_many": sessions / many,
        "runner_cpu_ms": cpu / turns * 1e3,
        "runner_own_ms": max(0.0, cpu - bare) / turns * 1e3,
    }


async def _each(runner: Runner, sessions: int) -> None:
    """A run on each session, several at once."""
    waiting = iter(range(sessions))

    async def work() -> None:
        for number in waiting:
            output = await runner.run("Hi", session_id=f"session-{number}")
            if output.finish_reason == "failed":
                raise RuntimeError(f"a run failed: {output.error!r}")

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


async def _aborts(url: str, times: int) -> Numbers:
    """Another process works on runs, one after the other; each is aborted from here."""
    taken: list[float] = []
    async with open_store(url) as store, _worker(url, times) as told:
        runner = Runner(lambda: Agent(IdleModel()), store=store)
        for _ in range(times):
            snapshot_id = await told()
            begin = time.monotonic()  # one clock for all processes of the machine
            async with asyncio.TaskGroup() as group:
                group.create_task(runner.abort(snapshot_id))
                taken.append(float(await told()) - begin)
    return {"runner_abort_ms": statistics.median(taken) * 1e3, "runner_abort_worst_ms": max(taken) * 1e3}


@asynccontextmanager
async def _worker(url: str, times: int) -> AsyncGenerator[Callable[[], Any], None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.runs", url, str(times), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    stdout = process.stdout

    async def told() -> str:
        line = await asyncio.wait_for(stdout.readline(), _BOUND_S)
        if not line:
            raise RuntimeError("the worker's process has ended")
        return line.decode().strip()

    try:
        yield told
        await asyncio.wait_for(process.wait(), _BOUND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _work(url: str, times: int) -> None:
    """Say the id of a run once its model was asked, and the time at which that was cancelled; and so on."""
    async with open_store(url) as store:
        for _ in range(times):
            asked = asyncio.Event()
            model = IdleModel(asked.set, lambda: print(time.monotonic(), flush=True))
            runner = Runner(partial(Agent, model), store=store)
            task = await runner.detach("Hi", session_id="one")
            await asked.wait()
            print(task.snapshot_id, flush=True)
            await task.wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], int(sys.argv[2])))

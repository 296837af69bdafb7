"""Runs whose caller waits for them: whoever stops waiting ends the run, and what it has done is saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from antiphon.bounded import settle
from antiphon.clock import Clock
from antiphon.runner.feed import Feed
from antiphon.runner.outputs import RunChunk, RunOutput
from antiphon.runner.presenting import Presenter
from antiphon.runner.run import Run

_GRACE_S = 4.0
"""How long a run has to end by itself once nobody waits for it; running tools have 2 s of that."""


async def one_by_one(inputs: Iterable[object]) -> AsyncIterator[object]:
    """Inputs that are there already."""
    for each in inputs:
        yield each


async def waited_for(run: Run, inputs: AsyncIterator[object], clock: Clock) -> RunOutput:
    """What a run comes to. When the caller is cancelled, the run is ended, and saved, first.

    Raises:
        Exception: What `Run.go` raises.
    """
    # Ends before this does, whoever ends it: the run must be able to save when its caller is cancelled.
    task = asyncio.create_task(run.go(inputs), name="run")  # noqa: TID251
    try:
        await asyncio.wait({task})
    finally:
        await end_run(run, task, clock)
    return task.result()


async def listened_to(
    run: Run, inputs: AsyncIterator[object], feed: Feed, presenter: Presenter, clock: Clock
) -> AsyncGenerator[RunChunk | RunOutput, None]:
    """What a run tells, and last its output as the run made it. Whoever closes this ends the run.

    Raises:
        Exception: What `Run.go` raises.
    """
    task = asyncio.create_task(run.go(inputs), name="run")  # noqa: TID251 - as above
    task.add_done_callback(lambda _: feed.close())
    try:
        while (told := await feed.take()) is not None:
            if (chunk := await presenter.chunk(told)) is not None:
                yield chunk
        await asyncio.wait({task})
    finally:
        feed.close(drop=True)
        await end_run(run, task, clock)
    yield task.result()


async def end_run(run: Run, task: asyncio.Task[RunOutput], clock: Clock) -> None:
    """Have a run end, and what it has done saved: by itself, or after 4 s by force."""
    if task.done():
        return
    run.abort()
    await settle(clock, _GRACE_S, [task])
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen: whoever would get it has gone

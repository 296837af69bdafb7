"""How long an event loop is held: by a save, most of all.

Standard library only: peers' interpreters run it, too.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import string
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

from benchmarks.child import Numbers

MESSAGES = 10_000
QUICK_MESSAGES = 500
TEXT_BYTES = 500


class Probe:
    """Goes round the loop without a pause, and notes the longest time that one round took.

    Time in which the operating system ran other processes instead is not counted, where it tells (Linux). Nor are the
    pauses of Python's garbage collector, which comes when it likes, and takes as long as there are objects in the process;
    they are noted apart.
    """

    def __init__(self) -> None:
        self._longest = 0.0
        self._collected = 0.0
        self._longest_collection = 0.0
        self._collection_began = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        gc.callbacks.append(self._note_collection)
        self._task = asyncio.create_task(self._run())  # noqa: TID251 - ended at the exit
        await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        gc.callbacks.remove(self._note_collection)
        self._task.cancel()
        await asyncio.wait([self._task])

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            took = time.thread_time() - self._collection_began
            self._collected += took
            self._longest_collection = max(self._longest_collection, took)

    async def _run(self) -> None:
        with _queued_seconds() as queued:
            last = time.perf_counter() - queued() - self._collected
            while True:
                await asyncio.sleep(0)
                now = time.perf_counter() - queued() - self._collected
                self._longest = max(self._longest, now - last)
                last = now

    async def longest_ms(self) -> float:
        """The longest round since this was asked before; the one that is under way included."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        longest, self._longest = self._longest, 0.0
        return longest * 1e3

    def longest_collection_ms(self) -> float:
        """The longest pause of the garbage collector since this was asked before, in any thread."""
        longest, self._longest_collection = self._longest_collection, 0.0
        return longest * 1e3


@contextmanager
def _queued_seconds() -> Generator[Callable[[], float]]:
    """How long this thread has been ready to run, and was not run, so far."""
    try:
        # Linux: time on the processor, time waiting for one (both in ns), and how often.
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(fd, 100, 0).split()[1]) / 1e9
    finally:
        os.close(fd)


def history(count: int) -> list[dict[str, Any]]:
    """Messages of two people in turn, about 500 bytes each, no two alike."""
    chance = random.Random(7)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(4000)]
    messages: list[dict[str, Any]] = []
    for number in range(count):
        text = " ".join(chance.choices(words, k=TEXT_BYTES // 6))[:TEXT_BYTES]
        messages.append({"role": ("user", "assistant")[number % 2], "content": [{"text": text}]})
    return messages


async def stalls(save: Callable[[], Awaitable[None]], *, quick: bool) -> Numbers:
    """What saves do to the loop they run on.

    The numbers are medians of many saves, and the worst of them; the first one is what it is.

    Args:
        save: Adds a message, and returns when it is saved.
        quick: Whether a few saves are enough.
    """
    held: list[float] = []
    taken: list[float] = []
    async with Probe() as probe:
        await probe.longest_ms()
        probe.longest_collection_ms()
        await save()
        first, collection = await probe.longest_ms(), probe.longest_collection_ms()
        for _ in range(3 if quick else 40):
            await asyncio.sleep(0.005)
            await probe.longest_ms()
            begin = time.perf_counter()
            await save()
            taken.append(time.perf_counter() - begin)
            held.append(await probe.longest_ms())
    # Without the probe, which takes all the CPU there is.
    cpu = time.process_time()
    for _ in range(3 if quick else 20):
        await save()
    cpu = (time.process_time() - cpu) / (3 if quick else 20)
    return {
        "stall_ms": statistics.median(held),
        "stall_worst_ms": max(held),
        "first_stall_ms": first,
        "collection_ms": collection,
        "save_ms": statistics.median(taken) * 1e3,
        "save_cpu_ms": cpu * 1e3,
    }

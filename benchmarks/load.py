"""The load of the live suite: the same work for every subject, which is only adapted to it by a `Talk`.

Standard library only: peers' interpreters run it, too.

CPU is the process's, so it includes what drives the load; the lean subject shows how much that is.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from benchmarks.child import Numbers, Work

T = TypeVar("T")

FRAME = os.urandom(960)
"""20 ms of sound: 24 kHz, 16 bits, mono."""
FRAME_S = 0.02
_BURST = 50


class App:
    """The application of one conversation: counts what it is handed, and may be slow."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        self.sounds = 0
        self.latencies: list[float] = []
        self.sent: deque[float] | None = None  # when the frames that are on their way were sent
        self.barged_in: float | None = None
        self._wanted = 0
        self._done: asyncio.Future[None] | None = None

    def sound(self) -> float:
        """Takes a frame of sound, or an event with words; returns for how long it is busy then."""
        self.sounds += 1
        if self.sent:
            self.latencies.append(time.perf_counter() - self.sent.popleft())
        if self.sounds == self._wanted and self._done is not None:
            self._done.set_result(None)
        return self.pause_s

    def barge_in(self) -> None:
        """Is told of a barge-in."""
        self.barged_in = time.perf_counter()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def until(self, sounds: int) -> None:
        """Return when so many events were taken, or a barge-in was told."""
        if self.sounds < sounds:
            self._wanted, self._done = sounds, asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._done, 120)
            self._done = None


class Talk(Protocol):
    """One conversation of a subject, with a model that does nothing.

    A quick case does a little of the same work, as fast as it goes: its numbers mean nothing.
    """

    async def start(self, app: App) -> None:
        """Connect, and hand every event to `app` from now on, waiting as long as it says."""
        ...

    async def stop(self) -> None:
        """Release everything."""
        ...

    async def speak(self, frames: int) -> None:
        """The provider has sent so many frames of the sound of one answer."""
        ...

    async def interrupt(self) -> None:
        """The provider says that the user speaks over the answer."""
        ...

    async def hear(self) -> None:
        """The application sends a frame of sound."""
        ...


class Wire(Generic[T]):
    """What a provider has sent and a model has not read yet: the same for every subject, and never an obstacle."""

    def __init__(self) -> None:
        self._sent: list[T] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, *events: T) -> None:
        """The provider sends."""
        self._sent.extend(events)
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    async def events(self) -> AsyncIterator[T]:
        """The model reads."""
        while True:
            while self._sent:
                sent, self._sent = self._sent, []
                for event in sent:
                    yield event
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def live_cases(talk: Callable[[], Talk]) -> dict[str, Work]:
    """The cases that every subject can do."""
    return {case.__name__: partial(case, talk) for case in (sound_out, sound_in, latency, barge_in, many, idle)}


async def sound_out(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    async def say(talk: Talk, events: int) -> None:
        await talk.speak(events)

    return {"sound_out_us": await cpu_out(make, say, 2_000 if quick else 50_000)}


async def cpu_out(make: Callable[[], Talk], say: Callable[[Talk, int], Awaitable[None]], events: int) -> float:
    """CPU per event that reaches the application, in µs, the best of five rounds. They come in bursts of 50."""
    app, talk = App(), make()
    await talk.start(app)
    rounds: list[float] = []
    for _ in range(5):
        gc.collect()
        begin = time.process_time()
        for _ in range(0, events // 5, _BURST):
            wanted = app.sounds + _BURST
            await say(talk, _BURST)
            await app.until(wanted)
        rounds.append((time.process_time() - begin) / (events // 5) * 1e6)
    await talk.stop()
    return min(rounds)


async def sound_in(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    frames = 1_000 if quick else 20_000
    talk = make()
    await talk.start(App())
    rounds: list[float] = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(frames):
            await talk.hear()
        rounds.append((time.process_time() - begin) / frames * 1e6)
        await asyncio.sleep(0)
    await talk.stop()
    return {"sound_in_us": min(rounds)}


async def latency(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    frames, frame_s = (25, 0.0) if quick else (400, FRAME_S)
    app, talk = App(), make()
    app.sent = deque()
    await talk.start(app)
    begin = time.perf_counter()
    for number in range(frames):
        await asyncio.sleep(max(0, begin + number * frame_s - time.perf_counter()))
        app.sent.append(time.perf_counter())
        await talk.speak(1)
    await app.until(frames)
    await talk.stop()
    return {
        "latency_p50_us": percentile(app.latencies, 0.5) * 1e6,
        "latency_p99_us": percentile(app.latencies, 0.99) * 1e6,
    }


async def barge_in(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    waits: list[float] = []
    for _ in range(1 if quick else 10):
        app, talk = App(pause_s=0.0001 if quick else 0.002), make()
        await talk.start(app)
        await talk.speak(500)
        await asyncio.sleep(0 if quick else 0.05)
        begin = time.perf_counter()
        await talk.interrupt()
        await app.until(10**9)
        assert app.barged_in is not None
        waits.append(app.barged_in - begin)
        await talk.stop()
    return {"barge_in_ms": max(waits) * 1e3}


async def many(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    """One pacer serves all conversations, a few in each of the frame's twenty milliseconds, so that it costs little itself."""
    count, seconds, frame_s, steps = (20, 0.5, 0.0, 20) if quick else (300, 5.0, FRAME_S, 20)
    apps, talks = [App() for _ in range(count)], [make() for _ in range(count)]
    for app, talk in zip(apps, talks, strict=True):
        app.sent = deque()
        await talk.start(app)
    turns = [list(zip(apps, talks, strict=True))[step::steps] for step in range(steps)]
    cpu, begin = time.process_time(), time.perf_counter()
    for number in range(int(seconds / FRAME_S) * steps):
        due = begin + number * frame_s / steps
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        for app, talk in turns[number % steps]:
            if app.sent is not None:
                app.sent.append(time.perf_counter())
            await talk.speak(1)
            await talk.hear()
    for app in apps:
        await app.until(int(seconds / FRAME_S))
    cpu = time.process_time() - cpu
    # What was done is `seconds` of talk, however long it took where a core was not enough.
    latencies = [one for app in apps for one in app.latencies]
    for talk in talks:
        await talk.stop()
    return {"per_core": count * seconds / cpu, "many_p99_ms": percentile(latencies, 0.99) * 1e3}


async def idle(make: Callable[[], Talk], *, quick: bool) -> Numbers:
    count = 20 if quick else 400
    warm = [make() for _ in range(20)]
    for talk in warm:
        await talk.start(App())
    gc.collect()
    memory, cpu = resident_bytes(), time.process_time()
    talks = [make() for _ in range(count)]
    for talk in talks:
        await talk.start(App())
    for _ in range(5):
        await asyncio.sleep(0)
    cpu = time.process_time() - cpu
    gc.collect()
    memory = resident_bytes() - memory
    for talk in [*warm, *talks]:
        await talk.stop()
    return {"idle_kib": memory / count / 1024, "start_ms": cpu / count * 1e3}


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

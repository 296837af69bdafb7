"""The lean target: what a loop can cost in this Python when it does nothing else than what a live call must.

A task moves events from the wire to a lane, and a listener takes them from there; a barge-in overtakes the sound and drops
what is queued of it. No history, no hooks, no tools, no sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque

from benchmarks.child import main
from benchmarks.load import FRAME, App, Wire, live_cases


class _Sound:
    __slots__ = ("answer", "audio")

    def __init__(self, audio: bytes, answer: str) -> None:
        self.audio, self.answer = audio, answer


class _BargeIn:
    __slots__ = ("answer",)

    def __init__(self, answer: str) -> None:
        self.answer = answer


class LeanTalk:
    """A wire, a lane for sound, one for what overtakes it, and two tasks."""

    def __init__(self) -> None:
        self._wire: Wire[_Sound | _BargeIn] = Wire()
        self._sounds: deque[_Sound] = deque()
        self._control: deque[_BargeIn] = deque()
        self._cut: set[str] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._heard = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, app: App) -> None:
        work = (self._read(), self._listen(app))
        self._tasks = [asyncio.create_task(one) for one in work]  # noqa: TID251 - ended by stop()

    async def _read(self) -> None:
        async for event in self._wire.events():
            if type(event) is _Sound:
                self._sounds.append(event)
            elif type(event) is _BargeIn:
                self._control.append(event)
                self._cut.add(event.answer)
            if self._waiter is not None:
                self._waiter.set_result(None)
                self._waiter = None

    async def _listen(self, app: App) -> None:
        while True:
            if self._control:
                self._control.popleft()
                app.barge_in()
            elif self._sounds:
                if self._sounds.popleft().answer not in self._cut and (pause := app.sound()):
                    await asyncio.sleep(pause)
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def speak(self, frames: int) -> None:
        self._wire.put(*[_Sound(FRAME, "answer") for _ in range(frames)])

    async def interrupt(self) -> None:
        self._wire.put(_BargeIn("answer"))

    async def hear(self) -> None:
        self._heard += 1


if __name__ == "__main__":
    main(live_cases(LeanTalk))

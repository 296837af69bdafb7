"""Antiphon's live agent under the load."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

from antiphon import BidiAgent
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta, BidiMessage, Messages, ToolSpec
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
    Word,
)
from antiphon.models.bidi import BidiModel
from antiphon.testing import VirtualClock
from benchmarks.child import Numbers, main
from benchmarks.load import FRAME, FRAME_S, App, Talk, Wire, cpu_out, live_cases

_WORDS_AN_ANSWER = 100
_EVENTS_AN_ANSWER = 100


class SilentModel(BidiModel):
    """Passes on what the load puts on the wire, and takes everything."""

    def __init__(self) -> None:
        self.wire: Wire[OutputEvent] = Wire()

    def get_config(self) -> dict[str, Any]:
        return {}

    def update_config(self, **config: Any) -> None:
        pass

    async def start(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **kwargs: Any,
    ) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        pass

    def receive(self) -> AsyncIterator[OutputEvent]:
        return self.wire.events()


class LiveTalk:
    """A conversation of a live agent without a session."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._model = SilentModel()
        self.agent = BidiAgent(self._model, clock=clock)
        self._words = 0
        self._sound = AudioDelta("pcm", {"bytes": FRAME})
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: App) -> None:
        await self.agent.start()
        self._task = asyncio.create_task(self._listen(app))  # noqa: TID251 - ended by stop()

    async def _listen(self, app: App) -> None:
        async for event in self.agent.receive():
            kind = type(event)
            if kind is BidiAudioDeltaEvent or kind is BidiTranscriptDeltaEvent:
                if pause := app.sound():
                    await asyncio.sleep(pause)
            elif kind is BidiBargeInEvent:
                app.barge_in()

    async def stop(self) -> None:
        await self.agent.stop()
        assert self._task is not None
        await self._task

    async def speak(self, frames: int) -> None:
        self._model.wire.put(
            *[BidiAudioDeltaEvent(audio=FRAME, content_id="sound", response_id="answer") for _ in range(frames)]
        )

    async def speak_words(self, words: int) -> None:
        """The provider has sent so many words of answers, of a hundred words each."""
        wire = self._model.wire
        for _ in range(words):
            at = self._words % _WORDS_AN_ANSWER
            answer = f"answer-{self._words // _WORDS_AN_ANSWER}"
            if not at:
                wire.put(BidiResponseStartEvent(response_id=answer), BidiTranscriptStartEvent(content_id=answer))
            word = Word("word", end_ms=(at + 1) * 300.0)
            wire.put(BidiTranscriptDeltaEvent(delta="word ", content_id=answer, words=(word,)))
            self._words += 1
            if at == _WORDS_AN_ANSWER - 1:
                wire.put(BidiTranscriptStopEvent(content_id=answer), BidiResponseStopEvent(response_id=answer))

    def answer(self, number: int, frames: int, words: int) -> None:
        """The provider has sent a whole answer."""
        name = f"answer-{number}"
        self._model.wire.put(
            BidiResponseStartEvent(response_id=name),
            BidiTranscriptStartEvent(content_id=name),
            *[
                BidiTranscriptDeltaEvent(
                    delta="word ", content_id=name, words=(Word("word", end_ms=(at + 1) * frames * 20 / words),)
                )
                for at in range(words)
            ],
            *[BidiAudioDeltaEvent(audio=FRAME, content_id=name, response_id=name) for _ in range(frames)],
            BidiTranscriptStopEvent(content_id=name),
            BidiResponseStopEvent(response_id=name),
        )

    async def interrupt(self) -> None:
        self._model.wire.put(BidiBargeInEvent(response_id="answer"))

    async def hear(self) -> None:
        await self.agent.send(self._sound)


async def words_out(*, quick: bool) -> Numbers:
    async def say(talk: Talk, words: int) -> None:
        assert isinstance(talk, LiveTalk)
        await talk.speak_words(words)

    return {"words_out_us": await cpu_out(LiveTalk, say, 2_000 if quick else 50_000)}


async def growth(*, quick: bool) -> Numbers:
    """Sound and words of thousands of answers. The history is the application's to keep: it is emptied on the way."""
    events = 20_000 if quick else 1_000_000
    clock = VirtualClock(autojump=False)  # each answer is played before the next one begins, and that takes no time
    app, talk = App(), LiveTalk(clock)
    await talk.start(app)

    async def say(answers: int) -> None:
        for _ in range(answers):
            number = app.sounds // _EVENTS_AN_ANSWER
            talk.answer(number, frames=80, words=20)
            await app.until((number + 1) * _EVENTS_AN_ANSWER)
            await talk.hear()
            talk.agent.played(f"answer-{number}", 80 * 20)
            await clock.advance(80 * FRAME_S)
            talk.agent.messages.clear()

    answers = events // _EVENTS_AN_ANSWER
    await say(answers // 10)
    gc.collect()
    tracemalloc.start()
    await say(answers // 10)  # what is kept for a while is there from now on
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await say(answers)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    await talk.stop()
    return {"growth_kib": grown / 1024}


if __name__ == "__main__":
    main({**live_cases(LiveTalk), "words_out": words_out, "growth": growth})

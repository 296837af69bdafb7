"""The live agent of Strands Agents under the load (`strands-agents[bidi-openai]`)."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from typing import Any

from strands.bidi.agent import BidiAgent
from strands.bidi.models.model import BidiModel
from strands.bidi.types.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionStartEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
)
from strands.bidi.types.media import AudioDelta

from benchmarks.child import Numbers, main
from benchmarks.load import FRAME, App, Talk, Wire, cpu_out, live_cases

_BASE64 = base64.b64encode(FRAME).decode()
_WORDS_AN_ANSWER = 100


class SilentModel(BidiModel):
    """Passes on what the load puts on the wire, and takes everything."""

    def __init__(self) -> None:
        self.wire: Wire[Any] = Wire()

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "silent"}

    async def start(self, *_: Any, **__: Any) -> None:
        self._connection_id = "connection"

    async def stop(self) -> None:
        self._connection_id = None

    async def send(self, content: Any) -> None:
        pass

    async def receive(self) -> AsyncIterator[Any]:
        yield BidiConnectionStartEvent("connection", "silent")
        async for event in self.wire.events():
            yield event


class StrandsTalk:
    """A conversation without a session."""

    def __init__(self) -> None:
        self._model = SilentModel()
        self._agent = BidiAgent(model=self._model)
        self._words = 0
        self._sound = AudioDelta(format="pcm", source={"bytes": FRAME})
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: App) -> None:
        await self._agent.start()
        self._task = asyncio.create_task(self._listen(app))  # noqa: TID251 - ended by stop()

    async def _listen(self, app: App) -> None:
        async for event in self._agent.receive():
            kind = type(event)
            if kind is BidiAudioDeltaEvent or kind is BidiTranscriptDeltaEvent:
                if pause := app.sound():
                    await asyncio.sleep(pause)
            elif kind is BidiBargeInEvent:
                app.barge_in()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._agent.stop()

    async def speak(self, frames: int) -> None:
        self._model.wire.put(
            *[
                BidiAudioDeltaEvent(audio=_BASE64, content_id="sound", format="pcm", sample_rate=24000, channels=1)
                for _ in range(frames)
            ]
        )

    async def speak_words(self, words: int) -> None:
        """The provider has sent so many words of answers, of a hundred words each."""
        wire = self._model.wire
        for _ in range(words):
            at = self._words % _WORDS_AN_ANSWER
            answer = f"answer-{self._words // _WORDS_AN_ANSWER}"
            if not at:
                wire.put(BidiResponseStartEvent(answer), BidiTranscriptStartEvent("assistant", answer))
            wire.put(BidiTranscriptDeltaEvent("word ", "assistant", answer))
            self._words += 1
            if at == _WORDS_AN_ANSWER - 1:
                wire.put(BidiTranscriptStopEvent("assistant", answer), BidiResponseStopEvent(answer))

    async def interrupt(self) -> None:
        self._model.wire.put(BidiBargeInEvent())

    async def hear(self) -> None:
        await self._agent.send(self._sound)


async def words_out(*, quick: bool) -> Numbers:
    async def say(talk: Talk, words: int) -> None:
        assert isinstance(talk, StrandsTalk)
        await talk.speak_words(words)

    return {"words_out_us": await cpu_out(StrandsTalk, say, 2_000 if quick else 50_000)}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main({**live_cases(StrandsTalk), "words_out": words_out})

"""A real-time session of the OpenAI Agents SDK under the load, with its own scripted model (`openai-agents`)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.model_events import RealtimeModelAudioEvent, RealtimeModelAudioInterruptedEvent
from agents.realtime.testing import ScriptedRealtimeModel

from benchmarks.child import main
from benchmarks.load import FRAME, App, live_cases


class OpenAITalk:
    """One session."""

    def __init__(self) -> None:
        self._model = ScriptedRealtimeModel(strict=False)
        self._session: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: App) -> None:
        self._session = await RealtimeRunner(RealtimeAgent(name="agent", instructions=""), model=self._model).run()
        await self._session.enter()
        self._task = asyncio.create_task(self._listen(app))  # noqa: TID251 - ended by stop()

    async def _listen(self, app: App) -> None:
        async for event in self._session:
            if event.type == "audio":
                if pause := app.sound():
                    await asyncio.sleep(pause)
            elif event.type == "audio_interrupted":
                app.barge_in()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._session.close()

    async def speak(self, frames: int) -> None:
        for _ in range(frames):
            event = RealtimeModelAudioEvent(data=FRAME, response_id="answer", item_id="item", content_index=0)
            await self._model.emit(event)

    async def interrupt(self) -> None:
        await self._model.emit(RealtimeModelAudioInterruptedEvent(item_id="item", content_index=0))

    async def hear(self) -> None:
        await self._session.send_audio(FRAME)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(live_cases(OpenAITalk))

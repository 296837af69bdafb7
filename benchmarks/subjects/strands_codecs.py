"""The live models of Strands Agents over loopback (`strands-agents[bidi-openai]`). Their sound stays base64 to the end."""

from __future__ import annotations

import logging
from typing import Any

from strands.bidi.agent import BidiAgent
from strands.bidi.models.openai import realtime
from strands.bidi.types.events import BidiAudioDeltaEvent
from strands.bidi.types.media import AudioDelta

from benchmarks.child import main
from benchmarks.codecs import codec_cases
from benchmarks.load import FRAME

_SOUND = AudioDelta(format="pcm", source={"bytes": FRAME})


def openai(url: str) -> Any:
    realtime.OPENAI_REALTIME_URL = f"{url}/v1/realtime"
    return realtime.OpenAIRealtimeModel(model_id="gpt-realtime-2", transcription_model_id=None, api_key="sk-bench")


class ModelLine:
    """A model alone."""

    async def start(self, url: str) -> None:
        self._model = openai(url)
        await self._model.start(system_prompt="Be kind.")
        self._events = self._model.receive()

    async def hear(self) -> None:
        await self._model.send(_SOUND)

    async def take(self, sounds: int) -> None:
        async for event in self._events:
            if type(event) is BidiAudioDeltaEvent:
                sounds -= 1
                if not sounds:
                    return

    async def stop(self) -> None:
        await self._model.stop()


class AgentLine(ModelLine):
    """An agent with the model."""

    async def start(self, url: str) -> None:
        self._agent = BidiAgent(model=openai(url), system_prompt="Be kind.")
        await self._agent.start()
        self._events = self._agent.receive()

    async def hear(self) -> None:
        await self._agent.send(_SOUND)

    async def stop(self) -> None:
        await self._agent.stop()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main({**codec_cases("openai", model=ModelLine, agent=AgentLine)})

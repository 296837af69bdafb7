"""Antiphon's live models over loopback: alone, and with an agent."""

from __future__ import annotations

from collections.abc import Callable

from antiphon import BidiAgent
from antiphon.content import AudioDelta
from antiphon.events import BidiAudioDeltaEvent
from antiphon.models import BedrockNovaSonicModel, BidiModel, GoogleGeminiLiveModel, OpenAIRealtimeModel
from antiphon.testing.servers.nova_sonic import CREDENTIALS
from benchmarks.child import main
from benchmarks.codecs import codec_cases
from benchmarks.load import FRAME

_SOUND = AudioDelta("pcm", {"bytes": FRAME})
_SOUND_16_KHZ = AudioDelta("pcm", {"bytes": FRAME[:640]})


def openai(url: str) -> BidiModel:
    return OpenAIRealtimeModel(
        "gpt-realtime-2", transcription_model_id=None, api_key="sk-bench", base_url=f"{url}/v1", environ={}
    )


def gemini(url: str) -> BidiModel:
    return GoogleGeminiLiveModel("gemini-3.8-live", api_key="bench", base_url=url, environ={})


def nova(url: str) -> BidiModel:
    return BedrockNovaSonicModel(
        credentials=CREDENTIALS,
        endpoint_url=url,
        environ={},
        silence_s=None,  # the far end answers any sound
    )


class ModelLine:
    """A model alone. It hears 20 ms at its own rate."""

    def __init__(self, make: Callable[[str], BidiModel]) -> None:
        self._make = make
        self._sound = _SOUND if make is openai else _SOUND_16_KHZ

    async def start(self, url: str) -> None:
        self._model = self._make(url)
        await self._model.start(system_prompt="Be kind.")
        self._events = self._model.receive()

    async def hear(self) -> None:
        await self._model.send(self._sound)

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
        self._agent = BidiAgent(self._make(url), system_prompt="Be kind.")
        await self._agent.start()
        self._events = self._agent.receive()

    async def hear(self) -> None:
        await self._agent.send(self._sound)

    async def stop(self) -> None:
        await self._agent.stop()


if __name__ == "__main__":
    main(
        {
            **codec_cases("openai", model=lambda: ModelLine(openai), agent=lambda: AgentLine(openai)),
            **codec_cases("gemini", model=lambda: ModelLine(gemini), agent=lambda: AgentLine(gemini)),
            **codec_cases("nova", model=lambda: ModelLine(nova), agent=lambda: AgentLine(nova)),
        }
    )

"""What a real service is asked to do. Each function gets what makes a model; it says nothing of the words of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from antiphon import Agent, BidiAgent, SnapshotSessionManager, tool
from antiphon.audio import parse_wav, resample
from antiphon.content import AudioDelta, text_of
from antiphon.errors import ModelCredentialsError, ModelNotFoundError
from antiphon.events import BidiBargeInEvent, BidiResponseStopEvent, BidiTranscriptBlockEvent, ToolResultMessageEvent
from antiphon.storage import InMemoryStorage

AUDIO = Path(__file__).parent.parent / "audio"
PATIENCE_S = 40
FRAME_MS = 40

Make = Callable[..., Any]


def weather_tool(asked: list[str]) -> Any:
    @tool
    def weather(city: str) -> str:
        """Tells the weather of a city. Always ask this, never guess.

        Args:
            city: Its name.
        """
        asked.append(city)
        return f"It is 21 degrees and sunny in {city}."

    return weather


# Models that answer in turns


async def answers(make: Make) -> None:
    answer = await Agent(make()).invoke_async("Say hello in one word.")
    assert text_of(answer.message)
    assert answer.stop_reason == "end_turn"


async def calls_a_tool_and_goes_on_in_another_object(make: Make) -> None:
    asked: list[str] = []
    storage = InMemoryStorage()

    def agent() -> Agent:
        manager = SnapshotSessionManager[Agent]("live", storage=storage)
        return Agent(make(), tools=[weather_tool(asked)], session_manager=manager)

    await agent().invoke_async("What is the weather in Paris?")
    assert asked
    second = agent()
    assert text_of((await second.invoke_async("Which city did I ask about? One word.")).message)
    assert len(second.messages) >= 6


async def refuses_a_wrong_key(make: Make) -> None:
    with pytest.raises(ModelCredentialsError):
        await Agent(make(key="wrong-key-0123456789")).invoke_async("Hello")


async def names_an_unknown_model(make: Make) -> None:
    with pytest.raises(ModelNotFoundError):
        await Agent(make(model_id="no-such-model-9")).invoke_async("Hello")


TURNS = [answers, calls_a_tool_and_goes_on_in_another_object, refuses_a_wrong_key, names_an_unknown_model]


# Models that talk


class Conversation:
    """A talk, with what came of it so far."""

    def __init__(self, agent: BidiAgent) -> None:
        self.agent = agent
        self.events: list[Any] = []
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        await self.agent.start()
        self._group.create_task(self._collect())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.agent.stop()
        await self._group.__aexit__(*error)

    async def _collect(self) -> None:
        async for event in self.agent.receive():
            async with self._news:
                self.events.append(event)
                self._news.notify_all()

    async def until(self, kind: type, count: int = 1, **fields: Any) -> None:
        def come() -> int:
            return sum(
                isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
                for event in self.events
            )

        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: come() >= count)

    async def speak(self, clip: str) -> None:
        """Say a clip, and be quiet after it."""
        data = (AUDIO / clip).read_bytes()
        wav = parse_wav(data)
        rate = self.agent.model.get_audio_config()["input"]["sample_rate"]
        pcm = resample(data[wav.data_start : wav.data_start + wav.data_length], wav.rate, rate) + bytes(rate * 2)
        size = rate * FRAME_MS // 1000 * 2
        for start in range(0, len(pcm), size):
            await self.agent.send(AudioDelta("pcm", {"bytes": pcm[start : start + size]}))


async def talks(make: Make) -> None:
    async with Conversation(BidiAgent(make(), system_prompt="Answer in five words.")) as talk:
        await talk.agent.send("Say hello.")
        await talk.until(BidiTranscriptBlockEvent, role="assistant")
        await talk.until(BidiResponseStopEvent)


async def hears(make: Make) -> None:
    async with Conversation(BidiAgent(make(), system_prompt="Answer in five words.")) as talk:
        await talk.speak("flite-s2.wav")
        await talk.until(BidiTranscriptBlockEvent, role="user")
        await talk.until(BidiResponseStopEvent)


async def is_interrupted(make: Make) -> None:
    async with Conversation(BidiAgent(make(), system_prompt="Tell very long stories.")) as talk:
        await talk.agent.send("Tell me a story about a dragon.")
        await talk.until(BidiTranscriptBlockEvent, role="assistant")
        await talk.speak("flite-s4.wav")
        await talk.until(BidiBargeInEvent)


async def calls_a_tool_by_voice(make: Make) -> None:
    asked: list[str] = []
    async with Conversation(BidiAgent(make(), tools=[weather_tool(asked)])) as talk:
        await talk.agent.send("What is the weather in Paris?")
        await talk.until(ToolResultMessageEvent)
        await talk.until(BidiTranscriptBlockEvent, role="assistant")
    assert asked


async def is_told_the_conversation(make: Make) -> None:
    storage = InMemoryStorage()

    def agent() -> BidiAgent:
        return BidiAgent(make(), session_manager=SnapshotSessionManager[BidiAgent]("live", storage=storage))

    for number in range(2):
        async with Conversation(agent()) as talk:
            await talk.agent.send(["My name is Ann.", "What is my name?"][number])
            await talk.until(BidiResponseStopEvent)
        assert len(talk.agent.messages) > number  # what nobody heard of an answer is not kept


async def refuses_a_wrong_key_by_voice(make: Make) -> None:
    with pytest.raises(ModelCredentialsError):
        await make(key="wrong-key-0123456789").start()


LIVE = [
    *[talks, hears, is_interrupted, calls_a_tool_by_voice],
    *[is_told_the_conversation, refuses_a_wrong_key_by_voice],
]

"""The embedded model with the extra `voice`: real sound in, real sound out, in no real time."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import wave
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from antiphon import BidiAgent, tool
from antiphon.audio import Resampler, silence
from antiphon.content import AudioDelta
from antiphon.events import (
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptBlockEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
    ToolResultMessageEvent,
)
from antiphon.models import EmbeddedBidiModel
from antiphon.models.embedded.mouth import Mouth
from antiphon.models.embedded.talk import story
from antiphon.testing import VirtualClock

pytest.importorskip("pocketsphinx", reason="the extra voice is not installed")
pytest.importorskip("espeakng_loader", reason="the extra voice is not installed")

CLIPS = Path(__file__).parents[2] / "audio"
STORY = "tell me a short story about a dragon"
CLIPS_OF = {STORY: "flite-s5.wav", "stop": "flite-s4.wav"}


def resampled(pcm: bytes, rate: int) -> bytes:
    """Sound at 16 kHz, with enough silence after it."""
    resampler = Resampler(rate, 16000)
    return silence(300, 16000) + resampler.feed(pcm) + resampler.flush() + silence(800, 16000)


def clip(text: str) -> bytes:
    """A sentence that was recorded."""
    with wave.open(str(CLIPS / CLIPS_OF[text])) as file:
        return resampled(file.readframes(file.getnframes()), file.getframerate())


def spoken(text: str, voice: str) -> bytes:
    """A sentence that is said now."""
    if voice == "espeak":
        mouth = Mouth(voice="en-us+klatt", rate=150)  # of its voices, one that can be understood
        return resampled(b"".join(chunk.pcm for chunk in mouth.say(text)), mouth.sample_rate)
    program = ["flite", "-voice", "slt", "-t", text, "-o", "/dev/stdout"]
    made = subprocess.run(program, capture_output=True, check=True, timeout=50)
    # flite leaves the lengths in the header open when it writes to a pipe.
    with wave.open(io.BytesIO(made.stdout)) as file:
        return resampled(file.readframes(len(made.stdout)), file.getframerate())


class Talk:
    """A call of the model, and what came of it."""

    def __init__(self) -> None:
        self.model = EmbeddedBidiModel(voice=True, clock=VirtualClock())
        self.seen: list[OutputEvent] = []
        self._news = asyncio.Event()

    async def listen(self) -> None:
        async for event in self.model.receive():
            self.seen.append(event)
            self._news.set()

    async def until(self, kind: type[OutputEvent], count: int) -> None:
        while sum(isinstance(event, kind) for event in self.seen) < count:
            self._news.clear()
            await self._news.wait()

    async def say(self, text: str) -> None:
        await self.model.send(AudioDelta("pcm", {"bytes": clip(text)}))


@pytest.mark.parametrize(
    ("voice", "order", "heard_as", "call"),
    [
        ("flite", "set an alarm for seven for work", "set an alarm for seven for work", (7, "work")),
        # The synthesiser is there wherever the extra is, and hard to understand.
        ("espeak", "set the alarm for nine in the garden", "set the alarm for nine o'clock garden", (9, "garden")),
    ],
    ids=["flite", "espeak"],
)
async def test_a_tool_the_code_has_never_seen_runs_once_and_sentences_that_fit_no_tool_run_nothing(
    voice: str, order: str, heard_as: str, call: tuple[int, str]
) -> None:
    if voice == "flite" and shutil.which("flite") is None:
        pytest.skip("the program flite is not installed")
    ran: list[tuple[int, str]] = []

    @tool
    def alarm(hour: Annotated[int, Field(ge=0, le=23)], label: Literal["work", "garden"]) -> str:
        """Set an alarm."""
        ran.append((hour, label))
        return f"The alarm is set for {hour}."

    heard: list[str] = []
    answered, called = asyncio.Semaphore(0), asyncio.Event()
    clock = VirtualClock()
    agent = BidiAgent(EmbeddedBidiModel(voice=True, clock=clock), tools=[alarm], clock=clock)

    async def listen() -> None:
        async for event in agent.receive():
            if isinstance(event, BidiTranscriptBlockEvent) and event.role == "user":
                heard.append(event.transcript)
            elif isinstance(event, ToolResultMessageEvent):
                called.set()
            elif isinstance(event, BidiResponseStopEvent):
                answered.release()

    async with asyncio.TaskGroup() as group, agent:
        group.create_task(listen())
        await agent.send(AudioDelta("pcm", {"bytes": spoken(order, voice)}))
        await called.wait()
        await answered.acquire()
        for sentence in ("my grandmother bakes excellent bread", "the train was late again"):
            await agent.send(AudioDelta("pcm", {"bytes": spoken(sentence, voice)}))
            await answered.acquire()
    assert ran == [call]
    assert heard[0] == heard_as
    assert len(heard) == 3
    uses = [block["toolUse"] for message in agent.messages for block in message["content"] if "toolUse" in block]
    assert [(use["name"], use["input"]) for use in uses] == [("alarm", {"hour": call[0], "label": call[1]})]


async def test_what_is_being_understood_is_shown_and_is_no_part_of_the_transcript():
    talk = Talk()
    await talk.model.start(tools=[], messages=[])
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        await talk.say(STORY)
        await talk.until(BidiTranscriptStopEvent, 1)
        await talk.model.stop()
    deltas = [e for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) and e.role == "user"]
    assert [e.delta for e in deltas if not e.partial] == [STORY]
    assert any(e.partial for e in deltas)
    assert not any(e.delta for e in deltas if e.partial)


async def test_who_speaks_while_it_speaks_silences_it():
    clock = VirtualClock(autojump=False)
    talk = Talk()
    talk.model = EmbeddedBidiModel(voice=True, clock=clock)
    await talk.model.start(tools=[], messages=[])
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        await talk.say(STORY)
        await talk.until(BidiResponseStartEvent, 1)
        await clock.advance(4.0)
        await talk.say("stop")
        await talk.until(BidiBargeInEvent, 1)
        await talk.until(BidiTranscriptStopEvent, 3)  # of the story, and of both sentences of the user
        await clock.advance(0.1)
        await talk.until(BidiResponseStartEvent, 2)
        await talk.model.stop()
    deltas = [e for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) and e.content_id == "response-1"]
    said = "".join(e.delta for e in deltas)
    assert said
    assert story("dragon").startswith(said)
    assert len(said) < 150

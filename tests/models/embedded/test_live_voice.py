"""The embedded model with the extra `voice`: real sound in, real sound out, in no real time."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import wave
from functools import cache
from typing import Annotated, Literal

import pytest
from pydantic import Field, create_model

from antiphon.audio import Resampler, silence
from antiphon.content import AudioDelta, ToolSpec, ToolUse
from antiphon.events import (
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)
from antiphon.models import EmbeddedBidiModel
from antiphon.models.embedded.talk import story
from antiphon.testing import VirtualClock

pytest.importorskip("pocketsphinx", reason="the extra voice is not installed")
pytest.importorskip("espeakng_loader", reason="the extra voice is not installed")
flite = pytest.mark.skipif(shutil.which("flite") is None, reason="speech for the recogniser is made with flite")

ALARM: ToolSpec = {
    "name": "set_alarm",
    "description": "Set an alarm.",
    "inputSchema": {
        "json": create_model(
            "A", hour=(Annotated[int, Field(ge=0, le=23)], ...), label=(Literal["work", "garden"], ...)
        ).model_json_schema()
    },
}


@cache
def spoken(text: str) -> bytes:
    """A sentence at 16 kHz, with enough silence after it."""
    made = subprocess.run(["flite", "-voice", "slt", "-t", text, "-o", "/dev/stdout"], capture_output=True, check=True)
    # flite leaves the lengths in the header open when it writes to a pipe.
    with wave.open(io.BytesIO(made.stdout)) as file:
        rate, pcm = file.getframerate(), file.readframes(len(made.stdout))
    resampler = Resampler(rate, 16000)
    return silence(300, 16000) + resampler.feed(pcm) + resampler.flush() + silence(800, 16000)


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
        await self.model.send(AudioDelta("pcm", {"bytes": spoken(text)}))

    def calls(self) -> list[ToolUse]:
        return [use for event in self.seen if isinstance(event, BidiToolUseBlocksEvent) for use in event.tool_uses]

    def heard(self) -> list[str]:
        return [e.delta for e in self.seen if isinstance(e, BidiTranscriptDeltaEvent) and e.role == "user" and e.delta]


@flite
async def test_a_tool_it_has_never_seen_runs_once_and_other_sentences_run_nothing():
    talk = Talk()
    await talk.model.start(tools=[ALARM], messages=[])
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        await talk.say("set an alarm for seven for work")
        await talk.until(BidiToolUseBlocksEvent, 1)
        for number, sentence in enumerate(["my grandmother bakes excellent bread", "the train was late again"]):
            await talk.say(sentence)
            await talk.until(BidiResponseStartEvent, number + 1)
            await talk.until(BidiResponseStopEvent, number + 1)
        await talk.model.stop()
    [call] = talk.calls()
    assert call["name"] == "set_alarm"
    assert call["input"] == {"hour": 7, "label": "work"}
    assert talk.heard()[0] == "set an alarm for seven for work"
    assert len(talk.heard()) == 3


@flite
async def test_what_is_being_understood_is_shown_and_is_no_part_of_the_transcript():
    talk = Talk()
    await talk.model.start(tools=[ALARM], messages=[])
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        await talk.say("set an alarm for seven for work")
        await talk.until(BidiTranscriptStopEvent, 1)
        await talk.model.stop()
    deltas = [e for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) and e.role == "user"]
    assert [e.delta for e in deltas if not e.partial] == ["set an alarm for seven for work"]
    assert any(e.partial for e in deltas)
    assert not any(e.delta for e in deltas if e.partial)


@flite
async def test_who_speaks_while_it_speaks_silences_it():
    clock = VirtualClock(autojump=False)
    talk = Talk()
    talk.model = EmbeddedBidiModel(voice=True, clock=clock)
    await talk.model.start(tools=[], messages=[])
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        await talk.say("tell me a story about a dragon")
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

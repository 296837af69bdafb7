from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import create_model

from antiphon.audio import silence
from antiphon.content import AudioDelta, BidiMessage, ImageBlock, Messages, TextBlock, ToolResultBlock, ToolSpec
from antiphon.errors import ConnectionEndedError, InvalidInputError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    OutputEvent,
)
from antiphon.models import EmbeddedBidiModel
from antiphon.models.bidi import AudioCapable, Restartable, Truncatable
from antiphon.models.embedded.mouth import ToneMouth
from antiphon.models.embedded.talk import story
from antiphon.testing import End, Say, VirtualClock

ALARM: ToolSpec = {
    "name": "set_alarm",
    "description": "Set an alarm.",
    "inputSchema": {
        "json": create_model("A", hour=(int, ...), label=(Literal["work", "gym"], ...)).model_json_schema()
    },
}
VOICE = b"".join(chunk.pcm for chunk in ToneMouth(sample_rate=16000).say("somebody speaks here"))
QUIET = silence(700, 16000)


class Call:
    """A call of the embedded model, without an agent."""

    def __init__(self, model: EmbeddedBidiModel) -> None:
        self.model = model
        self.seen: list[OutputEvent] = []
        self._news = asyncio.Event()

    async def listen(self) -> None:
        async for event in self.model.receive():
            self.seen.append(event)
            self._news.set()

    async def until(self, what: Callable[[OutputEvent], bool], count: int = 1) -> None:
        """Wait until so many events were of that kind."""
        while sum(map(what, self.seen)) < count:
            self._news.clear()
            await self._news.wait()

    async def write(self, text: str) -> None:
        await self.model.send(BidiMessage([TextBlock(text)]))

    def said(self) -> dict[str, str]:
        """The words of each response."""
        texts: dict[str, str] = {}
        for event in self.seen:
            if isinstance(event, BidiTranscriptDeltaEvent) and event.role == "assistant":
                texts[event.content_id] = texts.get(event.content_id, "") + event.delta
        return texts


@asynccontextmanager
async def call(
    messages: Messages | None = None, tools: list[ToolSpec] | None = None, **options: Any
) -> AsyncIterator[Call]:
    model = EmbeddedBidiModel(voice=False, clock=VirtualClock(), **options)
    await model.start(tools=[ALARM] if tools is None else tools, messages=messages)
    talk = Call(model)
    async with asyncio.TaskGroup() as group:
        group.create_task(talk.listen())
        yield talk
        await model.stop()


def stop(event: OutputEvent) -> bool:
    return isinstance(event, BidiResponseStopEvent)


def sound(event: OutputEvent) -> bool:
    return isinstance(event, BidiAudioDeltaEvent)


async def test_it_answers_in_sound_and_words_at_the_pace_of_the_clock():
    async with call() as talk:
        await talk.write("hello")
        await talk.until(stop)
        assert talk.said() == {"response-1": "Hello! What can I do for you?"}
        audio = [event for event in talk.seen if isinstance(event, BidiAudioDeltaEvent)]
        assert {event.response_id for event in audio} == {"response-1"}
        length = sum(len(event.audio) for event in audio) / 2 / 24000
        assert talk.model._clock.now() == pytest.approx(length)
        words = [w for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) for w in e.words]
        assert all(first.end_ms <= second.start_ms for first, second in pairwise(words))
        assert words[-1].end_ms <= length * 1000


async def test_it_calls_a_tool_and_tells_the_result():
    async with call() as talk:
        await talk.write("please wake me at six for the gym")
        await talk.until(lambda event: isinstance(event, BidiToolUseBlocksEvent))
        [use] = next(e.tool_uses for e in talk.seen if isinstance(e, BidiToolUseBlocksEvent))
        assert use == {"toolUseId": "call-1", "name": "set_alarm", "input": {"label": "gym", "hour": 6}}
        await talk.model.send(BidiMessage([ToolResultBlock("call-1", "success", [{"text": "The alarm is set"}])]))
        await talk.until(stop)
        assert talk.said() == {"response-1": "The alarm is set."}


@pytest.mark.parametrize("sentence", ["my grandmother bakes bread", "the gym was closed at six"])
async def test_what_fits_no_tool_runs_none_and_is_answered(sentence):
    async with call() as talk:
        await talk.write(sentence)
        await talk.until(stop)
        assert not any(isinstance(event, BidiToolUseBlocksEvent) for event in talk.seen)
        assert "I cannot help with that" in talk.said()["response-1"]


async def test_a_question_is_answered_by_the_next_sentence():
    async with call() as talk:
        await talk.write("set an alarm for work")
        await talk.until(stop)
        assert talk.said()["response-1"] == "At what hour?"
        await talk.write("seven")
        await talk.until(lambda event: isinstance(event, BidiToolUseBlocksEvent))


async def test_whoever_writes_while_it_speaks_cuts_it_short():
    async with call() as talk:
        await talk.write("tell me a story about a dragon")
        await talk.until(sound, 100)
        await talk.write("stop")
        await talk.until(stop, 2)
        cut = talk.seen.index(BidiBargeInEvent(response_id="response-1"))
        assert not any(isinstance(e, BidiAudioDeltaEvent) and e.response_id == "response-1" for e in talk.seen[cut:])
        assert story("dragon").startswith(talk.said()["response-1"])
        assert talk.said()["response-2"] == "All right."


async def test_it_goes_on_where_the_listener_was():
    async with call() as talk:
        await talk.write("tell me a story about a dragon")
        await talk.until(sound, 150)
        await talk.write("stop")
        await talk.until(stop, 2)
    heard = " ".join(story("dragon").split()[:5])
    messages: Any = [
        {"role": "user", "content": [{"text": "tell me a story about a dragon"}]},
        {"role": "assistant", "content": [{"text": heard}]},
    ]
    async with call(messages) as talk:
        await talk.write("go on")
        await talk.until(stop)
        assert f"{heard} {next(iter(talk.said().values()))}" == story("dragon")


async def test_it_forgets_what_was_not_heard():
    async with call() as talk:
        await talk.write("tell me a story about a dragon")
        await talk.until(sound, 150)
        words = [w for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) for w in e.words]
        await talk.model.send(AudioDelta("pcm", {"bytes": VOICE + QUIET}))  # hears that somebody speaks, and is silent
        await talk.until(lambda event: isinstance(event, BidiBargeInEvent))
        await talk.model.truncate("response-1", words[3].end_ms)
        history = talk.model._conversation.messages
        assert history[1]["content"][0]["text"] == "Once upon a time"


async def test_speech_cuts_it_short_although_it_knows_no_words():
    async with call() as talk:
        await talk.write("count to fifty")
        await talk.until(sound, 30)
        await talk.model.send(AudioDelta("pcm", {"bytes": VOICE}))
        await talk.until(lambda event: isinstance(event, BidiBargeInEvent))
        start = next(e for e in talk.seen if isinstance(e, BidiTranscriptStartEvent) and e.role == "user")
        assert not any(isinstance(e, BidiTranscriptDeltaEvent) and e.content_id == start.content_id for e in talk.seen)
        await talk.model.send(AudioDelta("pcm", {"bytes": QUIET}))
        await talk.until(stop, 2)
        heard = [e.delta for e in talk.seen if isinstance(e, BidiTranscriptDeltaEvent) and e.role == "user"]
        assert heard == ["[inaudible]"]
        assert "install the extra voice" in talk.said()["response-2"]


async def test_a_result_waits_for_the_end_of_the_sentence_and_the_story_goes_on_after_it():
    async with call() as talk:
        await talk.write("wake me at six for work")
        await talk.until(lambda event: isinstance(event, BidiToolUseBlocksEvent))
        await talk.write("tell me a story about a dragon")
        await talk.until(sound, 20)
        await talk.model.send(BidiMessage([ToolResultBlock("call-1", "success", [{"text": "The alarm is set"}])]))
        await talk.until(stop, 3)
        first, result, rest = talk.said().values()
        assert result == "The alarm is set."
        assert f"{first} {rest}" == story("dragon")
        assert first == story("dragon").split(". ")[0] + "."
        assert [e.response_id for e in talk.seen if isinstance(e, BidiResponseStartEvent)] == list(talk.said())


async def test_it_says_that_it_cannot_see():
    async with call() as talk:
        await talk.model.send(BidiMessage([ImageBlock("png", {"bytes": b"x"})]))
        await talk.until(stop)
        assert "cannot see" in talk.said()["response-1"]


async def test_ids_in_a_restored_history_do_not_come_again():
    use: Any = {"toolUse": {"toolUseId": "call-1", "name": "set_alarm", "input": {}}}
    result: Any = {"toolResult": {"toolUseId": "call-1", "status": "success", "content": []}}
    messages: Any = [
        {"role": "user", "content": [{"text": "alarm"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    async with call(messages) as talk:
        await talk.write("wake me at six for work")
        await talk.until(lambda event: isinstance(event, BidiToolUseBlocksEvent))
        [use] = next(e.tool_uses for e in talk.seen if isinstance(e, BidiToolUseBlocksEvent))
        assert use["toolUseId"] == "call-2"


async def test_it_plays_a_script_when_it_has_one():
    model = EmbeddedBidiModel(voice=False, script=[Say("hello you"), End()], clock=VirtualClock())
    await model.start()
    said = [event.delta async for event in model.receive() if isinstance(event, BidiTranscriptDeltaEvent)]
    assert "".join(said) == "hello you"
    await model.stop()


async def test_nothing_is_left_of_a_call_that_was_stopped():
    model = EmbeddedBidiModel(voice=False, clock=VirtualClock())
    await model.start(tools=[])
    await model.stop()
    await model.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(ConnectionEndedError, match="start it first"):
        await model.send(BidiMessage([TextBlock("hello")]))
    assert [event.type async for event in model.receive()] == ["bidi_connection_start"]


def test_it_says_what_it_is():
    model = EmbeddedBidiModel(voice=False, connection={"restart_after_s": 30})
    assert model.get_connection_config() == {"restart_after_s": 30}
    model.update_config(connection={"restart_after_s": 60})
    assert model.get_config()["connection"] == {"restart_after_s": 60}
    with pytest.raises(InvalidInputError, match="temperature"):
        model.update_config(temperature=1)
    assert isinstance(model, AudioCapable)
    assert isinstance(model, Truncatable)
    assert not isinstance(model, Restartable)
    assert model.get_audio_config() == {
        "input": {"sample_rate": 16000, "channels": 1, "format": "pcm"},
        "output": {"sample_rate": 24000, "channels": 1, "format": "pcm"},
    }


def events_for(slices: list[bytes]) -> list[OutputEvent]:
    async def talk_to() -> list[OutputEvent]:
        async with call() as talk:
            await talk.write("count to ten")
            await talk.until(sound, 10)
            for piece in slices:
                await talk.model.send(AudioDelta("pcm", {"bytes": piece}))
            await talk.until(stop, 2)
        return talk.seen

    return asyncio.run(talk_to())


@cache
def whole() -> list[OutputEvent]:
    return events_for([VOICE + QUIET])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, len(VOICE + QUIET)), max_size=30))
def test_how_sound_is_sliced_changes_nothing(cuts):
    pcm = VOICE + QUIET
    edges = [0, *sorted(cuts), len(pcm)]
    assert events_for([pcm[start:end] for start, end in pairwise(edges)]) == whole()

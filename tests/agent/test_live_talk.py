"""Talking: what goes in, what comes out, and what the history says of it."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta, BidiMessage, ImageBlock, TextBlock, text_of
from antiphon.errors import (
    AgentNotStartedError,
    AgentStartedError,
    AntiphonError,
    InvalidInputError,
    InvalidTypeError,
)
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptBlockEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
)
from antiphon.hooks.events import (
    BidiBargeInHookEvent,
    BidiResponseCompleteEvent,
    MessageAddedEvent,
    MessageUpdatedEvent,
)
from antiphon.iothread import run_in_worker
from antiphon.models.embedded.live import EmbeddedBidiModel
from antiphon.testing import Hear, Reason, Say, ScriptedBidiModel, Until, Usage, VirtualClock, Wait, Write


def texts(agent: BidiAgent) -> list[str]:
    return [f"{message['role'][0]}: {text_of(message)}" for message in agent.messages]


def talker(script=(), **options) -> tuple[BidiAgent, ScriptedBidiModel, VirtualClock]:
    clock = VirtualClock()
    given = {key: options.pop(key) for key in list(options) if key in {"connection", "restartable", "start_errors"}}
    model = ScriptedBidiModel(script, clock=clock, **given)
    return BidiAgent(model, clock=clock, **options), model, clock


async def collect(agent: BidiAgent, events: list) -> None:
    async for event in agent.receive():
        events.append(event)


async def test_a_typed_question_and_its_spoken_answer_are_the_history():
    agent, model, clock = talker([Until("text"), Say("good morning to you")], system_prompt="Be kind.")
    events: list = []
    async with agent:
        listening = asyncio.ensure_future(collect(agent, events))
        await agent.send("hello")
        await clock.sleep(10)
    await listening
    assert texts(agent) == ["u: hello", "a: good morning to you"]
    assert model.starts[0].system_prompt == "Be kind."
    assert model.sent == [BidiMessage([TextBlock("hello")])]
    block = next(event for event in events if isinstance(event, BidiTranscriptBlockEvent))
    assert block.transcript == "good morning to you"
    types = [event.type for event in events if event.type not in {"bidi_audio_delta", "bidi_transcript_delta"}]
    assert types == [
        "bidi_response_start",
        "bidi_transcript_start",
        "bidi_audio_start",
        "bidi_audio_stop",
        "bidi_transcript_stop",
        "bidi_transcript_block",
        "bidi_response_stop",
    ]


async def test_every_form_of_input_is_understood():
    agent, model, _ = talker()
    sound = AudioDelta("pcm", {"bytes": b"\0\0"})
    picture = ImageBlock("png", {"bytes": b"png"})
    async with agent:
        await agent.send("one")
        await agent.send(TextBlock("two"))
        await agent.send({"text": "three"})
        await agent.send(picture)
        await agent.send({"image": {"format": "png", "source": {"bytes": b"png"}}})
        await agent.send(["four", TextBlock("five"), {"text": "six"}, picture])
        await agent.send(sound)
        await agent.send({"audio_delta": {"format": "pcm", "source": {"bytes": b"\0\0"}}})
    assert model.sent == [
        BidiMessage([TextBlock("one")]),
        BidiMessage([TextBlock("two")]),
        BidiMessage([TextBlock("three")]),
        BidiMessage([picture]),
        BidiMessage([picture]),
        BidiMessage([TextBlock("four"), TextBlock("five"), TextBlock("six"), picture]),
        sound,
        sound,
    ]
    assert len(agent.messages) == 6
    assert len(agent.messages[-1]["content"]) == 4


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], InvalidInputError),
        ({}, InvalidInputError),
        ({"text": "a", "image": {}}, InvalidInputError),
        ({"video": {}}, InvalidInputError),
        (5, InvalidTypeError),
        (None, InvalidTypeError),
        (b"sound", InvalidTypeError),
        ({"image": {"format": "png"}}, InvalidTypeError),
        ({"text": 7}, InvalidTypeError),
        ([AudioDelta("pcm", {"bytes": b""})], InvalidTypeError),
        ([["nested"]], InvalidTypeError),
    ],
)
async def test_input_that_cannot_be_sent_is_refused_and_leaves_no_trace(data, error):
    agent, model, _ = talker()
    async with agent:
        with pytest.raises(error):
            await agent.send(data)
    assert (agent.messages, model.sent) == ([], [])


async def test_nothing_can_be_sent_or_received_before_the_start():
    agent, _, _ = talker()
    with pytest.raises(AgentNotStartedError, match="call start before sending"):
        await agent.send("hello")
    with pytest.raises(AgentNotStartedError, match="call start before receiving"):
        async for _ in agent.receive():
            pass
    assert issubclass(AgentNotStartedError, RuntimeError)


async def test_a_second_start_is_refused():
    agent, model, _ = talker()
    async with agent:
        with pytest.raises(AgentStartedError, match="call stop before starting again"):
            await agent.start()
    assert len(model.starts) == 1


async def test_a_call_can_follow_another_with_the_same_history():
    agent, model, clock = talker([Until("text"), Say("one")])
    async with agent:
        await agent.send("first")
        await clock.sleep(5)
    async with agent:
        await agent.send("second")
    assert [text_of(message) for message in model.starts[1].messages or []] == ["first", "one"]
    assert texts(agent) == ["u: first", "a: one", "u: second"]


async def test_a_failed_start_leaves_the_agent_stopped():
    agent, model, _ = talker(start_errors=[AntiphonError("no line")])
    with pytest.raises(AntiphonError, match="no line"):
        await agent.start()
    assert model.stops == 1
    async with agent:
        await agent.send("now")


def test_a_model_may_be_named_and_what_is_none_is_refused():
    assert isinstance(BidiAgent("embedded").model, EmbeddedBidiModel)
    with pytest.raises(
        InvalidInputError, match="names the provider 'nobody', which no BidiAgent has: write one of bedrock:<model id>"
    ):
        BidiAgent("nobody:x")
    with pytest.raises(InvalidTypeError, match="model must be a BidiModel, string, or None"):
        BidiAgent(object())  # type: ignore[arg-type]


async def test_a_barge_in_overtakes_queued_sound_and_drops_it():
    agent, model, clock = talker([Say("a long story about a dragon in a cave", real_time=False), Wait(1.0)])
    seen: list[str] = []
    async with agent:
        async for event in agent.receive():
            seen.append(event.type)
            await clock.sleep(0.002)
            if len(seen) == 20:
                model.barge_in()
            if isinstance(event, BidiBargeInEvent):
                break
        after = seen.index("bidi_barge_in")
        assert after <= 22
        assert event.response_id == "response-1"
        model.feed(BidiAudioDeltaEvent(audio=b"\0\0" * 480, response_id="response-1"))
        model.feed(BidiResponseStartEvent(response_id="next"))
        async for event in agent.receive():
            assert not isinstance(event, BidiAudioDeltaEvent)
            if isinstance(event, BidiResponseStartEvent):
                break


async def test_what_the_loudspeaker_reports_decides_what_was_heard():
    agent, model, clock = talker([Until("text"), Say("one two three four five six", real_time=False)])
    async with agent:
        events: list = []
        listening = asyncio.ensure_future(collect(agent, events))
        await agent.send("count")
        await clock.sleep(0.1)
        agent.played("response-1", 500)
        model.barge_in()
        await clock.sleep(0.05)
        agent.played("response-1", 700)
        await clock.sleep(0.01)
        assert texts(agent) == ["u: count", "a: one two"]
        assert agent.messages[-1]["metadata"]["generated_text"] == "one two three four five six"
        assert model.truncations == [("response-1", 700)]
    await listening


async def test_reports_may_come_from_another_thread():
    agent, model, clock = talker([Say("one two three", real_time=False)])
    async with agent:
        await clock.sleep(0.01)
        await run_in_worker(agent.played, "response-1", 340.0)
        await asyncio.sleep(0)
        assert [text_of(line) for line in agent.take_journal().lines] == ["one"]
    agent.played("response-1", 1000)  # after the end nobody minds


async def test_a_call_goes_on_although_nobody_asks_for_events():
    agent, _, clock = talker([Until("text"), Say("a " * 60 + "story", real_time=False), Until("text"), Say("two")])
    async with agent:
        await agent.send("first")
        await clock.sleep(40)
        await agent.send("second")
        await clock.sleep(10)
        assert texts(agent) == ["u: first", "a: " + "a " * 60 + "story", "u: second", "a: two"]
        kept = 0
        async for event in agent.receive():
            kept += isinstance(event, BidiAudioDeltaEvent)
            if isinstance(event, BidiResponseStopEvent) and event.response_id == "response-2":
                break
        assert kept * 20 <= 5000 + 400


async def test_text_and_reasoning_become_messages_and_blocks():
    agent, _, clock = talker([Reason("think"), Write("a note"), Usage(3, 4)])
    events: list = []
    async with agent:
        listening = asyncio.ensure_future(collect(agent, events))
        await clock.sleep(5)
        assert texts(agent) == ["a: ", "a: a note"]
    await listening
    assert {"bidi_reasoning_block", "bidi_text_block", "bidi_usage"} <= {event.type for event in events}


async def test_a_late_transcript_is_put_in_its_place_and_told():
    agent, _, clock = talker([Hear("what was that", late_s=30), Say("two words")])
    updated: list[tuple[int, str]] = []
    agent.add_hook(lambda event: updated.append((event.index, text_of(event.message))), MessageUpdatedEvent)
    async with agent:
        await clock.sleep(20)
        assert texts(agent) == ["u: [inaudible]", "a: two words"]
        await clock.sleep(20)
        assert texts(agent) == ["u: what was that", "a: two words"]
    assert updated == [(0, "what was that")]


async def test_hooks_hear_of_messages_in_order_and_of_responses_and_barge_ins():
    agent, model, clock = talker([Until("text"), Say("one two three"), Wait(0.1)])
    heard: list[str] = []

    async def slow(event: MessageAddedEvent) -> None:
        await clock.sleep(0.5)
        heard.append(text_of(event.message))

    agent.add_hook(slow)
    agent.add_hook(lambda event: heard.append(f"done {event.response_id}"), BidiResponseCompleteEvent)
    agent.add_hook(lambda event: heard.append(f"cut {event.response_id}"), BidiBargeInHookEvent)
    async with agent:
        await agent.send("hello")
        assert heard == ["hello"]
        await clock.sleep(0.4)
        model.barge_in()
        await clock.sleep(5)
    assert heard == ["hello", "one", "cut response-1", "done response-1"]


async def test_a_hook_that_raises_is_told_to_whoever_sends():
    agent, model, _ = talker()

    def refuse(event: MessageAddedEvent) -> None:
        raise AntiphonError("no room")

    agent.add_hook(refuse)
    async with agent:
        with pytest.raises(AntiphonError, match="no room"):
            await agent.send("hello")
        assert model.sent == []
        assert texts(agent) == ["u: hello"]


async def test_a_slow_hook_does_not_delay_sound():
    agent, _, clock = talker([Hear("hello"), Say("one two three four five six seven eight nine")])

    async def slow(event: MessageAddedEvent) -> None:
        await clock.sleep(10)

    agent.add_hook(slow)
    async with agent:
        async for event in agent.receive():
            if isinstance(event, BidiResponseStopEvent):
                break
        assert clock.now() < 5


async def test_typed_text_during_an_answer_stands_behind_it():
    agent, model, clock = talker([Say("one two three four five six"), Until("text"), Say("yes")])
    async with agent:
        await clock.sleep(0.5)
        await agent.send("wait")
        assert model.sent == [BidiMessage([TextBlock("wait")])]
        assert texts(agent) == []
        await clock.sleep(10)
        assert texts(agent) == ["a: one two three four five six", "u: wait", "a: yes"]


async def test_the_current_state_can_be_seen_in_the_middle_of_a_word():
    agent, _, clock = talker([Until("text"), Say("one two three four")])
    async with agent:
        await agent.send("count")
        await clock.sleep(0.8)
        assert [text_of(message) for message in agent.take_snapshot(preset="session").data["messages"]] == ["count"]
        journal = agent.take_journal()
        assert (journal.mark, [text_of(line) for line in journal.lines]) == (1, ["one two"])


async def test_events_of_a_plain_model_without_ids_carry_the_ids_they_belong_to():
    agent, model, clock = talker()
    async with agent:
        model.feed(
            BidiTranscriptStartEvent(),
            BidiTranscriptDeltaEvent(delta="hi"),
            BidiAudioDeltaEvent(audio=b"\0\0" * 240, sample_rate=24000),
        )
        async for event in agent.receive():
            if isinstance(event, BidiAudioDeltaEvent):
                assert event.response_id == "response-1"
                break


async def test_two_listeners_share_the_events():
    agent, model, clock = talker()
    one: list = []
    two: list = []
    async with agent:
        tasks = [asyncio.ensure_future(collect(agent, one)), asyncio.ensure_future(collect(agent, two))]
        await clock.sleep(0)
        for number in range(10):
            model.feed(BidiResponseStartEvent(response_id=f"r{number}"))
            await clock.sleep(0.1)
    await asyncio.gather(*tasks)
    assert len(one) + len(two) == 10

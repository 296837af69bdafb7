from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock
from antiphon.errors import ConnectionEndedError, ConnectionTimeoutError, ModelError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionWarningEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStopEvent,
    BidiUsageEvent,
    OutputEvent,
    Word,
)
from antiphon.models.bidi import AudioCapable, Restartable, Truncatable
from antiphon.testing import (
    BargeIn,
    CallTools,
    Emit,
    End,
    Expire,
    Fail,
    GoAway,
    Hear,
    Reason,
    Say,
    ScriptedBidiModel,
    Until,
    Usage,
    VirtualClock,
    Wait,
    Write,
)

SOUND = AudioDelta("pcm", {"bytes": b"\0\0" * 320})


async def play(*script: Any, clock: VirtualClock | None = None, **options: Any) -> list[OutputEvent]:
    """The events of a script, with an end after it."""
    model = ScriptedBidiModel([*script, End()], clock=clock or VirtualClock(), **options)
    await model.start()
    try:
        return [event async for event in model.receive()]
    finally:
        await model.stop()


def kinds(events: Sequence[OutputEvent]) -> list[str]:
    """The types of the events, repetitions left out."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found


def sound_ms(events: Sequence[OutputEvent]) -> float:
    return sum(len(e.audio) / 2 / e.sample_rate * 1000 for e in events if isinstance(e, BidiAudioDeltaEvent))


async def test_a_response_has_sound_and_words_with_exact_times():
    clock = VirtualClock()
    events = await play(Say("Hello you there", words_per_second=2), clock=clock)
    assert [e.type for e in events[:3]] == ["bidi_response_start", "bidi_transcript_start", "bidi_audio_start"]
    assert [e.type for e in events[-3:]] == ["bidi_audio_stop", "bidi_transcript_stop", "bidi_response_stop"]
    said = [e for e in events if isinstance(e, BidiTranscriptDeltaEvent)]
    assert "".join(e.delta for e in said) == "Hello you there"
    assert [w for e in said for w in e.words] == [
        Word("Hello", 500, 0),
        Word("you", 1000, 500),
        Word("there", 1500, 1000),
    ]
    assert sound_ms(events) == 1500
    assert clock.now() == pytest.approx(1.5)
    assert {e.response_id for e in events if isinstance(e, BidiAudioDeltaEvent)} == {"response-1"}


async def test_each_word_comes_with_the_sound_in_which_it_begins():
    events = await play(Say("a b", words=[Word("a", 30, 5), Word("b", 70, 45)]))
    order = [e.delta if isinstance(e, BidiTranscriptDeltaEvent) else "#" for e in events[3:-3]]
    assert order == ["a", "#", "#", " b", "#", "#"]


async def test_sound_may_come_faster_than_real_time():
    clock = VirtualClock()
    events = await play(Say("one two three", real_time=False), clock=clock)
    assert sound_ms(events) == 1000
    assert clock.now() == 0


async def test_a_response_can_go_on_in_a_later_step_with_times_from_its_beginning():
    events = await play(Say("one", "r", words_per_second=2, last=False), Say("two", "r", words_per_second=2))
    words = [w for e in events if isinstance(e, BidiTranscriptDeltaEvent) for w in e.words]
    assert words == [Word("one", 500, 0), Word("two", 1000, 500)]
    assert kinds(events).count("bidi_response_start") == 1
    assert kinds(events).count("bidi_response_stop") == 1


async def test_nothing_of_a_response_is_sent_after_its_barge_in():
    events = await play(Say("one two three four", words_per_second=2, barge_in_at_ms=700))
    cut = events.index(BidiBargeInEvent(response_id="response-1"))
    assert sound_ms(events[:cut]) == 700
    assert [e.type for e in events[cut + 1 :]] == ["bidi_audio_stop", "bidi_transcript_stop", "bidi_response_stop"]


async def test_a_barge_in_may_come_when_all_sound_was_sent():
    clock = VirtualClock()
    events = await play(Say("one two three", real_time=False, barge_in_at_ms=700, stop_events=False), clock=clock)
    assert events[-1] == BidiBargeInEvent(response_id="response-1")
    assert sound_ms(events) == 1000
    assert clock.now() == pytest.approx(0.7)


async def test_a_test_can_barge_in_by_hand():
    clock = VirtualClock()
    model = ScriptedBidiModel([Say("one two three four", words_per_second=2), End()], clock=clock)
    await model.start()
    seen: list[OutputEvent] = []
    async for event in model.receive():
        seen.append(event)
        if isinstance(event, BidiAudioDeltaEvent) and sound_ms(seen) == 400:
            model.barge_in()
    await model.stop()
    cut = seen.index(BidiBargeInEvent(response_id="response-1"))
    assert sound_ms(seen[cut:]) == 0
    assert sound_ms(seen) == 400


async def test_what_the_user_said_may_come_late_while_the_script_goes_on():
    events = await play(Hear("turn it off", late_s=1), Write("done"), Wait(2))
    assert kinds(events) == [
        "bidi_transcript_start",
        "bidi_text_start",
        "bidi_text_delta",
        "bidi_text_stop",
        "bidi_transcript_delta",
        "bidi_transcript_stop",
    ]
    assert events[0].to_dict()["role"] == "user"


async def test_what_the_user_said_may_never_come():
    assert kinds(await play(Hear("lost", never=True))) == ["bidi_transcript_start"]


async def test_every_other_step_is_its_event():
    events = await play(
        Reason("let me see"),
        Write("hi", "r1"),
        CallTools([("look", {"at": 1}), {"toolUseId": "t", "name": "look", "input": {}}]),
        Usage(2, 3),
        GoAway(4),
        BargeIn(),
        Emit(BidiTextDeltaEvent(delta="raw"), BidiTextDeltaEvent(delta="er")),
    )
    assert kinds(events) == [
        "bidi_reasoning_start",
        "bidi_reasoning_delta",
        "bidi_reasoning_stop",
        "bidi_response_start",
        "bidi_text_start",
        "bidi_text_delta",
        "bidi_text_stop",
        "bidi_response_stop",
        "bidi_tool_use_blocks",
        "bidi_usage",
        "bidi_connection_warning",
        "bidi_barge_in",
        "bidi_text_delta",
    ]
    assert BidiUsageEvent(input_tokens=2, output_tokens=3, total_tokens=5) in events
    assert BidiConnectionWarningEvent(time_left_s=4) in events
    assert BidiBargeInEvent(response_id="r1") in events
    [called] = [e for e in events if isinstance(e, BidiToolUseBlocksEvent)]
    assert [use["toolUseId"] for use in called.tool_uses] == ["call-1", "t"]


async def test_an_error_comes_after_the_events_before_it():
    model = ScriptedBidiModel([Write("hi"), Fail(ModelError("broken"))])
    await model.start()
    seen: list[OutputEvent] = []
    with pytest.raises(ModelError, match="broken"):
        async for event in model.receive():
            seen.append(event)
    assert len(seen) == 3
    with pytest.raises(ConnectionEndedError):
        await model.send(SOUND)
    await model.stop()


async def test_the_script_goes_on_in_the_next_connection():
    model = ScriptedBidiModel([Write("a"), Expire(handle="h1"), Write("b"), End()], restartable=True)
    await model.start(system_prompt="s", messages=[])
    with pytest.raises(ConnectionTimeoutError) as caught:
        async for _ in model.receive():
            pass
    assert isinstance(model, Restartable)
    await model.restart(messages=[], **caught.value.restart_config)
    assert [e.delta async for e in model.receive() if isinstance(e, BidiTextDeltaEvent)] == ["b"]
    assert model.restarts[0].config == {"handle": "h1"}
    assert [start.system_prompt for start in model.starts] == ["s", None]
    await model.stop()


async def test_steps_wait_for_what_is_sent_and_each_thing_counts_once():
    model = ScriptedBidiModel(
        [
            Until("text"),
            Write("1"),
            Until("tool_result", 2),
            Write("2"),
            Until("audio"),
            Write("3"),
            Until("truncate"),
            End(),
        ]
    )
    await model.start()
    assert isinstance(model, Truncatable)
    await model.send(SOUND)
    await model.send(SOUND)
    await model.send(BidiMessage([ToolResultBlock("t1", "success", []), ToolResultBlock("t2", "success", [])]))
    await model.send(BidiMessage([TextBlock("go")]))
    await model.truncate("r", 120.0)
    assert [e.delta async for e in model.receive() if isinstance(e, BidiTextDeltaEvent)] == ["1", "2", "3"]
    assert len(model.sent) == 4
    assert model.truncations == [("r", 120.0)]
    await model.stop()


async def test_an_event_of_asyncio_holds_the_script():
    go = asyncio.Event()
    model = ScriptedBidiModel([Until(go), End()])
    await model.start()
    go.set()
    assert [e async for e in model.receive()] == []
    await model.stop()


async def test_a_test_can_drive_it_without_a_script():
    model = ScriptedBidiModel()
    await model.start()
    model.feed(BidiResponseStopEvent(response_id="x"))
    model.end()
    assert [e async for e in model.receive()] == [BidiResponseStopEvent(response_id="x")]
    await model.stop()
    await model.stop()
    assert model.stops == 2


async def test_stopping_ends_who_receives_and_leaves_no_task():
    model = ScriptedBidiModel([Wait(3600)], clock=VirtualClock(autojump=False))
    await model.start()
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(anext(model.receive(), None))
        await model.stop()
    assert reader.result() is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_start_may_fail():
    model = ScriptedBidiModel(start_errors=[ModelError("no line"), None])
    with pytest.raises(ModelError, match="no line"):
        await model.start()
    await model.stop()
    await model.start()
    assert model.connected
    await model.stop()


def test_it_offers_what_it_is_asked_to_offer():
    assert isinstance(ScriptedBidiModel(), Truncatable)
    assert isinstance(ScriptedBidiModel(), AudioCapable)
    assert not isinstance(ScriptedBidiModel(), Restartable)
    assert not isinstance(ScriptedBidiModel(truncatable=False), Truncatable)
    assert isinstance(ScriptedBidiModel(restartable=True), Restartable)


async def test_a_transcript_may_come_without_times_and_words_without_sound():
    events = await play(Say("one two", word_times=False, sound=False))
    said = [e for e in events if isinstance(e, BidiTranscriptDeltaEvent)]
    assert [e.words for e in said] == [(), ()]
    assert sound_ms(events) == 0
    assert isinstance(events[-2], BidiTranscriptStopEvent)

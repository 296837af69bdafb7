"""How calls end, and how their connections are replaced."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock, ToolUseBlock, text_of
from antiphon.errors import (
    AgentNotStartedError,
    AgentStateError,
    AntiphonError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    ModelError,
    StopError,
)
from antiphon.events import BidiConnectionRestartEvent, BidiConnectionWarningEvent
from antiphon.hooks.events import (
    BidiAfterConnectionRestartEvent,
    BidiAgentStopEvent,
    BidiBeforeConnectionRestartEvent,
    MessageAddedEvent,
)
from antiphon.testing import (
    CallTools,
    End,
    Expire,
    Fail,
    GoAway,
    Hear,
    Say,
    ScriptedBidiModel,
    Until,
    VirtualClock,
    Wait,
)
from antiphon.tools.context import ToolContext
from antiphon.tools.decorator import tool


def caller(script=(), *, tools=None, **model_options) -> tuple[BidiAgent, ScriptedBidiModel, VirtualClock]:
    clock = VirtualClock()
    model = ScriptedBidiModel(script, clock=clock, **model_options)
    return BidiAgent(model, clock=clock, tools=tools), model, clock


async def drain(agent: BidiAgent) -> list:
    return [event async for event in agent.receive()]


async def test_a_stream_that_ends_ends_the_call_with_a_reason():
    agent, _, _ = caller([Say("bye"), End()])
    await agent.start()
    with pytest.raises(ConnectionEndedError, match="ended the connection"):
        await drain(agent)
    with pytest.raises(ConnectionEndedError):
        await agent.send("hello?")
    with pytest.raises(ConnectionEndedError):
        await agent.send(AudioDelta("pcm", {"bytes": b""}))
    await agent.stop()  # does not repeat it


async def test_an_error_of_the_model_passes_unchanged_after_what_it_had_said():
    agent, _, clock = caller([Say("so far"), Wait(3), Fail(ModelError("no credit"))])
    await agent.start()
    events: list[str] = []
    with pytest.raises(ModelError, match="no credit"):
        async for event in agent.receive():
            events.append(event.type)
    assert "bidi_response_stop" in events
    await agent.stop()
    assert [text_of(message) for message in agent.messages] == ["so far"]


async def test_a_failure_that_nobody_was_told_of_is_told_by_stop():
    agent, _, clock = caller([Fail(ModelError("no credit"))])
    await agent.start()
    await clock.sleep(1)
    with pytest.raises(ModelError, match="no credit"):
        await agent.stop()
    await agent.stop()


async def test_stop_does_nothing_when_nothing_was_started():
    agent, model, _ = caller()
    told: list[object] = []
    agent.add_hook(told.append, BidiAgentStopEvent)
    await agent.stop()
    assert (told, model.stops) == ([], 0)


async def test_stop_closes_everything_and_reports_every_failure():
    agent, model, clock = caller([Until("text"), Say("one two three four")])
    order: list[str] = []

    async def bad_stop() -> None:
        await ScriptedBidiModel.stop(model)
        raise ModelError("cannot hang up")

    def raising(event: BidiAgentStopEvent) -> None:
        order.append("raises")
        raise AntiphonError("bad hook")

    model.stop = bad_stop  # type: ignore[method-assign]
    agent.add_hook(lambda event: order.append("first registered"), BidiAgentStopEvent)
    agent.add_hook(raising)
    agent.add_hook(lambda event: order.append("last"), BidiAgentStopEvent, order=100)
    await agent.start()
    await agent.send("hello")
    await clock.sleep(0.7)
    with pytest.raises(StopError) as caught:
        await agent.stop()
    assert [str(error) for error in caught.value.errors] == ["cannot hang up", "bad hook"]
    assert order == ["raises", "first registered", "last"]
    assert [text_of(message) for message in agent.messages] == ["hello", "one two"]
    with pytest.raises(AgentNotStartedError):
        await agent.send("more")
    assert not model.connected


async def test_a_cancelled_stop_still_closes_everything():
    agent, model, clock = caller()
    closed: list[str] = []

    async def slow(event: BidiAgentStopEvent) -> None:
        await clock.sleep(5)
        closed.append("saved")

    agent.add_hook(slow)
    await agent.start()
    stopping = asyncio.ensure_future(agent.stop())
    await clock.sleep(1)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await clock.sleep(10)
    assert closed == ["saved"]
    await agent.start()
    await agent.stop()


async def test_an_exception_inside_the_context_still_closes_the_call():
    agent, model, _ = caller()
    with pytest.raises(KeyError):
        async with agent:
            raise KeyError("mine")
    assert not model.connected


async def test_a_hook_or_a_tool_may_stop_the_call_it_belongs_to():
    async def ending(event: MessageAddedEvent[BidiAgent]) -> None:
        await event.agent.stop()

    @tool
    async def hang_up(context: ToolContext[BidiAgent]) -> str:
        """End the call."""
        await context.agent.stop()
        return "bye"

    sound = AudioDelta("pcm", {"bytes": b"\0\0"})
    for step in (Hear("stop"), CallTools([("hang_up", {})])):
        agent, model, clock = caller([Until("audio"), step], tools=[hang_up])
        agent.add_hook(ending, MessageAddedEvent)
        await agent.start()
        listening = asyncio.ensure_future(drain(agent))
        await agent.send(sound)
        await listening
        await clock.sleep(1)
        assert not model.connected
        with pytest.raises(AgentNotStartedError):
            await agent.send("more")


async def test_after_cancel_nothing_can_be_sent_until_the_next_start():
    agent, _, clock = caller()
    async with agent:
        agent.cancel()
        agent.cancel()
        assert [event.type for event in await drain(agent)] == ["bidi_connection_stop"]
        with pytest.raises(AgentStateError, match="cancelled"):
            await agent.send("hello")
    async with agent:
        await agent.send("hello")


async def test_a_timeout_restarts_the_connection_with_the_history():
    agent, model, clock = caller(
        [Until("text"), Say("one two"), Wait(5), Expire(handle="h1"), Until("text"), Say("three")], restartable=True
    )
    told: list[object] = []
    agent.add_hook(
        lambda event: told.append((type(event).__name__, event.reason)),
        [BidiBeforeConnectionRestartEvent, BidiAfterConnectionRestartEvent],
    )
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        await agent.send("go")
        await clock.sleep(10)
        await agent.send("again")
        await clock.sleep(10)
    events = await listening
    restart = next(event for event in events if isinstance(event, BidiConnectionRestartEvent))
    assert (restart.reason, restart.turn_interrupted) == ("timeout", False)
    assert isinstance(restart.timeout_error, ConnectionTimeoutError)
    assert restart.to_dict()["timeout_error"]["error"] == "ConnectionTimeoutError"
    assert model.restarts[0].config == {"handle": "h1"}
    assert [text_of(message) for message in model.restarts[0].messages or []] == ["go", "one two"]
    assert [text_of(message) for message in agent.messages] == ["go", "one two", "again", "three"]
    assert told == [("BidiBeforeConnectionRestartEvent", "timeout"), ("BidiAfterConnectionRestartEvent", "timeout")]


async def test_a_plain_model_is_stopped_and_started_and_what_is_playing_goes_on():
    agent, model, clock = caller([Until("text"), Say("one two three four", real_time=False), Expire()])
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        await agent.send("go")
        await clock.sleep(0.5)
        assert len(model.starts) == 2
        assert [text_of(message) for message in model.starts[1].messages or []] == ["go", "one two three four"]
        await clock.sleep(5)
    await listening
    assert [text_of(message) for message in agent.messages] == ["go", "one two three four"]


async def test_without_automatic_restart_the_timeout_is_raised():
    agent, _, _ = caller([Expire()], connection={"auto_restart": False})
    async with agent:
        with pytest.raises(ConnectionTimeoutError):
            await drain(agent)


async def test_a_restart_that_fails_ends_the_call_and_opens_the_gate():
    agent, _, clock = caller([Expire()], start_errors=[None, ModelError("refused")])
    outcomes: list[object] = []
    agent.add_hook(lambda event: outcomes.append(event.exception), BidiAfterConnectionRestartEvent)
    await agent.start()
    sending = asyncio.ensure_future(agent.send("hello"))
    with pytest.raises(ConnectionEndedError, match="could not be restarted: refused"):
        await drain(agent)
    await clock.sleep(1)
    assert sending.done()
    with pytest.raises(ConnectionEndedError):
        await agent.send("hello")
    await agent.stop()
    assert [str(error) for error in outcomes] == ["refused"]


async def test_a_restart_that_never_returns_ends_the_call():
    agent, model, clock = caller([Expire()], restartable=True)

    async def never(**_: object) -> None:
        await asyncio.Event().wait()

    model.restart = never
    await agent.start()
    with pytest.raises(ConnectionEndedError, match="not done within 30 s"):
        await drain(agent)
    await agent.stop()


async def test_input_during_a_restart_waits_for_the_new_connection():
    agent, model, clock = caller([Expire()], restartable=True)
    opened = asyncio.Event()
    original = model.restart

    async def slow(**kwargs: object) -> None:
        await clock.sleep(5)
        await original(**kwargs)
        opened.set()

    model.restart = slow
    async with agent:
        await clock.sleep(1)
        sound = AudioDelta("pcm", {"bytes": b"\1\0"})
        sending = asyncio.gather(agent.send(sound), agent.send("hello"))
        await clock.sleep(1)
        assert model.sent == []
        await sending
        assert opened.is_set()
        assert model.sent == [sound, BidiMessage([TextBlock("hello")])]


async def test_a_result_that_is_ready_during_a_restart_is_delivered_once_with_its_call():
    clock = VirtualClock()

    @tool
    async def slow() -> str:
        """Wait."""
        await clock.sleep(2)
        return "done"

    model = ScriptedBidiModel([CallTools([("slow", {})]), Wait(1), Expire()], clock=clock, restartable=True)
    original = model.restart

    async def replaced(**kwargs: object) -> None:
        await clock.sleep(3)
        await original(**kwargs)

    model.restart = replaced
    agent = BidiAgent(model, clock=clock, tools=[slow])
    async with agent:
        await clock.sleep(10)
    assert model.sent == [
        BidiMessage([ToolUseBlock("call-1", "slow", {}), ToolResultBlock("call-1", "success", [{"text": "done"}])])
    ]
    assert len(agent.messages) == 2


async def test_a_scheduled_restart_is_announced_and_waits_until_nobody_speaks():
    agent, model, clock = caller(
        [Wait(19), Hear("tell me"), Say("one two three four five six")], connection={"restart_after_s": 20}
    )
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        await clock.sleep(30)
    events = await listening
    warning = next(event for event in events if isinstance(event, BidiConnectionWarningEvent))
    assert warning.time_left_s == 10
    restart = next(event for event in events if isinstance(event, BidiConnectionRestartEvent))
    assert (restart.reason, restart.turn_interrupted) == ("scheduled", False)
    assert [event.type for event in events].index("bidi_response_stop") < events.index(restart)
    assert [text_of(message) for message in model.starts[1].messages or []] == [
        "tell me",
        "one two three four five six",
    ]


async def test_a_scheduled_restart_waits_ten_seconds_at_most():
    agent, model, clock = caller([Say("word " * 120)], connection={"restart_after_s": 5})
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        await clock.sleep(16)
        assert len(model.starts) == 2
    restart = next(event for event in await listening if isinstance(event, BidiConnectionRestartEvent))
    assert restart.turn_interrupted


async def test_a_provider_that_says_it_will_go_is_left_before_it_does():
    agent, model, clock = caller([GoAway(time_left_s=20), Say("one two three")])
    async with agent:
        await clock.sleep(5)
    assert len(model.starts) == 2


async def test_a_failing_hook_before_a_restart_ends_the_call():
    agent, _, _ = caller([Expire()])

    def bad(event: BidiBeforeConnectionRestartEvent) -> None:
        raise AntiphonError("disk full")

    agent.add_hook(bad)
    await agent.start()
    with pytest.raises(AntiphonError, match="disk full"):
        await drain(agent)
    await agent.stop()


async def test_the_loop_ending_closes_the_call():
    agent, model, clock = caller([Say("one two three")])
    saved: list[str] = []
    agent.add_hook(lambda event: saved.append("saved"), BidiAgentStopEvent)

    async def main() -> None:
        await agent.start()
        await clock.sleep(0.1)

    await asyncio.to_thread(asyncio.run, main())
    assert saved == ["saved"]
    assert not model.connected


async def test_the_loop_ending_in_the_middle_of_a_hook_still_closes_the_call():
    clock = VirtualClock()
    model = ScriptedBidiModel([Hear("one"), Hear("two"), Hear("three")], clock=clock)
    agent = BidiAgent(model, clock=clock)
    began = asyncio.Event()
    heard: list[str] = []

    async def slow(event: MessageAddedEvent) -> None:
        began.set()
        if text_of(event.message) == "one":
            await asyncio.Event().wait()
        heard.append(text_of(event.message))

    agent.add_hook(slow)
    agent.add_hook(lambda event: heard.append("stopped"), BidiAgentStopEvent)

    async def main() -> None:
        await agent.start()
        await began.wait()

    await asyncio.wait_for(asyncio.to_thread(asyncio.run, main()), 20)
    assert heard == ["two", "three", "stopped"]
    assert not model.connected

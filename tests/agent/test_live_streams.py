"""`run`: streams on both ends of a call."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.agent.streams import InputStream, OutputStream
from antiphon.errors import AgentStartedError, InvalidTypeError, ModelError, StopError
from antiphon.testing import End, Fail, Say, ScriptedBidiModel, Until, VirtualClock, Wait


class Keyboard:
    """Types lines."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.calls: list[str] = []

    async def start(self, agent) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def __call__(self) -> str:
        if not self.lines:
            raise StopAsyncIteration
        return self.lines.pop(0)


class Screen:
    """Keeps events; hangs up after the answer."""

    def __init__(self, *, fail_on: str = "", fail_stop: bool = False) -> None:
        self.events: list[str] = []
        self.calls: list[str] = []
        self.fail_on, self.fail_stop = fail_on, fail_stop
        self.agent: BidiAgent | None = None

    async def start(self, agent) -> None:
        self.agent = agent
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")
        if self.fail_stop:
            raise OSError("screen is stuck")

    async def __call__(self, event) -> None:
        self.events.append(event.type)
        if event.type == self.fail_on:
            raise ValueError("screen is broken")
        if event.type == "bidi_response_stop":
            assert self.agent is not None
            self.agent.cancel()


def agent_for(script) -> tuple[BidiAgent, ScriptedBidiModel]:
    clock = VirtualClock()
    model = ScriptedBidiModel(script, clock=clock)
    return BidiAgent(model, clock=clock), model


async def test_streams_are_started_fed_and_stopped():
    agent, model = agent_for([Until("text", 2), Say("good day")])
    keyboard, screen, also = Keyboard("hello", "there"), Screen(), []

    async def plain(event) -> None:
        also.append(event.type)

    assert isinstance(keyboard, InputStream)
    assert isinstance(screen, OutputStream)
    await agent.run(inputs=[keyboard], outputs=[screen, plain])
    assert keyboard.calls == screen.calls == ["start", "stop"]
    assert screen.events == also
    assert screen.events[-1] == "bidi_connection_stop"
    assert not model.connected


@pytest.mark.parametrize(
    ("streams", "words"),
    [
        ({"inputs": ["hello"], "outputs": []}, "an input is 'hello': give an asynchronous generator"),
        ({"inputs": [iter("hi")], "outputs": []}, "an input is <.*iterator"),
        ({"inputs": [], "outputs": ["heard.wav"]}, "an output is 'heard.wav': give an async function"),
    ],
)
async def test_what_is_no_stream_is_refused_before_any_is_started(streams, words):
    agent, model = agent_for([Say("good day")])
    keyboard = Keyboard("hello")
    with pytest.raises(InvalidTypeError, match=words):
        await agent.run(**{**streams, "inputs": [keyboard, *streams["inputs"]]})
    assert "start" not in keyboard.calls
    assert not model.connected


async def test_a_plain_function_is_an_input_and_the_talk_goes_on_when_it_has_ended():
    agent, _ = agent_for([Until("text"), Wait(5), Say("late answer")])
    lines = ["hello"]

    async def read() -> str:
        if not lines:
            raise StopAsyncIteration
        return lines.pop()

    screen = Screen()
    await agent.run([read], [screen])
    assert "bidi_transcript_block" in screen.events


async def test_a_generator_is_an_input_and_is_closed_when_the_talk_ends():
    agent, model = agent_for([Until("text", 2), Say("good day")])
    steps: list[str] = []

    async def typed():
        try:
            yield "hello"
            yield "there"
            steps.append("asked for more")
            await asyncio.Event().wait()
        finally:
            steps.append("closed")

    await agent.run([typed()], [Screen()])
    assert [content.content[0].text for content in model.sent] == ["hello", "there"]
    assert steps == ["asked for more", "closed"]


async def test_a_generator_that_is_used_up_ends_the_input_and_not_the_talk():
    agent, _ = agent_for([Until("text"), Wait(5), Say("late answer")])

    async def typed():
        yield "hello"

    screen = Screen()
    await agent.run([typed()], [screen])
    assert "bidi_transcript_block" in screen.events


async def test_the_first_failure_of_a_stream_ends_the_run_as_itself():
    agent, model = agent_for([Until("text"), Say("good day")])
    keyboard, screen = Keyboard("hello"), Screen(fail_on="bidi_audio_start")
    with pytest.raises(ValueError, match="screen is broken"):
        await agent.run([keyboard], [screen])
    assert keyboard.calls == screen.calls == ["start", "stop"]
    assert not model.connected


async def test_an_input_that_fails_ends_the_run():
    agent, model = agent_for([])

    async def read() -> str:
        raise OSError("no microphone")

    with pytest.raises(OSError, match="no microphone"):
        await agent.run([read], [])
    assert not model.connected


async def test_why_the_call_ended_is_raised_by_run():
    agent, _ = agent_for([Fail(ModelError("no credit"))])

    async def read() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ModelError, match="no credit"):
        await agent.run([read], [Screen()])


async def test_several_failures_are_told_together():
    agent, _ = agent_for([End()])
    with pytest.raises(StopError) as caught:
        await agent.run([], [Screen(fail_stop=True)])
    assert [type(error).__name__ for error in caught.value.errors] == ["ConnectionEndedError", "OSError"]


async def test_a_cancelled_run_stops_everything():
    agent, model = agent_for([])
    keyboard = Keyboard()
    reading = asyncio.Event()

    async def read() -> str:
        reading.set()
        await asyncio.Event().wait()
        return ""

    running = asyncio.ensure_future(agent.run([keyboard, read], [Screen()]))
    await reading.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert keyboard.calls == ["start", "stop"]
    assert not model.connected


async def test_a_run_that_is_cancelled_at_any_step_leaves_nothing_behind():
    for steps in range(8):
        agent, model = agent_for([])
        running = asyncio.ensure_future(agent.run([Keyboard()], []))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        assert not model.connected


async def test_streams_are_connected_to_a_talk_that_has_begun():
    agent, model = agent_for([Until("text", 2), Say("good day")])
    keyboard, screen = Keyboard("there"), Screen()
    async with agent:
        await agent.send("hello")
        await agent.run([keyboard], [screen])
        assert not model.connected
    assert [content.content[0].text for content in model.sent] == ["hello", "there"]
    assert keyboard.calls == screen.calls == ["start", "stop"]
    assert len(model.starts) == 1


async def test_streams_are_connected_once_and_not_to_a_talk_with_another_state():
    agent, _ = agent_for([])
    reading = asyncio.Event()

    async def read() -> str:
        reading.set()
        await asyncio.Event().wait()
        return ""

    running = asyncio.ensure_future(agent.run([read], []))
    await asyncio.sleep(0)
    with pytest.raises(AgentStartedError):  # while it begins, too
        await agent.run([], [])
    await reading.wait()
    with pytest.raises(AgentStartedError):
        await agent.run([], [])
    agent.cancel()
    await running
    async with agent:
        with pytest.raises(AgentStartedError):
            await agent.run([], [], {"user": "ann"})

"""What happens at the same time as something else, and what others get wrong."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock, ToolUseBlock, text_of
from antiphon.conversation.journal import Journal, OpenCall
from antiphon.conversation.repair import problems
from antiphon.errors import (
    AgentStartedError,
    AgentStateError,
    AudioFormatError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    InterruptError,
    InvalidInputError,
    InvalidTypeError,
    ModelError,
    NotJsonError,
    StopError,
)
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiConnectionWarningEvent,
    BidiResponseStartEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
)
from antiphon.hooks.events import (
    BidiAfterConnectionRestartEvent,
    BidiAgentStopEvent,
    BidiBeforeConnectionRestartEvent,
    JournalChangedEvent,
    MessageAddedEvent,
)
from antiphon.models.bidi import BidiModel
from antiphon.session import SnapshotSessionManager
from antiphon.snapshot.envelope import Snapshot
from antiphon.storage import InMemoryStorage
from antiphon.testing import (
    CallTools,
    Expire,
    FaultStorage,
    Hear,
    Say,
    ScriptedBidiModel,
    Until,
    VirtualClock,
    Wait,
    Write,
)
from antiphon.tools import ToolContext, tool

SOUND = AudioDelta("pcm", {"bytes": b"\0\0"})


def caller(script=(), *, tools=None, agent=None, **model_options) -> tuple[BidiAgent, ScriptedBidiModel, VirtualClock]:
    clock = VirtualClock()
    model = ScriptedBidiModel(script, clock=clock, **model_options)
    return BidiAgent(model, clock=clock, tools=tools, **(agent or {})), model, clock


def called(*uses: tuple[str, str, object]) -> BidiToolUseBlocksEvent:
    return BidiToolUseBlocksEvent(
        tool_uses=[{"toolUseId": key, "name": name, "input": data} for key, name, data in uses]
    )


async def drain(agent: BidiAgent) -> list:
    return [event async for event in agent.receive()]


def ids(agent: BidiAgent) -> list[str]:
    return [
        block["toolUse"]["toolUseId"]
        for message in agent.messages
        for block in message["content"]
        if "toolUse" in block
    ]


class Gated(ScriptedBidiModel):
    """A scripted model whose connections open when they may."""

    def __init__(self, clock: VirtualClock, *, open_at_once: int = 0) -> None:
        super().__init__(clock=clock)
        self.at_once = open_at_once
        self.opening = asyncio.Event()
        self.may_open = asyncio.Event()

    async def start(self, *args, **kwargs) -> None:
        if len(self.starts) >= self.at_once:
            self.opening.set()
            await self.may_open.wait()
        await super().start(*args, **kwargs)


class Line(BidiModel):
    """A connection that a peer closes: what is sent is refused at once, what it had sent is still read."""

    def __init__(self) -> None:
        self.open = False
        self.sent: list[object] = []
        self.told: list[list] = []
        self.inbox: asyncio.Queue = asyncio.Queue()

    def get_config(self):
        return {}

    def update_config(self, **config) -> None:
        """Nothing to change."""

    async def start(self, system_prompt=None, tools=None, messages=None, **kwargs) -> None:
        self.open = True
        self.told.append([text_of(message) for message in messages or []])
        self.inbox = asyncio.Queue()

    async def stop(self) -> None:
        self.open = False

    async def send(self, content, /) -> None:
        if not self.open:
            raise ConnectionResetError("closed by the peer")
        self.sent.append(content)

    async def receive(self):
        inbox = self.inbox
        while True:
            item = await inbox.get()
            if isinstance(item, Exception):
                raise item
            yield item

    def peer_closes(self) -> None:
        self.open = False
        self.inbox.put_nowait(ConnectionTimeoutError("60 minutes"))


# Sending while the connection dies.


async def test_sound_sent_on_a_dying_connection_does_not_end_the_talk():
    clock = VirtualClock()
    model = Line()
    agent = BidiAgent(model, clock=clock)
    async with agent:
        model.peer_closes()
        await agent.send(SOUND)
        await agent.send(SOUND)
        assert len(model.told) == 2
        assert model.sent == [SOUND]


async def test_text_sent_on_a_dying_connection_is_sent_to_the_next_one_and_told_once():
    clock = VirtualClock()
    model = Line()
    agent = BidiAgent(model, clock=clock)
    async with agent:
        model.peer_closes()
        await agent.send("book a table")
        assert model.sent == [BidiMessage([TextBlock("book a table")])]
        assert model.told == [[], []]
    assert [text_of(message) for message in agent.messages] == ["book a table"]


async def test_a_send_that_is_refused_for_good_raises_what_the_model_raised():
    clock = VirtualClock()
    model = Line()
    agent = BidiAgent(model, clock=clock)
    async with agent:
        model.open = False
        with pytest.raises(ConnectionResetError):
            await agent.send(SOUND)


async def test_a_message_is_delivered_although_its_sender_no_longer_waits():
    agent, model, clock = caller()

    async def slow(event: MessageAddedEvent) -> None:
        await clock.sleep(2)

    agent.add_hook(slow)
    async with agent:
        sending = asyncio.ensure_future(agent.send("hello"))
        await clock.sleep(1)
        sending.cancel()
        await clock.sleep(5)
        assert model.sent == [BidiMessage([TextBlock("hello")])]
    assert len(agent.messages) == 1


async def test_a_result_that_a_dying_connection_swallowed_is_told_to_the_next():
    clock = VirtualClock()

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    class Swallows(ScriptedBidiModel):
        async def send(self, content, /) -> None:
            await clock.sleep(1)
            await super().send(content)

    model = Swallows([CallTools([("now", {})]), Wait(0.5), Expire()], clock=clock)
    agent = BidiAgent(model, clock=clock, tools=[now])
    async with agent:
        await clock.sleep(20)
        told_by_history = [message for message in model.starts[1].messages or [] if "toolUse" in message["content"][0]]
        assert told_by_history == []
        assert model.sent[-1] == BidiMessage(
            [ToolUseBlock("call-1", "now", {}), ToolResultBlock("call-1", "success", [{"text": "noon"}])]
        )


# Stop, cancel and start at the same time as something else.


async def test_stop_during_a_restart_leaves_no_connection_open():
    clock = VirtualClock()
    model = Gated(clock, open_at_once=1)
    agent = BidiAgent(model, clock=clock)
    await agent.start()
    model.fail(ConnectionTimeoutError("limit"))
    await model.opening.wait()
    stopping = asyncio.ensure_future(agent.stop())
    await clock.sleep(0)
    model.may_open.set()
    await stopping
    assert not model.connected


async def test_cancel_during_a_restart_is_final():
    clock = VirtualClock()
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    model = Gated(clock, open_at_once=1)
    agent = BidiAgent(model, clock=clock, tools=[act])
    await agent.start()
    model.fail(ConnectionTimeoutError("limit"))
    await model.opening.wait()
    agent.cancel()
    model.may_open.set()
    assert [event.type for event in await drain(agent)] == ["bidi_connection_restart", "bidi_connection_stop"]
    model.feed(called(("t1", "act", {})))
    await clock.sleep(5)
    await agent.stop()
    assert (ran, agent.messages) == ([], [])


async def test_an_answer_after_cancel_starts_nothing():
    ran: list[str] = []

    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        context.interrupt("sure", reason="Really?")
        ran.append("paid")
        return "paid"

    agent, _, clock = caller([CallTools([("pay", {})])], tools=[pay])
    async with agent:
        await clock.sleep(1)
        (question,) = agent.interrupt_state.open()
        agent.cancel()
        await drain(agent)
        with pytest.raises(AgentStateError, match="cancelled"):
            await agent.send([question.answer("yes")])
    assert ran == []
    assert [message["content"][0].get("toolResult", {}).get("status") for message in agent.messages] == [None, "error"]
    assert agent.interrupt_state.open() == []


async def test_cancel_after_the_tools_ends_the_talk_when_a_tool_asks_a_person_instead():
    clock = VirtualClock()

    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        await clock.sleep(1)
        context.interrupt("sure", reason="Really?")
        return "paid"

    model = ScriptedBidiModel([CallTools([("pay", {})])], clock=clock)
    agent = BidiAgent(model, clock=clock, tools=[pay])
    async with agent:
        await clock.sleep(0.5)
        agent.cancel(after_current_tools=True)
        events = await drain(agent)
        assert events[-1].type == "bidi_connection_stop"


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_an_agent_that_is_ended_while_it_starts_does_not_start(how):
    clock = VirtualClock()
    model = Gated(clock)
    agent = BidiAgent(model, clock=clock)
    starting = asyncio.ensure_future(agent.start())
    await model.opening.wait()
    if how == "stop":
        await agent.stop()
    else:
        agent.cancel()
    with pytest.raises(AgentStateError):
        await starting
    assert not model.connected
    model.may_open.set()
    await agent.start()
    await agent.stop()


async def test_a_cancelled_start_does_not_disturb_the_next_one():
    for steps in range(6):
        clock = VirtualClock()
        model = ScriptedBidiModel(clock=clock)
        agent = BidiAgent(model, clock=clock)
        starting = asyncio.ensure_future(agent.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        outcome = await asyncio.gather(starting, return_exceptions=True)
        if outcome == [None]:
            await agent.stop()
        for _ in range(50):
            try:
                await agent.start()
            except AgentStartedError:
                await asyncio.sleep(0)
            else:
                break
        assert model.connected
        await agent.send("hello")
        await agent.stop()


async def test_stop_may_be_called_by_many_at_once_and_by_stop_hooks_and_their_tasks():
    agent, model, _ = caller()

    async def again(event: BidiAgentStopEvent[BidiAgent]) -> None:
        await event.agent.stop()
        await asyncio.gather(event.agent.stop(), event.agent.stop())

    agent.add_hook(again)
    await agent.start()
    await asyncio.gather(*(agent.stop() for _ in range(5)))
    assert not model.connected


# What others get wrong.


async def test_a_model_or_hook_that_raises_a_cancellation_of_its_own_still_lets_the_call_close():
    agent, model, clock = caller([Hear("hello")])
    saved: list[str] = []

    async def cancelled(event: object) -> None:
        raise asyncio.CancelledError

    async def stop() -> None:
        await ScriptedBidiModel.stop(model)
        raise asyncio.CancelledError

    model.stop = stop  # type: ignore[method-assign]
    agent.add_hook(cancelled, BidiAgentStopEvent)
    agent.add_hook(lambda event: saved.append("saved"), BidiAgentStopEvent, order=100)
    await agent.start()
    listening = asyncio.ensure_future(drain(agent))
    await clock.sleep(1)
    with pytest.raises(StopError) as caught:
        await agent.stop()
    assert len(caught.value.errors) == 2
    assert saved == ["saved"]
    await listening


async def test_a_hook_that_raises_a_cancellation_is_an_error_to_whoever_sends():
    agent, _, _ = caller()

    async def cancelled(event: MessageAddedEvent) -> None:
        raise asyncio.CancelledError

    agent.add_hook(cancelled)
    async with agent:
        with pytest.raises(AgentStateError, match="cancelled"):
            await agent.send("hello")


async def test_a_model_that_does_not_stop_and_a_tool_that_does_not_end_are_left_and_named():
    clock = VirtualClock()
    release = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Does not end."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    model = ScriptedBidiModel([CallTools([("stubborn", {})])], clock=clock)

    async def never() -> None:
        await ScriptedBidiModel.stop(model)
        await asyncio.Event().wait()

    model.stop = never  # type: ignore[method-assign]
    agent = BidiAgent(model, clock=clock, tools=[stubborn])
    closed: list[str] = []
    agent.add_hook(lambda event: closed.append("hook"), BidiAgentStopEvent)
    try:
        await agent.start()
        await clock.sleep(1)
        with pytest.raises(StopError, match=r"model\.stop\(\) did not end within 30 s.*did not end although"):
            await agent.stop()
        assert closed == ["hook"]
        assert problems(agent.messages) == []
    finally:
        release.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


class Out(BaseException):
    """What a test framework raises."""


async def test_a_tool_that_raises_something_unheard_of_gives_an_error_result():
    @tool
    def odd() -> str:
        """Odd."""
        raise Out("odd")

    agent, _, clock = caller([CallTools([("odd", {})])], tools=[odd])
    async with agent:
        await clock.sleep(1)
    assert agent.messages[1]["content"][0]["toolResult"]["content"] == [{"text": "Error: Out - odd"}]


async def test_a_hook_that_raises_something_unheard_of_ends_the_call_with_it():
    agent, _, _ = caller([Hear("hello")])

    def odd(event: MessageAddedEvent) -> None:
        raise Out("odd")

    agent.add_hook(odd)
    await agent.start()
    with pytest.raises(AgentStateError, match="odd"):
        await drain(agent)
    await agent.stop()


async def test_sound_without_a_rate_ends_the_call_by_name():
    agent, model, _ = caller()
    await agent.start()
    model.feed(BidiAudioDeltaEvent(audio=b"\0\0", sample_rate=0))
    with pytest.raises(AudioFormatError, match="sample_rate=0"):
        await drain(agent)
    await agent.stop()


async def test_why_a_connection_could_not_be_opened_is_what_start_raises():
    agent, model, _ = caller(start_errors=[ModelError("no line")])

    async def bad_stop() -> None:
        raise ValueError("cannot stop either")

    model.stop = bad_stop  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="no line"):
        await agent.start()


async def test_connections_that_end_as_soon_as_they_are_open_are_given_up():
    agent, model, clock = caller([Expire() for _ in range(50)])
    await agent.start()
    with pytest.raises(ConnectionEndedError, match="6 connections in a row"):
        await drain(agent)
    await agent.stop()
    assert len(model.starts) == 6
    assert clock.now() > 5


async def test_a_model_that_does_not_want_to_know_what_was_heard_does_not_end_the_call():
    agent, model, clock = caller([Say("one two three", real_time=False)])

    async def refuse(response_id: str, played_ms: float) -> None:
        raise ModelError("only audio messages can be truncated")

    model.truncate = refuse
    async with agent:
        await clock.sleep(0.5)
        model.barge_in()
        await clock.sleep(3)
        await agent.send("go on")


async def test_a_barge_in_is_not_told_to_a_connection_that_did_not_say_it():
    agent, model, clock = caller([Say("one two three", real_time=False), Expire()])
    async with agent:
        await clock.sleep(0.3)
        agent.played("response-1", 200)
        model.barge_in()
        await clock.sleep(5)
    assert model.truncations == []


async def test_the_end_of_a_connection_that_is_being_replaced_is_no_news():
    agent, model, clock = caller([Wait(1)])

    async def slow(event: BidiBeforeConnectionRestartEvent) -> None:
        await clock.sleep(3)

    agent.add_hook(slow)
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        model.fail(ConnectionTimeoutError("limit"))
        await clock.sleep(1)
        model.end()
        await clock.sleep(10)
        await agent.send("hello")
    assert sum(isinstance(event, BidiConnectionRestartEvent) for event in await listening) == 1


async def test_hooks_that_take_for_ever_do_not_hold_up_a_restart_for_ever():
    agent, model, clock = caller([Expire()])

    async def never(event: BidiBeforeConnectionRestartEvent) -> None:
        await clock.sleep(25)

    agent.add_hook(never)
    async with agent:
        await clock.sleep(12)
        assert len(model.starts) == 2


# Calls of tools.


async def test_an_approval_is_used_once():
    ran: list[str] = []

    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        ran.append(context.interrupt("sure", reason="Really?"))
        return "paid"

    agent, model, clock = caller(tools=[pay])
    async with agent:
        for turn in range(2):
            model.feed(called(("call-1", "pay", {})))
            await clock.sleep(1)
            (question,) = agent.interrupt_state.open()
            await agent.send([question.answer("yes")])
            with pytest.raises(InterruptError):
                await agent.send([question.answer("yes")])
            await clock.sleep(1)
            assert len(ran) == turn + 1
    assert agent.interrupt_state.interrupts == {}


async def test_none_is_no_answer():
    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        return str(context.interrupt("sure", reason="Really?"))

    agent, _, clock = caller([CallTools([("pay", {})])], tools=[pay])
    async with agent:
        await clock.sleep(1)
        (question,) = agent.interrupt_state.open()
        with pytest.raises(InvalidInputError, match="None, which is no answer"):
            await agent.send([question.answer(None)])
        await agent.send([question.answer(False)])
        await clock.sleep(1)
    assert agent.messages[-1]["content"][0]["toolResult"]["content"] == [{"text": "False"}]


async def test_calls_keep_their_ids_apart_whatever_ids_a_model_gives():
    ran: list[object] = []

    @tool
    def note(text: str = "") -> str:
        """Note it."""
        ran.append(text)
        return text or "nothing"

    agent, model, clock = caller(tools=[note])
    async with agent:
        model.feed(called(("t", "note", {"text": "a"}), ("t", "note", {"text": "b"})))
        await clock.sleep(1)
        model.feed(called(("t", "note", {"text": "c"})))
        model.feed(called(("", "note", {"text": "d"})))
        model.feed(BidiToolUseBlocksEvent(tool_uses=[{"name": "note"}]))  # type: ignore[list-item]
        model.feed(called(("u", "", {}), ("v", "note", float("nan"))))
        await clock.sleep(1)
        told = [block.tool_use_id for message in model.sent for block in message.content]  # type: ignore[union-attr]
    assert ran == ["a", "b", "c", "d", ""]
    assert problems(agent.messages) == []
    assert len(set(ids(agent))) == 7
    assert told.count("t") == 3
    restored = BidiAgent(ScriptedBidiModel(clock=clock))
    restored.load_snapshot(Snapshot.from_json(agent.take_snapshot(preset="session").to_json()))
    assert restored.messages == agent.messages


async def test_a_call_that_a_new_connection_tells_again_does_not_run_again():
    ran: list[str] = []

    @tool
    def book() -> str:
        """Book."""
        ran.append("booked")
        return "booked"

    agent, model, clock = caller([CallTools([("book", {})]), Wait(6), Expire()], tools=[book], restartable=True)
    async with agent:
        await clock.sleep(10)
        model.feed(called(("call-1", "book", {})))
        await clock.sleep(1)
    assert ran == ["booked"]
    assert ids(agent) == ["call-1"]
    result = BidiMessage([ToolResultBlock("call-1", "success", [{"text": "booked"}])])
    assert model.sent == [result, result]


@pytest.mark.parametrize("text", ["", "   ", "\n"])
async def test_saying_nothing_is_refused(text):
    agent, model, _ = caller()
    async with agent:
        for data in (text, [text], {"text": text}, TextBlock(text)):
            with pytest.raises(InvalidInputError, match="says nothing"):
                await agent.send(data)
        with pytest.raises(NotJsonError, match="lone surrogate"):
            await agent.send("bad \ud800")
        for data in ({"toolUse": {}}, {"toolResult": None}, {"toolUse": {"toolUseId": "t", "name": "x", "input": {}}}):
            with pytest.raises(InvalidInputError, match="expected one of the keys"):
                await agent.send(data)  # type: ignore[arg-type]
    assert (agent.messages, model.sent) == ([], [])


async def test_a_history_that_no_provider_would_take_is_mended_at_the_start():
    call = {"toolUse": {"toolUseId": "t", "name": "x", "input": {}}}
    history = [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [call]},
        {"role": "assistant", "content": []},
    ]
    agent, model, _ = caller(agent={"messages": history})
    async with agent:
        assert problems(agent.messages) == []
        assert len(model.starts[0].messages or []) == 3
    assert agent.messages is history


async def test_going_back_forgets_what_was_open_beside_the_other_history():
    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        return str(context.interrupt("sure", reason="Really?"))

    agent, model, clock = caller([CallTools([("pay", {})])], tools=[pay])
    before = agent.take_snapshot(preset="session")
    async with agent:
        await clock.sleep(1)
    assert agent.take_journal().calls
    agent.load_snapshot(before)
    assert (agent.take_journal().calls, agent.interrupt_state.open()) == ((), [])


async def test_several_questions_of_a_call_are_asked_once_each_also_over_a_restart_of_the_process():
    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        return f"{context.interrupt('one', reason=1)} {context.interrupt('two', reason=2)}"

    agent, _, clock = caller([CallTools([("pay", {})])], tools=[pay])
    async with agent:
        await clock.sleep(1)
        await agent.send([agent.interrupt_state.open()[0].answer("first")])
        await clock.sleep(1)
        journal = agent.take_journal()
    again, _, clock = caller(tools=[pay])
    again.load_journal(type(journal).from_dict(journal.to_dict()))
    async with again:
        await clock.sleep(1)
        (question,) = again.interrupt_state.open()
        assert question.name == "two"
        await again.send([question.answer("second")])
        await clock.sleep(1)
    assert again.messages[-1]["content"][0]["toolResult"]["content"] == [{"text": "first second"}]


# Storage that fails or hangs.


def saved_caller(script, tools) -> tuple[BidiAgent, ScriptedBidiModel, VirtualClock, FaultStorage]:
    clock = VirtualClock()
    storage = FaultStorage(InMemoryStorage())
    manager = SnapshotSessionManager("s", storage=storage, clock=clock)
    model = ScriptedBidiModel(script, clock=clock)
    return BidiAgent(model, clock=clock, tools=tools, session_manager=manager), model, clock, storage


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_tool_whose_start_cannot_be_written_down_runs_only_if_it_may_run_twice(repeatable):
    ran: list[str] = []

    @tool(repeatable=repeatable)
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    agent, _, clock, storage = saved_caller([Until("text"), CallTools([("act", {})])], [act])
    await agent.start()
    storage.fail()
    await agent.send("go")
    await clock.sleep(20)
    assert ran == (["ran"] if repeatable else [])
    storage.mend()
    await clock.sleep(20)
    await agent.stop()
    result = agent.messages[2]["content"][0]["toolResult"]
    assert result["status"] == ("success" if repeatable else "error")


async def test_a_tool_waits_for_a_storage_that_is_away_for_a_moment():
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    agent, _, clock, storage = saved_caller([Until("text"), CallTools([("act", {})])], [act])
    async with agent:
        storage.fail(times=2)
        await agent.send("go")
        await clock.sleep(20)
        assert ran == ["ran"]


async def test_a_storage_that_hangs_holds_up_neither_the_restart_nor_the_end_of_the_call():
    agent, model, clock, storage = saved_caller([Say("one two")], [])
    clock.autojump = False
    await agent.start()
    gate = storage.hold(times=99)
    await clock.advance(5, wait_for_threads=False)
    model.fail(ConnectionTimeoutError("limit"))
    for _ in range(20):
        await clock.advance(1, wait_for_threads=False)
    assert len(model.starts) == 2
    stopping = asyncio.ensure_future(agent.stop())
    for _ in range(40):
        await clock.advance(1, wait_for_threads=False)
    assert stopping.done()
    assert stopping.exception() is not None
    assert not model.connected
    gate.release()
    storage.mend()


async def test_the_journal_event_tells_whether_it_was_written():
    agent, _, clock, storage = saved_caller([Until("text")], [])
    async with agent:
        event: JournalChangedEvent = JournalChangedEvent(agent=agent)
        await agent.hooks.invoke_callbacks_async(event)
        assert event.unsaved is None


async def test_pieces_of_a_transcript_without_ids_make_one_message():
    agent, model, clock = caller()
    async with agent:
        model.feed(
            BidiResponseStartEvent(response_id="r"),
            BidiTranscriptStartEvent(),
            BidiTranscriptDeltaEvent(delta="hel"),
            BidiTranscriptDeltaEvent(delta="lo"),
            BidiTranscriptStopEvent(),
        )
        await clock.sleep(1)
    assert [text_of(message) for message in agent.messages] == []


# What the second look found.


async def test_a_late_report_puts_an_answer_in_its_place_or_takes_it_out():
    agent, model, clock = caller([Say("one two three four", real_time=False)])
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        agent.played("response-1", 0)
        await clock.sleep(0.01)
        agent.played("response-1", 0)
        model.barge_in()
        await clock.sleep(3)
        await agent.send("and then")
        assert [text_of(message) for message in agent.messages] == ["and then"]
        agent.played("response-1", 700)
        assert [text_of(message) for message in agent.messages] == ["one two", "and then"]
        agent.played("response-1", 0)
        assert [text_of(message) for message in agent.messages] == ["and then"]
    await listening


async def test_a_barge_in_that_names_an_old_answer_does_not_cut_the_new_one():
    agent, model, clock = caller(
        [Say("one two", response_id="r1"), Wait(1), Say("three four five six", response_id="r2")]
    )
    async with agent:
        listening = asyncio.ensure_future(drain(agent))
        await clock.sleep(2)
        model.feed(BidiBargeInEvent(response_id="r1"))
        await clock.sleep(5)
    assert [text_of(message) for message in agent.messages] == ["one two", "three four five six"]
    assert model.truncations == []
    assert not any(isinstance(event, BidiBargeInEvent) for event in await listening)


@pytest.mark.parametrize(
    "moment", [BidiBeforeConnectionRestartEvent, BidiAfterConnectionRestartEvent, MessageAddedEvent]
)
async def test_a_hook_that_never_ends_does_not_keep_a_new_connection_shut(moment):
    agent, model, clock = caller([Hear("hello"), Wait(1), Expire(), Until("audio"), Write("I hear you")])

    async def never(event: object) -> None:
        await asyncio.Event().wait()

    agent.add_hook(never, moment)
    await agent.start()
    listening = asyncio.ensure_future(drain(agent))
    await clock.sleep(15)
    await agent.send(SOUND)
    await clock.sleep(1)
    assert model.sent == [SOUND]
    assert [text_of(message) for message in agent.messages] == ["hello", "I hear you"]
    with pytest.raises((AgentStateError, StopError)):
        await agent.stop()
    await listening


async def test_calls_of_an_earlier_process_run_once_however_often_a_start_is_cancelled():
    for steps in range(8):
        ran: list[str] = []

        def act(done: list[str] = ran) -> str:
            """Do it."""
            done.append("ran")
            return "done"

        act_alone = tool(repeatable=True)(act)
        clock = VirtualClock()
        agent = BidiAgent(ScriptedBidiModel(clock=clock), clock=clock, tools=[act_alone])
        call = OpenCall({"toolUseId": "t1", "name": "act", "input": {}}, repeatable=True)
        agent.load_journal(Journal(calls=(call,)))
        starting = asyncio.ensure_future(agent.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await agent.stop()
        async with agent:
            await clock.sleep(1)
        assert ran == ["ran"]
        assert problems(agent.messages) == []
        assert ids(agent) == ["t1"]


async def test_a_tool_that_waited_to_be_written_down_does_not_start_after_a_cancel():
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    agent, _, clock, storage = saved_caller([Until("text"), CallTools([("act", {})])], [act])
    await agent.start()
    storage.fail(times=3)
    await agent.send("go")
    await clock.sleep(0.2)
    agent.cancel()
    await clock.sleep(10)
    await agent.stop()
    assert ran == []
    assert agent.messages[-1]["content"][0]["toolResult"]["content"] == [{"text": "cancelled"}]


async def test_after_a_failure_nothing_runs_and_nothing_reconnects():
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    agent, model, clock = caller([Hear("hello")], tools=[act], connection={"restart_after_s": 5})

    def bad(event: MessageAddedEvent) -> None:
        raise ModelError("no room")

    agent.add_hook(bad)
    await agent.start()
    await clock.sleep(1)
    model.feed(called(("t1", "act", {})))
    await clock.sleep(60)
    assert ran == []
    assert len(model.starts) == 1
    with pytest.raises(ModelError):
        await agent.stop()


async def test_a_provider_that_ends_the_connection_as_it_said_is_left_in_good_order():
    agent, model, clock = caller([Say("word " * 30)])
    async with agent:
        await clock.sleep(0.5)
        model.feed(BidiConnectionWarningEvent(time_left_s=60))
        await clock.sleep(0.5)
        model.end()
        await clock.sleep(5)
        await agent.send("still there?")
    assert len(model.starts) == 2


async def test_what_is_acknowledged_while_a_save_is_tried_again_is_saved():
    agent, model, clock, storage = saved_caller([], [])
    async with agent:
        await agent.send("one")
        storage.fail(times=1)
        await agent.send("two")  # its save failed, and is tried again
        gate = storage.hold()
        clock.autojump = False
        await clock.advance(1, wait_for_threads=False)
        await gate.reached()
        await agent.send("three")  # while the second attempt writes
        gate.release()
        clock.autojump = True
        await clock.sleep(20)
        at_rest = BidiAgent(
            ScriptedBidiModel(clock=clock),
            session_manager=SnapshotSessionManager("s", storage=storage.storage, clock=clock),
        )
        assert [text_of(message) for message in at_rest.messages] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"messages": "x"},
        {"messages": 5},
        {"messages": [5]},
        {"messages": [{"role": "user"}]},
        {"hooks": 5},
        {"session_manager": 5},
        {"storage": 5},
        {"name": 5},
    ],
    ids=str,
)
def test_arguments_of_wrong_types_are_refused_by_name(arguments):
    (name,) = arguments
    with pytest.raises(InvalidTypeError, match=name):
        BidiAgent(ScriptedBidiModel(), **arguments)

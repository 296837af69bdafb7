"""Tools of a live call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from antiphon.agent.call import _told_to_model
from antiphon.agent.live import BidiAgent
from antiphon.agent.live_tools import LiveToolCall
from antiphon.content import BidiMessage, ToolResultBlock, ToolUseBlock, text_of
from antiphon.conversation.journal import Journal, OpenCall
from antiphon.conversation.repair import problems
from antiphon.errors import ConcurrencyException, InterruptError, InvalidTypeError
from antiphon.events import BidiAudioDeltaEvent, BidiToolUseCancelEvent
from antiphon.hooks.events import BeforeToolCallEvent, JournalChangedEvent
from antiphon.testing import CallTools, Emit, Say, ScriptedBidiModel, Until, VirtualClock, Wait
from antiphon.tools.context import ToolContext
from antiphon.tools.decorator import tool


def caller(script, **options) -> tuple[BidiAgent, ScriptedBidiModel, VirtualClock]:
    clock = VirtualClock()
    model = ScriptedBidiModel(script, clock=clock)
    return BidiAgent(model, clock=clock, **options), model, clock


def shape(agent: BidiAgent) -> list[str]:
    """One word a block."""
    found = []
    for message in agent.messages:
        for block in message["content"]:
            if "toolUse" in block:
                found.append(f"call {block['toolUse']['toolUseId']}")
            elif "toolResult" in block:
                result = block["toolResult"]
                found.append(f"{result['status']} {result['toolUseId']}: {result['content'][0].get('text')}")
            else:
                found.append(text_of(message))
    return found


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_a_call_enters_the_history_together_with_its_result_and_the_model_is_told():
    agent, model, clock = caller(
        [CallTools([("add", {"a": 2, "b": 3})]), Until("tool_result"), Say("five")], tools=[add]
    )
    events: list[str] = []
    async with agent:
        async for event in agent.receive():
            events.append(event.type)
            if event.type == "bidi_response_stop":
                break
        await clock.sleep(5)
    assert shape(agent) == ["call call-1", "success call-1: 5", "five"]
    assert model.sent == [BidiMessage([ToolResultBlock("call-1", "success", [{"text": "5"}])])]
    assert events[:3] == ["bidi_tool_use_blocks", "tool_result", "tool_result_message"]


async def test_tools_run_while_the_talk_goes_on_and_calls_of_a_group_at_the_same_time():
    clock = VirtualClock()

    @tool
    async def slow(seconds: int) -> str:
        """Wait."""
        await clock.sleep(seconds)
        return f"waited {seconds}"

    model = ScriptedBidiModel(
        [
            CallTools([("slow", {"seconds": 6}), ("slow", {"seconds": 5})]),
            Say("in the meantime"),
            Until("tool_result", 2),
        ],
        clock=clock,
    )
    agent = BidiAgent(model, clock=clock, tools=[slow])
    async with agent:
        await clock.sleep(5.5)
        assert shape(agent) == ["in the meantime"]
        calls = agent.take_journal().calls
        assert [(call.started, call.result is not None) for call in calls] == [(True, False), (True, True)]
        await clock.sleep(1)
    assert shape(agent) == [
        "in the meantime",
        "call call-1",
        "call call-2",
        "success call-1: waited 6",
        "success call-2: waited 5",
    ]
    assert problems(agent.messages) == []


async def test_a_result_waits_in_the_history_for_speech_that_began_before_it():
    agent, model, clock = caller(
        [Say("let me think about that", real_time=False), CallTools([("add", {"a": 1, "b": 1})])], tools=[add]
    )
    async with agent:
        await clock.sleep(0.5)
        assert shape(agent) == []
        journal = agent.take_journal()
        assert journal.calls == (
            OpenCall(
                {"toolUseId": "call-1", "name": "add", "input": {"a": 1, "b": 1}},
                result={"toolUseId": "call-1", "status": "success", "content": [{"text": "2"}]},
            ),
        )
        restored = BidiAgent(ScriptedBidiModel(clock=clock), clock=clock)
        restored.load_journal(journal)
        assert shape(restored) == ["let", "call call-1", "success call-1: 2"]
        assert len(model.sent) == 1
        await clock.sleep(5)
        assert shape(agent) == ["let me think about that", "call call-1", "success call-1: 2"]


async def test_the_journal_is_written_before_a_tool_starts():
    order: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        order.append("ran")
        return "done"

    agent, _, clock = caller([CallTools([("act", {})])], tools=[act])

    async def write(event: JournalChangedEvent) -> None:
        await clock.sleep(3)
        order.extend(f"written {call.started}" for call in event.agent.take_journal().calls)

    agent.add_hook(write)
    async with agent:
        await clock.sleep(5)
    assert order == ["written True", "ran"]


async def test_progress_of_a_streaming_tool_is_an_event():
    @tool
    async def count() -> AsyncIterator[str]:
        """Count."""
        yield "one"
        yield "two"

    agent, _, _ = caller([CallTools([("count", {})])], tools=[count])
    async with agent:
        async for event in agent.receive():
            if event.type == "tool_stream":
                assert event.to_dict()["tool_stream_event"]["data"] == "one"
                break


async def test_errors_of_tools_are_results_and_the_talk_goes_on():
    @tool
    def broken() -> str:
        """Break."""
        raise RuntimeError("no power")

    agent, model, clock = caller(
        [
            CallTools([("broken", {}), ("nowhere", {}), ("add", {"a": "x", "b": 1})]),
            Until("tool_result", 3),
            Say("sorry"),
        ],
        tools=[broken, add],
    )
    async with agent:
        await clock.sleep(5)
    results = shape(agent)[3:6]
    assert results[0] == "error call-1: Error: RuntimeError - no power"
    assert results[1] == "error call-2: Unknown tool: nowhere"
    assert results[2].startswith("error call-3: Error: ")
    assert shape(agent)[-1] == "sorry"


async def test_a_call_that_waits_for_a_person_holds_up_nobody_and_goes_on_with_the_answer():
    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        answer = context.interrupt("confirm", reason=f"Pay {amount}?")
        return f"paid {amount}: {answer}"

    agent, model, clock = caller(
        [
            CallTools([("pay", {"amount": 7}), ("add", {"a": 1, "b": 1})]),
            Until("tool_result"),
            Say("two"),
            Until("tool_result"),
        ],
        tools=[pay, add],
    )
    asked: list = []
    async with agent:

        async def watch() -> None:
            async for event in agent.receive():
                if event.type == "bidi_interrupt":
                    asked.extend(event.to_dict()["interrupts"])

        watching = asyncio.ensure_future(watch())
        await clock.sleep(5)
        assert shape(agent) == ["call call-2", "success call-2: 2", "two"]
        assert [question["reason"] for question in asked] == ["Pay 7?"]
        with pytest.raises(InterruptError, match="no open question"):
            await agent.send([{"interruptResponse": {"interruptId": "nobody", "response": 1}}])
        with pytest.raises(InvalidTypeError):
            await agent.send([{"interruptResponse": {"response": 1}}])
        await agent.send([{"interruptResponse": {"interruptId": asked[0]["id"], "response": "yes"}}])
        await clock.sleep(1)
        assert shape(agent)[3:] == ["call call-1", "success call-1: paid 7: yes"]
    await watching


async def test_a_question_of_a_hook_waits_too_and_survives_the_process():
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("now")
        return "done"

    def ask(event: BeforeToolCallEvent) -> None:
        if event.interrupt("sure", reason="Really?") != "yes":
            event.cancel_tool = "not wanted"

    agent, _, clock = caller([CallTools([("act", {})])], tools=[act])
    agent.add_hook(ask)
    async with agent:
        await clock.sleep(1)
        journal = Journal.from_dict(agent.take_journal().to_dict())
    assert journal.calls[0].question is not None
    assert agent.take_journal().calls == journal.calls  # it waits for the next call, too

    again, model, clock = caller([Until("tool_result")], tools=[act])
    again.add_hook(ask)
    again.load_journal(journal)
    assert again.take_journal().calls == journal.calls
    async with again:
        await clock.sleep(1)
        assert ran == []
        await again.send([{"interruptResponse": {"interruptId": journal.calls[0].question.id, "response": "yes"}}])
        await clock.sleep(1)
    assert ran == ["now"]
    assert shape(again) == ["call call-1", "success call-1: done"]
    # A connection that did not make the call is told the call first.
    assert model.sent == [
        BidiMessage([ToolUseBlock("call-1", "act", {}), ToolResultBlock("call-1", "success", [{"text": "done"}])])
    ]


@pytest.mark.parametrize("repeatable", [False, True])
async def test_after_a_crash_a_started_call_runs_again_only_if_it_is_repeatable(repeatable):
    ran: list[str] = []

    @tool(repeatable=repeatable)
    def act() -> str:
        """Do it."""
        ran.append("again")
        return "done"

    call = OpenCall({"toolUseId": "t1", "name": "act", "input": {}}, started=True, repeatable=repeatable)
    agent, model, clock = caller([], tools=[act])
    agent.load_journal(Journal(mark=3, calls=(call,)))
    async with agent:
        await clock.sleep(1)
    if repeatable:
        assert (ran, shape(agent)) == (["again"], ["call t1", "success t1: done"])
        assert len(model.sent) == 1
    else:
        assert (ran, shape(agent)) == ([], ["call t1", "error t1: interrupted by a restart"])
        assert [message["role"] for message in model.starts[0].messages or []] == ["assistant", "user"]


async def test_a_direct_call_is_recorded_only_while_nothing_is_under_way():
    agent, _, _ = caller([], tools=[add])
    assert agent.tool.add(a=1, b=2)["content"] == [{"text": "3"}]
    assert len(agent.messages) == 4
    async with agent:
        with pytest.raises(ConcurrencyException):
            agent.tool.add(a=1, b=2)
        assert agent.tool.add(a=1, b=2, record_direct_tool_call=False)["status"] == "success"
    assert len(agent.messages) == 4


async def test_tools_share_the_invocation_state_and_the_one_cancel_signal():
    seen: list[object] = []

    @tool
    def look(context: ToolContext[BidiAgent]) -> str:
        """Look."""
        seen.extend([context.invocation_state, context.cancel_signal, context.agent])
        return "ok"

    agent, _, clock = caller([CallTools([("look", {})])], tools=[look])
    state = {"user": "ada"}
    await agent.start(state)
    await clock.sleep(1)
    await agent.stop()
    assert seen[0] is state
    assert seen[1] is agent.cancel_signal
    assert seen[2] is agent


async def test_cancel_gives_tools_two_seconds_and_then_records_them_as_cancelled():
    clock = VirtualClock()
    stopped: list[float] = []

    @tool
    async def deaf() -> str:
        """Never ends."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(clock.now())
        return "never"

    @tool
    async def obedient(context: ToolContext) -> str:
        """Ends when told."""
        while not context.cancel_signal.is_set():
            await clock.sleep(0.1)
        return "ended early"

    model = ScriptedBidiModel([CallTools([("deaf", {}), ("obedient", {})])], clock=clock)
    agent = BidiAgent(model, clock=clock, tools=[deaf, obedient])
    events: list[str] = []
    async with agent:
        await clock.sleep(1)
        agent.cancel(message="we hung up")
        async for event in agent.receive():
            events.append(event.type)
        assert agent.cancel_signal.is_set()
    assert stopped == [3.0]
    assert events[-1] == "bidi_connection_stop"
    assert shape(agent) == ["call call-1", "call call-2", "error call-1: we hung up", "success call-2: ended early"]
    assert model.sent == []
    async with agent:
        assert not agent.cancel_signal.is_set()


async def test_cancel_after_the_current_tools_records_their_results_and_sends_nothing():
    clock = VirtualClock()

    @tool
    async def slow() -> str:
        """Wait."""
        await clock.sleep(5)
        return "done"

    model = ScriptedBidiModel([CallTools([("slow", {})])], clock=clock)
    agent = BidiAgent(model, clock=clock, tools=[slow])
    async with agent:
        await clock.sleep(1)
        agent.cancel(after_current_tools=True)
        assert not agent.cancel_signal.is_set()
        async for _ in agent.receive():
            pass
        assert clock.now() == 5
    assert shape(agent) == ["call call-1", "success call-1: done"]
    assert model.sent == []


async def test_cancel_works_from_a_thread_and_at_once():
    agent, _, clock = caller([Say("a very long story " * 20, real_time=False)])
    async with agent:
        seen = []
        async for event in agent.receive():
            seen.append(event)
            if len(seen) == 10:
                thread = threading.Thread(target=agent.cancel)
                thread.start()
                thread.join()
        assert not any(isinstance(event, BidiAudioDeltaEvent) for event in seen[10:])
        assert seen[-1].type == "bidi_connection_stop"
        assert clock.now() < 1


async def test_stop_ends_running_tools_and_keeps_the_history_legal():
    started = asyncio.Event()

    @tool
    async def deaf() -> str:
        """Never ends."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent, _, clock = caller([CallTools([("deaf", {})]), Wait(1)], tools=[deaf])
    async with agent:
        await started.wait()
    assert shape(agent) == ["call call-1", "error call-1: cancelled"]
    assert problems(agent.messages) == []


async def test_a_call_that_the_model_takes_back_ends_and_its_result_is_not_sent():
    ended: list[str] = []
    clock = VirtualClock()

    @tool
    async def slow() -> str:
        """Wait."""
        try:
            await clock.sleep(60)
        finally:
            ended.append("slow")
        return "done"

    model = ScriptedBidiModel(
        [
            CallTools([("slow", {}), ("add", {"a": 1, "b": 1})]),
            Wait(1),
            Emit(BidiToolUseCancelEvent(tool_use_ids=["call-1", "call-2", "never-heard-of"])),
            Say("go on"),
        ],
        clock=clock,
    )
    agent = BidiAgent(model, clock=clock, tools=[slow, add])
    async with agent:
        await clock.sleep(10)
    assert ended == ["slow"]
    assert shape(agent) == [
        "call call-1",
        "call call-2",
        "error call-1: cancelled: the user spoke before it was done",
        "success call-2: 2",
        "go on",
    ]
    assert model.sent == []
    assert not problems(agent.messages)


async def test_only_the_calls_that_are_named_are_taken_back():
    clock = VirtualClock()

    @tool
    async def slow(seconds: int) -> str:
        """Wait."""
        await clock.sleep(seconds)
        return f"waited {seconds}"

    model = ScriptedBidiModel(
        [
            CallTools([("slow", {"seconds": 5}), ("slow", {"seconds": 6})]),
            Wait(1),
            Emit(BidiToolUseCancelEvent(tool_use_ids=["call-2"])),
            Until("tool_result"),
        ],
        clock=clock,
    )
    agent = BidiAgent(model, clock=clock, tools=[slow])
    async with agent:
        await clock.sleep(10)
    assert model.sent == [BidiMessage([ToolResultBlock("call-1", "success", [{"text": "waited 5"}])])]
    assert not problems(agent.messages)


async def test_a_question_of_a_call_that_is_taken_back_is_asked_no_more():
    @tool(context=True)
    def book(tool_context: ToolContext) -> str:
        """Book a table."""
        return str(tool_context.interrupt("sure", reason="a table for two"))

    agent, model, clock = caller(
        [CallTools([("book", {})]), Wait(1), Emit(BidiToolUseCancelEvent(tool_use_ids=["call-1"])), Wait(1)],
        tools=[book],
    )
    async with agent:
        await clock.sleep(1.5)
        assert not agent.interrupt_state.interrupts
        assert shape(agent) == ["call call-1", "error call-1: cancelled: the user spoke before it was done"]
    assert model.sent == []


async def test_a_result_that_waits_for_a_new_connection_is_not_sent_when_its_call_was_taken_back():
    call = LiveToolCall({"toolUseId": "a", "name": "add", "input": {}}, 1)
    call.result = {"toolUseId": "a", "status": "success", "content": [{"text": "2"}]}
    assert len(_told_to_model([call], 2).content) == 2
    call.withdrawn = True
    assert _told_to_model([call], 2).content == []
    assert not call.is_told_again("a", call.tool_use, 2)

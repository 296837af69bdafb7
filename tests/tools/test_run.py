"""One call: hooks before, the journal, the tool, hooks after; and whatever can go wrong on the way."""

import asyncio
import math
import threading
from datetime import UTC, datetime

import pytest

from antiphon.errors import AgentStateError
from antiphon.hooks.events import AfterToolCallEvent, BeforeToolCallEvent
from antiphon.interrupts import InterruptException
from antiphon.testing import VirtualClock
from antiphon.tools.base import ToolProgress
from antiphon.tools.context import ToolContext
from antiphon.tools.decorator import tool
from antiphon.tools.run import REFUSED
from tests.tools.owner import Owner, PlainTool, success


@tool
def echo(word: str) -> str:
    """Say it again."""
    return word


# --- the way of a call ---


async def test_a_tool_runs_only_after_its_call_is_written_down():
    seen = []

    @tool
    def act() -> None:
        seen.append("tool")

    async def before_start(chosen, tool_use):
        await asyncio.sleep(0)
        seen.append((chosen.tool_name, tool_use["name"]))

    owner = Owner(act)
    owner.hooks.add_callback(BeforeToolCallEvent, lambda event: seen.append("before"))
    owner.hooks.add_callback(AfterToolCallEvent, lambda event: seen.append("after"))
    await owner.outcome("act", before_start=before_start)
    assert seen == ["before", ("act", "act"), "tool", "after"]


async def test_a_tool_that_could_not_be_written_down_does_not_run():
    async def full(chosen, tool_use):
        raise OSError("disk full")

    ran = []
    owner = Owner(PlainTool(items=lambda call: ran.append(call) or [success()]))
    with pytest.raises(OSError, match="disk full"):
        await owner.outcome("plain", before_start=full)
    assert not ran


async def test_progress_is_reported_while_the_tool_works_and_the_result_carries_the_id_of_the_call():
    owner = Owner(PlainTool(items=[ToolProgress(1), ToolProgress({"done": 2}), success({"text": "ok"})]))
    outcome = await owner.outcome("plain")
    assert owner.progress == [1, {"done": 2}]
    assert outcome.result == {"toolUseId": "t1", "status": "success", "content": [{"text": "ok"}]}


async def test_the_context_is_what_the_call_is_and_the_invocation_state_is_shared_by_reference():
    seen = []
    owner = Owner(PlainTool(items=lambda call: seen.append(call) or [success()]))
    owner.hooks.add_callback(BeforeToolCallEvent, lambda event: event.invocation_state.update(hook=1))
    await owner.outcome("plain", {"a": 1})
    (context,) = seen
    assert isinstance(context, ToolContext)
    assert context.agent is owner
    assert context.invocation_state is owner.invocation_state
    assert context.cancel_signal is owner.cancel_signal
    assert context.tool_use == {"toolUseId": "t1", "name": "plain", "input": {"a": 1}}
    assert owner.invocation_state == {"hook": 1}  # and nothing that nobody put there


async def test_what_a_tool_does_to_its_input_and_its_result_does_not_reach_the_history():
    kept = success({"json": {"seats": [1]}})

    def work(call):
        call.tool_use["input"]["seats"].append(9)
        yield kept

    owner = Owner(PlainTool(items=work))
    given = {"seats": [1]}
    outcome = await owner.outcome("plain", given)
    kept["content"][0]["json"]["seats"].append(2)
    assert given == {"seats": [1]}
    assert outcome.tool_use["input"] == {"seats": [1]}
    assert outcome.result["content"] == [{"json": {"seats": [1]}}]
    assert kept["toolUseId"] == "whatever"


async def test_hooks_are_told_how_long_the_tool_took():
    clock, told = VirtualClock(), []

    @tool
    async def slow() -> None:
        await clock.sleep(2)

    owner = Owner(slow)
    owner.hooks.add_callback(AfterToolCallEvent, lambda event: told.append(event.duration))
    await owner.outcome("slow", clock=clock)
    assert told == [2]


# --- hooks before ---


async def test_a_hook_may_replace_the_call_but_not_its_id():
    def replace(event):
        event.tool_use = {"toolUseId": "other", "name": "echo", "input": {"word": "replaced"}}

    owner = Owner(echo)
    owner.hooks.add_callback(BeforeToolCallEvent, replace)
    outcome = await owner.outcome("echo", {"word": "original"})
    assert outcome.tool_use == {"toolUseId": "t1", "name": "echo", "input": {"word": "replaced"}}
    assert outcome.result == {"toolUseId": "t1", "status": "success", "content": [{"text": "replaced"}]}


async def test_a_hook_that_renames_the_call_need_not_look_up_the_tool():
    def rename(event):
        event.tool_use = {**event.tool_use, "name": "plain"}

    owner = Owner(echo, PlainTool(items=[success({"text": "plain"})]))
    owner.hooks.add_callback(BeforeToolCallEvent, rename)
    assert await owner.content("echo", {"word": "x"}) == [{"text": "plain"}]


async def test_a_hook_may_bring_a_tool_for_a_name_nobody_registered():
    def bring(event):
        assert event.selected_tool is None
        event.selected_tool = PlainTool(items=[success({"text": "brought"})])

    owner = Owner()
    owner.hooks.add_callback(BeforeToolCallEvent, bring)
    assert await owner.content("unknown") == [{"text": "brought"}]


@pytest.mark.parametrize(("word", "told"), [("not today", "not today"), (True, REFUSED)])
async def test_a_refused_call_is_an_error_result_and_the_tool_does_not_run(word, told):
    def refuse(event):
        event.cancel_tool = word

    refused, after, ran = [], [], []
    owner = Owner(PlainTool(items=lambda call: ran.append(call) or [success()]))
    owner.hooks.add_callback(BeforeToolCallEvent, refuse)
    owner.hooks.add_callback(AfterToolCallEvent, after.append)
    result = await owner.result("plain", on_refused=lambda tool_use, text: refused.append((tool_use["name"], text)))
    assert result == {"toolUseId": "t1", "status": "error", "content": [{"text": told}]}
    assert refused == [("plain", told)]
    assert not ran
    assert after[0].cancel_message == told


async def test_a_question_of_a_hook_makes_the_call_wait_and_the_answer_lets_it_run():
    def approve(event):
        if event.interrupt("approve", reason="pay 5?") != "yes":
            event.cancel_tool = "declined"

    started, owner = [], Owner(echo)
    owner.hooks.add_callback(BeforeToolCallEvent, approve)

    async def before_start(chosen, tool_use):
        started.append(tool_use)

    outcome = await owner.outcome("echo", {"word": "paid"}, before_start=before_start)
    assert outcome.result is None
    assert [question.name for question in outcome.interrupts] == ["approve"]
    assert not started
    answer = {"interruptId": outcome.interrupts[0].id, "response": "yes"}
    owner.questions.resume([{"interruptResponse": answer}])
    assert await owner.content("echo", {"word": "paid"}) == [{"text": "paid"}]


async def test_a_refusal_goes_before_the_question_of_another_hook():
    def refuse(event):
        event.cancel_tool = "no"

    owner = Owner(echo)
    owner.hooks.add_callback(BeforeToolCallEvent, lambda event: event.interrupt("approve"))
    owner.hooks.add_callback(BeforeToolCallEvent, refuse)
    assert await owner.error("echo", {"word": "x"}) == "no"
    assert owner.questions.open() == []


async def test_a_hook_that_raises_reaches_the_caller():
    def fail(event):
        raise LookupError("broken hook")

    for kind in (BeforeToolCallEvent, AfterToolCallEvent):
        owner = Owner(echo)
        owner.hooks.add_callback(kind, fail)
        with pytest.raises(LookupError, match="broken hook"):
            await owner.outcome("echo", {"word": "x"})


# --- hooks after ---


async def test_a_hook_may_replace_the_result_but_not_its_id():
    def replace(event):
        event.result = {"toolUseId": "other", "status": "error", "content": [{"text": f"was {event.result['status']}"}]}

    owner = Owner(echo)
    owner.hooks.add_callback(AfterToolCallEvent, replace)
    assert await owner.error("echo", {"word": "x"}) == "was success"


async def test_a_hook_may_have_a_call_run_again_with_the_hooks_before_it():
    tries, before = [], []

    @tool
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("later")
        return "at last"

    def again(event):
        event.retry = isinstance(event.exception, ConnectionError)

    owner = Owner(flaky)
    owner.hooks.add_callback(BeforeToolCallEvent, before.append)
    owner.hooks.add_callback(AfterToolCallEvent, again)
    assert await owner.content("flaky") == [{"text": "at last"}]
    assert len(tries) == len(before) == 3


async def test_nothing_runs_again_once_the_agent_is_cancelled():
    tries = []

    def again(event):
        event.retry = True
        owner.cancel_signal.set()

    owner = Owner(PlainTool(items=lambda call: tries.append(call) or [success()]))
    owner.hooks.add_callback(AfterToolCallEvent, again)
    assert (await owner.result("plain"))["status"] == "success"
    assert len(tries) == 1


async def test_a_hook_cannot_ask_after_the_tool_has_run():
    def ask(event):
        owner.questions.ask("id", "too late")

    owner = Owner(echo)
    owner.hooks.add_callback(AfterToolCallEvent, ask)
    with pytest.raises(AgentStateError, match="asked 'too late' after tool 'echo' had run"):
        await owner.outcome("echo", {"word": "x"})


# --- what goes wrong in a tool ---


class ShyError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("seat 4 is taken"), "Error: seat 4 is taken"),
        (ValueError(), "Error: ValueError - "),
        (KeyError("seat"), "Error: KeyError - 'seat'"),
        (ShyError("do not ask"), "Error: ShyError - do not ask"),
        (TimeoutError("too slow"), "Error: TimeoutError - too slow"),
        (StopIteration("odd"), "StopIteration"),
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_tool_that_raises_gives_an_error_result_and_hooks_are_told_the_error(error, told, awaited):
    @tool(name="fails")
    def fails() -> None:
        raise error

    @tool(name="fails")
    async def fails_later() -> None:
        raise error

    after, owner = [], Owner(fails_later if awaited else fails)
    owner.hooks.add_callback(AfterToolCallEvent, after.append)
    assert told in await owner.error("fails")
    assert isinstance(after[0].exception, Exception)
    assert isinstance(error, StopIteration) or after[0].exception is error


async def test_an_unknown_tool_gives_an_error_result():
    after, owner = [], Owner(echo)
    owner.hooks.add_callback(AfterToolCallEvent, after.append)
    assert await owner.error("dance") == "Unknown tool: dance"
    assert after[0].selected_tool is None


async def test_a_tool_that_gives_no_result_gives_an_error_result():
    assert await Owner(PlainTool()).error("plain") == "Tool 'plain' did not return a result"
    only_progress = Owner(PlainTool(items=[ToolProgress(1)]))
    assert await only_progress.error("plain") == "Tool 'plain' did not return a result"


async def test_a_tool_whose_stream_is_no_stream_gives_an_error_result():
    class Wrong(PlainTool):
        def stream(self, call):
            return [success()]

    assert (await Owner(Wrong()).error("plain")).startswith("Error: ")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("a string", "gave str, not a result"),
        ({"content": []}, "status None"),
        ({"status": "fine", "content": []}, "status 'fine'"),
        ({"status": ["success"], "content": []}, "status ['success']"),
        ({"status": "success"}, "content is not a list of dicts"),
        ({"status": "success", "content": "words"}, "content is not a list of dicts"),
        ({"status": "success", "content": ["words"]}, "content is not a list of dicts"),
        (success({"json": {"when": datetime(2026, 1, 1, tzinfo=UTC)}}), "content[0].json.when is datetime.datetime"),
        (success({"text": "fine"}, {"json": {"at": [math.nan]}}), "content[1].json.at[0] is NaN"),
        (success({"text": "\ud800"}), "content[0].text contains a lone surrogate"),
        (success({"json": {1: 2}}), "content[0].json"),
    ],
)
async def test_a_result_that_cannot_be_kept_gives_an_error_result_that_says_where(result, told):
    assert told in await Owner(PlainTool(items=[result])).error("plain")
    owner = Owner(echo)
    owner.hooks.add_callback(AfterToolCallEvent, lambda event: setattr(event, "result", result))
    assert told in await owner.error("echo", {"word": "x"})


async def test_an_image_in_a_result_is_kept_as_bytes():
    image = {"image": {"format": "png", "source": {"bytes": bytearray(b"\x89PNG")}}}
    assert await Owner(PlainTool(items=[success(image)])).content("plain") == [
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    ]


async def test_the_question_of_a_tool_makes_the_call_wait_and_the_answer_comes_back_in_it():
    @tool
    def pay(amount: int, context: ToolContext) -> str:
        return f"{context.interrupt('approve', reason={'amount': amount})}: {amount}"

    after, owner = [], Owner(pay)
    owner.hooks.add_callback(AfterToolCallEvent, after.append)
    outcome = await owner.outcome("pay", {"amount": 5})
    (question,) = outcome.interrupts
    assert outcome.result is None
    assert (question.name, question.reason) == ("approve", {"amount": 5})
    assert question.id.startswith("v1:tool_call:t1:")
    assert not after
    owner.questions.resume([{"interruptResponse": {"interruptId": question.id, "response": "granted"}}])
    assert await owner.content("pay", {"amount": 5}) == [{"text": "granted: 5"}]


# --- cancellation ---


async def test_cancelling_the_task_ends_the_call_and_closes_the_tool():
    started, closed = asyncio.Event(), []

    @tool
    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    owner = Owner(forever)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.outcome("forever"))
        await started.wait()
        running.cancel()
    assert running.cancelled()
    assert closed == [True]


async def test_a_tool_that_awaits_something_cancelled_fails_without_ending_the_agent():
    @tool
    async def unlucky() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    told = await Owner(unlucky).error("unlucky")
    assert told == "Error: AgentStateError - tool 'unlucky' awaited something that was cancelled"


async def test_a_tool_on_a_thread_sees_the_cancel_signal():
    started = threading.Event()

    @tool
    def watch(context: ToolContext) -> str:
        started.set()
        return "stopped" if context.cancel_signal.wait(30) else "not stopped"

    owner = Owner(watch)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.content("watch"))
        await asyncio.to_thread(started.wait)
        owner.cancel_signal.set()
    assert running.result() == [{"text": "stopped"}]


async def test_calls_run_side_by_side():
    meeting = asyncio.Barrier(3)

    @tool
    async def meet(number: int) -> int:
        await meeting.wait()
        return number

    owner = Owner(meet)
    results = await asyncio.gather(*(owner.content("meet", {"number": n}) for n in range(3)))
    assert results == [[{"text": str(n)}] for n in range(3)]


async def test_a_question_asked_with_no_answer_is_not_an_error_of_the_tool():
    def ask(call):
        raise InterruptException(owner_question)
        yield

    owner = Owner(PlainTool(items=ask))
    with pytest.raises(InterruptException) as asked:
        owner.questions.ask("id", "name")
    owner_question = asked.value.interrupt
    outcome = await owner.outcome("plain")
    assert outcome.interrupts == (owner_question,)

"""Tools called by a program, as methods of an agent."""

import asyncio
import contextvars
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import AgentStateError, ConcurrencyException, ToolNotFoundError
from antiphon.hooks.events import AfterToolCallEvent, BeforeToolCallEvent
from antiphon.jsonable import copy_json
from antiphon.tools.context import ToolContext
from antiphon.tools.decorator import tool
from antiphon.tools.direct import ToolCaller, recorded_messages
from tests.tools.owner import Owner, PlainTool, success


@tool(name="add-up")
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


class Recorder(Owner):
    """An owner that keeps what is recorded."""

    def __init__(self, *tools) -> None:
        super().__init__(*tools)
        self.recorded = []
        self.recording = True
        self.busy = False
        self.tool = ToolCaller(
            self,
            self.tools,
            recording=lambda: self.recording,
            may_record=self.may_record,
            record=lambda *call: self.recorded.append(call),
        )

    def may_record(self):
        if self.busy:
            raise ConcurrencyException("busy")


def test_a_direct_call_returns_the_result_and_is_recorded():
    owner = Recorder(add)
    result = owner.tool.add_up(a=2)
    assert (result["status"], result["content"]) == ("success", [{"text": "3"}])
    ((tool_use, recorded, override),) = owner.recorded
    assert tool_use == {"toolUseId": result["toolUseId"], "name": "add-up", "input": {"a": 2}}
    assert recorded == result
    assert override is None


def test_two_calls_have_two_ids():
    owner = Recorder(add)
    ids = {owner.tool.add_up(a=n)["toolUseId"] for n in range(3)}
    assert len(ids) == 3
    assert all(len(each) <= 64 and each.replace("_", "").isalnum() for each in ids)


async def test_a_direct_call_works_inside_a_running_loop_with_asynchronous_tools_and_hooks():
    @tool
    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def hear(event):
        await asyncio.sleep(0)
        heard.append(event.tool_use["name"])

    heard, owner = [], Recorder(slow)
    owner.hooks.add_callback([BeforeToolCallEvent, AfterToolCallEvent], hear)
    assert owner.tool.slow(n=4)["content"] == [{"text": "4"}]
    assert heard == ["slow", "slow"]


def test_the_tool_sees_the_callers_context_variables():
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    async def who() -> str:
        return user.get()

    user.set("ada")
    assert Recorder(who).tool.who()["content"] == [{"text": "ada"}]


def test_who_records_is_the_agents_choice_and_the_callers():
    owner = Recorder(add)
    owner.tool.add_up(a=1, record_direct_tool_call=False)
    owner.recording = False
    owner.tool.add_up(a=1)
    assert owner.recorded == []
    owner.tool.add_up(a=1, record_direct_tool_call=True, user_message_override="please")
    assert [override for _, _, override in owner.recorded] == ["please"]


def test_a_recorded_call_is_refused_while_the_history_is_busy_and_an_unrecorded_one_runs():
    ran = []
    owner = Recorder(PlainTool(items=lambda call: ran.append(call) or [success()]))
    owner.busy = True
    with pytest.raises(ConcurrencyException):
        owner.tool.plain()
    assert not ran
    assert owner.tool.plain(record_direct_tool_call=False)["status"] == "success"
    assert len(ran) == 1


def test_an_unknown_tool_is_an_attribute_that_is_not_there():
    owner = Recorder(add)
    with pytest.raises(ToolNotFoundError, match=r"Tool 'dance' not found: the agent has \['add-up'\]"):
        owner.tool.dance()
    assert not hasattr(owner.tool, "dance")
    assert not hasattr(owner.tool, "__deepcopy__")
    assert hasattr(owner.tool, "add_up")
    assert "add_up" in dir(owner.tool)


def test_an_error_of_the_tool_is_an_error_result_and_is_recorded():
    owner = Recorder(add)
    result = owner.tool.add_up(a="x")
    assert result["status"] == "error"
    assert "a: Input should be a valid integer" in result["content"][0]["text"]
    assert owner.recorded[0][1] == result


def test_the_error_of_a_hook_reaches_the_caller():
    def fail(event):
        raise LookupError("broken hook")

    owner = Recorder(add)
    owner.hooks.add_callback(BeforeToolCallEvent, fail)
    with pytest.raises(LookupError, match="broken hook"):
        owner.tool.add_up(a=1)
    assert owner.recorded == []


def test_a_direct_call_cannot_wait_for_a_person():
    @tool
    def pay(context: ToolContext) -> str:
        return context.interrupt("approve")

    owner = Recorder(pay)
    with pytest.raises(AgentStateError, match="'pay' asks 'approve': a direct call cannot wait for a person"):
        owner.tool.pay()
    assert owner.recorded == []
    assert owner.questions.open() == []


def test_a_signal_left_from_a_cancelled_call_does_not_reach_a_direct_call():
    @tool
    def cancelled(context: ToolContext) -> bool:
        return context.cancel_signal.is_set()

    owner = Recorder(cancelled)
    owner.cancel_signal.set()
    assert owner.tool.cancelled()["content"] == [{"text": "false"}]


def test_a_running_direct_call_can_be_cancelled():
    @tool
    def wait(context: ToolContext) -> bool:
        started.set()
        return context.cancel_signal.wait(30)

    started, owner = threading.Event(), Recorder(wait)
    canceller = threading.Thread(target=lambda: started.wait(30) and owner.cancel_signal.set())
    canceller.start()
    assert owner.tool.wait()["content"] == [{"text": "true"}]
    canceller.join()


class Opaque:
    pass


def test_an_input_that_json_cannot_carry_reaches_the_tool_and_is_told_in_the_record():
    seen, thing = [], Opaque()
    owner = Recorder(PlainTool(items=lambda call: seen.append(call.tool_use["input"]) or [success()]))
    owner.tool.plain(a=1, thing=thing, deep={"list": [thing, b"\xff", 2], 5: "x"}, lock=threading.Lock())
    assert seen[0]["thing"] is thing
    assert owner.recorded[0][0]["input"] == {
        "a": 1,
        "thing": "<<non-serializable: Opaque>>",
        "deep": {"list": ["<<non-serializable: Opaque>>", "<<non-serializable: bytes>>", 2], "5": "x"},
        "lock": "<<non-serializable: lock>>",
    }


def test_an_input_that_contains_itself_can_be_recorded():
    loop = []
    loop.append(loop)
    owner = Recorder(PlainTool(items=[success()]))
    owner.tool.plain(loop=loop)
    copy_json(owner.recorded[0][0]["input"], binary=False)


def test_a_record_is_a_request_a_call_its_result_and_a_closing_word():
    tool_use = {"toolUseId": "t1", "name": "add-up", "input": {"word": "Grüße"}}
    result = {"toolUseId": "t1", "status": "success", "content": [{"text": "3"}]}
    described = 'agent.tool.add-up direct tool call.\nInput parameters: {"word": "Grüße"}\n'
    messages = recorded_messages(tool_use, result)
    assert messages == [
        {"role": "user", "content": [{"text": described}]},
        {"role": "assistant", "content": [{"toolUse": tool_use}]},
        {"role": "user", "content": [{"toolResult": result}]},
        {"role": "assistant", "content": [{"text": "agent.tool.add-up was called."}]},
    ]
    assert messages[2]["content"][0]["toolResult"] is not result
    words = recorded_messages(tool_use, result, "Add these, please")[0]["content"]
    assert words == [{"text": "Add these, please\n"}, {"text": described}]


values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Opaque),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), values, max_size=3))
def test_whatever_is_passed_the_record_is_json_and_a_pair(arguments):
    owner = Recorder(PlainTool(items=[success({"text": "ok"})]))
    owner.tool.plain(**arguments)
    messages = copy_json(recorded_messages(*owner.recorded[0]), binary=False)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    call, result = messages[1]["content"][0]["toolUse"], messages[2]["content"][0]["toolResult"]
    assert call["toolUseId"] == result["toolUseId"]
    assert set(call["input"]) == set(arguments)

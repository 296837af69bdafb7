"""Functions as tools keep their types. Each `type: ignore` is an error that both checkers must report."""

from collections.abc import AsyncIterator, Callable
from typing import Any, assert_type

from antiphon import Agent, BidiAgent, LocalAgent, ToolContext, tool
from antiphon.content import ToolResult, ToolSpec
from antiphon.models import Model
from antiphon.tools import AgentTool, FunctionTool, ToolCall, ToolProgress


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(name="look-up", description="Look it up.", repeatable=True)
async def look_up(word: str, *, exact: bool = False) -> str:
    return word


@tool
async def count(to: int) -> AsyncIterator[int | ToolProgress]:
    yield ToolProgress("begun")
    yield to


@tool(context="ctx")
def who(greeting: str, ctx: ToolContext[Agent]) -> str:
    assert_type(ctx.agent, Agent)
    return f"{greeting} {ctx.agent.conversation_manager}"


@tool
def anywhere(ctx: ToolContext) -> str:
    assert_type(ctx.agent, LocalAgent)
    ctx.agent.conversation_manager  # type: ignore[attr-defined]
    assert_type(ctx.invocation_state, dict[str, Any])
    return str(ctx.interrupt("approve", reason={"why": "it costs"}))


async def a_tool_is_called_like_its_function() -> None:
    assert_type(add(1), int)
    assert_type(await look_up("a", exact=True), str)
    assert_type(count(3), AsyncIterator[int | ToolProgress])
    add("1")  # type: ignore[arg-type]
    await look_up("a", True)  # type: ignore[call-arg]
    add.no_such_attribute  # type: ignore[attr-defined]
    who("I am")  # type: ignore[call-arg]


def a_tool_is_a_tool() -> None:
    plain: AgentTool = add
    any_function: FunctionTool[..., object] = add
    function: Callable[[int], int] = add
    assert_type(add.tool_spec, ToolSpec)
    assert_type(add.repeatable, bool)
    wrong: Callable[[str], int] = add  # type: ignore[assignment]


class House:
    @tool
    def lock(self, door: str) -> bool:
        return bool(door)

    @tool(name="ring-bell")
    async def ring(self, times: int = 1) -> None: ...


async def a_method_is_called_like_a_method(house: House) -> None:
    assert_type(house.lock("gate"), bool)
    assert_type(House.lock(house, "gate"), bool)
    bound: AgentTool = house.lock
    house.lock(5)  # type: ignore[arg-type]
    house.lock("gate", "door")  # type: ignore[call-arg]
    await house.ring(times=2)
    await house.ring(times="often")  # type: ignore[arg-type]


def options_are_known() -> None:
    tool(nam="x")  # type: ignore[call-overload]
    tool(5)  # type: ignore[call-overload]


def agents_take_tools_in_many_forms(model: Model, bidi: BidiAgent) -> None:
    agent = Agent(model, tools=[add, House().lock, "package.module:function", [look_up, "tools.py"]])
    assert_type(agent.tool.add(a=1), ToolResult)
    bidi.tool.look_up(word="x", record_direct_tool_call=False)


def a_context_for_agents_is_a_context(context: ToolContext[Agent]) -> None:
    general: ToolContext = context
    call: ToolCall = context
    for_bidi: ToolContext[BidiAgent] = context  # type: ignore[assignment]
    context.tool_use = {"toolUseId": "t1", "name": "x", "input": {}}  # type: ignore[misc]

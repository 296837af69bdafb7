"""One tool call, from the hooks before it to the hooks after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import ToolResult, ToolUse, error_result
from antiphon.errors import AgentStateError, NotJsonError, SnapshotException
from antiphon.hooks.events import AfterToolCallEvent, BeforeToolCallEvent
from antiphon.interrupts import Interrupt, InterruptException, InterruptState
from antiphon.jsonable import clean_text, copy_json
from antiphon.local_agent import LocalAgent
from antiphon.snapshot.checks import check_tool_result
from antiphon.tools.base import AgentTool, ToolProgress
from antiphon.tools.context import ToolContext
from antiphon.tools.registry import ToolRegistry

_ROOM = 20
"""How much deeper a result comes to stand: a snapshot's open turn has its content nine levels down."""
REFUSED = "tool cancelled by user"
"""What the model is told of a call that a hook refused without a word."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to.

    Attributes:
        tool_use: The call as it ran: a hook may have replaced it, but its `toolUseId` is always the model's.
        result: Its result, checked and independent of what the tool keeps; None when it waits for a person.
        interrupts: The questions it waits for.
    """

    tool_use: ToolUse
    result: ToolResult | None
    interrupts: tuple[Interrupt, ...] = ()


async def run_tool(
    agent: LocalAgent,
    tool_use: ToolUse,
    *,
    registry: ToolRegistry,
    invocation_state: dict[str, Any],
    cancel_signal: threading.Event,
    interrupt_state: InterruptState,
    before_start: Callable[[AgentTool, ToolUse], Awaitable[None]] | None = None,
    on_progress: Callable[[ToolUse, Any], None] | None = None,
    on_refused: Callable[[ToolUse, str], None] | None = None,
    interruptible: bool = True,
    clock: Clock = SYSTEM_CLOCK,
) -> ToolOutcome:
    """Run a model's call.

    The order: hooks before (they may replace the tool or the call, refuse it, or ask a person); `before_start`,
    awaited; the tool; hooks after (they may replace the result, or have the whole run again, hooks before included).
    Whatever goes wrong in the tool is told to the model as an error result.

    Args:
        agent: Whose call it is; its hooks are called.
        tool_use: The call.
        registry: Where the tool is looked up.
        invocation_state: Handed to the tool and the hooks by reference, and not changed here.
        cancel_signal: Handed to the tool. When it is set, no hook can have the call run again.
        interrupt_state: Where questions and answers are kept.
        before_start: Called before the tool starts, each time it does: whoever keeps a journal writes it here.
        on_progress: Called with what the tool reports while it works.
        on_refused: Called when a hook refused the call, with what the model is told.
        interruptible: Whether the call can wait for a person, as hooks are told.
        clock: Measures the duration that hooks are told.

    Raises:
        AgentStateError: If a hook asks a person after the tool has run.
        Exception: Whatever a hook or `before_start` raises.
    """
    run = _Run(agent, tool_use, registry, invocation_state, cancel_signal, interrupt_state, interruptible, on_progress)
    while True:
        before, questions = await run.ask_before()
        tool, call = run.chosen(before)
        error: Exception | None = None
        refusal: str | None = None
        began = clock.now()
        if before.cancel_tool:
            refusal = before.cancel_tool if isinstance(before.cancel_tool, str) else REFUSED
            interrupt_state.forget([question.id for question in questions])  # there is nothing left to ask about
            result = error_result(call["toolUseId"], clean_text(refusal))
            if on_refused is not None:
                on_refused(call, refusal)
        elif questions:
            return ToolOutcome(call, None, tuple(questions))
        elif tool is None:
            result = error_result(call["toolUseId"], f"Unknown tool: {call['name']}")
        else:
            if before_start is not None:
                await before_start(tool, call)
            began = clock.now()
            try:
                result = await run.result_of(tool, call)
            except InterruptException as asked:
                return ToolOutcome(call, None, (asked.interrupt,))
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as failure:  # noqa: BLE001 - a tool is the user's code: the model is told what it raised
                error = failure if isinstance(failure, Exception) else AgentStateError(f"tool raised {failure!r}")
                result = error_result(call["toolUseId"], _told(failure))
        if not agent.hooks.listens(AfterToolCallEvent):
            return ToolOutcome(call, result)
        after = AfterToolCallEvent(
            agent=agent,
            selected_tool=tool,
            tool_use=call,
            result=result,
            invocation_state=invocation_state,
            exception=error,
            cancel_message=refusal,
            duration=clock.now() - began,
        )
        _, late = await agent.hooks.invoke_callbacks_async(after)
        if late:
            raise AgentStateError(
                f"a hook asked {late[0].name!r} after tool {call['name']!r} had run: ask in a BeforeToolCallEvent"
            )
        if not after.retry or cancel_signal.is_set():
            return ToolOutcome(call, checked_result(call, after.result))


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same when a call runs again."""

    agent: LocalAgent
    tool_use: ToolUse
    registry: ToolRegistry
    invocation_state: dict[str, Any]
    cancel_signal: threading.Event
    interrupt_state: InterruptState
    interruptible: bool
    on_progress: Callable[[ToolUse, Any], None] | None

    async def ask_before(self) -> tuple[BeforeToolCallEvent, list[Interrupt]]:
        event: BeforeToolCallEvent = BeforeToolCallEvent(
            agent=self.agent,
            selected_tool=self.registry.get(self.tool_use["name"]),
            tool_use=self.tool_use,
            invocation_state=self.invocation_state,
            interrupt_state=self.interrupt_state,
            interruptible=self.interruptible,
        )
        if not self.agent.hooks.listens(BeforeToolCallEvent):
            return event, []
        return await self.agent.hooks.invoke_callbacks_async(event)

    def chosen(self, event: BeforeToolCallEvent) -> tuple[AgentTool | None, ToolUse]:
        """The tool and the call, as the hooks left them. The id stays the model's: call and result are a pair by it."""
        tool, call, name = event.selected_tool, event.tool_use, self.tool_use["name"]
        if call["toolUseId"] != self.tool_use["toolUseId"]:
            call = ToolUse(toolUseId=self.tool_use["toolUseId"], name=call["name"], input=call["input"])
        if call["name"] != name and tool is self.registry.get(name):
            tool = self.registry.get(call["name"])  # a hook renamed the call and left the tool to us
        return tool, call

    async def result_of(self, tool: AgentTool, call: ToolUse) -> ToolResult:
        """Run the tool.

        Raises:
            Exception: Whatever the tool raises.
        """
        context: ToolContext = ToolContext(
            tool_use={**call, "input": _own(call["input"])},
            invocation_state=self.invocation_state,
            cancel_signal=self.cancel_signal,
            agent=self.agent,
            interrupt_state=self.interrupt_state,
        )
        found: ToolResult | None = None
        try:
            async with aclosing(tool.stream(context)) as stream:
                async for item in stream:
                    if not isinstance(item, ToolProgress):
                        found = item
                    elif self.on_progress is not None:
                        self.on_progress(call, item.data)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this task, so that it must not end like one that was.
            raise AgentStateError(f"tool {call['name']!r} awaited something that was cancelled") from error
        if found is None:
            return error_result(call["toolUseId"], f"Tool '{call['name']}' did not return a result")
        return checked_result(call, found)


def _own(value: Any) -> Any:
    """A copy, so that what a tool does to its input does not change the history."""
    try:
        return copy_json(value)
    except NotJsonError:
        return value  # of a direct call


def checked_result(call: ToolUse, result: object) -> ToolResult:
    """A copy of a result that can be kept and sent; an error result that says why, when it cannot.

    Its `toolUseId` is the call's.
    """
    key, name = call["toolUseId"], call["name"]
    if not isinstance(result, dict):
        return error_result(key, f"Error: Tool '{name}' gave {type(result).__name__}, not a result")
    fields = cast("dict[str, Any]", result)
    status, content = fields.get("status"), fields.get("content")
    if status not in ("success", "error"):
        return error_result(key, f"Error: Tool '{name}' gave a result with status {status!r}, not 'success' or 'error'")
    if not isinstance(content, (list, tuple)) or not all(
        isinstance(block, dict) for block in cast("list[object]", content)
    ):
        return error_result(key, f"Error: Tool '{name}' gave a result whose content is not a list of dicts")
    kept: ToolResult
    try:
        kept = {"toolUseId": key, "status": status, "content": copy_json(content, "content", room=_ROOM)}
        check_tool_result(kept, "result")
    except (NotJsonError, SnapshotException) as error:
        return error_result(key, f"Error: Tool '{name}' gave a result that cannot be kept: {clean_text(str(error))}")
    return kept


def _told(error: BaseException) -> str:
    said = str(error) if isinstance(error, ValueError) else ""
    return clean_text(f"Error: {said or f'{type(error).__name__} - {error}'}")

"""Direct calls: a program calls an agent's tool itself, as a method."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from antiphon.content import Messages, ToolResult, ToolUse
from antiphon.errors import AgentStateError, NotJsonError, ToolNotFoundError
from antiphon.ids import new_uuid7
from antiphon.interrupts import InterruptState
from antiphon.jsonable import copy_json
from antiphon.local_agent import LocalAgent
from antiphon.tools.base import AgentTool
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.run import run_tool

T = TypeVar("T")

_DEEPEST = 20
"""How deep an input that JSON cannot carry is looked into, for the record."""


class ToolCaller:
    """Tools as methods: `agent.tool.calculator(expression="2+2")`. `-` in a tool's name may be written as `_`.

    A call goes through the agent's hooks, and returns when the tool is done, also inside a running event loop (which it
    blocks): the tool runs on a thread and a loop of its own.

    Args:
        agent: Whose tools these are.
        registry: Where they are looked up.
        recording: Whether calls are written into the history when the caller does not say.
        may_record: Called before a call that will be recorded; raises `ConcurrencyException` while the history is
            somebody else's.
        record: Writes a call into the history (see `recorded_messages`): the call with an input that is JSON, its result,
            and the caller's own words for it.
    """

    __slots__ = ("_agent", "_may_record", "_record", "_recording", "_registry")

    def __init__(
        self,
        agent: LocalAgent,
        registry: ToolRegistry,
        *,
        recording: Callable[[], bool],
        may_record: Callable[[], None],
        record: Callable[[ToolUse, ToolResult, str | None], None],
    ) -> None:
        self._agent = agent
        self._registry = registry
        self._recording = recording
        self._may_record = may_record
        self._record = record

    def __getattr__(self, name: str) -> Callable[..., ToolResult]:
        """The tool `name` as a function of its parameters.

        It takes them by keyword, and besides `user_message_override`, words that go before the recorded description of
        the call, and `record_direct_tool_call`, whether it is recorded. It returns the `ToolResult`.

        Raises:
            ToolNotFoundError: If the agent has no such tool.
        """
        tool = None if name.startswith("__") else self._registry.find(name)
        if tool is None:
            raise ToolNotFoundError(f"Tool {name!r} not found: the agent has {self._registry.names()!r}")

        def call(
            *, user_message_override: str | None = None, record_direct_tool_call: bool | None = None, **kwargs: Any
        ) -> ToolResult:
            recorded = self._recording() if record_direct_tool_call is None else record_direct_tool_call
            return self._call(tool, kwargs, recorded=recorded, override=user_message_override)

        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.replace("-", "_") for name in self._registry.names())]

    def _call(self, tool: AgentTool, kwargs: dict[str, Any], *, recorded: bool, override: str | None) -> ToolResult:
        if recorded:
            self._may_record()
        name, cancelled = tool.tool_name, self._agent.cancel_signal
        tool_use: ToolUse = {"toolUseId": f"tooluse_{new_uuid7().replace('-', '')}", "name": name, "input": kwargs}
        outcome = _run_elsewhere(
            run_tool(
                self._agent,
                tool_use,
                registry=self._registry,
                invocation_state={},
                # A signal that stayed set from a call that is over does not concern this one.
                cancel_signal=threading.Event() if cancelled.is_set() else cancelled,
                interrupt_state=InterruptState(),
                interruptible=False,
            )
        )
        if outcome.result is None:
            asked = outcome.interrupts[0].name
            raise AgentStateError(f"tool {name!r} asks {asked!r}: a direct call cannot wait for a person")
        if recorded:
            shown = ToolUse(
                toolUseId=outcome.tool_use["toolUseId"],
                name=outcome.tool_use["name"],
                input=_shown(outcome.tool_use["input"]),
            )
            self._record(shown, outcome.result, override)
        return outcome.result


def _run_elsewhere(work: Coroutine[Any, Any, T]) -> T:
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "antiphon-direct-call") as pool:
        return pool.submit(lambda: context.run(asyncio.run, work)).result()


def _shown(value: Any, depth: int = 0) -> Any:
    """`value`, with a word in place of what JSON cannot carry."""
    try:
        return copy_json(value, binary=False)
    except NotJsonError:
        if depth < _DEEPEST and isinstance(value, dict):
            entries = cast("dict[object, Any]", value)
            return {str(key): _shown(item, depth + 1) for key, item in entries.items()}
        if depth < _DEEPEST and isinstance(value, (list, tuple)):
            return [_shown(item, depth + 1) for item in cast("list[Any]", value)]
        return f"<<non-serializable: {type(value).__qualname__}>>"


def recorded_messages(tool_use: ToolUse, result: ToolResult, override: str | None = None) -> Messages:
    """What a direct call leaves in the history: a request, the call, its result (both copied), a closing word.

    Args:
        tool_use: The call; its input is JSON.
        result: Its result.
        override: Words that go before the description of the call.
    """
    name = tool_use["name"]
    parameters = json.dumps(tool_use["input"], ensure_ascii=False)
    described = f"agent.tool.{name} direct tool call.\nInput parameters: {parameters}\n"
    words = [described] if override is None else [f"{override}\n", described]
    return [
        {"role": "user", "content": [{"text": text} for text in words]},
        {"role": "assistant", "content": [{"toolUse": copy.deepcopy(tool_use)}]},
        {"role": "user", "content": [{"toolResult": copy.deepcopy(result)}]},
        {"role": "assistant", "content": [{"text": f"agent.tool.{name} was called."}]},
    ]

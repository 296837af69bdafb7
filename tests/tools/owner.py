"""An owner of tools: as much of an agent as a tool call needs."""

import threading

from antiphon.hooks.registry import HookRegistry
from antiphon.interrupts import InterruptState
from antiphon.tools.base import AgentTool
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.run import ToolOutcome, run_tool


class Owner:
    """Holds hooks, questions and a signal, and runs calls."""

    def __init__(self, *tools) -> None:
        self.hooks = HookRegistry()
        self.tools = ToolRegistry(list(tools))
        self.questions = InterruptState()
        self.cancel_signal = threading.Event()
        self.invocation_state = {}
        self.progress = []

    async def outcome(self, name: str, given=None, **more) -> ToolOutcome:
        return await run_tool(
            self,
            {"toolUseId": "t1", "name": name, "input": {} if given is None else given},
            registry=self.tools,
            invocation_state=self.invocation_state,
            cancel_signal=self.cancel_signal,
            interrupt_state=self.questions,
            on_progress=lambda tool_use, data: self.progress.append(data),
            **more,
        )

    async def result(self, name: str, given=None, **more):
        return (await self.outcome(name, given, **more)).result

    async def content(self, name: str, given=None):
        """The content of a result that is not an error."""
        result = await self.result(name, given)
        assert result["status"] == "success", result
        return result["content"]

    async def error(self, name: str, given=None) -> str:
        """The text of an error result."""
        result = await self.result(name, given)
        assert result["status"] == "error", result
        assert result["toolUseId"] == "t1"
        return result["content"][0]["text"]


class PlainTool(AgentTool):
    """A tool made by hand: yields what it was given, or what a function of the call gives."""

    def __init__(self, name: str = "plain", items=(), **spec) -> None:
        self.items = items
        self.spec = {"name": name, "description": "Plain.", "inputSchema": {"json": {"type": "object"}}, **spec}

    @property
    def tool_spec(self):
        return self.spec

    async def stream(self, call):
        for item in self.items(call) if callable(self.items) else self.items:
            yield item


def success(*blocks):
    return {"toolUseId": "whatever", "status": "success", "content": list(blocks)}

"""The contract of a tool, without knowledge of agents."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from antiphon.content import ToolResult, ToolSpec, ToolUse


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Something a tool reports while it works."""

    data: Any


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """All that a call is, but for the agent.

    Attributes:
        tool_use: The model's call.
        invocation_state: Shared by reference with tools and hooks for one invocation or live call.
        cancel_signal: Set when the call should end early.
    """

    tool_use: ToolUse
    invocation_state: dict[str, Any] = field(default_factory=dict[str, Any])
    cancel_signal: threading.Event = field(default_factory=threading.Event)


class AgentTool(ABC):
    """A tool.

    Attributes:
        repeatable: Whether a call that was cut short by a crash may simply run again.
    """

    repeatable: bool = False

    @property
    @abstractmethod
    def tool_spec(self) -> ToolSpec:
        """What the model is told."""
        ...

    @property
    def tool_name(self) -> str:
        """The tool's name."""
        return self.tool_spec["name"]

    @property
    def tool_type(self) -> str:
        """How the tool is made, for people."""
        return "python"

    @abstractmethod
    def stream(self, call: ToolCall) -> AsyncGenerator[ToolProgress | ToolResult, None]:
        """Run the call: any number of `ToolProgress`, then one `ToolResult`.

        The result's `toolUseId` is set by the caller.

        Raises:
            InterruptException: If the call needs a person first.
            Exception: Anything else is told to the model, as an error result.
        """
        ...


@runtime_checkable
class ToolProvider(Protocol):
    """Something that brings tools and may hold resources for them while agents use them."""

    async def load_tools(self) -> Sequence[AgentTool]:
        """The tools, loaded on first use."""
        ...

    def add_consumer(self, consumer_id: Any) -> None:
        """An agent begins to use the tools."""
        ...

    def remove_consumer(self, consumer_id: Any) -> None:
        """An agent no longer uses them; with the last one, resources are released."""
        ...

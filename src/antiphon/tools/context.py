"""What a running tool knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from antiphon.interrupts import InterruptState, interrupt_id
from antiphon.local_agent import AgentT_co
from antiphon.tools.base import ToolCall


@dataclass(frozen=True, kw_only=True)
class ToolContext(ToolCall, Generic[AgentT_co]):
    """The call a tool serves, and the agent that makes it.

    Attributes:
        agent: The agent.
        interrupt_state: Where questions are kept; use `interrupt`.
    """

    agent: AgentT_co
    interrupt_state: InterruptState = field(default_factory=InterruptState)

    def interrupt(self, name: str, reason: Any = None, response: Any = None) -> Any:
        """The answer of a person to the question `name`; the first time, the call pauses here until there is one.

        The tool runs again from its top when the answer is there, so ask before you act.

        Args:
            name: Unique within this call.
            reason: What the person is shown; JSON.
            response: An answer given in advance.

        Raises:
            InterruptException: When there is no answer yet; let it through.
        """
        key = interrupt_id("tool_call", self.tool_use["toolUseId"], name)
        return self.interrupt_state.ask(key, name, reason, response)

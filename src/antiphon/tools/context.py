"""What a running tool knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from antiphon.artifacts import Artifacts
from antiphon.errors import AgentStateError
from antiphon.interrupts import InterruptState, interrupt_id
from antiphon.local_agent import AgentT_co
from antiphon.state import TypedState
from antiphon.tools.base import ToolCall
from antiphon.turn import Turn


@dataclass(frozen=True, kw_only=True)
class ToolContext(ToolCall, Generic[AgentT_co]):
    """The call a tool serves, and the agent that makes it.

    Attributes:
        agent: The agent.
        interrupt_state: Where questions are kept; use `interrupt`.
    """

    agent: AgentT_co
    interrupt_state: InterruptState = field(default_factory=InterruptState)

    @property
    def turn(self) -> Turn | None:
        """Where this turn stands in its session; None when no `Runner` runs the agent."""
        return self.agent.turn

    @property
    def state(self) -> TypedState[Any]:
        """The session's state: of the type that the `Runner` has, else dicts. `state.update(fn)` changes it."""
        turn = self.agent.turn
        return TypedState.plain(self.agent.state) if turn is None else turn.state

    @property
    def artifacts(self) -> Artifacts:
        """The session's artifacts.

        Raises:
            AgentStateError: If no `Runner` runs the agent: nobody keeps them then.
        """
        if self.agent.turn is None:
            raise AgentStateError("artifacts are kept by a Runner, and none runs this agent: run it by one")
        return self.agent.turn.artifacts

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

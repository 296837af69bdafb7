"""What both kinds of agent offer.

Everything that carries an agent (hook events, tool contexts, session managers, triggers) is generic with this protocol as
bound and default: the bare name means "for both kinds". Nobody asks for an agent's class; what must be known of a kind is a
value, `agent.kind`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

from typing_extensions import TypeVar

from antiphon.content import Messages, SystemContentBlock
from antiphon.conversation.journal import Journal
from antiphon.hooks.registry import EventFor, EventTypes, HookCallback, HookRegistry
from antiphon.models.base import ConfiguredModel
from antiphon.sandbox import HostSandbox
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.fields import AgentKind, SnapshotField, SnapshotPreset
from antiphon.state import AgentState
from antiphon.storage.base import Storage
from antiphon.tools.registry import ToolRegistry
from antiphon.turn import Turn

SharedEventT = TypeVar("SharedEventT", bound="EventFor[LocalAgent]")


class DirectCalls(Protocol):
    """Tools as methods: `agent.tool.calculator(expression="2+2")`."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


class LocalAgent(Protocol):
    """An agent that runs in this process: what `Agent` and `BidiAgent` share.

    Attributes:
        kind: What must be known of the kind of agent: its name, its snapshot fields and presets, whether it is live.
        agent_id: Names the agent within a session.
        messages: The committed history. The list may be changed between invocations.
        state: Application state, saved with the session.
        hooks: The callbacks.
        tool_registry: The tools, by name.
        turn: Where the present turn stands in its session, when a `Runner` runs the agent.
    """

    kind: ClassVar[AgentKind]
    agent_id: str
    name: str
    description: str | None
    messages: Messages
    state: AgentState
    hooks: HookRegistry
    tool_registry: ToolRegistry
    turn: Turn | None

    @property
    def model(self) -> ConfiguredModel: ...

    @property
    def tool(self) -> DirectCalls: ...

    @property
    def tool_names(self) -> list[str]: ...

    @property
    def system_prompt(self) -> str | None: ...

    @system_prompt.setter
    def system_prompt(self, value: str | list[SystemContentBlock] | None) -> None: ...

    @property
    def system_prompt_content(self) -> list[SystemContentBlock] | None: ...

    @property
    def session_id(self) -> str: ...

    @property
    def storage(self) -> Storage | None: ...

    @property
    def sandbox(self) -> HostSandbox:
        """Where tool code runs."""
        ...

    @property
    def context_manager(self) -> None:
        """Always None: there are no context managers yet."""
        ...

    @property
    def event_loop_metrics(self) -> Any:
        """Not collected.

        Raises:
            NotSupportedError: Always.
        """
        ...

    @property
    def cancel_signal(self) -> threading.Event: ...

    def cancel(self, *, message: str | None = None, after_current_tools: bool = False) -> None: ...

    def add_hook(
        self,
        callback: HookCallback[SharedEventT],
        event_type: EventTypes[SharedEventT] = None,
        *,
        order: float = 0,
    ) -> None: ...

    def take_snapshot(
        self,
        *,
        preset: SnapshotPreset | None = None,
        include: Collection[SnapshotField] | None = None,
        exclude: Collection[SnapshotField] | None = None,
        app_data: dict[str, Any] | None = None,
    ) -> Snapshot:
        """Committed history and state, as independent copies.

        Raises:
            SnapshotException: If no field is left, a field or preset is not this kind's, or a value is not JSON.
        """
        ...

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Take over a snapshot. Everything is checked before anything is changed.

        Raises:
            SnapshotException: If the snapshot is malformed, of another scope, or of a newer schema.
            AgentStartedError: If a live call or an invocation is under way.
        """
        ...

    def take_journal(self) -> Journal:
        """What is open beside the committed history, now."""
        ...

    def load_journal(self, journal: Journal) -> None:
        """Take over what was open when another process ended. Called after `load_snapshot`, before any connection."""
        ...


AgentT_co = TypeVar("AgentT_co", bound=LocalAgent, default=LocalAgent, covariant=True)
AgentT_contra = TypeVar("AgentT_contra", bound=LocalAgent, default=LocalAgent, contravariant=True)

"""The contract of session managers: who decides when an agent is saved and restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic

from antiphon.content import Message
from antiphon.errors import NotSupportedError
from antiphon.hooks.events import (
    AfterInvocationEvent,
    AgentInitializedEvent,
    BidiAgentStopEvent,
    MessageAddedEvent,
    MessageUpdatedEvent,
)
from antiphon.hooks.registry import HookOrder, HookRegistry
from antiphon.local_agent import AgentT_contra


class SessionManager(ABC, Generic[AgentT_contra]):
    """Saves and restores agents of one session; attached to them through hooks.

    A manager for `LocalAgent` (the bare name) serves both kinds of agent; one for a kind serves that kind only, and a type
    checker says so.

    The five methods of the contract are synchronous, for scripts and constructors. Agents, which run in an event loop, use
    the `..._async` twins; without an override those call the synchronous ones.

    Attributes:
        session_id: The session that this manager keeps.
    """

    session_id: str

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Attach the manager to an agent.

        As written here: restore when the agent is constructed, tell each message, and take over the rest (state and what
        was changed in place) after each message and at the completion boundary of the agent's kind.

        Args:
            registry: The agent's hooks.
            **kwargs: Room for what later versions pass.
        """

        def restore(event: AgentInitializedEvent[AgentT_contra]) -> None:
            self.initialize(event.agent)

        async def append(event: MessageAddedEvent[AgentT_contra]) -> None:
            await self.append_message_async(event.message, event.agent)
            await self.sync_agent_async(event.agent)

        async def update(event: MessageUpdatedEvent[AgentT_contra]) -> None:
            await self.sync_agent_async(event.agent)

        async def finish(event: AfterInvocationEvent[AgentT_contra]) -> None:
            await self.sync_agent_async(event.agent)

        async def stop(event: BidiAgentStopEvent[AgentT_contra]) -> None:
            await self.sync_agent_async(event.agent)

        # First, so that users' own callbacks see the restored agent; last, so that what they change is saved.
        registry.add_callback(AgentInitializedEvent, restore, order=HookOrder.SDK_FIRST)
        registry.add_callback(MessageAddedEvent, append, order=HookOrder.SDK_LAST)
        registry.add_callback(MessageUpdatedEvent, update, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterInvocationEvent, finish, order=HookOrder.SDK_LAST)
        registry.add_callback(BidiAgentStopEvent, stop, order=HookOrder.SDK_LAST)

    @abstractmethod
    def initialize(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Restore an agent that was just constructed, if the session knows it."""

    @abstractmethod
    def sync_agent(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Save the agent as it is now. When this returns, it is saved."""

    @abstractmethod
    def append_message(self, message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Save a message that was just committed."""

    @abstractmethod
    def redact_latest_message(self, redact_message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Bring a redaction to everything at rest.

        Args:
            redact_message: The new message. The agent has already put it in place of its latest one.
            agent: The agent.
            **kwargs: Room for what later versions pass.
        """

    async def sync_agent_async(self, agent: AgentT_contra, **kwargs: Any) -> None:
        """Like `sync_agent`, without holding up the event loop where a manager can."""
        self.sync_agent(agent, **kwargs)

    async def append_message_async(self, message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Like `append_message`, without holding up the event loop where a manager can."""
        self.append_message(message, agent, **kwargs)

    async def redact_latest_message_async(self, redact_message: Message, agent: AgentT_contra, **kwargs: Any) -> None:
        """Like `redact_latest_message`, without holding up the event loop where a manager can."""
        self.redact_latest_message(redact_message, agent, **kwargs)

    def initialize_multi_agent(self, source: Any, **kwargs: Any) -> None:
        """Restore a `Graph` or `Swarm`.

        Raises:
            NotSupportedError: Always: they come later.
        """
        raise NotSupportedError(_LATER)

    def sync_multi_agent(self, source: Any, **kwargs: Any) -> None:
        """Save a `Graph` or `Swarm`.

        Raises:
            NotSupportedError: Always: they come later.
        """
        raise NotSupportedError(_LATER)


_LATER = "Graph and Swarm come later: attach the session manager to each agent instead"

"""Callbacks, for both kinds of agent or for one. Each `type: ignore` is an error that both checkers must report."""

from typing import Any, assert_type

from antiphon import Agent, BidiAgent, LocalAgent
from antiphon.content import Message
from antiphon.hooks import (
    AfterToolCallEvent,
    AgentInitializedEvent,
    BeforeToolCallEvent,
    BidiAgentStopEvent,
    HookEvent,
    HookOrder,
    HookProvider,
    HookRegistry,
    MessageAddedEvent,
)


def on_any(event: MessageAddedEvent) -> None:
    assert_type(event.agent, LocalAgent)
    assert_type(event.message, Message)


async def on_any_later(event: MessageAddedEvent | BeforeToolCallEvent) -> None:
    assert_type(event.agent, LocalAgent)


def on_every_event(event: HookEvent) -> None:
    assert_type(event.agent, LocalAgent)


def on_agent(event: MessageAddedEvent[Agent] | AfterToolCallEvent[Agent]) -> None:
    assert_type(event.agent, Agent)


def on_bidi(event: BidiAgentStopEvent[BidiAgent]) -> None:
    assert_type(event.agent, BidiAgent)


class Listener:
    """A callback may be an object."""

    async def __call__(self, event: MessageAddedEvent) -> None: ...


def what_fits(agent: Agent, bidi: BidiAgent, both: LocalAgent) -> None:
    for each in (agent, bidi, both):
        each.add_hook(on_any)
        each.add_hook(on_any_later, order=HookOrder.SDK_LAST)
        each.add_hook(on_any, MessageAddedEvent)
        each.add_hook(on_any_later, [MessageAddedEvent, BeforeToolCallEvent])
        each.add_hook(Listener())
    agent.add_hook(on_agent)
    agent.add_hook(on_agent, [MessageAddedEvent, AfterToolCallEvent])
    bidi.add_hook(on_bidi)
    bidi.add_hook(on_bidi, BidiAgentStopEvent)


def the_agent_of_a_lambda_is_the_one_it_is_added_to(agent: Agent, bidi: BidiAgent) -> None:
    bidi.add_hook(lambda event: event.agent.cancel(), MessageAddedEvent)
    agent.add_hook(lambda event: event.agent.cancel(), MessageAddedEvent)


def what_does_not_fit(agent: Agent, bidi: BidiAgent, both: LocalAgent) -> None:
    bidi.add_hook(on_agent)  # type: ignore[type-var]
    agent.add_hook(on_bidi)  # type: ignore[type-var]
    both.add_hook(on_agent)  # type: ignore[type-var]
    bidi.add_hook(on_any, AfterToolCallEvent)  # type: ignore[misc]
    agent.add_hook("on_any")  # type: ignore[arg-type]


def what_may_be_assigned(event: BeforeToolCallEvent) -> None:
    event.cancel_tool = "not now"
    event.cancel_tool = True
    event.tool_use = {"toolUseId": "t1", "name": "other", "input": {}}
    event.cancel_tool = 5  # type: ignore[assignment]


def an_event_for_agents_is_an_event(event: MessageAddedEvent[Agent]) -> None:
    on_any(event)
    on_every_event(event)
    for_bidi: MessageAddedEvent[BidiAgent] = event  # type: ignore[assignment]


class Provider:
    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(MessageAddedEvent, on_any)
        registry.add_callback(None, on_agent)
        registry.add_callback([AgentInitializedEvent, MessageAddedEvent], print, order=HookOrder.SDK_FIRST)


provider: HookProvider = Provider()

"""Agents: names are loaded on first use, so that the one kind does not load the other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.agent.invocation import Limits
    from antiphon.agent.live import BidiAgent
    from antiphon.agent.managers import (
        ConversationManager,
        NullConversationManager,
        SlidingWindowConversationManager,
    )
    from antiphon.agent.prompts import AgentInput
    from antiphon.agent.retry import ModelRetryStrategy
    from antiphon.agent.turns import Agent
else:
    _NAMES = {
        "Agent": "antiphon.agent.turns",
        "AgentInput": "antiphon.agent.prompts",
        "BidiAgent": "antiphon.agent.live",
        "ConversationManager": "antiphon.agent.managers",
        "Limits": "antiphon.agent.invocation",
        "ModelRetryStrategy": "antiphon.agent.retry",
        "NullConversationManager": "antiphon.agent.managers",
        "SlidingWindowConversationManager": "antiphon.agent.managers",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "Agent",
    "AgentInput",
    "BidiAgent",
    "ConversationManager",
    "Limits",
    "ModelRetryStrategy",
    "NullConversationManager",
    "SlidingWindowConversationManager",
]

"""Durable sessions for agents that speak and agents that write. Names are loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.agent.live import BidiAgent
    from antiphon.agent.managers import NullConversationManager, SlidingWindowConversationManager
    from antiphon.agent.turns import Agent
    from antiphon.artifacts import Artifact
    from antiphon.errors import AntiphonError, SnapshotException
    from antiphon.interrupts import Interrupt
    from antiphon.local_agent import LocalAgent
    from antiphon.results import AgentResult
    from antiphon.runner.runner import Runner
    from antiphon.session.base import SessionManager
    from antiphon.session.snapshots import SnapshotSessionManager
    from antiphon.snapshot.envelope import Snapshot
    from antiphon.state import AgentState
    from antiphon.tools.context import ToolContext
    from antiphon.tools.decorator import tool
else:
    _NAMES = {
        "Agent": "antiphon.agent.turns",
        "AgentResult": "antiphon.results",
        "AgentState": "antiphon.state",
        "AntiphonError": "antiphon.errors",
        "Artifact": "antiphon.artifacts",
        "BidiAgent": "antiphon.agent.live",
        "Interrupt": "antiphon.interrupts",
        "LocalAgent": "antiphon.local_agent",
        "NullConversationManager": "antiphon.agent.managers",
        "Runner": "antiphon.runner.runner",
        "SessionManager": "antiphon.session.base",
        "SlidingWindowConversationManager": "antiphon.agent.managers",
        "Snapshot": "antiphon.snapshot.envelope",
        "SnapshotException": "antiphon.errors",
        "SnapshotSessionManager": "antiphon.session.snapshots",
        "ToolContext": "antiphon.tools.context",
        "tool": "antiphon.tools.decorator",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "Agent",
    "AgentResult",
    "AgentState",
    "AntiphonError",
    "Artifact",
    "BidiAgent",
    "Interrupt",
    "LocalAgent",
    "NullConversationManager",
    "Runner",
    "SessionManager",
    "SlidingWindowConversationManager",
    "Snapshot",
    "SnapshotException",
    "SnapshotSessionManager",
    "ToolContext",
    "tool",
]

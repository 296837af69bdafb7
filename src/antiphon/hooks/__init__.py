"""Hooks: callbacks at named moments of an agent's life. Names are loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.hooks.events import (
        AfterInvocationEvent,
        AfterModelCallEvent,
        AfterToolCallEvent,
        AgentInitializedEvent,
        BeforeInvocationEvent,
        BeforeModelCallEvent,
        BeforeToolCallEvent,
        BidiAfterConnectionRestartEvent,
        BidiAgentStopEvent,
        BidiBargeInHookEvent,
        BidiBeforeConnectionRestartEvent,
        BidiResponseCompleteEvent,
        HookEvent,
        JournalChangedEvent,
        MessageAddedEvent,
        MessageUpdatedEvent,
        ModelStopResponse,
        SessionSaveFailedEvent,
    )
    from antiphon.hooks.registry import BaseHookEvent, HookCallback, HookOrder, HookProvider, HookRegistry
else:
    _NAMES = {
        "AfterInvocationEvent": "antiphon.hooks.events",
        "AfterModelCallEvent": "antiphon.hooks.events",
        "AfterToolCallEvent": "antiphon.hooks.events",
        "AgentInitializedEvent": "antiphon.hooks.events",
        "BaseHookEvent": "antiphon.hooks.registry",
        "BeforeInvocationEvent": "antiphon.hooks.events",
        "BeforeModelCallEvent": "antiphon.hooks.events",
        "BeforeToolCallEvent": "antiphon.hooks.events",
        "BidiAfterConnectionRestartEvent": "antiphon.hooks.events",
        "BidiAgentStopEvent": "antiphon.hooks.events",
        "BidiBargeInHookEvent": "antiphon.hooks.events",
        "BidiBeforeConnectionRestartEvent": "antiphon.hooks.events",
        "BidiResponseCompleteEvent": "antiphon.hooks.events",
        "HookCallback": "antiphon.hooks.registry",
        "HookEvent": "antiphon.hooks.events",
        "HookOrder": "antiphon.hooks.registry",
        "HookProvider": "antiphon.hooks.registry",
        "HookRegistry": "antiphon.hooks.registry",
        "JournalChangedEvent": "antiphon.hooks.events",
        "MessageAddedEvent": "antiphon.hooks.events",
        "MessageUpdatedEvent": "antiphon.hooks.events",
        "ModelStopResponse": "antiphon.hooks.events",
        "SessionSaveFailedEvent": "antiphon.hooks.events",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "AfterInvocationEvent",
    "AfterModelCallEvent",
    "AfterToolCallEvent",
    "AgentInitializedEvent",
    "BaseHookEvent",
    "BeforeInvocationEvent",
    "BeforeModelCallEvent",
    "BeforeToolCallEvent",
    "BidiAfterConnectionRestartEvent",
    "BidiAgentStopEvent",
    "BidiBargeInHookEvent",
    "BidiBeforeConnectionRestartEvent",
    "BidiResponseCompleteEvent",
    "HookCallback",
    "HookEvent",
    "HookOrder",
    "HookProvider",
    "HookRegistry",
    "JournalChangedEvent",
    "MessageAddedEvent",
    "MessageUpdatedEvent",
    "ModelStopResponse",
    "SessionSaveFailedEvent",
]

"""Tools: what a model may do. Names are loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.tools.base import AgentTool, ToolCall, ToolProgress, ToolProvider
    from antiphon.tools.context import ToolContext
    from antiphon.tools.decorator import FunctionTool, tool
    from antiphon.tools.registry import ToolRegistry
else:
    _NAMES = {
        "AgentTool": "antiphon.tools.base",
        "FunctionTool": "antiphon.tools.decorator",
        "ToolCall": "antiphon.tools.base",
        "ToolContext": "antiphon.tools.context",
        "ToolProgress": "antiphon.tools.base",
        "ToolProvider": "antiphon.tools.base",
        "ToolRegistry": "antiphon.tools.registry",
        "tool": "antiphon.tools.decorator",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "AgentTool",
    "FunctionTool",
    "ToolCall",
    "ToolContext",
    "ToolProgress",
    "ToolProvider",
    "ToolRegistry",
    "tool",
]

"""Loopback servers that speak the protocols of model providers, with their rules. Names are loaded on first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.servers.anthropic import AnthropicServer
    from antiphon.testing.servers.bedrock import BedrockServer
    from antiphon.testing.servers.gemini import GeminiServer
    from antiphon.testing.servers.gemini_live import GeminiLiveServer
    from antiphon.testing.servers.nova_sonic import NovaSonicServer
    from antiphon.testing.servers.openai_chat import OpenAIChatServer
    from antiphon.testing.servers.openai_realtime import OpenAIRealtimeServer
    from antiphon.testing.servers.openai_responses import OpenAIResponsesServer
else:
    _NAMES = {
        "AnthropicServer": "antiphon.testing.servers.anthropic",
        "BedrockServer": "antiphon.testing.servers.bedrock",
        "GeminiLiveServer": "antiphon.testing.servers.gemini_live",
        "GeminiServer": "antiphon.testing.servers.gemini",
        "NovaSonicServer": "antiphon.testing.servers.nova_sonic",
        "OpenAIChatServer": "antiphon.testing.servers.openai_chat",
        "OpenAIRealtimeServer": "antiphon.testing.servers.openai_realtime",
        "OpenAIResponsesServer": "antiphon.testing.servers.openai_responses",
    }

    def __getattr__(name: str) -> object:
        from antiphon.testing.servers.loading import load

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return load(_NAMES[name], name)


__all__ = [
    "AnthropicServer",
    "BedrockServer",
    "GeminiLiveServer",
    "GeminiServer",
    "NovaSonicServer",
    "OpenAIChatServer",
    "OpenAIRealtimeServer",
    "OpenAIResponsesServer",
]

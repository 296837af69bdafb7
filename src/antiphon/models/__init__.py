"""Models: what answers. Names are loaded on first use, so that no provider comes with another."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.models.anthropic.turns import AnthropicModel
    from antiphon.models.base import Model, ModelStopReason, StreamEvent, strip_metadata
    from antiphon.models.bedrock.converse import BedrockModel
    from antiphon.models.bedrock.nova_sonic import BedrockNovaSonicModel
    from antiphon.models.bidi import (
        AudioCapable,
        AudioConfig,
        AudioStreamConfig,
        BidiModel,
        ConnectionConfig,
        Restartable,
        Truncatable,
    )
    from antiphon.models.embedded.live import EmbeddedBidiModel
    from antiphon.models.embedded.turns import EmbeddedModel
    from antiphon.models.google.gemini import GeminiModel
    from antiphon.models.google.live import GoogleGeminiLiveModel
    from antiphon.models.llamacpp.chat import LlamaCppModel
    from antiphon.models.openai.chat import OpenAIModel
    from antiphon.models.openai.realtime import OpenAIRealtimeModel
    from antiphon.models.openai.responses import OpenAIResponsesModel
else:
    _NAMES = {
        "AnthropicModel": "antiphon.models.anthropic.turns",
        "AudioCapable": "antiphon.models.bidi",
        "AudioConfig": "antiphon.models.bidi",
        "AudioStreamConfig": "antiphon.models.bidi",
        "BedrockModel": "antiphon.models.bedrock.converse",
        "BedrockNovaSonicModel": "antiphon.models.bedrock.nova_sonic",
        "BidiModel": "antiphon.models.bidi",
        "ConnectionConfig": "antiphon.models.bidi",
        "EmbeddedBidiModel": "antiphon.models.embedded.live",
        "EmbeddedModel": "antiphon.models.embedded.turns",
        "GeminiModel": "antiphon.models.google.gemini",
        "GoogleGeminiLiveModel": "antiphon.models.google.live",
        "LlamaCppModel": "antiphon.models.llamacpp.chat",
        "Model": "antiphon.models.base",
        "ModelStopReason": "antiphon.models.base",
        "OpenAIModel": "antiphon.models.openai.chat",
        "OpenAIRealtimeModel": "antiphon.models.openai.realtime",
        "OpenAIResponsesModel": "antiphon.models.openai.responses",
        "Restartable": "antiphon.models.bidi",
        "StreamEvent": "antiphon.models.base",
        "Truncatable": "antiphon.models.bidi",
        "strip_metadata": "antiphon.models.base",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "AnthropicModel",
    "AudioCapable",
    "AudioConfig",
    "AudioStreamConfig",
    "BedrockModel",
    "BedrockNovaSonicModel",
    "BidiModel",
    "ConnectionConfig",
    "EmbeddedBidiModel",
    "EmbeddedModel",
    "GeminiModel",
    "GoogleGeminiLiveModel",
    "LlamaCppModel",
    "Model",
    "ModelStopReason",
    "OpenAIModel",
    "OpenAIRealtimeModel",
    "OpenAIResponsesModel",
    "Restartable",
    "StreamEvent",
    "Truncatable",
    "strip_metadata",
]

"""The models that answer in turns keep their contract, each against its provider's server on loopback."""

from __future__ import annotations

import pytest

from antiphon.models import AnthropicModel, GeminiModel, OpenAIModel, OpenAIResponsesModel
from antiphon.testing import ModelContract
from antiphon.testing.servers import AnthropicServer, GeminiServer, OpenAIChatServer, OpenAIResponsesServer


def _given(given: dict, server) -> dict:
    return {
        "api_key": given.pop("key", server.key),
        "base_url": given.pop("url", server.url),
        "model_id": given.pop("model_id", server.model_id),
        "environ": {},
        **given,
    }


class TestOpenAI(ModelContract):
    provider_name = "OpenAI chat completions"

    @pytest.fixture
    async def provider(self):
        async with OpenAIChatServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: OpenAIModel(**_given(given, provider))


class TestOpenAIResponses(ModelContract):
    provider_name = "OpenAI Responses"

    @pytest.fixture
    async def provider(self):
        async with OpenAIResponsesServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: OpenAIResponsesModel(**_given(given, provider))


class TestAnthropic(ModelContract):
    provider_name = "Anthropic"

    @pytest.fixture
    async def provider(self):
        async with AnthropicServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: AnthropicModel(**_given(given, provider), max_tokens=1000)


class TestGemini(ModelContract):
    provider_name = "Gemini"

    @pytest.fixture
    async def provider(self):
        async with GeminiServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: GeminiModel(**_given(given, provider))

"""OpenAI's live model keeps the contract of live models, on a server that keeps the provider's rules."""

from __future__ import annotations

import pytest

from antiphon.models import OpenAIRealtimeModel
from antiphon.testing import BidiModelContract
from antiphon.testing.servers import OpenAIRealtimeServer


def make(server: OpenAIRealtimeServer, **given) -> OpenAIRealtimeModel:
    renamed = {{"key": "api_key", "url": "base_url"}.get(name, name): value for name, value in given.items()}
    default = {"transcription_model_id": "gpt-transcribe", "api_key": server.key, "base_url": server.url}
    return OpenAIRealtimeModel(**{"model_id": server.model_id, **default, **renamed})


class TestOpenAIRealtime(BidiModelContract):
    provider_name = "OpenAI Realtime"
    lacks = {"warning": "the provider ends a session without a warning"}

    @pytest.fixture
    async def provider(self):
        async with OpenAIRealtimeServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: make(provider, **given)


class TestOpenAIRealtimeInFragments(TestOpenAIRealtime):
    """The same, with each message of the server in pieces, and sound of telephones."""

    provider_name = ""
    lacks = {**TestOpenAIRealtime.lacks, "exact_sound": "the telephone's sound is another than what was sent"}

    @pytest.fixture
    async def provider(self):
        async with OpenAIRealtimeServer(split=50) as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        audio = {"input": {"format": "pcmu", "sample_rate": 16000}, "output": {"format": "pcma", "sample_rate": 16000}}
        return lambda **given: make(provider, **{"audio": audio, **given})

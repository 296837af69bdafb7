"""Bedrock keeps the contract of a model that answers in turns, streamed and at once."""

import pytest

from antiphon.models.bedrock.converse import BedrockModel
from antiphon.testing import ModelContract
from antiphon.testing.servers.bedrock import BedrockServer


class TestBedrock(ModelContract):
    provider_name = "Bedrock"
    streaming = True

    @pytest.fixture
    async def provider(self):
        async with BedrockServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        def make(*, key=provider.key, url=provider.url, model_id=provider.model_id, **given):
            credentials = {"access_key_id": provider.key_id, "secret_access_key": key}
            return BedrockModel(
                model_id=model_id,
                endpoint_url=url,
                region_name="us-east-1",
                credentials=credentials,
                streaming=self.streaming,
                **given,
            )

        return make


class TestBedrockAtOnce(TestBedrock):
    streaming = False
    lacks = {"breaks": "an answer that comes at once is whole or refused", "holding": "it has no middle"}


class TestBedrockInSmallPieces(TestBedrock):
    @pytest.fixture
    async def provider(self):
        async with BedrockServer() as server:
            server.piece = 3
            yield server

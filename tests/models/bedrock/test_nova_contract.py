"""Nova Sonic keeps the contract of live models, on a server that keeps the provider's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antiphon.models import BedrockNovaSonicModel
from antiphon.testing import BidiModelContract
from antiphon.testing.servers import NovaSonicServer
from antiphon.testing.servers.nova_line import Manners


def make(server: NovaSonicServer, *, key=None, url=None, **given) -> BedrockNovaSonicModel:
    credentials = server.credentials if key is None else replace(server.credentials, secret_access_key=key)
    return BedrockNovaSonicModel(
        credentials=credentials, endpoint_url=url or server.url, region=server.region, environ={}, **given
    )


class TestNovaSonic(BidiModelContract):
    provider_name = "Nova Sonic"
    lacks = {
        "images": "the model hears and reads",
        "warning": "the provider ends a session without a warning",
    }

    @pytest.fixture
    async def provider(self):
        async with NovaSonicServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        return lambda **given: make(provider, **given)


class TestNovaSonicInFragments(TestNovaSonic):
    """The same, with every byte of the server's cut off from the next, and little room for the client's."""

    provider_name = ""

    @pytest.fixture
    async def provider(self):
        async with NovaSonicServer(manners=Manners(piece=97, window=1000)) as server:
            yield server


class TestNovaSonicMerged(TestNovaSonic):
    """The same, with several messages at once, and sound of telephones."""

    provider_name = ""

    @pytest.fixture
    async def provider(self):
        async with NovaSonicServer(manners=Manners(merge=5)) as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        audio = {"input": {"sample_rate": 8000}, "output": {"sample_rate": 8000}}
        return lambda **given: make(provider, **{"audio": audio, **given})

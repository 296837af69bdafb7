"""The providers of live models, each as a script that its model talks to."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

from antiphon.models import BedrockNovaSonicModel, GoogleGeminiLiveModel, OpenAIRealtimeModel
from antiphon.testing import VirtualClock
from antiphon.testing.servers import GeminiLiveServer, NovaSonicServer, OpenAIRealtimeServer
from tests.models.contract.script import Script


@asynccontextmanager
async def scripted(clock: VirtualClock):
    yield Script(clock)


@asynccontextmanager
async def openai(clock: VirtualClock):
    async with OpenAIRealtimeServer() as server:
        server.make = lambda *, key=server.key, **given: OpenAIRealtimeModel(
            server.model_id, transcription_model_id="gpt-transcribe", api_key=key, base_url=server.url, **given
        )
        yield server


@asynccontextmanager
async def gemini(clock: VirtualClock):
    async with GeminiLiveServer() as server:
        server.make = lambda *, key=server.key, **given: GoogleGeminiLiveModel(
            server.model_id, api_key=key, base_url=server.url, **given
        )
        yield server


@asynccontextmanager
async def nova(clock: VirtualClock):
    async with NovaSonicServer() as server:

        def make(*, key=None, **given):
            credentials = server.credentials if key is None else replace(server.credentials, secret_access_key=key)
            return BedrockNovaSonicModel(
                credentials=credentials, endpoint_url=server.url, region=server.region, environ={}, **given
            )

        server.make = make
        yield server


PROVIDERS = {"embedded": scripted, "OpenAI Realtime": openai, "Gemini Live": gemini, "Nova Sonic": nova}

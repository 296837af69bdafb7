"""The providers of live models, each as a script that its model talks to."""

from __future__ import annotations

from contextlib import asynccontextmanager

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
        server.make = lambda **given: OpenAIRealtimeModel(
            server.model_id, transcription_model_id="gpt-transcribe", api_key=server.key, base_url=server.url, **given
        )
        yield server


@asynccontextmanager
async def gemini(clock: VirtualClock):
    async with GeminiLiveServer() as server:
        server.make = lambda **given: GoogleGeminiLiveModel(
            server.model_id, api_key=server.key, base_url=server.url, **given
        )
        yield server


@asynccontextmanager
async def nova(clock: VirtualClock):
    async with NovaSonicServer() as server:
        server.make = lambda **given: BedrockNovaSonicModel(
            credentials=server.credentials, endpoint_url=server.url, region=server.region, environ={}, **given
        )
        yield server


PROVIDERS = {"embedded": scripted, "OpenAI Realtime": openai, "Gemini Live": gemini, "Nova Sonic": nova}

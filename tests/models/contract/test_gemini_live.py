"""Gemini Live keeps the contract of a live model, over its server on loopback."""

from __future__ import annotations

import pytest

from antiphon.models.google.live import GoogleGeminiLiveModel
from antiphon.testing import BidiModelContract
from antiphon.testing.servers.gemini_live import GeminiLiveServer
from antiphon.testing.servers.gemini_live_session import WireStyle


class TestGeminiLive(BidiModelContract):
    provider_name = "Gemini Live"

    @pytest.fixture
    def style(self) -> WireStyle:
        return WireStyle()

    @pytest.fixture
    async def provider(self, style):
        async with GeminiLiveServer(style=style) as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        def make(*, url=None, key=None, model_id=None, **given):
            return GoogleGeminiLiveModel(
                model_id or provider.model_id, api_key=key or provider.key, base_url=url or provider.url, **given
            )

        return make

    @pytest.fixture
    def talkative_model(self, make_model, clock):
        return make_model(clock=clock, non_blocking=True)


class TestGeminiLiveMerged(TestGeminiLive):
    provider_name = ""
    lacks = {"held_answers": "the words of an answer come after its sound here"}

    @pytest.fixture
    def style(self) -> WireStyle:
        return WireStyle(merged=True, snake=True, fragment=700, words_last=True)

"""Talks with the real services, where their keys are in the environment.

They cost money, and run only when `ANTIPHON_LIVE_TESTS` is set:

    ANTIPHON_LIVE_TESTS=1 OPENAI_API_KEY=... .venv/bin/python -m pytest tests/live
"""

from __future__ import annotations

import os

import pytest

from antiphon.models import (
    AnthropicModel,
    BedrockModel,
    BedrockNovaSonicModel,
    GeminiModel,
    GoogleGeminiLiveModel,
    OpenAIModel,
    OpenAIRealtimeModel,
    OpenAIResponsesModel,
)
from tests.live.behaviours import LIVE, TURNS


def named(*places: str) -> str:
    """The first of these variables that is set."""
    return next((os.environ[place] for place in places if os.environ.get(place)), "")


def aws(**given):
    """AWS finds its own keys; a wrong one is given by hand."""
    key = given.pop("key", None)
    return given if key is None else {**given, "credentials": {"access_key_id": "AKIA", "secret_access_key": key}}


def keyed(given, name):
    return {name if key == "key" else key: value for key, value in given.items()}


OPENAI = ("OPENAI_API_KEY",)
GOOGLE = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
AWS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")
TURN_MODELS = {
    "OpenAI": (OPENAI, lambda **given: OpenAIModel(**{"model_id": "gpt-5-mini", **keyed(given, "api_key")})),
    "Responses": (
        OPENAI,
        lambda **given: OpenAIResponsesModel(**{"model_id": "gpt-5-mini", **keyed(given, "api_key")}),
    ),
    "Anthropic": (
        ("ANTHROPIC_API_KEY",),
        lambda **given: AnthropicModel(**{"model_id": "claude-haiku-4-5", **keyed(given, "api_key")}),
    ),
    "Gemini": (GOOGLE, lambda **given: GeminiModel(**{"model_id": "gemini-2.5-flash", **keyed(given, "api_key")})),
    "Bedrock": (AWS, lambda **given: BedrockModel(**{"model_id": "amazon.nova-lite-v1:0", **aws(**given)})),
}
LIVE_MODELS = {
    "OpenAI Realtime": (
        OPENAI,
        lambda **given: OpenAIRealtimeModel(
            "gpt-realtime-2", transcription_model_id="gpt-transcribe", **keyed(given, "api_key")
        ),
    ),
    "Gemini Live": (GOOGLE, lambda **given: GoogleGeminiLiveModel("gemini-3.8-live", **keyed(given, "api_key"))),
    "Nova Sonic": (AWS, lambda **given: BedrockNovaSonicModel(**aws(**given))),
}


def make(models, name):
    """What makes a model of a service; skips without its key."""
    keys, made = models[name]
    if not os.environ.get("ANTIPHON_LIVE_TESTS"):
        pytest.skip("ANTIPHON_LIVE_TESTS is not set: the real services cost money")
    if not named(*keys):
        pytest.skip(f"none of {', '.join(keys)} is set")
    return made


@pytest.mark.timeout(180)
@pytest.mark.parametrize("behaviour", TURNS, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize("name", TURN_MODELS)
async def test_a_service_that_answers_in_turns(name, behaviour):
    await behaviour(make(TURN_MODELS, name))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("behaviour", LIVE, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize("name", LIVE_MODELS)
async def test_a_service_that_talks(name, behaviour):
    await behaviour(make(LIVE_MODELS, name))

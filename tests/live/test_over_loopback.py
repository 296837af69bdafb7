"""What real services are asked to do can be done: the same, against the servers on loopback."""

from __future__ import annotations

import pytest

from antiphon.models import AnthropicModel, OpenAIModel
from antiphon.testing import VirtualClock
from antiphon.testing.servers import AnthropicServer, OpenAIChatServer
from tests.live import behaviours
from tests.models.contract.providers import PROVIDERS

LONG = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."


@pytest.mark.parametrize("behaviour", behaviours.TURNS, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize(("model", "server"), [(OpenAIModel, OpenAIChatServer), (AnthropicModel, AnthropicServer)])
async def test_a_service_that_answers_in_turns(model, server, behaviour):
    async with server() as provider:
        if behaviour is behaviours.calls_a_tool_and_goes_on_in_another_object:
            provider.call_tools([("weather", {"city": "Paris"})])
        provider.say("Hello.")
        provider.say("Paris.")

        def make(*, key=provider.key, model_id=provider.model_id):
            return model(model_id=model_id, api_key=key, base_url=provider.url)

        await behaviour(make)


@pytest.mark.parametrize("behaviour", behaviours.LIVE, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != "embedded"])
async def test_a_service_that_talks(name, behaviour):
    async with PROVIDERS[name](VirtualClock()) as provider:
        if behaviour is behaviours.hears:
            provider.hear("What is the weather in Paris tomorrow?")
        if behaviour is behaviours.calls_a_tool_by_voice:
            provider.call_tools([("weather", {"city": "Paris"})])
        if behaviour is behaviours.is_interrupted:
            provider.say(LONG, seconds=4)
            provider.barge_in("stop")
        provider.say("Hello.", seconds=0.2)
        provider.say("Ann.", seconds=0.2)
        await behaviour(provider.make)

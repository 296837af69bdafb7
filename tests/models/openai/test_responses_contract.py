"""The contract of models, kept by one whose history is at the provider."""

import pytest

from antiphon import Agent, tool
from antiphon.content import text_of
from antiphon.models import OpenAIResponsesModel
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import ModelContract
from antiphon.testing.servers import OpenAIResponsesServer


class TestStateful(ModelContract):
    provider_name = "OpenAI Responses, stateful"

    @pytest.fixture
    async def provider(self):
        async with OpenAIResponsesServer() as server:
            yield server

    @pytest.fixture
    def make_model(self, provider):
        def make(**given):
            return OpenAIResponsesModel(
                model_id=given.pop("model_id", provider.model_id),
                api_key=given.pop("key", provider.key),
                base_url=given.pop("url", provider.url),
                stateful=True,
                **given,
            )

        return make

    async def test_an_agent_calls_its_tools_is_saved_and_goes_on_in_another_object(self, make_model, provider):
        """As in the suite, save that the history is at the provider and not in the agent."""

        @tool
        def weather(city: str) -> str:
            """Tells the weather."""
            return f"sunny in {city}"

        storage = InMemoryStorage()

        def agent():
            return Agent(make_model(), tools=[weather], session_manager=SnapshotSessionManager("talk", storage=storage))

        provider.call_tools([("weather", {"city": "Paris"})])
        provider.say("It is sunny.")
        await agent().invoke_async("What is the weather in Paris?")
        provider.say("As I said: sunny.")
        second = agent()
        answer = await second.invoke_async("Say it again.")
        assert text_of(answer.message) == "As I said: sunny."
        assert [text_of(message) for message in second.messages] == ["Say it again.", "As I said: sunny."]
        assert provider.bodies[-1]["previous_response_id"] == provider.stored[-2]

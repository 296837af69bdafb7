"""A conversation goes from one provider to the other: each server, with its rules, takes over what the other one said."""

from antiphon import Agent, tool
from antiphon.content import text_of
from antiphon.models import AnthropicModel, GeminiModel
from antiphon.testing.servers import AnthropicServer, GeminiServer


@tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"sunny in {city}"


def claude(server, **more):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    return AnthropicModel(
        model_id=server.model_id, api_key=server.key, base_url=server.url, environ={}, params=thinking, **more
    )


def gemini(server):
    return GeminiModel(model_id=server.model_id, api_key=server.key, base_url=server.url, environ={})


async def test_a_history_of_one_provider_is_taken_over_by_another_and_back():
    async with AnthropicServer() as one, GeminiServer() as two:
        messages = []
        for turn in range(2):
            for server, model in ((one, claude(one)), (two, gemini(two))):
                server.call_tools([("weather", {"city": "Rome"})], "Let me look.", reasoning=f"Thought {turn}.")
                server.say("Sunny.", reasoning="Well.")
                agent = Agent(model, tools=[weather], messages=messages)
                assert text_of((await agent.invoke_async("And Rome?")).message) == "Sunny."
                messages = agent.messages
        assert len(messages) == 16

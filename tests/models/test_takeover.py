"""A session goes from one provider to another and back: each server, with its rules, takes over what the others said."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import permutations

import pytest

from antiphon import Agent, SnapshotSessionManager, tool
from antiphon.agent.managers import NullConversationManager
from antiphon.content import text_of
from antiphon.models import AnthropicModel, BedrockModel, GeminiModel, OpenAIModel, OpenAIResponsesModel
from antiphon.storage import LocalFileStorage
from antiphon.testing.model_suite.support import PIXEL_PNG
from antiphon.testing.servers import (
    AnthropicServer,
    BedrockServer,
    GeminiServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
)
from antiphon.testing.servers.turns import Answer, Step


@tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"sunny in {city}"


@tool
def look() -> dict:
    """Look out of the window."""
    return {
        "status": "success",
        "content": [
            {"text": ""},
            {"json": {"sky": "☀️", "clouds": []}},
            {"image": {"format": "png", "source": {"bytes": PIXEL_PNG}}},
        ],
    }


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("it did not work")


@tool
def silent() -> str:
    """Say nothing."""
    return ""


TOOLS = [weather, look, fail, silent]
CALLS = [("weather", {"city": "Łódź"}), ("look", {}), ("fail", {}), ("silent", {})]
QUESTION = [
    {"text": "And Łódź? 🌦"},
    {"image": {"format": "png", "source": {"bytes": PIXEL_PNG}}},
    {"document": {"format": "txt", "name": "notes.of.today_1", "source": {"bytes": "grün".encode()}}},
]


def anthropic(server):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    return AnthropicModel(
        model_id=server.model_id, api_key=server.key, base_url=server.url, environ={}, params=thinking
    )


def anthropic_that_does_not_think(server):
    return AnthropicModel(model_id=server.model_id, api_key=server.key, base_url=server.url, environ={})


def gemini(server):
    return GeminiModel(model_id=server.model_id, api_key=server.key, base_url=server.url, environ={})


def openai(server):
    return OpenAIModel(model_id=server.model_id, api_key=server.key, base_url=server.url, environ={})


def responses(server):
    return OpenAIResponsesModel(model_id=server.model_id, api_key=server.key, base_url=server.url, environ={})


def bedrock(server):
    return BedrockModel(model_id=server.model_id, endpoint_url=server.url, environ=server.environ)


PROVIDERS = {
    "Anthropic": (AnthropicServer, anthropic),
    "Anthropic, without thinking": (AnthropicServer, anthropic_that_does_not_think),
    "Gemini": (GeminiServer, gemini),
    "OpenAI chat completions": (OpenAIChatServer, openai),
    "OpenAI Responses": (OpenAIResponsesServer, responses),
    "Bedrock, Claude": (BedrockServer, bedrock),
    "Bedrock, Nova": (lambda: BedrockServer(model_id="amazon.nova-loopback-v1:0"), bedrock),
    "Bedrock, Mistral": (lambda: BedrockServer(model_id="mistral.loopback-v1:0"), bedrock),
}

SIDE_LINES = ["Anthropic, without thinking", "Bedrock, Mistral"]
"""They are passed through on the way through all."""


async def turn(server, model, folder, number):
    """One process's turn: it finds the session, calls all tools, and answers."""
    if isinstance(server, AnthropicServer):
        server.queue(Step(answer=Answer(hidden_reasoning="redacted:1234", reasoning="Hm.", text="A word first.")))
    else:
        server.say("A word first.", reasoning="Hm.")
    server.call_tools(CALLS, "Let me look.", reasoning=f"Thought {number}: où?")
    server.say(f"Sunny, {number}.", reasoning="Well.")
    agent = Agent(
        model,
        tools=TOOLS,
        session_manager=SnapshotSessionManager("one", storage=LocalFileStorage(folder)),
        conversation_manager=NullConversationManager(),
    )
    before = len(agent.messages)
    assert text_of((await agent.invoke_async("Say a word.")).message) == "A word first."
    assert text_of((await agent.invoke_async(QUESTION)).message) == f"Sunny, {number}."
    assert len(agent.messages) == before + 6
    return agent


@pytest.mark.parametrize(
    ("first", "second"), list(permutations([name for name in PROVIDERS if name not in SIDE_LINES], 2))
)
async def test_a_saved_session_of_one_provider_is_taken_over_by_another_and_back(first, second, tmp_path):
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(PROVIDERS[name][0]()) for name in (first, second)}
        for number, name in enumerate((first, second, first, second)):
            agent = await turn(servers[name], PROVIDERS[name][1](servers[name]), tmp_path, number)
        assert len(agent.messages) == 24


async def test_a_session_goes_through_all_providers_twice(tmp_path):
    async with AsyncExitStack() as stack:
        made = {name: await stack.enter_async_context(make()) for name, (make, _) in PROVIDERS.items()}
        for number, name in enumerate([*PROVIDERS, *PROVIDERS]):
            agent = await turn(made[name], PROVIDERS[name][1](made[name]), tmp_path, number)
        assert len(agent.messages) == 6 * 2 * len(PROVIDERS)


@pytest.mark.parametrize("name", ["Anthropic", "Bedrock, Claude"])
async def test_thoughts_that_a_provider_cannot_read_are_left_out_in_a_second_attempt(name):
    def thought(signature):
        return {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature}}}

    history = [
        {"role": "user", "content": [{"text": "Hello."}]},
        {"role": "assistant", "content": [thought("c29tZWJvZHkgZWxzZSdz"), {"text": "Hello!"}]},
        {"role": "user", "content": [{"text": "Hm?"}]},
        {"role": "assistant", "content": [thought("c29tZWJvZHkgZWxzZSdz")]},
    ]
    async with PROVIDERS[name][0]() as server:
        server.say("Here I am.")
        agent = Agent(PROVIDERS[name][1](server), messages=history)
        assert text_of((await agent.invoke_async("Are you there?")).message) == "Here I am."
        first, second = (request.body for request in server.requests)
    assert b"Hm." in first
    assert b'"Hm."' not in second


async def test_half_a_turn_of_another_model_is_gone_on_with_by_claude_that_thinks_on_bedrock():
    history = [
        {"role": "user", "content": [{"text": "Hello."}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "one", "name": "silent", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "one", "status": "success", "content": []}}]},
    ]
    async with BedrockServer() as server:
        server.say("Now I do.", reasoning="Hm.")
        model = BedrockModel(
            endpoint_url=server.url,
            environ=server.environ,
            model_id=server.model_id,
            additional_request_fields={"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5},
        )
        told = [event async for event in model.stream(history)]
        sent = server.requests[-1].json()["additionalModelRequestFields"]
    assert told[-1]["metadata"]
    assert sent == {"thinking": {"type": "disabled"}, "top_k": 5}

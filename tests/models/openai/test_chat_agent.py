"""An agent that answers through `OpenAIModel`, with tools, and a session that is saved and restored."""

import asyncio
from concurrent.futures import Future
from threading import Thread

import pytest

from antiphon import Agent, tool
from antiphon.content import text_of
from antiphon.errors import MaxTokensReachedException
from antiphon.models import EmbeddedModel, OpenAIModel
from antiphon.session import SnapshotSessionManager
from antiphon.storage import LocalFileStorage
from antiphon.testing import VirtualClock
from antiphon.testing.servers import OpenAIChatServer

PNG = b"\x89PNG"


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"sunny in {city}"


@tool
def photo() -> dict:
    """Takes a photo."""
    return {"status": "success", "content": [{"text": "here"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]}


@pytest.fixture
async def server():
    async with OpenAIChatServer() as server:
        yield server


def agent_of(server, folder=None, **more):
    manager = None if folder is None else SnapshotSessionManager("talk", storage=LocalFileStorage(folder))
    model = OpenAIModel(model_id=server.model_id, api_key=server.key, base_url=server.url, clock=VirtualClock())
    return Agent(model, tools=[weather, photo], session_manager=manager, clock=VirtualClock(), **more)


async def test_tools_run_and_the_session_goes_on_in_another_object(server, tmp_path):
    server.call_tools(
        [("weather", {"city": "Rome"}), ("weather", {"city": "Atlantis"}), ("photo", {})],
        text="Let me see.",
        mixed=True,
    )
    server.say("Sunny in Rome; there is no Atlantis.", reasoning="Two answers and a picture.", usage=(50, 10))
    result = await agent_of(server, tmp_path, system_prompt="Be brief.").invoke_async("weather?")
    assert str(result).strip() == "Sunny in Rome; there is no Atlantis."
    assert result.usage.input_tokens > 50
    tools = [message for message in server.bodies[1]["messages"] if message["role"] == "tool"]
    assert [message["content"] for message in tools] == ["sunny in Rome", "Error: no such city", "here"]
    assert server.bodies[1]["messages"][-1]["content"][1]["type"] == "image_url"

    server.say("It still is.")
    again = agent_of(server, tmp_path)
    assert str(await again.invoke_async("and now?")).strip() == "It still is."
    system, *sent = server.bodies[2]["messages"]
    assert system["content"] == "Be brief."
    assert [message["role"] for message in sent] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "user",
        "assistant",
        "user",
    ]
    assert sent[-2]["content"] == "Sunny in Rome; there is no Atlantis."


async def test_a_session_begun_on_another_provider_goes_on_here(server, tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))
    first = Agent(EmbeddedModel(), tools=[weather], session_manager=manager)
    await first.invoke_async("weather in Rome")
    server.say("Go out.")
    assert str(await agent_of(server, tmp_path).invoke_async("so?")).strip() == "Go out."


async def test_arguments_that_are_no_json_are_answered_and_the_model_tries_again(server):
    server.call_tool("weather", '{"city": "Ro')
    server.call_tool("weather", {"city": "Rome"})
    server.say("Sunny.")
    assert str(await agent_of(server).invoke_async("weather?")).strip() == "Sunny."
    [refused] = [message for message in server.bodies[1]["messages"] if message["role"] == "tool"]
    assert refused["content"].startswith("Error: the input is not JSON")


async def test_a_crowd_that_outlasts_the_model_is_waited_out_by_the_agent(server):
    server.throttle()
    server.again(3)
    server.say("at last")
    assert str(await agent_of(server).invoke_async("hi")).strip() == "at last"
    assert len(server.requests) == 5


async def test_a_conversation_that_is_too_long_is_made_shorter(server):
    agent = agent_of(server)
    server.say("one")
    server.say("two")
    server.context_tokens = 60
    await agent.invoke_async("word " * 30)
    assert str(await agent.invoke_async("word " * 30)).strip() == "two"
    assert len(server.requests) > 2


async def test_an_answer_that_was_cut_is_in_the_history(server):
    agent = agent_of(server)
    server.stop("max_tokens", "This is as far as")
    with pytest.raises(MaxTokensReachedException):
        await agent.invoke_async("hi")
    server.say("I can get.")
    await agent.invoke_async("go on")
    assert [text_of(message) for message in agent.messages] == ["hi", "This is as far as", "go on", "I can get."]


async def test_a_line_that_breaks_leaves_a_history_that_goes_on(server):
    agent = agent_of(server)
    server.cut(2)
    with pytest.raises(Exception, match="broke off"):
        await agent.invoke_async("hi")
    server.say("hello")
    assert str(await agent.invoke_async("hi again")).strip() == "hello"


def test_an_agent_without_a_loop_asks_again_and_again():
    serving: Future[OpenAIChatServer] = Future()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve():
        async with OpenAIChatServer() as server:
            server.say("one")
            server.say("two")
            serving.set_result(server)
            await over.wait()

    thread = Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        agent = agent_of(serving.result(10))
        assert [str(agent("hi")).strip(), str(agent("hi")).strip()] == ["one", "two"]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()

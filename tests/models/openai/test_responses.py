"""`OpenAIResponsesModel` over its server on loopback, alone and under an agent, with the history here and there."""

import logging

import pytest

from antiphon import Agent, tool
from antiphon.errors import (
    ContextWindowOverflowException,
    InvalidInputError,
    MaxTokensReachedException,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelHistoryLostError,
    ModelNotFoundError,
    ModelProtocolError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
)
from antiphon.models import OpenAIResponsesModel
from antiphon.models.retrying import Retries
from antiphon.session import SnapshotSessionManager
from antiphon.storage import LocalFileStorage
from antiphon.testing import VirtualClock
from antiphon.testing.servers import OpenAIResponsesServer

HI = [{"role": "user", "content": [{"text": "hi"}]}]
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
    async with OpenAIResponsesServer() as server:
        yield server


def model_of(server, **more):
    given = {"model_id": server.model_id, "api_key": server.key, "base_url": server.url, "clock": VirtualClock()}
    return OpenAIResponsesModel(**{**given, **more})


def agent_of(server, folder=None, **more):
    manager = None if folder is None else SnapshotSessionManager("talk", storage=LocalFileStorage(folder))
    return Agent(model_of(server, **more), tools=[weather, photo], session_manager=manager, clock=VirtualClock())


async def said(agent, prompt):
    return str(await agent.invoke_async(prompt)).strip()


async def answer(model, state=None, messages=None):
    text = ""
    async for event in model.stream(messages or HI, model_state=state):
        text += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
    return text


async def failure(model, kind=ModelError):
    with pytest.raises(kind) as caught:
        await answer(model)
    return caught.value


def kinds(body):
    return [item["type"] for item in body["input"]]


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("size", [1, 3, 100_000])
@pytest.mark.parametrize("strange", [False, True])
async def test_slicing_the_wire_changes_nothing(stateful, size, strange):
    async def told(**how):
        async with OpenAIResponsesServer(**how) as server:
            server.call_tools(
                [("look", {"at": "Zürich 世界"}), ("hear", {})], text="Grüß Gott", reasoning="hm", mixed=True
            )
            return [event async for event in model_of(server, stateful=stateful).stream(HI, model_state={})]

    assert await told(slice_bytes=size, strange=strange) == await told()


async def test_without_state_nothing_is_stored_and_the_whole_history_goes_out(server, tmp_path):
    server.call_tools(
        [("weather", {"city": "Rome"}), ("photo", {})], text="Let me see.", reasoning="One, two.", mixed=True
    )
    server.say("Sunny.", reasoning="So that is it.", usage=(50, 10))
    agent = agent_of(server, tmp_path)
    assert await said(agent, "weather?") == "Sunny."
    assert agent.model_state == {}
    assert server.stored == []
    assert [body["store"] for body in server.bodies] == [False, False]
    assert kinds(server.bodies[1]) == [
        *("message", "reasoning", "message", "function_call", "function_call", "function_call_output"),
        "function_call_output",
    ]
    assert server.bodies[1]["input"][-1]["output"][1]["type"] == "input_image"

    server.say("Still.")
    again = agent_of(server, tmp_path)
    assert await said(again, "and now?") == "Still."
    assert kinds(server.bodies[2])[7:] == ["reasoning", "message", "message"]


async def test_with_state_only_what_is_new_goes_out(server, tmp_path):
    server.say("hello")
    server.call_tools([("weather", {"city": "Rome"}), ("weather", {"city": "Atlantis"})], reasoning="One, two.")
    server.say("Sunny.")
    agent = agent_of(server, tmp_path, stateful=True)
    await agent.invoke_async("hi")
    assert await said(agent, "weather?") == "Sunny."
    assert [kinds(body) for body in server.bodies] == [["message"], ["message"], ["function_call_output"] * 2]
    assert server.bodies[2]["input"][1]["output"] == "Error: no such city"
    assert agent.model_state == {"response_id": server.stored[-1], "open_calls": []}


async def test_with_state_the_session_goes_on_in_another_object(server, tmp_path):
    server.say("hello")
    await agent_of(server, tmp_path, stateful=True).invoke_async("hi")
    server.say("welcome back")
    again = agent_of(server, tmp_path, stateful=True)
    assert await said(again, "it is me") == "welcome back"
    assert kinds(server.bodies[1]) == ["message"]
    assert server.bodies[1]["previous_response_id"] == server.stored[0]


async def test_the_system_prompt_and_the_tools_go_out_each_time(server):
    agent = Agent(model_of(server, stateful=True), tools=[weather], system_prompt="Be brief.")
    for word in ("one", "two"):
        server.say(word)
        await agent.invoke_async("hi")
    assert [body["instructions"] for body in server.bodies] == ["Be brief."] * 2
    assert [len(body["tools"]) for body in server.bodies] == [1, 1]


async def test_going_back_to_an_older_snapshot_goes_on_from_its_response(server):
    agent = agent_of(server, stateful=True)
    server.say("one")
    await agent.invoke_async("a")
    earlier = agent.take_snapshot(preset="session")
    server.say("two")
    await agent.invoke_async("b")
    agent.load_snapshot(earlier)
    server.say("three")
    await agent.invoke_async("c")
    assert server.bodies[2]["previous_response_id"] == server.stored[0]
    assert kinds(server.bodies[2]) == ["message"]


async def test_a_history_that_the_provider_lost_is_an_error_that_says_what_to_do(server):
    agent = agent_of(server, stateful=True)
    server.say("hello")
    await agent.invoke_async("hi")
    [lost] = server.stored
    server.forget()
    with pytest.raises(ModelHistoryLostError, match=r"clear agent\.model_state") as caught:
        await agent.invoke_async("it is me")
    assert caught.value.response_id == lost
    assert caught.value.status == "DATA_LOSS"
    assert len(server.requests) == 2
    agent.model_state.clear()
    server.say("who is there?")
    assert await said(agent, "me") == "who is there?"


async def test_a_history_that_is_kept_is_sent_anew_when_the_provider_lost_it(server, tmp_path, caplog):
    agent = agent_of(server, tmp_path, stateful=True, keep_history=True)
    server.call_tool("photo", {})
    server.say("a picture", reasoning="hm")
    await agent.invoke_async("look")
    server.forget()
    server.say("as I said")
    again = agent_of(server, tmp_path, stateful=True, keep_history=True)
    with caplog.at_level(logging.WARNING):
        assert await said(again, "what was it?") == "as I said"
    assert "the whole history is sent to it anew" in caplog.text
    assert kinds(server.bodies[-1]) == ["message", "function_call", "function_call_output", "message", "message"]
    assert "previous_response_id" not in server.bodies[-1]
    server.say("and so on")
    await again.invoke_async("go on")
    assert kinds(server.bodies[-1]) == ["message"]


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (404, "Previous response with id 'resp_x' not found.", "previous_response_not_found"),
        (400, "Invalid `previous_response_id`.", "invalid_request_error"),
    ],
)
async def test_a_lost_history_is_known_by_all_the_words_it_is_told_in(server, status, message, code):
    server.refuse(status, message, code=code)
    with pytest.raises(ModelHistoryLostError):
        await answer(model_of(server, stateful=True), {"response_id": "resp_x"})


async def test_the_state_changes_when_the_answer_is_whole_and_not_before(server):
    model, state = model_of(server, stateful=True), {}
    server.say("one")
    await answer(model, state)
    before = dict(state)
    server.cut(2)
    with pytest.raises(ModelConnectionError):
        await answer(model, state)
    assert state == before
    server.say("two")
    events = model.stream(HI, model_state=state)
    async for event in events:
        if "messageStop" in event:
            break
    assert state == before
    await events.aclose()


async def test_a_call_that_was_never_run_is_answered_before_anything_else(server):
    agent = agent_of(server, stateful=True)
    server.call_tool("weather", {"city": "Rome"}, "one")
    server.stop_last("max_tokens")
    with pytest.raises(MaxTokensReachedException):
        await agent.invoke_async("weather?")
    assert agent.model_state["open_calls"] == ["one"]
    server.say("Let us leave that.")
    assert await said(agent, "never mind") == "Let us leave that."
    assert kinds(server.bodies[-1]) == ["function_call_output", "message"]


async def test_a_model_without_encrypted_reasoning_is_asked_for_it_once(server):
    server.encrypts = False
    model = model_of(server)
    server.say("one")
    server.say("two")
    assert await answer(model) + await answer(model) == "onetwo"
    assert ["include" in body for body in server.bodies] == [True, False, False]


async def test_reasoning_that_the_provider_cannot_read_is_left_out(server, caplog):
    server.say("hello", reasoning="hm")
    agent = agent_of(server)
    await agent.invoke_async("hi")
    server.key = "sk-another-organisation"
    server.say("welcome")
    other = Agent(model_of(server), messages=agent.messages)
    assert await said(other, "again") == "welcome"
    assert kinds(server.bodies[-1]) == ["message", "message", "message"]
    assert "gets it without" in caplog.text


async def test_what_the_model_sets_itself_cannot_be_set(server):
    with pytest.raises(InvalidInputError, match=r"params\['store'\] cannot be set"):
        model_of(server, params={"store": True})
    assert model_of(server).get_config() == {"model_id": server.model_id, "params": {}}
    assert server.key not in repr(model_of(server, stateful=True))


async def test_errors_are_told_apart(server):
    steps = {
        ModelThrottledException: lambda: (server.throttle(), server.again(2)),
        ContextWindowOverflowException: server.overflow,
        ModelQuotaError: server.quota,
        ModelProtocolError: server.malformed,
        ModelConnectionError: server.cut,
        ModelRequestError: lambda: server.refuse(400, "No.", code="invalid_value"),
    }
    for kind, step in steps.items():
        step()
        assert type(await failure(model_of(server))) is kind
        assert server.steps_left == 0
    await failure(model_of(server, api_key="sk-wrong"), ModelCredentialsError)
    await failure(model_of(server, model_id="gpt-unheard-of"), ModelNotFoundError)


async def test_a_crowd_that_is_told_within_the_stream_is_waited_out(server):
    clock = VirtualClock()
    server.break_down("slow down", code="rate_limit_exceeded", after_chunks=-4)
    server.say("here")
    assert await answer(model_of(server, clock=clock, retries=Retries(chance=lambda: 1.0))) == "here"
    assert clock.now() == 0.5


async def test_the_model_may_decline(server):
    server.decline("I will not.")
    result = await agent_of(server, stateful=True).invoke_async("do it")
    assert (str(result).strip(), result.stop_reason) == ("I will not.", "content_filtered")

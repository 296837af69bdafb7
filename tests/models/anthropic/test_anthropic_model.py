"""Claude over loopback: what it says, what fails, and what is done about it."""

import asyncio
import ssl
from contextlib import aclosing

import pytest

from antiphon import Agent, tool
from antiphon.content import text_of
from antiphon.errors import (
    ContextWindowOverflowException,
    InvalidInputError,
    InvalidTypeError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelProtocolError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
)
from antiphon.models import AnthropicModel
from antiphon.models.retrying import Retries
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.memory import InMemoryStorage
from antiphon.testing import VirtualClock
from antiphon.testing.servers import AnthropicServer
from antiphon.testing.servers.certificates import LoopbackAuthority

HELLO = [{"role": "user", "content": [{"text": "hello"}]}]
SPEC = {
    "name": "weather",
    "description": "Tells the weather",
    "inputSchema": {"json": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture
async def server():
    async with AnthropicServer() as server:
        yield server


def model_for(server, **more):
    arguments = {"model_id": server.model_id, "api_key": server.key, "base_url": server.url, "clock": VirtualClock()}
    return AnthropicModel(**{**arguments, "environ": {}, **more})


async def events_of(model, messages=HELLO, tools=None, system=None):
    return [event async for event in model.stream(messages, tools, system)]


def text_in(events):
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    return "".join(delta.get("text", "") for delta in deltas)


def reason_of(events):
    return next(event["messageStop"]["stopReason"] for event in events if "messageStop" in event)


async def test_an_answer_is_streamed(server):
    server.say("Good morning to you.")
    events = await events_of(model_for(server), system="Be kind.")
    assert text_in(events) == "Good morning to you."
    assert reason_of(events) == "end_turn"
    [request] = server.requests
    assert request.json()["system"] == "Be kind."
    assert request.json()["stream"] is True


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_the_stream_may_be_cut_into_pieces_anywhere(size):
    async with AnthropicServer(piece_bytes=size) as server:
        server.say("Grüße, 世界 🎧!", reasoning="ähm")
        assert text_in(await events_of(model_for(server))) == "Grüße, 世界 🎧!"


async def test_unknown_events_blocks_and_fields_do_no_harm(server):
    server.unknown_events("Hello.")
    assert text_in(await events_of(model_for(server))) == "Hello."


async def test_parameters_go_out_as_they_are(server):
    server.say("Hi.")
    model = model_for(server, max_tokens=77, params={"stop_sequences": ["END"], "metadata": {"user_id": "u"}})
    await events_of(model)
    body = server.requests[0].json()
    assert body["max_tokens"] == 77
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "u"}


async def test_a_paused_turn_goes_on_by_itself(server):
    server.pause("First, ")
    server.pause("then, ")
    server.say("done.")
    events = await events_of(model_for(server))
    assert text_in(events) == "First, then, done."
    assert [next(iter(event)) for event in events].count("messageStart") == 1
    assert [next(iter(event)) for event in events].count("messageStop") == 1
    said = server.requests[2].json()["messages"][-1]
    assert [block["text"] for block in said["content"]] == ["First, ", "then, "]


async def test_a_turn_that_never_stops_pausing_is_given_up(server):
    for _ in range(16):
        server.pause("Wait.")
    with pytest.raises(ModelError, match="paused 16 times"):
        await events_of(model_for(server))


async def test_a_refusal_is_content_that_was_filtered(server):
    server.refuse_to_answer()
    assert reason_of(await events_of(model_for(server))) == "content_filtered"


async def test_throttling_is_waited_out_for_as_long_as_the_provider_says(server):
    clock = VirtualClock()
    server.throttle(retry_after=9)
    server.say("Here.")
    assert text_in(await events_of(model_for(server, clock=clock))) == "Here."
    assert clock.now() == 9
    assert len(server.requests) == 2


async def test_an_overloaded_service_is_asked_again_with_growing_waits(server):
    clock = VirtualClock()
    server.overload()
    server.refuse(500, "api_error", "Internal server error")
    server.say("Here.")
    assert text_in(await events_of(model_for(server, clock=clock, retries=Retries(chance=lambda: 1.0)))) == "Here."
    assert clock.now() == 0.5 + 1.0


async def test_an_error_before_any_content_is_tried_again(server):
    server.fail_at_once()
    server.say("Here.")
    assert text_in(await events_of(model_for(server))) == "Here."


async def test_an_error_in_mid_stream_is_raised(server):
    server.fail_midway()
    seen = []
    with pytest.raises(ModelThrottledException, match="overloaded_error: Overloaded"):
        async for event in model_for(server).stream(HELLO):
            seen.append(event)
    assert text_in(seen)
    assert len(server.requests) == 1


async def test_throttling_without_end_is_raised_with_the_wait(server):
    for _ in range(3):
        server.throttle(retry_after=2)
    with pytest.raises(ModelThrottledException, match="rate_limit_error") as caught:
        await events_of(model_for(server))
    assert caught.value.retry_after_s == 2
    assert len(server.requests) == 3


async def test_retries_can_be_switched_off(server):
    server.throttle()
    with pytest.raises(ModelThrottledException):
        await events_of(model_for(server, retries=Retries(max_attempts=1)))
    assert len(server.requests) == 1


async def test_a_conversation_that_is_too_long_is_told_apart(server):
    server.overflow()
    with pytest.raises(ContextWindowOverflowException, match="prompt is too long"):
        await events_of(model_for(server))
    assert len(server.requests) == 1


async def test_the_server_counts_by_itself_that_a_conversation_is_too_long():
    async with AnthropicServer(context_tokens=20) as server:
        with pytest.raises(ContextWindowOverflowException, match=r"prompt is too long: .* tokens > 20 maximum"):
            await events_of(model_for(server), [{"role": "user", "content": [{"text": "hello " * 50}]}])


async def test_a_wrong_key_is_an_error_of_credentials_and_not_told(server):
    with pytest.raises(ModelCredentialsError, match="invalid x-api-key") as caught:
        await events_of(model_for(server, api_key="sk-ant-secret"))
    assert "sk-ant-secret" not in f"{caught.value}{caught.value.__cause__}"


async def test_an_unknown_model_is_named(server):
    with pytest.raises(ModelNotFoundError, match="claude-9"):
        await events_of(model_for(server, model_id="claude-9"))


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (400, "invalid_request_error", "max_tokens: too many", ModelRequestError),
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", ModelQuotaError),
        (400, "invalid_request_error", "You have reached your specified API usage limits.", ModelQuotaError),
        (402, "billing_error", "Payment failed", ModelQuotaError),
        (403, "permission_error", "Your API key does not have permission.", ModelCredentialsError),
        (413, "request_too_large", "Request exceeds the maximum size", ContextWindowOverflowException),
        (429, "rate_limit_error", "You have reached the monthly spend limit of your tier.", ModelQuotaError),
    ],
)
async def test_each_refusal_is_an_error_of_its_own_and_not_tried_again(server, status, kind, message, error):
    server.refuse(status, kind, message)
    with pytest.raises(error, match=message) as caught:
        await events_of(model_for(server))
    assert type(caught.value) is error
    assert "req_loopback" in str(caught.value)
    assert len(server.requests) == 1


async def test_a_line_that_breaks_is_an_error_of_the_connection(server):
    server.cut(after_chunks=5)
    with pytest.raises(ModelConnectionError) as caught:
        await events_of(model_for(server))
    assert server.url in str(caught.value)


async def test_a_line_that_breaks_before_any_content_is_tried_again(server):
    server.cut(after_chunks=1)
    server.say("Here.")
    assert text_in(await events_of(model_for(server))) == "Here."


async def test_an_event_that_is_no_json_is_an_error_of_the_protocol(server):
    server.malformed()
    with pytest.raises(ModelProtocolError, match="no JSON"):
        await events_of(model_for(server))


async def test_a_closed_port_is_an_error_of_the_connection():
    async with AnthropicServer() as server:
        model = model_for(server)
    with pytest.raises(ModelConnectionError, match="cannot be reached"):
        await events_of(model)


async def test_a_certificate_that_is_not_trusted_is_not_tried_again():
    authority = LoopbackAuthority()
    async with AnthropicServer(tls=authority.server_context()) as server:
        clock = VirtualClock()
        with pytest.raises(ModelConnectionError, match="cannot be trusted"):
            await events_of(model_for(server, clock=clock, tls=ssl.create_default_context()))
        assert clock.now() == 0
        server.say("Hi.")
        assert text_in(await events_of(model_for(server, tls=authority.client_context()))) == "Hi."


async def test_who_stops_listening_ends_the_request(server):
    gate = server.hold()
    async with aclosing(model_for(server).stream(HELLO)) as events:
        async for event in events:
            if "contentBlockDelta" in event:
                break
    server.say("Next.")
    assert text_in(await events_of(model_for(server))) == "Next."
    gate.release()


async def test_a_task_that_waits_for_an_answer_can_be_cancelled(server):
    gate = server.hold()
    task = asyncio.ensure_future(events_of(model_for(server)))
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_two_answers_at_once_do_not_mix(server):
    model = model_for(server)
    gate = server.hold("one one one one")
    first = asyncio.ensure_future(events_of(model))
    await gate.reached()
    server.say("two")
    assert text_in(await events_of(model)) == "two"
    gate.release()
    assert text_in(await first) == "one one one one"


async def test_a_key_may_be_asked_for_each_time(server):
    keys = iter(["wrong", server.key])

    async def key():
        return next(keys)

    model = model_for(server, api_key=key)
    with pytest.raises(ModelCredentialsError):
        await events_of(model)
    server.say("Hi.")
    assert text_in(await events_of(model)) == "Hi."


async def test_key_and_address_come_from_the_environment(server):
    server.say("Hi.")
    environ = {"ANTHROPIC_API_KEY": server.key, "ANTHROPIC_BASE_URL": server.url}
    assert text_in(await events_of(AnthropicModel(model_id=server.model_id, environ=environ))) == "Hi."


async def test_a_client_of_the_sdk_is_used_as_it_is_and_left_open(server):
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key=server.key, base_url=server.url) as client:
        model = AnthropicModel(model_id=server.model_id, client=client, clock=VirtualClock())
        for text in ("One.", "Two."):
            server.say(text)
            assert text_in(await events_of(model)) == text
        assert not client.is_closed()
        server.throttle()
        server.say("Three.")
        assert text_in(await events_of(model)) == "Three."


def test_without_a_key_the_error_says_where_one_may_stand():
    with pytest.raises(ModelCredentialsError, match="ANTHROPIC_API_KEY"):
        AnthropicModel(model_id="claude", environ={})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"model_id": " "}, InvalidInputError),
        ({"max_tokens": 0}, InvalidInputError),
        ({"params": {"messages": []}}, InvalidInputError),
        ({"params": 3}, InvalidTypeError),
        ({"base_url": "example.org"}, InvalidInputError),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments, error):
    given = {"model_id": "claude", "api_key": "k", "environ": {}}
    with pytest.raises(error):
        AnthropicModel(**{**given, **arguments})


def test_no_secret_is_in_the_configuration_or_the_repr():
    model = AnthropicModel(model_id="claude", api_key="sk-secret", environ={}, base_url="https://me:pass@example.org")
    assert model.get_config() == {"model_id": "claude", "max_tokens": 8192, "params": {}}
    assert "secret" not in repr(model)
    assert "pass" not in repr(model)


def test_a_change_of_the_configuration_is_checked_and_counts_from_then_on():
    model = AnthropicModel(model_id="claude", api_key="k", environ={})
    model.update_config(model_id="other", max_tokens=5)
    assert model.get_config()["model_id"] == "other"
    with pytest.raises(InvalidInputError, match="temperature"):
        model.update_config(temperature=1)
    model.get_config()["params"]["a"] = 1
    assert model.get_config()["params"] == {}


async def test_an_agent_talks_calls_tools_and_goes_on_after_its_process_has_ended(server):
    @tool
    def weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        return f"sunny in {city}"

    storage = InMemoryStorage()
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

    def agent():
        manager = SnapshotSessionManager(session_id="talk", storage=storage)
        return Agent(model_for(server, params=thinking), tools=[weather], session_manager=manager)

    server.call_tools(
        [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})], "Let me look.", reasoning="Two cities."
    )
    server.say("Sunny in both.", reasoning="That was easy.")
    result = await agent().invoke_async("What is the weather in Paris and Rome?")
    assert text_of(result.message) == "Sunny in both."
    server.think_hidden("As I said: sunny.")
    server.say("Still sunny.")
    restored = agent()
    assert text_of((await restored.invoke_async("Say it again.")).message) == "As I said: sunny."
    assert text_of((await restored.invoke_async("And again.")).message) == "Still sunny."
    turns = server.requests[-1].json()["messages"]
    kinds = [[block["type"] for block in turn["content"]] for turn in turns]
    assert kinds == [
        ["text"],
        ["thinking", "text", "tool_use", "tool_use"],
        ["tool_result", "tool_result"],
        ["thinking", "text"],
        ["text"],
        ["redacted_thinking", "text"],
        ["text"],
    ]
    assert restored.messages[-1]["role"] == "assistant"


async def test_an_agent_shortens_a_conversation_that_is_too_long(server):
    model = model_for(server)
    agent = Agent(model)
    for text in ("One.", "Two.", "Three."):
        server.say(text)
        await agent.invoke_async("Go on.")
    server.overflow()
    server.say("Short.")
    assert text_of((await agent.invoke_async("And now?")).message) == "Short."
    assert len(server.requests[-1].json()["messages"]) < len(server.requests[-2].json()["messages"])

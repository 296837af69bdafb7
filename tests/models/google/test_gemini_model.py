"""Gemini over loopback: what it says, what fails, and what is done about it."""

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
from antiphon.models import GeminiModel
from antiphon.models.retrying import Retries
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.memory import InMemoryStorage
from antiphon.testing import VirtualClock
from antiphon.testing.servers import GeminiServer
from antiphon.testing.servers.certificates import LoopbackAuthority

HELLO = [{"role": "user", "content": [{"text": "hello"}]}]


@pytest.fixture
async def server():
    async with GeminiServer() as server:
        yield server


def model_for(server, **more):
    arguments = {"model_id": server.model_id, "api_key": server.key, "base_url": server.url, "clock": VirtualClock()}
    return GeminiModel(**{**arguments, "environ": {}, **more})


async def events_of(model, messages=HELLO, tools=None, system=None):
    return [event async for event in model.stream(messages, tools, system)]


def text_in(events):
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    return "".join(delta.get("text", "") for delta in deltas)


def reason_of(events):
    return next(event["messageStop"]["stopReason"] for event in events if "messageStop" in event)


async def test_an_answer_is_streamed(server):
    server.say("Good morning to you.")
    events = await events_of(model_for(server, params={"max_output_tokens": 50}), system="Be kind.")
    assert text_in(events) == "Good morning to you."
    assert reason_of(events) == "end_turn"
    body = server.requests[0].json()
    assert body["systemInstruction"]["parts"] == [{"text": "Be kind."}]
    assert body["generationConfig"] == {"maxOutputTokens": 50}


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_the_stream_may_be_cut_into_pieces_anywhere(size):
    async with GeminiServer(piece_bytes=size) as server:
        server.say("Grüße, 世界 🎧!", reasoning="ähm")
        assert text_in(await events_of(model_for(server))) == "Grüße, 世界 🎧!"


async def test_unknown_chunks_parts_and_fields_do_no_harm(server):
    server.unknown_events("Hello.")
    assert text_in(await events_of(model_for(server))) == "Hello."


@pytest.mark.filterwarnings("ignore:BRAND_NEW is not a valid FinishReason")
async def test_an_unknown_end_is_an_end(server):
    server.stop("BRAND_NEW", text="Hello.")
    events = await events_of(model_for(server))
    assert text_in(events) == "Hello."
    assert reason_of(events) == "end_turn"


async def test_a_prompt_that_is_blocked_is_content_that_was_filtered(server):
    server.block()
    assert reason_of(await events_of(model_for(server))) == "content_filtered"


async def test_throttling_is_waited_out_for_as_long_as_the_provider_says(server):
    clock = VirtualClock()
    server.throttle(retry_after=9)
    server.say("Here.")
    assert text_in(await events_of(model_for(server, clock=clock))) == "Here."
    assert clock.now() == 9
    assert len(server.requests) == 2


async def test_an_overloaded_model_is_asked_again_with_growing_waits(server):
    clock = VirtualClock()
    server.overload()
    server.refuse(500, "INTERNAL", "An internal error has occurred.")
    server.say("Here.")
    assert text_in(await events_of(model_for(server, clock=clock, retries=Retries(chance=lambda: 1.0)))) == "Here."
    assert clock.now() == 0.5 + 1.0


async def test_a_call_that_the_model_could_not_make_is_tried_again(server):
    server.stop("MALFORMED_FUNCTION_CALL", text=None)
    server.say("Here.")
    assert text_in(await events_of(model_for(server))) == "Here."


async def test_an_error_before_any_content_is_tried_again(server):
    server.cut(after_chunks=0)
    server.say("Here.")
    assert text_in(await events_of(model_for(server))) == "Here."


async def test_an_error_in_mid_stream_is_raised(server):
    server.fail_midway()
    seen = []
    with pytest.raises(ModelError, match="500 INTERNAL"):
        async for event in model_for(server).stream(HELLO):
            seen.append(event)
    assert text_in(seen)
    assert len(server.requests) == 1


async def test_throttling_without_end_is_raised_with_the_wait(server):
    for _ in range(3):
        server.throttle(retry_after=2)
    with pytest.raises(ModelThrottledException, match="RESOURCE_EXHAUSTED") as caught:
        await events_of(model_for(server))
    assert caught.value.retry_after_s == 2
    assert len(server.requests) == 3


async def test_retries_can_be_switched_off(server):
    server.throttle()
    with pytest.raises(ModelThrottledException):
        await events_of(model_for(server, retries=Retries(max_attempts=1)))
    assert len(server.requests) == 1


async def test_a_quota_of_a_day_that_is_used_up_is_not_waited_for(server):
    server.use_up()
    with pytest.raises(ModelQuotaError, match="exceeded your current quota"):
        await events_of(model_for(server))
    assert len(server.requests) == 1


async def test_a_quota_of_a_minute_is_waited_for(server):
    clock = VirtualClock()
    server.use_up("GenerateRequestsPerMinutePerProjectPerModel")
    server.say("Here.")
    assert text_in(await events_of(model_for(server, clock=clock))) == "Here."
    assert clock.now() == 37


async def test_a_conversation_that_is_too_long_is_told_apart(server):
    server.overflow()
    with pytest.raises(ContextWindowOverflowException, match="exceeds the maximum number of tokens"):
        await events_of(model_for(server))
    assert len(server.requests) == 1


async def test_a_wrong_key_is_an_error_of_credentials_and_not_told(server):
    with pytest.raises(ModelCredentialsError, match="API key not valid") as caught:
        await events_of(model_for(server, api_key="AIza-secret"))
    assert "AIza-secret" not in f"{caught.value}{caught.value.__cause__}"


async def test_an_unknown_model_is_named(server):
    with pytest.raises(ModelNotFoundError, match="gemini-9"):
        await events_of(model_for(server, model_id="gemini-9"))


@pytest.mark.parametrize(
    ("code", "status", "message", "error"),
    [
        (400, "INVALID_ARGUMENT", "Unable to process input image.", ModelRequestError),
        (400, "FAILED_PRECONDITION", "Please enable billing on your project.", ModelQuotaError),
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", ModelRequestError),
        (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", ModelCredentialsError),
        (403, "PERMISSION_DENIED", "Permission denied.", ModelCredentialsError),
        (429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", ModelQuotaError),
    ],
)
async def test_each_refusal_is_an_error_of_its_own_and_not_tried_again(server, code, status, message, error):
    server.refuse(code, status, message)
    with pytest.raises(error, match=message) as caught:
        await events_of(model_for(server))
    assert type(caught.value) is error
    assert len(server.requests) == 1


async def test_a_line_that_breaks_is_an_error_of_the_connection(server):
    server.cut(after_chunks=2)
    with pytest.raises(ModelConnectionError):
        await events_of(model_for(server))


async def test_a_chunk_that_is_no_json_is_an_error_of_the_protocol(server):
    server.malformed()
    with pytest.raises(ModelProtocolError, match="cannot be read"):
        await events_of(model_for(server))


async def test_a_closed_port_is_an_error_of_the_connection():
    async with GeminiServer() as server:
        model = model_for(server)
    with pytest.raises(ModelConnectionError, match="cannot be reached"):
        await events_of(model)


async def test_a_certificate_that_is_not_trusted_is_not_tried_again():
    authority = LoopbackAuthority()
    async with GeminiServer(tls=authority.server_context()) as server:
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
    model = model_for(server, api_key=lambda: next(keys))
    with pytest.raises(ModelCredentialsError):
        await events_of(model)
    server.say("Hi.")
    assert text_in(await events_of(model)) == "Hi."


async def test_key_and_address_come_from_the_environment(server):
    server.say("Hi.")
    environ = {"GOOGLE_API_KEY": server.key, "GOOGLE_GEMINI_BASE_URL": server.url}
    assert text_in(await events_of(GeminiModel(model_id=server.model_id, environ=environ))) == "Hi."


async def test_a_client_of_the_sdk_is_used_as_it_is_and_left_open(server):
    from google.genai import Client

    client = Client(api_key=server.key, vertexai=False, http_options={"base_url": server.url})
    async with client.aio:
        model = GeminiModel(model_id=server.model_id, client=client)
        for text in ("One.", "Two."):
            server.say(text)
            assert text_in(await events_of(model)) == text
    client.close()


def test_without_a_key_the_error_says_where_one_may_stand():
    with pytest.raises(ModelCredentialsError, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        GeminiModel(model_id="gemini", environ={})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"model_id": " "}, InvalidInputError),
        ({"params": {"system_instruction": "x"}}, InvalidInputError),
        ({"params": 3}, InvalidTypeError),
        ({"base_url": "example.org"}, InvalidInputError),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments, error):
    given = {"model_id": "gemini", "api_key": "k", "environ": {}}
    with pytest.raises(error):
        GeminiModel(**{**given, **arguments})


def test_no_secret_is_in_the_configuration_or_the_repr():
    model = GeminiModel(model_id="gemini", api_key="AIza-secret", environ={}, base_url="https://me:pass@example.org")
    assert model.get_config() == {"model_id": "gemini", "params": {}}
    assert "secret" not in repr(model)
    assert "pass" not in repr(model)


async def test_a_parameter_that_the_sdk_does_not_know_is_an_error_of_the_request(server):
    with pytest.raises(ModelRequestError, match="no_such_parameter"):
        await events_of(model_for(server, params={"no_such_parameter": 1}))


async def test_an_agent_talks_calls_tools_and_goes_on_after_its_process_has_ended(server):
    @tool
    def weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        return f"sunny in {city}"

    storage = InMemoryStorage()

    def agent():
        manager = SnapshotSessionManager(session_id="talk", storage=storage)
        return Agent(model_for(server), tools=[weather], session_manager=manager)

    calls = [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]
    server.call_tools(calls, "Let me look.", reasoning="Two cities.")
    server.call_tools([("weather", {"city": "Oslo"})])
    server.say("Sunny everywhere.", reasoning="That was easy.")
    result = await agent().invoke_async("What is the weather in Paris, Rome and Oslo?")
    assert text_of(result.message) == "Sunny everywhere."
    server.say("As I said: sunny.")
    restored = agent()
    assert text_of((await restored.invoke_async("Say it again.")).message) == "As I said: sunny."
    contents = server.requests[-1].json()["contents"]
    kinds = [[sorted(part) for part in content["parts"]] for content in contents]
    assert kinds == [
        [["text"]],
        [["text"], ["functionCall", "thoughtSignature"], ["functionCall"]],
        [["functionResponse"], ["functionResponse"]],
        [["functionCall", "thoughtSignature"]],
        [["functionResponse"]],
        [["text"], ["text", "thoughtSignature"]],
        [["text"]],
    ]


async def test_signatures_that_gemini_cannot_read_are_left_out(server, caplog):
    call = {"toolUseId": "a", "name": "t", "input": {}, "reasoningSignature": b"of another project"}
    history = [
        *HELLO,
        {"role": "assistant", "content": [{"text": "Well."}, {"toolUse": call}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "status": "success", "content": []}}]},
    ]
    server.say("Here.")
    assert text_in(await events_of(model_for(server), history)) == "Here."
    assert len(server.requests) == 2
    assert "without them" in caplog.text


async def test_an_agent_shortens_a_conversation_that_is_too_long(server):
    agent = Agent(model_for(server))
    for text in ("One.", "Two.", "Three."):
        server.say(text)
        await agent.invoke_async("Go on.")
    server.overflow()
    server.say("Short.")
    assert text_of((await agent.invoke_async("And now?")).message) == "Short."
    assert len(server.requests[-1].json()["contents"]) < len(server.requests[-2].json()["contents"])

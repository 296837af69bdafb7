"""The loopback server keeps the Gemini API's rules: Google's own SDK gets Google's own errors."""

from base64 import b64decode

import pytest
from google.genai import Client
from google.genai.errors import APIError, ClientError, ServerError, UnknownApiResponseError

from antiphon.testing.servers import GeminiServer
from antiphon.testing.servers.gemini_rules import sign

HELLO = {"role": "user", "parts": [{"text": "hello"}]}
HI = {"role": "model", "parts": [{"text": "hi"}]}
CALL = {
    "role": "model",
    "parts": [{"function_call": {"name": "t", "args": {}}, "thought_signature": b64decode(sign(1))}],
}
RESULT = {"role": "user", "parts": [{"function_response": {"name": "t", "response": {"output": 1}}}]}
UNSIGNED = {"role": "model", "parts": [{"function_call": {"name": "t", "args": {}}}]}


def client_of(server, key=None):
    return Client(api_key=key or server.key, vertexai=False, http_options={"base_url": server.url})


@pytest.fixture
async def server():
    async with GeminiServer() as server:
        yield server


@pytest.fixture
async def client(server):
    client = client_of(server)
    async with client.aio:
        yield client.aio
    client.close()


async def texts_of(client, model_id):
    stream = await client.models.generate_content_stream(model=model_id, contents="hello")
    return [chunk.text async for chunk in stream if chunk.text]


async def test_the_sdk_reads_a_whole_answer(server, client):
    server.say("Hello there.", reasoning="A greeting.", usage={"candidatesTokenCount": 42})
    answer = await client.models.generate_content(model=server.model_id, contents="hello")
    assert answer.text == "Hello there."
    assert answer.usage_metadata.candidates_token_count == 42
    assert answer.candidates[0].finish_reason == "STOP"


async def test_the_sdk_reads_a_streamed_answer(server, client):
    server.call_tools([("t", {"a": [1, "ä"]}), ("u", {}, "id-of-u")], "Look:")
    calls, text = [], ""
    async for chunk in await client.models.generate_content_stream(model=server.model_id, contents="hello"):
        calls += chunk.function_calls or []
        text += "".join(part.text or "" for part in chunk.candidates[0].content.parts)
    assert text == "Look:"
    assert [(call.name, call.args) for call in calls] == [("t", {"a": [1, "ä"]}), ("u", {})]
    assert calls[1].id == "id-of-u"


async def test_the_sdk_reads_what_it_does_not_know(server, client):
    server.unknown_events("Hello.")
    assert "".join(await texts_of(client, server.model_id)) == "Hello."


@pytest.mark.parametrize("size", [1, 3, 64])
async def test_the_sdk_reads_a_stream_in_pieces(size):
    async with GeminiServer(piece_bytes=size) as server:
        client = client_of(server)
        async with client.aio:
            server.say("Grüße 🎧")
            assert "".join(await texts_of(client.aio, server.model_id)) == "Grüße 🎧"
        client.close()


async def test_a_wrong_key_is_refused(server):
    client = client_of(server, "wrong")
    async with client.aio:
        with pytest.raises(ClientError, match="API key not valid") as caught:
            await client.aio.models.generate_content(model=server.model_id, contents="hello")
    client.close()
    assert caught.value.code == 400
    reasons = [detail.get("reason") for detail in caught.value.details["error"]["details"]]
    assert "API_KEY_INVALID" in reasons


async def test_an_unknown_model_is_refused(server, client):
    with pytest.raises(ClientError, match="models/gemini-9 is not found for API version") as caught:
        await client.models.generate_content(model="gemini-9", contents="hello")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


async def test_another_path_is_not_found(server, client):
    with pytest.raises(ClientError, match="not found"):
        await client.models.list()


def wrong(message, *contents, **config):
    return pytest.param(list(contents) or [HELLO], config, message, id=message[:60])


@pytest.mark.parametrize(
    ("contents", "config", "message"),
    [
        wrong("Please use a valid role: user, model.", {"role": "assistant", "parts": [{"text": "hi"}]}),
        wrong("contents[1].parts: contents.parts must not be empty", HELLO, {"role": "model", "parts": []}, HELLO),
        wrong("required oneof field 'data' must have one initialized field", {"role": "user", "parts": [{}]}),
        wrong("function call turn comes immediately after a user turn", CALL, RESULT),
        wrong("function call turn comes immediately after a user turn or", HELLO, HI, CALL, RESULT),
        wrong("function response turn comes immediately after a function call turn", HELLO, HI, RESULT),
        wrong("number of function response parts is equal to", HELLO, CALL, {**RESULT, "parts": RESULT["parts"] * 2}),
        wrong("the number of function response parts is equal to", HELLO, CALL, HELLO),
        wrong("is equal to the number of function call parts", HELLO, CALL),
        wrong("missing a thought_signature in functionCall parts", HELLO, UNSIGNED, RESULT),
        wrong(
            "Corrupted thought signature",
            HELLO,
            {"role": "model", "parts": [{"text": "hi", "thought_signature": b"made up"}]},
            HELLO,
        ),
        wrong("The input token count (2097153) exceeds", {"role": "user", "parts": [{"text": "12345678" * 1_048_576}]}),
        wrong(
            "Duplicate function declaration found: t", tools=[{"function_declarations": [{"name": "t"}, {"name": "t"}]}]
        ),
        wrong("Invalid function name", tools=[{"function_declarations": [{"name": "a b"}]}]),
        wrong(
            "must describe an object",
            tools=[{"function_declarations": [{"name": "t", "parameters_json_schema": {"type": "string"}}]}],
        ),
        wrong(
            'Unknown name "oddity": Cannot find field.',
            http_options={"extra_body": {"oddity": 1}},
        ),
    ],
)
async def test_what_the_api_refuses_is_refused_in_its_words(server, client, contents, config, message):
    server.say("never said")
    with pytest.raises(ClientError) as caught:
        await client.models.generate_content(model=server.model_id, contents=contents, config=config or None)
    assert message in caught.value.message
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    assert server.steps_left == 1


async def test_no_contents_are_refused(server, client):
    with pytest.raises(ClientError, match="contents is not specified"):
        await client.models.generate_content(
            model=server.model_id, contents="x", config={"http_options": {"extra_body": {"contents": []}}}
        )


async def test_calls_of_earlier_turns_need_no_signature(server, client):
    server.say("Hi.")
    contents = [HELLO, UNSIGNED, RESULT, HI, HELLO]
    assert (await client.models.generate_content(model=server.model_id, contents=contents)).text == "Hi."


async def test_older_models_want_no_signatures():
    async with GeminiServer(signatures=False) as server:
        client = client_of(server)
        async with client.aio:
            server.say("Hi.")
            answer = await client.aio.models.generate_content(model=server.model_id, contents=[HELLO, UNSIGNED, RESULT])
            assert answer.text == "Hi."
        client.close()


async def test_each_failure_on_demand_is_the_sdks_error_for_it(server, client):
    server.overload()
    with pytest.raises(ServerError, match="overloaded"):
        await texts_of(client, server.model_id)
    server.throttle(retry_after=3)
    with pytest.raises(ClientError) as caught:
        await texts_of(client, server.model_id)
    assert caught.value.details["error"]["details"][0]["retryDelay"] == "3s"
    server.fail_midway()
    with pytest.raises(APIError, match="internal error"):
        await texts_of(client, server.model_id)
    server.malformed()
    with pytest.raises(UnknownApiResponseError):
        await texts_of(client, server.model_id)


async def test_a_prompt_that_is_blocked_has_no_candidates(server, client):
    server.block("SAFETY")
    answer = await client.models.generate_content(model=server.model_id, contents="hello")
    assert answer.candidates is None
    assert answer.prompt_feedback.block_reason == "SAFETY"


async def test_a_script_that_is_used_up_says_so(server, client):
    with pytest.raises(ClientError, match="used up"):
        await client.models.generate_content(model=server.model_id, contents="hello")

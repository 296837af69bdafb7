"""Chat completions on loopback, asked by the vendor's own client: a wrong request gets the provider's error."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI

from antiphon.testing.servers import OpenAIChatServer

PIXEL = "data:image/png;base64,iVBORw0KGgo="
USER = {"role": "user", "content": "hi"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "one", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "two", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ],
}
ONE, TWO = ({"role": "tool", "tool_call_id": key, "content": "seen"} for key in ("one", "two"))
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
async def server():
    async with OpenAIChatServer() as server:
        yield server


@pytest.fixture
async def client(server):
    async with AsyncOpenAI(api_key=server.key, base_url=server.url, max_retries=0) as client:
        yield client


async def refused(client, server, kind=openai.BadRequestError, **request):
    """The error that a wrong request gets; the script is not used up by it."""
    server.say("never heard")
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(**{"model": server.model_id, "messages": [USER], **request})
    assert server.steps_left == 1
    assert isinstance(caught.value.body, dict)
    assert set(caught.value.body) == {"message", "type", "param", "code"}
    return caught.value


async def streamed(client, server, **request):
    stream = await client.chat.completions.create(
        model=server.model_id, messages=[USER], stream=True, stream_options={"include_usage": True}, **request
    )
    return [chunk async for chunk in stream]


async def test_the_vendors_client_hears_a_stream(client, server):
    server.say("Good day to you.", usage=(7, 3))
    chunks = await streamed(client, server)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Good day to you."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 10


async def test_the_vendors_client_puts_mixed_calls_together(client, server):
    server.call_tools([("look", {"at": "sea"}), ("look", {"at": "sky", "long": True}, "mine")], text="So.", mixed=True)
    async with client.chat.completions.stream(model=server.model_id, messages=[USER], tools=[TOOL]) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == "So."
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("look", '{"at": "sea"}'),
        ("look", '{"at": "sky", "long": true}'),
    ]
    assert message.tool_calls[1].id == "mine"
    assert final.choices[0].finish_reason == "tool_calls"


async def test_the_vendors_client_hears_a_whole_answer(client, server):
    server.say("Good day.", reasoning="Be kind.")
    answer = await client.chat.completions.create(model=server.model_id, messages=[USER])
    assert answer.choices[0].message.content == "Good day."
    assert answer.choices[0].message.model_extra["reasoning_content"] == "Be kind."
    assert [model.id async for model in await client.models.list()] == [server.model_id]


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("strange", [False, True])
async def test_slices_and_strange_events_do_not_disturb_the_vendors_client(size, strange):
    async with OpenAIChatServer(slice_bytes=size, strange=strange) as server:
        server.say("Grüß Gott, 世界!")
        async with AsyncOpenAI(api_key=server.key, base_url=server.url) as client:
            chunks = await streamed(client, server)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Grüß Gott, 世界!"


async def test_a_wrong_key_is_refused(server):
    async with AsyncOpenAI(api_key="sk-wrong", base_url=server.url, max_retries=0) as client:
        error = await refused(client, server, openai.AuthenticationError)
    assert error.code == "invalid_api_key"


async def test_a_request_without_a_key_is_refused(client, server):
    error = await refused(client, server, openai.AuthenticationError, extra_headers={"Authorization": openai.Omit()})
    assert "didn't provide an API key" in error.message


async def test_an_unknown_model_is_refused(client, server):
    error = await refused(client, server, openai.NotFoundError, model="gpt-unheard-of")
    assert error.code == "model_not_found"


async def test_an_unknown_parameter_is_refused(client, server):
    error = await refused(client, server, extra_body={"loudness": 11})
    assert "Unrecognized request argument supplied: loudness" in error.message


async def test_a_body_that_is_no_json_is_refused(client, server):
    with pytest.raises(openai.BadRequestError, match="could not parse the JSON body"):
        await client.post("/chat/completions", cast_to=object, content=b"{")


async def test_an_unknown_address_is_refused(client, server):
    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        await client.post("/chatter", cast_to=object, body={})


@pytest.mark.parametrize(
    ("messages", "code", "words"),
    [
        ([], "empty_array", "Invalid 'messages': empty array"),
        ([{"role": "robot", "content": "hi"}], "invalid_value", "Invalid value: 'robot'"),
        ([{"role": "assistant", "content": None}], None, "expected a string, got null"),
        ([USER, ONE], None, "must be a response to a preceeding message with 'tool_calls'"),
        ([USER, CALLS, ONE, USER], None, "did not have response messages: two"),
        ([USER, CALLS, ONE], None, "did not have response messages: two"),
        ([USER, CALLS, ONE, TWO, ONE], None, "'tool_call_id' of 'one' not found"),
        ([USER, CALLS, ONE, {**TWO, "tool_call_id": "three"}], None, "'tool_call_id' of 'three' not found"),
        ([USER, CALLS, {"role": "tool", "content": "seen"}], "missing_required_parameter", "tool_call_id"),
        ([USER, {**CALLS, "tool_calls": []}], "empty_array", "tool_calls"),
        (
            [USER, CALLS, {**ONE, "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}, TWO],
            "invalid_value",
            "Image URLs are only allowed for messages with role 'user'",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AA=="}}]}],
            "invalid_image_format",
            "unsupported image",
        ),
        ([{"role": "user", "content": [{"type": "smell"}]}], "invalid_value", "Invalid value: 'smell'"),
        ([{"role": "user", "content": 7}], "invalid_type", "messages[0].content"),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "missing_required_parameter", "file"),
    ],
)
async def test_a_history_that_breaks_a_rule_is_refused(client, server, messages, code, words):
    error = await refused(client, server, messages=messages)
    assert error.code == code
    assert words in error.message


async def test_an_id_that_is_too_long_is_refused(client, server):
    call = {"id": "c" * 41, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c" * 41, "content": ""}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    error = await refused(client, server, messages=messages)
    assert error.code == "string_above_max_length"
    assert "maximum length 40, but got a string with length 41" in error.message


async def test_arguments_that_are_no_text_are_refused(client, server):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": {}}}
    error = await refused(client, server, messages=[USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert error.code == "invalid_type"


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ({"name": "look around"}, "invalid_value"),
        ({"name": "l" * 65}, "string_above_max_length"),
        ({}, "missing_required_parameter"),
        ({"name": "look", "parameters": {"type": "string"}}, "invalid_function_parameters"),
        ({"name": "look", "parameters": {"type": "object"}}, "invalid_function_parameters"),
        (
            {"name": "look", "parameters": {"type": "object", "properties": {}, "not": {}}},
            "invalid_function_parameters",
        ),
        (
            {"name": "look", "parameters": {"type": "object", "properties": {"at": {"anyOf": [{"type": "array"}]}}}},
            "invalid_function_parameters",
        ),
    ],
)
async def test_a_tool_that_breaks_a_rule_is_refused(client, server, function, code):
    error = await refused(client, server, tools=[{"type": "function", "function": function}])
    assert error.code == code


async def test_no_tools_at_all_must_not_be_listed(client, server):
    assert (await refused(client, server, tools=[])).code == "empty_array"


async def test_usage_can_only_be_asked_for_of_a_stream(client, server):
    error = await refused(client, server, stream_options={"include_usage": True})
    assert error.param == "stream_options"


async def test_a_temperature_beyond_two_is_refused(client, server):
    assert (await refused(client, server, temperature=3)).code == "decimal_above_max_value"


async def test_a_conversation_that_is_too_long_is_refused(client, server):
    server.context_tokens = 50
    error = await refused(client, server, messages=[{"role": "user", "content": "word " * 100}])
    assert error.code == "context_length_exceeded"
    assert "maximum context length is 50 tokens" in error.message


async def test_the_script_refuses_as_the_provider_does(client, server):
    for step in (lambda: server.throttle(7), server.quota, server.overflow, server.fail):
        step()
    caught = []
    for _ in range(4):
        with pytest.raises(openai.APIStatusError) as error:
            await client.chat.completions.create(model=server.model_id, messages=[USER])
        caught.append((error.value.status_code, error.value.code, error.value.response.headers.get("retry-after")))
    assert caught == [
        (429, "rate_limit_exceeded", "7"),
        (429, "insufficient_quota", None),
        (400, "context_length_exceeded", None),
        (500, None, None),
    ]


async def test_beyond_the_script_a_request_is_refused(client, server):
    with pytest.raises(openai.BadRequestError, match="script of this server is over"):
        await client.chat.completions.create(model=server.model_id, messages=[USER])


@pytest.mark.parametrize("after", [-1, 0, 1, 4, 5, 6])
async def test_the_connection_breaks_where_it_is_told_to(client, server, after):
    server.cut(after)
    heard = []
    with pytest.raises(openai.APIConnectionError):
        async for chunk in await client.chat.completions.create(model=server.model_id, messages=[USER], stream=True):
            heard.append(chunk)
    pieces = [chunk for chunk in heard if chunk.choices and chunk.choices[0].delta.content]
    assert len(pieces) == min(max(after, 0), 5)


async def test_an_answer_waits_until_it_is_released(client, server):
    hold = server.hold(2)
    heard = []

    async def listen():
        async for chunk in await client.chat.completions.create(model=server.model_id, messages=[USER], stream=True):
            heard.append(chunk.choices[0].delta.content)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        await hold.reached()
        assert not task.done()
        hold.release()
    assert "".join(filter(None, heard)) == "one two three four five"


async def test_what_is_no_json_breaks_the_vendors_client(client, server):
    server.malformed()
    with pytest.raises(ValueError):
        await streamed(client, server)


async def test_a_failure_in_the_stream_reaches_the_vendors_client(client, server):
    server.break_down("Out of order.")
    with pytest.raises(openai.APIError, match="Out of order") as caught:
        await streamed(client, server)
    assert caught.value.code == "server_error"

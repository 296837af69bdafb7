"""The loopback server keeps Anthropic's rules: Anthropic's own SDK gets Anthropic's own errors."""

import anthropic
import pytest
from anthropic import AsyncAnthropic

from antiphon.testing.servers import AnthropicServer
from antiphon.testing.servers.anthropic_rules import sign

HELLO = [{"role": "user", "content": "hello"}]
USE = {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
TEXT = {"type": "text", "text": "hi"}


@pytest.fixture
async def server():
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
async def client(server):
    async with AsyncAnthropic(api_key=server.key, base_url=server.url, max_retries=0) as client:
        yield client


def asked(server, messages=HELLO, **more):
    return {"model": server.model_id, "max_tokens": 100, "messages": messages, **more}


async def test_the_sdk_reads_a_whole_answer(server, client):
    server.say("Hello there.", reasoning="A greeting.", usage={"output_tokens": 42})
    message = await client.messages.create(**asked(server))
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text == "Hello there."
    assert message.content[0].signature == sign("A greeting.")
    assert message.usage.output_tokens == 42
    assert message.stop_reason == "end_turn"


async def test_the_sdk_puts_a_streamed_answer_together(server, client):
    server.call_tools([("t", {"a": [1, "ä"]}), ("t", {}, "toolu_x")], "Look:")
    async with client.messages.stream(**asked(server)) as stream:
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert message.content[1].input == {"a": [1, "ä"]}
    assert message.content[2].id == "toolu_x"
    assert message.stop_reason == "tool_use"


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_the_sdk_reads_what_it_does_not_know(server, client):
    server.unknown_events("Hello.")
    texts = []
    async for event in await client.messages.create(**asked(server), stream=True):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            texts.append(event.delta.text)
    assert "".join(texts) == "Hello."


@pytest.mark.parametrize("size", [1, 3, 64])
async def test_the_sdk_reads_a_stream_in_pieces(size):
    async with (
        AnthropicServer(piece_bytes=size) as server,
        AsyncAnthropic(api_key=server.key, base_url=server.url, max_retries=0) as client,
    ):
        server.say("Grüße 🎧")
        async with client.messages.stream(**asked(server)) as stream:
            assert await stream.get_final_text() == "Grüße 🎧"


async def test_the_sdk_retries_as_the_server_says():
    async with (
        AnthropicServer() as server,
        AsyncAnthropic(api_key=server.key, base_url=server.url, max_retries=1) as client,
    ):
        server.throttle(retry_after=0.001)
        server.say("Hi.")
        assert (await client.messages.create(**asked(server))).content[0].text == "Hi."


async def test_a_key_may_also_stand_in_a_header_of_its_own(server):
    headers = {"x-api-key": server.key, "authorization": anthropic.Omit()}
    async with AsyncAnthropic(api_key="k", base_url=server.url, default_headers=headers, max_retries=0) as client:
        server.say("Hi.")
        assert (await client.messages.create(**asked(server))).content[0].text == "Hi."


async def test_a_wrong_key_is_refused(server):
    async with AsyncAnthropic(api_key="wrong", base_url=server.url, max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key") as caught:
            await client.messages.create(**asked(server))
        assert caught.value.type == "authentication_error"


async def test_an_unknown_version_is_refused(server):
    async with AsyncAnthropic(
        api_key=server.key, base_url=server.url, default_headers={"anthropic-version": "1999-01-01"}, max_retries=0
    ) as client:
        with pytest.raises(anthropic.BadRequestError, match=r"anthropic-version: .* is not a valid version"):
            await client.messages.create(**asked(server))


async def test_an_unknown_model_is_refused(server, client):
    with pytest.raises(anthropic.NotFoundError, match="model: claude-9") as caught:
        await client.messages.create(**{**asked(server), "model": "claude-9"})
    assert caught.value.type == "not_found_error"


async def test_another_path_is_not_found(server, client):
    with pytest.raises(anthropic.NotFoundError, match="Not found"):
        await client.models.list()


def wrong(message, messages=HELLO, **more):
    return pytest.param(messages, more, message, id=message[:60])


@pytest.mark.parametrize(
    ("messages", "more", "message"),
    [
        wrong("at least one message is required", []),
        wrong('first message must use the "user" role', [{"role": "assistant", "content": "hi"}, *HELLO]),
        wrong("messages.0.role: Input should be", [{"role": "system", "content": "hi"}]),
        wrong("all messages must have non-empty content", [{"role": "user", "content": []}]),
        wrong("text content blocks must be non-empty", [{"role": "user", "content": ""}]),
        wrong("must contain non-whitespace text", [{"role": "user", "content": " \n"}]),
        wrong(
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
            [*HELLO, {"role": "assistant", "content": [USE]}, *HELLO],
        ),
        wrong(
            "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
            [*HELLO, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [TEXT, RESULT]}],
        ),
        wrong("unexpected `tool_use_id` found in `tool_result` blocks", [{"role": "user", "content": [RESULT]}]),
        wrong(
            "each tool_use must have a single result",
            [*HELLO, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT, RESULT]}],
        ),
        wrong(
            "`tool_use` ids must be unique",
            [*HELLO, {"role": "assistant", "content": [USE, USE]}, {"role": "user", "content": [RESULT]}],
        ),
        wrong(
            "tool_use.id: String should match pattern",
            [*HELLO, {"role": "assistant", "content": [{**USE, "id": "a.b"}]}, *HELLO],
        ),
        wrong(
            "tool_use.input: Input should be a valid dictionary",
            [*HELLO, {"role": "assistant", "content": [{**USE, "input": "{}"}]}, *HELLO],
        ),
        wrong(
            "does not support assistant message prefill", [*HELLO, {"role": "assistant", "content": "The answer is"}]
        ),
        wrong(
            "Invalid `signature` in `thinking` block",
            [
                *HELLO,
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "so", "signature": sign("no")}, TEXT],
                },
                *HELLO,
            ],
        ),
        wrong(
            "Invalid `data` in `redacted_thinking` block",
            [*HELLO, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, TEXT]}, *HELLO],
        ),
        wrong(
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
            [*HELLO, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}],
            max_tokens=2000,
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        wrong(
            "budget_tokens: Input should be greater than or equal to 1024",
            thinking={"type": "enabled", "budget_tokens": 5},
        ),
        wrong("`max_tokens` must be greater than", thinking={"type": "enabled", "budget_tokens": 1024}),
        wrong(
            "Input tag 'document' found",
            [
                *HELLO,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
                    ],
                },
                *HELLO,
            ],
        ),
        wrong(
            "image.source.base64.media_type: Input should be",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA=="}}
                    ],
                }
            ],
        ),
        wrong(
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            [{"role": "user", "content": [{**TEXT, "cache_control": {"type": "ephemeral"}}] * 5}],
        ),
        wrong("max_tokens: 64001 > 64000", extra_body={"max_tokens": 64_001}),
        wrong("max_tokens: Input should be greater than or equal to 1", max_tokens=0),
        wrong("temperature: Extra inputs are not permitted", extra_body={"temperature": 1}),
        wrong("max_tokens: Input should be a valid integer", extra_body={"max_tokens": "many"}),
        wrong(
            "tools.0.custom.name: String should match pattern",
            tools=[{"name": "a b", "input_schema": {"type": "object"}}],
        ),
        wrong("tools.0.custom.input_schema: Field required", tools=[{"name": "a"}]),
        wrong("tools.0.custom.input_schema.type: Input should be 'object'", tools=[{"name": "a", "input_schema": {}}]),
        wrong(
            "input_schema does not support oneOf, allOf, or anyOf at the top level",
            tools=[{"name": "a", "input_schema": {"type": "object", "anyOf": [{"required": ["a"]}]}}],
        ),
        wrong("Tool names must be unique", tools=[{"name": "a", "input_schema": {"type": "object"}}] * 2),
        wrong("prompt is too long: 250002 tokens > 200000 maximum", [{"role": "user", "content": "word " * 200_001}]),
    ],
)
async def test_what_the_api_refuses_is_refused_in_its_words(server, client, messages, more, message):
    server.say("never said")
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.messages.create(**{**asked(server, messages), **more})
    assert message in caught.value.api_message
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id == "req_loopback"
    assert server.steps_left == 1


@pytest.mark.parametrize("name", ["model", "max_tokens", "messages"])
async def test_a_required_field_is_required(server, client, name):
    body = {key: value for key, value in asked(server).items() if key != name}
    with pytest.raises(anthropic.BadRequestError, match=f"{name}: Field required"):
        await client.post("/v1/messages", cast_to=object, body=body)


async def test_a_body_that_is_no_json_is_refused(server, client):
    with pytest.raises(anthropic.BadRequestError, match="not valid JSON"):
        await client.post(
            "/v1/messages", cast_to=object, content=b"{", options={"headers": {"content-type": "application/json"}}
        )


async def test_consecutive_messages_of_one_role_are_one_turn(server, client):
    server.say("Hi.")
    assistant = {"role": "assistant", "content": [USE]}
    results = [{"role": "user", "content": [RESULT]}, {"role": "user", "content": "and?"}]
    await client.messages.create(**asked(server, [*HELLO, *HELLO, assistant, *results]))


async def test_each_failure_on_demand_is_the_sdks_error_for_it(server, client):
    server.overload()
    with pytest.raises(anthropic.OverloadedError):
        await client.messages.create(**asked(server))
    server.fail_midway()
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        async for _ in await client.messages.create(**asked(server), stream=True):
            pass
    server.malformed()
    with pytest.raises(ValueError, match=r"Expecting|property name"):
        async for _ in await client.messages.create(**asked(server), stream=True):
            pass


async def test_a_script_that_is_used_up_says_so(server, client):
    with pytest.raises(anthropic.BadRequestError, match="used up"):
        await client.messages.create(**asked(server))

"""The Responses API on loopback, asked by the vendor's own client: a wrong request gets the provider's error."""

import openai
import pytest
from openai import AsyncOpenAI

from antiphon.testing.servers import OpenAIResponsesServer

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
CALL = {"type": "function_call", "call_id": "one", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "one", "output": "seen"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AAAA"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
SEALED = ["reasoning.encrypted_content"]


@pytest.fixture
async def server():
    async with OpenAIResponsesServer() as server:
        yield server


@pytest.fixture
async def client(server):
    async with AsyncOpenAI(api_key=server.key, base_url=server.url, max_retries=0) as client:
        yield client


async def refused(client, server, kind=openai.BadRequestError, **request):
    """The error that a wrong request gets; the script is not used up by it."""
    server.say("never heard")
    with pytest.raises(kind) as caught:
        await client.responses.create(**{"model": server.model_id, "input": "hi", **request})
    assert server.steps_left == 1
    assert set(caught.value.body) == {"message", "type", "param", "code"}
    return caught.value


async def asked(client, server, **request):
    return await client.responses.create(**{"model": server.model_id, "input": "hi", **request})


async def test_the_vendors_client_hears_a_stream(client, server):
    server.say("Good day to you.", reasoning="Be kind.", usage=(7, 3))
    async with client.responses.stream(model=server.model_id, input="hi") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "Good day to you."
    assert final.output[0].summary[0].text == "Be kind."
    assert final.usage.total_tokens == 10
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


async def test_the_vendors_client_puts_mixed_calls_together(client, server):
    server.call_tools([("look", {"at": "sea"}), ("look", {"at": "sky", "long": True}, "mine")], text="So.", mixed=True)
    async with client.responses.stream(model=server.model_id, input="hi", tools=[TOOL]) as stream:
        final = await stream.get_final_response()
    assert [item.type for item in final.output] == ["message", "function_call", "function_call"]
    assert [item.arguments for item in final.output[1:]] == ['{"at": "sea"}', '{"at": "sky", "long": true}']
    assert final.output[2].call_id == "mine"


async def test_a_response_is_kept_and_gone_on_from(client, server):
    server.call_tool("look", {}, "one")
    server.say("I saw it.")
    first = await asked(client, server)
    second = await asked(client, server, previous_response_id=first.id, input=[OUTPUT])
    assert second.output_text == "I saw it."
    assert (await client.responses.retrieve(first.id)).id == first.id
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        await client.responses.retrieve(first.id)
    assert server.stored == [second.id]


async def test_a_response_that_is_not_stored_cannot_be_gone_on_from(client, server):
    server.say("hello")
    first = await asked(client, server, store=False)
    error = await refused(client, server, previous_response_id=first.id)
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_response_that_was_forgotten_cannot_be_gone_on_from(client, server):
    server.say("hello")
    first = await asked(client, server)
    server.forget()
    error = await refused(client, server, previous_response_id=first.id)
    assert f"Previous response with id '{first.id}' not found." in error.message


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("strange", [False, True])
async def test_slices_and_strange_events_do_not_disturb_the_vendors_client(size, strange):
    async with OpenAIResponsesServer(slice_bytes=size, strange=strange) as server:
        server.say("Grüß Gott, 世界!")
        async with AsyncOpenAI(api_key=server.key, base_url=server.url) as client:
            stream = await client.responses.create(model=server.model_id, input="hi", stream=True)
            heard = [event.delta async for event in stream if event.type == "response.output_text.delta"]
    assert "".join(heard) == "Grüß Gott, 世界!"


async def test_a_wrong_key_is_refused(server):
    async with AsyncOpenAI(api_key="sk-wrong", base_url=server.url, max_retries=0) as client:
        error = await refused(client, server, openai.AuthenticationError)
    assert error.code == "invalid_api_key"


async def test_an_unknown_model_is_refused(client, server):
    error = await refused(client, server, model="gpt-unheard-of")
    assert (error.code, error.param) == ("model_not_found", "model")


async def test_an_unknown_parameter_is_refused(client, server):
    error = await refused(client, server, extra_body={"loudness": 11})
    assert (error.code, error.param) == ("unknown_parameter", "loudness")


async def test_a_request_without_input_is_refused(client, server):
    server.say("never heard")
    with pytest.raises(openai.BadRequestError, match="must be provided"):
        await client.post("/responses", cast_to=object, body={"model": server.model_id})


@pytest.mark.parametrize(
    ("items", "code", "words"),
    [
        ([USER, CALL], None, "No tool output found for function call one."),
        ([USER, OUTPUT], None, "No tool call found for function call output with call_id one."),
        ([USER, THOUGHT], "invalid_encrypted_content", "could not be verified"),
        ([USER, {**THOUGHT, "encrypted_content": None}], None, "Items are not persisted"),
        ([USER, {**THOUGHT, "id": "thought-1"}], "invalid_value", "begins with 'rs'"),
        ([{"type": "reasoning", "summary": []}], "missing_required_parameter", "input[0].id"),
        ([{"type": "song"}], "invalid_value", "Invalid value: 'song'"),
        ([{"role": "robot", "content": "hi"}], "invalid_value", "Invalid value: 'robot'"),
        ([{"role": "user"}], "missing_required_parameter", "input[0].content"),
        ([{**USER, "role": "assistant"}], "invalid_value", "Supported values are: 'output_text', and 'refusal'."),
        ([{**USER, "content": [{"type": "output_text", "text": "hi"}]}], "invalid_value", "'input_text'"),
        ([{**USER, "content": 7}], "invalid_type", "input[0].content"),
        (
            [{**USER, "content": [{"type": "input_image", "image_url": "data:image/tiff;base64,"}]}],
            "invalid_image_format",
            "",
        ),
        ([{**USER, "content": [{"type": "input_file"}]}], "missing_required_parameter", "file_id"),
        ([{"type": "function_call", "call_id": "one", "name": "look"}], "missing_required_parameter", "arguments"),
        ([{**CALL, "call_id": "c" * 65}], "string_above_max_length", "maximum length 64"),
        ([USER, CALL, {**OUTPUT, "output": [{"type": "output_text"}]}], "invalid_value", "input[2].output[0]"),
    ],
)
async def test_input_that_breaks_a_rule_is_refused(client, server, items, code, words):
    kind = openai.NotFoundError if "persisted" in words else openai.BadRequestError
    error = await refused(client, server, kind, input=items)
    assert error.code == code
    assert words in f"{error.message} {error.param}"


async def test_reasoning_of_which_nothing_came_is_refused(client, server):
    server.say("hello", reasoning="hm")
    first = await asked(client, server, include=SEALED, store=False)
    thought = first.output[0].model_dump(exclude_none=True)
    error = await refused(client, server, input=[USER, thought, USER])
    assert "without its required following item" in error.message


async def test_reasoning_goes_back_to_who_sealed_it(client, server):
    server.say("hello", reasoning="hm")
    first = await asked(client, server, include=SEALED, store=False)
    server.say("and again")
    items = [
        item.model_dump(exclude_none=True, exclude={"id"} if item.type == "message" else None) for item in first.output
    ]
    assert (await asked(client, server, input=[USER, *items, USER])).output_text == "and again"


async def test_a_model_without_encrypted_reasoning_refuses_to_be_asked_for_it(client, server):
    server.encrypts = False
    error = await refused(client, server, include=SEALED)
    assert "Encrypted content is not supported with this model." in error.message


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({"type": "function", "name": "look around"}, "invalid_value"),
        ({"type": "function"}, "missing_required_parameter"),
        ({"type": "function", "name": "look", "parameters": {"type": "string"}}, "invalid_function_parameters"),
        ({"function": {"name": "look"}}, "missing_required_parameter"),
    ],
)
async def test_a_tool_that_breaks_a_rule_is_refused(client, server, tool, code):
    assert (await refused(client, server, tools=[tool])).code == code


async def test_what_can_be_included_has_a_name(client, server):
    assert (await refused(client, server, include=["everything"])).code == "invalid_value"


async def test_a_conversation_that_is_too_long_is_refused_also_when_the_server_has_most_of_it(client, server):
    server.say("hello")
    first = await asked(client, server, input="word " * 100)
    server.context_tokens = 50
    error = await refused(client, server, previous_response_id=first.id)
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize("after", [-4, -1, 0, 1, 5])
async def test_the_connection_breaks_where_it_is_told_to(client, server, after):
    server.cut(after)
    heard = []
    with pytest.raises(openai.APIConnectionError):
        async for event in await client.responses.create(model=server.model_id, input="hi", stream=True):
            heard.append(event.type)
    assert heard.count("response.output_text.delta") == max(after, 0)


async def test_a_failure_in_the_stream_reaches_the_vendors_client(client, server):
    server.break_down("Out of order.", code="rate_limit_exceeded")
    async for event in await client.responses.create(model=server.model_id, input="hi", stream=True):
        last = event
    assert last.type == "response.failed"
    assert last.response.error.code == "rate_limit_exceeded"


async def test_an_answer_that_ends_early_says_why(client, server):
    server.stop("max_tokens")
    server.stop("content_filtered")
    reasons = [(await asked(client, server)).incomplete_details.reason for _ in range(2)]
    assert reasons == ["max_output_tokens", "content_filter"]


async def test_the_model_can_decline(client, server):
    server.decline("I will not.")
    response = await asked(client, server)
    assert response.output[0].content[0].refusal == "I will not."

"""`OpenAIModel` over its server on loopback: what users meet."""

import asyncio
import socket
import ssl
import traceback
from contextlib import aclosing

import pytest
from openai import AsyncOpenAI

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
from antiphon.models import OpenAIModel
from antiphon.models.retrying import Retries
from antiphon.testing import VirtualClock
from antiphon.testing.servers import OpenAIChatServer
from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.testing.servers.http import HTTPServer, json_response

HI = [{"role": "user", "content": [{"text": "hi"}]}]


@pytest.fixture
async def server():
    async with OpenAIChatServer() as server:
        yield server


def model_of(server, **more):
    given = {"model_id": server.model_id, "base_url": server.url, "clock": VirtualClock(), "environ": {}}
    if "client_args" not in more and "client" not in more:
        given["api_key"] = server.key
    if "client" in more:
        del given["base_url"]
    return OpenAIModel(**{**given, **more})


async def answer(model, messages=None, tools=None, system=None):
    text = ""
    async for event in model.stream(messages or HI, tools, system):
        text += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
    return text


async def failure(model, kind=ModelError):
    with pytest.raises(kind) as caught:
        await answer(model)
    return caught.value


async def test_an_answer_is_heard_piece_by_piece(server):
    server.say("Good day to you.", reasoning="Be kind.", usage=(8, 5))
    told = [event async for event in model_of(server).stream(HI, None, "Be kind.")]
    pieces = [event["contentBlockDelta"]["delta"] for event in told if "contentBlockDelta" in event]
    assert [piece["text"] for piece in pieces if "text" in piece] == ["Good", " day", " to", " you."]
    assert [piece["reasoningContent"]["text"] for piece in pieces if "text" not in piece] == ["Be", " kind."]
    assert told[-2:] == [
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 8, "outputTokens": 5, "totalTokens": 13, "cacheReadInputTokens": 4}}},
    ]
    [body] = server.bodies
    assert body["messages"][0] == {"role": "system", "content": "Be kind."}
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("size", [1, 2, 3, 64, 100_000])
@pytest.mark.parametrize("strange", [False, True])
async def test_slicing_the_wire_changes_nothing(size, strange):
    async def told(**how):
        async with OpenAIChatServer(**how) as server:
            server.call_tools(
                [("look", {"at": "Zürich 世界"}), ("hear", {})], text="Grüß Gott", reasoning="hm", mixed=True
            )
            return [event async for event in model_of(server).stream(HI)]

    assert await told(slice_bytes=size, strange=strange) == await told()


async def test_words_come_before_the_answer_is_whole(server):
    hold = server.hold(2)
    async with aclosing(model_of(server).stream(HI)) as events:
        heard = ""
        while heard != "one two":
            heard += (await anext(events)).get("contentBlockDelta", {}).get("delta", {}).get("text", "")
        hold.release()
        heard += "".join(
            [event.get("contentBlockDelta", {}).get("delta", {}).get("text", "") async for event in events]
        )
    assert heard == "one two three four five"


async def test_two_answers_of_one_model_at_once_do_not_mix(server):
    hold = server.hold(2)
    server.say("six seven eight")
    model = model_of(server)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(answer(model))
        await hold.reached()
        assert await answer(model) == "six seven eight"
        hold.release()
    assert first.result() == "one two three four five"


def test_one_model_serves_event_loops_that_come_and_go():
    model = None

    async def once():
        nonlocal model
        async with OpenAIChatServer() as server:
            server.say("hello")
            model = model or model_of(server, client_args={"api_key": server.key})
            model._service.base_url = server.url
            return await answer(model)

    assert [asyncio.run(once()) for _ in range(2)] == ["hello", "hello"]


async def test_an_answer_that_is_cancelled_leaves_no_connection(server):
    hold = server.hold(2)
    task = asyncio.create_task(answer(model_of(server)))
    await hold.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [other for other in asyncio.all_tasks() if "httpx" in repr(other)] == []


async def test_parameters_go_out_as_they_are_and_can_be_changed(server):
    server.say("a")
    server.say("b")
    model = model_of(server, params={"temperature": 0.5})
    await answer(model)
    model.update_config(params={"max_completion_tokens": 5})
    await answer(model)
    assert server.bodies[0]["temperature"] == 0.5
    assert "temperature" not in server.bodies[1]
    assert server.bodies[1]["max_completion_tokens"] == 5


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ({"model_id": " "}, InvalidInputError, "model_id=' '"),
        ({"colour": "red"}, InvalidInputError, "'colour' cannot be configured"),
        ({"params": 7}, InvalidTypeError, "params is int"),
        ({"params": {"messages": []}}, InvalidInputError, r"params\['messages'\] cannot be set"),
    ],
)
async def test_a_configuration_that_cannot_be_used_is_refused_and_changes_nothing(server, config, kind, words):
    model = model_of(server)
    before = model.get_config()
    with pytest.raises(kind, match=words):
        model.update_config(**config)
    assert model.get_config() == before


async def test_the_configuration_is_a_copy_and_nowhere_is_the_key(server):
    model = model_of(server, params={"metadata": {"a": "b"}})
    model.get_config()["params"]["metadata"]["a"] = "c"
    assert model.get_config() == {"model_id": server.model_id, "params": {"metadata": {"a": "b"}}}
    assert server.key not in f"{model!r}{model.get_config()}"


async def test_the_usual_variables_are_looked_up_where_they_are_said_to_be(server, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-process")
    server.say("a")
    environ = {"OPENAI_API_KEY": f" {server.key}\n", "OPENAI_BASE_URL": server.url, "OPENAI_PROJECT_ID": "p"}
    await answer(OpenAIModel(model_id=server.model_id, environ=environ))
    headers = server.requests[-1].headers
    assert headers["openai-project"] == "p"
    assert "openai-organization" not in headers


async def test_a_key_may_be_short_lived(server):
    keys = iter(["sk-old", server.key])
    model = model_of(server, api_key=lambda: next(keys))
    await failure(model, ModelCredentialsError)
    server.say("a")
    assert await answer(model) == "a"

    async def later():
        return server.key

    server.say("b")
    assert await answer(model_of(server, api_key=later)) == "b"


async def test_a_client_of_the_users_is_used_and_stays_open(server):
    async with AsyncOpenAI(api_key=server.key, base_url=server.url, max_retries=5) as client:
        model = model_of(server, client=client)
        server.say("a")
        server.say("b")
        assert await answer(model) + await answer(model) == "ab"
        server.quota()
        await failure(model, ModelQuotaError)
        assert server.key not in repr(model)
    assert len(server.requests) == 3


async def test_what_does_not_go_together_is_refused(server):
    async with AsyncOpenAI(api_key="a") as client:
        with pytest.raises(InvalidInputError, match="do not go with it"):
            OpenAIModel(model_id="m", client=client, api_key="b")
    with pytest.raises(InvalidInputError, match="tls does not go with"):
        OpenAIModel({"http_client": object()}, model_id="m", api_key="a", tls=ssl.create_default_context())
    with pytest.raises(InvalidInputError, match="base_url='ftp://a'"):
        OpenAIModel(model_id="m", api_key="a", base_url="ftp://a")


def test_without_a_key_there_is_no_model():
    with pytest.raises(ModelCredentialsError, match="OPENAI_API_KEY") as caught:
        OpenAIModel(model_id="m", environ={})
    assert caught.value.status == "UNAUTHENTICATED"


async def test_arguments_of_the_client_reach_it(server):
    server.say("a")
    model = model_of(
        server,
        client_args={"api_key": server.key, "default_headers": {"x-team": "blue"}, "timeout": 5, "max_retries": 9},
    )
    await answer(model)
    assert server.requests[-1].headers["x-team"] == "blue"
    server.fail()
    server.again(2)
    await failure(model)
    assert len(server.requests) == 4  # the retries are ours


async def test_a_wrong_key_is_refused_and_told_nowhere(server):
    error = await failure(model_of(server, api_key="sk-wrong-0123"), ModelCredentialsError)
    told = "".join(traceback.format_exception(error))
    assert "the key was refused: Incorrect API key provided: ***" in str(error)
    assert "sk-wrong-0123" not in told
    assert len(server.requests) == 1


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-ä", "sk a"])
async def test_a_key_that_no_header_takes_is_refused_and_told_nowhere(server, key):
    with pytest.raises(ModelCredentialsError, match="characters that no key has") as caught:
        model_of(server, api_key=key)
    assert key not in str(caught.value)
    error = await failure(model_of(server, api_key=lambda: key), ModelCredentialsError)
    assert key not in str(error)


async def test_a_key_that_is_no_secret_leaves_the_words_readable(server):
    server.refuse(400, "none of this")
    server.key = "none"
    error = await failure(model_of(server), ModelRequestError)
    assert "none of this" in str(error)


async def test_an_unknown_model_is_named(server):
    error = await failure(model_of(server, model_id="gpt-unheard-of"), ModelNotFoundError)
    assert "model 'gpt-unheard-of' cannot be used" in str(error)
    assert "does not exist" in str(error)


async def test_a_quota_that_is_used_up_is_not_waited_for(server):
    server.quota()
    error = await failure(model_of(server), ModelQuotaError)
    assert "exceeded your current quota" in str(error)
    assert len(server.requests) == 1


async def test_a_conversation_that_is_too_long_is_told_apart(server):
    server.context_tokens = 10
    server.say("never heard")
    with pytest.raises(ContextWindowOverflowException, match="maximum context length is 10 tokens"):
        await answer(model_of(server), [{"role": "user", "content": [{"text": "word " * 50}]}])


async def test_one_request_beyond_the_tokens_of_a_minute_is_too_long(server):
    server.refuse(429, "Request too large for gpt-4o: Limit 30000, Requested 40000.", code="rate_limit_exceeded")
    await failure(model_of(server), ContextWindowOverflowException)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "waited"), [({"retry-after": "7"}, 7), ({"retry-after-ms": "250"}, 0.25), ({}, 0.5)]
)
async def test_a_crowded_provider_is_asked_again_when_it_says(server, headers, waited):
    clock = VirtualClock()
    server.refuse(429, "slow down", code="rate_limit_exceeded", headers=headers)
    server.say("at last")
    assert await answer(model_of(server, clock=clock, retries=Retries(chance=lambda: 1.0))) == "at last"
    assert clock.now() == waited


async def test_a_provider_that_stays_crowded_is_asked_three_times(server):
    clock = VirtualClock()
    server.throttle()
    server.again(2)
    error = await failure(model_of(server, clock=clock, retries=Retries(chance=lambda: 1.0)), ModelThrottledException)
    assert "Rate limit reached" in str(error)
    assert (len(server.requests), clock.now()) == (3, 1.5)


async def test_a_wait_that_is_too_long_is_left_to_the_caller(server):
    server.throttle(3600)
    error = await failure(model_of(server), ModelThrottledException)
    assert error.retry_after_s == 3600
    assert len(server.requests) == 1


async def test_who_wants_no_retries_gets_none(server):
    server.fail()
    await failure(model_of(server, retries=Retries(max_attempts=1)))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 408, 409])
async def test_a_provider_that_fails_for_a_moment_is_asked_again(server, status):
    server.fail(status)
    server.say("here")
    assert await answer(model_of(server)) == "here"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_value", ModelRequestError),
        (422, None, ModelRequestError),
        (400, "content_filter", ModelRequestError),
        (403, "unsupported_country_region_territory", ModelCredentialsError),
        (402, None, ModelQuotaError),
        (404, None, ModelRequestError),
    ],
)
async def test_what_will_not_pass_is_not_asked_again(server, status, code, kind):
    server.refuse(status, "No.", code=code)
    error = await failure(model_of(server), kind)
    assert f"No. (HTTP {status}" in str(error)
    assert len(server.requests) == 1


async def test_a_closed_port_is_told_as_what_it_is():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    clock = VirtualClock()
    url, retries = f"http://127.0.0.1:{port}/v1", Retries(chance=lambda: 1.0)
    model = OpenAIModel(model_id="m", api_key="k", base_url=url, clock=clock, retries=retries)
    error = await failure(model, ModelConnectionError)
    assert f"http://127.0.0.1:{port}/v1 cannot be reached" in str(error)
    assert error.status == "UNAVAILABLE"
    assert clock.now() == 1.5


async def test_a_certificate_that_is_not_trusted_is_told_as_what_it_is():
    authority = LoopbackAuthority()
    async with OpenAIChatServer(tls=authority.server_context()) as server:
        server.say("hello")
        clock = VirtualClock()
        error = await failure(model_of(server, clock=clock), ModelConnectionError)
        assert "cannot be trusted" in str(error)
        assert "SSL_CERT_FILE" in str(error)
        assert clock.now() == 0  # it would not pass
        assert await answer(model_of(server, tls=authority.client_context())) == "hello"


async def test_a_server_that_speaks_something_else_is_told_as_what_it_is():
    async def handler(request):
        return json_response({"hello": "world"})

    async with HTTPServer(handler) as server:
        model = OpenAIModel(model_id="m", api_key="k", base_url=server.url)
        assert "is this an endpoint for chat completions?" in str(await failure(model, ModelProtocolError))


@pytest.mark.parametrize("page", [b"<html>Bad gateway</html>", b"", b"[1]", b'{"error": "no"}', b'{"detail": "no"}'])
async def test_errors_in_any_shape_are_told(page):
    async def handler(request):
        return json_response({}, 400) if page is None else _page(page)

    async with HTTPServer(handler) as server:
        error = await failure(OpenAIModel(model_id="m", api_key="k", base_url=server.url), ModelRequestError)
    assert "HTTP 400" in str(error)


def _page(body):
    response = json_response({}, 400)
    return type(response)(status=400, headers=response.headers, body=body)


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_malformed_frames_are_told_as_what_they_are(server, after):
    server.malformed(after)
    error = await failure(model_of(server), ModelProtocolError)
    assert "no JSON" in str(error)
    assert len(server.requests) == 1


async def test_a_line_that_breaks_before_the_first_word_is_asked_again(server):
    server.cut(-1)
    server.cut(0)
    server.say("here")
    assert await answer(model_of(server)) == "here"


@pytest.mark.parametrize("after", [1, 3, 5])
async def test_a_line_that_breaks_within_the_answer_is_an_error_and_nothing_is_said_twice(server, after):
    server.cut(after)
    server.say("never heard")
    error = await failure(model_of(server), ModelConnectionError)
    assert "broke off" in str(error)
    assert server.steps_left == 1


async def test_an_answer_that_is_whole_survives_a_line_that_breaks_after_it(server):
    server.cut(6)
    assert await answer(model_of(server)) == "one two three four five"


async def test_a_failure_within_the_stream_is_told(server):
    server.break_down("Out of order.")
    error = await failure(model_of(server))
    assert "Out of order." in str(error)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_tokens", "max_tokens"), ("length", "max_tokens"), ("content_filtered", "content_filtered")],
)
async def test_an_answer_that_ends_early_says_why(server, reason, stop):
    server.stop(reason)
    told = [event async for event in model_of(server).stream(HI)]
    assert {"messageStop": {"stopReason": stop}} in told


def test_whom_the_system_trusts_is_read_once(tmp_path):
    model = OpenAIModel(model_id="m", api_key="k")
    assert isinstance(model._service._context(), ssl.SSLContext)
    assert model._service._context() is model._service._context()

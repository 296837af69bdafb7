"""Bedrock in turns, over a loopback server that signs nothing off that the service would not."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading

import boto3
import pytest
from botocore.config import Config

from antiphon import Agent
from antiphon.agent import ModelRetryStrategy
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
from antiphon.models import BedrockModel
from antiphon.models.retrying import Retries
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.support import PIXEL_PNG, ask, assistant, in_virtual_time, nobody, result, user
from antiphon.testing.servers import BedrockServer
from antiphon.testing.servers.certificates import LoopbackAuthority

ONCE = Retries(max_attempts=1)
WEATHER = {
    "name": "weather",
    "description": "Tells the weather",
    "inputSchema": {"json": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "outputSchema": {"json": {"type": "string"}},
}


@pytest.fixture
async def server():
    async with BedrockServer() as server:
        yield server


def model_for(server, **given):
    return BedrockModel(
        **{"model_id": server.model_id, "endpoint_url": server.url, "environ": server.environ, "retries": ONCE, **given}
    )


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "antiphon-worker"]


def asked(server, number=-1):
    return server.requests[number].json()


# --- requests ---


async def test_the_configuration_goes_where_converse_wants_it(server):
    server.say("yes")
    model = model_for(
        server,
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        stop_sequences=["END"],
        cache_prompt="default",
        cache_tools="default",
        tool_choice={"any": {}},
        additional_request_fields={"thinking": {"type": "enabled", "budget_tokens": 1024}},
        additional_response_field_paths=["/stop_sequence"],
        additional_args={"requestMetadata": {"who": "me"}},
        service_tier="flex",
        guardrail_id="gr4loopback",
        guardrail_version="1",
        guardrail_stream_processing_mode="async",
    )
    await ask(model, [user("hi")], tools=[WEATHER], system="Be kind.")
    body = asked(server)
    assert body["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "topP": 0.25, "stopSequences": ["END"]}
    assert body["system"] == [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}]
    spec = {name: value for name, value in WEATHER.items() if name != "outputSchema"}
    assert body["toolConfig"] == {
        "tools": [{"toolSpec": spec}, {"cachePoint": {"type": "default"}}],
        "toolChoice": {"any": {}},
    }
    assert body["guardrailConfig"] == {
        "guardrailIdentifier": "gr4loopback",
        "guardrailVersion": "1",
        "trace": "enabled",
        "streamProcessingMode": "async",
    }
    assert body["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 1024
    assert body["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    assert (body["requestMetadata"], body["serviceTier"]) == ({"who": "me"}, {"type": "flex"})


async def test_what_bedrock_would_refuse_in_a_history_is_put_right(server):
    server.say("yes")
    foreign = {"reasoningContent": {"reasoningText": {"text": "another provider's thought, unsigned"}}}
    use = {"toolUse": {"toolUseId": "call/1?", "name": "weather", "input": "not an object"}}
    history = [
        user("weather?", " \n"),
        assistant(foreign, use),
        user("and?", result("call/1?", "", {"json": [1, 2]}, {"json": {"a": 1}})),
        assistant(" "),
        user("x"),
    ]
    await ask(model_for(server), history, tools=[WEATHER])
    messages = asked(server)["messages"]
    assert messages[0]["content"] == [{"text": "weather?"}]
    [call] = messages[1]["content"]
    assert call["toolUse"]["input"] == {"input": "not an object"}
    answer, text = messages[2]["content"]
    assert answer["toolResult"]["toolUseId"] == call["toolUse"]["toolUseId"]
    assert answer["toolResult"]["content"] == [{"text": "[1,2]"}, {"json": {"a": 1}}]
    assert text == {"text": "and?"}
    assert messages[3]["content"] == [{"text": "[blank text]"}]


async def test_a_result_without_content_is_told_as_such_and_its_status_only_to_models_that_read_it():
    failed = [user("a"), assistant({"toolUse": {"toolUseId": "c", "name": "weather", "input": {}}})]
    failed.append(user({"toolResult": {"toolUseId": "c", "status": "error", "content": []}}))
    for model_id, has_status in (("anthropic.claude-x-v1:0", True), ("meta.llama4-x-v1:0", False)):
        async with BedrockServer(model_id=model_id) as server:
            server.say("well")
            await ask(model_for(server), failed, tools=[WEATHER])
            told = asked(server)["messages"][2]["content"][0]["toolResult"]
            assert told["content"] == [{"text": "[no output]"}]
            assert ("status" in told) is has_status


@pytest.mark.parametrize("streaming", [True, False])
async def test_more_documents_than_bedrock_takes_are_counted_and_the_way_out_is_named(server, streaming):
    def document(number):
        return {"document": {"name": f"d{number}", "format": "txt", "source": {"bytes": b"a"}}}

    history = [user("a", *map(document, range(4))), assistant("b"), user("c", document(4))]
    history += [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "find", "input": {}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t", "status": "success", "content": [document(5)]}}],
        },
    ]
    server.refuse("ValidationException", "You can't include more than 5 documents in a request.")
    with pytest.raises(ModelRequestError) as refused:
        await ask(model_for(server, streaming=streaming), history)
    assert "more than 5 documents in a request. This one has 6, since earlier turns" in str(refused.value)
    assert "agent.messages" in str(refused.value)


async def test_documents_get_names_that_bedrock_takes_each_once(server):
    def document(**more):
        return {"document": {"format": "txt", "source": {"bytes": b"words"}, **more}}

    inner = {"toolResult": {"toolUseId": "a", "status": "success", "content": [document(name="Plan")]}}
    history = [
        user("read", document(name="plan"), document(name="  my_plan.final  (2).txt"), document(), document(name="")),
        assistant({"toolUse": {"toolUseId": "a", "name": "weather", "input": {}}}),
        {"role": "user", "content": [inner, document(name="x" * 300), document(name="x" * 300)]},
    ]
    server.say("yes")
    await ask(model_for(server), history, tools=[WEATHER])
    first, _, last = asked(server)["messages"]
    names = [block["document"]["name"] for block in first["content"] if "document" in block]
    assert names == ["plan", "my-plan-final (2)-txt", "document", "document-2"]
    assert last["content"][0]["toolResult"]["content"][0]["document"]["name"] == "Plan-2"
    assert [len(block["document"]["name"]) for block in last["content"][1:]] == [200, 194]


async def test_thoughts_of_which_nothing_came_are_not_sent(server):
    server.say("once", reasoning="so")
    told = await ask(model_for(server), [user("x")])
    [thought] = [block for block in told.content if "reasoningContent" in block]
    server.say("yes")
    await ask(model_for(server), [user("x"), assistant(thought), user("y")])
    assert asked(server)["messages"] == [user("x", "y")]


async def test_pictures_and_documents_arrive_as_bytes_and_places_in_s3_by_their_name(server):
    server.say("nice")
    await ask(
        model_for(server),
        [
            user(
                "look",
                {"image": {"format": "png", "source": {"bytes": PIXEL_PNG}}},
                {"document": {"format": "pdf", "name": "Report 1", "source": {"bytes": b"%PDF-1.4"}}},
                {"image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://bucket/key"}}}},
            )
        ],
    )
    _, image, document, place = asked(server)["messages"][0]["content"]
    assert image["image"]["source"]["bytes"].startswith("iVBORw0KGgo")
    assert document["document"]["source"]["bytes"] == "JVBERi0xLjQ="
    assert place["image"]["source"] == {"s3Location": {"uri": "s3://bucket/key"}}


async def test_usage_has_what_was_read_from_the_cache_and_the_stop_reason_is_the_services(server):
    usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 905, "cacheReadInputTokens": 900}
    server.say("short", usage=usage)
    server.stop("stop_sequence")
    model = model_for(server)
    assert (await ask(model, [user("a")])).usage == usage
    assert (await ask(model, [user("a")])).stop_reason == "stop_sequence"


async def test_an_event_that_nobody_knows_yet_does_no_harm(server):
    server.unknown("still here")
    assert (await ask(model_for(server), [user("a")])).text == "still here"


# --- guardrails ---


@pytest.mark.parametrize("trace", ["enabled", "disabled"])
async def test_a_blocked_prompt_is_replaced_in_the_history(server, trace):
    server.guardrail()
    server.say("hello")
    agent = Agent(
        model_for(
            server, guardrail_id="gr4loopback", guardrail_trace=trace, guardrail_redact_input_message="[taken out]"
        )
    )
    blocked = await agent.invoke_async("something forbidden")
    assert blocked.stop_reason == "guardrail_intervened"
    assert text_of(agent.messages[0]) == "[taken out]"
    assert text_of(agent.messages[1]) == "Sorry, the model cannot answer this question."
    await agent.invoke_async("hello")
    assert "forbidden" not in server.requests[1].body.decode()


@pytest.mark.parametrize("redact", [True, False])
async def test_a_blocked_answer_is_replaced_when_that_is_wanted_and_the_prompt_stays(server, redact):
    server.guardrail(input=False, output=True, said="something forbidden")
    agent = Agent(model_for(server, guardrail_id="gr4loopback", guardrail_redact_output=redact))
    await agent.invoke_async("a harmless question")
    assert text_of(agent.messages[0]) == "a harmless question"
    assert text_of(agent.messages[1]) == ("[Assistant output redacted.]" if redact else "something forbidden")


async def test_a_guardrail_works_on_answers_that_come_at_once(server):
    server.guardrail()
    agent = Agent(model_for(server, guardrail_id="gr4loopback", guardrail_version="1", streaming=False))
    await agent.invoke_async("something forbidden")
    assert text_of(agent.messages[0]) == "[User input redacted.]"


async def test_a_guardrail_that_does_not_exist_is_named(server):
    with pytest.raises(ModelRequestError, match="guardrail identifier or version"):
        await ask(model_for(server, guardrail_id="nosuchone"), [user("a")])


# --- errors ---


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        ("ThrottlingException", "Too many tokens, please wait", ModelThrottledException),
        ("ThrottlingException", "Too many tokens per day, please wait before trying again.", ModelQuotaError),
        ("ServiceQuotaExceededException", "no more", ModelQuotaError),
        ("ModelNotReadyException", "loading", ModelThrottledException),
        (
            "AccessDeniedException",
            "You don't have access to the model with the specified model ID.",
            ModelCredentialsError,
        ),
        ("ResourceNotFoundException", "Could not resolve the foundation model", ModelNotFoundError),
        (
            "ValidationException",
            "Invocation of model ID x with on-demand throughput isn't supported.",
            ModelNotFoundError,
        ),
        ("ValidationException", "Input is too long for requested model.", ContextWindowOverflowException),
        ("ValidationException", "prompt is too long: 210000 tokens > 200000 maximum", ContextWindowOverflowException),
        ("ValidationException", "The value is wrong", ModelRequestError),
        ("InternalServerException", "oh", ModelError),
        ("ServiceUnavailableException", "busy", ModelError),
        ("ModelErrorException", "the model broke", ModelError),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_each_refusal_is_told_apart_with_the_services_words(server, code, words, expected, streaming):
    server.refuse(code, words)
    with pytest.raises(ModelError, match=code) as refused:
        await ask(model_for(server, streaming=streaming), [user("a")])
    assert type(refused.value) is expected
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("exception", "words", "expected"),
    [
        ("throttlingException", "slow down", ModelThrottledException),
        ("modelStreamErrorException", "the model broke", ModelError),
        ("internalServerException", "oh", ModelError),
        ("serviceUnavailableException", "busy", ModelError),
        ("validationException", "Input is too long for requested model.", ContextWindowOverflowException),
    ],
)
async def test_an_exception_in_the_middle_of_a_stream_is_told_apart_too(server, exception, words, expected):
    server.fail(exception, words, after_chunks=3)
    server.say("not asked again: something was seen")
    with pytest.raises(ModelError, match=words) as failed:
        await ask(model_for(server, retries=Retries()), [user("a")])
    assert type(failed.value) is expected
    assert len(server.requests) == 1


async def test_a_stream_that_fails_before_a_word_is_begun_anew(server):
    server.fail("throttlingException", "slow down", after_chunks=1)
    server.say("here I am")
    clock = VirtualClock(autojump=False)
    told = await in_virtual_time(
        clock, ask(model_for(server, retries=Retries(chance=lambda: 1.0), clock=clock), [user("a")])
    )
    assert told.text == "here I am"
    assert clock.now() >= 0.5


@pytest.mark.parametrize("spoil", ["cut", "end_early", "malformed"])
async def test_a_stream_that_breaks_is_an_error(server, spoil):
    getattr(server, spoil)()
    expected = ModelProtocolError if spoil == "malformed" else ModelConnectionError
    with pytest.raises(expected):
        await ask(model_for(server), [user("a")])


async def test_bytes_that_are_no_event_stream_are_an_error(server):
    server.malformed(b"<html>a proxy has something to say</html>")
    with pytest.raises(ModelProtocolError, match="no event stream"):
        await ask(model_for(server), [user("a")])


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("model_context_window_exceeded", ContextWindowOverflowException),
        ("malformed_tool_use", ModelProtocolError),
        ("malformed_model_output", ModelProtocolError),
    ],
)
async def test_ends_that_are_failures_are_errors(server, reason, expected):
    server.stop(reason)
    with pytest.raises(expected):
        await ask(model_for(server), [user("a")])


async def test_an_agent_waits_for_a_crowded_service_and_trims_for_an_overflow(server):
    for _ in range(3):
        server.throttle()
    server.overflow()
    server.say("at last")
    clock = VirtualClock(autojump=False)
    history = [user("1"), assistant("2"), user("3"), assistant("4")]
    agent = Agent(model_for(server, retries=Retries(), clock=clock), messages=history, clock=clock)
    answer = await in_virtual_time(clock, agent.invoke_async("5"))
    assert text_of(answer.message) == "at last"
    assert len(asked(server)["messages"]) < 5


# --- who asks, and where ---


async def test_without_credentials_it_says_what_to_set(server):
    with pytest.raises(ModelCredentialsError, match="AWS_ACCESS_KEY_ID"):
        await ask(model_for(server, environ={"AWS_REGION": "us-east-1"}), [user("a")])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "signature we calculated does not match"),
        ({"AWS_ACCESS_KEY_ID": "AKIANOBODY"}, "security token included in the request is invalid"),
        ({"AWS_REGION": "eu-west-1"}, "scoped to a valid region"),
    ],
)
async def test_wrong_credentials_and_regions_are_told_apart(server, change, words):
    with pytest.raises(ModelCredentialsError, match=words):
        await ask(model_for(server, environ={**server.environ, **change}), [user("a")])


async def test_short_lived_credentials_are_asked_for_with_each_request():
    async with BedrockServer(session_token="the token") as server:
        given = []

        def credentials():
            given.append(1)
            return {
                "access_key_id": server.key_id,
                "secret_access_key": server.key,
                "session_token": "the token" if len(given) < 4 else "an old token",
            }

        model = model_for(server, environ=None, credentials=credentials, region_name="us-east-1")
        server.say("one")
        await ask(model, [user("a")])
        first = len(given)
        server.say("two")
        await ask(model, [user("a")])
        assert len(given) > first
        given += [1] * 9
        with pytest.raises(ModelCredentialsError, match="ExpiredToken"):
            await ask(model, [user("a")])


async def test_a_source_of_credentials_that_fails_is_an_error_of_ours(server):
    def credentials():
        raise LookupError("the vault is closed")

    with pytest.raises(ModelCredentialsError, match="vault is closed"):
        await ask(model_for(server, environ=None, credentials=credentials, region_name="us-east-1"), [user("a")])


async def test_a_session_of_boto3_is_used_as_it_is(server):
    session = boto3.Session(aws_access_key_id=server.key_id, aws_secret_access_key=server.key, region_name="us-east-1")
    server.say("yes")
    model = model_for(
        server, environ=None, boto_session=session, boto_client_config=Config(user_agent_extra="mine", read_timeout=5)
    )
    assert (await ask(model, [user("a")])).text == "yes"
    assert "mine" in server.requests[0].headers["user-agent"]


def test_arguments_that_exclude_one_another_are_refused():
    session = boto3.Session(region_name="us-east-1")
    with pytest.raises(InvalidInputError, match="region_name or boto_session"):
        BedrockModel(boto_session=session, region_name="us-east-1")
    with pytest.raises(InvalidInputError, match="credentials of its own"):
        BedrockModel(boto_session=session, environ={})
    with pytest.raises(InvalidInputError, match="temprature"):
        BedrockModel(temprature=1)
    with pytest.raises(InvalidTypeError, match="model_id"):
        BedrockModel(model_id="")


def test_the_region_comes_from_the_argument_the_environment_or_is_oregon():
    assert "eu-west-3" in repr(BedrockModel(region_name="eu-west-3", environ={"AWS_REGION": "us-east-1"}))
    assert "us-east-1" in repr(BedrockModel(environ={"AWS_REGION": "us-east-1"}))
    assert "us-west-2" in repr(BedrockModel(environ={}))


async def test_an_endpoint_where_nobody_listens_is_named(server):
    url = await nobody()
    with pytest.raises(ModelConnectionError, match="cannot be reached") as refused:
        await ask(model_for(server, endpoint_url=url), [user("a")])
    assert url in str(refused.value)


async def test_a_server_that_goes_silent_is_an_error_within_the_read_timeout(server):
    held = server.hold()
    with pytest.raises(ModelConnectionError):
        await ask(model_for(server, boto_client_config=Config(read_timeout=0.2)), [user("a")])
    held.release()


async def test_tls_is_refused_by_those_who_do_not_trust_it_and_works_for_those_who_do(tmp_path):
    authority = LoopbackAuthority()
    async with BedrockServer(tls=authority.server_context()) as server:
        with pytest.raises(ModelConnectionError, match="TLS with https://localhost"):
            await ask(model_for(server), [user("a")])
        server.say("secret")
        trusting = boto3.Session(
            aws_access_key_id=server.key_id, aws_secret_access_key=server.key, region_name="us-east-1"
        )
        trusting._session.set_config_variable("ca_bundle", str(authority.write_ca(tmp_path / "ca.pem")))
        model = model_for(server, environ=None, boto_session=trusting)
        assert (await ask(model, [user("a")])).text == "secret"
        held = server.hold()
        waiting = asyncio.create_task(ask(model, [user("a")]))
        await held.reached()
        await gone(waiting)
        held.release()


# --- letting go ---


async def gone(task):
    """Cancel a task, and wait for its thread: it must end although the server says nothing."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    for thread in workers():
        await asyncio.get_running_loop().run_in_executor(None, thread.join, 5)
    assert not workers()


async def test_cancelling_cuts_a_stream_that_waits_and_leaves_no_thread(server, caplog):
    model = model_for(server)
    for kept_alive in (False, True):
        held = server.hold()
        waiting = asyncio.create_task(ask(model, [user("a")]))
        await held.reached()
        with caplog.at_level(logging.WARNING):
            await gone(waiting)
        held.release()
        server.say("next")
        assert (await ask(model, [user("b")])).text == "next", kept_alive
    assert not caplog.records


async def test_cancelling_cuts_a_request_that_has_no_answer_yet(server):
    """Bedrock sends no header before the first word: that is where boto3 waits longest."""
    accepted = asyncio.Event()

    async def silent(reader, writer):
        accepted.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        model = model_for(server, endpoint_url=f"http://127.0.0.1:{port}")
        waiting = asyncio.create_task(ask(model, [user("a")]))
        await accepted.wait()
        await gone(waiting)


async def test_an_agent_that_is_cancelled_keeps_what_was_said(server):
    held = server.hold("one two three")
    agent = Agent(model_for(server))
    seen = asyncio.Event()

    async def listen():
        async for event in agent.stream_async("count"):
            if "data" in event:
                seen.set()
        return agent.messages

    task = asyncio.create_task(listen())
    await seen.wait()
    agent.cancel()
    messages = await task
    held.release()
    assert text_of(messages[1]) == "one"


async def test_many_requests_at_once_on_one_model_do_not_mix(server):
    model = model_for(server)

    async def one(number):
        server.say(f"answer {number}")
        return (await ask(model, [user("a")])).text

    told = await asyncio.gather(*(one(number) for number in range(20)))
    assert sorted(told) == sorted(f"answer {number}" for number in range(20))


def test_one_model_serves_several_loops_and_leaves_their_executors_alone(server_of_a_thread):
    server, run = server_of_a_thread
    model = model_for(server)
    for number in range(2):
        run(server.say, f"answer {number}")
        assert asyncio.run(ask(model, [user("a")])).text == f"answer {number}"


@pytest.fixture
def server_of_a_thread():
    """A server on a loop of another thread, so that a test may have loops of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = BedrockServer()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)

    def run(function, *args):
        done = threading.Event()
        loop.call_soon_threadsafe(lambda: (function(*args), done.set()))
        assert done.wait(10)

    yield server, run
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


async def test_a_black_hole_is_given_up_within_the_time_to_connect(server):
    with socket.socket() as full:  # a backlog of none that is taken: further connections wait
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            model = model_for(
                server,
                endpoint_url=f"http://127.0.0.1:{port}",
                boto_client_config=Config(connect_timeout=0.3, read_timeout=0.3),
            )
            with pytest.raises(ModelConnectionError):
                await ask(model, [user("a")])


async def test_an_agents_own_patience_comes_after_the_models(server):
    for _ in range(2):
        server.throttle()
    clock = VirtualClock(autojump=False)
    agent = Agent(model_for(server, clock=clock), retry_strategy=ModelRetryStrategy(max_attempts=2), clock=clock)
    with pytest.raises(ModelThrottledException):
        await in_virtual_time(clock, agent.invoke_async("hello"))
    assert len(server.requests) == 2


async def test_no_secret_is_in_any_record_of_a_log_also_botocores(caplog):
    caplog.set_level(logging.DEBUG)
    async with BedrockServer(session_token="a-token/of+the==session") as server:
        server.say("yes")
        await ask(model_for(server), [user("x")])
        assert server.requests[0].headers["x-amz-security-token"] == "a-token/of+the==session"
        assert "x-amz-security-token" in caplog.text
        assert "a-token" not in caplog.text
        assert server.key not in caplog.text


FORK = """
import asyncio, os, threading
from antiphon.models import BedrockModel
from antiphon.testing.model_suite.support import ask, user
from antiphon.testing.servers import BedrockServer

def serve():
    async def main():
        async with BedrockServer() as server:
            found.append((server, asyncio.get_running_loop(), over := asyncio.Event()))
            ready.set()
            await over.wait()
            print(len({id(request) for request in server.requests}))
    asyncio.run(main())

found, ready = [], threading.Event()
thread = threading.Thread(target=serve)
thread.start()
ready.wait()
server, loop, over = found[0]
model = BedrockModel(model_id=server.model_id, endpoint_url=server.url, environ=server.environ)
answer = lambda: asyncio.run(ask(model, [user("x")])).text
for text in ("one", "two", "three"):
    server.say(text)
assert answer() == "one"
mine = model._access.client()
child = os.fork()
if child == 0:
    assert answer() == "two"
    assert model._access.client() is not mine  # nor is a connection of the parent's used
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert answer() == "three" and model._access.client() is mine
loop.call_soon_threadsafe(over.set)
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
async def test_a_forked_process_has_connections_of_its_own():
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    told, _ = await done.communicate()
    assert (told.decode().strip(), done.returncode) == ("3", 0)

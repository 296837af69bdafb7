"""OpenAI's live model with a real agent, over a wire, with a provider that does what providers do."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock
from antiphon.conversation.repair import problems
from antiphon.errors import (
    AntiphonError,
    AudioFormatError,
    ConnectionEndedError,
    InvalidInputError,
    InvalidTypeError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelProtocolError,
    ModelQuotaError,
    ModelThrottledException,
    NotSupportedError,
)
from antiphon.events import BidiConnectionRestartEvent, BidiResponseStopEvent, BidiToolUseBlocksEvent, BidiUsageEvent
from antiphon.models import OpenAIRealtimeModel
from antiphon.models.openai.realtime_opening import CONTINUED
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.testing.servers import OpenAIRealtimeServer
from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.tools.decorator import tool

STORY = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."


@pytest.fixture
async def server():
    async with OpenAIRealtimeServer() as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=False)


def make(server: OpenAIRealtimeServer, **given) -> OpenAIRealtimeModel:
    default = {"transcription_model_id": "gpt-transcribe", "api_key": server.key, "base_url": server.url}
    return OpenAIRealtimeModel(**{"model_id": server.model_id, **default, **given})


def talk_with(server: OpenAIRealtimeServer, clock: VirtualClock, *, tools=(), messages=None, **given) -> Talk:
    model = make(server, clock=clock, **given)
    return Talk(BidiAgent(model, clock=clock, tools=list(tools), messages=messages, system_prompt="Be kind."), clock)


# Barge-in


async def test_the_provider_is_told_what_was_heard_of_an_answer_that_it_still_makes(server, clock):
    server.say_and_hold(STORY, seconds=4, after=3)
    server.barge_in("stop")
    server.say("All right.")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("tell me a story")
        await talk.until(lambda: seconds_of(talk.events) > 2.9, "the sound")
        await talk.listen(1)
        await talk.speak()
        await talk.answers(2)
        await talk.listen(3)
        await server.until(lambda it: it.session.truncated, "truncate")
    assert list(server.session.truncated.values()) == [1000]
    cut = next(message for message in talk.agent.messages if "Once" in str(message["content"]))
    assert cut["metadata"]["interrupted"]
    assert cut["metadata"]["heard_ms"] == 1000
    assert server.complaints() == []


async def test_of_an_answer_that_nobody_heard_the_provider_is_told_to_forget_all(server, clock):
    server.say_and_hold(STORY, seconds=4, after=2)
    server.barge_in("stop")
    server.say("All right.")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("tell me a story")
        await talk.until(lambda: seconds_of(talk.events) > 1.9, "the sound")
        await talk.speak()
        await talk.answers(2)
        await talk.listen(3)
        await server.until(lambda it: it.session.deleted, "delete")
    assert not server.session.truncated
    assert texts(talk.agent) == ["u: tell me a story", "u: stop", "a: All right."]
    assert server.complaints() == []


# Tools


async def test_results_of_calls_whose_connection_is_gone_go_to_the_next_one_with_their_calls(server, clock):
    go_on = asyncio.Event()

    @tool
    async def noon() -> str:
        """Is it noon?"""
        await go_on.wait()
        return "yes"

    server.call_tools([("noon", {})])
    server.expire()
    server.say("It is.")
    async with talk_with(server, clock, tools=[noon]) as talk:
        await talk.agent.send("Is it noon?")
        await talk.until(lambda: bool(talk.of(BidiToolUseBlocksEvent)), "the call")
        await server.until(lambda it: it.connections() == 2 and it.session.updated, "another connection")
        go_on.set()
        await talk.answers(2)
        await talk.listen(3)
    assert texts(talk.agent) == ["u: Is it noon?", "a: [call noon]", "u: [result]", "a: It is."]
    outputs = [
        event for event in server.sent("conversation.item.create") if event["item"]["type"] == "function_call_output"
    ]
    assert len(outputs) == 1
    assert server.complaints() == []


async def test_arguments_that_are_encoded_twice_reach_the_tool(server, clock):
    seen = []

    @tool
    def note(words: str) -> str:
        """Note words.

        Args:
            words: The words.
        """
        seen.append(words)
        return "noted"

    server.call_tools([("note", {"words": "milk"})], encoded=2, text="One moment.")
    server.say("Noted.")
    async with talk_with(server, clock, tools=[note]) as talk:
        await talk.agent.send("note milk")
        await talk.answers(2)
        await talk.listen(3)
    assert seen == ["milk"]
    assert texts(talk.agent)[-1] == "a: Noted."
    assert server.complaints() == []


# Restarts


async def test_an_answer_that_the_end_of_a_session_has_cut_is_given_by_the_next_one(server, clock):
    server.say("My name is Ann.")
    server.say_and_hold(STORY, seconds=4, after=1)
    server.expire()
    server.say("Once more.")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("Who are you?")
        await talk.answers(1)
        await talk.listen(2)
        await talk.agent.send("tell me a story")
        await server.until(lambda it: it.connections() == 2 and it.session.answered, "an answer on another connection")
        await talk.until(lambda: seconds_of(talk.events) > 2.9, "the sound")
        await talk.listen(5)
        told = server.seeded()
    assert ("user", "Who are you?") in told
    assert ("assistant", "My name is Ann.") in told
    assert len(talk.of(BidiConnectionRestartEvent)) == 1
    assert texts(talk.agent)[-1] == "a: Once more."
    assert server.complaints() == []


async def test_a_session_is_replaced_before_the_providers_hour_is_over(server, clock):
    server.say("My name is Ann.", seconds=0.5)
    async with talk_with(server, clock, timeout_s=1000) as talk:
        await talk.agent.send("Who are you?")
        await talk.answers(1)
        await talk.listen(690)
        assert server.connections() == 1
        await talk.listen(11)
        await server.until(lambda it: it.connections() == 2, "another connection")
        await talk.until(lambda: bool(talk.of(BidiConnectionRestartEvent)), "the restart")
    assert talk.of(BidiConnectionRestartEvent)[0].reason == "scheduled"
    assert server.seeded()[-1] == ("system", CONTINUED)


async def test_a_session_that_was_not_replaced_in_time_is_when_its_time_is_over(server, clock):
    async with talk_with(server, clock, timeout_s=1000, connection={"restart_after_s": 0}) as talk:
        await talk.listen(1001)
        await server.until(lambda it: it.connections() == 2, "another connection")
        await talk.until(lambda: bool(talk.of(BidiConnectionRestartEvent)), "the restart")
    assert talk.of(BidiConnectionRestartEvent)[0].reason == "timeout"


async def test_a_provider_that_fails_gets_another_session(server, clock):
    server.error("server_error")
    server.say("Here I am.")
    async with talk_with(server, clock) as talk:
        await server.until(lambda it: it.connections() == 2 and it.session.updated, "another connection")
        await talk.agent.send("Are you there?")
        await talk.answers(1)
        await talk.listen(2)
    assert texts(talk.agent)[-1] == "a: Here I am."


# Failures


async def test_a_response_that_is_throttled_is_given_later_and_the_user_need_not_ask_again(server, clock):
    server.throttle(reset_seconds=3)
    server.say("It is noon.")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("What time is it?")
        await talk.answers(1)
        assert len(server.sent("response.create")) == 1
        await talk.listen(3.5)
        await talk.answers(2)
        await talk.listen(2)
    assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]
    assert server.complaints() == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("invalid_api_key", ModelCredentialsError),
        ("insufficient_quota", ModelQuotaError),
        ("rate_limit_exceeded", ModelThrottledException),
        ("server_error", ModelConnectionError),
    ],
)
async def test_a_handshake_that_is_refused_says_why(server, code, expected):
    server.refuse(code)
    with pytest.raises(expected) as refused:
        await make(server).start()
    assert refused.value.remedy
    await make(server).start()


@pytest.mark.parametrize(
    ("code", "expected"), [("insufficient_quota", ModelQuotaError), ("account_deactivated", ModelCredentialsError)]
)
async def test_an_error_that_nothing_can_mend_ends_the_talk_with_the_providers_words(server, clock, code, expected):
    server.error(code)
    async with talk_with(server, clock) as talk:
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, expected)


async def test_a_response_that_fails_for_good_ends_the_talk(server, clock):
    server.fail("credit_balance_exhausted")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("hello")
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ModelQuotaError)


def written(caplog) -> str:
    """What the client's side has logged: the server stands in the same process."""
    return " ".join(record.getMessage() for record in caplog.records if not record.name.startswith("websockets.server"))


async def test_a_wrong_key_is_nowhere_to_be_read(server, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = "sk-wrong-0123456789abcdef"
    with pytest.raises(ModelCredentialsError) as refused:
        await make(server, api_key=wrong).start()
    error: BaseException | None = refused.value
    while error is not None:
        assert wrong not in f"{error!s} {error!r}"
        assert "cdef" not in str(refused.value)
        error = error.__cause__
    assert wrong not in written(caplog)


async def test_a_right_key_is_not_in_the_log_either(server, caplog):
    caplog.set_level(logging.DEBUG)
    model = make(server)
    await model.start()
    await model.stop()
    assert server.key not in written(caplog)
    assert server.key not in repr(model) + str(model.get_config())


async def test_an_unknown_model_is_named(server):
    with pytest.raises(ModelNotFoundError, match="gpt-9"):
        await make(server, model_id="gpt-9").start()


async def test_tls_is_spoken_with_whom_it_trusts_and_nobody_else():
    authority = LoopbackAuthority()
    async with OpenAIRealtimeServer(tls=authority.server_context()) as server:
        model = make(server, tls=authority.client_context())
        await model.start()
        await model.stop()
        with pytest.raises(ModelConnectionError, match="certificate"):
            await make(server).start()
        with pytest.raises(ModelConnectionError, match="certificate"):
            await make(server, tls=LoopbackAuthority().client_context()).start()


async def test_a_server_that_does_not_speak_tls_is_an_error_that_says_so(server):
    with pytest.raises(ModelConnectionError):
        await make(server, base_url=server.url.replace("ws:", "wss:")).start()


async def test_an_address_that_is_not_the_apis_is_an_error_that_says_so(server):
    with pytest.raises(ModelError, match="404"):
        await make(server, base_url=server.url.replace("/v1", "/v2")).start()


async def test_a_server_that_never_answers_is_given_up(clock):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    asked = asyncio.Event()
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        model = OpenAIRealtimeModel(
            "m", transcription_model_id=None, api_key="sk-0123456789", base_url=url, clock=clock
        )
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(_error_of(model.start()))
            await asked.wait()
            await clock.advance(21)
        assert isinstance(starting.result(), ModelConnectionError)


async def _error_of(work) -> Exception | None:
    try:
        await work
    except AntiphonError as error:
        return error
    return None


async def test_what_nobody_can_read_ends_the_talk(server, clock):
    server.malformed()
    async with talk_with(server, clock) as talk:
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ModelProtocolError)


@settings(max_examples=12)
@given(after=st.integers(1, 30))
async def test_wherever_the_line_is_cut_the_talk_ends_with_a_reason_and_a_legal_history(after):
    clock = VirtualClock(autojump=False)
    async with OpenAIRealtimeServer() as server:
        server.cut(after=after)
        server.hear("What time is it?")
        server.say(STORY, seconds=3)
        async with talk_with(server, clock) as talk:
            with suppress(ConnectionEndedError):
                await talk.speak()
            await talk.until(lambda: talk.error is not None or bool(talk.of(BidiResponseStopEvent)), "the end")
            await talk.listen(5)
        assert talk.error is None or isinstance(talk.error, ConnectionEndedError)
        assert problems(talk.agent.messages) == []


async def test_a_call_that_is_cancelled_while_it_starts_leaves_nothing_open(server):
    model = make(server)
    for turns in range(12):
        task = asyncio.ensure_future(model.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectionEndedError):
            await model.send(AudioDelta("pcm", {"bytes": b"\0\0"}))
    await model.start()
    await model.stop()


# Configuration


async def test_a_key_may_be_made_for_each_connection(server):
    given = iter([server.key, server.key])

    async def key() -> str:
        return next(given)

    model = make(server, api_key=key, organization="org-1", project="proj-1")
    await model.start()
    await model.restart()
    await model.stop()
    assert next(given, None) is None
    assert server.handshakes[0]["openai-organization"] == "org-1"
    assert server.handshakes[0]["openai-project"] == "proj-1"
    assert "openai-beta" not in server.handshakes[0]
    for bad in ("", "two words", None):
        with pytest.raises(ModelCredentialsError):
            await make(server, api_key=lambda bad=bad: bad).start()


async def test_the_environment_says_what_arguments_do_not(server):
    environ = {
        "OPENAI_API_KEY": server.key,
        "OPENAI_BASE_URL": server.url.replace("ws", "http"),
        "OPENAI_ORG_ID": "org-2",
    }
    model = OpenAIRealtimeModel(server.model_id, transcription_model_id=None, environ=environ)
    await model.start()
    await model.stop()
    assert server.handshakes[0]["openai-organization"] == "org-2"


def test_without_a_key_there_is_no_model():
    with pytest.raises(ModelCredentialsError, match="OPENAI_API_KEY"):
        OpenAIRealtimeModel("gpt-realtime-2", transcription_model_id=None, environ={})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model_id": ""}, InvalidInputError),
        ({"voice": " "}, InvalidInputError),
        ({"transcription_model_id": ""}, InvalidInputError),
        ({"timeout_s": 3001}, InvalidInputError),
        ({"timeout_s": 0}, InvalidInputError),
        ({"base_url": "api.openai.com"}, InvalidInputError),
        ({"base_url": "wss://user:password@api.openai.com/v1"}, InvalidInputError),
        ({"params": {"output_modalities": ["audio", "text"]}}, InvalidInputError),
        ({"params": {"audio": {"input": {"turn_detection": None}}}}, InvalidInputError),
        ({"params": {"audio": {"input": {"turn_detection": {"interrupt_response": False}}}}}, InvalidInputError),
        ({"params": []}, InvalidTypeError),
        ({"params": {"audio": {"output": {"format": {"type": "audio/opus"}}}}}, AudioFormatError),
        ({"params": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}}}, AudioFormatError),
        ({"audio": {"input": {"format": "opus"}}}, AudioFormatError),
        ({"audio": {"input": {"channels": 2}}}, AudioFormatError),
        ({"audio": {"output": {"sample_rate": 0}}}, AudioFormatError),
    ],
)
def test_what_cannot_be_used_is_refused_when_the_model_is_made(given, expected):
    default = {"model_id": "gpt-realtime-2", "transcription_model_id": None, "api_key": "sk-0123456789", "environ": {}}
    with pytest.raises(expected) as refused:
        OpenAIRealtimeModel(**{**default, **given})
    assert isinstance(refused.value, AntiphonError)


def test_the_configuration_says_what_it_is_and_changes_as_a_whole():
    model = OpenAIRealtimeModel("gpt-realtime-2", transcription_model_id=None, api_key="sk-0123456789", environ={})
    assert model.get_connection_config() == {"restart_after_s": 2700.0, "auto_restart": True}
    assert model.get_audio_config()["input"] == {"sample_rate": 24000, "channels": 1, "format": "pcm"}
    model.update_config(timeout_s=600, audio={"input": {"sample_rate": 16000}})
    assert model.get_connection_config()["restart_after_s"] == 300
    assert model.get_audio_config()["input"]["sample_rate"] == 16000
    with pytest.raises(InvalidInputError, match="api_key"):
        model.update_config(api_key="sk-other")
    with pytest.raises(InvalidInputError):
        model.update_config(voice="cedar", timeout_s=9000)
    assert model.get_config()["voice"] == "alloy"


async def test_sound_that_is_no_pcm_is_refused_before_it_is_sent(server):
    model = make(server)
    await model.start()
    with pytest.raises(AudioFormatError, match="opus"):
        await model.send(AudioDelta("opus", {"bytes": b"1234"}))
    await model.stop()
    assert server.sent("input_audio_buffer.append") == []


async def test_tokens_and_unknown_events_are_counted(server, clock):
    server.usage(100, 50)
    server.unknown_event()
    server.say("It is noon.")
    async with talk_with(server, clock) as talk:
        await talk.agent.send("hello")
        await talk.answers(1)
        assert talk.agent.model.counts == {"unknown response.sparkle.delta": 1}
    assert [event.total_tokens for event in talk.of(BidiUsageEvent)] == [150]


async def test_a_model_is_used_without_an_agent(server):
    server.call_tools([("noon", {})])
    server.say("It is.")
    model = make(server)
    await model.start(tools=[{"name": "noon", "description": "Is it?", "inputSchema": {"json": {"type": "object"}}}])
    await model.send(BidiMessage([TextBlock("Is it noon?")]))
    seen = 0
    async for event in model.receive():
        if isinstance(event, BidiToolUseBlocksEvent):
            await model.send(
                BidiMessage([ToolResultBlock(event.tool_uses[0]["toolUseId"], "success", [{"text": "yes"}])])
            )
        if isinstance(event, BidiResponseStopEvent):
            seen += 1
        if seen == 2:
            break
    await model.stop()
    assert server.complaints() == []


async def test_whoever_starts_a_model_that_is_in_use_takes_it_over_and_the_other_is_told(server, clock):
    model = make(server, clock=clock)
    server.say("Here I am.")
    async with (
        Talk(BidiAgent(model, clock=clock), clock) as first,
        Talk(BidiAgent(model, clock=clock), clock) as second,
    ):
        await first.until(lambda: first.error is not None, "the end")
        await second.agent.send("Are you there?")
        await second.answers(1)
        await second.listen(2)
    assert isinstance(first.error, ConnectionEndedError)
    assert texts(second.agent)[-1] == "a: Here I am."


async def test_what_this_provider_does_not_do_the_server_says(server):
    with pytest.raises(NotSupportedError):
        server.go_away(10)
    with pytest.raises(NotSupportedError):
        server.refuse_resume()


async def test_a_slow_provider_is_waited_for(clock):
    async with OpenAIRealtimeServer(pace_s=0.01, clock=clock) as server:
        model = make(server, clock=clock)
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(model.start())
            while not starting.done():
                await clock.advance(0.01)
                await asyncio.sleep(0)
        await model.stop()

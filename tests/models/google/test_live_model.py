"""Gemini Live as an agent talks through it: barge-in, tools, restarts, and everything that can go wrong."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta
from antiphon.conversation.repair import problems
from antiphon.errors import (
    ConnectionEndedError,
    ConnectionTimeoutError,
    ContextWindowOverflowException,
    InvalidInputError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
)
from antiphon.events import (
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiConnectionStartEvent,
    BidiConnectionWarningEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiToolUseCancelEvent,
)
from antiphon.models.google.live import GoogleGeminiLiveModel
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.testing.servers.gemini_live import GeminiLiveServer
from antiphon.tools.decorator import tool

STORY = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."
SOUND = AudioDelta("pcm", {"bytes": b"\1\0" * 1600})


def model_of(server: GeminiLiveServer, **given) -> GoogleGeminiLiveModel:
    return GoogleGeminiLiveModel(
        given.pop("model_id", server.model_id), **{"api_key": server.key, "base_url": server.url, **given}
    )


@asynccontextmanager
async def talking(server: GeminiLiveServer, *, tools=(), messages=None, **given):
    clock = VirtualClock(autojump=False)
    model = model_of(server, clock=clock, **given)
    async with Talk(BidiAgent(model, clock=clock, tools=list(tools), messages=messages), clock) as talk:
        yield talk


async def ask(talk: Talk, server: GeminiLiveServer, question: str, answer: str) -> None:
    """One turn, played to its end."""
    before = len(talk.of(BidiResponseStopEvent))
    server.say(answer)
    await talk.agent.send(question)
    await talk.answers(before + 1)
    await talk.listen(3)


async def cut_story(talk: Talk, server: GeminiLiveServer) -> None:
    """A story of which one second is heard."""
    server.say_and_hold(STORY, 4.0, after=3.0)
    server.barge_in("stop it")
    server.say("All right.")
    done = len(talk.of(BidiResponseStopEvent))
    before = seconds_of(talk.events)
    await talk.agent.send("tell me a story")
    await talk.until(lambda: seconds_of(talk.events) > before + 2.9, "the story")
    await talk.listen(1)
    await talk.speak()
    await talk.answers(done + 2)
    await talk.listen(3)


# Barge-in


async def test_of_a_story_that_is_cut_the_history_has_what_was_heard():
    async with GeminiLiveServer() as server, talking(server) as talk:
        await cut_story(talk, server)
    (cut,) = talk.of(BidiBargeInEvent)
    asked, heard, stop, answer = texts(talk.agent)
    assert (asked, stop, answer) == ("u: tell me a story", "u: stop it", "a: All right.")
    assert heard.removeprefix("a: ") in STORY
    assert 0 < len(heard) < len(STORY) * 0.5
    metadata = talk.agent.messages[1]["metadata"]
    assert metadata["interrupted"] is True
    assert metadata["response_id"] == cut.response_id
    assert server.complaints() == []


# Tools


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_calls_that_are_taken_back_end_and_are_never_answered():
    ended: list[str] = []
    clock = VirtualClock(autojump=False)

    @tool
    async def slow() -> str:
        """Take long."""
        try:
            await clock.sleep(60)
        finally:
            ended.append("slow")
        return "done"

    async with GeminiLiveServer() as server:
        server.call_tools([("slow", {}), ("add", {"a": 1, "b": 2})])
        server.barge_in("never mind")
        server.say("All right.")
        model = model_of(server, clock=clock)
        async with Talk(BidiAgent(model, clock=clock, tools=[slow, add]), clock) as talk:
            await talk.agent.send("do it")
            await talk.until(lambda: bool(talk.of(BidiToolUseBlocksEvent)), "the calls")
            await talk.listen(1)
            await talk.speak()
            await talk.until(lambda: bool(talk.of(BidiToolUseCancelEvent)), "the cancellation")
            await talk.answers(2)
            await talk.listen(3)
        assert server.session.tool_responses == []
        assert server.complaints() == []
    assert ended == ["slow"]
    assert texts(talk.agent) == [
        "u: do it",
        "u: never mind",
        "a: [call slow] [call add]",
        "u: [result] [result]",
        "a: All right.",
    ]
    assert not problems(talk.agent.messages)
    first, second = [block["toolResult"] for block in talk.agent.messages[3]["content"]]
    assert (first["status"], second["status"]) == ("error", "success")


async def test_the_model_goes_on_while_a_tool_works_that_does_not_block():
    clock = VirtualClock(autojump=False)

    @tool
    async def slow() -> str:
        """Take long."""
        await clock.sleep(10)
        return "done"

    async with GeminiLiveServer() as server:
        server.call_tools([("slow", {})])
        server.say("In the meantime I talk.")
        model = model_of(server, clock=clock, non_blocking=["slow"], scheduling="WHEN_IDLE")
        async with Talk(BidiAgent(model, clock=clock, tools=[slow]), clock) as talk:
            await talk.agent.send("do it")
            await talk.answers(2)
            await talk.listen(9)
            assert server.session.tool_responses == []
            server.say("It is done.")
            await talk.listen(2)
            await talk.answers(3)
            await talk.listen(3)
        (response,) = server.session.tool_responses
    assert (response["scheduling"], response["response"]) == ("WHEN_IDLE", {"output": "done"})
    assert texts(talk.agent)[-1] == "a: It is done."
    assert server.complaints() == []


# Restarts


async def test_a_session_whose_end_is_announced_is_resumed_by_its_handle_after_the_old_connection_is_closed():
    async with GeminiLiveServer() as server, talking(server) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        server.go_away(30)
        await talk.until(lambda: bool(talk.of(BidiConnectionWarningEvent)), "the warning")
        await talk.listen(1)
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        await ask(talk, server, "who?", "Ann.")
        first, second = server.sessions
    assert second.resumed.startswith(first.lineage)
    assert second.history == []
    assert second.knows[:2] == [("user", "who are you?"), ("model", "I am Ann.")]
    assert texts(talk.agent) == ["u: who are you?", "a: I am Ann.", "u: who?", "a: Ann."]
    assert server.complaints() == []


async def test_a_scheduled_restart_resumes_by_handle_too():
    async with GeminiLiveServer() as server, talking(server, connection={"restart_after_s": 60}) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        await talk.listen(60)
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        assert server.session.resumed
    assert server.complaints() == []


@pytest.mark.parametrize("code", [1007, 1008, 1011])
async def test_a_resumption_that_is_refused_becomes_a_new_session_with_the_history(code):
    async with GeminiLiveServer() as server, talking(server) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        server.refuse_resume(code, "Internal error encountered.")
        server.expire()
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        await ask(talk, server, "who?", "Ann.")
        assert [session.resumed for session in server.sessions] == ["", "", ""]
        assert server.seeded() == [("user", "who are you?"), ("assistant", "I am Ann.")]
    assert len(talk.of(BidiConnectionRestartEvent)) == 1
    assert server.complaints() == []


async def test_after_a_barge_in_a_new_session_is_told_what_was_heard_instead_of_resuming():
    async with GeminiLiveServer() as server, talking(server) as talk:
        await cut_story(talk, server)
        server.expire()
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        assert server.session.resumed == ""
        told = [text for _, text in server.seeded()]
        assert told == [text.partition(": ")[2] for text in texts(talk.agent)]
        assert STORY not in told
        # The new session knows nothing else: it can be resumed.
        await ask(talk, server, "and now?", "Nothing.")
        await talk.listen(5)
        server.expire()
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 3, "a third connection")
        assert server.session.resumed
    assert server.complaints() == []


async def test_who_wants_the_handle_gets_the_session_with_all_that_it_knows():
    async with GeminiLiveServer() as server, talking(server, resume="handle") as talk:
        await cut_story(talk, server)
        server.expire()
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        assert server.session.resumed
        assert ("model", STORY) in server.session.knows


async def test_who_wants_a_replay_gets_it():
    async with GeminiLiveServer() as server, talking(server, resume="replay") as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        server.expire()
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        assert server.session.resumed == ""
        assert server.seeded() == [("user", "who are you?"), ("assistant", "I am Ann.")]


async def test_a_connection_that_ends_in_mid_answer_is_replaced_by_one_that_is_told_all_of_it():
    async with GeminiLiveServer() as server, talking(server) as talk:
        server.say_and_hold(STORY, 4.0)
        server.expire()
        await talk.agent.send("tell me a story")
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        assert server.session.resumed == ""  # its newest handle is from before the question
        assert server.seeded()[0] == ("user", "tell me a story")
        assert server.seeded()[1][1] in STORY


async def test_a_result_that_comes_after_a_restart_is_told_in_words():
    clock = VirtualClock(autojump=False)

    @tool
    async def slow() -> str:
        """Take long."""
        await clock.sleep(10)
        return "twelve"

    async with GeminiLiveServer() as server:
        server.call_tools([("slow", {})])
        server.expire()
        model = model_of(server, clock=clock)
        async with Talk(BidiAgent(model, clock=clock, tools=[slow]), clock) as talk:
            await talk.agent.send("do it")
            await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
            server.say("It is twelve.")
            await talk.listen(11)
            await talk.answers(2)
            await talk.listen(3)
        assert server.session.texts == ["[An earlier tool call of slow with {} has returned: twelve]"]
    assert texts(talk.agent) == ["u: do it", "a: [call slow]", "u: [result]", "a: It is twelve."]
    assert server.complaints() == []


async def test_a_failure_of_the_service_that_passes_is_survived_and_one_that_stays_ends_the_talk():
    async with GeminiLiveServer() as server, talking(server) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        server.error("internal")
        await talk.until(lambda: len(talk.of(BidiConnectionStartEvent)) == 2, "another connection")
        for _ in range(10):
            server.error("unavailable")
        while talk.error is None:
            await talk.listen(5)
            await asyncio.sleep(0)
    assert isinstance(talk.error, ConnectionEndedError)
    assert "currently unavailable" in str(talk.error)


async def test_without_automatic_restarts_the_limit_ends_the_talk():
    async with GeminiLiveServer() as server, talking(server, connection={"auto_restart": False}) as talk:
        server.expire()
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ConnectionTimeoutError)
    assert "Deadline expired" in str(talk.error)


# What goes wrong


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("context", ContextWindowOverflowException),
        ("invalid_argument", ModelRequestError),
        ("key_leaked", ModelCredentialsError),
        ("policy", ModelRequestError),
        ("quota", ModelQuotaError),
        ("throttled", ModelThrottledException),
    ],
)
async def test_what_the_service_says_at_the_end_is_what_the_application_gets(kind, error):
    async with GeminiLiveServer() as server, talking(server) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
        server.error(kind)
        await talk.until(lambda: talk.error is not None, "the end")
    assert type(talk.error) is error
    assert texts(talk.agent) == ["u: who are you?", "a: I am Ann."]


async def test_a_connection_that_dies_in_mid_answer_ends_the_talk_and_leaves_the_history_whole():
    async with GeminiLiveServer() as server, talking(server) as talk:
        server.say_and_hold(STORY, 4.0)
        server.cut()
        await talk.agent.send("tell me a story")
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ConnectionEndedError)
    assert texts(talk.agent)[0] == "u: tell me a story"
    assert not problems(talk.agent.messages)


async def test_a_close_in_good_order_that_nobody_asked_for_ends_the_talk():
    async with GeminiLiveServer() as server, talking(server) as talk:
        server.close(1000)
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ConnectionEndedError)


@pytest.mark.parametrize(
    ("trouble", "given", "error"),
    [
        (None, {"api_key": "wrong-key-1234"}, ModelCredentialsError),
        (None, {"api_key": None, "environ": {}}, ModelCredentialsError),
        (None, {"model_id": "nope"}, ModelNotFoundError),
        (None, {"params": {"response_modalities": ["AUDIO", "TEXT"]}}, ModelRequestError),
        (None, {"base_url": "http://127.0.0.1:9"}, ModelConnectionError),
        (None, {"base_url": "http://no-such-host.invalid"}, ModelConnectionError),
        (GeminiLiveServer.throttle, {}, ModelThrottledException),
        (GeminiLiveServer.break_down, {}, ModelConnectionError),
    ],
)
async def test_a_session_that_is_not_opened_is_an_error_that_says_why_and_not_by_which_key(trouble, given, error):
    async with GeminiLiveServer() as server:
        if trouble is not None:
            trouble(server)
        model = model_of(server, **given)
        with pytest.raises(error) as refused:
            await BidiAgent(model).start()
        assert type(refused.value) is error
        await model.stop()
    assert "wrong-key-1234" not in str(refused.value) + repr(refused.value.__cause__)


async def test_a_server_whose_certificate_nobody_trusts_is_refused():
    async with GeminiLiveServer(tls=LoopbackAuthority()) as server:
        with pytest.raises(ModelConnectionError, match="certificate"):
            await model_of(server).start()
        with pytest.raises(ModelConnectionError, match="certificate"):
            await model_of(server, tls=LoopbackAuthority().client_context()).start()


async def test_over_tls_the_talk_is_the_same():
    authority = LoopbackAuthority()
    async with GeminiLiveServer(tls=authority) as server, talking(server, tls=authority.client_context()) as talk:
        await ask(talk, server, "who are you?", "I am Ann.")
    assert texts(talk.agent) == ["u: who are you?", "a: I am Ann."]


async def test_an_ephemeral_token_and_a_bearer_token_open_sessions():
    async with GeminiLiveServer(key="auth_tokens/abc") as server, talking(server) as talk:
        await ask(talk, server, "hi", "Hello.")
    async with (
        GeminiLiveServer(key="bearer", vertex=("my-project", "europe-west4")) as server,
        talking(
            server, api_key=None, access_token=lambda: "bearer", project="my-project", location="europe-west4"
        ) as talk,
    ):
        await ask(talk, server, "hi", "Hello.")
        with pytest.raises(ModelCredentialsError):
            await model_of(
                server, api_key=None, access_token="other", project="my-project", location="europe-west4"
            ).start()
    assert server.complaints() == []


async def test_a_service_that_does_not_accept_the_session_in_time_is_given_up():
    clock = VirtualClock(settle=0.05)
    async with GeminiLiveServer() as server:
        go_on = server.slow()
        with pytest.raises(ModelConnectionError, match="20"):
            await model_of(server, clock=clock).start()
        go_on()
        await server.until(lambda it: not it.session.open)


async def test_a_start_that_is_cancelled_leaves_nothing_open():
    async with GeminiLiveServer() as server:
        go_on = server.slow()
        agent = BidiAgent(model_of(server))
        starting = asyncio.ensure_future(agent.start())
        await server.until(lambda it: it.sessions)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        go_on()
        await server.until(lambda it: not it.session.open)
        await agent.start()
        await agent.stop()


async def test_a_model_that_is_started_again_gives_its_first_connection_up():
    async with GeminiLiveServer() as server:
        model = model_of(server)
        await model.start()
        await model.start()
        await server.until(lambda it: not it.sessions[0].open)
        await model.send(SOUND)
        await server.until(lambda it: it.session.sound_messages == 1)
        await model.stop()
    assert server.sessions[0].sound_messages == 0


async def test_what_only_this_model_takes_reaches_the_service():
    manual = {"realtime_input_config": {"automatic_activity_detection": {"disabled": True}}}
    async with GeminiLiveServer() as server:
        model = model_of(server, params=manual)
        await model.start()
        await model.activity_start()
        await model.activity_end()
        await server.until(lambda it: {"realtimeInput": {"activityEnd": {}}} in it.session.received)
        with pytest.raises(InvalidInputError):
            await model.audio_stream_end()
        await model.stop()
        model = model_of(server)
        await model.start()
        await model.audio_stream_end()
        with pytest.raises(InvalidInputError):
            await model.activity_start()
        await server.until(lambda it: {"realtimeInput": {"audioStreamEnd": True}} in it.session.received)
        await model.stop()
        with pytest.raises(ConnectionEndedError):
            await model.audio_stream_end()
    assert server.complaints() == []


async def test_what_is_not_understood_is_counted():
    async with GeminiLiveServer() as server, talking(server) as talk:
        server.unknown_event()
        await ask(talk, server, "who are you?", "I am Ann.")
        model = talk.agent.model
        assert isinstance(model, GoogleGeminiLiveModel)
        assert model.unknown_messages == {"moodRing": 1, "serverContent.humming": 1, "part.scent": 1}


async def test_sound_goes_in_and_comes_out_at_the_rates_of_a_telephone():
    audio = {"input": {"sample_rate": 8000}, "output": {"sample_rate": 8000}}
    async with GeminiLiveServer() as server, talking(server, audio=audio) as talk:
        server.hear("hello")
        server.say("Good day.", seconds=1)
        await talk.speak()
        await talk.answers(1)
        assert len(server.session.sound) == 1600
    assert {event.sample_rate for event in talk.sound()} == {8000}
    assert seconds_of(talk.events) == pytest.approx(1.0, abs=0.01)
    assert issubclass(ModelCredentialsError, ModelError)

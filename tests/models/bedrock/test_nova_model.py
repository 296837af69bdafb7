"""Nova Sonic through an agent, over a server on loopback: talk, barge-in, tools, restarts, errors."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon import BidiAgent, tool
from antiphon.content import AudioDelta, BidiMessage, TextBlock
from antiphon.errors import (
    AudioFormatError,
    ConnectionEndedError,
    ConnectionTimeoutError,
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
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiConnectionStartEvent,
    BidiResponseStopEvent,
    BidiUsageEvent,
)
from antiphon.models import BedrockNovaSonicModel
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.support import nobody
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.testing.servers import NovaSonicServer
from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.testing.servers.nova_line import Manners

STORY = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=False)


@pytest.fixture
async def server():
    async with NovaSonicServer() as server:
        yield server


def make(server: NovaSonicServer, **given) -> BedrockNovaSonicModel:
    default = {"credentials": server.credentials, "endpoint_url": server.url, "environ": {}}
    return BedrockNovaSonicModel(**{**default, **given})


@tool
def sky(city: str) -> str:
    """Tells the colour of the sky.

    Args:
        city: Where.
    """
    return f"blue over {city}"


def talk_with(server: NovaSonicServer, clock: VirtualClock, **given) -> Talk:
    return Talk(
        BidiAgent(make(server, clock=clock, **given), clock=clock, tools=[sky], system_prompt="Be kind."), clock
    )


# --- talk ---


async def test_a_talk_over_tls_begins_and_ends_in_good_order(clock):
    authority = LoopbackAuthority()
    async with NovaSonicServer(tls=authority.server_context("h2")) as server:
        server.hear("What time is it?").say("It is noon. Or later.", seconds=1)
        async with talk_with(
            server, clock, tls=authority.client_context(), voice="tiffany", turn_detection="LOW"
        ) as talk:
            await talk.speak()
            await talk.answers(1)
            await talk.listen(2)
        [session] = server.sessions
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon. Or later."]
        assert session.system_prompt == "Be kind."
        assert session.settings["promptStart"]["audioOutputConfiguration"]["voiceId"] == "tiffany"
        assert session.settings["sessionStart"]["turnDetectionConfiguration"] == {"endpointingSensitivity": "LOW"}
        assert session.names()[-3:] == ["contentEnd", "promptEnd", "sessionEnd"]
        assert session.ended_well
        [started] = talk.of(BidiConnectionStartEvent)
        assert started.model == "amazon.nova-2-sonic-v1:0"
        assert started.connection_id


async def test_while_nobody_speaks_silence_is_sent_at_the_pace_of_the_clock(server, clock):
    async with talk_with(server, clock) as talk:
        await talk.listen(10)
        await server.until(lambda one: len(one.sessions[0].sound) >= 10 * 32_000)
        assert not any(server.sessions[0].sound)
        assert len(server.sessions[0].sound) == 10 * 32_000
        await talk.speak()
        await talk.listen(0.2)
        await server.until(lambda one: any(one.sessions[0].sound))
        assert len(server.sessions[0].sound) == 10 * 32_000 + 3200


async def test_silence_can_be_left_to_others(server, clock):
    async with talk_with(server, clock, silence_s=None) as talk:
        await talk.listen(10)
    assert server.sessions[0].sound == b""


# --- barge-in ---


@pytest.mark.parametrize("signals", [("marker",), ("text",), ("audio",), ("marker", "text", "audio")])
async def test_the_history_has_what_the_model_says_it_had_said_when_it_was_cut(server, clock, signals):
    server.say_and_hold(STORY, seconds=4, after=2)
    server.barge_in("stop", said="Once upon a time a dragon", signals=signals)
    server.say("All right.", seconds=0.5)
    async with talk_with(server, clock) as talk:
        await talk.agent.send("tell me a story")
        await talk.until(lambda: seconds_of(talk.events) >= 2, "half of the story")
        await talk.listen(1.2)  # the loudspeaker is a little behind
        await talk.speak()
        await talk.until(lambda: seconds_of(talk.events) >= 2.5, "another answer")
        await talk.listen(3)
    assert texts(talk.agent) == ["u: tell me a story", "a: Once upon a time a dragon", "u: stop", "a: All right."]
    metadata = talk.agent.messages[1]["metadata"]
    assert metadata["interrupted"]
    assert metadata["generated_text"] == STORY
    assert len(talk.of(BidiBargeInEvent)) == 1


async def test_what_the_model_says_it_had_said_does_not_count_where_the_loudspeaker_was_far_behind(server, clock):
    server.say_and_hold(STORY, seconds=4, after=4)
    server.say_and_hold(STORY, seconds=4, after=3.9)
    server.barge_in("stop", said=STORY[:-6])
    async with talk_with(server, clock) as talk:
        await talk.agent.send("tell me a story")
        await talk.answers(1)
        await talk.listen(5)
        await talk.agent.send("again")
        await talk.until(lambda: seconds_of(talk.events) >= 7.8, "the story")
        await talk.listen(1)
        await talk.speak()
        await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
        await talk.listen(3)
    assert texts(talk.agent)[1] == f"a: {STORY}"
    heard = texts(talk.agent)[3].removeprefix("a: ")
    assert STORY.startswith(heard)
    assert 0 < len(heard) < 30


# --- tools ---


@pytest.mark.parametrize("options", [{"twice": True}, {"apart": True}, {}])
async def test_calls_are_answered_and_spoken_of(server, clock, options):
    server.call_tools([("sky", {"city": "Paris"}), ("sky", {"city": "Rome"})], **options).say("Blue.", seconds=0.5)
    async with talk_with(server, clock) as talk:
        await talk.agent.send("What colour is the sky?")
        await talk.answers(1)
        await talk.listen(2)
    results = [value for _, value in server.sessions[0].results]
    assert results == [{"text": "blue over Paris"}, {"text": "blue over Rome"}]
    assert texts(talk.agent)[-1] == "a: Blue."
    assert server.complaints() == []


async def test_the_input_of_a_call_that_is_no_json_is_refused_and_the_model_is_told(server, clock):
    server.call_tools([("sky", "not json")]).say("Sorry.", seconds=0.5)
    async with talk_with(server, clock) as talk:
        await talk.agent.send("What colour is the sky?")
        await talk.answers(1)
    [(_, value)] = server.sessions[0].results
    assert value["status"] == "error"


async def test_a_result_that_comes_after_a_restart_is_told_in_words(server, clock):
    finish = asyncio.Event()

    @tool
    async def slow() -> str:
        """Takes its time."""
        await finish.wait()
        return "done at last"

    server.call_tools([("slow", {})]).expire().say("It is done.", seconds=0.5)
    agent = BidiAgent(make(server, clock=clock), clock=clock, tools=[slow])
    async with Talk(agent, clock) as talk:
        await talk.agent.send("begin")
        await talk.until(lambda: len(server.sessions) == 2 and server.sessions[1].stage == "talk", "another connection")
        await talk.listen(0.1)
        finish.set()
        await talk.answers(1)
        await talk.listen(2)
    assert server.sessions[1].typed == ['[The tool \'slow\' has answered: {"text": "done at last"}]']
    assert texts(agent) == ["u: begin", "a: [call slow]", "u: [result]", "a: It is done."]
    assert server.complaints() == []


# --- restarts ---


@pytest.mark.parametrize(
    "ending",
    [
        lambda server: server.expire(),
        lambda server: server.expire(timeout=True),
        lambda server: server.reset(),
        lambda server: server.error(
            "internalServerException", "System instability detected. Please retry your request."
        ),
    ],
)
async def test_a_session_that_the_service_ends_goes_on_in_another_which_is_told_what_was_said(server, clock, ending):
    given = []

    async def keys():
        given.append(1)
        server.credentials = replace(server.credentials, session_token=f"token-{len(given)}")
        return {
            "access_key_id": server.credentials.access_key_id,
            "secret_access_key": server.credentials.secret_access_key,
            "session_token": server.credentials.session_token,
        }

    ending(server.say("My name is Ann.", seconds=0.5))
    server.say("I am Ann.", seconds=0.5)
    async with talk_with(server, clock, credentials=keys) as talk:
        await talk.agent.send("Who are you?")
        await talk.answers(1)
        await talk.listen(2)
        await talk.until(lambda: bool(talk.of(BidiConnectionRestartEvent)), "a restart")
        await talk.agent.send("Who?")
        await talk.answers(2)
        await talk.listen(2)
    assert [session.headers["x-amz-security-token"] for session in server.sessions] == ["token-1", "token-2"]
    assert server.seeded() == [("user", "Who are you?"), ("assistant", "My name is Ann.")]
    assert texts(talk.agent) == ["u: Who are you?", "a: My name is Ann.", "u: Who?", "a: I am Ann."]
    assert server.complaints() == []


async def test_a_connection_is_renewed_before_its_time_is_up(server, clock):
    async with talk_with(server, clock, silence_s=None) as talk:
        await talk.listen(421)
        await talk.until(lambda: len(server.sessions) == 2, "another connection")
        assert talk.of(BidiConnectionRestartEvent)[0].reason == "scheduled"
    assert [session.ended_well for session in server.sessions] == [True, True]


async def test_a_connection_is_renewed_before_its_keys_end(server, clock):
    keys = replace(server.credentials, expires_at=clock.utc() + timedelta(seconds=300))
    async with talk_with(server, clock, credentials=keys, silence_s=None) as talk:
        assert talk.agent.model.get_connection_config()["restart_after_s"] == 150
        await talk.listen(151)
        await talk.until(lambda: len(server.sessions) == 2, "another connection")


async def test_without_restarts_the_end_of_the_session_is_an_error(server, clock):
    server.expire()
    async with talk_with(server, clock, connection={"auto_restart": False}) as talk:
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ConnectionTimeoutError)


async def test_the_goodbye_of_a_server_that_serves_the_session_to_its_end_ends_nothing(server, clock):
    server.go_away().say("Still here.", seconds=0.5)
    async with talk_with(server, clock) as talk:
        await talk.agent.send("Are you there?")
        await talk.answers(1)
    assert len(server.sessions) == 1


# --- errors while it talks ---


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (lambda server: server.throttle(), ModelThrottledException),
        (lambda server: server.error("serviceUnavailableException"), ModelError),
        (lambda server: server.error("modelStreamErrorException"), ModelError),
        (lambda server: server.error("validationException"), ModelRequestError),
        (lambda server: server.unmodelled("ServiceQuotaExceededException"), ModelQuotaError),
        (lambda server: server.unmodelled("ExpiredTokenException"), ModelCredentialsError),
        (lambda server: server.malformed(), ModelProtocolError),
        (lambda server: server.malformed(b"\0\0\0"), ModelError),
        (lambda server: server.cut(), ConnectionEndedError),
        (lambda server: server.end(), ConnectionEndedError),
    ],
)
async def test_a_session_that_ends_by_an_error_ends_the_talk_with_it(server, clock, ending, error):
    ending(server.say("Hello.", seconds=0.2))
    if error is ModelError:
        server.end()
    async with talk_with(server, clock) as talk:
        await talk.agent.send("hello")
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, error)
    assert seconds_of(talk.events) == pytest.approx(0.2)


async def test_a_complaint_that_does_not_end_the_session_does_not_end_the_talk(server, clock):
    server.call_tools([("sky", {"city": "Paris"})])
    server.error("validationException", "Tool Response parsing error", fatal=False)
    server.say("Blue.", seconds=0.5)
    async with talk_with(server, clock) as talk:
        await talk.agent.send("What colour is the sky?")
        await talk.answers(1)
    assert talk.error is None


@pytest.mark.parametrize("manners", [Manners(piece=1), Manners(window=20), Manners(merge=4)])
async def test_however_the_network_behaves_the_talk_is_the_same(manners, clock):
    async with NovaSonicServer(manners=manners) as server:
        server.hear("What time is it?").say("Noon.", seconds=0.1)
        async with talk_with(server, clock) as talk:
            await talk.speak()
            await talk.answers(1)
            await talk.listen(1)
        assert texts(talk.agent) == ["u: What time is it?", "a: Noon."]
        assert server.complaints() == []


async def test_a_slow_service_is_waited_for():
    clock = VirtualClock(settle=0.005)
    async with NovaSonicServer(manners=Manners(delay_s=0.3), clock=clock) as server:
        server.say("Noon.", seconds=0.1)
        model = make(server, clock=clock, silence_s=None)
        await model.start()
        await model.send(BidiMessage([TextBlock("What time is it?")]))
        events = []
        async for event in model.receive():
            events.append(event)
            if isinstance(event, BidiResponseStopEvent):
                break
        await model.stop()
    assert any(isinstance(event, BidiAudioDeltaEvent) for event in events)


# --- errors before it talks ---


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (403, "AccessDeniedException", "You don't have access to the model.", ModelCredentialsError),
        (404, "ResourceNotFoundException", "Could not find it.", ModelNotFoundError),
        (400, "ValidationException", "Something is wrong.", ModelRequestError),
        (400, "ServiceQuotaExceededException", "Too many sessions.", ModelQuotaError),
        (429, "ThrottlingException", "Slow down.", ModelThrottledException),
        (503, "ServiceUnavailableException", "Not now.", ModelError),
    ],
)
async def test_a_refusal_of_the_service_says_what_it_says(server, clock, status, kind, message, error):
    server.refuse(status, kind, message)
    with pytest.raises(error, match=message) as refused:
        await make(server, clock=clock).start(messages=[{"role": "user", "content": [{"text": "x" * 40_000}]}])
    assert kind in str(refused.value)


async def test_a_wrong_secret_is_told_to_be_one_and_not_told_itself(server, clock, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = replace(server.credentials, secret_access_key="a-wrong-secret-0123456789")
    model = make(server, clock=clock, credentials=wrong)
    with pytest.raises(ModelCredentialsError, match=r"InvalidSignatureException.*credentials") as refused:
        await model.start()
    told = repr(refused.value) + repr(model) + repr(model.get_config()) + repr(vars(model)) + caplog.text
    assert wrong.secret_access_key not in told


async def test_without_credentials_nothing_is_asked(server):
    model = BedrockNovaSonicModel(environ={}, endpoint_url=server.url)
    with pytest.raises(ModelCredentialsError, match="AWS_ACCESS_KEY_ID"):
        await model.start()
    assert server.sessions == []


async def test_keys_region_and_endpoint_may_stand_in_the_environment():
    async with NovaSonicServer(region="eu-north-1") as server:
        environ = {
            "AWS_ACCESS_KEY_ID": server.credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.key,
            "AWS_REGION": "eu-north-1",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url,
        }
        model = BedrockNovaSonicModel(environ=environ)
        assert model.get_config()["region"] == "eu-north-1"
        await model.start()
        await model.stop()
        assert server.sessions[0].ended_well


async def test_a_session_of_boto3_brings_its_own_credentials_and_region():
    import boto3

    async with NovaSonicServer(region="eu-north-1") as server:
        keys = server.credentials
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name="eu-north-1")
        model = BedrockNovaSonicModel(boto_session=session, endpoint_url=server.url)
        await model.start()
        await model.stop()
        assert server.sessions[0].ended_well


@pytest.mark.parametrize(
    ("source", "error", "told"),
    [
        (lambda: (_ for _ in ()).throw(RuntimeError("vault is shut")), ModelCredentialsError, "vault is shut"),
        (lambda: {"access_key_id": "a", "secret_access_key": ""}, ModelCredentialsError, "empty"),
        (lambda: {"access_key_id": "a", "secret": "b"}, InvalidTypeError, "'secret'"),
        (lambda: None, InvalidTypeError, "NoneType"),
    ],
)
async def test_keys_that_cannot_be_had_are_an_error_that_says_why(server, source, error, told):
    with pytest.raises(error, match=told):
        await make(server, credentials=source).start()


async def test_a_model_that_is_not_there_is_named(server, clock):
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        await make(server, clock=clock, model_id="no-such-model").start()


async def test_a_network_that_is_down_is_told():
    with pytest.raises(ModelConnectionError, match=r"us-east-1.*cannot be reached"):
        await BedrockNovaSonicModel(
            credentials={"access_key_id": "a", "secret_access_key": "b"}, endpoint_url=await nobody(), environ={}
        ).start()


async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up():
    silent = asyncio.Event()

    async def say_nothing(reader, writer):
        await reader.read()
        silent.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        model = BedrockNovaSonicModel(
            credentials={"access_key_id": "a", "secret_access_key": "b"},
            endpoint_url=url,
            environ={},
            clock=VirtualClock(settle=0.005),
            silence_s=None,
        )
        with pytest.raises(ModelConnectionError, match="did not accept the session within"):
            await model.start()
        await silent.wait()


async def test_a_certificate_that_nobody_vouches_for_is_refused():
    async with NovaSonicServer(tls=LoopbackAuthority().server_context("h2")) as server:
        with pytest.raises(ModelConnectionError, match="certificate"):
            await make(server).start()
        assert server.sessions == []


async def test_a_start_that_is_given_up_leaves_nothing_behind(server):
    model = make(server)
    starting = asyncio.create_task(model.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    with pytest.raises(ConnectionEndedError):
        await model.send(AudioDelta("pcm", {"bytes": b"\0\0"}))
    await model.start()
    await model.stop()


async def test_two_models_talk_at_the_same_time(server):
    one, other = make(server), make(server)
    await asyncio.gather(one.start(), other.start())
    await asyncio.gather(one.stop(), other.stop())
    assert [session.ended_well for session in server.sessions] == [True, True]


# --- settings ---


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"model_id": " "}, InvalidInputError, "model_id"),
        ({"voice": ""}, InvalidInputError, "voice"),
        ({"audio": {"input": {"sample_rate": 44100}}}, AudioFormatError, "44100"),
        ({"audio": {"output": {"channels": 2}}}, AudioFormatError, "one channel"),
        ({"audio": {"both": {}}}, InvalidInputError, "'both'"),
        ({"params": {"beams": 3}}, InvalidInputError, "beams"),
        ({"params": {"temperature": 2}}, InvalidInputError, "temperature"),
        ({"params": {"max_tokens": True}}, InvalidInputError, "max_tokens"),
        ({"turn_detection": "SOON"}, InvalidInputError, "SOON"),
        ({"silence_s": 0}, InvalidInputError, "silence_s"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(given, error, told):
    with pytest.raises(error, match=told):
        BedrockNovaSonicModel(environ={}, **given)


def test_a_session_of_boto3_goes_with_no_other_credentials_or_region():
    import boto3

    with pytest.raises(InvalidInputError, match="boto_session"):
        BedrockNovaSonicModel(boto_session=boto3.Session(), region="us-east-1")


def test_a_configuration_is_changed_as_a_whole_or_not_at_all():
    model = BedrockNovaSonicModel(environ={})
    with pytest.raises(InvalidInputError, match="SOON"):
        model.update_config(voice="tiffany", turn_detection="SOON")
    with pytest.raises(InvalidInputError, match="'speed'"):
        model.update_config(speed=2)
    assert model.get_config()["voice"] == "matthew"
    model.update_config(voice="tiffany", audio={"output": {"sample_rate": 8000}})
    assert model.get_audio_config()["output"] == {
        "sample_rate": 8000,
        "channels": 1,
        "format": "pcm",
        "voice": "tiffany",
    }
    assert model.get_connection_config() == {"restart_after_s": 420.0, "auto_restart": True}


# --- the script of the server ---


async def test_an_answer_that_was_held_goes_on_when_it_is_released(server, clock):
    server.refuse_resume().usage(input_tokens=3, output_tokens=4)
    server.say_and_hold("One two. Three four.", seconds=2, after=1.5).go_on()
    async with talk_with(server, clock) as talk:
        await talk.agent.send("count")
        await talk.answers(1)
        await talk.listen(3)
    assert seconds_of(talk.events) == pytest.approx(2, abs=0.001)
    assert texts(talk.agent) == ["u: count", "a: One two. Three four."]
    assert talk.of(BidiUsageEvent)[0].input_tokens == 3
    assert server.done


async def test_an_event_of_ones_own_is_sent_as_it_stands(server, clock):
    server.event("contentStart", {"type": "TEXT"})
    async with talk_with(server, clock) as talk:
        await talk.until(lambda: talk.error is not None, "the end")
    assert isinstance(talk.error, ModelProtocolError)


async def test_a_talk_goes_on_while_the_loudspeaker_is_asked_for_by_the_user_again_and_again(server, clock):
    async with talk_with(server, clock) as talk:
        for number in range(4):
            before = seconds_of(talk.events)
            server.say_and_hold("la " * 30, seconds=3, after=1).barge_in(f"stop {number}", signals=("marker", "audio"))
            await talk.agent.send(f"sing {number}")
            await talk.until(lambda before=before: seconds_of(talk.events) >= before + 0.99, "the song")
            await talk.listen(0.5)
            await talk.speak()
            await talk.until(lambda number=number: len(talk.of(BidiBargeInEvent)) == number + 1, "the barge-in")
            server.say("All right.", seconds=0.2)
            await talk.until(lambda before=before: seconds_of(talk.events) > before + 1.19, "an answer")
            await talk.listen(2)
    said = texts(talk.agent)
    assert [text for text in said if text.startswith("u: stop")] == [f"u: stop {number}" for number in range(4)]
    assert said.count("a: All right.") == 4
    assert server.complaints() == []

"""Bugs that other projects had with live models, as what is true here instead.

Each test names whose bug it is. Bugs that are answered by a test of another module (the contract suite, the codecs, the
agent) are not repeated here.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import BidiMessage, TextBlock, ToolResultBlock
from antiphon.conversation.repair import problems
from antiphon.errors import ModelError, ModelQuotaError, ModelThrottledException
from antiphon.events import (
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiUsageEvent,
)
from antiphon.models import GoogleGeminiLiveModel, OpenAIRealtimeModel
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.testing.servers import GeminiLiveServer, NovaSonicServer, OpenAIRealtimeServer
from antiphon.tools.decorator import tool
from tests.models.bedrock import nova_wire_format as nova
from tests.models.contract.providers import PROVIDERS
from tests.models.google import test_live_codec as gemini
from tests.models.openai.realtime_exchange import Exchange, make_codec

STORY = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."
REAL = ["OpenAI Realtime", "Gemini Live", "Nova Sonic"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=False)


@pytest.fixture(params=REAL)
async def provider(request, clock):
    async with PROVIDERS[request.param](clock) as provider:
        yield provider


@pytest.fixture
async def openai(clock):
    async with PROVIDERS["OpenAI Realtime"](clock) as provider:
        yield provider


def talk_with(provider, clock: VirtualClock, *, tools=()) -> Talk:
    return Talk(BidiAgent(provider.make(clock=clock), clock=clock, tools=list(tools)), clock)


def starts_and_stops(talk: Talk) -> None:
    """Every answer has begun once and ended once."""
    begun = Counter(event.response_id for event in talk.of(BidiResponseStartEvent))
    ended = Counter(event.response_id for event in talk.of(BidiResponseStopEvent))
    assert begun == ended
    assert set(begun.values()) == {1}


# Barge-in


async def test_an_answer_that_is_spoken_over_twice_is_cut_once(provider, clock):
    """strands 1.62: two barge-ins for one; strands-agents/harness-sdk #4502: two ends of one response."""
    provider.say_and_hold(STORY, 4, after=3)
    provider.barge_in("stop")
    provider.barge_in("stop, I said")
    provider.say("All right.")
    async with talk_with(provider, clock) as talk:
        await talk.agent.send("tell me a story")
        await talk.until(lambda: seconds_of(talk.events) > 2.9, "the story")
        await talk.listen(1)
        await talk.speak()
        await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
        await talk.speak()
        await talk.answers(2)
        await talk.listen(4)
    story = talk.of(BidiResponseStartEvent)[0].response_id
    assert [event.response_id for event in talk.of(BidiBargeInEvent)].count(story) == 1
    starts_and_stops(talk)
    said = texts(talk.agent)
    assert said[0] == "u: tell me a story"
    assert said[1].startswith("a: Once")
    assert "keys" not in said[1]
    assert said[-1] == "a: All right."
    assert sum(text.startswith("a: ") for text in said) == 2
    assert problems(talk.agent.messages) == []
    assert provider.complaints() == []


async def test_whoever_speaks_after_an_answer_was_heard_causes_no_truncate(openai, clock):
    """openai/openai-agents-python #2370: a truncate without an interruption, and the model repeats itself."""
    openai.say("My name is Ann.", seconds=1)
    openai.hear("and mine is Bob")
    openai.say("Hello Bob.", seconds=1)
    async with talk_with(openai, clock) as talk:
        await talk.agent.send("who are you?")
        await talk.answers(1)
        await talk.listen(3)
        await talk.speak()
        await talk.answers(2)
        await talk.listen(3)
    assert openai.sent("conversation.item.truncate") == []
    assert openai.sent("conversation.item.delete") == []
    assert texts(talk.agent) == ["u: who are you?", "a: My name is Ann.", "u: and mine is Bob", "a: Hello Bob."]


class RawRealtimeServer(OpenAIRealtimeServer):
    """Sends events as they stand, in the middle of an answer that is held."""

    def during(self, *kinds: tuple[str, dict]) -> None:
        async def act(link) -> None:
            at = {"response_id": link.session.response["id"], "item_id": link.session.items[-1]["id"]}
            events = [
                link.session.event(kind, **{"output_index": 0, "content_index": 0, **at, **fields})
                for kind, fields in kinds
            ]
            await self._send(link, *events)

        self._add(lambda link: link.rest is not None, act)


async def test_words_and_sound_that_follow_a_barge_in_are_not_heard_openai(clock):
    """livekit/agents #2094 and #2201: what was never heard stands in the history."""
    more = [
        ("response.output_audio_transcript.delta", {"delta": " Late words."}),
        ("response.output_audio.delta", {"delta": "AAAA" * 1000}),
        ("response.output_audio_transcript.done", {"transcript": STORY}),
        ("response.output_audio.done", {}),
    ]
    async with RawRealtimeServer() as server:
        server.make = lambda **given: OpenAIRealtimeModel(
            server.model_id, transcription_model_id="gpt-transcribe", api_key=server.key, base_url=server.url, **given
        )
        server.say_and_hold(STORY, 4, after=3)
        async with talk_with(server, clock) as talk:
            await talk.agent.send("tell me a story")
            await talk.until(lambda: seconds_of(talk.events) > 2.9, "the story")
            await talk.listen(1)
            server.during(("input_audio_buffer.speech_started", {"item_id": "item_user", "audio_start_ms": 0}), *more)
            await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
            await talk.listen(4)
            heard = seconds_of(talk.events)
    assert heard <= 3.1
    assert not any("Late" in text or "keys" in text for text in texts(talk.agent))


async def test_words_that_follow_a_barge_in_are_not_heard_gemini(clock):
    """pipecat #5426: text that nobody spoke is committed."""
    async with PROVIDERS["Gemini Live"](clock) as server:
        server.say_and_hold(STORY, 4, after=3)
        async with talk_with(server, clock) as talk:
            await talk.agent.send("tell me a story")
            await talk.until(lambda: seconds_of(talk.events) > 2.9, "the story")
            await talk.listen(1)
            late = {"serverContent": {"outputTranscription": {"text": " Late words."}}}
            over = {"serverContent": {"turnComplete": True}}
            server.emit({"serverContent": {"interrupted": True}}, late, over, late)
            await talk.answers(1)
            await talk.listen(4)
    assert len(texts(talk.agent)) == 2
    assert not any("Late" in text or "keys" in text for text in texts(talk.agent))


@pytest.mark.parametrize("understood", [True, False])
def test_words_that_follow_the_turn_of_an_answer_that_was_cut_do_not_begin_the_next_one_gemini(understood):
    """Transcripts are in no order with the rest, and nothing says whose words they are."""
    codec = gemini.codec()
    gemini.play(codec, gemini.content(modelTurn=gemini.sound(), outputTranscription={"text": "Once upon a time"}))
    codec.send(gemini.SOUND)
    gemini.play(codec, gemini.content(interrupted=True), gemini.content(turnComplete=True))
    assert gemini.play(codec, gemini.content(outputTranscription={"text": " a dragon"})) == []
    if understood:
        gemini.play(codec, gemini.content(inputTranscription={"text": "stop"}))
        answer = gemini.play(codec, gemini.content(outputTranscription={"text": "All right."}))
    else:
        answer = gemini.play(codec, gemini.content(modelTurn=gemini.sound()))
        answer += gemini.play(codec, gemini.content(outputTranscription={"text": "All right."}))
    assert gemini.names(answer)[0] == "response_start"
    assert [event.delta for event in answer if event.type == "bidi_transcript_delta"] == ["All right."]


def test_sound_that_follows_a_barge_in_belongs_to_the_answer_that_was_cut_nova():
    """Nova Sonic: sound that was on its way is not recalled."""
    codec = nova.opened()
    for frame in [
        nova.chunk("completionStart", {"completionId": "c"}),
        *nova.text("plan", "ASSISTANT", "SPECULATIVE", STORY),
        *nova.sound("sound", b"\0\0", stopped=None),
        *nova.text("mark", "ASSISTANT", "FINAL", '{ "interrupted" : true }'),
    ]:
        codec.receive(frame)
    names = {"contentId": "sound", "completionId": "c"}
    [late] = codec.receive(nova.chunk("audioOutput", {**names, "content": "AAAA"}))
    assert late.response_id == "c-1"
    over = codec.receive(nova.chunk("contentEnd", {**names, "type": "AUDIO", "stopReason": "INTERRUPTED"}))
    assert [event.type for event in over] == ["bidi_audio_stop"]


def test_an_answer_that_the_user_spoke_over_is_not_gone_on_with_by_the_next_connection():
    """What a line that drops has cut is said to its end; what the user has cut is not."""
    exchange = Exchange()
    exchange.hear("tell me a story")
    exchange.tell(list(exchange.session.answer(STORY, 0.5))[:4])
    assert exchange.codec.owed == "cut"
    codec = exchange.codec
    codec.receive(json.dumps(exchange.session.event("input_audio_buffer.speech_started", item_id="u")))
    assert codec.owed == ""
    codec.receive(json.dumps(exchange.session.event("input_audio_buffer.committed", item_id="u")))
    assert codec.owed == "said"
    codec.receive(json.dumps(exchange.session.event("response.created", response={"id": "next"})))
    assert codec.owed == "cut"


# Answers


async def test_what_was_throttled_and_then_answered_with_the_users_next_words_is_not_answered_again():
    """google/adk-python #954: a reply is produced twice."""
    exchange = Exchange()
    exchange.send("hello")
    exchange.tell(exchange.session.failed("rate_limit_exceeded", "slow down", "rate_limit_error"))
    exchange.hear("are you there?")
    exchange.say("Yes. Hello.")
    exchange.codec.ring("again")
    exchange.tell(exchange.cross())
    assert exchange.asked() == 1
    assert exchange.codec.owed == ""
    assert exchange.refusals == []


@pytest.mark.parametrize("speaks_first", [False, True])
async def test_what_was_throttled_is_answered_once(speaks_first):
    """The user may also begin to speak while the provider is left alone, and say nothing."""
    exchange = Exchange()
    exchange.send("hello")
    exchange.tell(exchange.session.failed("rate_limit_exceeded", "slow down", "rate_limit_error"))
    if speaks_first:
        item_id, events = exchange.session.speech()
        exchange.tell([*events, *exchange.session.silence(item_id)])
    exchange.codec.ring("again")
    exchange.codec.ring("heard")
    exchange.tell(exchange.cross())
    assert exchange.asked() == 2
    exchange.say("Hello.")
    assert exchange.asked() == 2
    assert exchange.refusals == []


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_an_answer_that_a_limit_or_a_filter_cut_short_says_so(reason):
    """OpenAI Realtime: `response.done` with status `incomplete`; strands drops the reason."""
    exchange = Exchange()
    exchange.hear("tell me a story")
    session = exchange.session
    events = exchange.tell(
        [*session.answer("Once", 0.2), session.done("incomplete", {"type": "incomplete", "reason": reason})]
    )
    [stop] = [event for event in events if isinstance(event, BidiResponseStopEvent)]
    assert stop.reason == reason


def test_an_answer_that_is_told_to_be_complete_twice_costs_once():
    """strands-agents/harness-sdk #4502: the end of a response counts twice."""
    exchange = Exchange()
    exchange.hear("hello")
    done = [*exchange.session.answer("Hi.", 0.1), exchange.session.done()]
    events = exchange.tell([*done, done[-1]])
    assert [event.type for event in events].count("bidi_response_stop") == 1
    assert sum(isinstance(event, BidiUsageEvent) for event in events) == 1


@pytest.mark.parametrize(
    "event",
    [
        {"type": "rate_limits.updated", "rate_limits": None},
        {"type": "rate_limits.updated", "rate_limits": [{"remaining": "many"}, {"remaining": 3, "burst": {}}]},
        {"type": "conversation.item.added", "item": {"id": "i", "type": "mcp_call", "arguments": {"a": 1}}},
        {"type": "conversation.item.input_audio_transcription.completed", "item_id": "u", "transcript": None},
        {"type": "conversation.item.input_audio_transcription.failed", "item_id": "u", "error": {"message": None}},
        {"type": "response.done", "response": {"id": "r", "status": "completed", "usage": []}},
        {"type": "response.created", "response": {"id": "r", "voice": {"id": "x"}, "tokens": 3}},
    ],
)
def test_a_detail_that_a_later_protocol_writes_otherwise_ends_no_talk(event):
    exchange = Exchange()
    exchange.codec.receive(json.dumps(event))
    exchange.tell([exchange.session.event("response.done", response={"id": "r", "status": "completed"})])
    exchange.send("hello")
    assert [one.type for one in exchange.say("Hi.")][-1] == "bidi_response_stop"


def test_an_error_without_words_is_the_error_that_it_is():
    codec = make_codec()
    codec.open()
    error = {"type": "invalid_request_error", "code": "insufficient_quota", "message": None, "param": ["odd"]}
    with pytest.raises(ModelQuotaError, match="no reason given"):
        codec.receive(json.dumps({"type": "error", "error": error}))


# Errors in the middle of an answer


def harm(provider) -> type[ModelError]:
    match provider:
        case OpenAIRealtimeServer():
            provider.error("insufficient_quota")
            return ModelQuotaError
        case GeminiLiveServer():
            provider.emit({"error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}})
            return ModelThrottledException
        case _:
            provider.throttle()
            return ModelThrottledException


async def test_an_error_in_mid_answer_ends_the_talk_with_its_words_and_what_was_heard(provider, clock):
    """livekit/agents #5879 and #3145: the agent goes dead, and nobody is told."""
    provider.say_and_hold(STORY, 4, after=3)
    talk = talk_with(provider, clock)
    async with talk:
        await talk.agent.send("tell me a story")
        await talk.until(lambda: seconds_of(talk.events) > 2.9, "the story")
        await talk.listen(1)
        kind = harm(provider)
        await talk.until(lambda: talk.error is not None, "the end")
        await talk.listen(6)
    assert isinstance(talk.error, kind)
    said = texts(talk.agent)
    assert said[0] == "u: tell me a story"
    assert said[1].startswith("a: Once")
    assert len(said) == 2
    assert problems(talk.agent.messages) == []


def annoy(provider) -> None:
    match provider:
        case OpenAIRealtimeServer():
            provider.error("response_cancel_not_active")
        case NovaSonicServer():
            provider.error("modelStreamErrorException", "Tool Response parsing error", fatal=False)
        case _:
            provider.unknown_event()


async def test_a_complaint_that_harms_nothing_leaves_the_answer_alone(provider, clock):
    """openai/openai-agents-python PR #4122 and others: an error of a lost race ends the call."""
    provider.say_and_hold("One two. Three four.", 2, after=1)
    annoy(provider)
    provider.go_on()
    async with talk_with(provider, clock) as talk:
        await talk.agent.send("count")
        await talk.answers(1)
        await talk.listen(3)
        assert talk.error is None
    assert texts(talk.agent) == ["u: count", "a: One two. Three four."]
    starts_and_stops(talk)


# Tools


async def test_a_tool_that_works_while_the_user_speaks_runs_once_and_is_answered_once(openai, clock):
    """livekit/agents #3702 (run twice), #995 (silence), #5092 (a session that is dead); pipecat #3548 (never answered)."""
    runs: list[str] = []
    go_on = asyncio.Event()

    @tool
    async def order(what: str) -> str:
        """Orders something."""
        runs.append(what)
        await go_on.wait()
        return "ordered"

    openai.call_tools([("order", {"what": "tea"})])
    openai.hear("and hurry up")
    openai.say("I do.", seconds=1)
    async with talk_with(openai, clock, tools=[order]) as talk:
        await talk.agent.send("order tea")
        await talk.until(lambda: bool(runs), "the order")
        await talk.speak()
        await talk.answers(2)
        await talk.listen(3)
        openai.say("It is ordered.", seconds=1)
        go_on.set()
        await talk.answers(3)
        await talk.listen(3)
    assert runs == ["tea"]
    outputs = [
        event for event in openai.sent("conversation.item.create") if event["item"]["type"] == "function_call_output"
    ]
    assert len(outputs) == 1
    assert openai.complaints() == []
    assert texts(talk.agent)[-1] == "a: It is ordered."
    assert problems(talk.agent.messages) == []


def test_an_interruption_that_takes_no_call_back_leaves_it_to_be_answered():
    """livekit/agents-js #2249: an interrupted call is never answered, and the microphone is dead from there on."""
    codec = gemini.codec()
    [call] = [
        use
        for event in codec.receive(gemini.frame({"toolCall": {"functionCalls": [{"id": "a", "name": "noon"}]}}))
        for use in getattr(event, "tool_uses", [])
    ]
    codec.receive(gemini.content(interrupted=True))
    codec.receive(gemini.content(turnComplete=True))
    codec.send(BidiMessage([ToolResultBlock(call["toolUseId"], "success", [{"text": "noon"}])]))
    [told] = gemini.sent(codec)
    [response] = told["toolResponse"]["functionResponses"]
    assert (response["id"], response["name"]) == ("a", "noon")


# Connections


async def test_a_session_that_ends_by_its_deadline_and_is_refused_its_resumption_goes_on_in_a_new_one(clock):
    """discuss.ai.google.dev 186392: closed after 58 minutes with 1011, and the next resumption is refused with 1007."""
    async with PROVIDERS["Gemini Live"](clock) as server:
        server.say("My name is Ann.")
        async with talk_with(server, clock) as talk:
            await talk.agent.send("who are you?")
            await talk.answers(1)
            await talk.listen(3)
            server.refuse_resume(1007, "Request contains an invalid argument.")
            server.close(1011, "Deadline expired before operation could complete.")
            await talk.until(lambda: server.connections() == 3, "a new session")
            server.say("Ann, I said.")
            await talk.agent.send("who?")
            await talk.answers(2)
            await talk.listen(3)
        assert [event.reason for event in talk.of(BidiConnectionRestartEvent)] == ["timeout"]
        assert server.seeded() == [("user", "who are you?"), ("assistant", "My name is Ann.")]
    assert texts(talk.agent)[-1] == "a: Ann, I said."


async def test_a_session_is_resumed_by_another_process_that_is_given_the_handle(clock):
    """google/adk-python #4357: the handle is not to be had."""
    async with PROVIDERS["Gemini Live"](clock) as server:
        server.say("My name is Ann.")
        async with talk_with(server, clock) as talk:
            await talk.agent.send("who are you?")
            await talk.answers(1)
            await talk.listen(3)
            model = talk.agent.model
            assert isinstance(model, GoogleGeminiLiveModel)
            await talk.until(lambda: model.handle is not None, "a handle")
            handle = model.handle
        other = server.make(clock=clock)
        assert other.handle is None
        await other.start(handle=handle)
        setup = server.session.received[0]["setup"]
        await other.stop()
    assert setup["sessionResumption"] == {"handle": handle}


async def test_a_session_is_never_asked_for_what_only_vertex_has(clock):
    """google/adk-python #5771: `transparent` is forced, and the public API refuses it."""
    codec = gemini.codec(opened=False)
    [setup] = gemini.sent(codec)
    assert setup["setup"]["sessionResumption"] == {}


async def test_what_a_dead_connection_did_not_take_is_not_sent_over_the_next_one(provider, clock):
    """livekit/agents PR #7092: queued events of the dead socket go out after the replay."""
    model = provider.make(clock=clock)
    await model.start()
    codec = model._link.codec
    codec.send(BidiMessage([TextBlock("for the old connection")]))
    assert codec.outbox
    await model.restart(messages=[{"role": "user", "content": [{"text": "hello"}]}])
    await model.send(BidiMessage([TextBlock("for the new one")]))
    await provider.until(lambda it: any("for the new one" in text for _, text in it.told()))
    told = str(provider.told())
    await model.stop()
    assert "for the old" not in told
    assert "hello" in told
    assert provider.complaints() == []

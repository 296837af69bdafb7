"""The suites are strict: models that break one rule of their provider's protocol, or of the contract, fail them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from _pytest.outcomes import Failed
from msgspec.structs import replace

from antiphon import BidiAgent
from antiphon.content import AudioDelta
from antiphon.errors import AntiphonError, ModelError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
)
from antiphon.models import BedrockNovaSonicModel, GoogleGeminiLiveModel, OpenAIModel, OpenAIRealtimeModel
from antiphon.models.retrying import Retries
from antiphon.testing import BidiModelContract, ModelContract, VirtualClock
from antiphon.testing.model_suite.talk import Talk
from antiphon.testing.servers import GeminiLiveServer, NovaSonicServer, OpenAIChatServer, OpenAIRealtimeServer
from antiphon.transports.eventstream import Decoder, encode_message

Bend = Callable[[dict[str, Any]], Sequence[dict[str, Any]]]


def _unwrap(frame: str | bytes) -> dict[str, Any]:
    """What a frame says: JSON, or (AWS) JSON in base64 in JSON in an event stream's message."""
    if isinstance(frame, str):
        return json.loads(frame)
    [message] = Decoder().feed(frame)
    return json.loads(b64decode(json.loads(message.payload)["bytes"]))


def _wrap(said: dict[str, Any], like: str | bytes) -> str | bytes:
    if isinstance(like, str):
        return json.dumps(said)
    [message] = Decoder().feed(like)
    payload = json.dumps({"bytes": b64encode(json.dumps(said).encode()).decode()}).encode()
    return encode_message(message.headers, payload)


class BentWire:
    """A wire that changes what is sent."""

    def __init__(self, wire: Any, bend: Bend) -> None:
        self._wire, self._bend = wire, bend

    async def send(self, frames):
        await self._wire.send([_wrap(bent, frame) for frame in frames for bent in self._bend(_unwrap(frame))])

    async def receive(self):
        return await self._wire.receive()

    async def close(self):
        await self._wire.close()


class Bent:
    """A model whose wire is bent, with a bend of its own for each connection."""

    make_bend: Callable[[], Bend]

    async def _dial(self, codec):
        return BentWire(await super()._dial(codec), self.make_bend())


def straight() -> Bend:
    """Changes nothing."""
    return lambda event: [event]


# What can be wrong in OpenAI Realtime


def second_response() -> Bend:
    """Asks for a response although one is under way."""
    return lambda event: [event, event] if event["type"] == "response.create" else [event]


def truncates_past_the_end() -> Bend:
    """Says that more was heard than there is."""
    return lambda event: (
        [{**event, "audio_end_ms": 10_000_000}] if event["type"] == "conversation.item.truncate" else [event]
    )


def asks_after_each_result() -> Bend:
    """Asks for an answer after each result, and not when all are there."""

    def bend(event: dict[str, Any]) -> list[dict[str, Any]]:
        is_result = event.get("item", {}).get("type") == "function_call_output"
        return [event, {"type": "response.create"}] if is_result else [event]

    return bend


def results_before_their_calls() -> Bend:
    """Tells a result before the call that it is of."""
    held: list[dict[str, Any]] = []

    def bend(event: dict[str, Any]) -> list[dict[str, Any]]:
        kind = event.get("item", {}).get("type")
        if kind == "function_call":
            held.append(event)
            return []
        return [event, *[held.pop() for _ in held]] if kind == "function_call_output" else [event]

    return bend


def long_ids() -> Bend:
    """Sends ids as another provider made them."""

    def bend(event: dict[str, Any]) -> list[dict[str, Any]]:
        if "call_id" in event.get("item", {}):
            return [{**event, "item": {**event["item"], "call_id": event["item"]["call_id"] + "z" * 60}}]
        return [event]

    return bend


def both_modalities() -> Bend:
    """Asks for sound and text at once."""
    return lambda event: (
        [{**event, "session": {**event["session"], "output_modalities": ["audio", "text"]}}]
        if event["type"] == "session.update"
        else [event]
    )


def forgets_what_was_said() -> Bend:
    """Opens a new connection with other words than those that were said."""

    def bend(event: dict[str, Any]) -> list[dict[str, Any]]:
        if event.get("event_id", "").startswith("history-") and "content" in event["item"]:
            parts = [{**part, "text": "something"} for part in event["item"]["content"]]
            return [{**event, "item": {**event["item"], "content": parts}}]
        return [event]

    return bend


# What can be wrong in Gemini Live


def before_the_setup() -> Bend:
    """Sends something before the setup."""
    first = [True]

    def bend(message: dict[str, Any]) -> list[dict[str, Any]]:
        if first.pop() if first else False:
            return [{"realtimeInput": {"text": "hello"}}, message]
        return [message]

    return bend


def two_fields() -> Bend:
    """Puts two fields into one message of realtime input."""
    return lambda message: (
        [{"realtimeInput": {**message["realtimeInput"], "activityStart": {}, "text": "x"}}]
        if "realtimeInput" in message
        else [message]
    )


def content_in_the_middle() -> Bend:
    """Sends typed words as content, which only seeds a conversation."""
    return lambda message: (
        [
            {
                "clientContent": {
                    "turns": [{"role": "user", "parts": [{"text": message["realtimeInput"]["text"]}]}],
                    "turnComplete": True,
                }
            }
        ]
        if "text" in message.get("realtimeInput", {})
        else [message]
    )


def results_without_names() -> Bend:
    """Leaves the tool's name out of its result."""

    def bend(message: dict[str, Any]) -> list[dict[str, Any]]:
        if "toolResponse" not in message:
            return [message]
        parts = message["toolResponse"]["functionResponses"]
        return [{"toolResponse": {"functionResponses": [{**part, "id": "other-" + part["id"]} for part in parts]}}]

    return bend


def seeds_nothing() -> Bend:
    """Opens a new connection without the conversation, although it said that there is one."""

    def bend(message: dict[str, Any]) -> list[dict[str, Any]]:
        if "clientContent" in message:
            return [{"clientContent": {"turns": [], "turnComplete": True}}]
        return [message]

    return bend


# What can be wrong in Nova Sonic


def _event(name: str, change: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Bend:
    """Changes the events of one name."""

    def bend(said: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"event": {name: body}} for body in change(said["event"][name])] if name in said["event"] else [said]

    return bend


def prompt_before_session() -> Bend:
    """Begins the prompt before the session."""
    held: list[dict[str, Any]] = []

    def bend(said: dict[str, Any]) -> list[dict[str, Any]]:
        if "sessionStart" in said["event"]:
            held.append(said)
            return []
        return [said, *[held.pop() for _ in held]]

    return bend


def history_of_one_role() -> Bend:
    """Tells a history that does not alternate."""

    def change(body: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**body, "role": "USER"} if body["role"] == "ASSISTANT" else body]

    return _event("contentStart", change)


def sound_without_a_block() -> Bend:
    """Sends sound that is in no block."""
    return _event("audioInput", lambda body: [{**body, "contentName": "nowhere"}])


def results_that_are_no_json() -> Bend:
    """Tells a result in words and not in JSON."""
    return _event("toolResult", lambda body: [{**body, "content": "it is " + body["content"][:4]}])


def no_goodbye() -> Bend:
    """Ends the session without ending the prompt."""
    return _event("promptEnd", lambda _: [])


BENDS = [
    (BedrockNovaSonicModel, prompt_before_session, "test_typed_words_are_answered_again_and_again"),
    (BedrockNovaSonicModel, history_of_one_role, "test_a_new_process_hands_over_what_was_said"),
    (BedrockNovaSonicModel, sound_without_a_block, "test_a_spoken_question_and_its_answer_are_the_history"),
    (BedrockNovaSonicModel, results_that_are_no_json, "test_tools_are_called_and_their_results_are_spoken_of"),
    (BedrockNovaSonicModel, no_goodbye, "test_a_model_is_stopped_twice_and_started_again"),
    (OpenAIRealtimeModel, second_response, "test_typed_words_are_answered_again_and_again"),
    (
        OpenAIRealtimeModel,
        truncates_past_the_end,
        "test_after_a_barge_in_the_history_ends_with_what_was_heard",
    ),
    (
        OpenAIRealtimeModel,
        asks_after_each_result,
        "test_calls_at_the_same_time_are_all_answered_before_the_model_goes_on",
    ),
    (OpenAIRealtimeModel, results_before_their_calls, "test_a_new_process_hands_over_what_was_said"),
    (
        OpenAIRealtimeModel,
        long_ids,
        "test_a_long_history_is_handed_over_within_the_limits_the_newest_kept",
    ),
    (OpenAIRealtimeModel, both_modalities, "test_typed_words_are_answered_again_and_again"),
    (OpenAIRealtimeModel, forgets_what_was_said, "test_a_new_process_hands_over_what_was_said"),
    (GoogleGeminiLiveModel, before_the_setup, "test_typed_words_are_answered_again_and_again"),
    (GoogleGeminiLiveModel, two_fields, "test_a_spoken_question_and_its_answer_are_the_history"),
    (GoogleGeminiLiveModel, content_in_the_middle, "test_typed_words_are_answered_again_and_again"),
    (GoogleGeminiLiveModel, results_without_names, "test_tools_are_called_and_their_results_are_spoken_of"),
    (GoogleGeminiLiveModel, seeds_nothing, "test_a_new_process_hands_over_what_was_said"),
]


@asynccontextmanager
async def world(base: type, **members: Any):
    """A provider, and what makes a model of a changed class that talks to it."""
    changed = type(base.__name__, (Bent, base) if "make_bend" in members else (base,), members)
    if base is OpenAIRealtimeModel:
        async with OpenAIRealtimeServer() as server:
            yield (
                server,
                lambda **given: changed(
                    server.model_id,
                    transcription_model_id="gpt-transcribe",
                    api_key=server.key,
                    base_url=server.url,
                    **given,
                ),
            )
    elif base is BedrockNovaSonicModel:
        async with NovaSonicServer() as server:
            yield (
                server,
                lambda **given: changed(
                    credentials=server.credentials, endpoint_url=server.url, region=server.region, environ={}, **given
                ),
            )
    else:
        async with GeminiLiveServer() as server:
            yield server, lambda **given: changed(server.model_id, api_key=server.key, base_url=server.url, **given)


async def run(test: str, provider: Any, make_model: Any, patience_s: float = 15) -> None:
    """Run one test of the suite by hand; of those with parameters, one case."""
    suite = BidiModelContract()
    clock = VirtualClock(autojump=False)
    method = getattr(suite, test)
    wanted = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    given: dict[str, Any] = {"provider": provider, "clock": clock, "make_model": make_model}
    given |= {"end": "expire", "ends": 1, "seconds": 2.0}
    if "talkative_model" in wanted:
        given["talkative_model"] = make_model(clock=clock)
    if "model" in wanted:
        given["model"] = make_model(clock=clock)
    if "talk" in wanted:
        given["talk"] = Talk(
            BidiAgent(make_model(clock=clock), clock=clock, system_prompt="Be kind."), clock, patience_s
        )
    await method(**{name: given[name] for name in wanted})


@pytest.mark.parametrize(("base", "bend", "test"), BENDS, ids=lambda value: getattr(value, "__name__", None))
async def test_a_codec_that_breaks_a_rule_of_its_provider_fails_the_suite(base, bend, test):
    async with world(base, make_bend=staticmethod(straight)) as (provider, make_model):
        await run(test, provider, make_model)  # the codec as it is passes
    async with world(base, make_bend=staticmethod(bend)) as (provider, make_model):
        with pytest.raises((AssertionError, AntiphonError, BaseExceptionGroup)):
            await run(test, provider, make_model)


# What can be wrong in what the agent is told


def does_not_say_that_the_user_speaks(event: Any) -> list[Any]:
    return [] if isinstance(event, BidiBargeInEvent) else [event]


def loses_words(event: Any) -> list[Any]:
    return [] if isinstance(event, BidiTranscriptDeltaEvent) else [event]


def halves_the_sound(event: Any) -> list[Any]:
    return [replace(event, audio=event.audio[: len(event.audio) // 2])] if hasattr(event, "audio") else [event]


def calls_another_tool(event: Any) -> list[Any]:
    if isinstance(event, BidiToolUseBlocksEvent):
        return [BidiToolUseBlocksEvent(tool_uses=[{**use, "input": {}} for use in event.tool_uses])]
    return [event]


TOLD = [
    (does_not_say_that_the_user_speaks, "test_after_a_barge_in_the_history_ends_with_what_was_heard"),
    (loses_words, "test_typed_words_are_answered_again_and_again"),
    (halves_the_sound, "test_the_sound_of_an_answer_comes_whole_and_at_the_rate_that_was_promised"),
    (calls_another_tool, "test_tools_are_called_and_their_results_are_spoken_of"),
]


@pytest.mark.parametrize(("change", "test"), TOLD, ids=lambda value: getattr(value, "__name__", None))
async def test_a_model_that_tells_the_agent_something_else_fails_the_suite(change, test):
    async def receive(self):
        async for event in OpenAIRealtimeModel.receive(self):
            for told in change(event):
                yield told

    async with world(OpenAIRealtimeModel, receive=receive) as (provider, make_model):
        with pytest.raises((AssertionError, AntiphonError, BaseExceptionGroup)):
            await run(test, provider, make_model, patience_s=1)


# What can be wrong in the middle of an answer, between two connections, and between two calls


def asks_at_once() -> Bend:
    """Asks for an answer to what is typed although another answer is under way."""

    def bend(event: dict[str, Any]) -> list[dict[str, Any]]:
        typed = event["type"] == "conversation.item.create" and event["event_id"].startswith("item-")
        return [event, {"type": "response.create"}] if typed else [event]

    return bend


def with_changes(change: Callable[[Any], list[Any]]) -> Callable[[type], dict[str, Any]]:
    """A model that tells the agent something else."""

    def members(base: type) -> dict[str, Any]:
        async def receive(self):
            async for event in base.receive(self):
                for told in change(event):
                    yield told

        return {"receive": receive}

    return members


def bent(make_bend: Callable[[], Bend]) -> Callable[[type], dict[str, Any]]:
    """A model that sends something else."""
    return lambda base: {"make_bend": staticmethod(make_bend)}


def takes_sound_for_speech(base: type) -> dict[str, Any]:
    """Says that the user speaks over an answer whenever there is sound."""

    async def send(self, content, /):
        self.sounds = getattr(self, "sounds", 0) + isinstance(content, AudioDelta)
        await base.send(self, content)

    async def receive(self):
        async for event in base.receive(self):
            if getattr(self, "sounds", 0):
                self.sounds = 0
                yield BidiBargeInEvent()
            yield event

    return {"send": send, "receive": receive}


def notices_one_barge_in(base: type) -> dict[str, Any]:
    """Does not say that the user speaks over the model again."""

    async def receive(self):
        noticed = False
        async for event in base.receive(self):
            if not (noticed and isinstance(event, BidiBargeInEvent)):
                yield event
            noticed = noticed or isinstance(event, BidiBargeInEvent)

    return {"receive": receive}


def says_it_again(base: type) -> dict[str, Any]:
    """Begins another connection with what the one before was saying."""
    said: list[Any] = []

    async def receive(self):
        for event in [BidiResponseStartEvent(response_id="again"), *said] if said else []:
            yield event
        async for event in base.receive(self):
            if isinstance(event, BidiTranscriptStartEvent | BidiTranscriptDeltaEvent) and event.role == "assistant":
                said.append(event)
            elif isinstance(event, BidiAudioDeltaEvent):
                said.append(replace(event, response_id="again"))
            yield event

    return {"receive": receive}


def forgets_what_it_owes(base: type) -> dict[str, Any]:
    """Replaces a connection without a thought for what the old one had not answered."""

    async def restart(self, system_prompt=None, tools=None, messages=None, **_):
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages)

    return {"restart": restart}


def answers_from_an_older_state(base: type) -> dict[str, Any]:
    """Resumes a session by a handle that was made before the question."""

    async def restart(self, system_prompt=None, tools=None, messages=None, **_):
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages, handle=self._latest.handle)

    return {"restart": restart}


def swaps_sound(base: type) -> dict[str, Any]:
    """Sends pieces of sound in another order."""

    async def send(self, content, /):
        if isinstance(content, AudioDelta) and getattr(self, "kept", None) is None:
            self.kept = content
            return
        kept, self.kept = getattr(self, "kept", None), None
        await base.send(self, content)
        if kept is not None:
            await base.send(self, kept)

    return {"send": send}


def loses_sound(base: type) -> dict[str, Any]:
    """Takes no sound in the first moments of a connection."""

    async def send(self, content, /):
        self.sounds = getattr(self, "sounds", 0) + isinstance(content, AudioDelta)
        if not isinstance(content, AudioDelta) or self.sounds not in {5, 6}:
            await base.send(self, content)

    return {"send": send}


def remembers(base: type) -> dict[str, Any]:
    """Tells a call what was said in another one."""
    known: list[Any] = []

    async def start(self, system_prompt=None, tools=None, messages=None, **options):
        told = [*known, *(messages or [])]
        known.append({"role": "user", "content": [{"text": "What is the weather?"}]})
        await base.start(self, system_prompt, tools, told, **options)

    return {"start": start}


def lets_nobody_in(base: type) -> dict[str, Any]:
    """Is never told that somebody else has started it, and goes on as if nothing had happened."""

    async def receive(self):
        link = self._link
        try:
            async for event in base.receive(self):
                yield event
        finally:
            if self._link is not link:
                await asyncio.Event().wait()

    return {"receive": receive}


IN_THE_MIDDLE = [
    (OpenAIRealtimeModel, bent(asks_at_once), "test_what_is_typed_into_an_answer_is_answered_once"),
    (OpenAIRealtimeModel, takes_sound_for_speech, "test_sound_beside_an_answer_leaves_it_whole"),
    (
        OpenAIRealtimeModel,
        with_changes(does_not_say_that_the_user_speaks),
        "test_an_answer_that_is_cut_in_its_middle_is_known_as_far_as_it_was_heard",
    ),
    (
        OpenAIRealtimeModel,
        bent(truncates_past_the_end),
        "test_an_answer_that_is_cut_in_its_middle_is_known_as_far_as_it_was_heard",
    ),
    (OpenAIRealtimeModel, with_changes(loses_words), "test_an_answer_of_which_all_that_came_was_heard_ends_there"),
    (OpenAIRealtimeModel, notices_one_barge_in, "test_two_answers_are_cut_one_after_the_other"),
    (
        OpenAIRealtimeModel,
        with_changes(does_not_say_that_the_user_speaks),
        "test_whoever_speaks_twice_over_an_answer_is_answered",
    ),
    (
        OpenAIRealtimeModel,
        bent(asks_after_each_result),
        "test_a_result_that_comes_in_an_answer_is_spoken_of_after_it",
    ),
    (OpenAIRealtimeModel, says_it_again, "test_a_talk_that_is_ended_in_an_answer_keeps_what_was_heard"),
    (OpenAIRealtimeModel, says_it_again, "test_a_connection_that_ends_in_an_answer_leaves_what_was_heard"),
    (GoogleGeminiLiveModel, says_it_again, "test_a_connection_that_ends_in_an_answer_leaves_what_was_heard"),
    (BedrockNovaSonicModel, says_it_again, "test_a_connection_that_ends_in_an_answer_leaves_what_was_heard"),
    *[
        (base, forgets_what_it_owes, f"test_{test}")
        for base in (OpenAIRealtimeModel, GoogleGeminiLiveModel, BedrockNovaSonicModel)
        for test in (
            "a_question_that_the_old_connection_did_not_answer_is_answered_once_by_the_new_one",
            "speech_that_the_old_connection_did_not_answer_is_answered_once_by_the_new_one",
            "an_answer_that_broke_off_is_gone_on_with_once",
        )
    ],
    (
        OpenAIRealtimeModel,
        forgets_what_it_owes,
        "test_results_that_the_old_connection_did_not_answer_are_spoken_of_once_by_the_new_one",
    ),
    (
        GoogleGeminiLiveModel,
        forgets_what_it_owes,
        "test_an_end_that_is_announced_in_an_answer_is_met_and_the_answer_gone_on_with",
    ),
    (
        GoogleGeminiLiveModel,
        answers_from_an_older_state,
        "test_a_question_is_answered_although_connections_end_one_after_the_other",
    ),
    (
        GoogleGeminiLiveModel,
        swaps_sound,
        "test_sound_that_is_sent_during_a_restart_comes_in_order_the_newest_of_it",
    ),
    (
        BedrockNovaSonicModel,
        loses_sound,
        "test_sound_that_is_sent_during_a_restart_comes_in_order_the_newest_of_it",
    ),
    (OpenAIRealtimeModel, remembers, "test_a_second_call_over_a_model_knows_nothing_of_the_first"),
    (
        OpenAIRealtimeModel,
        lets_nobody_in,
        "test_whoever_starts_a_model_that_is_in_use_takes_it_over_and_the_other_is_told",
    ),
]


@pytest.mark.parametrize(("base", "members", "test"), IN_THE_MIDDLE, ids=lambda value: getattr(value, "__name__", None))
async def test_a_model_that_does_wrong_in_the_middle_of_something_fails_the_suite(base, members, test):
    async with world(base) as (provider, make_model):
        await run(test, provider, make_model)  # the model as it is passes
    async with world(base, **members(base)) as (provider, make_model):
        with pytest.raises((AssertionError, AntiphonError, BaseExceptionGroup)):
            await run(test, provider, make_model, patience_s=2)


# What can be wrong in a model that answers in turns


class Endless(OpenAIModel):
    """Does not say how an answer ends."""

    async def stream(self, *args, **options):
        async for event in super().stream(*args, **options):
            if "messageStop" not in event:
                yield event


class OneId(OpenAIModel):
    """Gives all calls one id."""

    async def stream(self, *args, **options):
        async for event in super().stream(*args, **options):
            start = event.get("contentBlockStart", {}).get("start", {})
            if "toolUse" in start:
                start["toolUse"]["toolUseId"] = "call-1"
            yield event


class Telling(OpenAIModel):
    """Has its key in the configuration."""

    def get_config(self):
        return {**super().get_config(), "api_key": self.kept}

    def __init__(self, *args, api_key, **options):
        self.kept = api_key
        super().__init__(*args, api_key=api_key, **options)


class Blunt(OpenAIModel):
    """Knows one error."""

    async def stream(self, *args, **options):
        try:
            async for event in super().stream(*args, **options):
                yield event
        except ModelError as error:
            raise ModelError(str(error)) from error


class Persistent(OpenAIModel):
    """Begins an answer anew that broke off."""

    async def stream(self, *args, **options):
        try:
            async for event in super().stream(*args, **options):
                yield event
        except ModelError:
            async for event in super().stream(*args, **options):
                yield event


class Impatient(OpenAIModel):
    """Does not ask again."""

    def __init__(self, *args, **options):
        super().__init__(*args, retries=Retries(max_attempts=1), **options)


TURNS = [
    (Endless, "test_an_answer_has_its_words_its_end_and_its_order"),
    (OneId, "test_calls_of_one_answer_are_told_apart"),
    (Telling, "test_the_configuration_is_a_copy_without_secrets"),
    (Blunt, "test_a_conversation_that_is_too_long_is_told_apart"),
    (Persistent, "test_an_answer_that_breaks_off_is_an_error_and_is_not_begun_anew"),
    (Impatient, "test_a_crowded_provider_is_asked_again"),
]


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize(("kind", "test"), TURNS, ids=lambda value: getattr(value, "__name__", None))
async def test_a_model_with_one_mistake_fails_the_suite(kind, test, changed):
    async with OpenAIChatServer() as server:

        def make(**given: Any) -> OpenAIModel:
            options = {"model_id": server.model_id, "api_key": server.key, "base_url": server.url, **given}
            return (kind if changed else OpenAIModel)(**options)

        method = getattr(ModelContract(), test)
        wanted = method.__code__.co_varnames[1 : method.__code__.co_argcount]
        known = {"provider": server, "make_model": make, "model": make()}
        given = {name: known[name] for name in wanted}
        if not changed:
            await method(**given)
            return
        with pytest.raises((AssertionError, AntiphonError, Failed, BaseExceptionGroup)):
            await method(**given)

"""The protocol without a wire: frames in, events out."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.audio import samples
from antiphon.content import AudioDelta, BidiMessage, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.conversation.effects import Commit, Insert, Replace
from antiphon.conversation.history import Conversation
from antiphon.errors import (
    AntiphonError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    InvalidInputError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelProtocolError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
    TransportError,
)
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionStartEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiUsageEvent,
)
from tests.models.openai.realtime_exchange import Exchange, frame, kinds, make_codec

PNG = ImageBlock("png", {"bytes": b"\x89PNG"})


def calls(events) -> list[dict]:
    return [use for event in events if isinstance(event, BidiToolUseBlocksEvent) for use in event.tool_uses]


def result(call: dict, text: str = "yes") -> ToolResultBlock:
    return ToolResultBlock(call["toolUseId"], "success", [{"text": text}])


def heard(events, role: str = "user") -> str:
    return "".join(
        event.delta for event in events if isinstance(event, BidiTranscriptDeltaEvent) and event.role == role
    )


# Opening


def test_nothing_is_said_before_the_server_has_spoken_and_one_thing_then():
    codec = make_codec()
    codec.open()
    assert not codec.outbox
    codec.receive(frame("session.created", session={"id": "sess_1"}))
    [update] = map(json.loads, codec.outbox)
    assert update["type"] == "session.update"
    assert not codec.ready


def test_a_session_is_told_what_it_is_and_is_ready_when_it_says_so():
    talk = Exchange(prompt="Be kind.")
    [update] = talk.sent("session.update")
    session = update["session"]
    assert session["instructions"] == "Be kind."
    assert session["audio"]["input"]["transcription"] == {"model": "gpt-transcribe"}
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "create_response": True,
        "interrupt_response": True,
    }
    assert session["audio"]["output"] == {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"}
    assert [tool["name"] for tool in session["tools"]] == ["noon"]
    assert talk.events == [BidiConnectionStartEvent(connection_id="sess_1", model="gpt-realtime-2")]
    assert talk.refusals == []


def test_params_are_merged_into_the_session():
    talk = Exchange(
        params={
            "audio": {
                "input": {"noise_reduction": {"type": "near_field"}, "turn_detection": {"silence_duration_ms": 300}}
            },
            "tools": [{"type": "mcp", "server_label": "docs", "server_url": "https://example.org"}],
            "max_output_tokens": 500,
        },
        transcription_model_id=None,
    )
    session = talk.sent("session.update")[0]["session"]
    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 300
    assert session["audio"]["input"]["turn_detection"]["create_response"] is True
    assert session["audio"]["input"]["transcription"] is None
    assert session["audio"]["output"]["voice"] == "marin"
    assert [tool["type"] for tool in session["tools"]] == ["function", "mcp"]
    assert session["max_output_tokens"] == 500


HISTORY: list[Message] = [
    {"role": "user", "content": [{"text": "Look"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}]},
    {
        "role": "assistant",
        "content": [
            {"text": "I see"},
            {"toolUse": {"toolUseId": "tooluse_" + "x" * 40, "name": "noon", "input": {"a": 1}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "tooluse_" + "x" * 40, "status": "success", "content": [{"json": [1]}]}}
        ],
    },
    {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "One."}]},
]


def test_a_history_is_told_as_text_with_pictures_and_paired_calls():
    talk = Exchange(messages=HISTORY)
    items = [event["item"] for event in talk.sent("conversation.item.create")]
    assert [(item["type"], item.get("role")) for item in items] == [
        ("message", "user"),
        ("message", "assistant"),
        ("function_call", None),
        ("function_call_output", None),
        ("message", "assistant"),
    ]
    assert items[0]["content"][1]["image_url"].startswith("data:image/png;base64,")
    assert items[2]["call_id"] == items[3]["call_id"]
    assert len(items[2]["call_id"]) == 32
    assert items[3]["output"] == "[1]"
    assert items[4]["content"] == [{"type": "output_text", "text": "One."}]
    assert talk.asked() == 0
    assert talk.refusals == []


def test_a_call_without_a_result_and_a_result_without_a_call_are_not_told():
    messages: list[Message] = [
        {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "status": "success", "content": []}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "b", "name": "noon", "input": {}}}]},
    ]
    assert Exchange(messages=messages).sent("conversation.item.create") == []


def test_of_a_long_history_the_newest_is_told_and_no_pair_is_torn():
    long: list[Message] = [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "noon", "input": {}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "a", "status": "success", "content": [{"text": "y" * 40_000}]}}],
        },
        {"role": "assistant", "content": [{"text": "z" * 30_000}]},
        {"role": "user", "content": [{"text": "newest"}]},
    ]
    items = [event["item"] for event in Exchange(messages=long).sent("conversation.item.create")]
    assert [item["content"][0]["text"][:6] for item in items] == ["zzzzzz", "newest"]
    huge: list[Message] = [{"role": "user", "content": [{"text": "x" * 100_000}]}]
    assert len(Exchange(messages=huge).sent("conversation.item.create")) == 1


def test_a_session_that_takes_the_place_of_another_is_told_so_and_answers_what_is_owed():
    last: list[Message] = [*HISTORY, {"role": "user", "content": [{"text": "And now?"}]}]
    talk = Exchange(messages=last, continued=True, owed="said")
    items = [event["item"] for event in talk.sent("conversation.item.create")]
    assert items[-1]["role"] == "system"
    assert talk.asked() == 1
    assert Exchange(messages=HISTORY, continued=True, owed="said").asked() == 0
    assert Exchange(messages=HISTORY, continued=True, owed="cut").asked() == 1
    assert Exchange(messages=last, continued=True).asked() == 0


def test_what_the_provider_refuses_of_the_history_is_an_error_of_the_start():
    codec = make_codec(messages=HISTORY)
    codec.open()
    codec.receive(frame("session.created", session={}))
    codec.receive(frame("session.updated", session={}))
    assert not codec.ready
    with pytest.raises(ModelRequestError, match="no such picture"):
        codec.receive(
            frame("error", error={"code": "invalid_value", "message": "no such picture", "event_id": "history-0"})
        )


# What goes out


def test_sound_goes_out_as_it_is():
    talk = Exchange()
    talk.codec.send(AudioDelta("pcm", {"bytes": b"\x01\x02" * 480}))
    [event] = map(json.loads, talk.codec.outbox)
    assert event["type"] == "input_audio_buffer.append"
    assert b64decode(event["audio"]) == b"\x01\x02" * 480


def test_half_a_sample_waits_for_its_other_half():
    talk = Exchange()
    for piece in (b"\x01", b"\x02\x03", b"\x04"):
        talk.codec.send(AudioDelta("pcm", {"bytes": piece}))
    talk.cross()
    assert bytes(talk.session.audio) == b"\x01\x02\x03\x04"


def test_sound_beyond_the_limit_of_one_event_goes_in_several():
    talk = Exchange()
    talk.codec.send(AudioDelta("pcm", {"bytes": bytes(16 * 1024 * 1024)}))
    talk.cross()
    assert len(talk.session.audio) == 16 * 1024 * 1024
    assert talk.refusals == []


def test_sound_is_converted_both_ways():
    talk = Exchange(audio={"input": {"sample_rate": 16000, "format": "pcmu"}, "output": {"sample_rate": 48000}})
    talk.codec.send(AudioDelta("pcm", {"bytes": b"\x00\x10" * 1600}))
    talk.cross()
    assert 780 <= len(talk.session.audio) <= 800  # 100 ms at 8 kHz, but for what the filter still holds
    talk.send("hello")
    sound = [event for event in talk.say("It is noon.", 0.5) if isinstance(event, BidiAudioDeltaEvent)]
    assert {event.sample_rate for event in sound} == {48000}
    assert sum(len(samples(event.audio)) for event in sound) == 24000
    assert talk.refusals == []


def test_typed_words_and_pictures_are_one_item_and_are_answered_once():
    talk = Exchange()
    talk.send("What is this?", PNG)
    [created] = talk.sent("conversation.item.create")
    assert [part["type"] for part in created["item"]["content"]] == ["input_text", "input_image"]
    assert talk.asked() == 1
    talk.say("A dot.")
    assert talk.asked() == 1


@pytest.mark.parametrize("image", [ImageBlock("gif", {"bytes": b"GIF"}), ImageBlock("png", {"location": {}})])
def test_a_picture_that_the_provider_does_not_take_is_refused_before_anything_is_sent(image):
    talk = Exchange()
    with pytest.raises(InvalidInputError, match="image"):
        talk.send("this", image)
    assert talk.cross() == []
    assert talk.asked() == 0


def test_a_response_is_asked_for_when_no_other_is_under_way():
    talk = Exchange()
    talk.send("one")
    talk.send("two")
    talk.send("three")
    assert talk.asked() == 1
    talk.say("One.")
    assert talk.asked() == 2
    talk.say("Two and three.")
    assert talk.asked() == 2
    assert talk.refusals == []


def test_what_a_response_to_speech_has_taken_into_account_is_not_asked_for():
    talk = Exchange()
    item_id, events = talk.session.speech()
    talk.tell(events)
    talk.send("typed meanwhile")
    talk.tell([*talk.session.silence(item_id), *talk.session.begin()])
    talk.say("Both.")
    assert talk.asked() == 0


def test_when_nothing_comes_of_a_noise_what_was_typed_is_asked_for():
    talk = Exchange()
    item_id, events = talk.session.speech()
    talk.tell(events)
    talk.send("typed meanwhile")
    talk.tell(talk.session.silence(item_id))
    assert talk.asked() == 0
    assert talk.alarms["heard"] == 1.0
    talk.codec.ring("heard")
    talk.tell(talk.cross())
    assert talk.asked() == 1


def test_a_request_that_crosses_a_response_to_speech_is_made_again_after_it():
    talk = Exchange()
    talk.codec.send(BidiMessage([TextBlock("typed")]))
    begun = talk.session.begin()  # of speech; it does not know what was typed
    answers = talk.cross()
    assert talk.refusals == ["conversation_already_has_active_response"]
    talk.tell([*begun, *answers])
    assert talk.asked() == 1
    talk.say("To what was said.")
    assert talk.asked() == 2
    talk.say("To what was typed.")
    assert talk.asked() == 2
    assert talk.codec.counts["absorbed conversation_already_has_active_response"] == 1


def test_a_request_that_crosses_a_response_which_knows_all_is_not_made_again():
    talk = Exchange()
    talk.codec.send(BidiMessage([TextBlock("typed")]))
    created, asked = talk.codec.outbox
    talk.codec.outbox = []
    begun = [*talk.session.receive(created), *talk.session.begin()]
    talk.tell([*begun, *talk.session.receive(asked)])
    talk.say("To both.")
    assert talk.asked() == 1


def test_a_provider_that_refuses_for_a_response_nobody_knows_of_is_left_alone():
    codec = Exchange().codec
    codec.send(BidiMessage([TextBlock("hello")]))
    codec.outbox = []
    active = {"code": "conversation_already_has_active_response", "message": "wait", "event_id": "ask-1"}
    for _ in range(3):
        codec.receive(frame("error", error=active))
    assert codec.outbox == []
    codec.receive(frame("response.done", response={"id": "resp_9", "status": "completed"}))
    assert [json.loads(sent)["type"] for sent in codec.outbox] == ["response.create"]


# Tools


def test_calls_of_one_answer_are_one_event_and_are_answered_before_one_response_is_asked_for():
    talk = Exchange()
    talk.send("hello")
    first, second = calls(talk.call("noon", "noon"))
    assert talk.asked() == 1
    talk.send(result(first))
    assert talk.asked() == 1
    talk.send(result(second))
    assert talk.asked() == 2
    assert talk.refusals == []


def test_a_tool_that_takes_its_time_does_not_keep_the_others_waiting_for_ever():
    talk = Exchange()
    talk.send("hello")
    first, second = calls(talk.call("noon", "noon"))
    talk.send(result(first))
    assert talk.alarms.pop("patience") == 2.0
    talk.send("and?")
    talk.tell([talk.session.event("response.sparkle")])
    assert "patience" not in talk.alarms  # what comes meanwhile does not make the wait longer
    talk.codec.ring("patience")
    talk.tell(talk.cross())
    assert talk.asked() == 2
    talk.say("One of them.")
    talk.send(result(second))
    assert talk.asked() == 3


@pytest.mark.parametrize("status", ["incomplete", "in_progress"])
def test_a_call_that_is_not_complete_is_not_made(status):
    talk = Exchange()
    talk.send("hello")
    events = talk.call("noon", status=status)
    assert calls(events) == []
    assert talk.asked() == 1


def test_a_call_that_was_complete_before_its_answer_was_cut_is_made_once():
    talk = Exchange()
    talk.send("hello")
    talk.tell(talk.session.calls([("noon", "{}")]))
    _, events = talk.session.speech()
    assert len(calls(talk.tell(events))) == 1


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        ("", {}),
        ("[1]", [1]),
        ('{"a": ', '{"a": '),
        (json.dumps("words"), "words"),
    ],
)
def test_arguments_are_decoded_as_often_as_they_were_encoded(arguments, value):
    talk = Exchange()
    talk.send("hello")
    events = talk.tell([*talk.session.calls([("noon", arguments)]), talk.session.done()])
    assert [call["input"] for call in calls(events)] == [value]


def test_a_result_for_a_call_of_another_session_brings_its_call_along():
    talk = Exchange()
    talk.send(
        ToolUseBlock("toolu_" + "y" * 40, "noon", {"a": 1}),
        ToolResultBlock("toolu_" + "y" * 40, "error", [{"text": "no"}]),
    )
    call, output = [event["item"] for event in talk.sent("conversation.item.create")]
    assert (call["type"], call["arguments"]) == ("function_call", '{"a":1}')
    assert (output["call_id"], output["output"]) == (call["call_id"], '{"error":"no"}')
    assert talk.asked() == 1
    assert talk.refusals == []


# What comes in


def test_a_spoken_answer_begins_sounds_and_ends():
    talk = Exchange()
    begun = talk.send("hello")
    events = [*begun, *talk.say("It is noon.", 0.3)]
    assert kinds(events) == [
        "response_start",
        *["audio_start", "transcript_start", "transcript_delta", "transcript_delta", "transcript_delta"],
        *["audio_stop", "transcript_stop", "usage", "response_stop"],
    ] or kinds(events) == [
        "response_start",
        *["transcript_start", "transcript_delta", "audio_start", "transcript_delta", "transcript_delta"],
        *["audio_stop", "transcript_stop", "usage", "response_stop"],
    ]
    sound = [event for event in events if isinstance(event, BidiAudioDeltaEvent)]
    assert sum(len(event.audio) for event in sound) == 300 * 48
    assert {event.response_id for event in sound} == {talk.session.answered[0]}
    assert heard(events, "assistant") == "It is noon."
    usage = next(event for event in events if isinstance(event, BidiUsageEvent))
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (20, 10, 30)
    assert usage.output_token_details == {"text_tokens": 0, "audio_tokens": 10}


def test_a_session_that_writes_gives_text():
    talk = Exchange(params={"output_modalities": ["text"]})
    talk.send("hello")
    events = talk.say("It is noon.")
    assert kinds(events)[:2] == ["text_start", "text_delta"]
    assert "".join(event.delta for event in events if isinstance(event, BidiTextDeltaEvent)) == "It is noon."


def test_words_that_come_only_at_the_end_are_told_once():
    talk = Exchange()
    talk.tell(talk.session.begin())
    events = [
        event for event in talk.session.answer("It is noon.", 0.1) if not event["type"].endswith("transcript.delta")
    ]
    assert heard(talk.tell(events), "assistant") == "It is noon."


def test_the_users_speech_has_its_place_at_once_and_its_words_when_they_come():
    talk = Exchange()
    events = talk.hear("What time is it?")
    assert kinds(events)[0] == "transcript_start"
    assert heard(events) == "What time is it?"
    assert kinds(events).count("transcript_stop") == 1


def test_words_that_cannot_be_made_out_are_inaudible_and_the_session_goes_on():
    talk = Exchange()
    item_id, _ = talk.session.speech()
    events = talk.tell([*talk.session.silence(item_id), *talk.session.transcribed(item_id, "", failed=True)])
    assert heard(events) == "[inaudible]"
    assert dict(talk.codec.counts) == {"untranscribed audio_unintelligible": 1}


def test_a_silence_that_the_provider_breaks_is_nothing_that_the_user_said():
    talk = Exchange()
    timeout = frame("input_audio_buffer.timeout_triggered", item_id="item_t", audio_start_ms=0, audio_end_ms=5000)
    assert list(talk.codec.receive(timeout)) == []
    assert list(talk.codec.receive(frame("input_audio_buffer.committed", item_id="item_t"))) == []
    done = frame(
        "conversation.item.input_audio_transcription.completed", item_id="item_t", content_index=0, transcript=""
    )
    assert list(talk.codec.receive(done)) == []


def test_a_later_protocols_events_are_counted_and_known_idle_ones_are_not():
    codec = Exchange().codec
    assert list(codec.receive(frame("response.sparkle.delta", delta="*"))) == []
    assert list(codec.receive(frame("response.content_part.added", part={}))) == []
    assert dict(codec.counts) == {"unknown response.sparkle.delta": 1}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        '"error"',
        '{"type": 1}',
        frame("response.output_audio.delta"),
        b"\xff\xfe",
        frame("response.done", response=1),
    ],
)
def test_what_cannot_be_read_is_an_error_that_shows_it(broken):
    with pytest.raises(ModelProtocolError):
        Exchange().codec.receive(broken)


def test_sound_that_is_no_base64_is_an_error():
    talk = Exchange()
    talk.tell(talk.session.begin())
    with pytest.raises(ModelProtocolError, match=r"response\.output_audio\.delta"):
        talk.codec.receive(frame("response.output_audio.delta", response_id="r", item_id="i", delta="???"))


# Barge-in


def held(talk: Exchange, text: str = "Once upon a time there was a dragon.", pieces: int = 3) -> str:
    """An answer of a second that stays in its middle; its id."""
    talk.send("hello")
    for event in talk.session.answer(text, 1.0):
        talk.tell([event])
        pieces -= event["type"] == "response.output_audio.delta"
        if not pieces:
            break
    return talk.session.answered[-1]


def test_speech_over_an_answer_is_one_barge_in_that_names_it():
    talk = Exchange()
    response_id = held(talk)
    events = talk.hear("stop")
    assert [event for event in events if isinstance(event, BidiBargeInEvent)] == [
        BidiBargeInEvent(response_id=response_id)
    ]
    assert kinds(events)[:2] == ["barge_in", "transcript_start"]


def test_a_cut_that_is_told_only_by_the_response_is_a_barge_in_too():
    talk = Exchange()
    held(talk)
    events = talk.tell(talk.session.cancelled("turn_detected"))
    assert kinds(events)[-3:] == ["barge_in", "usage", "response_stop"]


@pytest.mark.parametrize(
    ("played_ms", "commands"),
    [
        (150.7, [("truncate", 150)]),
        (5000, [("truncate", 300)]),  # nothing beyond the sound that was made
        (0, [("delete", None)]),
        (0.5, [("delete", None)]),
    ],
)
def test_what_was_heard_of_a_cut_answer_is_told_within_its_sound(played_ms, commands):
    talk = Exchange()
    response_id = held(talk)
    item_id, events = talk.session.speech()
    talk.tell(events)
    talk.codec.truncate(response_id, played_ms)
    talk.tell(talk.cross())
    sent = [
        event
        for event in talk.session.received
        if event["type"].startswith("conversation.item.") and "item_id" in event
    ]
    assert [(event["type"].rpartition(".")[2], event.get("audio_end_ms")) for event in sent] == commands
    assert talk.refusals == []
    assert item_id


def test_an_answer_that_was_heard_to_its_end_is_left_as_it_is():
    talk = Exchange()
    talk.send("hello")
    talk.say("It is noon.", 0.5)
    talk.codec.truncate(talk.session.answered[0], 500)
    talk.codec.truncate("resp_unknown", 1)
    assert talk.codec.outbox == []


def test_an_answer_is_corrected_when_it_has_ended_not_while_it_grows():
    talk = Exchange()
    response_id = held(talk)
    talk.codec.truncate(response_id, 100)
    assert talk.codec.outbox == []
    talk.tell(talk.session.cancelled("turn_detected"))
    assert [event["audio_end_ms"] for event in talk.sent("conversation.item.truncate")] == [100]


def test_words_without_sound_were_not_heard_and_are_deleted():
    talk = Exchange()
    at = {"response_id": "r", "item_id": "i"}
    talk.codec.receive(frame("response.output_audio_transcript.delta", delta="Once", **at))
    talk.codec.receive(frame("response.done", response={"id": "r", "status": "cancelled"}))
    talk.codec.truncate("r", 300)
    [told] = map(json.loads, talk.codec.outbox)
    assert (told["type"], told["item_id"]) == ("conversation.item.delete", "i")


def test_of_two_messages_the_one_that_was_not_reached_is_deleted():
    talk = Exchange()
    talk.send("hello")
    talk.tell([*talk.session.answer("First.", 0.5), *talk.session.answer("Second.", 0.5), talk.session.done()])
    talk.codec.truncate(talk.session.answered[0], 200)
    talk.tell(talk.cross())
    first, second = [item for item in talk.events if isinstance(item, BidiTranscriptStartEvent)]
    assert talk.session.truncated == {first.content_id: 200}
    assert talk.session.deleted == [second.content_id]


@given(played=st.lists(st.floats(0, 1500), max_size=4), end=st.integers(0, 10))
def test_whatever_is_reported_as_heard_the_provider_never_refuses_it(played, end):
    talk = Exchange()
    response_id = held(talk, pieces=end)
    for index, ms in enumerate(played):
        if index == len(played) // 2 and talk.session.response is not None:
            talk.tell(talk.session.cancelled("turn_detected"))
        talk.codec.truncate(response_id, ms)
        talk.tell(talk.cross())
    assert talk.refusals == []


# Errors


def error(code: str | None, message: str = "words", **more) -> str:
    return frame(
        "error", error={"type": "invalid_request_error", "code": code, "message": message, "param": None, **more}
    )


@pytest.mark.parametrize(
    ("code", "more", "expected"),
    [
        ("session_expired", {}, ConnectionTimeoutError),
        ("invalid_api_key", {}, ModelCredentialsError),
        ("account_deactivated", {}, ModelCredentialsError),
        ("insufficient_quota", {"type": "insufficient_quota"}, ModelQuotaError),
        ("credit_balance_exhausted", {}, ModelQuotaError),
        ("billing_hard_limit_reached", {}, ModelQuotaError),
        ("model_not_found", {}, ModelNotFoundError),
        ("rate_limit_exceeded", {"type": "rate_limit_error"}, ModelThrottledException),
        ("invalid_value", {"param": "session.voice"}, ModelRequestError),
        (None, {"type": "server_error"}, ConnectionTimeoutError),
        (None, {}, ModelRequestError),
    ],
)
def test_an_error_of_the_provider_is_raised_as_what_it_is_with_its_words(code, more, expected):
    with pytest.raises(expected, match="words") as raised:
        Exchange().codec.receive(error(code, **more))
    assert isinstance(raised.value, AntiphonError)


def test_errors_that_are_races_are_counted_and_absorbed():
    codec = Exchange().codec
    for code in ("response_cancel_not_active", "input_audio_buffer_commit_empty"):
        assert list(codec.receive(error(code))) == []
    assert list(codec.receive(error("item_truncate_invalid_item_id", event_id="truncate-7"))) == []
    assert sum(codec.counts.values()) == 3


def test_a_key_in_the_providers_words_is_not_told():
    codec = Exchange().codec
    codec.explainer.secret = "hunter22"
    with pytest.raises(ModelCredentialsError) as raised:
        codec.receive(error("invalid_api_key", "Incorrect API key provided: sk-ab*****wxyz, or hunter22."))
    assert "wxyz" not in str(raised.value)
    assert "hunter22" not in str(raised.value)


def test_a_response_that_is_throttled_is_asked_for_again_when_the_limit_is_whole():
    talk = Exchange()
    talk.send("hello")
    limits = [{"name": "tokens", "limit": 10, "remaining": 0, "reset_seconds": 7.5}]
    failed = talk.session.failed("rate_limit_exceeded", "slow down", "rate_limit_error")
    events = talk.tell([talk.session.event("rate_limits.updated", rate_limits=limits), *failed])
    assert isinstance(events[-1], BidiResponseStopEvent)
    assert talk.asked() == 1
    assert talk.alarms["again"] == 7.5
    talk.codec.ring("again")
    talk.tell(talk.cross())
    assert talk.asked() == 2
    talk.say("It is noon.")
    assert talk.asked() == 2


def test_responses_that_keep_failing_end_the_session_with_the_reason():
    talk = Exchange()
    talk.send("hello")
    pauses = []
    with pytest.raises(ModelThrottledException, match="slow down"):
        for _ in range(10):
            talk.tell(talk.session.failed("rate_limit_exceeded", "slow down", "rate_limit_error"))
            pauses.append(talk.alarms["again"])
            talk.codec.ring("again")
            talk.tell(talk.cross())
    assert pauses == [1.0, 2.0, 4.0]


def test_a_response_that_fails_for_good_ends_the_session():
    talk = Exchange()
    talk.send("hello")
    with pytest.raises(ModelQuotaError, match="pay"):
        talk.tell(talk.session.failed("insufficient_quota", "pay"))


def test_a_request_that_is_throttled_itself_is_made_again():
    talk = Exchange()
    talk.codec.send(BidiMessage([TextBlock("hello")]))
    talk.codec.outbox = []
    talk.codec.receive(error("rate_limit_exceeded", event_id="ask-1"))
    talk.cross()
    assert talk.alarms["again"] == 1.0
    talk.codec.ring("again")
    assert [json.loads(sent)["event_id"] for sent in talk.codec.outbox] == ["ask-2"]


def test_a_session_that_reaches_its_limit_says_whether_an_answer_was_owed():
    talk = Exchange()
    assert talk.alarms["limit"] == 3000.0
    with pytest.raises(ConnectionTimeoutError) as raised:
        talk.codec.ring("limit")
    assert raised.value.restart_config == {"owed": ""}
    talk.send("hello")
    with pytest.raises(ConnectionTimeoutError) as raised:
        talk.codec.ring("limit")
    assert raised.value.restart_config == {"owed": "cut"}


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (None, ConnectionEndedError),
        (TransportError("gone", reason="no close frame"), ConnectionEndedError),
        (TransportError("bye", code=1000, reason="bye"), ConnectionEndedError),
        (TransportError("failed", code=1011, reason="failed"), ConnectionTimeoutError),
        (TransportError("no", code=3000, reason="invalid_request_error.invalid_api_key"), ModelCredentialsError),
        (TransportError("nobody", opened=False, reason="refused"), ModelConnectionError),
        (
            TransportError("no", code=401, reason='{"error": {"message": "bad key"}}', opened=False),
            ModelCredentialsError,
        ),
        (TransportError("no", code=403, reason="not here", opened=False), ModelCredentialsError),
        (TransportError("no", code=429, reason="slow down", opened=False), ModelThrottledException),
        (
            TransportError(
                "no", code=429, reason='{"error": {"code": "insufficient_quota", "message": "pay"}}', opened=False
            ),
            ModelQuotaError,
        ),
        (TransportError("no", code=503, reason="busy", opened=False), ModelConnectionError),
        (TransportError("no", code=404, reason="model x is unknown", opened=False), ModelNotFoundError),
        (TransportError("no", code=400, reason="what?", opened=False), ModelRequestError),
    ],
)
def test_the_end_of_a_wire_is_explained(lost, expected):
    assert isinstance(Exchange().codec.explain(lost), expected)


def test_a_session_that_fails_before_it_is_open_is_not_opened_anew_without_end():
    codec = make_codec()
    codec.open()
    with pytest.raises(ModelError) as raised:
        codec.receive(error(None, type="server_error"))
    assert not isinstance(raised.value, ConnectionTimeoutError)


# Orders


def committed(events) -> list[tuple[str, str]]:
    """The history that events make."""
    conversation, messages, now = Conversation(), [], 0.0

    def do(effects):
        for effect in effects:
            match effect:
                case Commit(more):
                    messages.extend(more)
                case Insert(message, before):
                    messages.insert(next(at for at, known in enumerate(messages) if known is before), message)
                case Replace(old, new):
                    messages[next(at for at, known in enumerate(messages) if known is old)] = new
                case _:
                    pass

    for event in events:
        if isinstance(event, BidiAudioDeltaEvent):
            speech = conversation.speech(event.response_id, now)
            ms = len(event.audio) / 48
            speech.audio_ms += ms
            speech.playback.deliver(ms, now)
        else:
            do(conversation.apply(event, now))
    for _ in range(40):
        now += 0.25
        do(conversation.tick(now))
    do(conversation.close(now))
    return [(message["role"], message["content"][0]["text"]) for message in messages]


@given(data=st.data())
def test_transcripts_that_come_in_whatever_order_make_the_same_history(data):
    talk = Exchange()
    questions = ["What time is it?", "And now?"]
    events = []
    for number, question in enumerate(questions):
        item_id, begun = talk.session.speech()
        words = talk.session.transcribed(item_id, question)
        turn = [*begun, *talk.session.silence(item_id)]
        answer = [*talk.session.begin(), *talk.session.answer(f"Answer {number}.", 0.2), talk.session.done()]
        # Anywhere behind the item, and in their own order.
        places = sorted(data.draw(st.lists(st.integers(0, len(answer)), min_size=len(words), max_size=len(words))))
        for place, word in reversed(list(zip(places, words, strict=True))):
            answer.insert(place, word)
        events += [*turn, *answer]
    frames = [json.dumps(event) for event in events]
    codec = talk.codec
    made = [event for text in frames for event in codec.receive(text)]
    assert committed(made) == [
        ("user", "What time is it?"),
        ("assistant", "Answer 0."),
        ("user", "And now?"),
        ("assistant", "Answer 1."),
    ]


@given(data=st.data())
def test_a_talk_in_whatever_order_is_never_refused_anything(data):
    """Whoever speaks, types, calls and answers when: one response at a time, results with their calls, cuts within the sound."""
    talk = Exchange()
    waiting: list[dict] = []
    story = None  # an answer that is being spoken

    def step(what: str) -> None:
        nonlocal story
        if what == "type":
            talk.send("typed")
        elif what == "speak":
            story = None
            item_id, events = talk.session.speech()
            events += [*talk.session.silence(item_id), *talk.session.transcribed(item_id, "spoken")]
            talk.tell([*events, *(talk.session.begin() if talk.session.response is None else [])])
        elif what == "sound" and talk.session.response is not None:
            story = story or talk.session.answer("Once upon a time.", 0.5)
            for event in story:
                talk.tell([event])
                if event["type"] == "response.output_audio.delta":
                    return
            story = None
            talk.tell([talk.session.done()])
        elif what == "call" and talk.session.response is not None and story is None:
            waiting.extend(calls(talk.call("noon", "noon")))
        elif what == "result" and waiting:
            talk.send(result(waiting.pop(0)))
        elif what == "patience" and talk.alarms.get("patience"):
            talk.codec.ring("patience")
            talk.tell(talk.cross())
        elif what == "heard" and talk.session.answered:
            talk.codec.truncate(data.draw(st.sampled_from(talk.session.answered)), data.draw(st.floats(0, 700)))
            talk.tell(talk.cross())

    steps = ["type", "speak", "sound", "sound", "call", "result", "patience", "heard"]
    for what in data.draw(st.lists(st.sampled_from(steps), max_size=25)):
        step(what)
    assert talk.refusals == []
    # Nothing that was said stays without an answer.
    for _ in range(60):
        if talk.session.response is None and not waiting:
            break
        step("result" if waiting else "sound")
    assert talk.session.response is None
    assert not talk.codec._asking.owed


class SlowLine:
    """What either says is on its way for as long as the test likes."""

    def __init__(self) -> None:
        self.talk = Exchange()
        self.up: list[str] = []
        self.down: list[dict] = []
        self.answered_from: dict[
            str, int
        ] = {}  # for each item of the client's, how many responses had begun when it came

    def client(self) -> None:
        """What the client has said is on its way."""
        self.talk.cross_into(self.up)

    def arrive_up(self) -> None:
        if self.up:
            event = json.loads(text := self.up.pop(0))
            self.down += self.talk.session.receive(text)
            if event["type"] == "conversation.item.create":
                self.answered_from[event["item"]["id"]] = len(self.talk.session.answered)

    def arrive_down(self) -> list:
        made = list(self.talk.codec.receive(json.dumps(self.down.pop(0)))) if self.down else []
        self.client()
        return made


@given(data=st.data())
def test_however_long_words_are_on_their_way_each_is_answered_and_only_requests_may_cross(data):
    line = SlowLine()
    talk, session = line.talk, line.talk.session
    waiting: list[dict] = []

    def step(what: str) -> None:
        if what == "type":
            talk.codec.send(BidiMessage([TextBlock("typed")]))
            line.client()
        elif what == "speak":
            item_id, events = session.speech()
            line.down += [*events, *session.silence(item_id)]
            if session.response is None:
                line.down += session.begin()
        elif what == "say" and session.response is not None:
            line.down += [*session.answer("It is noon.", 0.2), session.done()]
        elif what == "call" and session.response is not None:
            line.down += [*session.calls([("noon", "{}"), ("noon", "{}")]), session.done()]
        elif what == "result" and waiting:
            talk.codec.send(BidiMessage([result(waiting.pop(0))]))
            line.client()
        elif what == "up":
            line.arrive_up()
        elif what == "down":
            waiting.extend(calls(line.arrive_down()))

    steps = ["type", "speak", "say", "call", "result", "up", "up", "down", "down", "down", "down"]
    for what in data.draw(st.lists(st.sampled_from(steps), max_size=40)):
        step(what)
    for _ in range(400):
        if line.up or line.down:
            step("up")
            step("down")
        elif waiting:
            step("result")
        elif session.response is not None:
            step("say")
        elif talk.codec._asking.owed:
            for alarm in ("heard", "patience", "asked"):
                talk.codec.ring(alarm)
            line.client()
        else:
            break
    assert not talk.codec._asking.owed
    assert set(talk.refusals) <= {"conversation_already_has_active_response"}
    # After each thing that was said, a response began.
    assert all(len(session.answered) > begun for begun in line.answered_from.values())


@pytest.mark.parametrize("kind", ["audio", "text"])
def test_frames_of_bytes_are_read_like_frames_of_text(kind):
    def run(convert):
        talk = Exchange(params={"output_modalities": [kind]})
        codec = talk.codec
        events = [*talk.session.begin(), *talk.session.answer("It is noon.", 0.2), talk.session.done()]
        return [made for event in events for made in codec.receive(convert(json.dumps(event)))]

    assert run(str) == run(str.encode)


def test_a_server_that_says_least_is_understood():
    codec = make_codec()
    codec.open()
    codec.receive('{"type":"session.created","session":{}}')
    codec.receive('{"type":"session.updated","session":{}}')
    sound = b64encode(b"\x01\x02").decode()
    made = [
        *codec.receive(frame("response.output_audio.delta", response_id="r", item_id="i", delta=sound)),
        *codec.receive('{"type":"response.done","response":{"id":"r"}}'),
    ]
    assert [event.type for event in made] == [
        "bidi_response_start",
        "bidi_audio_start",
        "bidi_audio_delta",
        "bidi_audio_stop",
        "bidi_response_stop",
    ]


def test_a_server_that_does_not_say_whose_request_it_answers_is_understood():
    codec = Exchange().codec
    codec.send(BidiMessage([TextBlock("hello")]))
    codec.outbox = []
    for number in range(2):
        codec.receive(frame("response.created", response={"id": f"r{number}"}))
        codec.receive(frame("response.done", response={"id": f"r{number}", "status": "completed"}))
    assert codec.outbox == []
    codec.send(BidiMessage([TextBlock("and now?")]))
    assert [json.loads(sent)["type"] for sent in codec.outbox] == ["conversation.item.create", "response.create"]


def test_a_request_that_nothing_becomes_of_is_made_again():
    talk = Exchange()
    talk.codec.send(BidiMessage([TextBlock("typed")]))
    talk.codec.outbox = []  # it never arrives
    _, events = talk.session.speech()
    talk.tell([*events, *talk.session.begin()])
    talk.say("To what was said.")
    assert talk.alarms["asked"] == 3.0
    talk.codec.ring("asked")
    assert [json.loads(sent)["event_id"] for sent in talk.codec.outbox] == ["ask-2"]

"""Transcripts of Gemini Live: frames in, events out; no loop, no socket, no clock."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.content import AudioDelta, BidiMessage, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.errors import (
    AudioFormatError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    ContextWindowOverflowException,
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
    BidiConnectionWarningEvent,
    BidiReasoningDeltaEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiToolUseBlocksEvent,
    BidiToolUseCancelEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiUsageEvent,
)
from antiphon.models.google.live_codec import GeminiLiveCodec
from antiphon.models.google.live_setup import LiveSettings

SOUND = AudioDelta("pcm", {"bytes": b"\1\0" * 320})


def codec(*, opened: bool = True, **options) -> GeminiLiveCodec:
    given = {key: options.pop(key) for key in list(options) if key in LiveSettings.__dataclass_fields__}
    made = GeminiLiveCodec(LiveSettings(model="models/gemini-3.8-live", **given), **options)
    made.open()
    if opened:
        made.receive(frame({"setupComplete": {"sessionId": "s1"}}))
        made.outbox.clear()
    return made


def frame(message) -> bytes:
    return json.dumps(message).encode()


def content(**fields) -> bytes:
    return frame({"serverContent": fields})


def sound(ms: float = 20, rate: int = 24000) -> dict:
    data = b64encode(b"\1\0" * int(rate * ms / 1000)).decode()
    return {"parts": [{"inlineData": {"mimeType": f"audio/pcm;rate={rate}", "data": data}}]}


def sent(made: GeminiLiveCodec) -> list[dict]:
    messages = [json.loads(entry) for entry in made.outbox]
    made.outbox.clear()
    return messages


def names(events) -> list[str]:
    """What happened, one word an event; the user's transcripts with a `u`."""
    told = []
    for event in events:
        name = event.type.removeprefix("bidi_")
        told.append(f"u:{name}" if getattr(event, "role", "") == "user" else name)
    return told


def play(made: GeminiLiveCodec, *frames: bytes) -> list:
    return [event for entry in frames for event in made.receive(entry)]


# Opening


def test_a_session_is_open_when_the_setup_is_accepted():
    made = codec(opened=False, system_prompt="Be kind.", voice="Puck")
    (setup,) = sent(made)
    assert setup == {
        "setup": {
            "model": "models/gemini-3.8-live",
            "generationConfig": {
                "responseModalities": ["AUDIO"],
                "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Puck"}}},
            },
            "inputAudioTranscription": {},
            "outputAudioTranscription": {},
            "contextWindowCompression": {"slidingWindow": {}},
            "sessionResumption": {},
            "systemInstruction": {"parts": [{"text": "Be kind."}]},
        }
    }
    assert not made.ready
    events = made.receive(frame({"setupComplete": {"sessionId": "s1"}}))
    assert made.ready
    assert events == [BidiConnectionStartEvent(connection_id="s1", model="models/gemini-3.8-live")]
    assert made.outbox == []


def test_a_history_is_told_in_one_message_when_the_setup_is_accepted_and_announced_before():
    made = codec(opened=False, messages=[{"role": "user", "content": [{"text": "hi"}]}])
    (setup,) = sent(made)
    assert setup["setup"]["historyConfig"] == {"initialHistoryInClientContent": True}
    made.receive(frame({"setupComplete": {}}))
    assert sent(made) == [
        {"clientContent": {"turns": [{"role": "user", "parts": [{"text": "hi"}]}], "turnComplete": True}}
    ]


def test_a_session_that_is_resumed_is_told_no_history():
    made = codec(opened=False, messages=[{"role": "user", "content": [{"text": "hi"}]}], handle="h1")
    (setup,) = sent(made)
    assert setup["setup"]["sessionResumption"] == {"handle": "h1"}
    assert "historyConfig" not in setup["setup"]
    made.receive(frame({"setupComplete": {}}))
    assert made.outbox == []


# Sending


def test_sound_goes_out_as_it_is_with_its_rate():
    made = codec(input_rate=8000)
    made.send(SOUND)
    assert sent(made) == [
        {"realtimeInput": {"audio": {"data": b64encode(SOUND.audio).decode(), "mimeType": "audio/pcm;rate=8000"}}}
    ]


@pytest.mark.parametrize("delta", [AudioDelta("opus", {"bytes": b"1234"}), AudioDelta("pcm", {"bytes": b"123"})])
def test_sound_that_is_no_pcm_is_refused(delta):
    made = codec()
    with pytest.raises(AudioFormatError):
        made.send(delta)
    assert made.outbox == []


def test_typed_text_and_pictures_go_as_realtime_input_one_field_a_message():
    made = codec()
    made.send(BidiMessage([TextBlock("what is"), ImageBlock("png", {"bytes": b"png"}), TextBlock("this?")]))
    assert sent(made) == [
        {"realtimeInput": {"video": {"data": b64encode(b"png").decode(), "mimeType": "image/png"}}},
        {"realtimeInput": {"text": "what is\nthis?"}},
    ]


def test_half_a_character_is_replaced_where_it_would_break_the_frame():
    made = codec()
    made.send(BidiMessage([TextBlock("a\ud83d é")]))
    assert made.outbox[0].encode()
    assert sent(made) == [{"realtimeInput": {"text": "a\ufffd é"}}]


def test_a_picture_at_a_place_is_refused():
    with pytest.raises(InvalidInputError, match="images as bytes"):
        codec().send(BidiMessage([ImageBlock("png", {"location": {"uri": "s3://x"}})]))


def test_signals_of_activity_go_out_only_where_the_client_gives_them():
    made = codec(params={"realtimeInputConfig": {"automaticActivityDetection": {"disabled": True}}})
    made.activity(begins=True)
    made.activity(begins=False)
    assert sent(made) == [{"realtimeInput": {"activityStart": {}}}, {"realtimeInput": {"activityEnd": {}}}]
    with pytest.raises(InvalidInputError):
        made.audio_stream_end()
    made = codec()
    made.audio_stream_end()
    assert sent(made) == [{"realtimeInput": {"audioStreamEnd": True}}]
    with pytest.raises(InvalidInputError, match="automaticActivityDetection"):
        made.activity(begins=True)


# An answer


def test_an_answer_in_the_usual_order():
    made = codec()
    made.send(SOUND)
    events = play(
        made,
        content(inputTranscription={"text": "hel"}),
        content(inputTranscription={"text": "lo", "finished": True}),
        content(modelTurn=sound()),
        content(outputTranscription={"text": "good "}),
        content(modelTurn=sound()),
        content(outputTranscription={"text": "day"}),
        content(generationComplete=True),
        frame(
            {"serverContent": {"turnComplete": True}, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 5}}
        ),
    )
    assert names(events) == [
        "u:transcript_start",
        "u:transcript_delta",
        "u:transcript_delta",
        "u:transcript_stop",
        "response_start",
        "audio_start",
        "audio_delta",
        "transcript_start",
        "transcript_delta",
        "audio_delta",
        "transcript_delta",
        "audio_stop",
        "transcript_stop",
        "response_stop",
        "usage",
    ]
    ids = {event.response_id for event in events if hasattr(event, "response_id")}
    assert len(ids) == 1
    deltas = [event for event in events if isinstance(event, BidiAudioDeltaEvent)]
    assert {(delta.sample_rate, delta.channels, delta.format) for delta in deltas} == {(24000, 1, "pcm")}


def test_two_answers_have_two_ids_and_those_of_another_connection_are_others():
    made, other = codec(prefix="a-"), codec(prefix="b-")
    seen = []
    for entry in (made, made, other):
        events = play(entry, content(modelTurn=sound()), content(turnComplete=True))
        seen += [event.response_id for event in events if isinstance(event, BidiResponseStartEvent)]
    assert len(set(seen)) == 3


def test_words_of_the_user_that_come_after_the_answer_belong_in_front_of_it():
    made = codec()
    made.send(SOUND)
    events = play(
        made,
        content(modelTurn=sound()),
        content(generationComplete=True),
        content(turnComplete=True),
        content(inputTranscription={"text": "hel"}),
        content(inputTranscription={"text": "lo"}),
        frame({"sessionResumptionUpdate": {"newHandle": "h", "resumable": True}}),
    )
    users = [event for event in events if getattr(event, "role", "") == "user"]
    assert names(events)[:2] == ["u:transcript_start", "response_start"]
    assert len({event.content_id for event in users}) == 1
    assert names(users) == ["u:transcript_start", "u:transcript_delta", "u:transcript_delta", "u:transcript_stop"]


def test_words_that_do_not_come_for_long_are_given_up_and_later_ones_are_others():
    made = codec()
    made.send(SOUND)
    play(made, content(modelTurn=sound()), content(turnComplete=True))
    assert made.alarms == {"late words": 10.0}
    made.ring("late words")
    (start, delta) = made.receive(content(inputTranscription={"text": "hi"}))
    assert isinstance(start, BidiTranscriptStartEvent)
    assert start.content_id == delta.content_id == "user-2"


def test_words_of_the_user_are_complete_when_no_more_came_for_a_while_although_the_answer_goes_on():
    made = codec()
    made.send(SOUND)
    play(made, content(inputTranscription={"text": "hel"}), content(modelTurn=sound()))
    assert made.alarms.pop("tail") == 1.5
    play(made, content(inputTranscription={"text": "lo"}))
    assert made.alarms.pop("tail") == 1.5
    assert names(play(made, content(modelTurn=sound()))) == ["audio_delta"]
    made.ring("tail")
    assert names(play(made, content(modelTurn=sound()))) == ["audio_delta", "u:transcript_stop"]
    assert made.alarms.pop("tail") is None
    assert names(play(made, content(modelTurn=sound()))) == ["audio_delta"]


def test_an_answer_to_typed_text_or_to_a_tools_result_reserves_no_place_for_speech():
    made = codec()
    made.send(SOUND)
    made.send(BidiMessage([TextBlock("hi")]))
    assert names(play(made, content(modelTurn=sound()), content(turnComplete=True)))[0] == "response_start"
    made.send(BidiMessage([TextBlock("add")]))
    events = play(made, frame({"toolCall": {"functionCalls": [{"id": "c", "name": "add", "args": {}}]}}))
    assert names(events) == ["response_start", "tool_use_blocks", "response_stop"]
    made.send(SOUND)
    made.send(BidiMessage([ToolResultBlock("c", "success", [{"text": "2"}])]))
    assert names(play(made, content(modelTurn=sound())))[0] == "response_start"


def test_what_the_model_says_after_a_tool_call_is_another_answer():
    made = codec(non_blocking={"weather"})
    made.send(BidiMessage([TextBlock("weather?")]))
    events = play(
        made,
        content(outputTranscription={"text": "Let me look."}, modelTurn=sound()),
        frame({"toolCall": {"functionCalls": [{"id": "c", "name": "weather", "args": {"city": "Paris"}}]}}),
        content(outputTranscription={"text": "One moment."}),
        content(turnComplete=True),
    )
    assert [event.response_id for event in events if isinstance(event, BidiResponseStopEvent)] == [
        "response-1",
        "response-2",
    ]
    words = {event.content_id: event.delta for event in events if isinstance(event, BidiTranscriptDeltaEvent)}
    assert words == {"response-1-transcript": "Let me look.", "response-2-transcript": "One moment."}


def test_late_words_before_a_tool_call_are_told_before_its_result():
    made = codec()
    made.send(BidiMessage([TextBlock("weather?")]))
    play(made, content(modelTurn=sound()), call(("a", "weather", {})))
    events = play(made, content(outputTranscription={"text": "Let me look."}))
    assert names(events) == ["transcript_start", "transcript_delta", "transcript_stop"]
    made.send(BidiMessage([ToolResultBlock("a", "success", [{"text": "rain"}])]))
    assert names(play(made, content(outputTranscription={"text": "It rains."})))[0] == "response_start"


def test_a_turn_without_an_answer_tells_who_waits_for_one():
    made = codec()
    made.send(BidiMessage([TextBlock("say nothing")]))
    assert names(play(made, content(turnComplete=True))) == ["response_start", "response_stop"]
    assert names(play(made, content(turnComplete=True))) == []


def test_why_a_turn_ended_badly_is_told():
    made = codec()
    made.send(BidiMessage([TextBlock("do it")]))
    events = play(made, content(turnComplete=True, turnCompleteReason="MALFORMED_FUNCTION_CALL"))
    assert events[-1] == BidiResponseStopEvent(response_id="response-1", reason="MALFORMED_FUNCTION_CALL")
    events = play(made, content(modelTurn=sound(), turnComplete=True, turnCompleteReason="NEED_MORE_INPUT"))
    assert events[-1] == BidiResponseStopEvent(response_id="response-2")


def test_text_and_thoughts_are_written_apart():
    made = codec()
    made.send(BidiMessage([TextBlock("think")]))
    events = play(
        made,
        content(modelTurn={"parts": [{"text": "hmm", "thought": True}, {"text": "so "}]}),
        content(modelTurn={"parts": [{"text": "it is"}]}),
        content(turnComplete=True),
    )
    assert names(events) == [
        "response_start",
        "reasoning_start",
        "reasoning_delta",
        "reasoning_stop",
        "text_start",
        "text_delta",
        "text_delta",
        "text_stop",
        "response_stop",
    ]
    assert "".join(event.delta for event in events if isinstance(event, BidiTextDeltaEvent)) == "so it is"
    assert [event.delta for event in events if isinstance(event, BidiReasoningDeltaEvent)] == ["hmm"]


def test_guesses_are_shown_and_are_no_part_of_the_words():
    made = codec()
    made.send(SOUND)
    events = play(
        made, content(interimInputTranscription={"text": "hell"}), content(inputTranscription={"text": "hello"})
    )
    deltas = [event for event in events if isinstance(event, BidiTranscriptDeltaEvent)]
    assert [(delta.delta, delta.partial) for delta in deltas] == [("", "hell"), ("hello", "")]
    assert len({delta.content_id for delta in deltas}) == 1


@pytest.mark.parametrize(
    "signal",
    [
        {"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}},
        {"voiceActivityDetectionSignal": {"vadSignalType": "VAD_SIGNAL_TYPE_SOS"}},
    ],
)
def test_speech_that_the_service_hears_begin_has_its_place_before_its_words(signal):
    made = codec()
    made.send(SOUND)
    events = play(made, frame(signal), content(modelTurn=sound()), content(inputTranscription={"text": "hi"}))
    assert names(events) == ["u:transcript_start", "response_start", "audio_start", "audio_delta", "u:transcript_delta"]


def test_sound_at_another_rate_is_resampled_to_the_one_that_is_wanted():
    made = codec(output_rate=16000)
    made.send(BidiMessage([TextBlock("hi")]))
    events = play(made, *[content(modelTurn=sound(100))] * 10, content(generationComplete=True))
    deltas = [event for event in events if isinstance(event, BidiAudioDeltaEvent)]
    assert {delta.sample_rate for delta in deltas} == {16000}
    assert sum(len(delta.audio) for delta in deltas) == 2 * 16000


def test_a_sample_that_is_cut_in_two_is_joined():
    made = codec()
    made.send(BidiMessage([TextBlock("hi")]))
    pieces = [
        {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": b64encode(b).decode()}}]} for b in (b"abc", b"d")
    ]
    events = play(made, *[content(modelTurn=piece) for piece in pieces])
    assert b"".join(event.audio for event in events if isinstance(event, BidiAudioDeltaEvent)) == b"abcd"


# Barge-in


def test_an_answer_that_is_spoken_over_is_cut_and_ends_with_its_turn():
    made = codec()
    made.send(BidiMessage([TextBlock("a story")]))
    play(made, content(modelTurn=sound()))
    made.send(SOUND)
    events = play(
        made,
        content(interrupted=True),
        content(turnComplete=True),
        content(inputTranscription={"text": "stop"}),
        content(modelTurn=sound()),
    )
    assert events[0] == BidiBargeInEvent(response_id="response-1")
    assert names(events) == [
        "barge_in",
        "u:transcript_start",
        "audio_stop",
        "response_stop",
        "u:transcript_delta",
        "response_start",
        "audio_start",
        "audio_delta",
    ]
    assert made.cut


def test_an_answer_can_be_cut_after_its_turn_and_only_once():
    made = codec()
    made.send(BidiMessage([TextBlock("a story")]))
    play(made, content(modelTurn=sound()), content(generationComplete=True), content(turnComplete=True))
    made.send(SOUND)
    events = play(made, content(interrupted=True), content(interrupted=True), content(turnComplete=True))
    assert names(events) == ["barge_in", "u:transcript_start"]


def test_an_interruption_of_nothing_cuts_nothing():
    made = codec()
    made.send(SOUND)
    assert names(play(made, content(interrupted=True), content(turnComplete=True))) == ["u:transcript_start"]
    assert not made.cut


def test_typing_over_an_answer_is_no_speech():
    made = codec()
    made.send(BidiMessage([TextBlock("a story")]))
    play(made, content(modelTurn=sound()))
    made.send(SOUND)
    made.send(BidiMessage([TextBlock("stop")]))
    events = play(made, content(interrupted=True), content(turnComplete=True), content(modelTurn=sound()))
    assert names(events)[:3] == ["barge_in", "audio_stop", "response_stop"]
    assert not [event for event in events if getattr(event, "role", "") == "user"]


def test_late_words_of_an_answer_that_was_cut_are_not_heard_by_anybody():
    made = codec()
    made.send(BidiMessage([TextBlock("a story")]))
    play(made, content(modelTurn=sound()), content(interrupted=True), content(turnComplete=True))
    assert play(made, content(outputTranscription={"text": "and so on"})) == []
    assert sum(made.unknown.values()) == 1


def test_words_of_an_answer_that_come_after_its_turn_are_its_own():
    made = codec()
    made.send(BidiMessage([TextBlock("hi")]))
    play(made, content(modelTurn=sound()), content(turnComplete=True))
    events = play(made, content(outputTranscription={"text": "good day"}))
    assert names(events) == ["transcript_start", "transcript_delta", "transcript_stop"]
    assert {event.content_id for event in events} == {"response-1-transcript"}
    made.send(BidiMessage([TextBlock("again")]))
    assert names(play(made, content(outputTranscription={"text": "good day"})))[0] == "response_start"


def test_words_that_come_after_the_service_has_closed_the_turn_begin_another_answer():
    made = codec()
    made.send(SOUND)
    play(made, content(inputTranscription={"text": "hi"}), content(modelTurn=sound()), content(turnComplete=True))
    play(made, frame({"sessionResumptionUpdate": {"newHandle": "h", "resumable": True}}))
    made.send(SOUND)
    events = play(made, content(outputTranscription={"text": "good "}), content(inputTranscription={"text": "hello"}))
    assert names(events) == [
        "u:transcript_start",
        "response_start",
        "transcript_start",
        "transcript_delta",
        "u:transcript_delta",
    ]


# Tools


def call(*calls) -> bytes:
    return frame({"toolCall": {"functionCalls": [{"id": i, "name": n, "args": a} for i, n, a in calls]}})


def test_calls_are_answered_with_their_names_in_one_message():
    made = codec()
    made.send(BidiMessage([TextBlock("add")]))
    events = play(made, call(("a", "add", {"x": 1}), ("b", "weather", None)))
    (uses,) = [event.tool_uses for event in events if isinstance(event, BidiToolUseBlocksEvent)]
    assert uses == [
        {"toolUseId": "a", "name": "add", "input": {"x": 1}},
        {"toolUseId": "b", "name": "weather", "input": {}},
    ]
    sent(made)
    made.send(
        BidiMessage(
            [
                ToolResultBlock("b", "error", [{"text": "no such city"}]),
                ToolResultBlock("a", "success", [{"json": {"sum": 1}}, {"text": "ok"}]),
            ]
        )
    )
    assert sent(made) == [
        {
            "toolResponse": {
                "functionResponses": [
                    {"name": "weather", "response": {"error": "no such city"}, "id": "b"},
                    {"name": "add", "response": {"output": [{"sum": 1}, "ok"]}, "id": "a"},
                ]
            }
        }
    ]


@pytest.mark.parametrize(
    ("blocks", "response"),
    [
        ([{"text": "5"}], {"output": "5"}),
        ([{"json": {"a": [1]}}], {"output": {"a": [1]}}),
        ([], {"output": "done"}),
    ],
)
def test_a_result_of_one_block_is_told_without_a_wrapping(blocks, response):
    made = codec()
    play(made, call(("a", "add", {})))
    made.send(BidiMessage([ToolResultBlock("a", "success", blocks)]))
    assert sent(made)[0]["toolResponse"]["functionResponses"][0]["response"] == response


def test_a_picture_in_a_result_goes_along():
    made = codec()
    play(made, call(("a", "look", {})))
    made.send(
        BidiMessage([ToolResultBlock("a", "success", [{"image": {"format": "png", "source": {"bytes": b"png"}}}])])
    )
    (response,) = sent(made)[0]["toolResponse"]["functionResponses"]
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": b64encode(b"png").decode()}}]


def test_arguments_that_were_encoded_twice_are_decoded_and_others_are_left_alone():
    made = codec()
    events = play(made, call(("a", "add", '{"x": 1}'), ("b", "add", "no json"), ("c", "add", [1])))
    (uses,) = [event.tool_uses for event in events if isinstance(event, BidiToolUseBlocksEvent)]
    assert [use["input"] for use in uses] == [{"x": 1}, "no json", [1]]


def test_a_call_without_an_id_is_answered_without_one():
    made = codec()
    events = play(made, frame({"toolCall": {"functionCalls": [{"name": "now"}]}}))
    (use,) = next(event.tool_uses for event in events if isinstance(event, BidiToolUseBlocksEvent))
    made.send(BidiMessage([ToolResultBlock(use["toolUseId"], "success", [{"text": "noon"}])]))
    assert sent(made)[0]["toolResponse"]["functionResponses"] == [{"name": "now", "response": {"output": "noon"}}]


def test_calls_that_are_taken_back_are_not_answered():
    made = codec()
    play(made, call(("a", "add", {}), ("b", "add", {})))
    events = play(made, content(interrupted=True), frame({"toolCallCancellation": {"ids": ["a", "zz"]}}))
    assert events[-1] == BidiToolUseCancelEvent(tool_use_ids=["a", "zz"])
    made.send(BidiMessage([ToolResultBlock("a", "success", []), ToolResultBlock("b", "success", [])]))
    (message,) = sent(made)
    assert [entry["id"] for entry in message["toolResponse"]["functionResponses"]] == ["b"]
    made.send(BidiMessage([ToolResultBlock("a", "success", [])]))
    assert sent(made) == []


def test_a_result_whose_call_another_connection_made_is_told_in_words():
    made = codec()
    made.send(BidiMessage([ToolUseBlock("old", "add", {"x": 1}), ToolResultBlock("old", "success", [{"text": "5"}])]))
    assert sent(made) == [{"realtimeInput": {"text": '[An earlier tool call of add with {"x":1} has returned: 5]'}}]


def test_tools_that_the_model_does_not_wait_for_say_so():
    specs = [
        {"name": name, "description": "d", "inputSchema": {"json": {"type": "object", "properties": {"x": {}}}}}
        for name in ("slow", "quick")
    ]
    made = codec(opened=False, tools=specs, non_blocking={"slow"}, scheduling="WHEN_IDLE")
    slow, quick = sent(made)[0]["setup"]["tools"][0]["functionDeclarations"]
    assert (slow["behavior"], "behavior" in quick) == ("NON_BLOCKING", False)
    play(made, frame({"setupComplete": {}}), call(("a", "slow", {}), ("b", "quick", {})))
    made.send(BidiMessage([ToolResultBlock("a", "success", []), ToolResultBlock("b", "success", [])]))
    one, two = sent(made)[0]["toolResponse"]["functionResponses"]
    assert (one["scheduling"], "scheduling" in two) == ("WHEN_IDLE", False)


# The session


def test_handles_are_kept_and_those_of_a_moment_that_cannot_be_resumed_are_not():
    made = codec()
    assert made.handle is None
    play(made, frame({"sessionResumptionUpdate": {"newHandle": "h1", "resumable": True}}))
    assert (made.handle, made.current) == ("h1", True)
    made.send(BidiMessage([TextBlock("hi")]))
    assert (made.handle, made.current) == ("h1", False)
    play(made, content(modelTurn=sound()), frame({"sessionResumptionUpdate": {"newHandle": "", "resumable": False}}))
    assert (made.handle, made.current) == ("h1", False)
    play(made, content(turnComplete=True), frame({"sessionResumptionUpdate": {"newHandle": "h2", "resumable": True}}))
    assert (made.handle, made.current) == ("h2", True)


@pytest.mark.parametrize(("left", "seconds"), [("50s", 50.0), ("1.5s", 1.5), ("soon", 0.0), (None, 0.0)])
def test_the_end_of_a_connection_is_announced(left, seconds):
    made = codec()
    assert play(made, frame({"goAway": {"timeLeft": left}})) == [BidiConnectionWarningEvent(time_left_s=seconds)]
    assert isinstance(made.explain(None), ConnectionTimeoutError)


def test_tokens_are_told_by_kind():
    made = codec()
    usage = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 1,
        "responseTokenCount": 5,
        "thoughtsTokenCount": 2,
        "totalTokenCount": 18,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 7}, {"modality": "TEXT", "tokenCount": 3}],
    }
    assert play(made, frame({"usageMetadata": usage})) == [
        BidiUsageEvent(
            input_tokens=11,
            output_tokens=7,
            total_tokens=18,
            input_token_details={"audio": 7, "text": 3},
            output_token_details={"thoughts": 2},
        )
    ]


def test_what_is_not_understood_is_counted_and_changes_nothing():
    made = codec()
    events = play(
        made,
        frame({"newThing": {"a": 1}}),
        content(newField=True, groundingMetadata={}, waitingForInput=True, interactionStatus="IDLE"),
        content(modelTurn={"parts": [{"executableCode": {"code": "1"}}]}),
        content(modelTurn={"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}),
    )
    assert events == []
    assert set(made.unknown) == {
        "newThing",
        "serverContent.newField",
        "part.executableCode",
        "inlineData of 'image/png'",
    }


def test_names_in_snake_case_and_text_frames_are_understood_and_arguments_are_left_alone():
    made = codec()
    message = {"tool_call": {"function_calls": [{"id": "a", "name": "add", "args": {"first_number": 1}}]}}
    events = made.receive(json.dumps(message))
    (uses,) = [event.tool_uses for event in events if isinstance(event, BidiToolUseBlocksEvent)]
    assert uses[0]["input"] == {"first_number": 1}
    assert names(made.receive(json.dumps({"server_content": {"turn_complete": True, "model_turn": sound()}})))


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff\xfe",
        "{",
        b"[1]",
        b"null",
        b'{"serverContent": []}',
        b'{"serverContent": {"modelTurn": {"parts": {}}}}',
        b'{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "x"}}]}}}',
        b'{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": 5}}]}}}',
        b'{"serverContent": {"outputTranscription": {"text": 5}}}',
        b'{"toolCall": {"functionCalls": [5]}}',
        b'{"toolCallCancellation": {"ids": "a"}}',
        b'{"toolCall": {"functionCalls": [{"id": "a", "name": 7}]}}',
    ],
)
def test_a_frame_that_cannot_be_read_is_an_error_of_the_protocol(broken):
    with pytest.raises(ModelProtocolError):
        codec().receive(broken)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "serverContent",
                        "modelTurn",
                        "parts",
                        "toolCall",
                        "functionCalls",
                        "inlineData",
                        "data",
                        "text",
                        "goAway",
                        "timeLeft",
                        "usageMetadata",
                        "error",
                        "interrupted",
                        "turnComplete",
                        "sessionResumptionUpdate",
                        "newHandle",
                        "voiceActivity",
                        "outputTranscription",
                        "inputTranscription",
                        "toolCallCancellation",
                        "ids",
                        "promptTokensDetails",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=15,
    )
)
@settings(max_examples=150)
def test_whatever_comes_is_understood_or_an_error_of_the_model(value):
    made = codec()
    with suppress(ModelError):
        made.receive(value if isinstance(value, bytes) else json.dumps(value))


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (1007, "API key not valid. Please pass a valid API key.", ModelCredentialsError),
        (1008, "Your API key was reported as leaked. Please use another API key.", ModelCredentialsError),
        (1007, "API key expired. Please renew the API key.", ModelCredentialsError),
        (
            1008,
            "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.",
            ModelNotFoundError,
        ),
        (1011, "You exceeded your current quota, please check your plan and billing details.", ModelQuotaError),
        (1011, "Resource has been exhausted (e.g. check quota).", ModelThrottledException),
        (1013, "try later", ModelThrottledException),
        (1007, "Request contains an invalid argument.", ModelRequestError),
        (1008, "Operation is not implemented, or supported, or enabled.", ModelRequestError),
        (
            1007,
            "The input token count exceeds the maximum number of tokens allowed 131072.",
            ContextWindowOverflowException,
        ),
        (1011, "Deadline expired before operation could complete.", ConnectionTimeoutError),
        (1008, "BidiGenerateContent session expired", ConnectionTimeoutError),
        (1011, "Internal error encountered.", ConnectionTimeoutError),
        (1011, "The service is currently unavailable.", ConnectionTimeoutError),
        (0, "", ConnectionEndedError),
    ],
)
def test_the_end_of_a_session_is_told_by_its_words(code, reason, kind):
    error = codec().explain(TransportError("closed", code=code, reason=reason))
    assert type(error) is kind
    assert not reason or reason in str(error)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "no", ModelCredentialsError),
        (403, "Method doesn't allow unregistered callers", ModelCredentialsError),
        (400, "API key not valid", ModelCredentialsError),
        (404, "Not found.", ModelNotFoundError),
        (429, "Resource has been exhausted", ModelThrottledException),
        (429, "You exceeded your current quota", ModelQuotaError),
        (400, "bad", ModelRequestError),
        (503, "The service is overloaded", ModelConnectionError),
        (0, "Connection refused", ModelConnectionError),
    ],
)
def test_a_connection_that_is_not_opened_is_told_by_its_status(status, reason, kind):
    error = codec(opened=False).explain(TransportError("refused", code=status, reason=reason, opened=False))
    assert type(error) is kind


def test_a_limit_is_told_with_the_handle_to_go_on_by():
    made = codec()
    play(made, frame({"sessionResumptionUpdate": {"newHandle": "h1", "resumable": True}}))
    error = made.explain(
        TransportError("closed", code=1011, reason="Deadline expired before operation could complete.")
    )
    assert isinstance(error, ConnectionTimeoutError)
    assert error.restart_config == {"handle": "h1"}


@pytest.mark.parametrize("code", [1007, 1008, 1011])
def test_a_session_that_is_not_resumed_is_known_to_be_refused(code):
    made = codec(opened=False, handle="h1")
    assert isinstance(made.explain(TransportError("closed", code=code, reason="session not found")), ModelError)
    assert made.refused
    fresh = codec(opened=False)
    fresh.explain(TransportError("closed", code=code, reason="no"))
    assert not fresh.refused


def test_an_error_message_ends_the_session_with_its_words():
    with pytest.raises(ModelThrottledException, match="too many"):
        codec().receive(frame({"error": {"code": 429, "message": "too many requests", "status": "RESOURCE_EXHAUSTED"}}))
    with pytest.raises(ModelProtocolError):
        codec().receive(frame({"error": "what"}))


def test_a_secret_that_the_service_repeats_is_not_told():
    made = codec(hidden=lambda words: words.replace("sesame", "[secret]"))
    error = made.explain(TransportError("x", code=1007, reason="API key sesame not valid"))
    assert "sesame" not in str(error)
    with pytest.raises(ModelError) as told:
        made.receive(frame({"error": {"code": 400, "message": "sesame", "status": "X"}}))
    assert "sesame" not in str(told.value)


# However it is cut

FIELDS = [
    {"inputTranscription": {"text": "one "}},
    {"modelTurn": sound(2)},
    {"outputTranscription": {"text": "two "}},
    {"generationComplete": True},
    {"turnComplete": True},
]
"""In the order in which one message with all of them is read."""


@given(
    st.lists(st.lists(st.sampled_from(range(len(FIELDS))), unique=True, min_size=1), min_size=1, max_size=8),
    st.booleans(),
)
@settings(max_examples=150)
def test_several_fields_in_one_message_are_the_same_as_several_messages(groups, snake):
    groups = [sorted(group) for group in groups]
    one, other = codec(), codec()
    one.send(SOUND)
    other.send(SOUND)
    apart = [FIELDS[index] for group in groups for index in group]
    together = [{key: value for index in group for key, value in FIELDS[index].items()} for group in groups]
    merged = json.dumps([{"serverContent": fields} for fields in together])
    if snake:
        for name in (
            "serverContent",
            "inputTranscription",
            "modelTurn",
            "outputTranscription",
            "generationComplete",
            "turnComplete",
            "inlineData",
            "mimeType",
        ):
            merged = merged.replace(
                f'"{name}"', '"' + "".join("_" + c.lower() if c.isupper() else c for c in name) + '"'
            )
    events = play(one, *[content(**fields) for fields in apart])
    assert play(other, *[json.dumps(message).encode() for message in json.loads(merged)]) == events


@given(
    st.lists(
        st.sampled_from(
            [
                content(modelTurn=sound(2)),
                content(outputTranscription={"text": "w"}),
                content(inputTranscription={"text": "u"}),
                content(inputTranscription={"text": "", "finished": True}),
                content(interimInputTranscription={"text": "g"}),
                content(interrupted=True),
                content(turnComplete=True),
                content(generationComplete=True),
                call(("a", "add", {})),
                frame({"toolCallCancellation": {"ids": ["a"]}}),
                frame({"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}}),
                frame({"sessionResumptionUpdate": {"newHandle": "h", "resumable": True}}),
                "text",
                "audio",
                "ring",
                "tail",
            ]
        ),
        max_size=25,
    )
)
@settings(max_examples=300)
def test_whatever_order_things_come_in_what_begins_ends_once_and_nothing_is_out_of_place(steps):
    made = codec()
    events = []
    for step in steps:
        if step == "text":
            made.send(BidiMessage([TextBlock("t")]))
        elif step == "audio":
            made.send(SOUND)
        elif step in {"ring", "tail"}:
            made.ring("late words" if step == "ring" else "tail")
        else:
            events += made.receive(step)
    responding: str | None = None
    seen: set[str] = set()
    open_ids: set[str] = set()
    for event in events:
        match event:
            case BidiResponseStartEvent():
                assert responding is None
                assert event.response_id not in seen
                responding = event.response_id
                seen.add(responding)
            case BidiResponseStopEvent():
                assert event.response_id == responding
                assert not {key for key in open_ids if key.startswith(f"{responding}-")}
                responding = None
            case BidiAudioDeltaEvent():
                assert event.response_id == responding
                assert event.content_id in open_ids
            case BidiTranscriptDeltaEvent():
                assert event.content_id in open_ids
            case _ if event.type.endswith(("audio_start", "transcript_start")):
                assert event.content_id not in open_ids
                open_ids.add(event.content_id)
            case _ if event.type.endswith(("audio_stop", "transcript_stop")):
                open_ids.remove(event.content_id)
            case _:
                pass
    cut = [event.response_id for event in events if isinstance(event, BidiBargeInEvent)]
    assert len(cut) == len(set(cut))
    assert len([key for key in open_ids if key.startswith("user-")]) <= 1

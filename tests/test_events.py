"""The output events of a live call: their names, fields, and JSON."""

import base64
import inspect
import json

import msgspec
import pytest

from antiphon import events
from antiphon.errors import ConnectionTimeoutError
from antiphon.events import OutputEvent, Word

EVENTS = {
    kind.__name__: kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, OutputEvent) and kind is not OutputEvent
}

PAIR = {"content_id": ""}
DOCUMENTED = {
    # class: (type, required fields, fields with their defaults)
    "BidiConnectionStartEvent": ("bidi_connection_start", (), {"connection_id": "", "model": ""}),
    "BidiConnectionRestartEvent": (
        "bidi_connection_restart",
        (),
        {"reason": "timeout", "timeout_error": None, "turn_interrupted": False},
    ),
    "BidiConnectionWarningEvent": ("bidi_connection_warning", (), {"time_left_s": 0.0}),
    "BidiConnectionStopEvent": ("bidi_connection_stop", (), {"connection_id": "", "reason": "user_request"}),
    "BidiResponseStartEvent": ("bidi_response_start", ("response_id",), {}),
    "BidiResponseStopEvent": ("bidi_response_stop", ("response_id",), {"reason": ""}),
    "BidiAudioStartEvent": ("bidi_audio_start", (), {"content_id": "", "response_id": ""}),
    "BidiAudioDeltaEvent": (
        "bidi_audio_delta",
        ("audio",),
        {"format": "pcm", "sample_rate": 24000, "channels": 1, "content_id": "", "response_id": ""},
    ),
    "BidiAudioStopEvent": ("bidi_audio_stop", (), {"content_id": "", "response_id": ""}),
    "BidiTextStartEvent": ("bidi_text_start", (), PAIR),
    "BidiTextDeltaEvent": ("bidi_text_delta", ("delta",), PAIR),
    "BidiTextStopEvent": ("bidi_text_stop", (), PAIR),
    "BidiTextBlockEvent": ("bidi_text_block", ("text",), PAIR),
    "BidiReasoningStartEvent": ("bidi_reasoning_start", (), PAIR),
    "BidiReasoningDeltaEvent": ("bidi_reasoning_delta", ("delta",), PAIR),
    "BidiReasoningStopEvent": ("bidi_reasoning_stop", (), PAIR),
    "BidiReasoningBlockEvent": ("bidi_reasoning_block", ("text",), PAIR),
    "BidiTranscriptStartEvent": ("bidi_transcript_start", (), {"content_id": "", "role": "assistant"}),
    "BidiTranscriptDeltaEvent": (
        "bidi_transcript_delta",
        ("delta",),
        {"role": "assistant", "content_id": "", "words": (), "partial": ""},
    ),
    "BidiTranscriptStopEvent": ("bidi_transcript_stop", (), {"role": "assistant", "content_id": "", "said": None}),
    "BidiTranscriptBlockEvent": ("bidi_transcript_block", ("transcript",), {"role": "assistant", "content_id": ""}),
    "BidiBargeInEvent": ("bidi_barge_in", (), {"response_id": ""}),
    "BidiUsageEvent": (
        "bidi_usage",
        (),
        {
            "input_tokens": 0,
            "output_tokens": 0,
            "total_tokens": 0,
            "input_token_details": None,
            "output_token_details": None,
        },
    ),
    "BidiToolUseBlocksEvent": ("bidi_tool_use_blocks", ("tool_uses",), {}),
    "BidiToolUseCancelEvent": ("bidi_tool_use_cancel", ("tool_use_ids",), {}),
    "BidiInterruptEvent": ("bidi_interrupt", ("interrupts",), {}),
    "ToolStreamEvent": ("tool_stream", ("tool_stream_event",), {}),
    "ToolResultEvent": ("tool_result", ("tool_result",), {}),
    "ToolCancelEvent": ("tool_cancel", ("tool_use",), {"message": ""}),
    "ToolResultMessageEvent": ("tool_result_message", ("message",), {}),
}

CALL = {"toolUseId": "t1", "name": "lights", "input": {"on": True}}
RESULT = {
    "toolUseId": "t1",
    "status": "success",
    "content": [{"text": "on"}, {"image": {"source": {"bytes": b"\xff"}}}],
}
VALUES = {
    "response_id": "r1",
    "content_id": "c1",
    "said": "hello",
    "delta": "Hi",
    "text": "Hi",
    "transcript": "Hi",
    "role": "user",
    "connection_id": "x1",
    "model": "m",
    "audio": b"\x00\xff",
    "format": "pcm",
    "sample_rate": 16000,
    "channels": 2,
    "partial": "there",
    "time_left_s": 9.5,
    "turn_interrupted": True,
    "message": {"role": "user", "content": []},
    "input_tokens": 1,
    "output_tokens": 2,
    "total_tokens": 3,
    "input_token_details": {"audio": 1},
    "output_token_details": None,
    "tool_uses": [CALL],
    "tool_use_ids": ["t1"],
    "tool_use": CALL,
    "tool_result": RESULT,
    "interrupts": [{"id": "i1"}],
    "tool_stream_event": {"tool_use": CALL, "data": 1},
    "reason": "timeout",
    "words": (Word("Hi", 250.0, 10.0),),
    "timeout_error": ConnectionTimeoutError("over"),
}


def an_event(name):
    fields = EVENTS[name].__struct_fields__
    return EVENTS[name](**{field: VALUES[field] for field in fields})


def test_these_are_all_the_events_there_are():
    assert set(EVENTS) == set(DOCUMENTED)
    kinds = [kind for kind, _, _ in DOCUMENTED.values()]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_event_has_its_type_string_and_fields_some_with_defaults(name):
    kind, required, optional = DOCUMENTED[name]
    fields = msgspec.structs.fields(EVENTS[name])
    assert EVENTS[name].type == kind
    assert tuple(field.name for field in fields if field.required) == required
    event = EVENTS[name](**{field: VALUES[field] for field in required})
    assert {field.name: getattr(event, field.name) for field in fields if not field.required} == optional


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_event_is_made_by_keywords_only_and_cannot_be_changed(name):
    event = an_event(name)
    with pytest.raises(AttributeError):
        setattr(event, EVENTS[name].__struct_fields__[0], None)
    with pytest.raises(TypeError):
        EVENTS[name](*(VALUES[field] for field in EVENTS[name].__struct_fields__))
    with pytest.raises(TypeError):
        EVENTS[name](no_such_field=1)
    assert an_event(name) == event


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_dict_of_an_event_is_json_with_its_type_and_all_its_fields(name):
    event = an_event(name)
    told = event.to_dict()
    assert list(told) == ["type", *EVENTS[name].__struct_fields__]
    assert told["type"] == DOCUMENTED[name][0]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    plain = [field for field in EVENTS[name].__struct_fields__ if isinstance(VALUES[field], (str, int, float))]
    assert {field: told[field] for field in plain} == {field: VALUES[field] for field in plain}


def test_sound_is_bytes_in_the_event_and_base64_in_its_dict():
    event = an_event("BidiAudioDeltaEvent")
    assert event.audio == b"\x00\xff"
    assert base64.b64decode(event.to_dict()["audio"]) == event.audio


def test_errors_words_and_bytes_within_a_dict_are_plain_data():
    assert an_event("BidiConnectionRestartEvent").to_dict()["timeout_error"] == {
        "error": "ConnectionTimeoutError",
        "message": "over",
    }
    words = an_event("BidiTranscriptDeltaEvent").to_dict()["words"]
    assert words == [{"text": "Hi", "end_ms": 250.0, "start_ms": 10.0}]
    content = an_event("ToolResultEvent").to_dict()["tool_result"]["content"]
    assert content[1]["image"]["source"]["bytes"] == "/w=="


def test_a_dict_of_an_event_shares_nothing_with_it():
    event = an_event("BidiToolUseBlocksEvent")
    event.to_dict()["tool_uses"][0]["input"]["on"] = False
    assert event.tool_uses == [CALL]
    assert CALL["input"] == {"on": True}

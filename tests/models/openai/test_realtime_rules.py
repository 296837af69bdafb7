"""What the loopback server refuses: each rule of the provider, broken by a client, and the provider's words for it."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from antiphon.testing.servers.openai_realtime_rules import LONGEST_AUDIO, RealtimeSession

SOUND = b64encode(bytes(4800)).decode()  # 100 ms


@pytest.fixture
def session() -> RealtimeSession:
    session = RealtimeSession(1, "gpt-realtime-2")
    session.begin()
    for _ in session.answer("It is noon.", 1.0):
        pass
    session.done()
    return session


def tell(session: RealtimeSession, kind: str, /, **fields) -> list[dict]:
    return session.receive(json.dumps({"type": kind, "event_id": "mine", **fields}))


def refused(events: list[dict]) -> tuple[str | None, str | None]:
    [event] = events
    assert event["type"] == "error"
    assert event["error"]["message"]
    return event["error"]["code"], event["error"]["param"]


def update(**session) -> tuple[str, dict]:
    return "session.update", {"session": {"type": "realtime", **session}}


def create(**item) -> tuple[str, dict]:
    return "conversation.item.create", {"item": item}


def said(role: str, *content: dict, **more) -> tuple[str, dict]:
    return create(type="message", role=role, content=list(content), **more)


TEXT = {"type": "input_text", "text": "hello"}
LONG = "x" * 33

BREACHES = {
    "an event of no known type": (("session.begin", {}), "invalid_value"),
    "a field that is missing": (("input_audio_buffer.append", {}), "missing_required_parameter"),
    "a field that is unknown": (("response.create", {"soon": True}), "unknown_parameter"),
    "a field of a response that is unknown": (
        ("response.create", {"response": {"modalities": []}}),
        "unknown_parameter",
    ),
    "metadata that is no text": (("response.create", {"response": {"metadata": {"a": 1}}}), "invalid_value"),
    "a session without a type": (("session.update", {"session": {}}), "missing_required_parameter"),
    "a session that is no object": (("session.update", {"session": 1}), "invalid_type"),
    "a field of the old API": (update(modalities=["text"]), "unknown_parameter"),
    "another model": (update(model="gpt-realtime-1.5"), "invalid_value"),
    "sound and text at once": (update(output_modalities=["text", "audio"]), "invalid_value"),
    "an unknown format": (update(audio={"input": {"format": {"type": "audio/opus"}}}), "invalid_value"),
    "pcm at another rate": (
        update(audio={"output": {"format": {"type": "audio/pcm", "rate": 16000}}}),
        "invalid_value",
    ),
    "an unknown voice": (update(audio={"output": {"voice": "bob"}}), "invalid_value"),
    "another voice after sound": (update(audio={"output": {"voice": "marin"}}), "cannot_update_voice"),
    "an unknown detection": (update(audio={"input": {"turn_detection": {"type": "ears"}}}), "invalid_value"),
    "a detection with the other's fields": (
        update(audio={"input": {"turn_detection": {"type": "semantic_vad", "threshold": 0.5}}}),
        "unknown_parameter",
    ),
    "a tool without a legal name": (update(tools=[{"type": "function", "name": "a b"}]), "invalid_value"),
    "a tool whose input is no object": (
        update(tools=[{"type": "function", "name": "a", "parameters": {"type": "string"}}]),
        "invalid_function_parameters",
    ),
    "sound that is no base64": (("input_audio_buffer.append", {"audio": "???"}), "invalid_value"),
    "sound of more than 15 MiB": (
        ("input_audio_buffer.append", {"audio": "A" * (LONGEST_AUDIO + 4)}),
        "string_above_max_length",
    ),
    "a commit of nothing": (("input_audio_buffer.commit", {}), "input_audio_buffer_commit_empty"),
    "clearing what only calls have": (("output_audio_buffer.clear", {}), "invalid_value"),
    "an item of an unknown type": (create(type="video"), "invalid_value"),
    "an id that is too long": (said("user", TEXT, id=LONG), "string_above_max_length"),
    "an id that is taken": (said("user", TEXT, id="taken"), "item_create_duplicate_item_id"),
    "an item after an unknown one": (
        ("conversation.item.create", {**said("user", TEXT)[1], "previous_item_id": "item_9"}),
        "item_create_invalid_previous_item_id",
    ),
    "an answer's sound handed in": (said("assistant", {"type": "output_audio", "audio": SOUND}), "invalid_value"),
    "plain text as restored content": (said("user", {"type": "text", "text": "hello"}), "invalid_value"),
    "the user's text as the model's": (said("assistant", TEXT), "invalid_value"),
    "a message of nobody": (said("tool", TEXT), "invalid_value"),
    "a message of nothing": (said("user"), "missing_required_parameter"),
    "an image from elsewhere": (
        said("user", {"type": "input_image", "image_url": "https://example.org/a.png"}),
        "invalid_value",
    ),
    "a call whose id is too long": (
        create(type="function_call", call_id=LONG, name="noon", arguments="{}"),
        "string_above_max_length",
    ),
    "a call whose arguments are no text": (
        create(type="function_call", call_id="call_1", name="noon", arguments={}),
        "missing_required_parameter",
    ),
    "a result without its call": (
        create(type="function_call_output", call_id="call_9", output="yes"),
        "invalid_tool_call_id",
    ),
    "a result that is no text": (create(type="function_call_output", call_id="call_1", output={}), "invalid_type"),
    "deleting what is not there": (("conversation.item.delete", {"item_id": "item_9"}), "item_delete_invalid_item_id"),
    "retrieving what is not there": (
        ("conversation.item.retrieve", {"item_id": "item_9"}),
        "item_retrieve_invalid_item_id",
    ),
    "truncating what is not there": (
        ("conversation.item.truncate", {"item_id": "item_9", "content_index": 0, "audio_end_ms": 1}),
        "item_truncate_invalid_item_id",
    ),
    "truncating what has no sound": (
        ("conversation.item.truncate", {"item_id": "taken", "content_index": 0, "audio_end_ms": 1}),
        "unsupported_content_type",
    ),
    "cancelling nothing": (("response.cancel", {}), "response_cancel_not_active"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_client_that_does_this_is_refused_with_the_providers_error(session, breach):
    (kind, fields), code = BREACHES[breach]
    tell(session, "conversation.item.create", item={"id": "taken", **said("user", TEXT)[1]["item"]})
    before = len(session.items)
    events = tell(session, kind, **fields)
    assert refused(events)[0] == code
    assert events[0]["error"]["event_id"] == "mine"
    assert len(session.items) == before


def test_what_is_no_json_is_refused(session):
    assert refused(session.receive("{"))[0] == "invalid_json"
    assert refused(session.receive("[]"))[0] == "missing_required_parameter"


def test_a_second_response_is_refused_until_the_first_has_ended(session):
    assert [event["type"] for event in tell(session, "response.create")] == ["response.created", "rate_limits.updated"]
    assert refused(tell(session, "response.create"))[0] == "conversation_already_has_active_response"
    session.done()
    assert tell(session, "response.create")[0]["type"] == "response.created"


def test_truncating_takes_the_words_away_and_ends_within_the_sound(session):
    item_id = session.items[0]["id"]
    cut = {"item_id": item_id, "content_index": 0}
    assert refused(tell(session, "conversation.item.truncate", audio_end_ms=1001, **cut))[0] == "invalid_value"
    [done] = tell(session, "conversation.item.truncate", audio_end_ms=1000, **cut)
    assert done["type"] == "conversation.item.truncated"
    assert session.items[0]["content"] == [{"type": "output_audio", "transcript": None}]
    assert refused(tell(session, "conversation.item.truncate", audio_end_ms=1, content_index=1, item_id=item_id)) == (
        "invalid_value",
        "content_index",
    )


def test_an_answer_without_sound_cannot_be_truncated(session):
    session.begin()
    events = session.answer("Once upon a time.", 1.0)
    item_id = next(event["item"]["id"] for event in events if event["type"] == "conversation.item.added")
    cut = {"item_id": item_id, "content_index": 0, "audio_end_ms": 0}
    assert refused(tell(session, "conversation.item.truncate", **cut))[0] == "unsupported_content_type"
    assert [event["type"] for event in tell(session, "conversation.item.delete", item_id=item_id)] == [
        "conversation.item.deleted"
    ]


def test_parallel_calls_are_for_the_models_that_reason():
    kind, fields = update(parallel_tool_calls=True)
    assert refused(tell(RealtimeSession(1, "gpt-realtime-1.5"), kind, **fields))[0] == "invalid_value"
    assert tell(RealtimeSession(1, "gpt-realtime-2.1-mini"), kind, **fields)[0]["type"] == "session.updated"


def test_speech_cuts_the_response_under_way_and_is_an_item_when_it_ends(session):
    session.begin()
    for event in session.answer("Once upon a time.", 1.0):
        if event["type"] == "response.output_audio.delta":
            break
    tell(session, "input_audio_buffer.append", audio=SOUND)
    item_id, events = session.speech()
    assert [event["type"] for event in events] == [
        "input_audio_buffer.speech_started",
        "response.output_item.done",
        "response.done",
    ]
    assert events[1]["item"]["status"] == "incomplete"
    assert events[2]["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert [event["type"] for event in session.silence(item_id)][:2] == [
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
    ]
    assert session.items[-1]["id"] == item_id
    assert not session.audio


def test_a_result_is_taken_after_its_call(session):
    call = create(type="function_call", call_id="call_1", name="noon", arguments="{}")
    result = create(type="function_call_output", call_id="call_1", output="yes")
    for kind, fields in (call, result):
        assert [event["type"] for event in tell(session, kind, **fields)] == [
            "conversation.item.added",
            "conversation.item.done",
        ]


def test_root_is_the_place_before_everything(session):
    kind, fields = said("system", TEXT)
    [added, _] = tell(session, kind, previous_item_id="root", **fields)
    assert added["previous_item_id"] is None
    assert session.items[0]["role"] == "system"

"""Nova Sonic's protocol without a network: what is sent, and what is made of what comes."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from hypothesis import given
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
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    BidiUsageEvent,
)
from antiphon.models.bedrock.nova_codec import NovaSonicCodec
from antiphon.models.bedrock.nova_opening import (
    LONGEST_HISTORY,
    LONGEST_MESSAGE,
    Opening,
    checked_inference,
    replay,
    result_json,
)
from tests.models.bedrock.nova_wire_format import call, chunk, exception, opened, sent, sound, text

START = chunk("completionStart", {"completionId": "c"})
MARK = '{ "interrupted" : true }'


def take(codec: NovaSonicCodec, *frames: list[bytes] | bytes):
    events = []
    for frame in frames:
        for one in frame if isinstance(frame, list) else [frame]:
            events += codec.receive(one)
    return events


def kinds(events):
    return [event.type.removeprefix("bidi_") for event in events]


# --- the opening ---


def test_a_session_is_opened_in_the_order_that_the_service_wants():
    tool = {"name": "now", "description": "Tells the time.", "inputSchema": {"json": {"type": "object"}}}
    opening = Opening(
        model_id="amazon.nova-2-sonic-v1:0",
        voice="tiffany",
        input_rate=8000,
        output_rate=16000,
        inference=checked_inference({"max_tokens": 5, "topP": 0.5}),
        sensitivity="HIGH",
        system_prompt="Be kind.",
        tools=(tool,),
        history=(("user", "hello"), ("assistant", "hi")),
    )
    codec = NovaSonicCodec(opening, "p")
    codec.open()
    assert codec.ready
    events = sent(codec)
    assert [name for name, _ in events] == [
        *["sessionStart", "promptStart"],
        *["contentStart", "textInput", "contentEnd"] * 3,
        "contentStart",
    ]
    assert events[0][1] == {
        "inferenceConfiguration": {"maxTokens": 5, "topP": 0.5, "temperature": 0.7},
        "turnDetectionConfiguration": {"endpointingSensitivity": "HIGH"},
    }
    prompt = events[1][1]
    assert prompt["audioOutputConfiguration"]["voiceId"] == "tiffany"
    assert prompt["audioOutputConfiguration"]["sampleRateHertz"] == 16000
    assert json.loads(prompt["toolConfiguration"]["tools"][0]["toolSpec"]["inputSchema"]["json"]) == {
        "type": "object",
        "properties": {},
    }
    starts = [body for name, body in events if name == "contentStart"]
    assert [(body["type"], body["role"], body["interactive"]) for body in starts] == [
        ("TEXT", "SYSTEM", False),
        ("TEXT", "USER", False),
        ("TEXT", "ASSISTANT", False),
        ("AUDIO", "USER", True),
    ]
    assert len({body["contentName"] for body in starts}) == 4
    assert starts[-1]["audioInputConfiguration"]["sampleRateHertz"] == 8000


def test_the_first_generation_has_its_sensitivity_elsewhere_and_takes_no_typed_text():
    opening = Opening(model_id="amazon.nova-sonic-v1:0", sensitivity="LOW")
    assert opening.session_start()["sessionStart"]["endpointingSensitivity"] == "LOW"
    codec = opened(model_id="amazon.nova-sonic-v1:0")
    with pytest.raises(InvalidInputError, match="nova-2-sonic"):
        codec.send(BidiMessage([TextBlock("hello")]))


def test_a_session_is_closed_in_the_order_that_the_service_wants():
    codec = opened()
    codec.close()
    assert sent(codec) == [
        ("contentEnd", {"promptName": "p", "contentName": "p-audio"}),
        ("promptEnd", {"promptName": "p"}),
        ("sessionEnd", {}),
    ]


# --- the history ---

blocks = st.one_of(
    st.text(max_size=40).map(lambda words: {"text": words}),
    st.just({"image": {"format": "png", "source": {"bytes": b""}}}),
    st.sampled_from("ab").map(lambda key: {"toolUse": {"toolUseId": key, "name": "t", "input": {"x": 1}}}),
    st.sampled_from("ab").map(
        lambda key: {"toolResult": {"toolUseId": key, "status": "success", "content": [{"text": "done"}]}}
    ),
    st.integers(1, 60).map(lambda size: {"text": "é" * size * 1000}),
)
messages = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    st.lists(blocks, max_size=3),
)


@given(st.lists(messages, max_size=12))
def test_a_history_is_told_in_turns_the_users_first_within_the_limits(history):
    told = replay(history)
    roles = [role for role, _ in told]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    sizes = [len(words.encode()) for _, words in told]
    assert all(0 < size <= LONGEST_MESSAGE for size in sizes)
    assert sum(sizes) <= LONGEST_HISTORY


def test_the_newest_of_a_history_is_kept_and_results_are_told_as_words_of_the_user():
    history = [
        {"role": role, "content": [{"text": f"{n} " + "x" * 40_000}]}
        for n in range(6)
        for role in ("user", "assistant")
    ]
    history += [
        {"role": "user", "content": [{"text": "and in Paris?"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "sky", "input": {"city": "Paris"}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "a", "status": "error", "content": [{"text": "no"}]}}],
        },
        {"role": "assistant", "content": [{"text": "I do not know."}]},
    ]
    told = replay(history)
    assert told[-1] == ("assistant", "I do not know.")
    assert told[-2] == (
        "user",
        """and in Paris?\n[The tool 'sky', called with {"city": "Paris"}, has failed: {"text": "no"}]""",
    )
    assert told[0][0] == "user"
    assert len(told) == 6


def test_a_message_that_is_too_long_is_told_by_its_end():
    [(_, words)] = replay([{"role": "user", "content": [{"text": "é" * 40_000 + " the end"}]}])
    assert words.startswith("… é")
    assert words.endswith(" the end")
    assert LONGEST_MESSAGE - 4 < len(words.encode()) <= LONGEST_MESSAGE


# --- what is sent ---


def test_sound_is_sent_in_small_pieces_of_one_block():
    codec = opened()
    pcm = bytes(range(256)) * 40
    codec.send(AudioDelta("pcm", {"bytes": pcm}))
    events = sent(codec)
    assert {name for name, _ in events} == {"audioInput"}
    assert len(events) == 4
    assert b"".join(b64decode(body["content"]) for _, body in events) == pcm
    assert {body["contentName"] for _, body in events} == {"p-audio"}


@pytest.mark.parametrize("sound_of", [AudioDelta("opus", {"bytes": b""}), AudioDelta("pcm", {"bytes": b"\0"})])
def test_sound_of_another_kind_is_refused(sound_of):
    with pytest.raises(AudioFormatError):
        opened().send(sound_of)


def test_silence_is_sent_when_nobody_sends_sound():
    codec = NovaSonicCodec(Opening(model_id="m"), "p", silence_s=0.2)
    codec.open()
    codec.outbox.clear()
    assert codec.alarms.pop("silence") == 0.2
    codec.ring("silence")
    assert b"".join(b64decode(body["content"]) for _, body in sent(codec)) == bytes(6400)
    assert codec.alarms.pop("silence") == 0.2
    codec.send(AudioDelta("pcm", {"bytes": b"\1\0"}))
    codec.outbox.clear()
    codec.ring("silence")
    assert sent(codec) == []
    assert codec.alarms.pop("silence") == 0.2


def test_silence_is_not_heaped_up_where_the_network_takes_nothing():
    codec = NovaSonicCodec(Opening(model_id="m"), "p", silence_s=1.0)
    codec.open()
    codec.outbox.clear()
    for _ in range(100):
        codec.ring("silence")
    assert len(codec.outbox) < 40


def test_typed_text_is_one_interactive_block():
    codec = opened()
    codec.send(BidiMessage([TextBlock("one"), TextBlock("two")]))
    [(_, start), (_, body), (end, _)] = sent(codec)
    assert (start["type"], start["role"], start["interactive"]) == ("TEXT", "USER", True)
    assert body["content"] == "one\ntwo"
    assert end == "contentEnd"


def test_images_and_texts_without_end_are_refused():
    codec = opened()
    with pytest.raises(InvalidInputError, match="image"):
        codec.send(BidiMessage([TextBlock("look"), ImageBlock("png", {"bytes": b"x"})]))
    with pytest.raises(InvalidInputError, match="50000"):
        codec.send(BidiMessage([TextBlock("x" * 50_001)]))
    assert sent(codec) == []


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        ([{"text": "fine"}], "success", {"text": "fine"}),
        ([{"json": {"a": 1}}], "success", {"a": 1}),
        ([{"json": [1]}], "success", {"result": [1]}),
        ([{"text": "a"}, {"json": 2}], "success", {"content": [{"text": "a"}, {"json": 2}]}),
        ([], "success", {"content": []}),
        ([{"text": "no"}], "error", {"status": "error", "text": "no"}),
        ([{"image": {}}], "success", {"text": "(image: left out, for only text can be told)"}),
    ],
)
def test_a_result_is_told_as_the_json_of_an_object(content, status, told):
    assert json.loads(result_json(content, status)) == told


def test_the_result_of_a_call_that_the_session_knows_is_a_block_of_its_own():
    codec = opened()
    take(codec, START, call("b", "use-1", "sky", '{"city": "Paris"}'))
    codec.send(BidiMessage([ToolResultBlock("use-1", "success", [{"text": "blue"}])]))
    [(_, start), (name, body), (_, _)] = sent(codec)
    assert (start["type"], start["role"]) == ("TOOL", "TOOL")
    assert start["toolResultInputConfiguration"]["toolUseId"] == "use-1"
    assert name == "toolResult"
    assert json.loads(body["content"]) == {"text": "blue"}


def late() -> BidiMessage:
    return BidiMessage(
        [ToolUseBlock("old", "sky", {"city": "Rome"}), ToolResultBlock("old", "success", [{"text": "grey"}])]
    )


def test_the_result_of_a_call_that_the_session_does_not_know_is_told_in_words():
    codec = opened()
    codec.send(late())
    assert [body["content"] for name, body in sent(codec) if name == "textInput"] == [
        """[The tool 'sky', called with {"city": "Rome"}, has answered: {"text": "grey"}]"""
    ]


def test_words_about_a_late_result_wait_until_the_model_has_finished_speaking():
    codec = opened()
    take(codec, START, text("t", "ASSISTANT", "SPECULATIVE", "Hello."), sound("a", b"\0\0", None))
    codec.send(late())
    assert sent(codec) == []
    assert codec.alarms.pop("late") == 30
    take(codec, chunk("contentEnd", {"contentId": "a", "type": "AUDIO", "stopReason": "END_TURN"}))
    assert len(sent(codec)) == 3
    assert codec.alarms.pop("late") is None


def test_words_about_a_late_result_do_not_wait_for_ever():
    codec = opened()
    take(codec, START, text("t", "ASSISTANT", "SPECULATIVE", "Hello."), sound("a", b"\0\0", None))
    codec.send(late())
    codec.ring("late")
    assert len(sent(codec)) == 3


# --- what comes ---

ANSWER = [
    START,
    *text("u", "USER", "FINAL", "what time is it"),
    *text("s1", "ASSISTANT", "SPECULATIVE", "It is noon."),
    *sound("a1", b"\1\0" * 480),
    *text("f1", "ASSISTANT", "FINAL", "It is noon."),
    *text("s2", "ASSISTANT", "SPECULATIVE", "Or later."),
    *sound("a2", b"\2\0" * 480, "END_TURN", 16000),
    *text("f2", "ASSISTANT", "FINAL", "Or later.", "END_TURN"),
]


def test_an_answer_is_one_response_with_one_transcript():
    events = take(opened(), *ANSWER)
    assert events == [
        BidiTranscriptStartEvent(role="user", content_id="u"),
        BidiTranscriptDeltaEvent(delta="what time is it", role="user", content_id="u"),
        BidiTranscriptStopEvent(role="user", content_id="u"),
        BidiResponseStartEvent(response_id="c-1"),
        BidiTranscriptStartEvent(content_id="c-1"),
        BidiTranscriptDeltaEvent(delta="It is noon.", content_id="c-1"),
        BidiAudioStartEvent(content_id="a1", response_id="c-1"),
        BidiAudioDeltaEvent(audio=b"\1\0" * 480, sample_rate=24000, content_id="a1", response_id="c-1"),
        BidiAudioStopEvent(content_id="a1", response_id="c-1"),
        BidiTranscriptDeltaEvent(delta=" Or later.", content_id="c-1"),
        BidiAudioStartEvent(content_id="a2", response_id="c-1"),
        BidiAudioDeltaEvent(audio=b"\2\0" * 480, sample_rate=16000, content_id="a2", response_id="c-1"),
        BidiAudioStopEvent(content_id="a2", response_id="c-1"),
        BidiResponseStopEvent(response_id="c-1"),
        BidiTranscriptStopEvent(content_id="c-1"),
    ]


TOOLS = [*call("b", "use", "sky", '"{\\"city\\": \\"Paris\\"}"'), *text("f3", "ASSISTANT", "FINAL", "Nothing of it.")]


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=30), st.booleans())
def test_however_the_bytes_are_cut_the_same_comes_of_them(sizes, broken):
    frames = [*ANSWER, *TOOLS, *([exception("throttlingException", "slow down")] if broken else [])]
    whole = b"".join(frames)
    codec, events, error, at, turn = opened(), [], None, 0, 0
    while at < len(whole) and error is None:
        size = sizes[turn % len(sizes)]
        try:
            events += codec.receive(whole[at : at + size])
        except ModelError as failed:
            error = failed
        at, turn = at + size, turn + 1
    if error is None:
        error = codec.explain(None)
    assert events == take(opened(), *ANSWER, *TOOLS)
    assert isinstance(error, ModelThrottledException if broken else ConnectionEndedError)


def test_an_error_behind_other_events_is_raised_after_them_though_nothing_more_comes():
    codec = opened()
    events = codec.receive(b"".join([*ANSWER, exception("throttlingException", "slow down")]))
    assert events == take(opened(), *ANSWER)
    assert codec.alarms == {"failure": 0.0}
    with pytest.raises(ModelThrottledException):
        codec.ring("failure")
    with pytest.raises(ModelThrottledException):
        codec.receive(b"")


def test_bytes_that_break_behind_other_events_are_an_error_after_them_though_nothing_more_comes():
    codec = opened()
    assert codec.receive(b"".join([*ANSWER, b"\0" * 12])) == take(opened(), *ANSWER)
    with pytest.raises(ModelProtocolError):
        codec.ring("failure")


@pytest.mark.parametrize(
    "signals",
    [
        [sound("a", b"", "INTERRUPTED")[-1:]],
        [text("f", "ASSISTANT", "FINAL", "Once upon", "INTERRUPTED")],
        [text("m", "ASSISTANT", "FINAL", MARK, "INTERRUPTED")],
        [text("m", "USER", "FINAL", MARK, "PARTIAL_TURN")],
        [
            sound("a", b"", "INTERRUPTED")[-1:],
            text("f", "ASSISTANT", "FINAL", "Once upon", "INTERRUPTED"),
            text("m", "ASSISTANT", "FINAL", MARK, "INTERRUPTED"),
        ],
    ],
)
def test_a_barge_in_is_told_once_however_often_and_by_whatever_sign_it_is_said(signals):
    codec = opened()
    take(codec, START, text("s", "ASSISTANT", "SPECULATIVE", "Once upon a time."), sound("a", b"\0\0" * 99, None))
    events = take(codec, *signals)
    assert [event for event in events if isinstance(event, BidiBargeInEvent)] == [BidiBargeInEvent(response_id="c-1")]
    assert BidiResponseStopEvent(response_id="c-1") in events
    following = take(codec, text("u", "USER", "FINAL", "stop"), text("s2", "ASSISTANT", "SPECULATIVE", "All right."))
    assert BidiResponseStartEvent(response_id="c-2") in following
    assert BidiBargeInEvent not in map(type, following)


@pytest.mark.parametrize("first", ["final", "mark"])
def test_what_was_said_of_an_answer_that_was_cut_goes_with_its_transcript(first):
    codec = opened()
    take(
        codec,
        *[START, text("s1", "ASSISTANT", "SPECULATIVE", "Once upon a time."), sound("a1", b"\0\0" * 99)],
        *[text("f1", "ASSISTANT", "FINAL", "Once upon a time.")],
        *[text("s2", "ASSISTANT", "SPECULATIVE", "There was a king."), sound("a2", b"\0\0" * 99)],
        *[text("s3", "ASSISTANT", "SPECULATIVE", "He was old."), sound("a3", b"\0\0" * 99, None)],
    )
    final = text("f2", "ASSISTANT", "FINAL", "There was")
    mark = text("m", "ASSISTANT", "FINAL", MARK, "INTERRUPTED")
    events = take(codec, *([final, mark] if first == "final" else [mark, final]))
    assert BidiTranscriptStopEvent(content_id="c-1", said="Once upon a time. There was") in events
    assert kinds(events).count("transcript_stop") == 1


def test_what_was_said_of_the_answer_before_is_not_taken_for_what_is_said_now():
    codec = opened()
    take(codec, START, text("s1", "ASSISTANT", "SPECULATIVE", "Once upon a time."), sound("a1", b"\0\0", "INTERRUPTED"))
    take(codec, text("u", "USER", "FINAL", "stop"), text("s2", "ASSISTANT", "SPECULATIVE", "All right."))
    [stop] = take(codec, text("f1", "ASSISTANT", "FINAL", "Once upon", "INTERRUPTED"))
    assert stop == BidiTranscriptStopEvent(content_id="c-1", said="Once upon")
    events = take(codec, sound("a2", b"\0\0", "END_TURN"), text("f2", "ASSISTANT", "FINAL", "All right."))
    assert events[-1] == BidiTranscriptStopEvent(content_id="c-2")


def test_words_of_the_user_that_come_after_the_answer_belong_in_front_of_it():
    codec = opened()
    take(codec, START, text("s", "ASSISTANT", "SPECULATIVE", "Noon."), sound("a", b"\0\0", "END_TURN"))
    assert kinds(take(codec, text("u", "USER", "FINAL", "what time is it"))) == ["transcript_delta", "transcript_stop"]
    assert kinds(take(codec, text("u2", "USER", "FINAL", "thank you")))[0] == "transcript_start"


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ('"{\\"city\\": \\"Paris\\"}"', {"city": "Paris"}),
        ("", {}),
        (None, {}),
        ("null", {}),
        ("not json", "not json"),
        ("[1]", [1]),
        ({"city": "Paris"}, {"city": "Paris"}),
    ],
)
def test_the_input_of_a_call_is_read_though_it_was_encoded_twice(content, asked):
    [event] = take(opened(), START, call("b", "use", "sky", content))
    assert event == BidiToolUseBlocksEvent(tool_uses=[{"toolUseId": "use", "name": "sky", "input": asked}])


def test_calls_of_one_block_run_at_the_same_time():
    names = {"contentId": "b"}
    [event] = take(
        opened(),
        chunk("contentStart", {**names, "type": "TOOL", "role": "TOOL"}),
        chunk("toolUse", {**names, "toolUseId": "1", "toolName": "a", "content": "{}"}),
        chunk("toolUse", {**names, "toolUseId": "2", "toolName": "b", "content": "{}"}),
        chunk("contentEnd", {**names, "type": "TOOL", "stopReason": "TOOL_USE"}),
    )
    assert [call["name"] for call in event.tool_uses] == ["a", "b"]


def test_what_is_said_before_a_call_is_an_answer_and_what_is_said_after_it_another():
    codec = opened()
    events = take(
        codec,
        *[START, text("s", "ASSISTANT", "SPECULATIVE", "Let me see."), sound("a", b"\0\0")],
        call("b", "use", "sky", "{}"),
    )
    assert kinds(events)[-2:] == ["response_stop", "tool_use_blocks"]
    codec.send(BidiMessage([ToolResultBlock("use", "success", [{"text": "blue"}])]))
    events = take(codec, text("s2", "ASSISTANT", "SPECULATIVE", "Blue."))
    assert events[0] == BidiResponseStartEvent(response_id="c-2")


def test_tokens_are_told_as_they_are_used():
    def usage(used, made, delta=None):
        details = {} if delta is None else {"details": {"delta": delta}}
        return chunk("usageEvent", {"totalInputTokens": used, "totalOutputTokens": made, **details})

    delta = {"input": {"speechTokens": 3, "textTokens": 1}, "output": {"speechTokens": 5, "textTokens": 0}}
    codec = opened()
    [event] = take(codec, usage(100, 50, delta))
    assert (event.input_tokens, event.output_tokens, event.total_tokens) == (4, 5, 9)
    assert event.input_token_details == {"speechTokens": 3, "textTokens": 1}
    assert take(codec, usage(110, 51)) == [BidiUsageEvent(input_tokens=10, output_tokens=1, total_tokens=11)]
    assert take(codec, usage(110, 51)) == []


def test_the_end_of_the_completion_ends_what_is_open():
    codec = opened()
    take(codec, START, text("s", "ASSISTANT", "SPECULATIVE", "Hello."), sound("a", b"\0\0", None))
    assert take(codec, chunk("completionEnd", {"stopReason": "END_TURN"})) == [
        BidiResponseStopEvent(response_id="c-1"),
        BidiTranscriptStopEvent(content_id="c-1"),
    ]


def test_what_is_not_known_is_counted_and_nothing_else():
    codec = opened()
    assert take(codec, chunk("futureEvent", {}), chunk("contentEnd", {"contentId": "?"})) == []
    assert take(codec, chunk("textOutput", {"contentId": "?", "content": "x"})) == []
    assert take(codec, chunk("audioOutput", {"contentId": "?", "content": ""})) == []
    assert take(codec, text("f", "ASSISTANT", "FINAL", "of nothing")) == []
    assert sum(codec.unknown.values()) == 5
    assert codec.unknown["futureEvent"] == 1


# --- errors ---


@pytest.mark.parametrize(
    ("kind", "message", "error"),
    [
        ("validationException", "InternalErrorCode=531::RST_STREAM closed stream", ConnectionTimeoutError),
        ("modelTimeoutException", "Model has timed out", ConnectionTimeoutError),
        ("internalServerException", "System instability detected. Please retry your request.", ConnectionTimeoutError),
        (
            "modelStreamErrorException",
            "System instability detected. Please retry your request.",
            ConnectionTimeoutError,
        ),
        ("validationException", "Chat history should be sent completely before streaming audio.", ModelRequestError),
        ("validationException", "The provided model identifier is invalid.", ModelNotFoundError),
        ("validationException", "Input is too long for requested model.", ContextWindowOverflowException),
        ("throttlingException", "Too many requests", ModelThrottledException),
        ("serviceQuotaExceededException", "no more", ModelQuotaError),
        ("accessDeniedException", "You don't have access to the model", ModelCredentialsError),
        ("internalServerException", "oops", ModelError),
        ("serviceUnavailableException", "oops", ModelError),
        ("modelStreamErrorException", "oops", ModelError),
    ],
)
def test_each_exception_of_the_service_is_an_error_of_ours_with_its_words(kind, message, error):
    with pytest.raises(error) as failed:
        take(opened(), exception(kind, message))
    assert message in str(failed.value)


def test_an_error_that_is_no_exception_of_the_operation_is_told_likewise():
    from antiphon.transports.eventstream import encode_message

    raw = encode_message(
        {":message-type": "error", ":error-code": "ExpiredTokenException", ":error-message": "expired"}
    )
    with pytest.raises(ModelCredentialsError, match="expired"):
        take(opened(), raw)


def test_a_result_that_the_service_cannot_read_is_told_in_words_and_the_talk_goes_on():
    codec = opened()
    take(codec, START, call("b", "use-1", "sky", "{}"))
    codec.send(BidiMessage([ToolResultBlock("use-1", "success", [{"text": "blue"}])]))
    codec.outbox.clear()
    assert take(codec, exception("validationException", "Tool Response parsing error")) == []
    assert [body["content"] for name, body in sent(codec) if name == "textInput"] == [
        """[The tool 'sky' has answered: {"text": "blue"}]"""
    ]


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x20\0\0\0\0nothing of the kind",
        chunk("contentStart", {}),
        chunk("contentStart", []),
        chunk("audioOutput", "x"),
        chunk("usageEvent", {"details": {"delta": {"input": 3}}}),
    ],
)
def test_what_cannot_be_read_is_an_error(frame):
    with pytest.raises(ModelProtocolError):
        take(opened(), frame)


def test_sound_that_is_no_base64_is_an_error():
    codec = opened()
    take(codec, START, sound("a", b"", None))
    with pytest.raises(ModelProtocolError, match="base64"):
        take(codec, chunk("audioOutput", {"contentId": "a", "content": "%%%"}))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TransportError("x", opened=False), ModelConnectionError),
        (TransportError("x", code=403, reason="UnrecognizedClientException: no"), ModelCredentialsError),
        (
            TransportError("x", code=400, reason="ValidationException: The provided model identifier is invalid."),
            ModelNotFoundError,
        ),
        (TransportError("x", code=404, reason="ResourceNotFoundException: no"), ModelNotFoundError),
        (TransportError("x", code=429, reason="ThrottlingException: no"), ModelThrottledException),
        (TransportError("x", code=503, reason="ServiceUnavailableException: no"), ModelError),
        (TransportError("x", code=502, reason="HTTP 502: no"), ModelError),
        (TransportError("x", reason="RST_STREAM INTERNAL_ERROR"), ConnectionTimeoutError),
        (TransportError("x", reason="reset by peer"), ConnectionEndedError),
        (None, ConnectionEndedError),
    ],
)
def test_why_a_wire_ended_is_told(error, told):
    assert type(opened().explain(error)) is told


def test_an_answer_that_ends_within_a_message_cannot_be_read():
    codec = opened()
    codec.receive(ANSWER[1][:20])
    assert isinstance(codec.explain(None), ModelProtocolError)


def test_a_late_mark_of_a_barge_in_does_not_cut_the_answer_to_it():
    codec = opened()
    take(codec, START, text("s1", "ASSISTANT", "SPECULATIVE", "Once upon a time."), sound("a1", b"\0\0", "INTERRUPTED"))
    take(codec, text("u", "USER", "FINAL", "stop"), text("s2", "ASSISTANT", "SPECULATIVE", "All right."))
    assert take(codec, text("m", "ASSISTANT", "FINAL", MARK)) == []
    events = take(codec, sound("a2", b"\0\0", None), text("m2", "ASSISTANT", "FINAL", MARK))
    assert BidiBargeInEvent(response_id="c-2") in events


def test_an_answer_whose_sound_never_ended_the_turn_ends_with_its_last_words():
    codec = opened()
    take(codec, START, text("s", "ASSISTANT", "SPECULATIVE", "Noon."), sound("a", b"\0\0"))
    assert take(codec, text("f", "ASSISTANT", "FINAL", "Noon.", "END_TURN")) == [
        BidiTranscriptStopEvent(content_id="c-1"),
        BidiResponseStopEvent(response_id="c-1"),
    ]

"""Gemini's stream, read without an event loop."""

import pytest

from antiphon.errors import ModelConnectionError, ModelError, ModelProtocolError, ModelRequestError
from antiphon.models.google.gemini_answer import GeminiReader
from antiphon.models.google.gemini_signatures import to_text


def chunk(*parts, reason=None, **more):
    candidate = {"content": {"parts": list(parts), "role": "model"}}
    return {"candidates": [candidate if reason is None else {**candidate, "finish_reason": reason}], **more}


def read(*chunks):
    reader = GeminiReader()
    told = [event for raw in chunks for event in reader.feed(raw)]
    return told + reader.end()


def kinds(told):
    return [next(iter(event)) for event in told]


def deltas(told):
    return [event["contentBlockDelta"]["delta"] for event in told if "contentBlockDelta" in event]


def reason_of(told):
    return next(event["messageStop"]["stopReason"] for event in told if "messageStop" in event)


def test_thoughts_and_words_are_blocks_of_their_own():
    told = read(chunk({"text": "so", "thought": True}), chunk({"text": "Hel"}), chunk({"text": "lo"}, reason="STOP"))
    assert kinds(told) == [
        *["messageStart", "contentBlockDelta", "contentBlockStop", "contentBlockDelta", "contentBlockDelta"],
        *["contentBlockStop", "messageStop", "metadata"],
    ]
    assert deltas(told) == [{"reasoningContent": {"text": "so"}}, {"text": "Hel"}, {"text": "lo"}]


def test_calls_come_whole_and_keep_their_signature():
    use = {"function_call": {"id": "a", "name": "t", "args": {"x": "ä"}}, "thought_signature": b"\x00\xff"}
    told = read(chunk(use), chunk({"function_call": {"name": "u"}}, reason="STOP"))
    starts = [event["contentBlockStart"]["start"]["toolUse"] for event in told if "contentBlockStart" in event]
    assert starts == [
        {"toolUseId": "a", "name": "t", "reasoningSignature": b"\x00\xff"},
        {"toolUseId": "", "name": "u"},
    ]
    assert deltas(told) == [{"toolUse": {"input": '{"x": "ä"}'}}, {"toolUse": {"input": "{}"}}]
    assert reason_of(told) == "tool_use"


def test_a_signature_of_words_is_a_block_of_reasoning():
    told = read(chunk({"text": "Hi"}), chunk({"text": "", "thought_signature": b"s"}, reason="STOP"))
    assert deltas(told) == [{"text": "Hi"}, {"reasoningContent": {"signature": to_text(b"s")}}]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "content_filtered"),
        ("RECITATION", "content_filtered"),
        ("BLOCKLIST", "content_filtered"),
        ("PROHIBITED_CONTENT", "content_filtered"),
        ("SPII", "content_filtered"),
        ("BRAND_NEW", "end_turn"),
    ],
)
def test_each_end_has_its_reason(theirs, ours):
    assert reason_of(read(chunk({"text": "Hi"}, reason=theirs))) == ours


def test_a_prompt_that_is_blocked_has_an_end_without_words():
    told = read({"prompt_feedback": {"block_reason": "SAFETY"}})
    assert kinds(told) == ["messageStart", "messageStop", "metadata"]
    assert reason_of(told) == "content_filtered"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "MALFORMED_RESPONSE"])
def test_a_failure_of_the_model_may_pass(reason):
    with pytest.raises(ModelError, match=reason) as caught:
        read(chunk(reason=reason))
    assert caught.value.passing


def test_a_signature_that_is_missed_is_an_error_of_the_request():
    with pytest.raises(ModelRequestError, match="signature"):
        read(chunk(reason="MISSING_THOUGHT_SIGNATURE"))


def test_tokens_of_thoughts_and_of_tools_are_counted():
    usage = {
        "prompt_token_count": 10,
        "tool_use_prompt_token_count": 1,
        "candidates_token_count": 5,
        "thoughts_token_count": 7,
        "cached_content_token_count": 4,
        "total_token_count": 23,
    }
    told = read(
        chunk({"text": "Hi"}, usage_metadata={"prompt_token_count": 10}), chunk(reason="STOP", usage_metadata=usage)
    )
    assert told[-1]["metadata"]["usage"] == {
        "inputTokens": 11,
        "outputTokens": 12,
        "totalTokens": 23,
        "cacheReadInputTokens": 4,
    }


def test_what_is_unknown_is_left_out():
    assert deltas(read({"odd": 1}, chunk({"poem": 1}, {"text": "Hi"}, {"inline_data": {}}), chunk(reason="STOP"))) == [
        {"text": "Hi"}
    ]


def test_a_stream_without_an_end_broke_off():
    with pytest.raises(ModelConnectionError, match="broke off") as caught:
        read(chunk({"text": "Hi"}))
    assert caught.value.passing


@pytest.mark.parametrize("raw", [None, [], {"candidates": [3]}, chunk({"function_call": {"id": "a"}})])
def test_what_cannot_be_read_is_an_error_of_the_protocol(raw):
    with pytest.raises(ModelProtocolError, match="cannot be read"):
        read(raw)

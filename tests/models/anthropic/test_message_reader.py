"""Anthropic's stream, read without an event loop."""

import pytest

from antiphon.errors import ModelConnectionError, ModelProtocolError, ModelThrottledException
from antiphon.models.anthropic.answer import MessageReader

START = {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def read(*events):
    reader = MessageReader("claude")
    told = [event for raw in events for event in reader.feed(raw)]
    reader.end()
    return told


def block(index, start, *deltas):
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def ending(reason="end_turn", **usage):
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5, **usage}}


def deltas(told):
    return [event["contentBlockDelta"]["delta"] for event in told if "contentBlockDelta" in event]


def test_text_comes_in_pieces_with_one_end():
    text = block(
        0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hel"}, {"type": "text_delta", "text": "lo"}
    )
    told = read(START, {"type": "ping"}, *text, ending(), STOP)
    assert [next(iter(event)) for event in told] == [
        *["messageStart", "contentBlockDelta", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"]
    ]
    assert deltas(told) == [{"text": "Hel"}, {"text": "lo"}]
    assert told[-1]["metadata"]["usage"] == {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}


def test_cached_tokens_are_told_and_part_of_the_total():
    usage = {"input_tokens": 10, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20, "output_tokens": 1}
    start = {"type": "message_start", "message": {"usage": usage}}
    told = read(start, ending(), STOP)
    assert told[-1]["metadata"]["usage"] == {
        "inputTokens": 10,
        "outputTokens": 5,
        "totalTokens": 105,
        "cacheReadInputTokens": 70,
        "cacheWriteInputTokens": 20,
    }


def test_the_input_of_a_call_comes_in_pieces():
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"a"', ": 1}")]
    use = block(0, {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}}, *pieces)
    told = read(START, *use, ending("tool_use"), STOP)
    assert told[1]["contentBlockStart"]["start"] == {"toolUse": {"toolUseId": "toolu_1", "name": "t"}}
    assert deltas(told) == [{"toolUse": {"input": '{"a"'}}, {"toolUse": {"input": ": 1}"}}]
    assert {"messageStop": {"stopReason": "tool_use"}} in told


def test_an_input_that_comes_at_once_is_not_lost():
    told = read(
        START, *block(0, {"type": "tool_use", "id": "a", "name": "t", "input": {"a": 1}}), ending("tool_use"), STOP
    )
    assert deltas(told) == [{"toolUse": {"input": '{"a": 1}'}}]


def test_thoughts_and_their_signature_are_reasoning():
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "so"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    told = read(START, *thinking, ending(), STOP)
    assert deltas(told) == [{"reasoningContent": {"text": "so"}}, {"reasoningContent": {"signature": "c2ln"}}]


def test_hidden_thoughts_are_bytes():
    told = read(START, *block(0, {"type": "redacted_thinking", "data": "abc"}), ending(), STOP)
    assert deltas(told) == [{"reasoningContent": {"redactedContent": b"abc"}}]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "content_filtered"),
        ("stop_sequence", "stop_sequence"),
        ("tool_use", "tool_use"),
        ("brand_new", "end_turn"),
    ],
)
def test_each_end_has_its_reason(theirs, ours):
    assert {"messageStop": {"stopReason": ours}} in read(START, ending(theirs), STOP)


def test_what_is_unknown_is_left_out():
    told = read(
        START,
        {"type": "weather_report", "sky": 1},
        *block(0, {"type": "poem"}, {"type": "verse_delta", "line": "la"}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi", "new": 1}, {"type": "odd_delta"}),
        ending(),
        STOP,
    )
    assert deltas(told) == [{"text": "Hi"}]


def test_what_tools_at_anthropic_do_is_not_told_but_kept_for_the_way_back():
    reader = MessageReader("claude")
    server_use = block(
        0,
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
    )
    found = block(1, {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []})
    text = block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Well"})
    told = [
        event for raw in (START, *server_use, *found, *text, ending("pause_turn"), STOP) for event in reader.feed(raw)
    ]
    reader.end()
    assert reader.paused
    assert deltas(told) == [{"text": "Well"}]
    assert not any("messageStop" in event for event in told)
    assert reader.content == [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
        {"type": "text", "text": "Well"},
    ]
    reader.next_stream()
    more = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "!"})
    told = [event for raw in (START, *more, ending(), STOP) for event in reader.feed(raw)]
    reader.end()
    assert not any("messageStart" in event for event in told)
    assert told[0]["contentBlockDelta"]["contentBlockIndex"] == 1
    assert told[-1]["metadata"]["usage"] == {"inputTokens": 20, "outputTokens": 10, "totalTokens": 30}


def test_a_stream_without_an_end_broke_off():
    reader = MessageReader("claude")
    reader.feed(START)
    with pytest.raises(ModelConnectionError, match="broke off") as caught:
        reader.end()
    assert caught.value.passing


def test_an_error_event_is_an_error():
    with pytest.raises(ModelThrottledException, match="Overloaded"):
        read(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {},
        {"type": "content_block_start"},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "of no block"}},
        {"type": "content_block_start", "content_block": {"type": "tool_use"}},
        {"type": "message_start", "message": None},
        {"type": "error"},
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_protocol(event):
    with pytest.raises(ModelProtocolError, match="cannot be read"):
        read(event)


def test_a_call_that_is_cut_off_is_passed_on_as_far_as_it_came():
    piece = {"type": "input_json_delta", "partial_json": '{"a'}
    use = block(0, {"type": "tool_use", "id": "a", "name": "t", "input": {}}, piece)
    told = read(START, *use, ending("max_tokens"), STOP)
    assert deltas(told) == [{"toolUse": {"input": '{"a'}}]
    assert {"messageStop": {"stopReason": "max_tokens"}} in told

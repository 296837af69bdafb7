"""Chat completions without a network: histories become requests that the API takes, chunks become events."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import (
    ContextWindowOverflowException,
    ModelError,
    ModelProtocolError,
    ModelRequestError,
    ModelThrottledException,
)
from antiphon.models.openai.chat_answer import ChatAnswer
from antiphon.models.openai.chat_request import chat_messages, chat_request
from antiphon.testing.servers.openai_chat import check_messages

PNG = b"\x89PNG"
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
IMAGE = {"image": {"format": "png", "source": {"bytes": PNG}}}
SPEC = {"name": "look", "description": "Looks.", "inputSchema": {"json": {"type": "object", "properties": {}}}}


def user(*content):
    return {"role": "user", "content": [{"text": item} if isinstance(item, str) else item for item in content]}


def assistant(*content):
    return {**user(*content), "role": "assistant"}


def call(key, name="look", **given):
    return {"toolUse": {"toolUseId": key, "name": name, "input": given}}


def result(key, *content, status="success"):
    told = [{"text": item} if isinstance(item, str) else item for item in content]
    return {"toolResult": {"toolUseId": key, "status": status, "content": told}}


def chunk(finish=None, **delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(index, arguments="", **more):
    name = more.pop("name", None)
    return {"index": index, "function": {"arguments": arguments, **({"name": name} if name else {})}, **more}


def events(*chunks):
    answer = ChatAnswer("gpt-test")
    told = [event for one in chunks for event in answer.feed(one)]
    return told + answer.end()


def blocks(told):
    """The answer put together: texts, thoughts and calls in order, and the stop reason."""
    found, stop = [], None
    for event in told:
        if "contentBlockStart" in event:
            found.append([event["contentBlockStart"]["start"].get("toolUse"), ""])
        elif "contentBlockDelta" in event:
            delta = event["contentBlockDelta"]["delta"]
            thought = delta.get("reasoningContent", {}).get("text")
            found[-1][1] += delta.get("text") or thought or delta.get("toolUse", {}).get("input", "")
            found[-1][0] = "thought" if thought else found[-1][0]
        elif "messageStop" in event:
            stop = event["messageStop"]["stopReason"]
    return [tuple(block) for block in found], stop


def test_words_and_the_system_prompt_are_plain_texts():
    assert chat_messages([user("hi"), assistant("hello"), user("one", "two")], "Be kind.") == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "one\ntwo"},
    ]


def test_a_structured_system_prompt_is_joined():
    [system, _] = chat_messages([user("hi")], [{"text": "One."}, {"cachePoint": {"type": "default"}}, {"text": "Two."}])
    assert system == {"role": "system", "content": "One.\nTwo."}


def test_calls_and_results_stand_beside_one_another():
    history = [user("look"), assistant("So.", call("a", at="sea"), call("b")), user(result("a", "1"), result("b", "2"))]
    assert chat_messages(history, None)[1:] == [
        {
            "role": "assistant",
            "content": "So.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}},
                {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]


def test_images_of_a_result_follow_after_all_results():
    history = [
        user("look"),
        assistant(call("a"), call("b")),
        user(result("a", "a pixel", IMAGE), result("b", "2"), "So?"),
    ]
    assert chat_messages(history, None)[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "a pixel"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Result of the call a, continued:"},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
                {"type": "text", "text": "So?"},
            ],
        },
    ]


def test_a_failed_call_says_so_in_words():
    history = [user("go"), assistant(call("a"), call("b"), call("c"))]
    told = user(
        result("a", "no such file", status="error"),
        result("b", "Error: no", status="error"),
        result("c", status="error"),
    )
    sent = chat_messages([*history, told], None)[2:]
    assert [message["content"] for message in sent] == ["Error: no such file", "Error: no", "Error"]


def test_json_of_a_result_is_text():
    [*_, sent] = chat_messages([user("go"), assistant(call("a")), user(result("a", {"json": {"é": [1]}}))], None)
    assert sent["content"] == '{"é":[1]}'


def test_documents_are_files_or_texts():
    pdf = {"document": {"format": "pdf", "name": "bill", "source": {"bytes": b"%PDF"}}}
    note = {"document": {"format": "md", "name": "note", "source": {"bytes": b"# Hi"}}}
    [message] = chat_messages([user(pdf, note)], None)
    data = "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode()
    assert message["content"] == [
        {"type": "file", "file": {"filename": "bill.pdf", "file_data": data}},
        {"type": "text", "text": "note.md:\n# Hi"},
    ]


def test_an_image_on_the_web_is_named_by_its_address():
    [message] = chat_messages([user({"image": {"source": {"location": {"url": "https://a.example/b.png"}}}})], None)
    assert message["content"][0]["image_url"] == {"url": "https://a.example/b.png"}


def test_ids_from_elsewhere_are_shortened_the_same_way_each_time():
    long = "tooluse_" + "x" * 60
    _, made, told = chat_messages([user("go"), assistant(call(long)), user(result(long, "1"))], None)
    assert made["tool_calls"][0]["id"] == told["tool_call_id"]
    assert len(told["tool_call_id"]) <= 40


def test_a_dangling_call_is_answered():
    sent = chat_messages([user("go"), assistant(call("a")), user("never mind")], None)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


def test_a_block_that_the_api_does_not_take_is_named():
    with pytest.raises(ModelRequestError, match=r"messages\[0\]: OpenAI takes no 'video' block"):
        chat_messages([user({"video": {"format": "mp4", "source": {"bytes": b""}}})], None)
    with pytest.raises(ModelRequestError, match="bytes or a web address, not \\['location'\\]"):
        chat_messages([user({"image": {"format": "png", "source": {"location": {"s3": "b"}}}})], None)


def test_thoughts_go_back_only_where_they_are_wanted():
    thought = {"reasoningContent": {"reasoningText": {"text": "hm"}}}
    history = [user("go"), assistant(thought, "So."), user("and?")]
    assert "reasoning_content" not in chat_messages(history, None)[1]
    assert chat_messages(history, None, send_reasoning=True)[1]["reasoning_content"] == "hm"


def test_parameters_go_out_as_they_are_and_tools_are_joined():
    body = chat_request(
        [user("hi")],
        [SPEC],
        None,
        model_id="m",
        params={"loud": 11, "tools": [{"type": "own"}], "stream_options": {"x": 1}},
    )
    assert body["loud"] == 11
    assert [tool["type"] for tool in body["tools"]] == ["own", "function"]
    assert body["stream_options"] == {"include_usage": True, "x": 1}
    assert "stream_options" not in chat_request([user("hi")], None, None, model_id="m", params={"stream_options": None})


def contents(role):
    words = st.builds(lambda text: {"text": text}, st.text(max_size=4))
    keys = st.sampled_from(["a", "b", "c", "d" * 50])
    if role == "user":
        return st.one_of(words, st.just(IMAGE), st.builds(lambda key: result(key, "r", IMAGE), keys))
    thought = st.just({"reasoningContent": {"reasoningText": {"text": "hm"}}})
    return st.one_of(words, thought, st.builds(call, keys))


histories = st.lists(
    st.sampled_from(["user", "assistant"]).flatmap(
        lambda role: st.fixed_dictionaries({"role": st.just(role), "content": st.lists(contents(role), max_size=4)})
    ),
    max_size=6,
)


@given(histories)
@settings(max_examples=80)
def test_whatever_the_history_is_the_api_takes_it(history):
    check_messages([*chat_messages(history, "Be kind."), {"role": "user", "content": "hi"}])


def test_a_text_becomes_one_block():
    told = events(chunk(role="assistant", content=""), chunk(content="Good "), chunk(content="day."), chunk("stop"))
    assert told == [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"text": "Good "}}},
        {"contentBlockDelta": {"delta": {"text": "day."}}},
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_are_a_block_before_the_words(field):
    told = events(chunk(**{field: "h"}), chunk(**{field: "m"}), chunk(content="So."), chunk("stop"))
    assert blocks(told) == ([("thought", "hm"), (None, "So.")], "end_turn")


def test_mixed_calls_come_one_after_the_other():
    told = events(
        chunk(tool_calls=[piece(0, id="a", name="look"), piece(1, id="b", name="hear")]),
        chunk(tool_calls=[piece(1, '{"x"')]),
        chunk(tool_calls=[piece(0, "{")]),
        chunk(tool_calls=[piece(1, ":1}"), piece(0, "}")]),
        chunk("tool_calls"),
    )
    assert blocks(told) == (
        [({"toolUseId": "a", "name": "look"}, "{}"), ({"toolUseId": "b", "name": "hear"}, '{"x":1}')],
        "tool_use",
    )


def test_words_after_a_call_wait_for_its_end():
    told = events(
        chunk(tool_calls=[piece(0, "{", id="a", name="look")]),
        chunk(content="Wait."),
        chunk(tool_calls=[piece(0, "}")]),
        chunk("tool_calls"),
    )
    assert blocks(told)[0] == [({"toolUseId": "a", "name": "look"}, "{}"), (None, "Wait.")]


def test_calls_without_an_index_or_all_with_one_are_told_apart_by_their_ids():
    for index in (None, 0):
        told = events(
            chunk(tool_calls=[piece(index, "{}", id="a", name="look")]),
            chunk(tool_calls=[piece(index, "{", id="b", name="hear")]),
            chunk(tool_calls=[piece(index, "}")]),
            chunk("stop"),
        )
        assert blocks(told) == (
            [({"toolUseId": "a", "name": "look"}, "{}"), ({"toolUseId": "b", "name": "hear"}, "{}")],
            "tool_use",
        )


def test_a_call_whose_name_comes_late_loses_nothing():
    told = events(
        chunk(tool_calls=[piece(0, '{"x"', id="a")]),
        chunk(tool_calls=[piece(0, ":1}", name="look")]),
        chunk("tool_calls"),
    )
    assert blocks(told)[0] == [({"toolUseId": "a", "name": "look"}, '{"x":1}')]


def test_a_call_without_a_name_is_told_all_the_same():
    assert blocks(events(chunk(tool_calls=[piece(0, "{}", id="a")]), chunk("tool_calls")))[0] == [
        ({"toolUseId": "a", "name": ""}, "{}")
    ]


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "content_filtered"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
    ],
)
def test_the_finish_reason_is_the_stop_reason(finish, stop):
    assert events(chunk(content="a"), chunk(finish))[-1] == {"messageStop": {"stopReason": stop}}


def test_an_unknown_finish_reason_ends_the_turn_and_is_logged(caplog):
    assert events(chunk("eos"))[-1] == {"messageStop": {"stopReason": "end_turn"}}
    assert "unknown finish_reason 'eos'" in caplog.text


def test_a_stop_text_is_told_where_the_server_tells_it():
    last = chunk("stop")
    last["choices"][0]["stop_reason"] = "END"
    assert events(last)[-1] == {"messageStop": {"stopReason": "stop_sequence"}}


def test_a_refusal_of_the_model_is_words_and_a_filter():
    assert blocks(events(chunk(refusal="I will "), chunk(refusal="not."), chunk("stop"))) == (
        [(None, "I will not.")],
        "content_filtered",
    )


def test_tokens_are_told_once_however_often_they_come():
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    told = events({**chunk(content="a"), "usage": {"prompt_tokens": 5}}, chunk("stop"), {"choices": [], "usage": usage})
    assert told[-1] == {
        "metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7, "cacheReadInputTokens": 4}}
    }
    assert sum("metadata" in event for event in told) == 1


def test_other_choices_and_what_comes_after_the_end_are_left_out():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}}]}
    told = events(other, chunk(content="yes"), chunk("stop"), chunk(content="late"))
    assert blocks(told)[0] == [(None, "yes")]


def test_a_stream_without_an_end_is_an_error():
    with pytest.raises(ModelProtocolError, match="without a finish_reason"):
        events(chunk(content="Good "))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "slow", "code": "rate_limit_exceeded"}, ModelThrottledException),
        ({"message": "too long", "code": "context_length_exceeded"}, ContextWindowOverflowException),
        ("out of order", ModelError),
        ({"message": "odd", "code": "odd"}, ModelRequestError),
    ],
)
def test_an_error_in_the_stream_is_raised(error, kind):
    with pytest.raises(kind):
        ChatAnswer().feed({"error": error})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
fields = ["choices", "delta", "content", "tool_calls", "function", "name", "arguments", "index", "usage", "error", "id"]
odd_frames = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(fields), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(fields), odd_frames, max_size=4), max_size=4))
@settings(max_examples=60)
def test_whatever_is_sent_the_outcome_is_events_or_an_error_of_the_model(frames):
    try:
        for event in events(*frames, chunk("stop")):
            assert len(event) == 1
    except ModelError:
        pass


pieces_of_calls = st.lists(st.tuples(st.integers(0, 2), st.text("{}:1", max_size=3)), max_size=8)


@given(pieces_of_calls)
@settings(max_examples=100)
def test_however_pieces_of_calls_are_mixed_each_call_is_whole(pieces):
    opening = chunk(tool_calls=[piece(index, id=f"c{index}", name="look") for index in range(3)])
    told = events(opening, *(chunk(tool_calls=[piece(index, text)]) for index, text in pieces), chunk("tool_calls"))
    assert [text for _, text in blocks(told)[0]] == [
        "".join(text for index, text in pieces if index == wanted) for wanted in range(3)
    ]


def test_pieces_of_a_call_are_told_as_they_come_also_after_words():
    answer = ChatAnswer()
    answer.feed(chunk(content="So."))
    answer.feed(chunk(tool_calls=[piece(0, id="a", name="look")]))
    told = answer.feed(chunk(tool_calls=[piece(0, "{}")]))
    assert told == [{"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}]

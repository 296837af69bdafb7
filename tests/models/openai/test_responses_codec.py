"""The Responses API without a network: histories become input that the API takes, its events become ours."""

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
from antiphon.models.openai.responses_answer import ResponsesAnswer
from antiphon.models.openai.responses_request import input_items, responses_request, signature
from antiphon.testing.servers.openai_responses import check_calls

PNG = b"\x89PNG"
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
IMAGE = {"image": {"format": "png", "source": {"bytes": PNG}}}
PDF = {"document": {"format": "pdf", "name": "bill", "source": {"bytes": b"%PDF"}}}
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


def thought(text, signed=None):
    return {"reasoningContent": {"reasoningText": {"text": text, **({"signature": signed} if signed else {})}}}


def test_words_calls_and_results_are_items():
    history = [user("look"), assistant("So.", call("a", at="sea")), user(result("a", "1", status="error"), "and?")]
    assert input_items(history) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"at":"sea"}'},
        {"type": "function_call_output", "call_id": "a", "output": "Error: 1"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ]


def test_a_result_holds_its_images_and_files_itself():
    [*_, output] = input_items([user("look"), assistant(call("a")), user(result("a", "a pixel", IMAGE, PDF))])
    assert output["output"] == [
        {"type": "input_text", "text": "a pixel"},
        {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
        {
            "type": "input_file",
            "filename": "bill.pdf",
            "file_data": "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode(),
        },
    ]


def test_thoughts_go_back_to_where_they_came_from():
    signed = signature("rs_1", "sealed")
    items = input_items([user("hi"), assistant(thought("hm", signed), "So."), user("and?")])
    assert items[1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "sealed",
    }
    elsewhere = [
        assistant(thought("hm", "of another provider"), thought("hm"), thought("", "openai-reasoning:{"), "So.")
    ]
    assert [item["type"] for item in input_items(elsewhere)] == ["message"]


def test_thoughts_of_which_nothing_came_are_left_out():
    items = input_items([user("hi"), assistant(thought("hm", signature("rs_1", "sealed"))), user("and?")])
    assert [item["type"] for item in items] == ["message", "message"]


def test_calls_that_the_server_has_are_answered():
    assert input_items([user(result("a", "1"))], ["a", "b"]) == [
        {"type": "function_call_output", "call_id": "b", "output": "Error: Tool was interrupted."},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]
    assert [item["type"] for item in input_items([user("never mind")], ["a"])] == ["function_call_output", "message"]


def test_results_of_calls_that_the_server_does_not_have_are_left_out():
    assert input_items([user(result("z", "1"), "hi")], []) == input_items([user("hi")])


def test_a_block_that_the_api_does_not_take_is_named():
    with pytest.raises(ModelRequestError, match="takes no 'video' block"):
        input_items([user({"video": {}})])
    with pytest.raises(ModelRequestError, match="takes no 'video' block"):
        input_items([user("a"), assistant(call("a")), user(result("a", {"video": {}}))])


def test_parameters_go_out_as_they_are_and_lists_are_joined():
    body = responses_request(
        [],
        [SPEC],
        [{"text": "Be kind."}],
        model_id="m",
        params={"tools": [{"type": "web_search"}], "include": ["web_search_call.results"], "loud": 11},
        store=False,
        encrypted=True,
    )
    assert body["include"] == ["web_search_call.results", "reasoning.encrypted_content"]
    assert [tool["type"] for tool in body["tools"]] == ["web_search", "function"]
    assert (body["instructions"], body["loud"], body["store"]) == ("Be kind.", 11, False)
    assert "previous_response_id" not in body


def contents(role):
    words = st.builds(lambda text: {"text": text}, st.text(max_size=4))
    keys = st.sampled_from(["a", "b", "c", "d" * 50])
    if role == "user":
        return st.one_of(words, st.just(IMAGE), st.builds(lambda key: result(key, "r", IMAGE), keys))
    return st.one_of(words, st.just(thought("hm", signature("rs_1", "sealed"))), st.builds(call, keys))


histories = st.lists(
    st.sampled_from(["user", "assistant"]).flatmap(
        lambda role: st.fixed_dictionaries({"role": st.just(role), "content": st.lists(contents(role), max_size=4)})
    ),
    max_size=6,
)


@given(histories, st.lists(st.sampled_from(["a", "b"]), unique=True, max_size=2))
@settings(max_examples=80)
def test_whatever_the_history_is_the_api_takes_it(history, at_server):
    known = [{"type": "function_call", "call_id": key} for key in at_server]
    check_calls(known, input_items([*history, user("hi")], at_server))


def item(kind, index=0, **more):
    return {"type": "response.output_item.added", "output_index": index, "item": {"type": kind, **more}}


def done(kind, index=0, **more):
    return {**item(kind, index, **more), "type": "response.output_item.done"}


def delta(kind, text, index=0):
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def over(how="completed", **response):
    return {"type": f"response.{how}", "response": {"id": "resp_1", **response}}


def told(*frames, answer=None):
    answer = answer or ResponsesAnswer("gpt-test")
    return [event for frame in frames for event in answer.feed(frame)] + answer.end()


def pieces(events):
    found = []
    for event in events:
        if "contentBlockStart" in event:
            found.append([event["contentBlockStart"]["start"].get("toolUse"), ""])
        elif "contentBlockDelta" in event:
            part = event["contentBlockDelta"]["delta"]
            thoughts = part.get("reasoningContent", {})
            found[-1][1] += part.get("text", "") + thoughts.get("text", "") + part.get("toolUse", {}).get("input", "")
            found[-1] += [thoughts["signature"]] if "signature" in thoughts else []
    return [tuple(block) for block in found]


def test_a_message_becomes_a_block():
    events = told(
        {"type": "response.created", "response": {"id": "resp_1"}},
        item("message"),
        delta("output_text", "Good "),
        delta("output_text", "day."),
        done("message", content=[{"type": "output_text", "text": "Good day."}]),
        over(usage={"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}),
    )
    assert events == [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"text": "Good "}}},
        {"contentBlockDelta": {"delta": {"text": "day."}}},
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7, "cacheReadInputTokens": 4}}},
    ]


def test_mixed_calls_come_one_after_the_other():
    answer = ResponsesAnswer()
    events = told(
        item("function_call", 0, call_id="a", name="look"),
        item("function_call", 1, call_id="b", name="hear"),
        delta("function_call_arguments", '{"x"', 1),
        delta("function_call_arguments", "{}", 0),
        delta("function_call_arguments", ":1}", 1),
        done("function_call", 1, call_id="b", name="hear", arguments='{"x":1}'),
        done("function_call", 0, call_id="a", name="look", arguments="{}"),
        over(),
        answer=answer,
    )
    assert pieces(events) == [
        ({"toolUseId": "a", "name": "look"}, "{}"),
        ({"toolUseId": "b", "name": "hear"}, '{"x":1}'),
    ]
    assert events[-1] == {"messageStop": {"stopReason": "tool_use"}}
    assert sorted(answer.open_calls) == ["a", "b"]


def test_items_that_come_whole_are_told_whole():
    events = told(
        done("reasoning", 0, id="rs_1", summary=[{"text": "h"}, {"text": "m"}], encrypted_content="sealed"),
        done("message", 1, content=[{"type": "output_text", "text": "So."}]),
        done("function_call", 2, call_id="a", name="look", arguments="{}"),
        over(),
    )
    assert pieces(events) == [
        (None, "h\n\nm", signature("rs_1", "sealed")),
        (None, "So."),
        ({"toolUseId": "a", "name": "look"}, "{}"),
    ]


def test_parts_of_a_summary_are_apart():
    part = {"type": "response.reasoning_summary_part.added", "output_index": 0}
    events = told(
        item("reasoning"),
        part,
        delta("reasoning_summary_text", "One."),
        part,
        delta("reasoning_summary_text", "Two."),
        done("reasoning", id="rs_1"),
        over(),
    )
    assert pieces(events) == [(None, "One.\n\nTwo.")]


def test_open_thoughts_of_compatible_servers_are_thoughts():
    events = told(delta("reasoning_text", "hm"), over())
    assert {"contentBlockDelta": {"delta": {"reasoningContent": {"text": "hm"}}}} in events


def test_what_the_providers_own_tools_do_is_left_out_and_counted():
    answer = ResponsesAnswer()
    events = told(item("web_search_call"), {"type": "response.web_search_call.searching"}, over(), answer=answer)
    assert pieces(events) == []
    assert answer.unknown == {"response.web_search_call.searching": 1}


@pytest.mark.parametrize(
    ("how", "reason", "stop"),
    [
        ("incomplete", "max_output_tokens", "max_tokens"),
        ("incomplete", "content_filter", "content_filtered"),
        ("incomplete", "steered", "end_turn"),
        ("completed", None, "end_turn"),
    ],
)
def test_why_it_ended_is_the_stop_reason(how, reason, stop):
    assert told(over(how, incomplete_details={"reason": reason}))[-1] == {"messageStop": {"stopReason": stop}}


def test_a_refusal_of_the_model_is_words_and_a_filter():
    events = told(item("message"), delta("refusal", "I will not."), over())
    assert pieces(events) == [(None, "I will not.")]
    assert events[-1] == {"messageStop": {"stopReason": "content_filtered"}}


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (over("failed", error={"code": "rate_limit_exceeded", "message": "slow"}), ModelThrottledException),
        (over("failed", error={"code": "server_error", "message": "broken"}), ModelError),
        (over("failed", error={"code": "invalid_image", "message": "what is this"}), ModelRequestError),
        (over("failed", error=None), ModelError),
        (over("cancelled"), ModelError),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, ContextWindowOverflowException),
        ({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}}, ModelThrottledException),
        ({"type": "response.output_text.delta", "delta": 7}, ModelProtocolError),
        ({"type": ["response"]}, ModelProtocolError),
    ],
)
def test_a_failure_is_raised(frame, kind):
    with pytest.raises(kind):
        ResponsesAnswer().feed(frame)


def test_a_stream_without_an_end_is_an_error():
    with pytest.raises(ModelProtocolError, match=r"without response\.completed"):
        told(delta("output_text", "Good "))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(
    [
        *("response.created", "response.output_item.added", "response.output_item.done", "response.completed", "error"),
        *("response.output_text.delta", "response.function_call_arguments.delta", "response.failed", "novelty"),
    ]
)
fields = st.sampled_from(
    ["output_index", "item", "delta", "response", "content", "summary", "call_id", "name", "id", "type"]
)
odd = st.recursive(json_values, lambda inner: st.dictionaries(fields, inner, max_size=5), max_leaves=8)


@given(st.lists(st.builds(lambda kind, more: {**more, "type": kind}, kinds, st.dictionaries(fields, odd)), max_size=5))
@settings(max_examples=60)
def test_whatever_is_sent_the_outcome_is_events_or_an_error_of_the_model(frames):
    try:
        for event in told(*frames, over()):
            assert len(event) == 1
    except ModelError:
        pass

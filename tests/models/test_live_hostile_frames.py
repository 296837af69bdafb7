"""Frames that no provider should send: each is understood, or an error that the agent knows; and nothing is left in between."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.content import BidiMessage, TextBlock, ToolResultBlock
from antiphon.errors import AntiphonError
from antiphon.models.openai.realtime_wire import ServerEvent
from tests.models.bedrock import nova_wire_format as nova
from tests.models.openai import realtime_exchange as openai

KINDS = sorted(str(event.__struct_config__.tag) for event in get_args(ServerEvent))
BLOCKS = [
    "completionStart",
    "contentStart",
    "textOutput",
    "audioOutput",
    "toolUse",
    "contentEnd",
    "usageEvent",
    "completionEnd",
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.sampled_from(
        ["", "a", "b", "completed", "cancelled", "failed", "incomplete", "message", "function_call", "AAAA", "{}"]
    ),
    st.sampled_from(["TEXT", "AUDIO", "TOOL", "USER", "ASSISTANT", "INTERRUPTED", "END_TURN", '{"interrupted": true}']),
    st.text(max_size=5),
)
VALUES = st.recursive(
    ODD,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
ITEMS = st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "type", "status", "call_id", "name", "arguments"), ODD))
RESPONSES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", None]),
        "status": ODD,
        "status_details": st.none() | st.fixed_dictionaries({}, optional={"reason": ODD, "error": VALUES}),
        "output": st.none() | st.lists(ITEMS, max_size=2),
        "usage": VALUES,
        "metadata": st.none() | st.just({"request": "ask-1"}),
    },
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "response": RESPONSES | VALUES,
        "item": ITEMS | VALUES,
        "session": st.just({"id": "s"}) | VALUES,
        "error": st.fixed_dictionaries({}, optional={"code": ODD, "message": ODD, "type": ODD}) | VALUES,
        "response_id": st.sampled_from(["a", "b"]) | ODD,
        "item_id": st.sampled_from(["a", "b"]) | ODD,
        "delta": ODD,
        "transcript": ODD,
        "text": ODD,
        "rate_limits": VALUES,
    },
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "contentId": st.sampled_from(["a", "b"]) | ODD,
        "type": ODD,
        "role": ODD,
        "content": ODD,
        "stopReason": ODD,
        "additionalModelFields": st.sampled_from(['{"generationStage":"FINAL"}', '{"generationStage":"SPECULATIVE"}'])
        | VALUES,
        "audioOutputConfiguration": st.just({"sampleRateHertz": 24000}) | VALUES,
        "toolUseId": ODD,
        "toolName": ODD,
        "details": VALUES | st.fixed_dictionaries({"delta": VALUES}),
        "totalInputTokens": ODD,
        "totalOutputTokens": ODD,
    },
)


@settings(max_examples=300)
@given(events=st.lists(EVENTS, max_size=12))
def test_whatever_openai_sends_is_understood_or_an_error_of_ours(events):
    codec = openai.make_codec()
    codec.open()
    codec.receive(openai.frame("session.created", session={"id": "s"}))
    codec.receive(openai.frame("session.updated", session={"id": "s"}))
    for event in events:
        try:
            made = codec.receive(json.dumps(event))
        except AntiphonError:
            break
        for one in made:
            json.dumps(one.to_dict(), default=str)
        codec.send(BidiMessage([TextBlock("x"), ToolResultBlock("a", "success", [])]))
        codec.truncate("a", 5)
        codec.ring("heard")


@settings(max_examples=300)
@given(events=st.lists(st.tuples(st.sampled_from(BLOCKS), BODIES | VALUES), max_size=12))
def test_whatever_nova_sends_is_understood_or_an_error_of_ours(events):
    codec = nova.opened()
    for name, body in events:
        try:
            made = codec.receive(nova.chunk(name, body))
        except AntiphonError:
            break
        for one in made:
            json.dumps(one.to_dict(), default=str)


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"1", b'{"bytes": 1}', b'{"bytes": "bm90IGpzb24="}', b'{"bytes": "W10="}']
)
def test_a_chunk_that_holds_no_event_is_an_error_of_ours(payload):
    codec = nova.opened()
    with pytest.raises(AntiphonError):
        codec.receive(nova.encode_message(nova.HEADERS, payload))


def test_json_without_end_is_an_error_of_ours():
    deep = "[" * 100_000
    openai_codec = openai.make_codec()
    openai_codec.open()
    with pytest.raises(AntiphonError):
        openai_codec.receive('{"type": "future", "x": ' + deep)
    with pytest.raises(AntiphonError):
        nova.opened().receive(nova.encode_message(nova.HEADERS, ('{"bytes": ' + deep).encode()))


def test_arguments_without_end_are_refused_by_their_tool_and_end_no_talk():
    """Arguments are a text with JSON in it: what cannot be read is handed on as it is."""
    deep = "[" * 100_000
    codec = nova.opened()
    events = [event for frame in nova.call("a", "id", "noon", deep) for event in codec.receive(frame)]
    assert [event.tool_uses[0]["input"] for event in events] == [deep]
    exchange = openai.Exchange()
    exchange.hear("is it noon?")
    events = exchange.tell([*exchange.session.calls([("noon", deep)]), exchange.session.done()])
    assert [event.tool_uses[0]["input"] for event in events if event.type == "bidi_tool_use_blocks"] == [deep]

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.content import Message, Messages, ToolUseBlock, error_result
from antiphon.conversation.calls import LONGEST_ID, UNNAMED, normalised
from antiphon.conversation.repair import problems
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.tools.registry import check_tool_name

SURROGATE = "\ud800"

odd_text = st.one_of(
    st.sampled_from(["", " ", "a", "a-2", "call-1", "set_light", SURROGATE, "naïve tool", "\x00", "x" * 80]),
    st.text(max_size=8),
)
odd_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        odd_text,
        st.binary(max_size=4),
        st.just(object()),
        st.just({1: "a number as key"}),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd_text, inner, max_size=3)),
    max_leaves=6,
)
odd_calls = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "toolUseId": st.one_of(odd_text, odd_values),
            "name": st.one_of(odd_text, odd_values),
            "input": odd_values,
            "signature": odd_values,
        },
    ),
    odd_values,
    st.builds(ToolUseBlock, odd_text, odd_text, odd_values),
)


@given(st.lists(odd_calls, min_size=1, max_size=6), st.sets(odd_text, max_size=4))
def test_whatever_a_model_calls_the_history_stays_one_that_providers_and_stores_accept(
    calls: list[object], taken: set[str]
) -> None:
    kept = normalised(calls, taken)
    uses = [call.tool_use for call in kept]
    assert len(kept) == len(calls)
    assert not taken.intersection(use["toolUseId"] for use in uses)
    for use in uses:
        assert use["toolUseId"].strip()
        assert isinstance(use["input"], dict)
        check_tool_name(use["name"])
    asked: Message = {"role": "assistant", "content": [{"toolUse": use} for use in uses]}
    results = [{"toolResult": error_result(call.tool_use["toolUseId"], call.refusal or "done")} for call in kept]
    history: Messages = [asked, {"role": "user", "content": results}]  # type: ignore[typeddict-item]
    assert problems(history) == []
    assert decode_json(encode_json(copy_json(history))) == history
    assert normalised(calls, taken) == kept
    assert [call.tool_use for call in normalised(uses, ())] == uses


@given(st.lists(odd_calls, max_size=4), st.sets(odd_text, max_size=3))
def test_a_call_that_was_changed_does_not_run(calls: list[object], taken: set[str]) -> None:
    for given_call, kept in zip(calls, normalised(calls, taken), strict=True):
        if kept.refusal is None:
            entry: Any = given_call.to_dict()["toolUse"] if isinstance(given_call, ToolUseBlock) else given_call  # type: ignore[typeddict-item]
            assert kept.tool_use["name"] == entry["name"]
            assert kept.tool_use["input"] == (entry.get("input") or {})
        else:
            assert kept.refusal.strip()
            kept.refusal.encode()


def test_a_call_in_order_is_kept_as_an_independent_copy() -> None:
    given_call: dict[str, Any] = {
        "toolUseId": "t1",
        "name": "lights",
        "input": {"rooms": ["kitchen"]},
        "signature": b"s",
    }
    [call] = normalised([given_call], ())
    assert (call.tool_use, call.refusal, call.original_id) == (given_call, None, "t1")
    given_call["input"]["rooms"].append("hall")
    assert call.tool_use["input"] == {"rooms": ["kitchen"]}


def test_the_id_that_the_model_gave_is_known_beside_the_one_that_is_kept() -> None:
    calls = [{"toolUseId": "t1", "name": "lights", "input": {}}] * 3
    kept = normalised(calls, {"t1"})
    assert [call.tool_use["toolUseId"] for call in kept] == ["t1-2", "t1-3", "t1-4"]
    assert [call.original_id for call in kept] == ["t1"] * 3


@pytest.mark.parametrize("key", [None, "", "  ", 7, ["t1"]])
def test_a_call_without_an_id_gets_one(key: object) -> None:
    [call] = normalised([{"toolUseId": key, "name": "lights", "input": {}}], {"call-1"})
    assert (call.tool_use["toolUseId"], call.refusal, call.original_id) == ("call-2", None, None)


def test_an_id_that_is_made_here_is_no_longer_than_providers_take() -> None:
    long = "t" * LONGEST_ID
    [call] = normalised([{"toolUseId": long, "name": "lights", "input": {}}], {long})
    assert call.tool_use["toolUseId"] == "t" * 62 + "-2"


@pytest.mark.parametrize("name", [None, "", " ", 5])
def test_a_call_without_a_name_is_kept_under_a_legal_one_and_refused(name: object) -> None:
    [call] = normalised([{"toolUseId": "t1", "name": name, "input": {}}], ())
    assert (call.tool_use["name"], call.refusal) == (UNNAMED, "Error: the call names no tool")


def test_a_name_that_no_tool_can_have_is_made_legal_and_refused_by_its_own_words() -> None:
    [call] = normalised([{"toolUseId": "t1", "name": "set light!", "input": {}}], ())
    assert (call.tool_use["name"], call.refusal) == ("set_light_", "Unknown tool: 'set light!'")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"level": float("nan")}, "input.level is NaN"),
        ({"id": 2**64}, "input.id is 18446744073709551616, more than 64 bits"),
        ({"text": SURROGATE}, "input.text contains a lone surrogate"),
        ({"sound": b"pcm"}, "input.sound is bytes"),
        ({3: 4}, "has the key 3, which is not a string"),
        ([1, 2], "not a JSON object: [1, 2]"),
        ("{}", "not a JSON object: '{}'"),
    ],
)
def test_an_input_that_is_not_json_becomes_empty_and_the_refusal_says_why(value: object, said: str) -> None:
    [call] = normalised([{"toolUseId": "t1", "name": "lights", "input": value}], ())
    assert call.tool_use["input"] == {}
    assert call.refusal is not None
    assert said in call.refusal


def test_an_input_that_a_snapshot_could_not_hold_for_its_depth_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(190):
        deep = {"in": deep}
    [call] = normalised([{"toolUseId": "t1", "name": "lights", "input": deep}], ())
    assert call.tool_use["input"] == {}
    assert call.refusal is not None
    assert "nested deeper" in call.refusal


def test_the_values_given_are_left_as_they_are() -> None:
    calls = [{"name": "", "input": {"a": (1, 2)}}, "nonsense"]
    before = copy.deepcopy(calls)
    normalised(calls, ())
    assert calls == before

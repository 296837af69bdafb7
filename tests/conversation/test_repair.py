"""Histories that providers refuse are mended; legal ones are left alone."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation.repair import INTERRUPTED_TEXT, has_calls, problems, repair, without_dangling_tail


def said(text, role="user"):
    return {"role": role, "content": [{"text": text}]}


def calling(*ids, text=None):
    calls = [{"toolUse": {"toolUseId": key, "name": "look", "input": {}}} for key in ids]
    return {"role": "assistant", "content": [*([{"text": text}] if text else []), *calls]}


def result(key, text="done"):
    return {"toolResult": {"toolUseId": key, "status": "success", "content": [{"text": text}]}}


def results(*ids):
    return {"role": "user", "content": [result(key) for key in ids]}


LEGAL = [
    said("hi"),
    calling("a", "b", text="let me see"),
    results("b", "a"),
    said("there", "assistant"),
    said("thanks"),
]


def texts_of_results(messages):
    return {
        block["toolResult"]["toolUseId"]: block["toolResult"]["content"][0]["text"]
        for message in messages
        for block in message["content"]
        if "toolResult" in block
    }


def test_a_legal_history_has_no_problems_and_stays_as_it_is():
    assert problems(LEGAL) == []
    mended = repair(LEGAL)
    assert all(one is other for one, other in zip(mended, LEGAL, strict=True))


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([results("a")], "'a' is not a call of the message before it"),
        ([calling("a")], "no result of 'a'"),
        ([calling("a"), said("and?"), results("a")], "messages[1]: no result of 'a'"),
        ([calling("a"), results("a", "a")], "a second result of 'a'"),
        ([calling("a", "a"), results("a")], "the id 'a' is used twice"),
        ([calling("a"), results("a"), calling("a"), results("a")], "the id 'a' is used twice"),
        ([{"role": "user", "content": []}], "the content is empty"),
        ([said(" \n")], "the text is empty"),
        ([{"role": "user", "content": [{}]}], "the block is empty"),
        ([said("hello", "system")], "the role 'system' is unknown"),
        ([{"role": "assistant", "content": [result("a")]}], "the assistant gives the result of 'a'"),
        ([{"role": "user", "content": calling("a")["content"]}], "the user calls a tool ('a')"),
    ],
)
def test_what_a_provider_would_refuse_is_named_and_mended(history, problem):
    assert any(problem in found for found in problems(history)), problems(history)
    assert problems(repair(history)) == []


def test_a_call_without_a_result_gets_an_error_result():
    mended = repair([said("go"), calling("a", "b"), {"role": "user", "content": [result("b")]}])
    assert mended[2]["content"][0]["toolResult"] == {
        "toolUseId": "a",
        "status": "error",
        "content": [{"text": INTERRUPTED_TEXT}],
    }
    assert mended[2]["content"][1] == result("b")


def test_a_result_that_came_late_moves_to_its_call():
    assert repair([calling("a"), said("and?"), results("a")]) == [calling("a"), results("a"), said("and?")]


def test_an_empty_message_between_a_call_and_its_result_is_no_obstacle():
    assert repair([calling("a"), {"role": "user", "content": []}, results("a")]) == [calling("a"), results("a")]


def test_a_second_call_with_a_known_id_keeps_its_result_under_another():
    mended = repair(
        [
            calling("a"),
            {"role": "user", "content": [result("a", "started")]},
            calling("a"),
            {"role": "user", "content": [result("a", "finished")]},
        ]
    )
    assert texts_of_results(mended) == {"a": "started", "a-2": "finished"}
    assert problems(mended) == []


def test_the_tail_is_dropped_and_what_was_said_beside_it_stays():
    history = [said("hi"), calling("a", text="one moment")]
    assert without_dangling_tail(history) == [said("hi"), said("one moment", "assistant")]
    assert without_dangling_tail([said("hi"), calling("a")]) == [said("hi")]
    assert without_dangling_tail(LEGAL) == LEGAL
    assert has_calls(history[1])


keys = st.sampled_from(["a", "b", "c", "a-2"])
blocks = st.one_of(
    st.sampled_from(["", " ", "hello", "wait"]).map(lambda text: {"text": text}),
    keys.map(lambda key: {"toolUse": {"toolUseId": key, "name": "look", "input": {}}}),
    st.builds(result, keys, st.sampled_from(["one", "two"])),
    st.just({}),
)
histories = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "user", "assistant", "tool"]),
            "content": st.lists(blocks, max_size=4),
        }
    ),
    max_size=8,
)


@given(histories)
def test_whatever_happened_a_repaired_history_has_no_problems(history):
    before = copy.deepcopy(history)
    mended = repair(history)
    assert problems(mended) == []
    assert history == before, "the original is left as it is"


@given(histories)
def test_repairing_twice_is_repairing_once(history):
    mended = repair(history)
    assert repair(mended) == mended


@given(histories)
def test_a_history_without_problems_is_left_alone(history):
    if not problems(history):
        assert repair(history) == history


@given(histories)
def test_no_words_and_no_calls_of_people_and_models_are_lost(history):
    def kept(messages):
        return [
            (message["role"], block.get("text", "call"))
            for message in messages
            if message["role"] in {"user", "assistant"}
            for block in message["content"]
            if (block.get("text", "").strip()) or ("toolUse" in block and message["role"] == "assistant")
        ]

    assert kept(repair(history)) == kept(history)

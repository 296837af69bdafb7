"""Conversation managers bound a history and leave it legal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agent import Agent, NullConversationManager, SlidingWindowConversationManager
from antiphon.conversation.repair import problems
from antiphon.errors import ContextWindowOverflowException, InvalidInputError, SnapshotException
from antiphon.testing import ScriptedModel


def user(text):
    return {"role": "user", "content": [{"text": text}]}


def assistant(text):
    return {"role": "assistant", "content": [{"text": text}]}


def pair(key, text="done"):
    return [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": key, "name": "look", "input": {}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": key, "status": "success", "content": [{"text": text}]}}],
        },
    ]


def agent_with(messages):
    return Agent(ScriptedModel([]), messages=messages)


def test_a_null_manager_changes_nothing():
    agent = agent_with([user("a")] * 100)
    manager = NullConversationManager()
    manager.apply_management(agent)
    assert len(agent.messages) == 100
    error = ContextWindowOverflowException("too long")
    with pytest.raises(ContextWindowOverflowException) as caught:
        manager.reduce_context(agent, error)
    assert caught.value.__cause__ is error


def test_a_window_keeps_the_newest_and_begins_with_a_prompt():
    agent = agent_with([user("1"), assistant("a"), user("2"), *pair("t"), assistant("b"), user("3"), assistant("c")])
    manager = SlidingWindowConversationManager(4)
    manager.apply_management(agent)
    assert agent.messages == [user("3"), assistant("c")]
    assert manager.removed_message_count == 6


def test_a_window_that_is_too_small_for_a_call_keeps_the_call_with_its_result():
    agent = agent_with([user("1"), *pair("t")])
    SlidingWindowConversationManager(1).apply_management(agent)
    assert agent.messages == pair("t")


def test_a_window_must_hold_something():
    with pytest.raises(InvalidInputError):
        SlidingWindowConversationManager(0)


def test_very_long_results_lose_their_middle_before_anything_is_forgotten():
    result = pair("t", "x" * 50_000)
    agent = agent_with([user("1"), *result, assistant("a")])
    manager = SlidingWindowConversationManager()
    manager.reduce_context(agent)
    assert len(agent.messages) == 4
    text = agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"]
    assert len(text) < 2_100
    assert "48000 characters left out" in text
    assert len(result[1]["content"][0]["toolResult"]["content"][0]["text"]) == 50_000, "who holds the message keeps it"
    manager.reduce_context(agent)
    assert len(agent.messages) < 4


def test_when_nothing_can_be_taken_away_that_is_an_error():
    with pytest.raises(ContextWindowOverflowException):
        SlidingWindowConversationManager().reduce_context(agent_with([user("x" * 100_000)]))


@pytest.mark.parametrize("count", [-1, "7", True, None])
def test_a_state_that_is_malformed_is_refused(count):
    manager = SlidingWindowConversationManager()
    with pytest.raises(SnapshotException):
        manager.restore_from_session({**manager.get_state(), "removed_message_count": count})


turns = st.sampled_from(["talk", "tool", "tools", "alone"])


@given(st.lists(turns, max_size=12), st.integers(1, 9), st.booleans())
def test_whatever_is_taken_away_the_rest_is_legal_and_the_newest(plan, size, reduce):
    messages = []
    for number, kind in enumerate(plan):
        messages.append(user(f"prompt {number}"))
        if kind == "tools":
            messages += pair(f"{number}-a") + pair(f"{number}-b")
        elif kind == "tool":
            messages += pair(str(number))
        if kind != "alone":
            messages.append(assistant("answer"))
    agent, manager = agent_with(list(messages)), SlidingWindowConversationManager(size)
    if reduce:
        try:
            manager.reduce_context(agent)
        except ContextWindowOverflowException:
            assert agent.messages == messages
    else:
        manager.apply_management(agent)
        assert len(agent.messages) <= max(size, 1) + 1
    assert problems(agent.messages) == []
    assert agent.messages == messages[manager.removed_message_count :]
    assert bool(agent.messages) == bool(messages)

"""Questions to a person: asked once, answered by id, forgotten with their call."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InterruptError, InvalidInputError, InvalidTypeError, NotJsonError
from antiphon.interrupts import (
    Interrupt,
    InterruptException,
    InterruptState,
    interrupt_id,
    interrupt_responses,
    is_interrupt_response,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


def asked(state, call="t1", name="sure", reason=None, where="tool_call"):
    """The question that `ask` raises."""
    with pytest.raises(InterruptException) as raised:
        state.ask(interrupt_id(where, call, name), name, reason)
    return raised.value.interrupt


def test_the_same_call_and_name_give_the_same_id_and_any_other_another():
    ids = {
        interrupt_id(where, call, name) for where in ("tool_call", "before_tool_call") for call in "ab" for name in "xy"
    }
    assert len(ids) == 8
    assert interrupt_id("tool_call", "t1", "sure") == f"v1:tool_call:t1:{uuid.uuid5(uuid.NAMESPACE_OID, 'sure')}"


def test_a_question_waits_until_it_is_answered_and_its_answer_comes_back():
    state = InterruptState()
    question = asked(state, reason={"sum": 5})
    assert (question.name, question.reason, question.response) == ("sure", {"sum": 5}, None)
    assert asked(state, reason={"sum": 5}) == question  # asked again: the same one
    assert state.open() == [question]
    state.resume([question.answer({"by": ["Ann"]})])
    assert state.open() == []
    assert state.ask(question.id, "sure") == {"by": ["Ann"]}


@pytest.mark.parametrize("answer", [False, 0, "", [], {}])
def test_an_answer_may_be_empty_or_false(answer):
    state = InterruptState()
    question = asked(state)
    state.resume([question.answer(answer)])
    assert state.ask(question.id, "sure") == answer
    assert state.open() == []


def test_none_is_no_answer():
    state = InterruptState()
    question = asked(state)
    with pytest.raises(InvalidInputError, match="None, which is no answer"):
        state.resume([question.answer(None)])
    assert state.open() == [question]


def test_an_answer_given_in_advance_is_taken_and_no_question_is_left():
    state = InterruptState()
    assert state.ask("v1:tool_call:t1:x", "sure", response="yes") == "yes"
    assert state.open() == []


def test_a_reason_that_is_not_json_is_refused_and_nothing_is_asked():
    state = InterruptState()
    with pytest.raises(NotJsonError, match="reason of 'sure'"):
        state.ask("v1:tool_call:t1:x", "sure", {1, 2})
    assert (state.interrupts, state.version) == ({}, 0)


def test_a_reason_is_a_copy():
    state, reason = InterruptState(), {"seats": [1]}
    question = asked(state, reason=reason)
    reason["seats"].append(2)
    assert question.reason == {"seats": [1]}


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "yes",
        [],
        [{"text": "yes"}],
        ({"interruptResponse": {"interruptId": "x", "response": 1}},),
        [{"interruptResponse": {"interruptId": "x"}}],
        [{"interruptResponse": {"response": 1}}],
        [{"interruptResponse": None}],
        [{"interruptResponse": {"interruptId": "x", "response": 1}}, "more"],
        [{"interruptResponse": {"interruptId": "x", "response": 1}}, {"text": "more"}],
        [{"interruptResponse": {"interruptId": [], "response": 1}}],
    ],
    ids=repr,
)
def test_what_is_no_list_of_answers_is_a_type_error_and_changes_nothing(prompt):
    state = InterruptState()
    question = asked(state)
    with pytest.raises(InvalidTypeError, match="must resume from interrupt with list of interruptResponse's"):
        state.resume(prompt)
    assert state.open() == [question]


def test_an_answer_to_a_question_that_is_not_open_is_refused_and_no_answer_is_taken():
    state = InterruptState()
    one, two = asked(state, name="one"), asked(state, name="two")
    with pytest.raises(InterruptError, match="no open question has the id 'x'") as refused:
        state.resume([one.answer("yes"), {"interruptResponse": {"interruptId": "x", "response": 1}}])
    assert isinstance(refused.value, KeyError)
    assert state.open() == [one, two]
    state.resume([one.answer("yes")])
    with pytest.raises(InterruptError):
        state.resume([one.answer("no")])
    assert state.ask(one.id, "one") == "yes"


def test_questions_are_told_in_the_order_in_which_they_were_asked():
    state = InterruptState()
    questions = [asked(state, name=name) for name in ("c", "a", "b")]
    assert state.open() == questions
    state.resume([questions[1].answer(1)])
    assert state.open() == [questions[0], questions[2]]


def test_the_questions_of_a_call_are_forgotten_with_it_and_no_others():
    state = InterruptState()
    mine = [asked(state, "t1", "one"), asked(state, "t1", "two", where="before_tool_call")]
    other = asked(state, "t1-2", "one")
    assert state.of_call("t1") == mine
    state.forget_call("t1")
    assert state.open() == [other]
    assert asked(state, "t1", "one") == mine[0]


def test_the_id_of_a_call_may_hold_a_colon():
    state = InterruptState()
    one, other = asked(state, "t"), asked(state, "t:1")
    assert state.of_call("t") == [one]
    assert state.of_call("t:1") == [other]
    state.forget_call("t")
    assert state.open() == [other]


def test_a_state_is_activated_with_a_context_and_deactivated_without_a_trace():
    state = InterruptState()
    state.deactivate()
    assert state.version == 0  # nothing changed
    question = asked(state)
    state.activate({"turn": 1})
    assert (state.activated, state.context) == (True, {"turn": 1})
    state.resume([question.answer("yes")])
    version = state.version
    state.deactivate()
    assert (state.activated, state.context, state.interrupts) == (False, {}, {})
    assert state.version > version


@given(st.dictionaries(st.sampled_from(["one", "two", "three"]), json_values, max_size=3), st.booleans())
def test_a_state_comes_back_from_its_dict(reasons, activated):
    state = InterruptState()
    questions = [asked(state, name=name, reason=reason) for name, reason in reasons.items()]
    if questions:
        state.resume([questions[0].answer("yes")])
    if activated:
        state.activate({"turn": [1]})
    again = InterruptState.from_dict(state.to_dict())
    assert (again.interrupts, again.context, again.activated) == (state.interrupts, state.context, state.activated)
    assert again.to_dict() == state.to_dict()


@pytest.mark.parametrize(
    "data", [{"interrupts": []}, {"interrupts": {"x": 1}}, {"interrupts": {"x": {}}}, {"context": 5}]
)
def test_a_malformed_state_is_refused(data):
    with pytest.raises(InvalidInputError, match="interrupt_state is malformed"):
        InterruptState.from_dict(data)


def test_the_signal_is_no_error_of_this_library_and_names_the_question():
    signal = InterruptException(Interrupt("i1", "sure"))
    assert str(signal) == "waiting for an answer to 'sure'"
    assert not isinstance(signal, ValueError)


def test_whether_a_prompt_answers_is_told_by_its_first_block():
    answer = Interrupt("i1", "sure").answer("yes")
    assert is_interrupt_response([answer])
    assert not is_interrupt_response([{"text": "yes"}, answer])
    assert interrupt_responses([answer]) == {"i1": "yes"}

"""The events of agents: what may be assigned, which reverse, how they ask a person."""

import inspect

import pytest

from antiphon import hooks
from antiphon.hooks import events
from antiphon.hooks.events import BeforeToolCallEvent, HookEvent
from antiphon.interrupts import InterruptException, InterruptState

EVENTS = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, HookEvent) and kind is not HookEvent
]


def test_every_event_is_among_the_public_names():
    assert {kind.__name__ for kind in EVENTS} <= set(hooks.__all__)


def test_only_what_marks_an_end_runs_its_callbacks_in_reverse():
    reversed_ = {kind.__name__ for kind in EVENTS if kind.reverse}
    assert reversed_ == {"AfterInvocationEvent", "AfterModelCallEvent", "AfterToolCallEvent", "BidiAgentStopEvent"}


def test_only_construction_takes_synchronous_callbacks_only():
    assert [kind.__name__ for kind in EVENTS if kind.synchronous] == ["AgentInitializedEvent"]


def test_the_fields_that_callbacks_may_assign_are_these():
    writable = {kind.__name__: set(kind.writable) for kind in EVENTS if kind.writable}
    assert writable == {
        "BeforeInvocationEvent": {"messages", "cancel"},
        "AfterInvocationEvent": {"resume"},
        "BeforeModelCallEvent": {"cancel"},
        "AfterModelCallEvent": {"retry"},
        "BeforeToolCallEvent": {"selected_tool", "tool_use", "cancel_tool"},
        "AfterToolCallEvent": {"result", "retry"},
    }


@pytest.mark.parametrize("kind", EVENTS)
def test_the_agent_of_an_event_cannot_be_assigned(kind):
    event = kind(agent=None, **dict.fromkeys(required(kind)))
    with pytest.raises(AttributeError, match="Property agent is not writable"):
        event.agent = "another"


def required(kind) -> list[str]:
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.name != "agent"]


def test_a_question_before_a_tool_call_has_an_id_of_that_call_and_its_answer_comes_back():
    state = InterruptState()
    call = {"toolUseId": "t1", "name": "pay", "input": {}}
    event = BeforeToolCallEvent(agent=None, selected_tool=None, tool_use=call, interrupt_state=state)
    with pytest.raises(InterruptException) as asked:
        event.interrupt("approve", reason={"sum": 5})
    question = asked.value.interrupt
    assert question.id.startswith("v1:before_tool_call:t1:")
    assert (question.name, question.reason) == ("approve", {"sum": 5})
    state.resume([{"interruptResponse": {"interruptId": question.id, "response": "yes"}}])
    assert event.interrupt("approve") == "yes"
    assert event.interrupt("other", response="given in advance") == "given in advance"

"""The events of agents: what may be assigned, which reverse, how they ask a person."""

import inspect

import pytest

from antiphon import Agent, hooks, tool
from antiphon.hooks import events
from antiphon.hooks.events import AfterModelCallEvent, BeforeModelCallEvent, BeforeToolCallEvent, HookEvent
from antiphon.interrupts import InterruptException, InterruptState
from antiphon.testing import Answer, ScriptedModel

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
        "JournalChangedEvent": {"unsaved"},
    }


STRANDS = {
    "AgentInitializedEvent": {"agent"},
    "BeforeInvocationEvent": {"invocation_state", "messages", "cancel"},
    "AfterInvocationEvent": {"invocation_state", "result", "resume"},
    "MessageAddedEvent": {"message"},
    "MessageUpdatedEvent": {"tracking_id", "message"},
    "BeforeModelCallEvent": {"invocation_state", "projected_input_tokens", "cancel"},
    "AfterModelCallEvent": {"invocation_state", "stop_response", "exception", "retry"},
    "BeforeToolCallEvent": {"selected_tool", "tool_use", "invocation_state", "cancel_tool", "interruptible"},
    "AfterToolCallEvent": {
        *("selected_tool", "tool_use", "invocation_state", "result", "exception"),
        *("cancel_message", "duration", "retry"),
    },
    "BidiAgentStopEvent": {"agent"},
    "BidiResponseCompleteEvent": {"response_id"},
    "BidiBargeInHookEvent": {"agent"},
    "BidiBeforeConnectionRestartEvent": {"reason", "timeout_error"},
    "BidiAfterConnectionRestartEvent": {"reason", "exception"},
}
"""What the events of Strands 1.62 carry, under our names."""


@pytest.mark.parametrize("name", STRANDS)
def test_an_event_carries_what_it_carries_in_strands(name):
    kind = getattr(hooks, name)
    event = kind(agent=None, **dict.fromkeys(required(kind)))
    assert [field for field in STRANDS[name] if not hasattr(event, field)] == []


def test_an_answer_and_its_stop_reason_are_told_together():
    answer = {"role": "assistant", "content": [{"text": "Hi"}]}
    told = AfterModelCallEvent(agent=None, message=answer, stop_reason="end_turn").stop_response
    assert (told.message, told.stop_reason) == (answer, "end_turn")
    silent = AfterModelCallEvent(agent=None, stop_reason="end_turn").stop_response
    assert silent.message == {"role": "assistant", "content": []}
    assert AfterModelCallEvent(agent=None, exception=ValueError()).stop_response is None


async def test_hooks_of_an_agent_see_how_an_answer_ended_and_whether_a_person_can_be_asked():
    @tool
    def lights() -> str:
        """Switch the lights."""
        return "on"

    seen = []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("lights", {})]), "Done."]), tools=[lights])
    agent.add_hook(lambda event: seen.append(event.stop_response.stop_reason), AfterModelCallEvent)
    agent.add_hook(lambda event: seen.append(event.projected_input_tokens), BeforeModelCallEvent)
    agent.add_hook(lambda event: seen.append(event.interruptible), BeforeToolCallEvent)
    await agent.invoke_async("Lights!")
    agent.tool.lights()
    assert seen == [None, "tool_use", True, None, "end_turn", False]


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

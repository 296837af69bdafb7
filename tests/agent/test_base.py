"""What both agents share, seen on the one that works in turns."""

import asyncio
import gc
import re
import threading

import pytest

from antiphon.agent import Agent
from antiphon.errors import (
    ConcurrencyException,
    DuplicateToolError,
    HookRegistrationError,
    InvalidIdError,
    InvalidInputError,
    InvalidTypeError,
    NotSupportedError,
    SnapshotException,
    ToolNotFoundError,
)
from antiphon.hooks.events import AgentInitializedEvent, MessageAddedEvent
from antiphon.sandbox import HostSandbox
from antiphon.session.base import SessionManager
from antiphon.snapshot.envelope import Snapshot
from antiphon.state import AgentState
from antiphon.storage import InMemoryStorage
from antiphon.testing import Answer, ScriptedModel
from antiphon.tools import AgentTool, tool


def user(text):
    return {"role": "user", "content": [{"text": text}]}


@tool
def add(one: int, two: int) -> str:
    """Add two numbers."""
    return str(one + two)


def agent_with(**arguments):
    return Agent(ScriptedModel(["Hi."]), **arguments)


class Restoring(SessionManager):
    """Restores one message, and counts what it is told."""

    def __init__(self, session_id="s1"):
        self.session_id = session_id
        self.appended = []

    def initialize(self, agent, **kwargs):
        agent.load_snapshot(Snapshot("agent", "1.0", {"messages": [user("restored")]}, {}))

    def sync_agent(self, agent, **kwargs):
        pass

    def append_message(self, message, agent, **kwargs):
        self.appended.append(message)

    def redact_latest_message(self, redact_message, agent, **kwargs):
        pass


# --- construction ---


def test_an_agent_has_names_and_ids_by_default():
    agent = agent_with()
    assert (agent.agent_id, agent.name, agent.description) == ("default", "Antiphon Agent", None)
    assert re.fullmatch("[0-9a-f]{8}", agent.session_id)
    assert agent_with().session_id != agent_with().session_id
    assert agent.messages == []
    assert agent.state.get() == {}


def test_an_agent_keeps_what_it_is_given():
    history, state, storage = [user("Hi")], AgentState({"a": 1}), InMemoryStorage()
    agent = agent_with(
        messages=history, state=state, agent_id="a1", name="Ann", description="helps", storage=storage, tools=[add]
    )
    assert agent.messages is history
    assert agent.state is state
    assert agent.storage is storage
    assert (agent.agent_id, agent.name, agent.description) == ("a1", "Ann", "helps")
    assert agent.tool_names == ["add"]
    assert agent_with(state={"a": 1}).state.get("a") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"agent_id": "a/b"}, InvalidIdError),
        ({"agent_id": ".."}, InvalidIdError),
        ({"agent_id": ""}, InvalidIdError),
        ({"state": [1]}, InvalidInputError),
        ({"state": "a"}, InvalidInputError),
        ({"state": {"a": {1, 2}}}, InvalidInputError),
        ({"system_prompt": 7}, InvalidTypeError),
        ({"tools": [add, add]}, DuplicateToolError),
        ({"no_such_argument": 1}, TypeError),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, error):
    with pytest.raises(error):
        agent_with(**arguments)


def test_the_session_is_the_managers_and_its_hooks_see_the_restored_agent():
    seen = []

    class Listener:
        def register_hooks(self, registry, **kwargs):
            registry.add_callback(AgentInitializedEvent, lambda event: seen.append(list(event.agent.messages)))

    agent = agent_with(session_manager=Restoring(), hooks=[Listener()])
    assert agent.session_id == "s1"
    assert seen == [[user("restored")]]


def test_a_session_that_cannot_be_restored_is_an_error_of_the_constructor():
    class Broken(Restoring):
        def initialize(self, agent, **kwargs):
            raise SnapshotException("corrupt")

    with pytest.raises(SnapshotException):
        agent_with(session_manager=Broken())


def test_an_asynchronous_callback_cannot_hear_of_the_construction():
    async def late(event: AgentInitializedEvent) -> None: ...

    with pytest.raises(HookRegistrationError):
        agent_with().add_hook(late)


# --- the system prompt ---


def test_a_system_prompt_is_text_or_blocks():
    blocks = [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}, {"text": "Be brief."}]
    agent = agent_with(system_prompt=blocks)
    assert agent.system_prompt == "Be kind.\nBe brief."
    assert agent.system_prompt_content == blocks
    assert agent.system_prompt_content is not agent.system_prompt_content
    agent.system_prompt = "Short."
    assert agent.system_prompt_content == [{"text": "Short."}]
    agent.system_prompt = [{"cachePoint": {"type": "default"}}]
    assert agent.system_prompt is None
    agent.system_prompt = None
    assert agent.system_prompt_content is None


async def test_a_structured_system_prompt_reaches_the_model_whole_and_a_plain_one_as_text():
    blocks = [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}]
    model = ScriptedModel(["a", "b"])
    agent = Agent(model, system_prompt=blocks)
    await agent.invoke_async("Hi")
    agent.system_prompt = "Be brief."
    await agent.invoke_async("Hi")
    assert [request.system_prompt for request in model.requests] == [blocks, "Be brief."]


# --- small properties ---


def test_small_properties_say_what_they_are():
    agent = agent_with()
    assert agent.sandbox == HostSandbox()
    assert not agent.sandbox.isolated
    assert agent.context_manager is None
    assert agent.storage is None
    assert isinstance(agent.cancel_signal, threading.Event)
    assert agent.cancel_signal is agent.cancel_signal
    with pytest.raises(NotImplementedError, match="event_loop_metrics"):
        _ = agent.event_loop_metrics
    with pytest.raises(NotSupportedError):
        _ = agent.event_loop_metrics
    with pytest.raises(AttributeError):
        agent.storage = InMemoryStorage()


# --- direct calls ---


def test_a_direct_call_runs_the_tool_and_is_recorded():
    manager = Restoring()
    agent = agent_with(tools=[add], session_manager=manager)
    assert agent.tool.add(one=1, two=2)["content"] == [{"text": "3"}]
    recorded = agent.messages[1:]
    assert [message["role"] for message in recorded] == ["user", "assistant", "user", "assistant"]
    assert recorded[1]["content"][0]["toolUse"]["input"] == {"one": 1, "two": 2}
    assert manager.appended == recorded, "the session is told"


@pytest.mark.parametrize("given", [{"record_direct_tool_call": False}, {}])
def test_a_direct_call_need_not_be_recorded(given):
    agent = agent_with(tools=[add], record_direct_tool_call=bool(given))
    assert agent.tool.add(one=1, two=2, **given)["status"] == "success"
    assert agent.messages == []


async def test_a_direct_call_works_inside_a_running_loop_and_tells_asynchronous_hooks():
    told = []

    async def hear(event: MessageAddedEvent) -> None:
        await asyncio.sleep(0)
        told.append(event.message["role"])

    agent = agent_with(tools=[add])
    agent.add_hook(hear)
    agent.tool.add(one=1, two=2)
    assert told == ["user", "assistant", "user", "assistant"]


def test_a_direct_call_of_an_unknown_tool_is_an_attribute_error():
    with pytest.raises(ToolNotFoundError, match="nothing"):
        agent_with(tools=[add]).tool.nothing()


async def test_a_recorded_direct_call_is_refused_while_the_agent_answers_and_an_unrecorded_one_runs():
    outcomes = []

    @tool(context=True)
    def nested(tool_context) -> str:
        """Call another tool."""
        agent = tool_context.agent
        outcomes.append(agent.tool.add(one=1, two=2, record_direct_tool_call=False)["status"])
        with pytest.raises(ConcurrencyException, match="recording a direct tool call"):
            agent.tool.add(one=1, two=2)
        return "done"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("nested", {})]), "Done."]), tools=[add, nested])
    await agent.invoke_async("Go")
    assert outcomes == ["success"]
    assert len(agent.messages) == 4


# --- snapshots ---


def test_a_snapshot_is_an_independent_copy():
    agent = agent_with(messages=[user("Hi")], state={"cart": ["tea"]}, system_prompt="Be kind.")
    snapshot = agent.take_snapshot(preset="session", include=["system_prompt"])
    snapshot.data["messages"][0]["content"][0]["text"] = "changed"
    snapshot.data["state"]["cart"].append("milk")
    snapshot.data["system_prompt"][0]["text"] = "changed"
    assert agent.messages == [user("Hi")]
    assert agent.state.get("cart") == ["tea"]
    assert agent.system_prompt == "Be kind."
    agent.load_snapshot(snapshot)
    snapshot.data["messages"][0]["content"][0]["text"] = "changed again"
    assert agent.messages == [user("changed")]


def test_fields_that_a_snapshot_does_not_have_are_left_as_they_are():
    agent = agent_with(messages=[user("Hi")], state={"a": 1}, system_prompt="Be kind.")
    agent.load_snapshot(Snapshot("agent", "1.0", {"state": {"b": 2}}, {}))
    assert agent.messages == [user("Hi")]
    assert agent.state.get() == {"b": 2}
    assert agent.system_prompt == "Be kind."
    agent.load_snapshot(Snapshot("agent", "1.0", {"system_prompt": None, "something_new": 1}, {}))
    assert agent.system_prompt is None
    assert agent.state.get() == {"b": 2}


def test_the_list_of_messages_stays_the_same_list():
    history = [user("Hi")]
    agent = agent_with(messages=history)
    agent.load_snapshot(Snapshot("agent", "1.0", {"messages": [user("new")]}, {}))
    assert agent.messages is history
    assert history == [user("new")]


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot("multiAgent", "1.0", {"messages": []}, {}),
        Snapshot("agent", "9.0", {"messages": []}, {}),
        Snapshot("agent", "1.0", {"messages": [user("new")], "state": [1]}, {}),
        Snapshot("agent", "1.0", {"messages": [user("new")], "system_prompt": 7}, {}),
        Snapshot("agent", "1.0", {"messages": [{"role": "nobody", "content": []}]}, {}),
        Snapshot("agent", "1.0", {"messages": [user("new")], "model_state": None}, {}),
    ],
    ids=["scope", "schema", "state", "system prompt", "message", "model state"],
)
def test_a_snapshot_that_cannot_be_loaded_changes_nothing(snapshot):
    agent = agent_with(messages=[user("kept")], state={"a": 1}, system_prompt="kept")
    with pytest.raises(SnapshotException):
        agent.load_snapshot(snapshot)
    assert agent.messages == [user("kept")]
    assert agent.state.get() == {"a": 1}
    assert agent.system_prompt == "kept"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"include": ["nothing"]}, {"preset": "nothing"}, {"preset": "session", "exclude": ["nothing"]}],
)
def test_fields_and_presets_that_do_not_exist_are_refused(arguments):
    with pytest.raises(SnapshotException):
        agent_with().take_snapshot(**arguments)


def test_what_is_not_json_is_refused_by_its_path():
    agent = agent_with(messages=[{"role": "user", "content": [{"text": float("nan")}]}])
    with pytest.raises(SnapshotException, match=re.escape("data.messages[0].content[0].text")):
        agent.take_snapshot(preset="session")
    with pytest.raises(SnapshotException, match=re.escape("app_data.when")):
        agent_with().take_snapshot(preset="session", app_data={"when": object()})


class Shelf:
    """A provider that counts who uses it."""

    def __init__(self) -> None:
        self.consumers = 0

    async def load_tools(self) -> list[AgentTool]:
        return []

    def add_consumer(self, consumer_id: object) -> None:
        self.consumers += 1

    def remove_consumer(self, consumer_id: object) -> None:
        self.consumers -= 1


def test_providers_are_left_when_an_agent_is_cleaned_up_or_forgotten():
    shelf = Shelf()
    agent = Agent(ScriptedModel([]), tools=[shelf])
    assert shelf.consumers == 1
    agent.cleanup()
    agent.cleanup()
    assert shelf.consumers == 0
    other = Agent(ScriptedModel([]), tools=[shelf])
    assert shelf.consumers == 1
    del other
    gc.collect()
    assert shelf.consumers == 0

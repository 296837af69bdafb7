"""One snapshot contract for both kinds of agent. Each `type: ignore` is an error that both checkers must report."""

from collections.abc import Collection
from typing import Any, assert_type

from antiphon import Agent, AgentState, BidiAgent, LocalAgent, Snapshot
from antiphon.content import Messages
from antiphon.models import BidiModel, Model
from antiphon.models.base import ConfiguredModel
from antiphon.sandbox import HostSandbox
from antiphon.snapshot.fields import SnapshotField
from antiphon.storage import Storage
from antiphon.tools import ToolRegistry


def copy(source: LocalAgent, target: LocalAgent) -> Snapshot:
    snapshot = source.take_snapshot(preset="session", include=["system_prompt"], app_data={"by": "me"})
    target.load_snapshot(snapshot)
    return snapshot


def either_kind_will_do(agent: Agent, bidi: BidiAgent, both: LocalAgent) -> None:
    assert_type(agent.take_snapshot(preset="session"), Snapshot)
    assert_type(bidi.take_snapshot(include=["messages"], exclude=["state"]), Snapshot)
    assert_type(both.take_snapshot(), Snapshot)
    copy(agent, bidi)
    copy(bidi, agent)
    copy(both, both)


def fields_are_known_names(agent: Agent, bidi: BidiAgent, fields: Collection[SnapshotField]) -> None:
    agent.take_snapshot(include=fields)
    agent.take_snapshot(include=["model_state", "interrupt_state", "conversation_manager_state"])
    # One literal for all six: what a kind does not own is refused at run time.
    bidi.take_snapshot(include=["model_state"])
    agent.take_snapshot(include=["mesages"])  # type: ignore[list-item]
    agent.take_snapshot(preset="all")  # type: ignore[arg-type]
    bidi.load_snapshot({"scope": "agent"})  # type: ignore[arg-type]
    bidi.take_snapshot("session")  # type: ignore[call-arg]


def what_is_shared_has_one_type(agent: Agent, bidi: BidiAgent, both: LocalAgent) -> None:
    for each in (agent, bidi, both):
        assert_type(each.messages, Messages)
        assert_type(each.state, AgentState)
        assert_type(each.agent_id, str)
        assert_type(each.session_id, str)
        assert_type(each.system_prompt, str | None)
        assert_type(each.tool_names, list[str])
        assert_type(each.tool_registry, ToolRegistry)
        assert_type(each.sandbox, HostSandbox)
        assert_type(each.sandbox.isolated, bool)
        assert_type(each.storage, Storage | None)
        nothing: None = each.context_manager
    model: ConfiguredModel = both.model
    turns: Model = agent.model
    live: BidiModel = bidi.model
    wrong: Model = bidi.model  # type: ignore[assignment]


def a_prompt_is_set_as_text_or_as_blocks(both: LocalAgent, bidi: BidiAgent) -> None:
    both.system_prompt = "Be brief."
    both.system_prompt = [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}]
    bidi.system_prompt = None
    both.system_prompt = 5  # type: ignore[assignment]


def some_things_cannot_be_assigned(agent: Agent, bidi: BidiAgent, both: LocalAgent, value: Any) -> None:
    both.session_id = value  # type: ignore[misc]
    for each in (agent, bidi, both):
        each.sandbox = value  # type: ignore[misc]
        each.context_manager = value  # type: ignore[misc]
        each.event_loop_metrics = value  # type: ignore[misc]
        each.cancel_signal = value  # type: ignore[misc]
        each.storage = value  # type: ignore[misc]
    both.sandbox = value  # type: ignore[misc]
    agent.sandbox = value  # type: ignore[misc]
    bidi.sandbox = value  # type: ignore[misc]
    bidi.tool_names = value  # type: ignore[misc]


def what_one_kind_has_the_shared_type_lacks(agent: Agent, bidi: BidiAgent, both: LocalAgent) -> None:
    agent.conversation_manager
    bidi.conversation_manager  # type: ignore[attr-defined]
    both.conversation_manager  # type: ignore[attr-defined]
    bidi.receive
    both.receive  # type: ignore[attr-defined]
    agent.receive  # type: ignore[attr-defined]

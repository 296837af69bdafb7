"""Session managers and triggers, for both kinds of agent or for one.

Each `type: ignore` is an error that both checkers must report.
"""

from typing import Any, assert_type

from antiphon import Agent, BidiAgent, LocalAgent, SessionManager, SnapshotSessionManager
from antiphon.content import Message
from antiphon.models import BidiModel, Model
from antiphon.session import SessionTree, SnapshotTrigger, read_tree
from antiphon.storage import Storage
from antiphon.store import InMemorySessionStore, SessionStore


def shared(*, agent_data: LocalAgent, **kwargs: Any) -> bool:
    return len(agent_data.messages) % 2 == 0


async def shared_and_async(*, agent_data: LocalAgent, **kwargs: Any) -> bool:
    return bool(agent_data.state.get("pinned"))


async def agent_only(*, agent_data: Agent, **kwargs: Any) -> bool:
    return bool(agent_data.conversation_manager)


def bidi_only(*, agent_data: BidiAgent, **kwargs: Any) -> bool:
    return agent_data.cancel_signal.is_set()


class Counting:
    """A trigger may be an object."""

    def __call__(self, *, agent_data: LocalAgent, **kwargs: Any) -> bool:
        return True


assert_type(SnapshotSessionManager("s"), SnapshotSessionManager[LocalAgent])
assert_type(SnapshotSessionManager("s", snapshot_trigger=shared), SnapshotSessionManager[LocalAgent])
assert_type(SnapshotSessionManager("s", snapshot_trigger=shared_and_async), SnapshotSessionManager[LocalAgent])
assert_type(SnapshotSessionManager("s", snapshot_trigger=Counting()), SnapshotSessionManager[LocalAgent])
one = SnapshotSessionManager("s", snapshot_trigger=agent_only)
assert_type(one, SnapshotSessionManager[Agent])
other = SnapshotSessionManager("s", snapshot_trigger=bidi_only)
assert_type(other, SnapshotSessionManager[BidiAgent])

for_both: SnapshotTrigger = shared
for_agents: SnapshotTrigger[Agent] = agent_only
narrowed: SnapshotTrigger[Agent] = shared
bare: SnapshotTrigger = agent_only  # type: ignore[assignment]


def a_manager_keeps_sessions_in_a_storage_or_in_any_store(store: SessionStore, storage: Storage, redis: object) -> None:
    assert_type(SnapshotSessionManager("s", store=store), SnapshotSessionManager[LocalAgent])
    assert_type(SnapshotSessionManager("s", store=store, snapshot_trigger=agent_only), SnapshotSessionManager[Agent])
    SnapshotSessionManager("s", store=InMemorySessionStore())
    SnapshotSessionManager("s", storage=storage)
    SnapshotSessionManager("s", store=storage)  # type: ignore[arg-type]
    SnapshotSessionManager("s", storage=store)  # type: ignore[arg-type]
    SnapshotSessionManager("s", store=redis)  # type: ignore[arg-type]


async def trees_are_read_from_both(store: SessionStore, storage: Storage) -> None:
    assert_type(await read_tree(store, "s"), SessionTree)
    assert_type(await read_tree(storage, "s", "default"), SessionTree)


def managers_fit_the_agents_they_are_for(turns: Model, live: BidiModel) -> None:
    Agent(turns, session_manager=SnapshotSessionManager("s"))
    BidiAgent(live, session_manager=SnapshotSessionManager("s"))
    Agent(turns, session_manager=SnapshotSessionManager("s", snapshot_trigger=agent_only))
    BidiAgent(live, session_manager=SnapshotSessionManager("s", snapshot_trigger=bidi_only))
    Agent(turns, session_manager=one)
    BidiAgent(live, session_manager=other)
    BidiAgent(live, session_manager=one)  # type: ignore[arg-type]
    Agent(turns, session_manager=other)  # type: ignore[arg-type]


def options_are_known_names() -> None:
    SnapshotSessionManager("s", save_latest_on="trigger", on_save_error="retry")
    SnapshotSessionManager("s", save_latest_on="stop")  # type: ignore[arg-type]
    SnapshotSessionManager("s", snapshot_triger=shared)  # type: ignore[call-arg]
    SnapshotSessionManager("s", snapshot_trigger=lambda agent: True)  # type: ignore[arg-type]


def methods_take_the_agents_the_manager_is_for(agent: Agent, bidi: BidiAgent, both: SessionManager) -> None:
    both.sync_agent(agent)
    both.sync_agent(bidi)
    one.sync_agent(agent)
    one.sync_agent(bidi)  # type: ignore[arg-type]
    one.append_message({"role": "user", "content": [{"text": "hello"}]}, bidi)  # type: ignore[arg-type]


def a_manager_for_both_serves_as_one_for_agents(both: SessionManager, agents: SessionManager[Agent]) -> None:
    narrower: SessionManager[Agent] = both
    wider: SessionManager = agents  # type: ignore[assignment]


class Mine(SnapshotSessionManager):  # bare: for both, so it cannot ask for an Agent
    def sync_agent(self, agent: Agent, **kwargs: Any) -> None: ...  # type: ignore[override]


class MineForAgents(SnapshotSessionManager[Agent]):
    def sync_agent(self, agent: Agent, **kwargs: Any) -> None:
        agent.conversation_manager
        super().sync_agent(agent, **kwargs)


class FromScratch(SessionManager):
    def initialize(self, agent: LocalAgent, **kwargs: Any) -> None: ...
    def sync_agent(self, agent: LocalAgent, **kwargs: Any) -> None: ...
    def append_message(self, message: Message, agent: LocalAgent, **kwargs: Any) -> None: ...
    def redact_latest_message(self, redact_message: Message, agent: LocalAgent, **kwargs: Any) -> None: ...


def a_manager_of_ones_own_fits_both(turns: Model, live: BidiModel) -> None:
    Agent(turns, session_manager=FromScratch())
    BidiAgent(live, session_manager=FromScratch())

"""When an agent is saved: every policy, both kinds, and what triggers do."""

import asyncio
import json

import pytest

from antiphon.errors import InvalidIdError, InvalidInputError, InvalidTypeError, NotSupportedError
from antiphon.session import SessionManager, SnapshotSessionManager, SnapshotTrigger
from antiphon.storage import InMemoryStorage
from antiphon.store import InMemorySessionStore
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, AtTheEnd, LiveAgent, TurnAgent, said
from tests.session.places import StorePlace


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


async def checkpoints(place):
    return (await place.tree()).nodes


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_message_saves_each_message_and_the_boundary(kind, place):
    agent = kind(place.manager(save_latest_on="message"))
    await agent.add("one")
    assert place.texts() == ["one"]
    await agent.add("two")
    assert place.texts() == ["one", "two"]
    await agent.update(0, said("uno"))
    assert place.texts() == ["uno", "two"]
    agent.state.set("mood", "good")
    await agent.finish()
    assert place.latest()["state"] == {"mood": "good"}
    assert place.faults.changes == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_invocation_saves_the_boundary_only(kind, place):
    agent = kind(place.manager(save_latest_on="invocation"))
    await agent.add("one", "two")
    await agent.hear("thr")
    assert place.faults.changes == 0
    await agent.finish()
    assert place.texts() == ["one", "two"]
    assert place.faults.changes == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_trigger_saves_nothing_by_itself(kind, place):
    agent = kind(place.manager(save_latest_on="trigger"))
    await agent.add("one", "two")
    await agent.hear("thr")
    await agent.finish()
    assert place.faults.changes == 0


@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_fires_writes_a_checkpoint_and_then_latest_from_one_capture(kind, policy, storage):
    manager = SnapshotSessionManager(
        "talk", storage=storage, save_latest_on=policy, snapshot_trigger=lambda *, agent_data, **_: True
    )
    agent = kind(manager)
    await agent.add("one", "two")
    before = storage.changes
    await agent.finish()
    first, second = (operation.key for operation in storage.operations[-2:])
    assert storage.changes == before + 2
    assert "/immutable_history/" in first
    assert second.endswith("snapshot_latest.json")
    one, two = (json.loads(storage.storage.sync.read(key)) for key in (first, second))
    assert two.pop("parent_id") in first
    assert one == two


@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_in_a_store_a_trigger_that_fires_seals_the_newest_row_with_one_write(kind, policy):
    place = StorePlace()
    agent = kind(place.manager(save_latest_on=policy, snapshot_trigger=lambda *, agent_data, **_: True))
    await agent.add("one", "two")
    before = place.faults.changes
    await agent.finish()
    assert place.faults.changes == before + 1
    (node,) = await checkpoints(place)
    assert (await place.tree()).latest == node
    row = place.inner.sync.get_latest_snapshot("talk", agent_id="default")
    assert (row.snapshot_id, row.owner, row.status) == (node.snapshot_id, None, "completed")
    assert place.texts() == ["one", "two"]


@pytest.mark.parametrize(("policy", "saved"), [("message", True), ("invocation", True), ("trigger", False)])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_declines_leaves_latest_to_the_policy(kind, policy, saved, place):
    asked = []

    def trigger(*, agent_data, **kwargs):
        asked.append(agent_data)
        return False

    agent = kind(place.manager(save_latest_on=policy, snapshot_trigger=trigger))
    await agent.add("one")
    await agent.finish()
    assert asked == [agent]
    assert await checkpoints(place) == ()
    assert (place.latest() is not None) is saved


@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_raises_is_logged_and_latest_is_saved(kind, policy, place, caplog):
    def trigger(*, agent_data, **kwargs):
        raise ValueError("no idea")

    agent = kind(place.manager(save_latest_on=policy, snapshot_trigger=trigger))
    await agent.add("one")
    await agent.finish()
    assert place.texts() == ["one"]
    assert await checkpoints(place) == ()
    assert "no idea" in caplog.text


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_trigger_is_awaited(kind, answer, place):
    class Asks:
        async def __call__(self, *, agent_data, **kwargs):
            await asyncio.sleep(0)
            return answer and len(agent_data.messages) == 1

    agent = kind(place.manager(snapshot_trigger=Asks()))
    await agent.add("one")
    await agent.finish()
    assert len(await checkpoints(place)) == answer


@pytest.mark.parametrize("kind", KINDS)
async def test_state_that_a_hook_changes_at_the_boundary_is_saved(kind, place):
    manager = place.manager()
    agent = kind(manager, hooks=[AtTheEnd()])
    await agent.finish()
    assert place.latest()["state"] == {"last": "word"}


async def test_left_out_an_agent_saves_per_invocation_and_a_live_one_per_message(place):
    manager = place.manager()
    turns, live = TurnAgent(manager, agent_id="turns"), LiveAgent(manager, agent_id="live")
    await turns.add("one")
    await live.add("one")
    assert place.latest("turns") is None
    assert place.latest("live") is not None
    await turns.finish()
    assert place.latest("turns") is not None


@pytest.mark.parametrize("policy", ["message", "invocation"])
async def test_a_connection_restart_is_a_boundary(policy, place):
    manager = place.manager(save_latest_on=policy, snapshot_trigger=lambda *, agent_data, **_: True)
    agent = LiveAgent(manager, hooks=[AtTheEnd()])
    await agent.restart()
    assert place.latest()["state"] == {"last": "word"}
    assert len(await checkpoints(place)) == 1


async def test_messages_and_journal_need_no_storage_unless_the_policy_says_so(place):
    agent = TurnAgent(place.manager())
    await agent.add("one")
    await agent.hear("two")
    await agent.call("t1")
    assert place.faults.changes == 0


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="snapshot_triger"):
        SnapshotSessionManager("talk", snapshot_triger=lambda **_: True)


@pytest.mark.parametrize("session_id", ["", " ", ".", "..", "a/b", "a\\b", "a\nb", "x" * 300, None])
def test_a_session_id_that_cannot_name_anything_is_refused(session_id):
    with pytest.raises(InvalidIdError):
        SnapshotSessionManager(session_id)


@pytest.mark.parametrize(
    ("keyword", "value", "error"),
    [
        ("save_latest_on", "Invocation", InvalidInputError),
        ("save_latest_on", "stop", InvalidInputError),
        ("on_save_error", "ignore", InvalidInputError),
        ("storage", "folder", InvalidTypeError),
        ("store", InMemoryStorage(), InvalidTypeError),
        ("snapshot_trigger", True, InvalidTypeError),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(keyword, value, error):
    with pytest.raises(error, match=keyword):
        SnapshotSessionManager("talk", **{keyword: value})


def test_a_storage_and_a_store_are_two_places():
    with pytest.raises(InvalidInputError, match="give one of them"):
        SnapshotSessionManager("talk", storage=InMemoryStorage(), store=InMemorySessionStore())


def test_graphs_and_swarms_come_later():
    manager = SnapshotSessionManager("talk", storage=InMemoryStorage())
    with pytest.raises(NotImplementedError, match="Graph and Swarm come later"):
        manager.initialize_multi_agent(object())
    with pytest.raises(NotSupportedError):
        manager.sync_multi_agent(object())


def test_a_trigger_can_be_told_at_run_time():
    assert isinstance(lambda *, agent_data, **_: True, SnapshotTrigger)


async def test_the_storage_of_the_agent_is_used_when_the_manager_has_none(storage):
    agent = LiveAgent(SnapshotSessionManager("talk"), storage=storage)
    await agent.add("one")
    assert len(storage.written("default/snapshots/snapshot_latest.json")) == 1


async def test_without_any_storage_local_files_are_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = LiveAgent(SnapshotSessionManager("talk"))
    await agent.add("one")
    assert (tmp_path / ".antiphon/session/talk/scopes/agent/default/snapshots/snapshot_latest.json").is_file()


async def test_a_namespaced_storage_is_used_as_it_is(storage):
    agent = LiveAgent(SnapshotSessionManager("talk", storage=storage.namespace("mine")))
    await agent.add("one")
    assert all(key.startswith("mine/talk/scopes/") for key in storage.storage.sync.list())


class Diary(SessionManager):
    """A manager of a user's own."""

    def __init__(self):
        self.session_id = "diary"
        self.entries = []

    def initialize(self, agent, **kwargs):
        self.entries.append("initialize")

    def sync_agent(self, agent, **kwargs):
        self.entries.append("sync")

    def append_message(self, message, agent, **kwargs):
        self.entries.append(message["content"][0]["text"])

    def redact_latest_message(self, redact_message, agent, **kwargs):
        self.entries.append("redact")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_manager_of_ones_own_needs_the_four_methods_only(kind):
    diary = Diary()
    agent = kind(diary)
    assert agent.session_id == "diary"
    await agent.add("one")
    await agent.update(0, said("uno"))
    await agent.finish()
    await diary.redact_latest_message_async(said("-"), agent)
    assert diary.entries == ["initialize", "one", "sync", "sync", "sync", "redact"]

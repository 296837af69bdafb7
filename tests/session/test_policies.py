"""When an agent is saved: every policy, both kinds, and what triggers do."""

import asyncio
import json

import pytest

from antiphon.errors import InvalidIdError, InvalidInputError, InvalidTypeError, NotSupportedError
from antiphon.session import SessionManager, SnapshotSessionManager, SnapshotTrigger
from antiphon.storage import InMemoryStorage
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, AtTheEnd, LiveAgent, TurnAgent, said

LATEST = "snapshot_latest.json"


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


def latest(storage, agent_id="default"):
    data = storage.storage.sync.read(f"session/talk/scopes/agent/{agent_id}/snapshots/{LATEST}")
    return None if data is None else json.loads(data)


def stored_texts(storage):
    envelope = latest(storage)
    return None if envelope is None else [message["content"][0]["text"] for message in envelope["data"]["messages"]]


def checkpoints(storage):
    return [key for key in storage.storage.sync.list() if "/immutable_history/" in key]


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_message_saves_each_message_and_the_boundary(kind, storage):
    agent = kind(SnapshotSessionManager("talk", storage=storage, save_latest_on="message"))
    await agent.add("one")
    assert stored_texts(storage) == ["one"]
    await agent.add("two")
    assert stored_texts(storage) == ["one", "two"]
    await agent.update(0, said("uno"))
    assert stored_texts(storage) == ["uno", "two"]
    agent.state.set("mood", "good")
    await agent.finish()
    assert latest(storage)["data"]["state"] == {"mood": "good"}
    assert len(storage.written(LATEST)) == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_invocation_saves_the_boundary_only(kind, storage):
    agent = kind(SnapshotSessionManager("talk", storage=storage, save_latest_on="invocation"))
    await agent.add("one", "two")
    await agent.hear("thr")
    assert storage.changes == 0
    await agent.finish()
    assert stored_texts(storage) == ["one", "two"]
    assert storage.changes == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_policy_trigger_saves_nothing_by_itself(kind, storage):
    agent = kind(SnapshotSessionManager("talk", storage=storage, save_latest_on="trigger"))
    await agent.add("one", "two")
    await agent.hear("thr")
    await agent.finish()
    assert storage.changes == 0


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
    assert second.endswith(LATEST)
    one, two = json.loads(storage.storage.sync.read(first)), latest(storage)
    assert two.pop("parent_id") in first
    assert one == two


@pytest.mark.parametrize(("policy", "saved"), [("message", True), ("invocation", True), ("trigger", False)])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_declines_leaves_latest_to_the_policy(kind, policy, saved, storage):
    asked = []

    def trigger(*, agent_data, **kwargs):
        asked.append(agent_data)
        return False

    agent = kind(SnapshotSessionManager("talk", storage=storage, save_latest_on=policy, snapshot_trigger=trigger))
    await agent.add("one")
    await agent.finish()
    assert asked == [agent]
    assert checkpoints(storage) == []
    assert (latest(storage) is not None) is saved


@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_raises_is_logged_and_latest_is_saved(kind, policy, storage, caplog):
    def trigger(*, agent_data, **kwargs):
        raise ValueError("no idea")

    agent = kind(SnapshotSessionManager("talk", storage=storage, save_latest_on=policy, snapshot_trigger=trigger))
    await agent.add("one")
    await agent.finish()
    assert stored_texts(storage) == ["one"]
    assert checkpoints(storage) == []
    assert "no idea" in caplog.text


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_trigger_is_awaited(kind, answer, storage):
    class Asks:
        async def __call__(self, *, agent_data, **kwargs):
            await asyncio.sleep(0)
            return answer and len(agent_data.messages) == 1

    agent = kind(SnapshotSessionManager("talk", storage=storage, snapshot_trigger=Asks()))
    await agent.add("one")
    await agent.finish()
    assert len(checkpoints(storage)) == answer


@pytest.mark.parametrize("kind", KINDS)
async def test_state_that_a_hook_changes_at_the_boundary_is_saved(kind, storage):
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = kind(manager, hooks=[AtTheEnd()])
    await agent.finish()
    assert latest(storage)["data"]["state"] == {"last": "word"}


async def test_left_out_an_agent_saves_per_invocation_and_a_live_one_per_message(storage):
    manager = SnapshotSessionManager("talk", storage=storage)
    turns, live = TurnAgent(manager, agent_id="turns"), LiveAgent(manager, agent_id="live")
    await turns.add("one")
    await live.add("one")
    assert latest(storage, "turns") is None
    assert latest(storage, "live") is not None
    await turns.finish()
    assert latest(storage, "turns") is not None


@pytest.mark.parametrize("policy", ["message", "invocation"])
async def test_a_connection_restart_is_a_boundary(policy, storage):
    manager = SnapshotSessionManager(
        "talk", storage=storage, save_latest_on=policy, snapshot_trigger=lambda *, agent_data, **_: True
    )
    agent = LiveAgent(manager, hooks=[AtTheEnd()])
    await agent.restart()
    assert latest(storage)["data"]["state"] == {"last": "word"}
    assert len(checkpoints(storage)) == 1


async def test_messages_and_journal_need_no_storage_unless_the_policy_says_so(storage):
    agent = TurnAgent(SnapshotSessionManager("talk", storage=storage))
    await agent.add("one")
    await agent.hear("two")
    await agent.call("t1")
    assert storage.changes == 0


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
        ("snapshot_trigger", True, InvalidTypeError),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(keyword, value, error):
    with pytest.raises(error, match=keyword):
        SnapshotSessionManager("talk", **{keyword: value})


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
    assert stored_texts(storage) == ["one"]


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

"""Checkpoints: listed, restored, deleted; and the tree they make."""

import json
import re

import pytest

from antiphon.errors import CorruptSnapshotError, InvalidIdError, InvalidInputError, InvalidTypeError
from antiphon.ids import new_uuid7
from antiphon.session import SnapshotSessionManager, read_tree
from antiphon.storage import InMemoryStorage, LocalFileStorage
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, LiveAgent, TurnAgent
from tests.session.places import StorePlace

FOLDER = "session/talk/scopes/agent/default/snapshots"


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


@pytest.fixture
def manager(place):
    return place.manager()


@pytest.fixture
def blobs(storage):
    return SnapshotSessionManager("talk", storage=storage)


async def checkpoint_each(manager, agent, *texts):
    ids = []
    for text in texts:
        await agent.add(text)
        ids.append(await manager.save_snapshot(agent, is_latest=False))
    return ids


@pytest.mark.parametrize("kind", KINDS)
async def test_checkpoints_are_listed_oldest_first_in_pages(kind, manager):
    agent = kind(manager)
    ids = await checkpoint_each(manager, agent, *"abcde")
    assert await manager.list_snapshot_ids(agent) == ids
    assert await manager.list_snapshot_ids(agent, limit=2) == ids[:2]
    assert await manager.list_snapshot_ids(agent, limit=2, start_after=ids[1]) == ids[2:4]
    assert await manager.list_snapshot_ids(agent, start_after=ids[4]) == []
    assert await manager.list_snapshot_ids(agent, start_after="00000000-0000-7000-8000-000000000000") == ids


async def test_paging_reads_no_snapshot(manager, place):
    agent = LiveAgent(manager)
    await checkpoint_each(manager, agent, *"abc")
    before = len(place.faults.operations)
    await manager.list_snapshot_ids(agent, limit=1)
    assert [operation.verb for operation in place.faults.operations[before:]] == ["list"]


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_below_one_is_an_error(limit, manager):
    with pytest.raises(InvalidInputError, match="limit"):
        await manager.list_snapshot_ids(LiveAgent(manager), limit=limit)


@pytest.mark.parametrize("limit", [1.5, "2", True, [1]])
async def test_a_limit_that_is_no_integer_is_an_error_by_name(limit, manager):
    with pytest.raises(InvalidTypeError, match=re.escape(f"limit={limit!r}")):
        await manager.list_snapshot_ids(LiveAgent(manager), limit=limit)


@pytest.mark.parametrize(
    "name",
    ["", "latest", "../../x", "018f0000-0000-4000-8000-000000000000", new_uuid7().upper(), new_uuid7() + "\n", 7],
    ids=["empty", "latest", "path", "version 4", "upper case", "line break", "number"],
)
async def test_what_is_no_snapshot_id_is_refused(name, blobs):
    agent = LiveAgent(blobs)
    with pytest.raises(InvalidInputError, match="not a valid snapshot id"):
        await blobs.list_snapshot_ids(agent, start_after=name)
    with pytest.raises(InvalidInputError, match="not a valid snapshot id"):
        await blobs.restore_snapshot(agent, snapshot_id=name)


@pytest.mark.parametrize("name", ["", ".", "../../x", "a\nb", 7])
async def test_what_no_row_can_be_called_is_refused(name):
    manager = StorePlace().manager()
    agent = LiveAgent(manager)
    with pytest.raises(InvalidInputError, match="not a valid snapshot id"):
        await manager.list_snapshot_ids(agent, start_after=name)
    with pytest.raises(InvalidInputError, match="not a valid snapshot id"):
        await manager.restore_snapshot(agent, snapshot_id=name)


async def test_files_of_other_names_are_no_checkpoints(blobs, storage):
    agent = LiveAgent(blobs)
    (known,) = await checkpoint_each(blobs, agent, "a")
    for name in ("notes.json", f"snapshot_{known}.json.bak", "snapshot_1.json", f"snapshot_{known.upper()}.json"):
        await storage.write(f"{FOLDER}/immutable_history/{name}", b"{}")
    await storage.write(f"{FOLDER}/immutable_history/deeper/snapshot_{new_uuid7()}.json", b"{}")
    assert await blobs.list_snapshot_ids(agent) == [known]


@pytest.mark.parametrize("kind", KINDS)
async def test_any_checkpoint_can_be_restored_and_restoring_writes_nothing(kind, manager, place):
    agent = kind(manager)
    ids = await checkpoint_each(manager, agent, *"abc")
    agent.state.set("later", True)
    before = place.faults.changes
    assert await manager.restore_snapshot(agent, snapshot_id=ids[1])
    assert agent.texts() == ["a", "b"]
    assert agent.state.get() == {}
    assert place.faults.changes == before


async def test_left_out_the_id_restores_the_latest(manager):
    agent = LiveAgent(manager)
    await agent.add("a")
    agent.messages.clear()
    assert await manager.restore_snapshot(agent)
    assert agent.texts() == ["a"]


async def test_what_is_not_there_cannot_be_restored(manager):
    agent = LiveAgent(manager)
    assert not await manager.restore_snapshot(agent)
    assert not await manager.restore_snapshot(agent, snapshot_id=new_uuid7())


async def test_a_damaged_checkpoint_is_refused_and_changes_nothing(blobs, storage):
    agent = LiveAgent(blobs)
    ids = await checkpoint_each(blobs, agent, *"ab")
    await storage.write(f"{FOLDER}/immutable_history/snapshot_{ids[0]}.json", b'{"scope"')
    with pytest.raises(CorruptSnapshotError, match=ids[0]):
        await blobs.restore_snapshot(agent, snapshot_id=ids[0])
    assert agent.texts() == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_saved_after_a_rewind_descends_from_what_was_restored(kind, manager, place):
    agent = kind(manager)
    one, two = await checkpoint_each(manager, agent, "a", "b")
    await manager.restore_snapshot(agent, snapshot_id=one)
    (three,) = await checkpoint_each(manager, agent, "c")
    await manager.save_snapshot(agent, is_latest=True)
    tree = await place.tree()
    assert [(node.snapshot_id, node.parent_id) for node in tree.nodes] == [(one, None), (two, one), (three, one)]
    if place.name == "storage":
        assert tree.latest.parent_id == three
    else:  # it says nothing that the last checkpoint does not say
        assert tree.latest == tree.nodes[-1]
    assert [node.snapshot_id for node in tree.roots()] == [one]
    assert [node.snapshot_id for node in tree.children(one)] == [two, three]
    assert [node.last_words for node in tree.nodes] == ["a", "b", "c"]
    assert [node.message_count for node in tree.nodes] == [1, 2, 2]


async def test_lineage_goes_on_in_the_next_process(place):
    def manager():
        return place.manager(snapshot_trigger=lambda *, agent_data, **_: True)

    for text in "abc":
        agent = TurnAgent(manager())
        await agent.add(text)
        await agent.finish()
    nodes = (await place.tree()).nodes
    assert [node.parent_id for node in nodes] == [None, nodes[0].snapshot_id, nodes[1].snapshot_id]


async def test_a_rewind_is_forgotten_with_the_process_when_nothing_was_saved(manager, place):
    agent = LiveAgent(manager)
    one, _ = await checkpoint_each(manager, agent, "a", "b")
    await manager.restore_snapshot(agent, snapshot_id=one)
    again = LiveAgent(place.next())
    assert again.texts() == ["a", "b"]


async def test_a_rewind_lets_go_of_what_is_open_also_after_a_crash(storage):
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = LiveAgent(manager)
    (one,) = await checkpoint_each(manager, agent, "a")
    await agent.call("t1")
    await agent.hear("half a word")
    await manager.restore_snapshot(agent, snapshot_id=one)
    assert (agent.lines, agent.calls) == ([], [])
    storage.fail(key="open.json")  # the process dies before the journal is written anew
    await agent.add("b")
    again = LiveAgent(SnapshotSessionManager("talk", storage=storage))
    assert again.texts() == ["a", "b"]
    assert again.calls == []
    await agent._session_manager._keeper(agent).retrier.stop()


async def test_the_tree_of_another_agent_or_session_is_empty(place):
    agent = LiveAgent(place.manager())
    await agent.add("a")
    for session_id, agent_id in (("other", "default"), ("talk", "other"), ("tal", "default")):
        tree = await place.tree(agent_id, session_id)
        assert (tree.nodes, tree.latest) == ((), None)
    with pytest.raises(InvalidIdError):
        await place.tree("default", "..")


async def test_a_damaged_node_does_not_hide_the_others(blobs, storage):
    agent = LiveAgent(blobs)
    one, two = await checkpoint_each(blobs, agent, "a", "b")
    await storage.write(f"{FOLDER}/immutable_history/snapshot_{one}.json", b"{")
    tree = await read_tree(storage, "talk")
    assert [(node.snapshot_id, node.damaged) for node in tree.nodes] == [(one, True), (two, False)]


async def test_deleting_a_session_deletes_its_own_folder_and_nothing_else(tmp_path):
    storage = LocalFileStorage(tmp_path)
    for session_id in ("talk", "talk2", "tal"):
        manager = SnapshotSessionManager(session_id, storage=storage)
        agent = LiveAgent(manager)
        await checkpoint_each(manager, agent, "a")
        await agent.hear("b")
    others = [key for key in await storage.list("") if not key.startswith("session/talk/")]
    doomed = SnapshotSessionManager("talk", storage=storage)
    await doomed.delete_session()
    assert await storage.list("") == others
    assert len(others) == 6


async def test_deleting_a_session_in_a_store_deletes_its_rows_and_nothing_else():
    place = StorePlace()
    for session_id in ("talk", "talk2", "tal"):
        manager = place.manager(session_id)
        both = [LiveAgent(manager), LiveAgent(manager, agent_id="other")]
        for agent in both:
            await checkpoint_each(manager, agent, "a")
    await place.manager("talk").delete_session()
    page = await place.inner.list_sessions()
    assert {(session.session_id, session.snapshots) for session in page.sessions} == {("talk2", 2), ("tal", 2)}


async def test_an_agent_of_a_deleted_session_begins_it_anew(manager, place):
    agent = LiveAgent(manager)
    await checkpoint_each(manager, agent, "a")
    await manager.delete_session()
    assert agent.texts() == ["a"]
    await agent.add("b")
    tree = await place.tree()
    assert (tree.nodes, tree.latest.parent_id, tree.latest.message_count) == ((), None, 2)


async def test_the_keys_are_those_of_the_layout(blobs, storage):
    agent = LiveAgent(blobs, agent_id="a b")
    (one,) = await checkpoint_each(blobs, agent, "a")
    await agent.hear("b")
    folder = "session/talk/scopes/agent/a b/snapshots"
    assert await storage.list("") == [
        f"{folder}/immutable_history/snapshot_{one}.json",
        f"{folder}/open.json",
        f"{folder}/snapshot_latest.json",
    ]
    envelope = json.loads(await storage.read(f"{folder}/snapshot_latest.json"))
    assert set(envelope) == {"scope", "schema_version", "created_at", "data", "app_data", "journal_mark"}

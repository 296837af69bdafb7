"""A redaction reaches everything at rest, under every policy, at once."""

import asyncio
import json

import pytest

from antiphon.errors import StorageError
from antiphon.session import SnapshotSessionManager, read_tree
from antiphon.storage import InMemoryStorage, LocalFileStorage
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, LiveAgent, TurnAgent, said

SECRET = "my card is 4242 4242"


def everything(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def redact(manager, agent, how, text="[redacted]"):
    agent.messages[-1] = said(text)
    if how == "async":
        await manager.redact_latest_message_async(agent.messages[-1], agent)
    else:
        manager.redact_latest_message(agent.messages[-1], agent)


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_old_text_is_in_no_file_afterwards(kind, policy, how, tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path), save_latest_on=policy)
    agent = kind(manager)
    await agent.add("hello", "hi")
    early = await manager.save_snapshot(agent, is_latest=False)
    await agent.add(SECRET)
    ids = [await manager.save_snapshot(agent, is_latest=False) for _ in range(3)]
    await manager.save_snapshot(agent, is_latest=True)
    await agent.hear("and the")
    assert SECRET.encode() in everything(tmp_path)
    await redact(manager, agent, how)
    assert SECRET.encode() not in everything(tmp_path)
    again = kind(SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path), save_latest_on=policy))
    assert again.texts()[:3] == ["hello", "hi", "[redacted]"]
    for snapshot_id in ids:
        await manager.restore_snapshot(agent, snapshot_id=snapshot_id)
        assert agent.texts() == ["hello", "hi", "[redacted]"]
    await manager.restore_snapshot(agent, snapshot_id=early)
    assert agent.texts() == ["hello", "hi"]


async def test_a_redaction_in_place_is_found_too(tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))
    agent = TurnAgent(manager, messages=[said(SECRET)])  # nobody was told of this message
    await manager.save_snapshot(agent, is_latest=False)
    agent.messages[-1]["content"] = [{"text": "[redacted]"}]
    manager.redact_latest_message(agent.messages[-1], agent)
    assert SECRET.encode() not in everything(tmp_path)


async def test_a_message_of_an_earlier_process_is_found(tmp_path):
    first = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))
    agent = TurnAgent(first)
    await agent.add("hello", "hi", SECRET)
    await first.save_snapshot(agent, is_latest=False)
    await agent.finish()
    second = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))
    again = TurnAgent(second)
    await redact(second, again, "sync")
    assert SECRET.encode() not in everything(tmp_path)


async def test_every_version_of_a_tracked_message_is_redacted(tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))
    agent = LiveAgent(manager)
    for text in ("my card", "my card is 4242", SECRET):
        message = said(text, tracking_id="m1", metadata={"generated_text": text})
        if agent.messages:
            await agent.update(0, message)
        else:
            agent.messages.append(message)
        await manager.save_snapshot(agent, is_latest=False)
    agent.messages[-1] = said("[redacted]", tracking_id="m1")
    await manager.redact_latest_message_async(agent.messages[-1], agent)
    assert b"card" not in everything(tmp_path)


async def test_the_journal_is_redacted(tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path), save_latest_on="message")
    agent = LiveAgent(manager)
    await agent.hear(SECRET)
    await agent.settle(tell=False)
    await redact(manager, agent, "async")
    assert SECRET.encode() not in everything(tmp_path)


async def test_other_messages_stay_as_they_are(tmp_path):
    storage = LocalFileStorage(tmp_path)
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = LiveAgent(manager)
    await agent.add("one", "two")
    await manager.save_snapshot(agent, is_latest=False)
    agent.messages.append(said("three"))  # not saved yet: there is nothing to be found
    await redact(manager, agent, "sync")
    (node,) = (await read_tree(storage, "talk")).nodes
    assert (node.message_count, node.last_words) == (2, "two")
    assert (await read_tree(storage, "talk")).latest.last_words == "[redacted]"


async def test_without_anything_to_redact_latest_is_saved_all_the_same(tmp_path):
    manager = SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path), save_latest_on="trigger")
    agent = TurnAgent(manager)
    await agent.add("one")
    manager.redact_latest_message(agent.messages[-1], agent)
    assert TurnAgent(SnapshotSessionManager("talk", storage=LocalFileStorage(tmp_path))).texts() == ["one"]


async def test_a_checkpoint_that_is_on_its_way_is_redacted_before_it_is_written():
    storage = FaultStorage(InMemoryStorage())
    manager = SnapshotSessionManager("talk", storage=storage, save_latest_on="trigger")
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    gate = storage.hold(key="latest.json")
    blocker = asyncio.get_running_loop().create_task(manager.save_snapshot(agent, is_latest=True))
    await gate.reached()
    late = asyncio.get_running_loop().create_task(manager.save_snapshot(agent, is_latest=False))
    await asyncio.sleep(0)
    agent.messages[-1] = said("[redacted]")
    redacting = asyncio.get_running_loop().create_task(manager.redact_latest_message_async(agent.messages[-1], agent))
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(blocker, late, redacting)
    assert all(SECRET.encode() not in storage.storage.sync.read(key) for key in storage.storage.sync.list())


async def test_a_redaction_that_failed_half_way_is_ended_by_the_next_call():
    storage = FaultStorage(InMemoryStorage())
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    ids = [await manager.save_snapshot(agent, is_latest=False) for _ in range(3)]
    agent.messages[-1] = said("[redacted]")
    before = storage.changes
    storage.fail(1, key=f"{ids[1]}.json")
    with pytest.raises(StorageError):
        manager.redact_latest_message(agent.messages[-1], agent)
    manager.redact_latest_message(agent.messages[-1], agent)
    assert storage.changes > before
    assert all(SECRET.encode() not in storage.storage.sync.read(key) for key in storage.storage.sync.list())


async def test_lineage_and_state_of_a_redacted_checkpoint_stay():
    storage = InMemoryStorage()
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = TurnAgent(manager, state={"picture": [1, 1.0, True, None]})
    await agent.add("one")
    first = await manager.save_snapshot(agent, is_latest=False)
    await agent.add(SECRET)
    second = await manager.save_snapshot(agent, is_latest=False)
    key = f"session/talk/scopes/agent/default/snapshots/immutable_history/snapshot_{second}.json"
    before = json.loads(storage.sync.read(key))
    await redact(manager, agent, "sync")
    after = json.loads(storage.sync.read(key))
    assert after["parent_id"] == first
    before["data"].pop("messages"), after["data"].pop("messages")
    assert json.dumps(before) == json.dumps(after)


async def test_a_damaged_checkpoint_is_named_and_does_not_stop_the_others(caplog):
    storage = InMemoryStorage()
    manager = SnapshotSessionManager("talk", storage=storage)
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    ids = [await manager.save_snapshot(agent, is_latest=False) for _ in range(3)]
    key = f"session/talk/scopes/agent/default/snapshots/immutable_history/snapshot_{ids[1]}.json"
    storage.sync.write(key, b"{")
    await redact(manager, agent, "sync")
    assert ids[1] in caplog.text
    assert all(SECRET.encode() not in storage.sync.read(key) for key in storage.sync.list())

"""A redaction reaches everything at rest, under every policy, at once."""

import asyncio
import json

import pytest

from antiphon.errors import NotSupportedError, SessionConflictError, SessionStoreError, StorageError
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, LiveAgent, TurnAgent, said
from tests.session.places import PlainStore, StorePlace

SECRET = "my card is 4242 4242"


async def redact(manager, agent, how, text="[redacted]"):
    agent.messages[-1] = said(text)
    if how == "async":
        await manager.redact_latest_message_async(agent.messages[-1], agent)
    else:
        manager.redact_latest_message(agent.messages[-1], agent)


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("policy", ["message", "invocation", "trigger"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_old_text_is_nowhere_at_rest_afterwards(kind, policy, how, place):
    manager = place.manager(save_latest_on=policy)
    agent = kind(manager)
    await agent.add("hello", "hi")
    early = await manager.save_snapshot(agent, is_latest=False)
    await agent.add(SECRET)
    ids = [await manager.save_snapshot(agent, is_latest=False) for _ in range(3)]
    await manager.save_snapshot(agent, is_latest=True)
    await agent.hear("and the")
    assert SECRET.encode() in place.everything()
    await redact(manager, agent, how)
    assert SECRET.encode() not in place.everything()
    again = kind(place.manager(save_latest_on=policy))
    assert again.texts()[:3] == ["hello", "hi", "[redacted]"]
    for snapshot_id in ids:
        await manager.restore_snapshot(agent, snapshot_id=snapshot_id)
        assert agent.texts() == ["hello", "hi", "[redacted]"]
    await manager.restore_snapshot(agent, snapshot_id=early)
    assert agent.texts() == ["hello", "hi"]


async def test_a_redaction_in_place_is_found_too(place):
    manager = place.manager()
    agent = TurnAgent(manager, messages=[said(SECRET)])  # nobody was told of this message
    await manager.save_snapshot(agent, is_latest=False)
    agent.messages[-1]["content"] = [{"text": "[redacted]"}]
    manager.redact_latest_message(agent.messages[-1], agent)
    assert SECRET.encode() not in place.everything()


async def test_a_message_of_an_earlier_process_is_found(place):
    first = place.manager()
    agent = TurnAgent(first)
    await agent.add("hello", "hi", SECRET)
    await first.save_snapshot(agent, is_latest=False)
    await agent.finish()
    second = place.manager()
    again = TurnAgent(second)
    await redact(second, again, "sync")
    assert SECRET.encode() not in place.everything()


async def test_every_version_of_a_tracked_message_is_redacted(place):
    manager = place.manager()
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
    assert b"card" not in place.everything()


async def test_the_journal_is_redacted(place):
    manager = place.manager(save_latest_on="message")
    agent = LiveAgent(manager)
    await agent.hear(SECRET)
    await agent.settle(tell=False)
    await redact(manager, agent, "async")
    assert SECRET.encode() not in place.everything()


async def test_other_messages_stay_as_they_are(place):
    manager = place.manager()
    agent = LiveAgent(manager)
    await agent.add("one", "two")
    await manager.save_snapshot(agent, is_latest=False)
    agent.messages.append(said("three"))  # not saved yet: there is nothing to be found
    await redact(manager, agent, "sync")
    (node,) = (await place.tree()).nodes
    assert (node.message_count, node.last_words) == (2, "two")
    assert (await place.tree()).latest.last_words == "[redacted]"


async def test_without_anything_to_redact_latest_is_saved_all_the_same(place):
    manager = place.manager(save_latest_on="trigger")
    agent = TurnAgent(manager)
    await agent.add("one")
    manager.redact_latest_message(agent.messages[-1], agent)
    assert TurnAgent(place.manager()).texts() == ["one"]


async def test_a_checkpoint_that_is_on_its_way_is_redacted_before_it_is_written(place):
    manager = place.manager(save_latest_on="trigger")
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    gate = place.faults.hold()
    blocker = asyncio.get_running_loop().create_task(manager.save_snapshot(agent, is_latest=True))
    await gate.reached()
    late = asyncio.get_running_loop().create_task(manager.save_snapshot(agent, is_latest=False))
    await asyncio.sleep(0)
    agent.messages[-1] = said("[redacted]")
    redacting = asyncio.get_running_loop().create_task(manager.redact_latest_message_async(agent.messages[-1], agent))
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(blocker, late, redacting)
    assert SECRET.encode() not in place.everything()


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


async def test_a_redaction_that_a_store_did_not_carry_out_is_ended_by_the_next_call():
    place = StorePlace()
    manager = place.manager()
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    await manager.save_snapshot(agent, is_latest=False)
    agent.messages[-1] = said("[redacted]")
    place.faults.fail(1, key="talk")  # `redact` is asked of a session, not of a row
    with pytest.raises(SessionStoreError):
        manager.redact_latest_message(agent.messages[-1], agent)
    assert SECRET.encode() in place.everything()
    manager.redact_latest_message(agent.messages[-1], agent)
    assert SECRET.encode() not in place.everything()


async def test_a_redaction_in_a_store_reaches_the_other_agents_of_the_session_and_what_they_save_later():
    place = StorePlace()
    manager = place.manager(save_latest_on="message")
    one, two = TurnAgent(manager, agent_id="one"), TurnAgent(manager, agent_id="two")
    for agent in (one, two):
        await agent.add("hello", "hi", SECRET)
    await redact(manager, one, "async")
    assert SECRET.encode() not in place.everything()
    await two.add("and more")  # it still knows the words
    assert SECRET.encode() not in place.everything()
    assert TurnAgent(place.next(), agent_id="two").texts() == ["hello", "hi", "[redacted]", "and more"]


async def test_a_redaction_is_carried_out_although_the_session_was_moved_on_by_another():
    place = StorePlace()
    mine = TurnAgent(place.manager())
    await mine.add("hello", "hi", SECRET)
    await mine.finish()
    theirs = TurnAgent(place.next())
    await theirs.add("I see")
    await theirs.finish()
    with pytest.raises(SessionConflictError):
        await redact(mine._session_manager, mine, "async")
    assert SECRET.encode() not in place.everything()
    assert place.texts() == ["hello", "hi", "[redacted]", "I see"]
    await theirs.add("and more")  # it still knows the words
    await theirs.finish()
    assert SECRET.encode() not in place.everything()


async def test_a_store_that_cannot_redact_says_so():
    store = PlainStore()
    manager = SnapshotSessionManager("talk", store=store)
    agent = TurnAgent(manager)
    await agent.add(SECRET)
    agent.messages[-1] = said("[redacted]")
    with pytest.raises(NotSupportedError, match="PlainStore cannot redact"):
        await manager.redact_latest_message_async(agent.messages[-1], agent)


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

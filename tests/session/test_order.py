"""Saves of one agent keep their order, are made together where they can be, and encode only what is new."""

import asyncio
import json
import threading

import pytest

from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import FaultStorage
from tests.session.agents import LiveAgent, TurnAgent, said

LATEST = "session/talk/scopes/agent/default/snapshots/snapshot_latest.json"


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


@pytest.fixture
def manager(storage):
    return SnapshotSessionManager("talk", storage=storage)


def texts_at_rest(storage):
    envelope = json.loads(storage.storage.sync.read(LATEST))
    return [message["content"][0]["text"] for message in envelope["data"]["messages"]]


def start(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


async def test_two_agents_of_one_id_that_save_in_turns_are_told_of_in_the_log_once(manager, storage, caplog):
    first, second = LiveAgent(manager), LiveAgent(manager)
    await second.add("by the second")
    assert caplog.messages == []
    for text in ("by the first", "and again"):
        await first.add(text)
    (told,) = caplog.messages
    assert "two agents with agent_id='default' are in use" in told
    assert texts_at_rest(storage) == ["by the first", "and again"]


async def test_nothing_is_said_of_an_agent_that_another_takes_over_from_or_that_has_another_id(manager, caplog):
    first = LiveAgent(manager)
    await first.add("one")
    other = LiveAgent(manager, agent_id="other")
    second = LiveAgent(manager)
    await second.add("two")
    await other.add("three")
    assert second.texts() == ["one", "two"]
    assert "two agents" not in caplog.text


async def test_an_older_state_never_overwrites_a_newer_one(manager, storage):
    agent = LiveAgent(manager)
    gate = storage.hold()
    first = start(agent.add("one"))
    await gate.reached()
    second = start(agent.add("two"))
    await asyncio.sleep(0)
    assert agent.texts() == ["one", "two"]
    gate.release()
    await asyncio.gather(first, second)
    assert texts_at_rest(storage) == ["one", "two"]


async def test_many_who_wait_for_a_slow_storage_are_served_by_one_save(manager, storage):
    agent = LiveAgent(manager)
    gate = storage.hold()
    tasks = [start(agent.add("0"))]
    await gate.reached()
    tasks += [start(agent.add(str(index))) for index in range(1, 50)]
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(*tasks)
    assert len(texts_at_rest(storage)) == 50
    assert storage.changes == 2


async def test_a_synchronous_save_inside_the_loop_does_not_wait_for_one_that_needs_the_loop(manager, storage):
    agent = LiveAgent(manager)
    gate = storage.hold(when="after")
    first = start(agent.add("one"))
    await gate.reached()
    agent.messages.append(said("two"))
    threading.Timer(0, gate.release).start()
    manager.sync_agent(agent)
    assert texts_at_rest(storage) == ["one", "two"]
    await first
    assert texts_at_rest(storage) == ["one", "two"]


async def test_a_long_save_that_a_synchronous_one_overtook_writes_nothing(manager, storage):
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(2_000)])
    saving = start(agent.add("one"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert storage.changes == 0
    agent.messages.append(said("two"))
    manager.sync_agent(agent)
    await saving
    assert texts_at_rest(storage)[-2:] == ["one", "two"]
    assert storage.changes == 1


async def test_a_save_whose_caller_was_cancelled_is_made_whole_and_the_next_one_follows_it(manager, storage):
    agent = LiveAgent(manager)
    gate = storage.hold()
    first = start(agent.add("one"))
    await gate.reached()
    first.cancel()
    await asyncio.wait([first])
    second = start(agent.add("two"))
    await asyncio.sleep(0)
    gate.release()
    await second
    assert texts_at_rest(storage) == ["one", "two"]
    assert len(storage.written("latest.json")) == 2


async def test_the_agents_of_one_manager_wait_for_one_another_in_nothing(manager, storage):
    slow, quick = LiveAgent(manager, agent_id="slow"), LiveAgent(manager, agent_id="quick")
    gate = storage.hold(key="slow/snapshots/snapshot_latest.json")
    waiting = start(slow.add("one"))
    await gate.reached()
    await quick.add("one")
    assert not waiting.done()
    gate.release()
    await waiting


def test_loops_that_follow_one_another_share_one_agent(manager, storage):
    agent = TurnAgent(manager)

    async def turn(text):
        await agent.add(text)
        await asyncio.gather(agent.finish(), agent.finish())

    for text in "abc":
        asyncio.run(turn(text))
    assert texts_at_rest(storage) == ["a", "b", "c"]


async def test_two_loops_at_a_time_keep_the_newest_state(manager, storage):
    agent = TurnAgent(manager)
    gate = storage.hold()
    await agent.add("one")
    first = start(agent.finish())
    await gate.reached()
    agent.messages.append(said("two"))
    other = threading.Thread(target=lambda: asyncio.run(agent.finish()))
    other.start()
    gate.release()
    await first
    await asyncio.to_thread(other.join)
    assert texts_at_rest(storage) == ["one", "two"]


async def test_a_save_of_ten_thousand_messages_encodes_only_the_new_ones(manager):
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(10_000)])
    await agent.add("first")
    (ledger,) = manager._keeper(agent).target._ledgers
    assert ledger.messages_encoded == 10_001
    for index in range(10):
        await agent.add(f"new {index}", "answer")
    assert ledger.messages_encoded == 10_021
    await agent.update(5000, said("edited"))
    assert ledger.messages_encoded == 10_022
    del agent.messages[:2]
    await agent.finish()
    assert ledger.messages_encoded == 10_022


async def test_a_long_save_lets_the_loop_run_and_saves_one_moment(manager, storage):
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(5_000)])
    saving = start(agent.add("last"))
    turns = 0
    while not saving.done():
        turns += 1
        agent.messages.insert(0, said("too late"))
        del agent.messages[100]
        await asyncio.sleep(0)
    assert turns > 20
    texts = texts_at_rest(storage)
    late = texts.count("too late")
    assert late <= 3  # what was there when it began
    assert texts[:late] == ["too late"] * late
    assert len(texts) == 5_001
    assert [text for text in texts if text.startswith("message")][-1] == "message 4999"

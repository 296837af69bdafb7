"""Saves of one agent keep their order, are made together where they can be, and encode only what is new."""

import asyncio
import threading

import pytest

from antiphon.session import SnapshotSessionManager
from antiphon.store import LineStore
from antiphon.store.core import StoreCore
from antiphon.store.memory import MemoryBackend
from tests.session.agents import LiveAgent, TurnAgent, said
from tests.session.places import StoragePlace


@pytest.fixture
def manager(place):
    return place.manager()


def start(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


async def test_two_agents_of_one_id_that_save_in_turns_are_told_of_in_the_log_once(caplog):
    place = StoragePlace()
    manager = place.manager()
    first, second = LiveAgent(manager), LiveAgent(manager)
    await second.add("by the second")
    assert caplog.messages == []
    for text in ("by the first", "and again"):
        await first.add(text)
    (told,) = caplog.messages
    assert "two agents with agent_id='default' are in use" in told
    assert place.texts() == ["by the first", "and again"]


async def test_nothing_is_said_of_an_agent_that_another_takes_over_from_or_that_has_another_id(manager, caplog):
    first = LiveAgent(manager)
    await first.add("one")
    other = LiveAgent(manager, agent_id="other")
    second = LiveAgent(manager)
    await second.add("two")
    await other.add("three")
    assert second.texts() == ["one", "two"]
    assert "two agents" not in caplog.text


async def test_an_older_state_never_overwrites_a_newer_one(manager, place):
    agent = LiveAgent(manager)
    gate = place.faults.hold()
    first = start(agent.add("one"))
    await gate.reached()
    second = start(agent.add("two"))
    await asyncio.sleep(0)
    assert agent.texts() == ["one", "two"]
    gate.release()
    await asyncio.gather(first, second)
    assert place.texts() == ["one", "two"]


async def test_many_who_wait_for_a_slow_storage_are_served_by_one_save(manager, place):
    agent = LiveAgent(manager)
    gate = place.faults.hold()
    tasks = [start(agent.add("0"))]
    await gate.reached()
    tasks += [start(agent.add(str(index))) for index in range(1, 50)]
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(*tasks)
    assert len(place.texts()) == 50
    assert place.faults.changes == 2


async def test_a_synchronous_save_inside_the_loop_does_not_wait_for_one_that_needs_the_loop(manager, place):
    agent = LiveAgent(manager)
    gate = place.faults.hold(when="after")
    first = start(agent.add("one"))
    await gate.reached()
    agent.messages.append(said("two"))
    threading.Timer(0, gate.release).start()
    manager.sync_agent(agent)
    assert place.texts() == ["one", "two"]
    await first
    assert place.texts() == ["one", "two"]


async def test_a_long_save_that_a_synchronous_one_overtook_writes_nothing(manager, place):
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(2_000)])
    saving = start(agent.add("one"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert place.faults.changes == 0
    agent.messages.append(said("two"))
    manager.sync_agent(agent)
    await saving
    assert place.texts()[-2:] == ["one", "two"]
    assert place.faults.changes == 1


async def test_a_save_whose_caller_was_cancelled_is_made_whole_and_the_next_one_follows_it(manager, place):
    agent = LiveAgent(manager)
    gate = place.faults.hold()
    first = start(agent.add("one"))
    await gate.reached()
    first.cancel()
    await asyncio.wait([first])
    second = start(agent.add("two"))
    await asyncio.sleep(0)
    gate.release()
    await second
    assert place.texts() == ["one", "two"]
    assert place.faults.changes == 2


async def test_the_agents_of_one_manager_wait_for_one_another_in_nothing(manager, place):
    slow, quick = LiveAgent(manager, agent_id="slow"), LiveAgent(manager, agent_id="quick")
    gate = place.faults.hold()
    waiting = start(slow.add("one"))
    await gate.reached()
    await quick.add("one")
    assert not waiting.done()
    gate.release()
    await waiting


def test_loops_that_follow_one_another_share_one_agent(manager, place):
    agent = TurnAgent(manager)

    async def turn(text):
        await agent.add(text)
        await asyncio.gather(agent.finish(), agent.finish())

    for text in "abc":
        asyncio.run(turn(text))
    assert place.texts() == ["a", "b", "c"]


async def test_two_loops_at_a_time_keep_the_newest_state(manager, place):
    agent = TurnAgent(manager)
    gate = place.faults.hold()
    await agent.add("one")
    first = start(agent.finish())
    await gate.reached()
    agent.messages.append(said("two"))
    other = threading.Thread(target=lambda: asyncio.run(agent.finish()))
    other.start()
    gate.release()
    await first
    await asyncio.to_thread(other.join)
    assert place.texts() == ["one", "two"]


async def test_a_save_of_ten_thousand_messages_encodes_only_the_new_ones():
    manager = StoragePlace().manager()
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


async def test_a_row_of_ten_thousand_messages_takes_the_new_ones_only_and_compares_nothing_in_the_store():
    class Counting(MemoryBackend):
        def __init__(self):
            super().__init__()
            self.handed, self.based = [], []

        def write(self, jobs):
            for job in jobs:
                commit = job.work.__self__
                self.handed.append(len(commit.fresh) + len(commit.grown))
            return super().write(jobs)

    backend = Counting()
    store = LineStore(StoreCore(backend, name="test"))
    manager = SnapshotSessionManager("talk", store=store, save_latest_on="message")
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(10_000)])
    await agent.add("first")
    for index in range(3):
        await agent.add(f"new {index}", "answer")
        await agent.hear("a line")
        agent.lines.clear()
    draft = drafted(manager, agent)
    assert draft.messages.origin is not None
    assert draft.messages.known == len(agent.messages) == 10_007
    await agent.update(5000, said("edited"))
    await manager.save_snapshot(agent, is_latest=False)
    await agent.add("after it was sealed")
    del agent.messages[:2]
    await agent.finish()
    assert backend.handed == [10_001, 2, 0, 2, 0, 2, 0, 1, 0, 1, 0]
    again = LiveAgent(SnapshotSessionManager("talk", store=store))
    assert again.messages == agent.messages
    assert drafted(again._session_manager, again).messages.known == 10_006


def drafted(manager, agent):
    keeper = manager._keeper(agent)
    return keeper._drafted_at_once(keeper._capture(agent))


async def test_a_long_save_lets_the_loop_run_and_saves_one_moment(manager, place):
    agent = LiveAgent(manager, messages=[said(f"message {index}") for index in range(5_000)])
    saving = start(agent.add("last"))
    turns = 0
    while not saving.done():
        turns += 1
        agent.messages.insert(0, said("too late"))
        del agent.messages[100]
        await asyncio.sleep(0)
    assert turns > 20
    texts = place.texts()
    late = texts.count("too late")
    assert late <= 3  # what was there when it began
    assert texts[:late] == ["too late"] * late
    assert len(texts) == 5_001
    assert [text for text in texts if text.startswith("message")][-1] == "message 4999"

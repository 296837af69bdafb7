"""What a save that fails means, and how the newest state gets through."""

import asyncio
import gc
from itertools import pairwise

import pytest

from antiphon.errors import SessionSaveError, SnapshotException, StorageError
from antiphon.hooks.events import SessionSaveFailedEvent
from antiphon.results import AgentResult
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import FaultStorage, VirtualClock
from tests.session.agents import LiveAgent, TurnAgent, said


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


@pytest.fixture
def clock():
    return VirtualClock()


def manager(storage, clock, **more):
    return SnapshotSessionManager("talk", storage=storage, clock=clock, **more)


def listen(agent):
    told = []
    agent.hooks.add_callback(SessionSaveFailedEvent, told.append)
    return told


def at_rest(storage, kind=LiveAgent):
    return kind(SnapshotSessionManager("talk", storage=storage.storage)).texts()


async def test_an_agent_raises_and_the_error_carries_the_result(storage, clock):
    keeper = manager(storage, clock)
    agent = TurnAgent(keeper)
    result = AgentResult("end_turn", said("hello", "assistant"))
    await agent.add("hi")
    storage.fail(1)
    with pytest.raises(SessionSaveError, match=r"'talk'.*'default'") as caught:
        await agent.finish(result)
    assert caught.value.result is result
    assert isinstance(caught.value.__cause__, StorageError)
    assert keeper.health.behind
    assert keeper.health.last_error is caught.value.__cause__
    await agent.finish(result)
    assert at_rest(storage, TurnAgent) == ["hi"]
    assert not keeper.health.behind
    assert keeper.health.saved_at == clock.utc()


async def test_what_cannot_be_stored_raises_the_same_way(storage, clock):
    agent = TurnAgent(manager(storage, clock))
    agent.messages.append({"role": "user", "content": [{"text": float("nan")}]})
    with pytest.raises(SessionSaveError, match=r"messages\[0\]") as caught:
        await agent.finish()
    assert isinstance(caught.value.__cause__, SnapshotException)


async def test_any_error_of_a_storage_is_taken(storage, clock):
    agent = TurnAgent(manager(storage, clock))
    storage.fail(1, error=ConnectionResetError("gone"))
    with pytest.raises(SessionSaveError) as caught:
        await agent.finish()
    assert isinstance(caught.value.__cause__, ConnectionResetError)


async def test_a_live_agent_goes_on_and_the_newest_state_is_saved_later(storage, clock):
    keeper = manager(storage, clock)
    agent = LiveAgent(keeper)
    told = listen(agent)
    storage.fail(4)
    await agent.add("one")
    await agent.add("two")
    await agent.call("t1")
    assert keeper.health.behind
    assert [event.attempt for event in told] == [1]
    await clock.sleep(10)
    assert [event.attempt for event in told] == [1, 2, 3, 4]
    assert all(isinstance(event.error, StorageError) and event.agent is agent for event in told)
    assert not keeper.health.behind
    assert at_rest(storage)[:2] == ["one", "two"]
    assert "t1" in str(LiveAgent(SnapshotSessionManager("talk", storage=storage.storage)).messages)


async def test_the_pauses_grow_and_are_bounded(storage, clock):
    agent = LiveAgent(manager(storage, clock))
    moments = []
    agent.hooks.add_callback(SessionSaveFailedEvent, lambda event: moments.append(clock.now()))
    storage.fail(8)
    await agent.add("one")
    await clock.sleep(60)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


async def test_while_a_save_is_tried_again_messages_wait_for_nothing(storage, clock):
    agent = LiveAgent(manager(storage, clock))
    storage.fail(1)
    await agent.add("one")
    before = len(storage.operations)
    for _ in range(20):
        await agent.add("more")
        await agent.hear("and")
    assert len(storage.operations) == before
    await agent.finish()
    assert len(at_rest(storage)) == 41


async def test_the_end_of_a_call_tries_again_and_leaves_no_task(storage, clock):
    keeper = manager(storage, clock)
    agent = LiveAgent(keeper)
    storage.fail(3)
    await agent.add("one")
    await agent.finish()
    assert at_rest(storage) == ["one"]
    assert not keeper.health.behind
    assert len(asyncio.all_tasks()) == 1


async def test_the_end_of_a_call_gives_up_after_five_seconds_and_raises(storage, clock):
    keeper = manager(storage, clock)
    agent = LiveAgent(keeper)
    told = listen(agent)
    storage.fail()
    await agent.add("one")
    began = clock.now()
    with pytest.raises(SessionSaveError) as caught:
        await agent.finish()
    assert 3 < clock.now() - began <= 5
    assert caught.value.result is None
    assert isinstance(caught.value.__cause__, StorageError)
    assert len(told) > 3
    assert keeper.health.behind
    assert len(asyncio.all_tasks()) == 1
    storage.mend()
    await agent.finish()
    assert at_rest(storage) == ["one"]


async def test_a_storage_that_hangs_does_not_hold_up_the_end_of_a_call(storage, clock):
    agent = LiveAgent(manager(storage, clock))
    clock.autojump = False
    gate = storage.hold()
    ending = asyncio.get_running_loop().create_task(agent.finish())
    await gate.reached()
    await clock.advance(5.1, wait_for_threads=False)
    with pytest.raises(SessionSaveError, match="5 s"):
        await ending
    gate.release()


async def test_a_live_agent_may_raise_too(storage, clock):
    agent = LiveAgent(manager(storage, clock, on_save_error="raise"))
    storage.fail(3)
    with pytest.raises(SessionSaveError):
        await agent.add("one")
    with pytest.raises(SessionSaveError):
        await agent.call("t1")
    with pytest.raises(SessionSaveError):
        await agent.finish()
    await agent.finish()
    assert at_rest(storage)[0] == "one"


async def test_an_agent_may_try_again_and_returns_at_once(storage, clock):
    agent = TurnAgent(manager(storage, clock, on_save_error="retry"))
    told = listen(agent)
    storage.fail(2)
    await agent.add("one")
    await agent.finish()
    assert len(told) == 1
    await clock.sleep(1)
    assert len(told) == 2
    assert at_rest(storage, TurnAgent) == ["one"]


def test_a_retry_ends_with_its_loop_and_the_next_save_brings_all_up_to_date(storage):
    keeper = SnapshotSessionManager("talk", storage=storage, on_save_error="retry")
    agent = TurnAgent(keeper)
    storage.fail(1)

    async def turn(text):
        await agent.add(text)
        await agent.finish()

    asyncio.run(turn("one"))
    assert keeper.health.behind
    gc.collect()
    asyncio.run(turn("two"))
    assert at_rest(storage, TurnAgent) == ["one", "two"]


async def test_a_checkpoint_that_failed_is_made_up_for_once(storage, clock):
    fires = iter([True, False, False])
    keeper = manager(storage, clock, snapshot_trigger=lambda *, agent_data, **_: next(fires))
    agent = LiveAgent(keeper)
    storage.fail(2, key=".json")
    await agent.restart()
    await clock.sleep(5)
    assert len(await keeper.list_snapshot_ids(agent)) == 1
    await agent.finish()
    await agent.finish()
    assert len(await keeper.list_snapshot_ids(agent)) == 1


async def test_a_checkpoint_that_was_written_is_not_written_again_when_latest_fails(storage, clock):
    fires = iter([True, False])
    keeper = manager(storage, clock, snapshot_trigger=lambda *, agent_data, **_: next(fires))
    agent = LiveAgent(keeper)
    storage.fail(1, key="latest.json")
    await agent.restart()
    await agent.finish()
    assert len(await keeper.list_snapshot_ids(agent)) == 1


async def test_a_listener_that_raises_does_not_end_the_retries(storage, clock, caplog):
    agent = LiveAgent(manager(storage, clock))

    def listener(event: SessionSaveFailedEvent) -> None:
        raise ValueError("cannot stand it")

    agent.add_hook(listener)
    storage.fail(2)
    await agent.add("one")
    await clock.sleep(5)
    assert at_rest(storage) == ["one"]
    assert "cannot stand it" in caplog.text


async def test_an_explicit_save_raises_the_storages_own_error(storage, clock):
    keeper = manager(storage, clock)
    agent = LiveAgent(keeper)
    storage.fail(4)
    with pytest.raises(StorageError):
        await keeper.save_snapshot(agent, is_latest=True)
    with pytest.raises(StorageError):
        await keeper.save_snapshot(agent, is_latest=False)
    with pytest.raises(StorageError):
        keeper.sync_agent(agent)
    with pytest.raises(StorageError):
        await keeper.sync_agent_async(agent)
    assert keeper.health.behind
    keeper.sync_agent(agent)
    assert not keeper.health.behind
    assert await keeper.list_snapshot_ids(agent) == []


async def test_a_save_reported_as_failed_although_it_was_done_does_no_harm(storage, clock):
    agent = LiveAgent(manager(storage, clock))
    storage.fail(2, when="after")
    await agent.add("one")
    await agent.add("two")
    await clock.sleep(5)
    await agent.finish()
    assert at_rest(storage) == ["one", "two"]


async def test_health_begins_with_nothing(storage, clock):
    health = manager(storage, clock).health
    assert (health.saved_at, health.behind, health.last_error) == (None, False, None)
    with pytest.raises(AttributeError):
        health.behind = True

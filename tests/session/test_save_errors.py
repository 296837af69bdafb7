"""What a save that fails means, and how the newest state gets through."""

import asyncio
import gc
from itertools import pairwise

import pytest

from antiphon.errors import SessionSaveError, SnapshotException
from antiphon.hooks.events import SessionSaveFailedEvent
from antiphon.results import AgentResult
from antiphon.testing import VirtualClock
from tests.session.agents import LiveAgent, TurnAgent, said
from tests.session.places import StoragePlace


@pytest.fixture
def clock():
    return VirtualClock()


def manager(place, clock, **more):
    return place.manager(clock=clock, **more)


def listen(agent):
    told = []
    agent.hooks.add_callback(SessionSaveFailedEvent, told.append)
    return told


def at_rest(place, kind=LiveAgent):
    return kind(place.next()).texts()


async def test_an_agent_raises_and_the_error_carries_the_result(place, clock):
    keeper = manager(place, clock)
    agent = TurnAgent(keeper)
    result = AgentResult("end_turn", said("hello", "assistant"))
    await agent.add("hi")
    place.faults.fail(1)
    with pytest.raises(SessionSaveError, match=r"'talk'.*'default'") as caught:
        await agent.finish(result)
    assert caught.value.result is result
    assert isinstance(caught.value.__cause__, place.error)
    assert keeper.health.behind
    assert keeper.health.last_error is caught.value.__cause__
    await agent.finish(result)
    assert at_rest(place, TurnAgent) == ["hi"]
    assert not keeper.health.behind
    assert keeper.health.saved_at == clock.utc()


async def test_what_cannot_be_stored_raises_the_same_way(place, clock):
    agent = TurnAgent(manager(place, clock))
    agent.messages.append({"role": "user", "content": [{"text": float("nan")}]})
    with pytest.raises(SessionSaveError, match=r"messages\[0\]") as caught:
        await agent.finish()
    assert isinstance(caught.value.__cause__, SnapshotException)


async def test_any_error_of_a_storage_is_taken(place, clock):
    agent = TurnAgent(manager(place, clock))
    place.faults.fail(1, error=ConnectionResetError("gone"))
    with pytest.raises(SessionSaveError) as caught:
        await agent.finish()
    assert isinstance(caught.value.__cause__, ConnectionResetError)


async def test_a_live_agent_goes_on_and_the_newest_state_is_saved_later(place, clock):
    keeper = manager(place, clock)
    agent = LiveAgent(keeper)
    told = listen(agent)
    place.faults.fail(4)
    await agent.add("one")
    await agent.add("two")
    await agent.call("t1")
    assert keeper.health.behind
    assert [event.attempt for event in told] == [1]
    await clock.sleep(10)
    assert [event.attempt for event in told] == [1, 2, 3, 4]
    assert all(isinstance(event.error, place.error) and event.agent is agent for event in told)
    assert not keeper.health.behind
    assert at_rest(place)[:2] == ["one", "two"]
    assert "t1" in str(LiveAgent(place.next()).messages)


async def test_the_pauses_grow_and_are_bounded(place, clock):
    agent = LiveAgent(manager(place, clock))
    moments = []
    agent.hooks.add_callback(SessionSaveFailedEvent, lambda event: moments.append(clock.now()))
    place.faults.fail(8)
    await agent.add("one")
    await clock.sleep(60)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


async def test_while_a_save_is_tried_again_messages_wait_for_nothing(place, clock):
    agent = LiveAgent(manager(place, clock))
    place.faults.fail(1)
    await agent.add("one")
    before = len(place.faults.operations)
    for _ in range(20):
        await agent.add("more")
        await agent.hear("and")
    assert len(place.faults.operations) == before
    await agent.finish()
    assert len(at_rest(place)) == 41


async def test_the_end_of_a_call_tries_again_and_leaves_no_task(place, clock):
    keeper = manager(place, clock)
    agent = LiveAgent(keeper)
    place.faults.fail(3)
    await agent.add("one")
    await agent.finish()
    assert at_rest(place) == ["one"]
    assert not keeper.health.behind
    assert len(asyncio.all_tasks()) == 1


async def test_the_end_of_a_call_gives_up_after_five_seconds_and_raises(place, clock):
    keeper = manager(place, clock)
    agent = LiveAgent(keeper)
    told = listen(agent)
    place.faults.fail()
    await agent.add("one")
    began = clock.now()
    with pytest.raises(SessionSaveError) as caught:
        await agent.finish()
    assert 3 < clock.now() - began <= 5
    assert caught.value.result is None
    assert isinstance(caught.value.__cause__, place.error)
    assert len(told) > 3
    assert keeper.health.behind
    assert len(asyncio.all_tasks()) == 1
    place.faults.mend()
    await agent.finish()
    assert at_rest(place) == ["one"]


async def test_a_storage_that_hangs_does_not_hold_up_the_end_of_a_call(place, clock):
    agent = LiveAgent(manager(place, clock))
    clock.autojump = False
    gate = place.faults.hold()
    ending = asyncio.get_running_loop().create_task(agent.finish())
    await gate.reached()
    await clock.advance(5.1, wait_for_threads=False)
    with pytest.raises(SessionSaveError, match="5 s"):
        await ending
    gate.release()


async def test_a_live_agent_may_raise_too(place, clock):
    agent = LiveAgent(manager(place, clock, on_save_error="raise"))
    place.faults.fail(3)
    with pytest.raises(SessionSaveError):
        await agent.add("one")
    with pytest.raises(SessionSaveError):
        await agent.call("t1")
    with pytest.raises(SessionSaveError):
        await agent.finish()
    await agent.finish()
    assert at_rest(place)[0] == "one"


async def test_an_agent_may_try_again_and_returns_at_once(place, clock):
    agent = TurnAgent(manager(place, clock, on_save_error="retry"))
    told = listen(agent)
    place.faults.fail(2)
    await agent.add("one")
    await agent.finish()
    assert len(told) == 1
    await clock.sleep(1)
    assert len(told) == 2
    assert at_rest(place, TurnAgent) == ["one"]


def test_a_retry_ends_with_its_loop_and_the_next_save_brings_all_up_to_date(place):
    keeper = place.manager(on_save_error="retry")
    agent = TurnAgent(keeper)
    place.faults.fail(1)

    async def turn(text):
        await agent.add(text)
        await agent.finish()

    asyncio.run(turn("one"))
    assert keeper.health.behind
    gc.collect()
    asyncio.run(turn("two"))
    assert at_rest(place, TurnAgent) == ["one", "two"]


async def test_a_checkpoint_that_failed_is_made_up_for_once(place, clock):
    fires = iter([True, False, False])
    keeper = manager(place, clock, snapshot_trigger=lambda *, agent_data, **_: next(fires))
    agent = LiveAgent(keeper)
    place.faults.fail(2)
    await agent.restart()
    await clock.sleep(5)
    assert len(await keeper.list_snapshot_ids(agent)) == 1
    await agent.finish()
    await agent.finish()
    assert len(await keeper.list_snapshot_ids(agent)) == 1


async def test_a_checkpoint_that_was_written_is_not_written_again_when_latest_fails(clock):
    place = StoragePlace()
    fires = iter([True, False])
    keeper = manager(place, clock, snapshot_trigger=lambda *, agent_data, **_: next(fires))
    agent = LiveAgent(keeper)
    place.faults.fail(1, key="latest.json")
    await agent.restart()
    await agent.finish()
    assert len(await keeper.list_snapshot_ids(agent)) == 1


async def test_a_listener_that_raises_does_not_end_the_retries(place, clock, caplog):
    agent = LiveAgent(manager(place, clock))

    def listener(event: SessionSaveFailedEvent) -> None:
        raise ValueError("cannot stand it")

    agent.add_hook(listener)
    place.faults.fail(2)
    await agent.add("one")
    await clock.sleep(5)
    assert at_rest(place) == ["one"]
    assert "cannot stand it" in caplog.text


async def test_an_explicit_save_raises_the_storages_own_error(place, clock):
    keeper = manager(place, clock)
    agent = LiveAgent(keeper)
    place.faults.fail(4)
    with pytest.raises(place.error):
        await keeper.save_snapshot(agent, is_latest=True)
    with pytest.raises(place.error):
        await keeper.save_snapshot(agent, is_latest=False)
    with pytest.raises(place.error):
        keeper.sync_agent(agent)
    with pytest.raises(place.error):
        await keeper.sync_agent_async(agent)
    assert keeper.health.behind
    keeper.sync_agent(agent)
    assert not keeper.health.behind
    assert await keeper.list_snapshot_ids(agent) == []


async def test_a_save_reported_as_failed_although_it_was_done_does_no_harm(place, clock):
    agent = LiveAgent(manager(place, clock))
    place.faults.fail(2, when="after")
    await agent.add("one")
    await agent.add("two")
    await clock.sleep(5)
    await agent.finish()
    assert at_rest(place) == ["one", "two"]


async def test_health_begins_with_nothing(place, clock):
    health = manager(place, clock).health
    assert (health.saved_at, health.behind, health.last_error) == (None, False, None)
    with pytest.raises(AttributeError):
        health.behind = True

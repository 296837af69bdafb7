"""Hooks of a live call run one after the other, in the order of posting, and nobody who posts waits."""

import asyncio
from dataclasses import dataclass

import pytest

from antiphon.agent.commits import CommitLane
from antiphon.errors import AgentStateError
from antiphon.hooks.registry import BaseHookEvent, HookRegistry


@dataclass(kw_only=True)
class Noted(BaseHookEvent):
    number: int = 0


@dataclass(kw_only=True)
class Unheard(BaseHookEvent):
    pass


class Lane:
    """A lane with one listener, which waits at gates; what it did is in `log`."""

    def __init__(self):
        self.hooks, self.log, self.errors, self.gates = HookRegistry(), [], [], {}
        self.tasks = []
        self.lane = CommitLane(self.hooks, self.errors.append)
        self.hooks.add_callback(Noted, self.listen)

    async def listen(self, event):
        self.log.append(("begin", event.number))
        if event.number in self.gates:
            await self.gates[event.number].wait()
        if event.number < 0:
            raise ValueError(f"refused {event.number}")
        self.log.append(("end", event.number))

    def spawn(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    def begin(self):
        self.lane.begin(self.spawn)


def done(*numbers):
    return [(what, number) for number in numbers for what in ("begin", "end")]


async def test_events_are_told_in_the_order_of_posting_and_one_ends_before_the_next_begins():
    lane = Lane()
    lane.begin()
    for number in range(20):
        lane.lane.post(Noted(number=number))
    assert lane.log == []  # who posts does not wait
    await lane.lane.flush()
    assert lane.log == done(*range(20))


async def test_what_is_posted_before_the_beginning_is_told_after_it():
    lane = Lane()
    lane.lane.post(Noted(number=1))
    await asyncio.sleep(0)
    assert lane.log == []
    lane.begin()
    await lane.lane.flush()
    assert lane.log == done(1)


async def test_a_listener_that_waits_holds_up_those_behind_it_and_nobody_else():
    lane = Lane()
    lane.gates[1] = asyncio.Event()
    lane.begin()
    for number in (1, 2):
        lane.lane.post(Noted(number=number))
    flushed = asyncio.ensure_future(lane.lane.flush())
    for _ in range(5):
        await asyncio.sleep(0)
    assert lane.log == [("begin", 1)]
    lane.gates[1].set()
    await flushed
    assert lane.log == done(1, 2)


async def test_an_error_goes_to_whoever_wants_the_outcome_and_else_to_the_call():
    lane = Lane()
    lane.begin()
    wanted = lane.lane.post(Noted(number=-1), wanted=True)
    lane.lane.post(Noted(number=-2))
    with pytest.raises(ValueError, match="refused -1"):
        await wanted
    await lane.lane.flush()
    assert [str(error) for error in lane.errors] == ["refused -2"]
    with pytest.raises(ValueError, match="refused -3"):
        await lane.lane.call(Noted(number=-3))
    await lane.lane.call(Noted(number=4))
    assert lane.log[-2:] == done(4)


async def test_an_event_that_nobody_listens_to_has_no_outcome_to_wait_for():
    lane = Lane()
    lane.begin()
    assert lane.lane.post(Unheard(), wanted=True) is None
    assert lane.lane.post(Noted(number=1)) is None  # nor one that nobody wants
    await lane.lane.call(Unheard())  # but for those before it
    assert lane.log == done(1)


async def test_a_hook_that_calls_another_hook_does_not_wait_for_itself():
    lane = Lane()
    order = []

    async def nested(event):
        if event.number == 1:
            await lane.lane.call(Noted(number=2))
        order.append(event.number)

    lane.hooks.add_callback(Noted, nested)
    lane.begin()
    lane.lane.post(Noted(number=1))
    lane.lane.post(Noted(number=3))
    await lane.lane.flush()
    assert order == [2, 1, 3]


async def test_there_is_a_task_only_while_there_is_something_to_tell():
    lane = Lane()
    lane.begin()
    assert lane.tasks == []
    await lane.lane.call(Noted(number=1))
    await asyncio.gather(*lane.tasks)
    assert all(task.done() for task in lane.tasks)
    await lane.lane.call(Noted(number=2))
    assert len(lane.tasks) == 2


async def test_a_listener_that_awaits_something_cancelled_fails_like_any_other():
    lane = Lane()

    async def broken(event):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    lane.hooks.add_callback(Noted, broken)
    lane.begin()
    with pytest.raises(AgentStateError, match="awaited something that was cancelled"):
        await lane.lane.call(Noted(number=1))
    assert not lane.errors


async def test_a_lane_whose_task_is_cancelled_goes_on_with_what_is_behind():
    lane = Lane()
    lane.gates[1] = asyncio.Event()
    lane.begin()
    first = lane.lane.post(Noted(number=1), wanted=True)
    second = lane.lane.post(Noted(number=2), wanted=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lane.tasks[0].cancel()
    await second
    assert first.cancelled()
    assert lane.log == [("begin", 1), *done(2)]


async def test_after_the_end_nobody_is_told_any_more():
    lane = Lane()
    lane.begin()
    lane.lane.end()
    lane.lane.post(Noted(number=1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert lane.log == []

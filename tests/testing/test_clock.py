"""VirtualClock: time passes only when nothing else can happen."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import AgentStateError
from antiphon.iothread import IOThread, run_in_worker
from antiphon.testing import VirtualClock


async def turns(count: int) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_hour_takes_no_time() -> None:
    clock = VirtualClock()
    await clock.sleep(3600)
    assert clock.now() == 3600
    assert clock.utc() == datetime(2026, 1, 1, 1, tzinfo=UTC)


def test_it_is_a_clock_like_the_real_one() -> None:
    clocks: list[Clock] = [VirtualClock(), SYSTEM_CLOCK]
    assert all(clock.utc().tzinfo is UTC for clock in clocks)


@given(st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=12))
def test_sleepers_wake_in_the_order_of_their_deadlines_and_ties_in_the_order_they_lay_down(naps: list[int]) -> None:
    woken: list[tuple[float, int]] = []

    async def main() -> None:
        clock = VirtualClock()

        async def sleeper(number: int, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((clock.now(), number))

        async with asyncio.TaskGroup() as group:
            for number, seconds in enumerate(naps):
                group.create_task(sleeper(number, seconds))

    asyncio.run(main())
    assert woken == sorted((float(seconds), number) for number, seconds in enumerate(naps))


async def test_what_one_sleeper_sets_off_is_over_before_the_next_one_of_the_same_moment_wakes() -> None:
    clock = VirtualClock()
    told: list[str] = []
    bell = asyncio.Event()

    async def first() -> None:
        await clock.sleep(1)
        bell.set()

    async def listener() -> None:
        await bell.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        told.append("listener")

    async def second() -> None:
        await clock.sleep(1)
        told.append("second")

    async with asyncio.TaskGroup() as group:
        for work in (first(), listener(), second()):
            group.create_task(work)
    assert told == ["listener", "second"]


async def test_a_cancelled_sleeper_is_gone() -> None:
    clock = VirtualClock(autojump=False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(10))
        await asyncio.sleep(0)
        assert clock.sleepers == 1
        task.cancel()
    assert clock.sleepers == 0
    await clock.sleep(0)
    assert clock.now() == 0


async def test_time_waits_for_a_thread_that_is_at_work() -> None:
    clock = VirtualClock()
    gate = threading.Event()
    seen: list[float] = []

    def work() -> None:
        gate.wait(10)
        seen.append(clock.now())

    async def opener() -> None:
        await turns(200)  # an idle loop would have let the clock jump after two
        gate.set()

    io = IOThread("test")
    async with asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(5))
        group.create_task(io.run(work))
        group.create_task(run_in_worker(work))
        group.create_task(opener())
    io.close()
    assert seen == [0, 0]
    assert clock.now() == 5


async def test_what_a_thread_brings_is_seen_before_time_passes() -> None:
    clock = VirtualClock()
    io = IOThread("test")
    for _ in range(50):
        async with asyncio.timeout(10):
            before = clock.now()
            async with asyncio.TaskGroup() as group:
                nap = group.create_task(clock.sleep(1))
                await io.run(int)
                assert clock.now() == before
                nap.cancel()
    io.close()


async def test_by_hand_time_passes_only_in_advance() -> None:
    clock = VirtualClock(autojump=False)
    woken: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(1)
            woken.append(clock.now())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(ticker())
        await clock.advance(0)
        assert woken == []
        await clock.advance(2.5)
        assert (woken, clock.now()) == ([1, 2], 2.5)
        await clock.advance(0.5)
        assert woken == [1, 2, 3]
        task.cancel()


async def test_advance_need_not_wait_for_a_thread_that_waits_for_it() -> None:
    clock = VirtualClock(autojump=False)
    gate = threading.Event()

    async def opener() -> None:
        await clock.sleep(2)
        gate.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(run_in_worker(gate.wait, 10))
        group.create_task(opener())
        await clock.advance(2, wait_for_threads=False)
    assert clock.now() == 2


def test_one_clock_serves_loops_one_after_another() -> None:
    clock = VirtualClock()
    for turn in (1, 2, 3):
        asyncio.run(clock.sleep(10))
        assert clock.now() == 10 * turn


def test_two_loops_at_once_are_refused() -> None:
    clock = VirtualClock(autojump=False)
    loop = asyncio.new_event_loop()
    task = loop.create_task(clock.sleep(1))
    loop.run_until_complete(asyncio.sleep(0))
    with pytest.raises(AgentStateError, match="one loop at a time"):
        asyncio.run(clock.sleep(1))
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


async def test_two_clocks_on_one_loop_do_not_keep_each_other_awake() -> None:
    one, other = VirtualClock(), VirtualClock()
    async with asyncio.TaskGroup() as group:
        group.create_task(one.sleep(3))
        group.create_task(other.sleep(4))
    assert (one.now(), other.now()) == (3, 4)


async def test_a_sleeper_for_ever_does_not_move_the_clock() -> None:
    clock = VirtualClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(float("inf")))
        await clock.sleep(1)
        await turns(50)
        assert clock.now() == 1
        task.cancel()


async def test_bytes_on_the_way_through_a_socket_arrive_before_time_passes() -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            seen.append(clock.now())
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as group:
        ticker = group.create_task(clock.sleep(1000))
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(20):
            writer.write(b"x")
            assert await reader.read(100) == b"x"
        writer.close()
        await writer.wait_closed()
        assert clock.now() in {0, 1000}
        ticker.cancel()
    assert seen[0] in {0, 1000}

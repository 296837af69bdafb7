"""Runs that wait for one another, in one process and in several."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Agent, Runner
from antiphon.errors import NotSupportedError, QueueFullError, QueueTimeoutError
from antiphon.store import InMemorySessionStore, open_store
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from tests.runner.support import rows_of, texts


def queued(store, clock, *, gate=None, **options):
    """A runner whose model waits, at the text `slow`, for the gate."""
    entered = asyncio.Event()

    def answer(messages):
        text = messages[-1]["content"][0]["text"]
        if text != "slow":
            return f"To {text}."
        entered.set()
        return Answer(text="To slow.", pause_after_words=0, until=gate)

    model = ScriptedModel([answer] * 20)
    runner = Runner(lambda: Agent(model, clock=clock), store=store, clock=clock, on_conflict="queue", **options)
    return runner, entered


async def test_runs_that_queue_take_their_turns_in_the_order_in_which_they_came():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    runner, entered = queued(store, clock, gate=gate)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(runner.run("slow", session_id="s"))]
        await entered.wait()
        for text in ("1", "2", "3"):
            tasks.append(group.create_task(runner.run(text, session_id="s")))
            await clock.advance(0)
        gate.set()
    rows = await rows_of(store, "s")
    assert [row.snapshot_id for row in rows] == [task.result().snapshot_id for task in tasks]
    assert [row.parent_id for row in rows] == [None, *(row.snapshot_id for row in rows[:-1])]
    assert texts(rows[-1])[-2:] == ["3", "To 3."]


async def test_who_came_to_go_on_from_the_newest_row_goes_on_from_the_newest_when_its_turn_comes():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    runner, entered = queued(store, clock, gate=gate)
    root = await runner.run("root")
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(runner.run("slow", snapshot_id=root.snapshot_id))
        await entered.wait()
        second = group.create_task(runner.run("2", snapshot_id=root.snapshot_id))
        await clock.advance(0)
        gate.set()
    row = await store.get_snapshot(second.result().snapshot_id)
    assert row.parent_id == slow.result().snapshot_id
    branch = await runner.run("3", snapshot_id=root.snapshot_id)  # an older row by now: a branch was asked for
    assert (await store.get_snapshot(branch.snapshot_id)).parent_id == root.snapshot_id


async def test_other_sessions_do_not_wait():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    runner, entered = queued(store, clock, gate=gate)
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run("slow", session_id="s"))
        await entered.wait()
        assert str(await runner.run("1", session_id="other")) == "To 1."
        assert str(await runner.run("2")) == "To 2."
        gate.set()


async def test_waiting_for_ones_turn_has_an_end_and_a_bound():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    runner, entered = queued(store, clock, gate=gate, queue_timeout=100, queue_limit=1)
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(runner.run("slow", session_id="s"))
        await entered.wait()
        waiting = group.create_task(outcome(runner.run("1", session_id="s")))
        await clock.advance(0)
        with pytest.raises(QueueFullError, match="1 runs wait"):
            await runner.run("2", session_id="s")
        await clock.advance(101)
        assert isinstance(await waiting, QueueTimeoutError)
        gate.set()
    assert slow.result().finish_reason == "stop"
    assert str(await runner.run("3", session_id="s")) == "To 3."


async def outcome(work):
    try:
        return await work
    except QueueTimeoutError as error:
        return error


async def test_a_run_that_fails_or_is_cancelled_gives_its_turn_back():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    runner, entered = queued(store, clock, gate=gate)
    task = asyncio.create_task(runner.run("slow", session_id="s"))
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert str(await runner.run("1", session_id="s")) == "To 1."


def test_queues_need_a_store_that_has_them():
    class Plain:
        async def get_snapshot(self, snapshot_id): ...
        async def get_latest_snapshot(self, session_id, *, agent_id=None): ...
        async def save_snapshot(self, snapshot_id, fn, *, expected_tip=None): ...

    with pytest.raises(NotSupportedError, match="no queues"):
        Runner(lambda: Agent(ScriptedModel([])), store=Plain(), on_conflict="queue")


@pytest.mark.parametrize("kind", ["sqlite", "file", "postgres"])
async def test_three_processes_that_queue_lose_nothing_and_fork_nothing(kind, request, tmp_path):
    url, schema = f"{kind}:{tmp_path / 'sessions'}", ""
    if kind == "postgres":
        url, schema = request.getfixturevalue("postgres_dsn"), request.getfixturevalue("schema")
    program = str(Path(__file__).parent / "queueing.py")
    children = [
        subprocess.Popen([sys.executable, program, url, schema, name, "5"], stdout=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    told = [child.communicate(timeout=50)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], told
    async with open_store(url, **({"schema": schema} if schema else {})) as store:
        rows = await rows_of(store, "shared")
    assert len(rows) == 15
    assert [row.parent_id for row in rows] == [None, *(row.snapshot_id for row in rows[:-1])]
    said = texts(rows[-1])
    assert len(said) == 30
    for name in "abc":
        assert [text for text in said if text.startswith(f"{name} ")] == [f"{name} {count}" for count in range(5)]

"""Every way back into a session: its newest row, an older one, a branch; and rows that no turn can go on from."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon import Agent, Runner, tool
from antiphon.conversation.journal import RESTART_TEXT
from antiphon.conversation.repair import problems
from antiphon.errors import (
    InvalidInputError,
    NotResumableError,
    SessionConflictError,
    SnapshotNotFoundError,
    StaleEpochError,
    StateManagementError,
)
from antiphon.snapshot.envelope import Snapshot
from antiphon.store import InMemorySessionStore, SessionSnapshot
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from tests.runner.support import makes, rows_of, texts


async def test_going_on_from_an_older_row_makes_a_sibling_and_leaves_the_other_branch_alone():
    store = InMemorySessionStore()
    runner = Runner(makes("Root.", "A.", "B.", "C."), store=store)
    root = await runner.run("root")
    first = await runner.run("a", snapshot_id=root.snapshot_id)
    second = await runner.run("b", snapshot_id=root.snapshot_id)
    rows = {row.snapshot_id: row for row in await rows_of(store, root.session_id)}
    assert rows[first.snapshot_id].parent_id == rows[second.snapshot_id].parent_id == root.snapshot_id
    assert texts(rows[first.snapshot_id]) == ["root", "Root.", "a", "A."]
    assert texts(rows[second.snapshot_id]) == ["root", "Root.", "b", "B."]
    assert not second.forked  # it was asked for
    latest = await runner.run("c", session_id=root.session_id)
    assert (await store.get_snapshot(latest.snapshot_id)).parent_id == second.snapshot_id


async def test_an_unknown_session_id_begins_a_session_of_that_id():
    runner = Runner(makes("One.", "Two."), store=InMemorySessionStore())
    first = await runner.run("1", session_id="my-app-session-123")
    second = await runner.run("2", session_id="my-app-session-123")
    row = await runner.get_latest_snapshot("my-app-session-123")
    assert (row.snapshot_id, row.parent_id) == (second.snapshot_id, first.snapshot_id)


async def test_with_both_ids_the_row_must_be_the_sessions():
    runner = Runner(makes("One.", "Two."), store=InMemorySessionStore())
    first = await runner.run("1", session_id="s")
    with pytest.raises(InvalidInputError, match="does not belong to session 'other'"):
        await runner.run("2", session_id="other", snapshot_id=first.snapshot_id)
    assert str(await runner.run("2", session_id="s", snapshot_id=first.snapshot_id)) == "Two."


async def test_agents_of_one_session_keep_apart():
    store = InMemorySessionStore()
    one, other = Runner(makes("One."), store=store, name="one"), Runner(makes("Two."), store=store, name="other")
    first = await one.run("1", session_id="s")
    with pytest.raises(InvalidInputError, match="of agent 'one'"):
        await other.run("2", snapshot_id=first.snapshot_id)
    second = await other.run("2", session_id="s")
    assert texts(await other.get_snapshot(second.snapshot_id)) == ["2", "Two."]
    assert (await one.get_latest_snapshot("s")).snapshot_id == first.snapshot_id


async def test_going_on_from_what_was_the_newest_row_conflicts_with_a_run_that_was_faster():
    gate = {"asked": asyncio.Event(), "go": asyncio.Event()}

    def answer(messages):
        if messages[-1]["content"][0]["text"] != "slow":
            return "Fast."
        gate["asked"].set()
        return Answer(text="Slow.", pause_after_words=0, until=gate["go"])

    model = ScriptedModel([answer] * 4)
    runner = Runner(lambda: Agent(model), store=InMemorySessionStore())
    root = await runner.run("root")
    slow = asyncio.create_task(runner.run("slow", snapshot_id=root.snapshot_id))
    await gate["asked"].wait()
    await runner.run("fast", snapshot_id=root.snapshot_id)
    gate["go"].set()
    with pytest.raises(SessionConflictError):
        await slow


async def test_a_branch_from_an_older_row_is_no_conflict_whoever_else_is_at_work():
    gate = {"asked": asyncio.Event(), "go": asyncio.Event()}

    def answer(messages):
        if messages[-1]["content"][0]["text"] != "slow":
            return "Fast."
        gate["asked"].set()
        return Answer(text="Slow.", pause_after_words=0, until=gate["go"])

    model = ScriptedModel([answer] * 4)
    store = InMemorySessionStore()
    runner = Runner(lambda: Agent(model), store=store)
    root = await runner.run("root")
    await runner.run("on", snapshot_id=root.snapshot_id)
    slow = asyncio.create_task(runner.run("slow", snapshot_id=root.snapshot_id))
    await gate["asked"].wait()
    await runner.run("fast", session_id=root.session_id)
    gate["go"].set()
    output = await slow
    assert not output.forked
    assert (await store.get_latest_snapshot(root.session_id)).snapshot_id == output.snapshot_id


# --- reading and branching ---


async def test_reading_a_row_runs_nothing():
    store = InMemorySessionStore()
    model = ScriptedModel(["Hello."])
    runner = Runner(lambda: Agent(model), store=store)
    output = await runner.run("Hi")
    row = await runner.get_snapshot(output.snapshot_id, session_id=output.session_id)
    assert texts(row) == ["Hi", "Hello."]
    bare = await runner.get_latest_snapshot(output.session_id, metadata_only=True)
    assert (bare.snapshot_id, bare.snapshot, bare.finish_reason) == (output.snapshot_id, None, "stop")
    assert len(model.requests) == 1
    with pytest.raises(SnapshotNotFoundError):
        await runner.get_snapshot("nowhere")
    with pytest.raises(SnapshotNotFoundError):
        await runner.get_latest_snapshot("nowhere")
    with pytest.raises(InvalidInputError, match="does not belong"):
        await runner.get_snapshot(output.snapshot_id, session_id="other")
    with pytest.raises(StateManagementError):
        await Runner(makes()).get_snapshot(output.snapshot_id)


async def test_a_session_is_read_as_a_tree():
    runner = Runner(makes("Root.", "A.", "B."), store=InMemorySessionStore())
    root = await runner.run("root")
    one = await runner.run("a", snapshot_id=root.snapshot_id)
    other = await runner.run("b", snapshot_id=root.snapshot_id)
    tree = await runner.tree(root.session_id)
    assert [(depth, row.snapshot_id) for depth, row in tree.walk()] == [
        (0, root.snapshot_id),
        (1, one.snapshot_id),
        (1, other.snapshot_id),
    ]


async def test_a_branch_is_a_session_of_its_own():
    store = InMemorySessionStore()
    runner = Runner(makes("Root.", "Here.", "There."), store=store)
    root = await runner.run("root", session_id="one")
    branch = await runner.branch(root.snapshot_id, "two")
    assert (branch.session_id, branch.parent_id) == ("two", root.snapshot_id)
    await runner.run("here", session_id="one")
    await runner.run("there", session_id="two")
    assert texts(await runner.get_latest_snapshot("two")) == ["root", "Root.", "there", "There."]
    await store.delete_session("one")
    assert texts(await runner.get_latest_snapshot("two")) == ["root", "Root.", "there", "There."]
    with pytest.raises(SessionConflictError):
        await runner.branch(branch.snapshot_id, "two")
    with pytest.raises(SnapshotNotFoundError):
        await runner.branch(root.snapshot_id)
    assert (await runner.branch(branch.snapshot_id)).session_id not in {"one", "two"}


# --- rows in flight, and without a state ---


async def stored(store, clock, snapshot_id, status, *, state=True, age=0.0, **fields):
    row = SessionSnapshot(
        session_id="s",
        agent_id="default",
        created_at=clock.utc(),
        status=status,
        heartbeat_at=clock.utc() - timedelta(seconds=age) if status in {"pending", "aborting"} else None,
        snapshot=Snapshot("agent", "1.0", {"messages": []}, {}) if state else None,
        **fields,
    )
    await store.save_snapshot(snapshot_id, lambda _: row)


@pytest.mark.parametrize(
    ("status", "fields", "told", "resume_from"),
    [
        ("pending", {}, "at work on it", "before"),
        ("aborting", {}, "this same snapshot", "tip"),
        ("pending", {"age": 61, "finish_reason": "detached"}, "adopt it, or abort it .* this same snapshot", "tip"),
        (
            "pending",
            {"age": 61, "finish_reason": "detached", "state": False},
            "adopt it, or abort it .* parent 'before'",
            "before",
        ),
        ("aborted", {"state": False}, "no state .* parent 'before'", "before"),
        ("failed", {"state": False}, "no state .* parent 'before'", "before"),
    ],
)
async def test_a_row_that_no_turn_can_go_on_from_is_refused_with_what_to_do(status, fields, told, resume_from):
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    runner = Runner(makes(), store=store, clock=clock)
    await stored(store, clock, "tip", status, parent_id="before", **fields)
    for where in ({"session_id": "s"}, {"snapshot_id": "tip"}):
        with pytest.raises(NotResumableError, match=told) as caught:
            await runner.run("Hi", **where)
        assert (caught.value.status, caught.value.resume_from) == ("FAILED_PRECONDITION", resume_from)
    if status != "completed":
        with pytest.raises(NotResumableError):
            await runner.branch("tip")


async def test_a_run_that_may_fork_passes_by_a_row_that_is_being_worked_on():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    runner = Runner(makes("One.", "Two.", "Three."), store=store, clock=clock, on_conflict="fork")
    first = await runner.run("1", session_id="s")
    await clock.advance(1)
    await stored(store, clock, "tip", "pending", parent_id=first.snapshot_id)
    second = await runner.run("2", session_id="s")
    assert (second.forked, (await store.get_snapshot(second.snapshot_id)).parent_id) == (True, first.snapshot_id)
    await store.save_snapshot("tip", lambda row: replace(row, session_id="s", parent_id=None))
    third = await runner.run("3", snapshot_id="tip")
    assert (third.forked, texts(await store.get_snapshot(third.snapshot_id))) == (True, ["3", "Three."])


# --- a process that died ---


class Dying:
    """A turn that hangs in a tool of a process whose clock has stopped; others' clocks go on."""

    def __init__(self, *, repeatable=False):
        self.clock, self.later = VirtualClock(autojump=False), VirtualClock()
        self.store = InMemorySessionStore(clock=self.later)
        self.started, self.go, self.ran = asyncio.Event(), asyncio.Event(), []

        @tool(repeatable=repeatable)
        async def act() -> str:
            """Act."""
            self.ran.append("act")
            self.started.set()
            if len(self.ran) == 1:
                await self.go.wait()
            return "acted"

        self.first = ScriptedModel([Answer(tool_uses=[("act", {})]), "Too late."])
        self.second = ScriptedModel(["I see."])
        self.runner = Runner(lambda: Agent(self.first, tools=[act]), store=self.store, clock=self.clock)
        self.other = Runner(lambda: Agent(self.second, tools=[act]), store=self.store, clock=self.later)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.runner.run("Go", session_id="s"))
        await self.started.wait()
        await self.later.advance(61)
        return self

    async def __aexit__(self, *exc_info):
        self.go.set()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_what_a_dead_process_had_begun_is_known_and_does_not_run_again():
    async with Dying() as dying:
        output = await dying.other.run("Well?", session_id="s")
        assert str(output) == "I see."
        assert dying.ran == ["act"]
        dead, row = await rows_of(dying.store, "s")
        assert (dead.status, dead.epoch, dead.owner, row.parent_id) == ("failed", 1, None, dead.snapshot_id)
        messages = list(row.snapshot.data["messages"])
        assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": RESTART_TEXT}]
        assert problems(messages) == []


async def test_a_repeatable_tool_of_a_dead_process_runs_again():
    async with Dying(repeatable=True) as dying:
        await dying.other.run("Well?", session_id="s")
        assert dying.ran == ["act", "act"]
        messages = list((await dying.store.get_latest_snapshot("s")).snapshot.data["messages"])
        assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "acted"}]


async def test_a_process_that_was_taken_for_dead_can_write_no_more():
    async with Dying() as dying:
        await dying.other.run("Well?", session_id="s")
        before = await rows_of(dying.store, "s")
        dying.go.set()
        with pytest.raises((StaleEpochError, SessionConflictError)):
            await dying.task
        assert await rows_of(dying.store, "s") == before


async def test_a_process_that_is_alive_keeps_its_row_alive():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)

    @tool
    async def work() -> str:
        """Work."""
        await clock.sleep(600)
        latest = await store.get_latest_snapshot("s")
        return f"{latest.status} {latest.updated_at < latest.heartbeat_at}"

    runner = Runner(makes(Answer(tool_uses=[("work", {})]), "Done.", tools=[work]), store=store, clock=clock)
    await runner.run("Go", session_id="s")
    (row,) = await rows_of(store, "s")
    assert row.snapshot.data["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "pending True"}]


async def test_a_row_that_somebody_wants_aborted_ends_its_run():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)

    @tool
    async def work() -> str:
        """Work."""
        tip = await store.get_latest_snapshot_metadata("s")
        await store.save_snapshot(tip.snapshot_id, lambda row: replace(row, status="aborting"))
        await clock.sleep(600)
        return "never"

    def make():
        return Agent(model, tools=[work], clock=clock)

    model = ScriptedModel([Answer(tool_uses=[("work", {})]), "Never said."])
    output = await Runner(make, store=store, clock=clock).run("Go", session_id="s")
    (row,) = await rows_of(store, "s")
    assert (output.finish_reason, row.status, row.finish_reason) == ("aborted", "aborted", "aborted")
    assert clock.now() < 60

"""Runs in the background, within one process."""

import asyncio

import pytest

from antiphon import Agent, Runner, tool
from antiphon.errors import (
    CorruptStoreError,
    InvalidInputError,
    NotResumableError,
    SessionConflictError,
    SessionStoreError,
    SnapshotNotFoundError,
    StateManagementError,
    TaskLostError,
)
from antiphon.runner import Respond, Restart, Resume, TurnInput
from antiphon.runner.inputs import read_inputs
from antiphon.runner.plan import Plan
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, FaultStore, ScriptedModel, VirtualClock
from antiphon.tools.context import ToolContext
from tests.runner.support import makes, rows_of, texts

FIVE = [TurnInput(text) for text in "12345"]


class Gated:
    """A runner that answers `To n.`; the input `slow` waits for the gate."""

    def __init__(self, store, clock, **options):
        self.gate, self.entered = asyncio.Event(), asyncio.Event()

        def answer(messages):
            text = messages[-1]["content"][0]["text"]
            if text != "slow":
                return f"To {text}."
            self.entered.set()
            return Answer(text="To slow.", pause_after_words=0, until=self.gate)

        model = ScriptedModel([answer] * 20)
        self.runner = Runner(lambda: Agent(model, clock=clock), store=store, clock=clock, **options)


def gated(**options):
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    return clock, store, Gated(store, clock, **options)


def said(*names):
    return [text for name in names for text in (name, f"To {name}.")]


async def test_several_turns_in_the_background_are_one_row_which_holds_them_all():
    store = InMemorySessionStore()
    runner = Runner(makes("a", "b", "c"), store=store)
    first = await runner.run("hello", session_id="s")
    task = await runner.detach([TurnInput("x"), TurnInput("y")], session_id="s")
    row = await task.wait()
    assert (row.status, row.finish_reason, row.parent_id) == ("completed", "stop", first.snapshot_id)
    assert texts(row) == ["hello", "a", "x", "b", "y", "c"]
    assert [row.snapshot_id for row in await rows_of(store, "s")] == [first.snapshot_id, task.snapshot_id]
    assert not {"task", "task_inputs"} & set(row.snapshot.data)


async def test_the_row_holds_the_state_after_each_turn_while_the_next_is_under_way():
    _, store, one = gated()
    task = await one.runner.detach([TurnInput("1"), TurnInput("slow")])
    row = await store.get_snapshot(task.snapshot_id)
    assert (row.status, row.finish_reason) == ("pending", "detached")
    await one.entered.wait()
    assert texts(await store.get_snapshot(task.snapshot_id)) == said("1")
    assert (await task.poll()).status == "pending"
    one.gate.set()
    assert texts(await task.wait()) == said("1", "slow")


async def test_a_run_in_the_background_is_aborted_by_another_runner_and_keeps_what_it_has_done():
    clock, store, one = gated()
    task = await one.runner.detach([TurnInput("1"), TurnInput("slow"), TurnInput("3")], session_id="s")
    await one.entered.wait()
    other = Runner(makes("Yes."), store=store, clock=clock)
    assert await other.task(task.snapshot_id).abort() == "pending"
    row = await other.wait(task.snapshot_id)
    assert (row.status, row.finish_reason, row.heartbeat_at) == ("aborted", "aborted", None)
    assert texts(row)[:2] == said("1")
    assert "3" not in texts(row)
    assert await other.abort(task.snapshot_id) == "aborted"
    assert str(await other.run("go on", session_id="s")) == "Yes."


async def test_a_run_that_is_worked_on_cannot_be_gone_on_from_or_adopted():
    _, _, one = gated()
    task = await one.runner.detach("slow", session_id="s")
    with pytest.raises(NotResumableError, match="a run is at work on it"):
        await one.runner.run("1", session_id="s")
    with pytest.raises(NotResumableError, match="its worker is alive"):
        await one.runner.adopt(task.snapshot_id)
    one.gate.set()
    await task.wait()
    with pytest.raises(NotResumableError, match="it has ended"):
        await one.runner.adopt(task.snapshot_id)


async def test_who_finds_a_silent_worker_is_told_and_another_one_goes_on_with_the_run():
    clock, store, one = gated()
    task = await one.runner.detach([TurnInput("1"), TurnInput("slow"), TurnInput("3")], session_id="s")
    await one.entered.wait()
    await one.runner.aclose()
    assert (await task.poll()).status == "pending"
    await clock.advance(61)
    assert (await task.poll()).status == "expired"
    with pytest.raises(TaskLostError):
        await task.wait()
    with pytest.raises(NotResumableError, match="adopt it"):
        await one.runner.run("4", session_id="s")
    other = Gated(store, clock)
    other.gate.set()
    row = await (await other.runner.adopt(task.snapshot_id)).wait()
    assert (row.status, row.epoch) == ("completed", 1)
    assert texts(row) == said("1", "slow", "3")
    assert len(await rows_of(store, "s")) == 1


async def test_a_run_whose_worker_went_silent_may_be_aborted_and_gone_on_from_as_its_error_says():
    clock, store, one = gated()
    task = await one.runner.detach([TurnInput("1"), TurnInput("slow"), TurnInput("3")], session_id="s")
    await one.entered.wait()
    await one.runner.aclose()
    await clock.advance(61)
    with pytest.raises(NotResumableError, match="this same snapshot") as caught:
        await one.runner.run("4", session_id="s")
    assert await one.runner.abort(task.snapshot_id) == "expired"
    output = await one.runner.run("4", snapshot_id=caught.value.resume_from)
    row = await store.get_snapshot(output.snapshot_id)
    assert (row.parent_id, texts(row)) == (task.snapshot_id, said("1", "4"))


async def test_a_question_that_a_run_in_the_background_went_past_is_named_and_can_be_answered():
    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        return ctx.interrupt("sure", "Are you?")

    runner = Runner(makes(Answer(tool_uses=[("ask", {})]), "So.", tools=[ask]), store=InMemorySessionStore())
    task = await runner.detach([TurnInput("1"), TurnInput("2")], session_id="s")
    assert (await task.wait()).status == "failed"
    output = await runner.get_output(snapshot_id=task.snapshot_id)
    assert (output.error.status, [one.reason for one in output.interrupts]) == ("INVALID_ARGUMENT", ["Are you?"])
    later = await runner.run("2", session_id="s")
    assert (later.finish_reason, later.interrupts) == ("failed", output.interrupts)
    assert str(await runner.run(session_id="s", resume=[output.interrupts[0].answer("yes")])) == "So."


async def test_a_run_in_the_background_of_no_inputs_is_refused_before_a_row_is_written():
    store = InMemorySessionStore()
    with pytest.raises(InvalidInputError, match="empty"):
        await Runner(makes(), store=store).detach([], session_id="s")
    assert await store.get_latest_snapshot("s") is None


async def test_of_two_that_adopt_a_run_one_gets_it():
    clock, store, one = gated()
    task = await one.runner.detach("slow")
    await one.entered.wait()
    await one.runner.aclose()
    await clock.advance(61)
    others = [Gated(store, clock) for _ in range(2)]
    outcomes = await asyncio.gather(*(other.runner.adopt(task.snapshot_id) for other in others), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NotResumableError", "Task"]
    for other in others:
        other.gate.set()
    assert texts(await task.wait()) == said("slow")


async def test_aborting_the_run_of_a_silent_worker_ends_it_at_once():
    clock, _, one = gated()
    task = await one.runner.detach([TurnInput("1"), TurnInput("slow")])
    await one.entered.wait()
    await one.runner.aclose()
    await clock.advance(61)
    assert await task.abort() == "expired"
    row = await task.wait()
    assert (row.status, texts(row)) == ("aborted", said("1"))


async def test_a_worker_gives_signs_of_life_while_its_turn_takes_long():
    clock, _, one = gated()
    task = await one.runner.detach("slow")
    await one.entered.wait()
    for _ in range(10):
        await clock.advance(30)
    assert (await task.poll()).status == "pending"
    one.gate.set()
    assert (await task.wait()).status == "completed"


async def test_a_turn_that_fails_ends_the_run_and_its_row_says_why():
    runner = Runner(makes("a", RuntimeError("broken"), "c"), store=InMemorySessionStore())
    task = await runner.detach(FIVE[:3])
    row = await task.wait()
    assert (row.status, row.error["message"]) == ("failed", "broken")
    assert texts(row)[:2] == ["1", "a"]
    assert await task.abort() == "failed"


async def test_a_turn_in_the_background_that_fails_before_it_has_done_anything_has_its_row_all_the_same():
    store = InMemorySessionStore()
    runner = Runner(makes(RuntimeError("broken"), "Well."), store=store)
    row = await (await runner.detach("1", session_id="s")).wait()
    assert (row.status, row.finish_reason, row.error["message"]) == ("failed", "failed", "broken")
    assert str(await runner.run("2", session_id="s")) == "Well."
    assert [row.status for row in await rows_of(store, "s")] == ["failed", "completed"]


async def test_a_repeated_request_gets_the_task_of_the_first():
    runner = Runner(makes("a", "b"), store=InMemorySessionStore())
    tasks = [await runner.detach("x", idempotency_key="k") for _ in range(2)]
    await tasks[0].wait()
    tasks.append(await runner.detach("x", idempotency_key="k"))
    assert len({task.snapshot_id for task in tasks}) == 1


async def test_runs_in_the_background_wait_for_their_turn_too():
    _, _, one = gated(on_conflict="queue")
    first = await one.runner.detach("slow", session_id="s")
    second = asyncio.create_task(one.runner.detach("2", session_id="s"))
    await one.entered.wait()
    assert not second.done()
    one.gate.set()
    row = await (await second).wait()
    assert (row.parent_id, texts(row)) == (first.snapshot_id, said("slow", "2"))


async def test_a_session_that_moved_on_while_a_run_was_begun_refuses_it():
    store = InMemorySessionStore()
    runner = Runner(makes("a", "b"), store=store)
    first = await runner.run("x", session_id="s")
    ground = await runner._maker.grounds.find("s", None)
    await runner.run("y", session_id="s")
    with pytest.raises(SessionConflictError):
        await runner._maker.run(ground, plan=Plan(read_inputs("z"))).reserve()
    assert first.snapshot_id == ground.row.snapshot_id


async def test_what_cannot_be_done_in_the_background_is_refused():
    with pytest.raises(StateManagementError, match="no store"):
        await Runner(makes("a")).detach("x")
    runner = Runner(makes("a"), store=InMemorySessionStore())

    async def inputs():
        yield "x"

    with pytest.raises(InvalidInputError, match="iterator"):
        await runner.detach(inputs())
    assert await runner.abort("unknown") is None
    for refused in (runner.wait("unknown"), runner.adopt("unknown"), runner.task("unknown").poll()):
        with pytest.raises(SnapshotNotFoundError):
            await refused


async def test_waiting_has_a_bound_where_one_is_given():
    clock, _, one = gated()
    task = await one.runner.detach("slow")
    waiting = asyncio.create_task(task.wait(timeout=5))
    await clock.advance(0)
    await clock.advance(6)
    with pytest.raises(TimeoutError):
        await waiting
    one.gate.set()
    assert (await task.wait(timeout=5)).status == "completed"


async def test_a_tool_that_was_running_when_its_worker_died_is_not_run_twice():
    runs, entered = [], asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge."""
        runs.append("charge")
        entered.set()
        await asyncio.Event().wait()
        return "charged"

    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    script = [Answer(tool_uses=[("charge", {})]), "Something went wrong.", "Bye."]
    model = ScriptedModel(script)
    runner = Runner(lambda: Agent(model, tools=[charge], clock=clock), store=store, clock=clock)
    task = await runner.detach([TurnInput("charge"), TurnInput("bye")])
    await entered.wait()
    await runner.aclose()
    await clock.advance(61)
    row = await (await runner.adopt(task.snapshot_id)).wait()
    assert row.status == "completed"
    assert runs == ["charge"]
    assert texts(row) == ["charge", "Something went wrong.", "bye", "Bye."]


def test_what_is_left_to_do_reads_back_from_a_row():
    inputs = [
        *read_inputs([TurnInput("a")]),
        *read_inputs(None, Resume([Respond("call", {"x": 1}, "name")], [Restart("other", "no")], answers={"q": "yes"})),
    ]
    plan = Plan(inputs, 1, begun=True)
    assert Plan.from_data(plan.to_data(), "it") == plan
    with pytest.raises(CorruptStoreError, match="what is left"):
        Plan.from_data({}, "it")


async def test_waiting_survives_a_store_that_is_out_of_reach_for_a_while_and_no_longer():
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    one = Gated(store, clock)
    task = await one.runner.detach("slow")
    await one.entered.wait()
    faulty = FaultStore(store)  # which tells nobody of changes
    watching = Runner(makes(), store=faulty, clock=clock)
    faulty.fail(verbs=["read"])
    waiting = asyncio.create_task(watching.wait(task.snapshot_id))
    for _ in range(30):
        await clock.advance(1)
    assert not waiting.done()
    faulty.mend()
    one.gate.set()
    for _ in range(5):
        await clock.advance(1)
    assert (await waiting).status == "completed"
    faulty.fail(verbs=["read"])
    waiting = asyncio.create_task(watching.wait(task.snapshot_id))
    for _ in range(70):
        await clock.advance(1)
    with pytest.raises(SessionStoreError):
        await waiting

"""The same key gets the same outcome."""

import asyncio

import pytest

from antiphon import Agent, Runner, tool
from antiphon.errors import IdempotencyKeyError, InvalidInputError, ModelError
from antiphon.runner import TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from antiphon.tools.context import ToolContext
from tests.runner.support import makes, rows_of


async def test_a_repeated_request_gets_the_outcome_of_the_first():
    store = InMemorySessionStore()
    runner = Runner(makes("One.", "Two."), store=store)
    first = await runner.run("Hi", session_id="s", idempotency_key="k")
    again = await runner.run("Hi", session_id="s", idempotency_key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.snapshot_id, again.message, again.usage) == (first.snapshot_id, first.message, first.usage)
    assert [chunk async for chunk in runner.stream("Hi", idempotency_key="k")] == [again]
    assert len(await rows_of(store, "s")) == 1
    assert str(await runner.run("Hi", session_id="s", idempotency_key="other")) == "Two."


async def test_a_request_that_failed_has_failed_for_good():
    store = InMemorySessionStore()
    runner = Runner(makes(ModelError("down"), "Never said."), store=store)
    first = await runner.run("Hi", session_id="s", idempotency_key="k")
    again = await runner.run("Hi", session_id="s", idempotency_key="k")
    assert (first.finish_reason, again.finish_reason, again.error.message) == ("failed", "failed", "down")


async def test_a_question_is_part_of_an_outcome():
    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        return ctx.interrupt("sure", "Are you?")

    runner = Runner(makes(Answer(tool_uses=[("ask", {})]), "So.", tools=[ask]), store=InMemorySessionStore())
    first = await runner.run("Go", idempotency_key="k")
    again = await runner.run("Go", idempotency_key="k")
    assert (again.interrupts, again.message, again.finish_reason) == (first.interrupts, first.message, "interrupted")


async def test_a_request_repeated_while_the_first_is_under_way_waits_for_its_outcome():
    go, asked = asyncio.Event(), asyncio.Event()

    def answer(messages):
        asked.set()
        return Answer(text="One.", pause_after_words=0, until=go)

    model, store = ScriptedModel([answer] * 2), InMemorySessionStore()
    runner = Runner(lambda: Agent(model), store=store)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(runner.run("Hi", session_id="s", idempotency_key="k"))
        await asked.wait()
        again = group.create_task(runner.run("Hi", session_id="s", idempotency_key="k"))
        await asyncio.sleep(0)
        go.set()
    assert (first.result().snapshot_id, again.result().replayed) == (again.result().snapshot_id, True)
    assert len(model.requests) == 1


async def test_two_requests_at_the_same_moment_are_one():
    model, store = ScriptedModel(["One.", "Two."]), InMemorySessionStore()
    runner = Runner(lambda: Agent(model), store=store)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(runner.run("Hi", idempotency_key="k")) for _ in range(2)]
    one, two = (task.result() for task in tasks)
    assert (one.snapshot_id, {one.replayed, two.replayed}) == (two.snapshot_id, {False, True})
    assert len(model.requests) == 1


async def test_what_a_dead_process_was_asked_is_not_done_again_under_the_key():
    clock, later, asked = VirtualClock(autojump=False), VirtualClock(), asyncio.Event()
    store = InMemorySessionStore(clock=later)

    def answer(messages):
        asked.set()
        return Answer(text="Too late.", pause_after_words=0, until=asyncio.Event())

    model = ScriptedModel([answer])
    task = asyncio.create_task(
        Runner(lambda: Agent(model, clock=clock), store=store, clock=clock).run(
            "Hi", session_id="s", idempotency_key="k"
        )
    )
    await asked.wait()
    await later.advance(61)
    other = Runner(makes("Two."), store=store, clock=later)
    again = await other.run("Hi", session_id="s", idempotency_key="k")
    assert (again.finish_reason, again.error.status, again.replayed) == ("failed", "ABORTED", True)
    assert str(await other.run("Hi", session_id="s", idempotency_key="k2")) == "Two."
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_for_one_turn_of_one_session():
    runner = Runner(makes("One."), store=InMemorySessionStore())
    await runner.run("Hi", session_id="s", idempotency_key="k")
    with pytest.raises(IdempotencyKeyError):
        await runner.run("Hi", session_id="other", idempotency_key="k")
    with pytest.raises(InvalidInputError, match="one turn"):
        await runner.run([TurnInput("1"), TurnInput("2")], idempotency_key="k2")

"""What must not happen, tried by those who would profit from it, or are in a hurry."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Agent, BidiAgent, Runner, tool
from antiphon.errors import (
    AntiphonError,
    IdempotencyKeyError,
    InvalidInputError,
    NotResumableError,
    QueueFullError,
    QueueTimeoutError,
    SessionConflictError,
    SessionStoreError,
    StaleEpochError,
    StateSignatureError,
    TaskLostError,
)
from antiphon.models import EmbeddedBidiModel
from antiphon.runner import Restart, Resume, TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from antiphon.tools.context import ToolContext
from tests.runner.support import rows_of, texts
from tests.runner.talking import say

KEY = "a key of sixteen bytes"


def at_once(clock, store, **options):
    """A runner that answers everything."""
    model = ScriptedModel([lambda messages: f"To {messages[-1]['content'][0]['text']}."] * 500)
    return Runner(lambda: Agent(model, clock=clock), store=store, clock=clock, **options)


# Aborts


@settings(max_examples=40)
@given(st.integers(0, 30), st.integers(1, 3), st.integers(1, 3))
def test_a_run_that_is_aborted_at_any_moment_settles_once_and_its_session_goes_on(steps, turns, aborts):
    async def scenario():
        clock = VirtualClock()
        store = InMemorySessionStore(clock=clock)
        runner, other = at_once(clock, store), at_once(clock, store)
        task = await runner.detach([TurnInput(str(number)) for number in range(turns)], session_id="s")
        for _ in range(steps):
            await asyncio.sleep(0)
        before = await asyncio.gather(*(other.abort(task.snapshot_id) for _ in range(aborts)))
        row = await task.wait()
        assert set(before) <= {"pending", "aborting", "aborted", "completed"}
        assert row.status in {"aborted", "completed"}
        assert before.count("pending") <= 1
        said = texts(row)
        whole = [text for number in range(turns) for text in (str(number), f"To {number}.")]
        assert said == whole[: len(said)] or row.status == "aborted"
        await runner.aclose(drain=True)
        assert (await store.get_snapshot(task.snapshot_id)) == row
        assert str(await other.run("on", session_id="s")) == "To on."

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["run", "stream"])
async def test_a_run_that_somebody_waits_for_is_aborted_by_others_at_once_too(how):
    clock = VirtualClock(autojump=False)  # so: not by the next sign of life, half a minute later
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        entered.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def quick() -> str:
        """Work for a second."""
        await clock.sleep(1.0)
        return "done"

    script = [Answer(tool_uses=[("quick", {})]), "One.", Answer(tool_uses=[("work", {})]), "Never said."]
    model = ScriptedModel(script)
    runner = Runner(lambda: Agent(model, tools=[work, quick], clock=clock), store=store, clock=clock)

    async def streamed():
        return [chunk async for chunk in runner.stream([TurnInput("1"), TurnInput("go")], session_id="s")][-1]

    running = asyncio.create_task(
        streamed() if how == "stream" else runner.run([TurnInput("1"), TurnInput("go")], session_id="s")
    )
    while not entered.is_set():
        await clock.advance(0.5)
    pending = (await rows_of(store, "s"))[-1]
    aborting = asyncio.create_task(at_once(clock, store).abort(pending.snapshot_id))
    while not running.done():
        await clock.advance(2.0)  # what a tool gets to end by itself
    output = await running
    assert await aborting == "pending"
    assert (output.finish_reason, output.snapshot_id) == ("aborted", pending.snapshot_id)
    assert (await store.get_snapshot(pending.snapshot_id)).status == "aborted"
    assert clock.now() < 20


async def test_a_run_that_was_aborted_before_its_worker_died_is_ended_and_not_gone_on_with():
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    def hang(messages):
        entered.set()
        return Answer(text="No.", pause_after_words=0, until=asyncio.Event())

    dying = Runner(lambda: Agent(ScriptedModel([hang]), clock=clock), store=store, clock=clock)
    task = await dying.detach("x", session_id="s")
    await entered.wait()
    await dying.aclose()
    other = at_once(clock, store)
    aborting = asyncio.create_task(other.abort(task.snapshot_id))
    await clock.advance(0)
    await clock.advance(61)
    await aborting
    await other.adopt(task.snapshot_id)
    row = await other.task(task.snapshot_id).wait()
    assert (row.status, row.owner, texts(row)) == ("aborted", None, [])


# Idempotency keys


async def test_a_key_leads_to_no_other_session_and_no_other_agent():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    runner = at_once(clock, store)
    mine = await runner.run("mine", session_id="mine")
    await runner.run("secret", session_id="theirs", idempotency_key="k")
    for where in ({"session_id": "mine"}, {"snapshot_id": mine.snapshot_id}):
        for begin in (runner.run, runner.detach):
            with pytest.raises(IdempotencyKeyError):
                await begin("x", idempotency_key="k", **where)
    with pytest.raises(IdempotencyKeyError):
        await at_once(clock, store, name="other").run("x", idempotency_key="k")
    assert [len(await rows_of(store, name)) for name in ("mine", "theirs")] == [1, 1]


async def test_the_key_alone_says_that_a_request_is_the_same():
    clock = VirtualClock()
    runner = at_once(clock, InMemorySessionStore(clock=clock))
    first = await runner.run("one", session_id="s", idempotency_key="k")
    again = await runner.run("another", session_id="s", idempotency_key="k")
    assert (again.snapshot_id, str(again), again.replayed) == (first.snapshot_id, "To one.", True)


async def test_a_repeated_request_does_not_end_a_run_in_the_background_that_may_be_adopted():
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    def hang(messages):
        entered.set()
        return Answer(text="No.", pause_after_words=0, until=asyncio.Event())

    dying = Runner(lambda: Agent(ScriptedModel([hang]), clock=clock), store=store, clock=clock)
    task = await dying.detach("x", session_id="s", idempotency_key="k")
    await entered.wait()
    await dying.aclose()
    await clock.advance(61)
    other = at_once(clock, store)
    with pytest.raises(TaskLostError, match="adopt it"):
        await other.run("x", session_id="s", idempotency_key="k")
    assert (await other.detach("x", session_id="s", idempotency_key="k")).snapshot_id == task.snapshot_id
    row = await (await other.adopt(task.snapshot_id)).wait()
    assert (row.status, texts(row)) == ("completed", ["x", "To x."])
    assert (await other.run("x", session_id="s", idempotency_key="k")).replayed


class Waking(InMemorySessionStore):
    """Before a row is sealed for its worker, that one gives a sign of life, and ends its run at once afterwards."""

    waking = None

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        if (worker := self.waking) is None:
            return await super().save_snapshot(snapshot_id, fn, **options)
        self.waking = None
        await worker.beat()
        told = await super().save_snapshot(snapshot_id, fn, **options)
        worker.end()
        return told


async def test_a_repeated_request_waits_for_a_worker_that_comes_back_when_it_was_taken_for_dead():
    clock, gate, entered = VirtualClock(autojump=False), asyncio.Event(), asyncio.Event()
    asleep, store = VirtualClock(autojump=False), Waking(clock=clock)

    def answer(messages):
        entered.set()
        return Answer(text="After all.", pause_after_words=0, until=gate)

    # Its clock stands still: it gives no sign of life by itself.
    slow = Runner(lambda: Agent(ScriptedModel([answer]), clock=asleep), store=store, clock=asleep)
    first = asyncio.create_task(slow.run("x", session_id="s", idempotency_key="k"))
    await entered.wait()
    (row,) = await rows_of(store, "s")

    class Worker:
        async def beat(self):
            await store.save_snapshot(row.snapshot_id, lambda found: replace(found, heartbeat_at=clock.utc()))

        def end(self):
            gate.set()

    await clock.advance(61)
    store.waking = Worker()
    again = await at_once(clock, store).run("x", session_id="s", idempotency_key="k")
    assert (str(again), again.finish_reason, again.replayed) == ("After all.", "stop", True)
    assert (await first).snapshot_id == again.snapshot_id


# Queues


async def test_a_hundred_who_queue_get_their_turn_or_are_told_and_nobody_is_forgotten():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    def answer(messages):
        entered.set()
        text = messages[-1]["content"][0]["text"]
        return Answer(text=f"To {text}.", pause_after_words=0, until=gate)

    model = ScriptedModel([answer] * 200)
    runner = Runner(
        lambda: Agent(model, clock=clock),
        store=store,
        clock=clock,
        on_conflict="queue",
        queue_limit=60,
        queue_timeout=30,
    )
    first = asyncio.create_task(runner.run("first", session_id="s"))
    await entered.wait()
    others = [asyncio.create_task(runner.run(str(number), session_id="s")) for number in range(100)]
    await clock.advance(0)
    for cancelled in others[:5]:
        cancelled.cancel()
    gate.set()
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    await first
    refused = [outcome for outcome in outcomes if isinstance(outcome, QueueFullError | QueueTimeoutError)]
    done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert (len(done), len(refused)) == (55, 40)
    rows = await rows_of(store, "s")
    assert [row.snapshot_id for row in rows[1:]] == [output.snapshot_id for output in done]
    assert [row.parent_id for row in rows[1:]] == [row.snapshot_id for row in rows[:-1]]
    assert str(await runner.run("last", session_id="s")) == "To last."


class Forgetful(InMemorySessionStore):
    """Cannot be reached when a turn is given back."""

    async def release_lease(self, lease, /):
        raise SessionStoreError("out of reach")


async def test_a_run_has_its_outcome_although_its_turn_could_not_be_given_back():
    clock = VirtualClock()
    runner = at_once(clock, Forgetful(clock=clock), on_conflict="queue")
    assert str(await runner.run("1", session_id="s")) == "To 1."
    assert str(await runner.run("2", session_id="s")) == "To 2."  # when the time of the first is over


# Two writers


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(["run", "detach"]), min_size=2, max_size=5), st.sampled_from(["reject", "queue", "fork"])
)
def test_however_many_go_on_from_one_row_at_once_nothing_is_lost_and_nothing_forks_unasked(ways, on_conflict):
    async def scenario():
        clock = VirtualClock()
        store = InMemorySessionStore(clock=clock)
        await at_once(clock, store).run("root", session_id="s")
        runners = [at_once(clock, store, on_conflict=on_conflict) for _ in ways]

        async def go(runner, way, text):
            if way == "run":
                output = await runner.run(text, session_id="s")
                return (output.snapshot_id, output.forked)
            row = await (await runner.detach(text, session_id="s")).wait()
            return (row.snapshot_id, None)

        went = [go(runner, way, f"say {at}") for at, (runner, way) in enumerate(zip(runners, ways, strict=True))]
        outcomes = await asyncio.gather(*went, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError | NotResumableError)]
        done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert len(refused) + len(done) == len(ways), outcomes
        rows = {row.snapshot_id: row for row in await rows_of(store, "s")}
        assert len(rows) == 1 + len(done)
        assert done
        parents = [row.parent_id for row in rows.values() if row.parent_id]
        if on_conflict == "fork":
            assert not refused
            forks = len(parents) - len(set(parents))
            assert forks <= sum(forked is not False for _, forked in done)
        else:
            assert len(parents) == len(set(parents)), "no silent fork"
        if on_conflict == "queue":
            assert not refused
        for at, outcome in enumerate(outcomes):
            if not isinstance(outcome, BaseException):
                assert texts(rows[outcome[0]])[-2:] == [f"say {at}", f"To say {at}."]

    asyncio.run(scenario())


async def test_a_talk_that_was_taken_for_dead_can_write_no_more_and_says_so():
    clock, later = VirtualClock(), VirtualClock()
    store = InMemorySessionStore(clock=later)
    live = Runner(lambda: BidiAgent(EmbeddedBidiModel(voice=False, clock=clock), clock=clock), store=store, clock=clock)
    other = at_once(later, store)
    before = []
    with pytest.raises((StaleEpochError, SessionConflictError)):
        async with live.connect(session_id="s") as agent:
            await say(agent, "count to three")
            await later.advance(61)
            await other.run("typed", session_id="s")
            before += await rows_of(store, "s")
            await say(agent, "count to two")
            await agent.send("count to four")
    assert [texts(row)[0] for row in before] == ["count to three", "count to three"]
    assert await rows_of(store, "s") == before
    assert (before[0].status, before[0].epoch, texts(before[1])[-2:]) == ("failed", 1, ["typed", "To typed."])


# Forgeries


@settings(max_examples=60)
@given(st.data())
def test_no_part_of_a_signed_state_can_be_changed(data):
    async def scenario():
        @tool
        def pay(ctx: ToolContext) -> str:
            """Pay."""
            return str(ctx.interrupt("sure"))

        model = ScriptedModel([Answer(tool_uses=[("pay", {})])] * 2)
        runner = Runner(lambda: Agent(model, tools=[pay]), signing_key=KEY, initial_state={"limit": 5})
        state = json.loads(json.dumps((await runner.run("Pay")).state))
        path, at = [], state
        while isinstance(at, dict | list) and at and (not path or data.draw(st.booleans())):
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            path.append(key)
            holder, at = at, at[key]
        if data.draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = [at, "forged"] if not isinstance(at, bool) else not at
        with pytest.raises((StateSignatureError, InvalidInputError)):
            await runner.run(state=state, resume=Resume(restart=[Restart("call-1", "yes")]))
        assert len(model.requests) == 1

    asyncio.run(scenario())


async def test_an_answer_is_taken_once_on_each_way_from_its_question():
    paid = []

    @tool
    def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        paid.append((amount, ctx.interrupt("sure")))
        return "paid"

    model = ScriptedModel([Answer(tool_uses=[("pay", {"amount": 5})]), "Paid.", "Again.", "No."])
    runner = Runner(lambda: Agent(model, tools=[pay]), store=InMemorySessionStore())
    asked = await runner.run("Pay", session_id="s")
    answer = [asked.interrupts[0].answer("yes")]
    await runner.run(session_id="s", resume=answer)
    stale = await runner.run(session_id="s", resume=answer)
    assert (stale.finish_reason, stale.error.status) == ("failed", "INVALID_ARGUMENT")
    assert paid == [(5, "yes")]
    results = await asyncio.gather(
        *(runner.run(session_id="s", resume=Resume(restart=[Restart("call-1", "yes")])) for _ in range(3)),
        return_exceptions=True,
    )
    assert {result.finish_reason for result in results if not isinstance(result, AntiphonError)} == {"failed"}
    assert paid == [(5, "yes")]


async def test_of_two_who_answer_one_question_at_once_the_tool_runs_for_one():
    paid, entered, gate = [], asyncio.Event(), asyncio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ctx.interrupt("sure")
        paid.append("paid")
        entered.set()
        await gate.wait()
        return "paid"

    store = InMemorySessionStore()
    model = ScriptedModel([Answer(tool_uses=[("pay", {})]), "Paid.", "Paid."])
    runner = Runner(lambda: Agent(model, tools=[pay]), store=store)
    asked = await runner.run("Pay", session_id="s")
    answer = [asked.interrupts[0].answer("yes")]
    both = [asyncio.create_task(runner.run(session_id="s", resume=answer)) for _ in range(2)]
    await entered.wait()
    gate.set()
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert len(paid) == 1
    assert sum(isinstance(outcome, SessionConflictError | NotResumableError) for outcome in outcomes) == 1
    assert len(await rows_of(store, "s")) == 2


async def test_another_agents_row_is_no_ground_to_branch_from():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    theirs = await at_once(clock, store, name="theirs").run("x", session_id="s")
    with pytest.raises(InvalidInputError, match="is of agent 'theirs'"):
        await at_once(clock, store).branch(theirs.snapshot_id)

"""Random schedules of runs, branches, tasks, aborts, crashes and adoptions, against what must hold of every session."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Agent, NullConversationManager, Runner
from antiphon.runner import TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, FaultStore, ScriptedModel, VirtualClock
from tests.runner.support import rows_of, texts


class Process:
    """A runner whose model stands still at one input, until it is let go on."""

    def __init__(self, store, clock, stands_at=None, *, cuttable=False):
        self.entered, self.gate = asyncio.Event(), asyncio.Event()

        def answer(messages):
            text = messages[-1]["content"][0]["text"]
            if text != stands_at:
                return f"To {text}."
            self.entered.set()
            return Answer(text=f"To {text}.", pause_after_words=0, until=self.gate)

        def make():
            model = ScriptedModel([answer] * 10)
            return Agent(model, clock=clock, conversation_manager=NullConversationManager())

        self.cut = FaultStore(store)
        self.runner = Runner(make, store=self.cut if cuttable else store, clock=clock)


steps = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 3)),
    st.tuples(st.just("from"), st.integers(0, 20)),
    st.tuples(st.just("branch"), st.integers(0, 20)),
    st.tuples(st.just("cut off"), st.sampled_from(["dies", "is cancelled", "is aborted"])),
    st.tuples(
        st.just("task"),
        st.integers(1, 4),  # turns
        st.integers(0, 4),  # where it stands still; past the end: nowhere
        st.lists(st.integers(0, 4), max_size=2),  # after a crash each: where whoever adopts it stands still
        st.sampled_from(["go on", "abort", "crash and abort"]),
    ),
)


class World:
    """One session, and what was said in it."""

    def __init__(self):
        self.clock = VirtualClock(autojump=False)
        self.store = InMemorySessionStore(clock=self.clock)
        self.settled = {}
        self.count = 0

    def inputs(self, number):
        self.count += number
        return [f"say {at}" for at in range(self.count - number, self.count)]

    async def take(self, step):
        match step:
            case ("run", number):
                said = self.inputs(number)
                await Process(self.store, self.clock).runner.run([TurnInput(text) for text in said], session_id="s")
            case ("from", number):
                rows = await rows_of(self.store, "s")
                if rows:
                    parent = rows[number % len(rows)].snapshot_id
                    output = await Process(self.store, self.clock).runner.run(*self.inputs(1), snapshot_id=parent)
                    assert (await self.store.get_snapshot(output.snapshot_id)).parent_id == parent
            case ("branch", number):
                rows = await rows_of(self.store, "s")
                if rows:
                    await self.branch(rows[number % len(rows)])
            case ("cut off", how):
                await self.cut_off(how)
            case ("task", number, stand, crashes, end):
                await self.task(number, stand, crashes, end)

    async def branch(self, row):
        """A session of its own goes on by itself; what it came from does not know of it."""
        process = Process(self.store, self.clock)
        copy = await process.runner.branch(row.snapshot_id)
        assert (texts(copy), copy.parent_id) == (texts(row), row.snapshot_id)
        [said] = self.inputs(1)
        output = await process.runner.run(said, session_id=copy.session_id)
        assert texts(await self.store.get_snapshot(output.snapshot_id)) == [*texts(row), said, f"To {said}."]

    async def cut_off(self, how):
        """A run that ends in the middle of its second turn, whoever ends it: the first is there, and what is gone on from."""
        one, two, three = self.inputs(3)
        process = Process(self.store, self.clock, two, cuttable=how == "dies")
        running = asyncio.create_task(process.runner.run([TurnInput(one), TurnInput(two)], session_id="s"))
        await process.entered.wait()
        first = (await rows_of(self.store, "s"))[-1]
        assert texts(first)[-2:] == [one, f"To {one}."]
        if how == "dies":  # nobody is told: of the second turn nothing was worth a row yet
            process.cut.fail(verbs=["write"])
        if how == "is aborted":
            assert await process.runner.abort(first.snapshot_id) == "completed"  # that turn has ended
        running.cancel()
        for _ in range(8):
            await self.clock.advance(1)
        await asyncio.gather(running, return_exceptions=True)
        output = await Process(self.store, self.clock).runner.run(three, session_id="s")
        said = texts(await self.store.get_snapshot(output.snapshot_id))
        assert said[-2:] == [three, f"To {three}."]
        assert said[: len(texts(first))] == texts(first)

    async def task(self, number, stand, crashes, end):
        said = self.inputs(number)
        tip = await self.store.get_latest_snapshot("s")
        before = [] if tip is None else texts(tip)
        process = Process(self.store, self.clock, dict(enumerate(said)).get(stand))
        task = await process.runner.detach([TurnInput(text) for text in said], session_id="s")
        for next_stand in crashes:
            if not await self.stands(process, task):
                break
            await self.crash(process)
            # It goes on where the other one stood still, and so never stands still before that.
            process = Process(self.store, self.clock, dict(enumerate(said)).get(max(stand, next_stand)))
            task = await process.runner.adopt(task.snapshot_id)
            stand = max(stand, next_stand)
        stands = await self.stands(process, task)
        if stands and end == "abort":
            assert await task.abort() == "pending"
        elif stands and end == "crash and abort":
            await self.crash(process)
            assert await task.abort() == "expired"
        else:
            process.gate.set()
        row = await task.wait()
        history = texts(row)[len(before) :]
        assert texts(row)[: len(before)] == before
        whole = [text for one in said for text in (one, f"To {one}.")]
        if row.status == "completed":
            assert history == whole
        else:
            assert (row.status, stands) == ("aborted", True)
            assert history[: 2 * stand] == whole[: 2 * stand]  # what was saved of turns that had ended
            assert not set(said[stand + 1 :]) & set(history)

    async def stands(self, process, task):
        """Whether the run stands still in the middle of a turn; else it has ended."""
        entered = asyncio.create_task(process.entered.wait())
        ended = asyncio.create_task(task.wait())
        await asyncio.wait({entered, ended}, return_when=asyncio.FIRST_COMPLETED)
        for one in (entered, ended):
            one.cancel()
        await asyncio.wait({entered, ended})
        return process.entered.is_set()

    async def crash(self, process):
        await process.runner.aclose()
        await self.clock.advance(61)

    async def check(self):
        """Rows are settled, stay as they are, and begin with what their parents end with."""
        rows = {row.snapshot_id: row for row in await rows_of(self.store, "s")}
        for name, row in rows.items():
            assert row.terminal
            assert self.settled.setdefault(name, texts(row)) == texts(row)
            if row.parent_id is not None:
                parent = texts(rows[row.parent_id])
                assert texts(row)[: len(parent)] == parent
        assert set(self.settled) == set(rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=6))
def test_whatever_happens_to_runs_each_turn_is_in_the_history_once_and_settled_rows_stay(schedule):
    async def live():
        world = World()
        for step in schedule:
            await world.take(step)
            await world.check()

    asyncio.run(live())

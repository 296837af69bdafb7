"""What sessions cost: each token that a provider tells of is counted once, whatever becomes of the answer."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Agent, BidiAgent, Runner, tool
from antiphon.runner import TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, CallTools, Say, ScriptedBidiModel, ScriptedModel, Usage, VirtualClock
from tests.runner.support import rows_of
from tests.runner.talking import say


class Telling(ScriptedModel):
    """Tells what the input costs at the beginning of each answer, as some providers do."""

    def __init__(self, script, **options):
        super().__init__(script, **options)
        self.told = 0

    async def stream(self, *args, **options):
        self.told += 10
        yield {"metadata": {"usage": {"inputTokens": 10, "outputTokens": 0, "totalTokens": 10}}}
        async for event in super().stream(*args, **options):
            if "metadata" in event:
                self.told += event["metadata"]["usage"]["totalTokens"]
            yield event


@tool
def look() -> str:
    """Look."""
    return "seen"


ANSWERS = {
    "talks": lambda: ["Yes."],
    "looks": lambda: [Answer(tool_uses=[("look", {})]), "Seen."],
    "fails": lambda: [RuntimeError("broken")],
    "fails in the middle": lambda: [Answer(text="one two three", error=RuntimeError("broken"), error_after_words=2)],
    "looks and fails": lambda: [Answer(tool_uses=[("look", {})]), RuntimeError("broken")],
    "is cut off": lambda: [Answer(text="one two", stop_reason="max_tokens")],
}


@settings(max_examples=40)
@given(st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=5), st.sampled_from(["run", "detach", "client"]))
def test_every_token_that_a_provider_tells_of_is_counted_once(kinds, way):
    async def scenario():
        store = None if way == "client" else InMemorySessionStore()
        state = None
        for kind in kinds:
            model = Telling(ANSWERS[kind]())
            runner = Runner(lambda model=model: Agent(model, tools=[look]), store=store)
            where = {"state": state} if way == "client" else {"session_id": "s"}
            before = 0 if state is None else state["usage"].get("totalTokens", 0)
            if store is not None and (row := await store.get_latest_snapshot("s")) is not None:
                before = (row.usage or {}).get("totalTokens", 0)
            if way == "detach":
                row = await (await runner.detach("Go", **where)).wait()
                assert row.usage["totalTokens"] == before + model.told
                continue
            output = await runner.run("Go", **where)
            state = output.state
            assert output.usage["totalTokens"] == before + model.told
            if way == "client":
                assert state is None or state["usage"] == output.usage
            elif kind not in {"fails", "fails in the middle"}:  # these commit nothing: there is no row to keep it in
                assert (await store.get_snapshot(output.snapshot_id)).usage == output.usage

    asyncio.run(scenario())


async def test_an_aborted_turn_counts_what_was_told_until_then():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    model = Telling(["One.", Answer(text="Two.", pause_after_words=0, until=gate)], clock=clock)
    runner = Runner(lambda: Agent(model, clock=clock), store=store, clock=clock)
    task = await runner.detach([TurnInput("1"), TurnInput("2")])
    while len(model.requests) < 2:
        await clock.advance(0)
    assert await task.abort() == "pending"
    row = await task.wait()
    assert (row.status, row.usage["totalTokens"]) == ("aborted", model.told)


async def test_a_run_whose_worker_died_is_charged_for_what_was_told_before_its_row_was_last_written():
    clock, gate = VirtualClock(autojump=False), asyncio.Event()
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        await gate.wait()
        return "done"

    first, second = Telling([Answer(tool_uses=[("hang", {})])]), Telling(["So."])
    models = iter([first, second])
    runner = Runner(lambda: Agent(next(models), tools=[hang], clock=clock), store=store, clock=clock)
    task = await runner.detach("1")
    await entered.wait()
    await runner.aclose()
    await clock.advance(61)
    row = await (await runner.adopt(task.snapshot_id)).wait()
    assert (row.status, row.usage["totalTokens"]) == ("completed", first.told + second.told)


async def test_the_rows_of_a_talk_count_what_it_cost_after_what_was_typed():
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    typed = Telling(["Typed."])
    await Runner(lambda: Agent(typed), store=store, clock=clock).run("hello", session_id="s")
    script = [CallTools([("look", {})]), Usage(3, 1), Say("Seen."), Usage(20, 5), Say("Well."), Usage(30, 6)]
    model = ScriptedBidiModel(script, clock=clock)
    live = Runner(lambda: BidiAgent(model, tools=[look], clock=clock), store=store, clock=clock)
    async with live.connect(session_id="s") as agent:
        await say(agent, "go")
        while agent.usage.total_tokens < 65:
            await clock.sleep(0.1)
        assert (await store.get_latest_snapshot("s")).status == "pending"
    row = (await rows_of(store, "s"))[-1]
    assert row.usage["totalTokens"] == typed.told + 65
    assert row.usage["outputTokens"] >= 12

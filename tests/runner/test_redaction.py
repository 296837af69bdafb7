"""Words that are taken back while a run still holds them: they are in no byte of the store, then and later."""

import asyncio

import pytest

from antiphon import Agent, Runner, tool
from antiphon.cli.redacting import Redaction
from antiphon.runner import Restart, Resume, TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.store.file import FileSessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from antiphon.tools.context import ToolContext
from tests.runner.support import rows_of, texts

SECRET = "4711"


def message(found):
    """Replaces each message with the secret, and nothing else."""
    return {"role": found["role"], "content": [{"text": "taken back"}]} if SECRET in str(found) else None


async def by_message(store):
    return await store.redact("s", message)


async def by_words(store):
    redaction = Redaction.of([SECRET], [], "****", ignore_case=False)
    return await store.redact("s", redaction.message, part=redaction.part)


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request, tmp_path):
    made = {
        "memory": InMemorySessionStore,
        "sqlite": lambda: SQLiteSessionStore(tmp_path / "sessions.db"),
        "file": lambda: FileSessionStore(tmp_path / "sessions"),
    }[request.param]()
    yield made
    made.close()


async def at_rest(store):
    """What the store holds of the session."""
    return b"".join([line async for line in store.export("s")]).decode()


@pytest.mark.parametrize("redact", [by_message, by_words])
@pytest.mark.parametrize("stands_at", [0, 1, 2])
async def test_what_a_run_has_still_to_say_is_redacted_and_stays_so_when_it_is_said(store, redact, stands_at):
    gate, entered = asyncio.Event(), asyncio.Event()

    def answer(messages):
        if len([one for one in messages if one["role"] == "user"]) - 1 != stands_at:
            return "Yes."
        entered.set()
        return Answer(text="Yes.", pause_after_words=0, until=gate)

    model = ScriptedModel([answer] * 3)
    runner = Runner(lambda: Agent(model), store=store)
    task = await runner.detach([TurnInput(f"{at}: my PIN is {SECRET}") for at in range(3)], session_id="s")
    await entered.wait()
    assert SECRET in await at_rest(store)
    assert await redact(store) > 0
    assert SECRET not in await at_rest(store)
    gate.set()
    row = await task.wait()
    assert (row.status, len(texts(row))) == ("completed", 6)
    assert SECRET not in await at_rest(store)
    assert not (await redact(store))


@pytest.mark.parametrize("redact", [by_message, by_words])
async def test_a_run_that_is_adopted_says_what_was_left_of_its_words(redact):
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    entered = asyncio.Event()

    def hang(messages):
        entered.set()
        return Answer(text="No.", pause_after_words=0, until=asyncio.Event())

    dying = Runner(lambda: Agent(ScriptedModel([hang]), clock=clock), store=store, clock=clock)
    task = await dying.detach([TurnInput("hello"), TurnInput(f"my PIN is {SECRET}")], session_id="s")
    await entered.wait()
    await redact(store)
    await dying.aclose()
    await clock.advance(61)
    model = ScriptedModel(["Yes.", "Yes."])
    other = Runner(lambda: Agent(model, clock=clock), store=store, clock=clock)
    row = await (await other.adopt(task.snapshot_id)).wait()
    assert (row.status, len(texts(row))) == ("completed", 4)
    assert SECRET not in str([request.messages for request in model.requests])


@pytest.mark.parametrize("redact", [by_message, by_words])
async def test_a_turn_that_waits_for_a_person_is_redacted_also_when_its_process_goes_on_with_it(store, redact):
    asked, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def pay(account: str, ctx: ToolContext) -> str:
        """Pay."""
        if ctx.interrupt("sure", "Sure?") == "yes":
            asked.set()
            await gate.wait()
        return "paid"

    model = ScriptedModel(
        [
            Answer(text=f"To {SECRET}.", tool_uses=[{"toolUseId": "t", "name": "pay", "input": {"account": SECRET}}]),
            "So.",
        ]
    )
    runner = Runner(lambda: Agent(model, tools=[pay]), store=store)
    given = TurnInput(f"and note {SECRET}", resume=Resume(restart=[Restart("t", "yes")]))
    task = await runner.detach([TurnInput("pay"), given], session_id="s")
    await asked.wait()
    assert await redact(store) > 0
    assert SECRET not in await at_rest(store)
    gate.set()
    row = await task.wait()
    assert row.status == "completed", row.error
    assert SECRET not in await at_rest(store)
    assert "So." in texts((await rows_of(store, "s"))[-1])

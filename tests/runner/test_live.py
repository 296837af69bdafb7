"""Live talks whose turns are rows beside typed ones."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Agent, BidiAgent, Runner, tool
from antiphon.errors import InvalidInputError, InvalidTypeError, NotResumableError, StateManagementError, TaskLostError
from antiphon.hooks.events import BidiAgentStopEvent
from antiphon.io import WavIO
from antiphon.models import EmbeddedBidiModel
from antiphon.runner.live import _turn_end
from antiphon.store import InMemorySessionStore, open_store
from antiphon.testing import Answer, CallTools, Fail, Say, ScriptedBidiModel, ScriptedModel, Until, VirtualClock, Wait
from antiphon.tools import ToolContext
from tests.runner.support import assistant, makes, rows_of, texts, user
from tests.runner.talking import EXPIRE_S, say


def place(**options):
    """A clock, a store, and a runner that talks."""
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)

    def make():
        return BidiAgent(EmbeddedBidiModel(voice=False, clock=clock), clock=clock)

    return clock, store, Runner(make, store=store, clock=clock, **options)


async def test_each_turn_of_a_talk_is_a_row_below_the_typed_ones_and_typed_ones_go_on_below():
    clock, store, live = place()
    typed = Runner(makes("Typed."), store=store, clock=clock)
    first = await typed.run("hello", session_id="s")
    async with live.connect(session_id="s") as agent:
        await say(agent, "count to three", "count to two")
    rows = await rows_of(store, "s")
    assert [row.parent_id for row in rows] == [None, *(row.snapshot_id for row in rows[:-1])]
    assert rows[0].snapshot_id == first.snapshot_id
    assert [(row.status, row.finish_reason, row.owner) for row in rows] == [("completed", "stop", None)] * 3
    history = ["hello", "Typed.", "count to three", "one, two, three.", "count to two", "one, two."]
    assert [texts(row) for row in rows] == [history[:2], history[:4], history]
    again = await Runner(makes("Back."), store=store, clock=clock).run("bye", session_id="s")
    assert texts(await store.get_snapshot(again.snapshot_id)) == [*history, "bye", "Back."]


async def test_a_talk_from_an_older_row_is_a_branch():
    _, store, live = place()
    async with live.connect(session_id="s") as agent:
        await say(agent, "count to three", "count to two")
    first, _ = await rows_of(store, "s")
    async with live.connect(snapshot_id=first.snapshot_id) as agent:
        await say(agent, "count to four")
    left = (await rows_of(store, "s"))[-1]
    assert left.parent_id == first.snapshot_id
    assert texts(left)[2:] == ["count to four", "one, two, three, four."]


async def test_a_talk_in_which_nothing_was_said_leaves_no_row():
    _, store, live = place()
    async with live.connect(session_id="s"):
        pass
    assert await store.get_latest_snapshot("s") is None


async def test_while_somebody_talks_the_session_is_worked_on_and_can_be_ended_by_others():
    clock, store, live = place()
    async with live.connect(session_id="s") as agent:
        await say(agent, "count to three")
        row = await store.get_latest_snapshot("s")
        assert (row.status, texts(row)[0]) == ("pending", "count to three")
        with pytest.raises(NotResumableError, match="a run is at work"):
            await Runner(makes("No."), store=store, clock=clock).run("x", session_id="s")
        aborting = asyncio.create_task(live.abort(row.snapshot_id))
        async for _ in agent.receive():
            pass  # it ends
    assert await aborting == "pending"
    row = await store.get_snapshot(row.snapshot_id)
    assert (row.status, texts(row)) == ("aborted", ["count to three", "one, two, three."])


async def test_tools_of_a_talk_know_their_turn_and_change_the_state():
    turns = []

    @tool
    def note(ctx: ToolContext) -> str:
        """Note."""
        turns.append(ctx.turn)
        ctx.state.update(lambda state: {"notes": state.get("notes", 0) + 1})
        return "noted"

    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    model = ScriptedBidiModel([CallTools([("note", {})]), Say("Done.")], clock=clock)
    live = Runner(
        lambda: BidiAgent(model, tools=[note], clock=clock), store=store, clock=clock, initial_state={"notes": 5}
    )
    async with live.connect(session_id="s") as agent:
        await say(agent, "one")
    rows = await rows_of(store, "s")
    assert [(turn.session_id, turn.snapshot_id) for turn in turns] == [("s", rows[0].snapshot_id)]
    assert rows[-1].snapshot.data["state"] == {"notes": 6}


async def test_who_cannot_talk_is_refused():
    with pytest.raises(StateManagementError, match="no store"):
        async with Runner(makes("x")).connect():
            pass
    store = InMemorySessionStore()
    with pytest.raises(InvalidTypeError, match="cannot talk live"):
        async with Runner(makes("x"), store=store).connect():
            pass


async def test_a_typed_question_to_a_person_is_answered_before_anybody_talks_on():
    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.interrupt("sure", "Sure?"))

    clock, store, live = place()
    model = ScriptedModel([Answer(tool_uses=[("ask", {})])])
    await Runner(lambda: Agent(model, tools=[ask]), store=store, clock=clock).run("x", session_id="s")
    with pytest.raises(InvalidInputError, match="waits for a person"):
        async with live.connect(session_id="s"):
            pass


async def test_streams_talk_through_the_agent_that_connect_gives(tmp_path):
    clock, store, live = place()

    async def typed():
        yield "count to three"
        await clock.sleep(5)
        yield "count to two"
        await clock.sleep(5)

    files = WavIO(output=tmp_path / "heard.wav", clock=clock, after="hang_up", quiet_s=8)
    async with live.connect(session_id="s") as agent:
        await agent.run(inputs=[typed(), files.input()], outputs=[files.output()])
    one, two = await rows_of(store, "s")
    assert texts(two) == ["count to three", "one, two, three.", "count to two", "one, two."]
    assert (one.status, two.status, two.parent_id) == ("completed", "completed", one.snapshot_id)


@pytest.mark.parametrize("how", ["the model", "a hook", "the caller"])
async def test_a_talk_that_fails_is_a_row_that_says_why_and_can_be_gone_on_from(how):
    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    broken = RuntimeError("broken")
    model = ScriptedBidiModel(
        [Until("text"), Say("Well."), *([Fail(broken)] if how == "the model" else [])], clock=clock
    )

    def stop(event):
        raise broken

    live = Runner(lambda: BidiAgent(model, clock=clock), store=store, clock=clock)
    with pytest.raises(RuntimeError, match="broken"):
        async with live.connect(session_id="s") as agent:
            if how == "a hook":
                agent.add_hook(stop, BidiAgentStopEvent)
            await say(agent, "hello")
            if how == "the caller":
                raise broken
            if how == "the model":
                async for _ in agent.receive():
                    pass
    row = await store.get_latest_snapshot("s")
    assert (row.status, row.finish_reason, row.error["message"]) == ("failed", "failed", "broken")
    assert (row.owner, row.heartbeat_at, texts(row)) == (None, None, ["hello", "Well."])
    assert str(await Runner(makes("Go on."), store=store, clock=clock).run("bye", session_id="s")) == "Go on."


async def test_what_a_talk_has_asked_a_person_is_answered_by_text_when_the_talk_is_over():
    @tool
    def pay(ctx: ToolContext) -> str:
        """Pay."""
        return "paid" if ctx.interrupt("sure", "Sure?") == "yes" else "not paid"

    clock = VirtualClock()
    store = InMemorySessionStore(clock=clock)
    model = ScriptedBidiModel([Until("text"), CallTools([("pay", {})]), Wait(1), Say("One moment.")], clock=clock)
    live = Runner(lambda: BidiAgent(model, tools=[pay], clock=clock), store=store, clock=clock)
    async with live.connect(session_id="s") as agent:
        await say(agent, "pay")
    typed = Runner(makes("Done.", tools=[pay]), store=store, clock=clock)
    for runner in (live, typed):
        waiting = await runner.get_output(session_id="s")
        assert (waiting.finish_reason, [one.reason for one in waiting.interrupts]) == ("interrupted", ["Sure?"])
    done = await typed.run(session_id="s", resume=[waiting.interrupts[0].answer("yes")])
    row = await store.get_snapshot(done.snapshot_id)
    assert (str(done), texts(row)) == ("Done.", ["pay", "One moment.", "Done."])
    assert row.snapshot.data["messages"][3]["content"][0]["toolResult"]["content"] == [{"text": "paid"}]
    assert row.parent_id == waiting.snapshot_id


def test_a_turn_ends_where_the_user_speaks_after_an_answer():
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "n", "input": {}}}]}
    result = {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "status": "success", "content": []}}]}
    talk = [user("a"), user("b"), call, result, assistant("c"), user("d"), assistant("e"), user("f")]
    assert [_turn_end(talk, start) for start in (0, 5, 7)] == [5, 7, None]


async def test_a_session_goes_on_by_text_live_and_by_text_again_each_in_another_process(tmp_path):
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    told = []
    for role, *said in (("typed", "hello"), ("live", "count to three", "count to two"), ("typed", "count to four")):
        program = str(Path(__file__).parent / "talking.py")
        done = subprocess.run(
            [sys.executable, program, url, role, *said], capture_output=True, text=True, timeout=50, check=False
        )
        assert not done.returncode, done.stderr
        told.append(json.loads(done.stdout))
    assert told[1][:2] == told[0]
    assert told[1][2:] == ["count to three", "one, two, three.", "count to two", "one, two."]
    assert told[2] == [*told[1], "count to four", "one, two, three, four."]
    async with open_store(url) as store:
        assert len(await rows_of(store, "s")) == 4


async def test_a_talk_whose_process_was_killed_is_gone_on_from_with_what_was_said(tmp_path):
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    program = str(Path(__file__).parent / "talking.py")
    command = [sys.executable, program, url, "hang", "count to three", "count to two"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as talker:
        assert talker.stdout.readline() == "hangs\n"
        talker.kill()
    history = ["count to three", "one, two, three.", "count to two", "one, two."]
    async with open_store(url) as store:
        runner = Runner(makes("Typed."), store=store, heartbeat=0.5, expire_after=EXPIRE_S)
        _, last = await rows_of(store, "s")
        with pytest.raises(TaskLostError):
            await runner.wait(last.snapshot_id)
        output = await runner.run("bye", session_id="s")
        assert texts(await store.get_snapshot(output.snapshot_id)) == [*history, "bye", "Typed."]

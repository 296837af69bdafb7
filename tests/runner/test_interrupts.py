"""Turns that wait for a person, and go on in another process."""

import asyncio

import pytest

from antiphon import Agent, Runner, tool
from antiphon.conversation.repair import problems
from antiphon.errors import (
    InvalidInputError,
    InvalidTypeError,
    NotResumableError,
    SnapshotNotFoundError,
    StateManagementError,
)
from antiphon.runner import Respond, Restart, Resume, TurnInput
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, FaultStore, ScriptedModel, VirtualClock
from antiphon.tools.context import ToolContext
from tests.runner.support import rows_of, texts


class Desk:
    """A tool that asks before it pays, and a runner that is made anew for each request."""

    def __init__(self, *script, store=None):
        self.store = InMemorySessionStore() if store is None else store
        self.model = ScriptedModel(list(script))
        self.paid = []

        @tool
        def pay(amount: int, ctx: ToolContext) -> str:
            """Pay."""
            answer = ctx.interrupt("approve", {"amount": amount})
            if answer not in (True, "yes", {"approved": True}):
                return "not paid"
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        def note() -> str:
            """Note."""
            return "noted"

        self.tools = [pay, note]

    async def run(self, *args, **options):
        return await Runner(lambda: Agent(self.model, tools=self.tools), store=self.store).run(*args, **options)


def call(key, amount):
    return {"toolUseId": key, "name": "pay", "input": {"amount": amount}}


def results_of(row):
    return {
        block["toolResult"]["toolUseId"]: block["toolResult"]["content"][0]
        for message in row.snapshot.data["messages"]
        for block in message["content"]
        if "toolResult" in block
    }


async def test_a_turn_that_asks_a_person_is_a_row_that_waits():
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "Paid.")
    asked = await desk.run("Pay")
    row = await desk.store.get_snapshot(asked.snapshot_id)
    assert (asked.finish_reason, row.status, row.finish_reason) == ("interrupted", "completed", "interrupted")
    assert [question.reason for question in asked.interrupts] == [{"amount": 5}]
    assert asked.message["content"][0]["toolUse"] == call("t1", 5)
    assert (row.journal, row.owner, row.heartbeat_at) == (None, None, None)
    done = await desk.run(snapshot_id=asked.snapshot_id, resume=[asked.interrupts[0].answer("yes")])
    assert (str(done), desk.paid) == ("Paid.", [5])
    assert len(await rows_of(desk.store, asked.session_id)) == 2


@pytest.mark.parametrize(
    ("resume", "result", "paid"),
    [
        (Resume([Respond("t1", "by cheque")]), {"text": "by cheque"}, []),
        (Resume([Respond("t1", {"by": "cheque"}, "pay")]), {"json": {"by": "cheque"}}, []),
        ({"respond": [{"toolUseId": "t1", "output": "by cheque", "name": "pay"}]}, {"text": "by cheque"}, []),
        (
            {"respond": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "by cheque"}]}}]},
            {"text": "by cheque"},
            [],
        ),
        (Resume(restart=[Restart("t1")]), {"text": "paid 5"}, [5]),
        (Resume(restart=[Restart("t1", answer="no")]), {"text": "not paid"}, []),
        ({"restart": [{"toolUse": call("t1", 5), "answer": {"approved": True}}]}, {"text": "paid 5"}, [5]),
    ],
)
async def test_a_person_gives_the_result_or_lets_the_tool_go_on(resume, result, paid):
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "So.")
    asked = await desk.run("Pay")
    done = await desk.run(session_id=asked.session_id, resume=resume)
    row = await desk.store.get_snapshot(done.snapshot_id)
    assert (str(done), results_of(row)["t1"], desk.paid) == ("So.", result, paid)
    assert [message["role"] for message in row.snapshot.data["messages"]] == ["user", "assistant", "user", "assistant"]
    assert problems(list(row.snapshot.data["messages"])) == []


async def test_several_calls_are_answered_at_once_each_in_its_way():
    uses = [call("t1", 1), call("t2", 2), {"toolUseId": "n", "name": "note", "input": {}}]
    desk = Desk(Answer(tool_uses=uses), "So.")
    asked = await desk.run("Pay both")
    assert len(asked.interrupts) == 2
    resume = Resume([Respond("t1", "by cheque")], [Restart("t2", "yes")])
    done = await desk.run(TurnInput("And hurry", resume=resume), session_id=asked.session_id)
    row = await desk.store.get_snapshot(done.snapshot_id)
    assert results_of(row) == {"t1": {"text": "by cheque"}, "t2": {"text": "paid 2"}, "n": {"text": "noted"}}
    assert row.snapshot.data["messages"][3] == {"role": "user", "content": [{"text": "And hurry"}]}


@pytest.mark.parametrize("first", [Resume([Respond("t1", "by cheque")]), Resume(restart=[Restart("t1", "yes")])])
async def test_the_rest_still_waits_when_one_call_is_answered(first):
    desk = Desk(Answer(tool_uses=[call("t1", 1), call("t2", 2)]), "So.")
    asked = await desk.run("Pay both")
    half = await desk.run(session_id=asked.session_id, resume=first)
    assert (half.finish_reason, [question.reason for question in half.interrupts]) == ("interrupted", [{"amount": 2}])
    assert len(desk.model.requests) == 1
    done = await desk.run(session_id=asked.session_id, resume=Resume(restart=[Restart("t2", "yes")]))
    assert (str(done), desk.paid[-1]) == ("So.", 2)
    assert set(results_of(await desk.store.get_snapshot(done.snapshot_id))) == {"t1", "t2"}


@pytest.mark.parametrize(
    ("resume", "told"),
    [
        (Resume([Respond("fake", "yes", "pay")]), "not found in session history"),
        (Resume([Respond("t1", "yes", "fakeTool")]), "not found in session history under the name 'fakeTool'"),
        (Resume([Respond("old", "yes")]), "from an earlier turn"),
        (Resume(restart=[Restart("t1", input={"amount": 5000}, check_input=True)]), "modified inputs"),
        ({"restart": [{"toolUse": call("t1", 5000)}]}, "modified inputs"),
        (Resume([Respond("t1", "one")], [Restart("t1")]), "answered twice"),
        (Resume(restart=[Restart("n")]), "has its result already"),
        (Resume(answers={"v1:tool_call:t1:x": "yes"}), "not found in session history as an open question"),
        (Resume(restart=[Restart("t1", None)]), "no answer"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_by_name_and_changes_nothing(resume, told):
    uses = [call("t1", 5), {"toolUseId": "n", "name": "note", "input": {}}]
    desk = Desk(
        Answer(tool_uses=[{"toolUseId": "old", "name": "note", "input": {}}]), "Hi.", Answer(tool_uses=uses), "So."
    )
    await desk.run("Hi", session_id="s")
    asked = await desk.run("Pay", session_id="s")
    failed = await desk.run(session_id="s", resume=resume)
    assert (failed.finish_reason, failed.error.status, failed.message) == ("failed", "INVALID_ARGUMENT", None)
    assert told in failed.error.message
    assert failed.snapshot_id == asked.snapshot_id
    assert (len(await rows_of(desk.store, "s")), desk.paid) == (2, [])
    assert str(await desk.run(session_id="s", resume=Resume(restart=[Restart("t1")]))) == "So."


async def test_a_message_while_a_question_is_open_is_refused():
    desk = Desk(Answer(tool_uses=[call("t1", 1), call("t2", 2)]), "So.")
    asked = await desk.run("Pay both")
    for given in ("Hello?", TurnInput("Hello?", resume=Resume([Respond("t1", "by cheque")]))):
        output = await desk.run(given, session_id=asked.session_id)
        assert (output.finish_reason, output.error.status) == ("failed", "INVALID_ARGUMENT")


async def test_answers_where_nothing_waits_are_refused():
    desk = Desk("Hi.")
    first = await desk.run("Hi")
    output = await desk.run(session_id=first.session_id, resume=Resume([Respond("t1", "yes")]))
    assert "not found in session history" in output.error.message


@pytest.mark.parametrize("resume", [{}, {"answer": 1}, {"respond": [{"output": 1}]}, {"restart": [{"toolUse": {}}]}])
async def test_malformed_answers_are_refused_before_anything_happens(resume):
    with pytest.raises(InvalidInputError):
        await Desk().run("Hi", resume=resume)


async def test_a_malformed_answer_is_told_what_it_lacks():
    with pytest.raises(InvalidInputError, match="an entry lacks 'toolUse'"):
        await Desk().run("Hi", resume={"restart": [{"toolUseId": "t1"}]})


async def test_answers_are_given_once():
    with pytest.raises(InvalidInputError, match="twice"):
        await Desk().run(TurnInput(resume=Resume([Respond("a", 1)])), resume=Resume([Respond("a", 1)]))
    with pytest.raises(InvalidInputError, match="twice"):
        await Desk().run([{"interruptResponse": {"interruptId": "i", "response": 1}}], resume=Resume([Respond("a", 1)]))
    with pytest.raises(InvalidTypeError):
        await Desk().run("Hi", resume="yes")
    with pytest.raises(InvalidInputError, match="resume="):
        await Desk().run([{"toolResult": {"toolUseId": "t", "status": "success", "content": []}}])


async def test_a_question_waits_with_a_client_too():
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "Paid.")
    runner = Runner(lambda: Agent(desk.model, tools=desk.tools), signing_key=b"0123456789abcdef")
    asked = await runner.run("Pay")
    done = await runner.run(state=asked.state, resume=Resume(restart=[Restart("t1")]))
    assert (str(done), desk.paid) == ("Paid.", [5])


async def test_a_question_is_answered_within_one_run():
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "Paid.")
    done = await desk.run([TurnInput("Pay"), TurnInput(resume=Resume(restart=[Restart("t1")]))])
    one, two = await rows_of(desk.store, done.session_id)
    assert (one.finish_reason, two.finish_reason, str(done)) == ("interrupted", "stop", "Paid.")


async def test_branches_of_a_question_are_answered_apart():
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "Paid.", "Not paid.")
    asked = await desk.run("Pay")
    yes = await desk.run(snapshot_id=asked.snapshot_id, resume=Resume(restart=[Restart("t1", "yes")]))
    no = await desk.run(snapshot_id=asked.snapshot_id, resume=Resume(restart=[Restart("t1", "no")]))
    assert [str(yes), str(no), desk.paid] == ["Paid.", "Not paid.", [5]]


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("detached", [True, False])
async def test_a_message_that_came_with_the_answers_survives_a_process_that_dies_in_the_tool(repeatable, detached):
    clock = VirtualClock(autojump=False)
    store = InMemorySessionStore(clock=clock)
    entered, gate = asyncio.Event(), asyncio.Event()

    @tool(repeatable=repeatable)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ctx.interrupt("sure", "Sure?")
        entered.set()
        await gate.wait()
        return "paid"

    def runner(*script, store=store):
        return Runner(lambda: Agent(ScriptedModel(script), tools=[pay], clock=clock), store=store, clock=clock)

    asked = await runner(Answer(tool_uses=[("pay", {})])).run("Pay", session_id="s")
    cut_off = FaultStore(store)
    dead, resume = runner("So.", store=cut_off), [asked.interrupts[0].answer("yes")]
    if detached:
        task = await dead.detach("And hurry", session_id="s", resume=resume)
        await entered.wait()
        await dead.aclose()
    else:
        left = asyncio.create_task(dead.run("And hurry", session_id="s", resume=resume))
        await entered.wait()
        cut_off.fail(verbs=["write"])
    held = (await rows_of(store, "s"))[-1]
    await clock.advance(61)
    gate.set()
    other = runner("So.")
    if detached:
        row = await (await other.adopt(task.snapshot_id)).wait()
    else:
        output = await other.run("Are you there?", session_id="s")
        row = await store.get_snapshot(output.snapshot_id)
        left.cancel()
        for _ in range(10):
            await clock.advance(1)
        await asyncio.gather(left, return_exceptions=True)
    assert held.status == "pending"
    said = [text for text in texts(row) if text != "Are you there?"]
    assert said == ["Pay", "And hurry", "So."]
    assert problems(list(row.snapshot.data["messages"])) == []
    [result] = results_of(row).values()
    assert result == {"text": "paid" if repeatable else "interrupted by a restart"}


async def test_what_waits_for_a_person_is_found_by_whoever_knows_the_session_or_the_row():
    desk = Desk(Answer(tool_uses=[call("t1", 5)]), "Paid.")
    asked = await desk.run("Pay", session_id="s")
    other = Runner(lambda: Agent(desk.model, tools=desk.tools), store=desk.store)
    for where in ({"session_id": "s"}, {"snapshot_id": asked.snapshot_id}):
        found = await other.get_output(**where)
        assert (found.interrupts, found.message, found.usage) == (asked.interrupts, asked.message, asked.usage)
    done = await other.run(session_id="s", resume=[found.interrupts[0].answer("yes")])
    found = await other.get_output(session_id="s")
    assert (found.snapshot_id, str(found), found.interrupts) == (done.snapshot_id, "Paid.", ())


async def test_an_output_is_of_a_run_that_has_ended_and_of_this_agent():
    desk = Desk("Hi.")
    first = await desk.run("Hi", session_id="s")
    runner = Runner(lambda: Agent(desk.model), store=desk.store)
    for where, told in (
        ({}, "give a session_id"),
        ({"session_id": "other", "snapshot_id": first.snapshot_id}, "does not belong"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            await runner.get_output(**where)
    for where in ({"session_id": "none"}, {"snapshot_id": "none"}):
        with pytest.raises(SnapshotNotFoundError):
            await runner.get_output(**where)
    with pytest.raises(InvalidInputError, match="is of agent"):
        await Runner(lambda: Agent(desk.model), store=desk.store, name="x").get_output(snapshot_id=first.snapshot_id)
    with pytest.raises(StateManagementError):
        await Runner(lambda: Agent(desk.model)).get_output(session_id="s")
    clock = VirtualClock(autojump=False)
    hanging = ScriptedModel([Answer(text="No.", pause_after_words=0, until=asyncio.Event())])
    store = InMemorySessionStore(clock=clock)
    at_work = Runner(lambda: Agent(hanging, clock=clock), store=store, clock=clock, state_transform=lambda *_: None)
    task = await at_work.detach("x", session_id="s")
    with pytest.raises(NotResumableError, match="wait for it"):
        await at_work.get_output(session_id="s")
    await task.abort()
    shaped = await at_work.get_output(session_id="s")
    assert (shaped.finish_reason, shaped.message) == ("aborted", None)

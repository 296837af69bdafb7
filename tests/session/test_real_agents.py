"""Sessions under the agents themselves."""

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.agent.turns import Agent
from antiphon.content import text_of
from antiphon.errors import AgentStartedError, SessionSaveError
from antiphon.hooks.events import BeforeModelCallEvent, BidiAgentStopEvent
from antiphon.session import SnapshotSessionManager, read_tree
from antiphon.storage import InMemoryStorage, LocalFileStorage
from antiphon.store import SessionStore
from antiphon.testing import Answer, CallTools, FaultStorage, Say, ScriptedBidiModel, ScriptedModel, VirtualClock
from antiphon.tools import ToolContext, tool

SECRET = "my card is 4242 4242"


def session(storage, **more):
    if isinstance(storage, SessionStore):
        return SnapshotSessionManager("talk", store=storage, **more)
    return SnapshotSessionManager("talk", storage=storage, **more)


def words(agent):
    return [text_of(message) for message in agent.messages]


async def test_an_agent_goes_on_in_the_next_process(tmp_path):
    for index in range(3):
        agent = Agent(
            ScriptedModel([f"answer {index}"]),
            session_manager=session(LocalFileStorage(tmp_path)),
            state={"new": index},
        )
        await agent.invoke_async(f"question {index}")
    assert words(agent) == ["question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2"]
    assert agent.state.get("new") == 0


def test_an_agent_that_is_called_without_a_loop_is_saved_too(tmp_path):
    Agent(ScriptedModel(["hello"]), session_manager=session(LocalFileStorage(tmp_path)))("hi")
    again = Agent(ScriptedModel([]), session_manager=session(LocalFileStorage(tmp_path)))
    assert words(again) == ["hi", "hello"]


async def test_a_plain_turn_under_policy_message_saves_both_messages_and_the_end():
    storage = FaultStorage(InMemoryStorage())
    agent = Agent(ScriptedModel(["hello"]), session_manager=session(storage, save_latest_on="message"))
    await agent.invoke_async("hi")
    assert len(storage.written("latest.json")) == 3
    assert storage.written("open.json") == []


async def test_a_guardrails_redaction_leaves_the_old_text_nowhere_at_rest(place):
    model = ScriptedModel([Answer(text="I must not read that.", redact_user="[redacted]")])
    manager = session(place.inner, save_latest_on="message")
    agent = Agent(model, session_manager=manager)

    async def checkpoint(event: BeforeModelCallEvent[Agent]) -> None:
        await manager.save_snapshot(event.agent, is_latest=False)

    agent.add_hook(checkpoint)
    await agent.invoke_async(SECRET)
    assert SECRET.encode() not in place.everything()
    assert b"[redacted]" in place.everything()
    assert len(await manager.list_snapshot_ids(agent)) == 1


async def test_a_failing_save_hands_the_answer_over_in_its_error(place):
    storage = place.faults
    agent = Agent(ScriptedModel(["hello", "again"]), session_manager=session(storage))
    storage.fail(1)
    with pytest.raises(SessionSaveError) as caught:
        await agent.invoke_async("hi")
    assert str(caught.value.result) == "hello"
    await agent.invoke_async("hm")
    assert (await place.tree()).latest.message_count == 4


@pytest.mark.parametrize("policy", ["message", "invocation"])
async def test_a_question_waits_in_the_next_process_and_its_answer_resumes_the_call(policy, place):
    storage, paid = place.inner, []

    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        answer = context.interrupt("sure", reason="Really?")
        paid.append(answer)
        return f"paid: {answer}"

    first = Agent(
        ScriptedModel([Answer(tool_uses=[("pay", {})])]),
        tools=[pay],
        session_manager=session(storage, save_latest_on=policy),
    )
    asked = await first.invoke_async("pay it")
    assert asked.stop_reason == "interrupt"
    second = Agent(ScriptedModel(["done"]), tools=[pay], session_manager=session(storage, save_latest_on=policy))
    assert paid == []
    answer = {"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "yes"}}
    await second.invoke_async([answer])
    assert paid == ["yes"]
    third = Agent(ScriptedModel([]), tools=[pay], session_manager=session(storage, save_latest_on=policy))
    assert third.messages == second.messages
    assert third.take_journal().empty


async def test_a_tool_that_was_killed_is_known_and_does_not_run_again(place):
    disk, storage, ran = place.inner, place.faults, []

    @tool
    async def book() -> str:
        """Book."""
        ran.append("book")
        storage.cut_power()
        return "booked"

    first = Agent(
        ScriptedModel([Answer(tool_uses=[("book", {})]), "done"]),
        tools=[book],
        session_manager=session(storage, save_latest_on="message"),
    )
    with pytest.raises(SessionSaveError):
        await first.invoke_async("book it")
    model = ScriptedModel(["It may have been booked."])
    second = Agent(model, tools=[book], session_manager=session(disk, save_latest_on="message"))
    await second.invoke_async("and?")
    assert ran == ["book"]
    (result,) = second.messages[2]["content"]
    assert result["toolResult"]["status"] == "error"
    assert words(second)[3:] == ["and?", "It may have been booked."]


async def test_a_stateful_model_gets_its_state_back_and_no_messages(place):
    storage = place.inner
    first = Agent(ScriptedModel(["hello"], stateful=True), session_manager=session(storage))
    await first.invoke_async("hi")
    model = ScriptedModel(["again"], stateful=True)
    second = Agent(model, session_manager=session(storage))
    assert second.messages == []
    assert second.model_state == first.model_state != {}
    await second.invoke_async("hm")
    assert [text_of(message) for message in model.requests[0].messages] == ["hm"]


def live(storage, clock, script, **more):
    manager = session(storage, clock=clock, **more.pop("manager", {}))
    return BidiAgent(ScriptedBidiModel(script, clock=clock), session_manager=manager, clock=clock, **more)


async def drain(agent, until):
    async for event in agent.receive():
        if event.type == until:
            return


async def test_a_call_goes_on_in_the_next_process_with_its_prompt_and_state(tmp_path):
    clock, storage = VirtualClock(), LocalFileStorage(tmp_path)
    first = live(storage, clock, [Say("hello there")], system_prompt="Be kind.")
    async with first:
        await first.send("hi")
        await drain(first, "bidi_response_stop")
        first.state.set("mood", "good")
    second = live(storage, clock, [Say("welcome back")])
    assert second.messages == first.messages
    assert sorted(words(second)) == ["hello there", "hi"]
    assert (second.system_prompt, second.state.get("mood")) == ("Be kind.", "good")


async def test_no_snapshot_is_restored_into_a_call_that_is_live(place):
    clock = VirtualClock()
    agent = live(place.inner, clock, [])
    manager = agent._session_manager
    checkpoint = await manager.save_snapshot(agent, is_latest=False)
    async with agent:
        with pytest.raises(AgentStartedError):
            await manager.restore_snapshot(agent, snapshot_id=checkpoint)
    assert await manager.restore_snapshot(agent, snapshot_id=checkpoint)


async def test_what_a_stop_hook_changes_is_saved_and_a_stop_hook_that_fails_does_not_prevent_it(place):
    clock, storage = VirtualClock(), place.inner
    agent = live(storage, clock, [])

    def change(event: BidiAgentStopEvent[BidiAgent]) -> None:
        event.agent.state.set("last", "word")

    agent.add_hook(change)
    await agent.start()
    await agent.stop()
    assert live(storage, clock, []).state.get("last") == "word"


async def test_a_clean_up_that_fails_still_saves_and_still_raises():
    clock, storage = VirtualClock(), InMemoryStorage()

    class Stuck(ScriptedBidiModel):
        async def stop(self) -> None:
            await super().stop()
            raise ConnectionResetError("would not close")

    agent = BidiAgent(Stuck([], clock=clock), session_manager=session(storage, clock=clock), clock=clock)
    await agent.start()
    agent.state.set("last", "word")
    with pytest.raises(ConnectionResetError):
        await agent.stop()
    assert live(storage, clock, []).state.get("last") == "word"


async def test_a_tool_of_a_live_call_is_in_the_journal_before_it_starts():
    clock, disk = VirtualClock(), InMemoryStorage()
    found = []

    @tool
    async def look() -> str:
        """Look."""
        found.append(disk.sync.read("session/talk/scopes/agent/default/snapshots/open.json"))
        return "found"

    agent = live(disk, clock, [CallTools([("look", {})]), Say("there")], tools=[look])
    async with agent:
        await agent.send("look")
        await drain(agent, "bidi_response_stop")
    assert b'"name":"look"' in found[0]


async def test_a_rewind_branches_the_talk_and_the_tree_shows_it(place):
    clock, storage = VirtualClock(), place.inner
    always = {"snapshot_trigger": lambda *, agent_data, **_: True}
    first = live(storage, clock, [Say("one")], manager=always)
    async with first:
        await first.send("first")
        await drain(first, "bidi_response_stop")
    manager = first._session_manager
    (root,) = await manager.list_snapshot_ids(first)
    for text in ("left", "right"):
        await manager.restore_snapshot(first, snapshot_id=root)
        first.messages.append({"role": "user", "content": [{"text": text}]})
        await manager.save_snapshot(first, is_latest=False)
    tree = await read_tree(storage, "talk")
    assert [node.last_words for node in tree.children(root)] == ["left", "right"]


@pytest.mark.parametrize("stateful", [False, True])
async def test_a_model_that_cannot_be_told_what_a_stateful_one_was_told_is_warned_of(place, stateful, caplog):
    storage = place.inner
    first = Agent(ScriptedModel(["hello", "hello again"], stateful=stateful), session_manager=session(storage))
    for prompt in ("one", "two"):
        await first.invoke_async(prompt)
    second = Agent(ScriptedModel([]), session_manager=session(storage))
    assert words(second) == (["two", "hello again"] if stateful else ["one", "hello", "two", "hello again"])
    assert ("this one is told the newest messages only" in caplog.text) is stateful


@pytest.mark.parametrize("stateful", [False, True])
async def test_what_was_said_to_an_open_turn_survives_processes_that_die_in_its_tool(place, stateful):
    entered, gate = asyncio.Event(), asyncio.Event()

    @tool(repeatable=True)
    async def look() -> str:
        """Look."""
        entered.set()
        await gate.wait()
        return "seen"

    def agent(*script):
        return Agent(
            ScriptedModel(list(script), stateful=stateful),
            tools=[look],
            session_manager=session(place.inner, save_latest_on="message"),
        )

    killed = []
    first = Answer(tool_uses=[("look", {})])
    for text, script in (("Go", [first]), ("And?", []), ("Still there?", [])):
        entered.clear()
        # Left where it is: a process that is killed tells nobody.
        killed.append(asyncio.create_task(agent(*script).invoke_async(text)))
        await entered.wait()
    journal = agent().take_journal()
    assert [text_of(line) for line in journal.lines] == ["", "And?", "Still there?"]
    for task in killed:
        task.cancel()
    again = agent("Yes.")
    gate.set()
    await again.invoke_async("Hm?")
    assert [word for word in words(again) if word][-4:] == ["And?", "Still there?", "Hm?", "Yes."]
    assert again.take_journal().empty
    await asyncio.gather(*killed, return_exceptions=True)

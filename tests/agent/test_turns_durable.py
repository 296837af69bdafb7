"""Turns that are interrupted, by a question or by the end of the process, and go on elsewhere."""

import asyncio
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agent import Agent, ConversationManager, NullConversationManager, SlidingWindowConversationManager
from antiphon.conversation.journal import RESTART_TEXT, Journal
from antiphon.conversation.repair import problems
from antiphon.errors import InterruptError, InvalidInputError, InvalidTypeError, SnapshotException
from antiphon.hooks.events import BeforeToolCallEvent, JournalChangedEvent, MessageAddedEvent
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.session import SnapshotSessionManager
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.fields import TURNS
from antiphon.storage import InMemoryStorage
from antiphon.testing import Answer, FaultStorage, ScriptedModel, VirtualClock
from antiphon.tools import tool
from antiphon.tools.context import ToolContext


def user(text):
    return {"role": "user", "content": [{"text": text}]}


def assistant(text):
    return {"role": "assistant", "content": [{"text": text}]}


class Ledger:
    """Tools that leave a trace: what ran, in order."""

    def __init__(self):
        self.ran = []

        @tool(context=True)
        def pay(amount: int, tool_context: ToolContext) -> str:
            """Pay, when a person agrees."""
            self.ran.append("asked")
            if tool_context.interrupt("approve", reason={"amount": amount}) != "yes":
                return "not paid"
            self.ran.append("paid")
            return f"paid {amount}"

        @tool
        def note() -> str:
            """Note something."""
            self.ran.append("noted")
            return "noted"

        @tool(repeatable=True)
        def look() -> str:
            """Look something up."""
            self.ran.append("looked")
            return "seen"

        self.tools = [pay, note, look]


ASKING = Answer(text="One moment.", tool_uses=[("note", {}), ("pay", {"amount": 5})])


def answers(result, response="yes"):
    return [question.answer(response) for question in result.interrupts]


def results(agent):
    return [
        block["toolResult"]["content"][0]["text"]
        for message in agent.messages
        for block in message["content"]
        if "toolResult" in block
    ]


def on_disk(snapshot):
    return Snapshot.from_json(snapshot.to_json())


# --- questions ---


async def test_a_tool_that_asks_pauses_the_invocation_and_the_answer_resumes_it():
    ledger = Ledger()
    agent = Agent(ScriptedModel([ASKING, "All paid."]), tools=ledger.tools)
    asked = await agent.invoke_async("Pay")
    assert asked.stop_reason == "interrupt"
    assert [(question.name, question.reason) for question in asked.interrupts] == [("approve", {"amount": 5})]
    assert agent.messages == [user("Pay")], "the turn is open: the history does not hold half of it"
    result = await agent.invoke_async(answers(asked))
    assert str(result) == "All paid."
    assert ledger.ran.count("noted") == 1, "what was done is not done again"
    assert ledger.ran.count("paid") == 1
    assert results(agent) == ["noted", "paid 5"]
    assert problems(agent.messages) == []
    assert not agent.interrupt_state.activated


async def test_a_hook_may_ask_before_a_tool_starts():
    ledger = Ledger()
    agent = Agent(ScriptedModel([Answer(tool_uses=[("note", {})]), "Done."]), tools=ledger.tools)

    def ask(event: BeforeToolCallEvent) -> None:
        if event.interrupt("sure", "really?") == "no":
            event.cancel_tool = "the user said no"

    agent.add_hook(ask)
    asked = await agent.invoke_async("Go")
    assert [question.reason for question in asked.interrupts] == ["really?"]
    assert ledger.ran == []
    await agent.invoke_async(answers(asked, "no"))
    assert ledger.ran == []
    assert results(agent) == ["the user said no"]


async def test_two_questions_may_be_answered_one_after_the_other():
    ledger = Ledger()
    twice = Answer(tool_uses=[("pay", {"amount": 1}), ("pay", {"amount": 2})])
    agent = Agent(ScriptedModel([twice, "Done."]), tools=ledger.tools)
    asked = await agent.invoke_async("Go")
    assert len(asked.interrupts) == 2
    again = await agent.invoke_async(answers(asked)[:1])
    assert again.stop_reason == "interrupt"
    assert again.interrupts == asked.interrupts[1:]
    await agent.invoke_async(answers(again, "no"))
    assert results(agent) == ["paid 1", "not paid"]
    assert ledger.ran.count("paid") == 1


async def test_while_a_question_is_open_only_answers_are_taken():
    agent = Agent(ScriptedModel([ASKING, "Done."]), tools=Ledger().tools)
    asked = await agent.invoke_async("Pay")
    with pytest.raises(InvalidTypeError, match=r"must resume from interrupt .*question\.answer"):
        await agent.invoke_async("Hello?")
    with pytest.raises(InterruptError):
        await agent.invoke_async([{"interruptResponse": {"interruptId": "other", "response": "yes"}}])
    assert str(await agent.invoke_async(answers(asked))) == "Done."
    with pytest.raises(InvalidInputError, match="none is open"):
        await agent.invoke_async(answers(asked))


async def test_a_paused_invocation_that_is_resumed_in_another_process_goes_on():
    before, after = Ledger(), Ledger()
    agent = Agent(ScriptedModel([ASKING]), tools=before.tools)
    asked = await agent.invoke_async("Pay")
    snapshot = on_disk(agent.take_snapshot(preset="session"))
    assert problems(snapshot.data["messages"]) == []
    other = Agent(ScriptedModel(["All paid."]), tools=after.tools)
    other.load_snapshot(snapshot)
    assert str(await other.invoke_async(answers(asked))) == "All paid."
    assert after.ran == ["asked", "paid"]
    assert results(other) == ["noted", "paid 5"]


async def test_a_session_that_strands_wrote_while_it_waited_goes_on():
    ledger = Ledger()
    agent = Agent(ScriptedModel([ASKING]), tools=ledger.tools)
    asked = await agent.invoke_async("Pay")
    snapshot = agent.take_snapshot(preset="session")
    # Strands keeps the open turn's message at the end of the history, and in the context.
    message = snapshot.data["interrupt_state"]["context"]["tool_use_message"]
    snapshot.data["messages"].append(copy.deepcopy(message))
    other = Agent(ScriptedModel(["All paid."]), tools=ledger.tools)
    other.load_snapshot(on_disk(snapshot))
    assert other.messages == [user("Pay")]
    await other.invoke_async(answers(asked))
    assert results(other) == ["noted", "paid 5"]
    assert problems(other.messages) == []


@pytest.mark.parametrize(
    "context",
    [
        {"tool_use_message": 7},
        {"tool_use_message": {"role": "assistant", "content": [{"text": "no call"}]}},
        {"tool_use_message": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t"}}]}, "tool_results": [7]},
    ],
)
def test_a_malformed_context_is_refused_and_changes_nothing(context):
    agent = Agent(ScriptedModel([]), messages=[user("kept")])
    state = {"interrupts": {}, "activated": True, "context": context}
    with pytest.raises(SnapshotException):
        agent.load_snapshot(Snapshot("agent", "1.0", {"messages": [user("new")], "interrupt_state": state}, {}))
    assert agent.messages == [user("kept")]


async def test_cancelling_while_a_person_is_asked_closes_the_turn():
    ledger = Ledger()
    agent = Agent(ScriptedModel([ASKING, "Done."]), tools=ledger.tools)
    asked = await agent.invoke_async("Pay")
    agent.add_hook(lambda event: event.agent.cancel(), BeforeToolCallEvent)
    result = await agent.invoke_async(answers(asked))
    assert result.stop_reason == "cancelled"
    assert results(agent) == ["noted", "cancelled"]
    assert not agent.interrupt_state.activated


# --- the journal ---


def keep_journals(agent, kept):
    """Do what a session manager does: keep what would be at rest, at each moment when something is."""

    def changed(event) -> None:
        kept.append((on_disk(agent.take_snapshot(preset="session")), agent.take_journal()))

    agent.add_hook(changed, [JournalChangedEvent, MessageAddedEvent])


def restored(kept, model, tools):
    snapshot, journal = kept
    agent = Agent(model, tools=tools)
    agent.load_snapshot(snapshot)
    agent.load_journal(Journal.from_dict(decode_json(encode_json(copy_json(journal.to_dict())))))
    return agent


async def test_a_tool_starts_only_after_the_journal_says_so():
    told = []

    @tool
    def act() -> str:
        """Act."""
        told.append("act")
        return "done"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("act", {})]), "Done."]), tools=[act])

    def changed(event: JournalChangedEvent) -> None:
        journal = event.agent.take_journal()
        told.append([(call.tool_use["name"], call.started) for call in journal.calls])
        assert journal.lines[0]["content"][0]["toolUse"]["name"] == "act"

    agent.add_hook(changed)
    await agent.invoke_async("Go")
    assert told == [[("act", True)], "act"]
    assert agent.take_journal() == Journal(mark=1)


async def test_a_call_that_had_started_when_the_process_ended_is_told_and_not_run_again():
    ledger, kept = Ledger(), []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("note", {})]), "Done."]), tools=ledger.tools)
    keep_journals(agent, kept)
    await agent.invoke_async("Go")
    started = kept[1]
    assert started[1].calls[0].started
    after = Ledger()
    other = restored(started, ScriptedModel(["It may be noted."]), after.tools)
    assert results(other) == [RESTART_TEXT]
    assert problems(other.messages) == []
    await other.invoke_async("What happened?")
    assert after.ran == []
    assert other.take_journal().mark == 1


async def test_a_result_is_known_while_the_other_calls_of_its_group_still_run():
    seen, known = asyncio.Event(), []

    @tool
    async def slow() -> str:
        """Be slow."""
        await seen.wait()
        return "done"

    ledger = Ledger()
    agent = Agent(ScriptedModel([Answer(tool_uses=[("slow", {}), ("note", {})]), "Done."]), tools=[slow, *ledger.tools])

    def changed(event: JournalChangedEvent) -> None:
        known.append([call.result is not None for call in event.agent.take_journal().calls])
        if known[-1] == [False, True]:
            seen.set()

    agent.add_hook(changed)
    await agent.invoke_async("Go")
    assert known[-1] == [False, True]


async def test_a_repeatable_call_runs_again_before_the_next_prompt():
    ledger, kept = Ledger(), []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("look", {})]), "Done."]), tools=ledger.tools)
    keep_journals(agent, kept)
    await agent.invoke_async("Go")
    after = Ledger()
    model = ScriptedModel(["Seen."])
    other = restored(kept[1], model, after.tools)
    assert other.take_journal().calls, "until then it stays open"
    await other.invoke_async("And?")
    assert after.ran == ["looked"]
    assert [message["role"] for message in model.requests[0].messages] == ["user", "assistant", "user", "user"]
    assert other.messages[3] == user("And?")


async def test_a_question_that_was_open_when_the_process_ended_waits_again():
    ledger, kept = Ledger(), []
    agent = Agent(ScriptedModel([ASKING]), tools=ledger.tools)
    keep_journals(agent, kept)
    asked = await agent.invoke_async("Pay")
    snapshot, journal = kept[-1]
    del snapshot.data["interrupt_state"]  # it was saved before the question was asked
    after = Ledger()
    other = restored((snapshot, journal), ScriptedModel(["All paid."]), after.tools)
    await other.invoke_async(answers(asked))
    assert after.ran == ["asked", "paid"]
    assert results(other) == ["noted", "paid 5"]


async def test_a_paused_call_that_started_after_its_answer_is_not_run_again():
    ledger, kept = Ledger(), []
    agent = Agent(ScriptedModel([ASKING, "Done."]), tools=ledger.tools)
    asked = await agent.invoke_async("Pay")
    paused = on_disk(agent.take_snapshot(preset="session"))
    keep_journals(agent, kept)
    await agent.invoke_async(answers(asked))
    journal = kept[0][1]
    assert [call.started for call in journal.calls if call.result is None] == [True]
    after = Ledger()
    other = restored((paused, journal), ScriptedModel(["Hm."]), after.tools)
    assert results(other) == ["noted", RESTART_TEXT]
    assert not other.interrupt_state.activated
    await other.invoke_async("And?")
    assert after.ran == []


async def test_a_prompt_waits_for_a_repeated_call_that_asks():
    asks = []

    @tool(repeatable=True, context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask, from the second time on."""
        asks.append("asked")
        return tool_context.interrupt("sure") if len(asks) > 1 else "first"

    kept = []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("ask", {})]), "Done."]), tools=[ask])
    keep_journals(agent, kept)
    await agent.invoke_async("Go")
    other = restored(kept[1], ScriptedModel([]), [ask])
    asked = await other.invoke_async("And?")
    assert asked.stop_reason == "interrupt"
    at_rest = on_disk(other.take_snapshot(preset="session")), other.take_journal()
    third = restored(at_rest, ScriptedModel(["Good."]), [ask])
    await third.invoke_async(answers(asked, "sure"))
    assert third.messages[-2:] == [user("And?"), assistant("Good.")]
    assert problems(third.messages) == []


@given(st.booleans(), st.integers(1, 3), st.booleans(), st.data())
def test_wherever_the_process_ends_what_was_said_to_an_open_turn_enters_the_history_once_after_it(
    asks, prompts, repeatable, data
):
    """Processes one after the other die in a tool that has begun again; each was told something by then."""

    @tool(repeatable=True)
    def look() -> str:
        """Look."""
        return "seen"

    @tool(repeatable=repeatable, context=True)
    def pay(tool_context: ToolContext) -> str:
        """Pay."""
        return tool_context.interrupt("sure") if asks else "paid"

    async def scenario():
        kept, said, tools = [], [user("Go")], [look, pay]
        agent = Agent(ScriptedModel([Answer(tool_uses=[("look", {}), ("pay", {})]), "Done."]), tools=tools)
        keep_journals(agent, kept)
        await agent.invoke_async("Go")
        for number in range(prompts):
            open_ones = [at for at, (_, journal) in enumerate(kept) if not journal.empty]
            agent = restored(kept[data.draw(st.sampled_from(open_ones))], ScriptedModel(["Again."]), tools)
            if agent.interrupt_state.open() or agent.take_journal().empty:
                break
            kept = []
            keep_journals(agent, kept)
            await agent.invoke_async(f"And {number}?")
            said.append(user(f"And {number}?"))
            if not any(not journal.empty for _, journal in kept):
                break
        else:
            open_ones = [at for at, (_, journal) in enumerate(kept) if not journal.empty]
            agent = restored(kept[data.draw(st.sampled_from(open_ones))], ScriptedModel(["Last."]), tools)
        if not agent.interrupt_state.open():
            await agent.invoke_async("Bye")
        if waiting := agent.interrupt_state.open():
            await agent.invoke_async([question.answer("no") for question in waiting])
        words = [message for message in agent.messages if message["role"] == "user" and "text" in message["content"][0]]
        assert [word for word in words if word != user("Bye")] == said
        assert problems(agent.messages) == []
        assert agent.take_journal() == Journal(mark=agent.take_journal().mark)

    asyncio.run(scenario())


SCRIPTS = {
    "pay": lambda number: Answer(tool_uses=[("pay", {"amount": number}), ("note", {})]),
    "note": lambda number: Answer(text="noting", tool_uses=[("note", {}), ("look", {})]),
    "talk": lambda number: Answer(text=f"answer {number}"),
}


@given(st.lists(st.sampled_from(sorted(SCRIPTS)), min_size=1, max_size=4), st.data())
def test_wherever_the_process_ends_history_is_a_prefix_and_nothing_runs_twice(plan, data):
    async def live(agent):
        for number in range(len(plan)):
            result = await agent.invoke_async(f"prompt {number}")
            while result.stop_reason == "interrupt":
                result = await agent.invoke_async(answers(result))

    def script():
        return [
            answer
            for number, kind in enumerate(plan)
            for answer in ([SCRIPTS[kind](number), f"done {number}"] if kind != "talk" else [SCRIPTS[kind](number)])
        ]

    async def scenario():
        ledger, kept, counts = Ledger(), [], []
        agent = Agent(ScriptedModel(script()), tools=ledger.tools)
        keep_journals(agent, kept)
        agent.add_hook(lambda event: counts.append(len(ledger.ran)), [JournalChangedEvent, MessageAddedEvent])
        await live(agent)
        at = data.draw(st.integers(0, len(kept) - 1))
        after = Ledger()
        other = restored(kept[at], ScriptedModel(["Welcome back."] * 3), after.tools)
        assert problems(other.messages) == []
        for index, message in enumerate(other.messages):
            if RESTART_TEXT in json.dumps(message):
                assert index == len(other.messages) - 1
            else:
                assert message == agent.messages[index]
        if other.interrupt_state.activated:
            waiting = other.interrupt_state.open()
            await other.invoke_async(
                [{"interruptResponse": {"interruptId": question.id, "response": "no"}} for question in waiting]
            )
        else:
            await other.invoke_async("Hello?")
        assert problems(other.messages) == []
        assert "paid" not in after.ran or "paid" not in ledger.ran[: counts[at]]
        started = [call for call in kept[at][1].calls if call.started and not call.repeatable]
        for call in started:
            if call.tool_use["name"] == "note":
                assert "noted" not in after.ran
        assert other.take_journal().empty

    asyncio.run(scenario())


# --- snapshots ---


def test_an_agent_that_was_restored_is_the_same():
    agent = Agent(
        ScriptedModel([]),
        messages=[user("Hi"), assistant("Hello")],
        system_prompt=[{"text": "Be kind."}, {"cachePoint": {"type": "default"}}],
        state={"cart": ["tea"]},
    )
    agent.model_state["response_id"] = "r1"
    agent.conversation_manager.removed_message_count = 7
    snapshot = agent.take_snapshot(preset="session", include=["system_prompt"], app_data={"by": "me"})
    assert tuple(snapshot.data) == TURNS.fields
    other = Agent(ScriptedModel([]))
    other.load_snapshot(on_disk(snapshot))
    again = other.take_snapshot(preset="session", include=["system_prompt"], app_data={"by": "me"})
    assert again.data == snapshot.data
    assert again.app_data == {"by": "me"}
    assert other.conversation_manager.removed_message_count == 7


async def test_a_history_that_is_loaded_later_is_mended_too():
    agent = Agent(ScriptedModel(["One.", "Two."]))
    await agent.invoke_async("Hi")
    orphan = {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "status": "success", "content": []}}]}
    agent.load_snapshot(Snapshot("agent", "1.0", {"messages": [orphan, user("Hi"), assistant("One.")]}, {}))
    await agent.invoke_async("More")
    assert agent.messages == [user("Hi"), assistant("One."), user("More"), assistant("Two.")]


def test_the_state_of_another_conversation_manager_is_ignored_with_a_warning(caplog):
    agent = Agent(ScriptedModel([]), messages=[user("Hi")])
    agent.conversation_manager.removed_message_count = 7
    other = Agent(ScriptedModel([]), conversation_manager=NullConversationManager())
    other.load_snapshot(agent.take_snapshot(preset="session"))
    assert other.messages == [user("Hi")]
    assert other.conversation_manager.removed_message_count == 0
    assert "SlidingWindowConversationManager" in caplog.text


def test_a_conversation_manager_that_refuses_its_state_leaves_the_agent_as_it_was():
    class Picky(ConversationManager):
        def apply_management(self, agent, **kwargs):
            pass

        def reduce_context(self, agent, e=None, **kwargs):
            pass

        def restore_from_session(self, state):
            raise ValueError("Invalid conversation manager state.")

    agent = Agent(ScriptedModel([]), messages=[user("kept")], state={"a": 1}, conversation_manager=Picky())
    snapshot = Agent(ScriptedModel([]), messages=[user("new")], state={"a": 2}).take_snapshot(preset="session")
    with pytest.raises(SnapshotException, match="Invalid conversation manager state"):
        agent.load_snapshot(snapshot)
    assert agent.messages == [user("kept")]
    assert agent.state.get("a") == 1


def test_an_empty_model_state_clears():
    agent = Agent(ScriptedModel([]))
    agent.model_state["response_id"] = "r1"
    agent.load_snapshot(Snapshot("agent", "1.0", {"model_state": {}}, {}))
    assert agent.model_state == {}


async def test_a_restored_stateful_agent_does_not_send_what_the_provider_has():
    agent = Agent(ScriptedModel(["One."], stateful=True))
    await agent.invoke_async("Hi")
    model = ScriptedModel(["Two."], stateful=True)
    other = Agent(model)
    other.load_snapshot(agent.take_snapshot(preset="session"))
    await other.invoke_async("More")
    assert model.requests[0].messages == [user("More")]
    assert model.requests[0].model_state


def test_the_default_manager_is_a_window_of_forty_messages():
    manager = Agent(ScriptedModel([])).conversation_manager
    assert isinstance(manager, SlidingWindowConversationManager)
    assert manager.window_size == 40


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_tool_whose_start_cannot_be_written_down_runs_only_if_it_may_run_twice(repeatable):
    clock = VirtualClock()
    storage = FaultStorage(InMemoryStorage())
    ran: list[str] = []

    @tool(repeatable=repeatable)
    def act() -> str:
        """Do it."""
        ran.append("ran")
        return "done"

    manager = SnapshotSessionManager("s", storage=storage, save_latest_on="message", on_save_error="retry", clock=clock)
    model = ScriptedModel([Answer(tool_uses=[("act", {})]), "so be it"])
    agent = Agent(model, tools=[act], session_manager=manager, clock=clock)
    storage.fail()
    result = await agent.invoke_async("go")
    assert str(result) == "so be it"
    assert ran == (["ran"] if repeatable else [])
    assert agent.messages[2]["content"][0]["toolResult"]["status"] == ("success" if repeatable else "error")
    storage.mend()
    await clock.sleep(20)

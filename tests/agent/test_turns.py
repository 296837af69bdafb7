"""The turn-based agent: prompts, tools, streaming, stop reasons, errors. Histories stay legal throughout."""

import asyncio
import threading

import pytest

from antiphon.agent import Agent, Limits, ModelRetryStrategy, NullConversationManager, SlidingWindowConversationManager
from antiphon.content import TextBlock
from antiphon.conversation.repair import problems
from antiphon.errors import (
    ConcurrencyException,
    ContextWindowOverflowException,
    InvalidInputError,
    InvalidTypeError,
    MaxTokensReachedException,
    ModelError,
    ModelThrottledException,
)
from antiphon.hooks.events import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    MessageAddedEvent,
    MessageUpdatedEvent,
)
from antiphon.models.base import Model
from antiphon.models.bedrock.converse import BedrockModel
from antiphon.models.embedded.turns import EmbeddedModel
from antiphon.results import Usage
from antiphon.session.base import SessionManager
from antiphon.testing import Answer, ScriptedModel, VirtualClock
from antiphon.tools import tool
from antiphon.tools.context import ToolContext


@tool
def add(one: int, two: int) -> str:
    """Add two numbers."""
    return str(one + two)


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


def user(text):
    return {"role": "user", "content": [{"text": text}]}


def assistant(text):
    return {"role": "assistant", "content": [{"text": text}]}


def roles(agent):
    return [message["role"] for message in agent.messages]


class EventModel(Model):
    """Streams given events, whatever they are."""

    def __init__(self, *streams):
        self.streams = list(streams)

    def get_config(self):
        return {}

    def update_config(self, **config):
        pass

    async def stream(self, messages, tool_specs=None, system_prompt=None, *, model_state=None, **kwargs):
        for event in self.streams.pop(0):
            yield event


# --- prompts ---


async def test_a_prompt_is_answered_and_both_are_in_the_history():
    agent = Agent(ScriptedModel(["Hello there."]))
    result = await agent.invoke_async("Hi")
    assert result.stop_reason == "end_turn"
    assert str(result) == "Hello there."
    assert agent.messages == [user("Hi"), assistant("Hello there.")]


def test_an_agent_is_a_function_of_its_prompt():
    agent = Agent(ScriptedModel(["Hello."]))
    assert str(agent("Hi")) == "Hello."


async def test_a_blocking_call_works_inside_a_running_loop():
    agent = Agent(ScriptedModel(["Hello."]))
    assert str(agent("Hi")) == "Hello."


@pytest.mark.parametrize(
    ("prompt", "added"),
    [
        ("Hi", [user("Hi")]),
        ([{"text": "Hi"}], [user("Hi")]),
        ([TextBlock("Hi")], [user("Hi")]),
        (["Hi", {"text": "there"}], [{"role": "user", "content": [{"text": "Hi"}, {"text": "there"}]}]),
        ([user("One"), assistant("Two"), user("Three")], [user("One"), assistant("Two"), user("Three")]),
    ],
)
async def test_a_prompt_may_be_text_blocks_or_messages(prompt, added):
    agent = Agent(ScriptedModel(["Yes."]))
    await agent.invoke_async(prompt)
    assert agent.messages == [*added, assistant("Yes.")]


async def test_no_prompt_goes_on_with_the_history():
    agent = Agent(ScriptedModel(["Yes."]), messages=[user("Well?")])
    await agent.invoke_async()
    assert agent.messages == [user("Well?"), assistant("Yes.")]


@pytest.mark.parametrize(
    "prompt",
    [
        7,
        {"text": "Hi"},
        "",
        "  ",
        [7],
        [{}],
        [user("Hi"), {"text": "Hi"}],
        [{"role": "nobody", "content": []}],
        [{"role": "user"}],
        [{"role": "user", "content": []}],
        [{"text": float("nan")}],
        [{"interruptResponse": {"interruptId": "x", "response": 1}}],
        None,
        [],
    ],
    ids=repr,
)
async def test_what_is_no_prompt_is_refused_and_changes_nothing(prompt):
    agent = Agent(ScriptedModel(["Yes."]))
    with pytest.raises(InvalidInputError):
        await agent.invoke_async(prompt)
    assert agent.messages == []
    assert str(await agent.invoke_async("Hi")) == "Yes."


async def test_a_prompt_is_copied():
    agent = Agent(ScriptedModel(["Yes."]))
    prompt = [user("Hi")]
    await agent.invoke_async(prompt)
    prompt[0]["content"][0]["text"] = "changed"
    assert agent.messages[0] == user("Hi")


def test_a_model_may_be_named_and_is_one_of_bedrocks_without_a_provider():
    assert isinstance(Agent("embedded").model, EmbeddedModel)
    assert Agent("amazon.nova-pro-v1:0").model.get_config()["model_id"] == "amazon.nova-pro-v1:0"
    assert isinstance(Agent().model, BedrockModel)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [(7, InvalidTypeError, "must be a Model"), ("nobody:x", InvalidInputError, "write one of anthropic:<model id>")],
)
def test_what_is_no_model_and_names_none_is_refused(model, error, words):
    with pytest.raises(error, match=words):
        Agent(model)


# --- tools ---


async def test_tools_run_and_their_results_go_back_to_the_model():
    model = ScriptedModel([Answer(text="Let me see.", tool_uses=[("add", {"one": 1, "two": 2})]), "It is three."])
    agent = Agent(model, tools=[add])
    result = await agent.invoke_async("1 + 2?")
    assert str(result) == "It is three."
    assert result.model_calls == 2
    assert roles(agent) == ["user", "assistant", "user", "assistant"]
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "3"}]
    assert model.requests[1].messages == agent.messages[:3]
    assert [spec["name"] for spec in model.requests[0].tool_specs] == ["add"]


async def test_tools_of_one_answer_run_at_once_and_their_results_stand_in_the_order_of_the_calls():
    second_is_done = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_is_done.wait()
        return "one"

    @tool
    async def second() -> str:
        """Let the first go on."""
        second_is_done.set()
        return "two"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("first", {}), ("second", {})]), "Done."]), tools=[first, second])
    await agent.invoke_async("Go")
    assert [block["toolResult"]["content"][0]["text"] for block in agent.messages[2]["content"]] == ["one", "two"]


async def test_a_tool_that_fails_and_one_that_nobody_knows_are_told_to_the_model():
    agent = Agent(ScriptedModel([Answer(tool_uses=[("fail", {}), ("unknown", {})]), "Sorry."]), tools=[fail])
    await agent.invoke_async("Go")
    results = [block["toolResult"] for block in agent.messages[2]["content"]]
    assert [result["status"] for result in results] == ["error", "error"]
    assert "no luck" in results[0]["content"][0]["text"]
    assert "Unknown tool: unknown" in results[1]["content"][0]["text"]


async def test_a_call_enters_the_history_together_with_its_result():
    seen = []

    @tool(context=True)
    def look(tool_context: ToolContext) -> str:
        """Look at the history."""
        seen.append(problems(tool_context.agent.messages))
        return "seen"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("look", {})]), "Done."]), tools=[look])
    agent.add_hook(lambda event: seen.append(problems(event.agent.messages)), MessageAddedEvent)
    await agent.invoke_async("Go")
    assert seen == [[], [], [], [], []]


async def test_the_state_of_an_invocation_is_shared_by_reference():
    @tool(context=True)
    def note(tool_context: ToolContext) -> str:
        """Note something."""
        tool_context.invocation_state["noted"] = True
        return "noted"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("note", {})]), "Done."]), tools=[note])
    state = {"who": "me"}
    result = await agent.invoke_async("Go", invocation_state=state)
    assert state == {"who": "me", "noted": True}
    assert result.state is state


async def test_an_id_that_the_history_knows_is_replaced():
    call = {"toolUseId": "same", "name": "add", "input": {"one": 1, "two": 1}}
    agent = Agent(ScriptedModel([Answer(tool_uses=[call, call]), Answer(tool_uses=[call]), "Done."]), tools=[add])
    await agent.invoke_async("Go")
    assert problems(agent.messages) == []
    assert str(agent.messages).count("'same'") == 2, "the first call and its result keep it"


def events_of_call(text):
    return [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "t", "name": "add"}}}},
        {"contentBlockDelta": {"delta": {"toolUse": {"input": text}}}},
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]


def events_of_text(text, *, stop="end_turn"):
    return [
        {"contentBlockDelta": {"delta": {"text": text}}},
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": stop}},
    ]


@pytest.mark.parametrize("text", ['{"one": 1', "[1]", '{"one": NaN}'])
async def test_a_call_whose_input_is_no_json_object_does_not_run_and_the_model_is_told(text):
    agent = Agent(EventModel(events_of_call(text), events_of_text("Sorry.")), tools=[add])
    await agent.invoke_async("Go")
    result = agent.messages[2]["content"][0]["toolResult"]
    assert result["status"] == "error"
    assert "JSON" in result["content"][0]["text"]
    assert problems(agent.messages) == []


# --- streaming ---


async def test_a_stream_tells_what_happens_and_ends_with_the_result():
    @tool
    async def count():
        """Count."""
        yield "one"
        yield "two"

    model = ScriptedModel([Answer(text="Let me count.", reasoning="Hm.", tool_uses=[("count", {})]), "Two."])
    agent = Agent(model, tools=[count])
    events = [event async for event in agent.stream_async("How many?")]
    assert all(len(event) == 1 for event in events)
    text = "".join(event["data"] for event in events if "data" in event)
    assert text == "Let me count.Two."
    assert "".join(event["reasoning"] for event in events if "reasoning" in event) == "Hm."
    assert any(event["current_tool_use"]["name"] == "count" for event in events if "current_tool_use" in event)
    assert [event["tool_stream_event"]["data"] for event in events if "tool_stream_event" in event][:1] == ["one"]
    assert [event["message"] for event in events if "message" in event] == agent.messages[1:]
    assert events[-1]["result"].stop_reason == "end_turn"


async def test_an_error_comes_out_of_the_stream_unchanged():
    error = ModelError("the provider is down")
    agent = Agent(ScriptedModel([Answer(text="one two", error=error, error_after_words=1)]))
    heard = 0
    with pytest.raises(ModelError) as caught:
        async for event in agent.stream_async("Hi"):
            heard += "data" in event
    assert caught.value is error
    assert heard > 0


async def test_whoever_stops_listening_ends_the_invocation():
    never = asyncio.Event()
    agent = Agent(ScriptedModel([Answer(text="one two", pause_after_words=1, until=never), "Again."]))
    stream = agent.stream_async("Hi")
    async for _ in stream:
        break
    await stream.aclose()
    assert str(await agent.invoke_async("Still there?")) == "Again."


async def test_a_model_waits_for_a_listener_that_is_far_behind():
    class Endless(EventModel):
        made = 0

        async def stream(self, *args, **kwargs):
            while True:
                self.made += 1
                yield {"contentBlockDelta": {"delta": {"text": "la "}}}

    model = Endless()
    agent = Agent(model)
    stream = agent.stream_async("Sing")
    await anext(stream)
    for _ in range(200):
        await asyncio.sleep(0)
    assert model.made < 100
    agent.cancel()
    rest = [event async for event in stream]
    assert rest[-1]["result"].stop_reason == "cancelled"


# --- how answers end ---


async def test_usage_is_summed_over_the_calls_of_the_model():
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    model = ScriptedModel(
        [Answer(tool_uses=[("add", {"one": 1, "two": 1})], usage=usage), Answer(text="2", usage=usage)]
    )
    result = await Agent(model, tools=[add]).invoke_async("1 + 1?")
    assert result.usage == Usage(20, 10, 30)


async def test_an_answer_that_reaches_its_limit_raises_and_its_beginning_stays():
    agent = Agent(ScriptedModel([Answer(text="Once upon", stop_reason="max_tokens"), "a time"]))
    with pytest.raises(MaxTokensReachedException):
        await agent.invoke_async("Tell me")
    assert agent.messages == [user("Tell me"), assistant("Once upon")]
    await agent.invoke_async("Go on")
    assert problems(agent.messages) == []


async def test_no_half_call_stays_in_the_history():
    model = ScriptedModel([Answer(text="Wait", tool_uses=[("add", {"one": 1, "two": 1})], stop_reason="max_tokens")])
    agent = Agent(model, tools=[add])
    with pytest.raises(MaxTokensReachedException):
        await agent.invoke_async("Go")
    assert problems(agent.messages) == []
    assert "'add' was cut off" in agent.messages[-1]["content"][-1]["text"]


@pytest.mark.parametrize("stop", ["content_filtered", "guardrail_intervened", "stop_sequence"])
async def test_the_reason_why_an_answer_ended_is_told(stop):
    agent = Agent(ScriptedModel([Answer(text="So", stop_reason=stop)]))
    assert (await agent.invoke_async("Hi")).stop_reason == stop


async def test_an_answer_without_words_leaves_no_message():
    agent = Agent(EventModel([{"messageStop": {"stopReason": "end_turn"}}]))
    result = await agent.invoke_async("Hi")
    assert result.message["content"] == []
    assert agent.messages == [user("Hi")]


@pytest.mark.parametrize(
    "events", [[{"contentBlockDelta": {"delta": {"text": "Hi"}}}], events_of_text("Hi", stop="odd")]
)
async def test_a_stream_that_breaks_the_contract_is_an_error(events):
    agent = Agent(EventModel(events))
    with pytest.raises(ModelError):
        await agent.invoke_async("Hi")
    assert agent.messages == [user("Hi")]


async def test_an_error_of_the_model_leaves_the_prompt_and_a_legal_history():
    error = ModelError("down")
    agent = Agent(ScriptedModel([error, "Back."]))
    with pytest.raises(ModelError) as caught:
        await agent.invoke_async("Hi")
    assert caught.value is error
    assert str(await agent.invoke_async("And now?")) == "Back."
    assert problems(agent.messages) == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=1), "limit_turns"),
        (Limits(output_tokens=5), "limit_output_tokens"),
        (Limits(total_tokens=15), "limit_total_tokens"),
    ],
)
async def test_limits_end_an_invocation_between_requests(limits, reason):
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    model = ScriptedModel([Answer(tool_uses=[("add", {"one": 1, "two": 1})], usage=usage), "2"])
    agent = Agent(model, tools=[add])
    result = await agent.invoke_async("1 + 1?", limits=limits)
    assert result.stop_reason == reason
    assert len(model.requests) == 1
    assert problems(agent.messages) == []
    assert str(await agent.invoke_async()) == "2"


# --- asking again ---


async def test_a_model_that_asks_to_slow_down_is_asked_again_later():
    clock = VirtualClock()
    agent = Agent(
        ScriptedModel([ModelThrottledException("slow"), ModelThrottledException("slow"), "Here."]), clock=clock
    )
    assert str(await agent.invoke_async("Hi")) == "Here."
    assert clock.now() == pytest.approx(12.0)


async def test_a_model_that_asks_to_slow_down_for_ever_is_given_up():
    agent = Agent(
        ScriptedModel([ModelThrottledException("slow")] * 2),
        retry_strategy=ModelRetryStrategy(max_attempts=2),
        clock=VirtualClock(),
    )
    with pytest.raises(ModelThrottledException):
        await agent.invoke_async("Hi")


async def test_without_a_strategy_nobody_waits():
    agent = Agent(ScriptedModel([ModelThrottledException("slow")]), retry_strategy=None)
    with pytest.raises(ModelThrottledException):
        await agent.invoke_async("Hi")


async def test_a_hook_may_have_the_model_asked_again():
    agent = Agent(ScriptedModel(["Bad.", ModelError("down"), "Good."]))

    def judge(event: AfterModelCallEvent) -> None:
        event.retry = event.exception is not None or event.message["content"][0]["text"] == "Bad."

    agent.add_hook(judge)
    assert str(await agent.invoke_async("Hi")) == "Good."
    assert agent.messages == [user("Hi"), assistant("Good.")]


async def test_a_history_that_is_too_long_is_made_shorter():
    history = [message for number in range(5) for message in (user(f"q{number}"), assistant(f"a{number}"))]
    model = ScriptedModel(
        [ContextWindowOverflowException("too long"), ContextWindowOverflowException("too long"), "Fine."]
    )
    agent = Agent(model, messages=history, conversation_manager=SlidingWindowConversationManager(8))
    assert str(await agent.invoke_async("Hi")) == "Fine."
    assert agent.messages[0] == user("q3")
    assert agent.conversation_manager.removed_message_count == 6


async def test_a_history_that_cannot_be_made_shorter_is_an_error():
    agent = Agent(
        ScriptedModel([ContextWindowOverflowException("too long")]), conversation_manager=NullConversationManager()
    )
    with pytest.raises(ContextWindowOverflowException):
        await agent.invoke_async("Hi")


# --- hooks ---


async def test_hooks_are_called_in_the_order_of_things():
    told = []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("add", {"one": 1, "two": 1})]), "2"]), tools=[add])
    kinds = [
        BeforeInvocationEvent,
        MessageAddedEvent,
        BeforeModelCallEvent,
        AfterModelCallEvent,
        BeforeToolCallEvent,
        AfterToolCallEvent,
        AfterInvocationEvent,
    ]
    agent.add_hook(lambda event: told.append(type(event).__name__.removesuffix("Event")), kinds)
    await agent.invoke_async("1 + 1?")
    assert told == [
        "BeforeInvocation",
        "MessageAdded",
        *["BeforeModelCall", "AfterModelCall", "BeforeToolCall", "AfterToolCall", "MessageAdded", "MessageAdded"],
        *["BeforeModelCall", "AfterModelCall", "MessageAdded"],
        "AfterInvocation",
    ]


async def test_a_hook_may_replace_the_prompt_or_end_the_invocation():
    agent = Agent(ScriptedModel(["Yes."]))

    def change(event: BeforeInvocationEvent) -> None:
        if event.messages == [user("stop")]:
            event.cancel = "Not today."
        event.messages = [user("changed")]

    agent.add_hook(change)
    result = await agent.invoke_async("stop")
    assert (result.stop_reason, str(result)) == ("cancelled", "Not today.")
    assert agent.messages == []
    await agent.invoke_async("Hi")
    assert agent.messages == [user("changed"), assistant("Yes.")]


async def test_a_hook_may_answer_in_place_of_the_model():
    model = ScriptedModel([])
    agent = Agent(model)
    agent.add_hook(lambda event: setattr(event, "cancel", "From memory."), BeforeModelCallEvent)
    assert str(await agent.invoke_async("Hi")) == "From memory."
    assert model.requests == []
    assert agent.messages == [user("Hi"), assistant("From memory.")]


async def test_a_hook_may_go_on_with_another_prompt():
    agent = Agent(ScriptedModel(["One.", "Two."]))

    def go_on(event: AfterInvocationEvent) -> None:
        if str(event.result) == "One.":
            event.resume = "More"

    agent.add_hook(go_on)
    assert str(await agent.invoke_async("Hi")) == "Two."
    assert agent.messages == [user("Hi"), assistant("One."), user("More"), assistant("Two.")]


async def test_the_end_is_told_when_an_invocation_fails():
    results = []
    agent = Agent(ScriptedModel([ModelError("down")]))
    agent.add_hook(lambda event: results.append(event.result), AfterInvocationEvent)
    with pytest.raises(ModelError):
        await agent.invoke_async("Hi")
    assert results == [None]


async def test_a_hook_that_raises_while_tools_run_leaves_a_legal_history():
    never = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await never.wait()
        return "done"

    def refuse(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "add":
            raise RuntimeError("a bug in a hook")

    agent = Agent(
        ScriptedModel([Answer(tool_uses=[("wait", {}), ("add", {"one": 1, "two": 1})]), "Back."]), tools=[wait, add]
    )
    agent.add_hook(refuse)
    with pytest.raises(RuntimeError, match="a bug in a hook"):
        await agent.invoke_async("Go")
    assert roles(agent) == ["user", "assistant", "user"]
    assert problems(agent.messages) == []
    assert agent.take_journal().empty
    assert str(await agent.invoke_async("And now?")) == "Back."


async def test_a_task_that_is_cancelled_from_outside_leaves_a_legal_history():
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "done"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("wait", {})]), "Back."]), tools=[wait])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.invoke_async("Go"))
        await begun.wait()
        task.cancel()
    assert roles(agent) == ["user", "assistant", "user"]
    assert problems(agent.messages) == []
    assert str(await agent.invoke_async("And now?")) == "Back."


# --- one at a time ---


async def test_a_second_invocation_is_refused_while_one_is_under_way():
    go_on = asyncio.Event()
    agent = Agent(ScriptedModel([Answer(text="one", pause_after_words=0, until=go_on), "two"]))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(agent.invoke_async("Hi"))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrencyException):
            await agent.invoke_async("Me too")
        with pytest.raises(ConcurrencyException):
            agent.load_snapshot(agent.take_snapshot(preset="session"))
        go_on.set()
    assert str(first.result()) == "one"
    assert str(await agent.invoke_async("Now?")) == "two"


# --- cancellation ---


async def test_cancelling_keeps_what_was_said_so_far():
    never = asyncio.Event()
    agent = Agent(ScriptedModel([Answer(text="one two three", pause_after_words=2, until=never), "Again."]))
    said = ""
    async for event in agent.stream_async("Count"):
        said += event.get("data", "")
        if said.strip() == "one two":
            threading.Thread(target=agent.cancel).start()
        if "result" in event:
            result = event["result"]
    assert result.stop_reason == "cancelled"
    assert agent.messages[1]["content"][0]["text"].strip() == "one two"
    assert agent.messages[1]["metadata"] == {"interrupted": True}
    assert agent.cancel_signal.is_set()
    assert str(await agent.invoke_async("Go on")) == "Again."
    assert not agent.cancel_signal.is_set()


async def test_cancelling_before_a_word_is_said_leaves_the_callers_word():
    never = asyncio.Event()
    agent = Agent(ScriptedModel([Answer(text="one", pause_after_words=0, until=never)]))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.invoke_async("Hi"))
        await asyncio.sleep(0)
        agent.cancel(message="The user hung up.")
    assert task.result().stop_reason == "cancelled"
    assert agent.messages[1]["content"] == [{"text": "The user hung up."}]


async def test_cancelling_when_nothing_is_under_way_does_nothing():
    agent = Agent(ScriptedModel(["Hi."]))
    agent.cancel()
    assert (await agent.invoke_async("Hi")).stop_reason == "end_turn"


async def test_tools_see_the_signal_and_have_two_seconds():
    clock = VirtualClock()

    @tool(context=True)
    async def polite(tool_context: ToolContext) -> str:
        """End when asked to."""
        while not tool_context.cancel_signal.is_set():
            await clock.sleep(0.5)
        await clock.sleep(1)
        return "put away"

    @tool
    async def stubborn() -> str:
        """Do not end."""
        await asyncio.Event().wait()
        return "never"

    @tool(context=True)
    async def canceller(tool_context: ToolContext) -> str:
        """Cancel."""
        await clock.sleep(5)
        tool_context.agent.cancel()
        return "cancelled it"

    calls = [("polite", {}), ("stubborn", {}), ("canceller", {})]
    agent = Agent(ScriptedModel([Answer(tool_uses=calls)]), tools=[polite, stubborn, canceller], clock=clock)
    result = await agent.invoke_async("Go")
    assert result.stop_reason == "cancelled"
    assert [block["toolResult"]["content"][0]["text"] for block in agent.messages[2]["content"]] == [
        "put away",
        "cancelled",
        "cancelled it",
    ]
    assert clock.now() == pytest.approx(7.0)
    assert problems(agent.messages) == []


async def test_cancelling_before_tools_start_lets_none_start():
    ran = []

    @tool
    def act() -> str:
        """Act."""
        ran.append("act")
        return "done"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("act", {})])]), tools=[act])
    agent.add_hook(lambda event: event.agent.cancel(), BeforeToolCallEvent)
    assert (await agent.invoke_async("Go")).stop_reason == "cancelled"
    assert ran == []
    assert problems(agent.messages) == []
    agent = Agent(ScriptedModel([Answer(tool_uses=[("act", {})])]), tools=[act])
    agent.add_hook(lambda event: event.agent.cancel(), AfterModelCallEvent)
    assert (await agent.invoke_async("Go")).stop_reason == "cancelled"
    assert ran == []
    assert problems(agent.messages) == []


async def test_cancelling_after_the_current_tools_lets_them_end():
    @tool(context=True)
    async def act(tool_context: ToolContext) -> str:
        """Act."""
        tool_context.agent.cancel(after_current_tools=True)
        assert not tool_context.cancel_signal.is_set()
        return "done"

    agent = Agent(ScriptedModel([Answer(tool_uses=[("act", {})]), "Never said."]), tools=[act])
    result = await agent.invoke_async("Go")
    assert result.stop_reason == "cancelled"
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "done"}]


async def test_cancelling_ends_the_wait_for_a_slow_provider():
    clock = VirtualClock(autojump=False)
    agent = Agent(ScriptedModel([ModelThrottledException("slow")]), clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.invoke_async("Hi"))
        await clock.advance(1)
        agent.cancel()
        agent.cancel()
    assert task.result().stop_reason == "cancelled"


# --- histories that others wrote ---


async def test_a_dangling_call_is_mended_before_a_new_prompt_and_left_out_at_rest():
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "add", "input": {}}}]}
    agent = Agent(ScriptedModel(["Sorry."]), messages=[user("Go"), call])
    assert agent.take_snapshot(preset="session").data["messages"] == [user("Go")]
    await agent.invoke_async("Well?")
    assert problems(agent.messages) == []
    assert agent.messages[2]["content"][0]["toolResult"]["status"] == "error"
    assert agent.messages[3] == user("Well?")


async def test_a_history_is_bounded_at_the_end_of_an_invocation():
    agent = Agent(ScriptedModel(["a", "b", "c"]), conversation_manager=SlidingWindowConversationManager(2))
    for text in ("1", "2", "3"):
        await agent.invoke_async(text)
    assert agent.messages == [user("3"), assistant("c")]


# --- redaction ---


class Remembering(SessionManager):
    """Remembers the redactions it is told."""

    def __init__(self):
        self.session_id = "s"
        self.redacted = []

    def initialize(self, agent, **kwargs):
        pass

    def sync_agent(self, agent, **kwargs):
        pass

    def append_message(self, message, agent, **kwargs):
        pass

    def redact_latest_message(self, redact_message, agent, **kwargs):
        assert agent.messages[-1] is redact_message
        self.redacted.append(redact_message["content"])


async def test_a_redaction_replaces_the_prompt_and_the_answer_and_tells_the_session():
    manager, updated = Remembering(), []
    model = ScriptedModel([Answer(text="My secret", redact_user="[blocked]", redact_answer="[no answer]")])
    agent = Agent(model, session_manager=manager)
    agent.add_hook(lambda event: updated.append((event.index, event.message)), MessageUpdatedEvent)
    events = [event async for event in agent.stream_async("Your secret?")]
    assert agent.messages == [user("[blocked]"), assistant("[no answer]")]
    assert manager.redacted == [[{"text": "[blocked]"}]]
    assert updated == [(0, user("[blocked]"))]
    assert {"redact": {"role": "user", "text": "[blocked]"}} in events
    assert agent.session_id == "s"


async def test_a_redaction_of_results_leaves_a_legal_history():
    model = ScriptedModel(
        [Answer(tool_uses=[("add", {"one": 1, "two": 1})]), Answer(text="So.", redact_user="[blocked]")]
    )
    agent = Agent(model, tools=[add])
    await agent.invoke_async("Go")
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "[blocked]"}]
    assert problems(agent.messages) == []


async def test_calls_of_a_redacted_answer_do_not_run():
    model = ScriptedModel([Answer(tool_uses=[("fail", {})], redact_answer="[no]", stop_reason="guardrail_intervened")])
    agent = Agent(model, tools=[fail])
    result = await agent.invoke_async("Go")
    assert result.stop_reason == "guardrail_intervened"
    assert agent.messages == [user("Go"), assistant("[no]")]


# --- models that keep the history ---


async def test_a_stateful_model_is_sent_what_is_new_only():
    model = ScriptedModel([Answer(tool_uses=[("add", {"one": 1, "two": 1})]), "2", "Bye."], stateful=True)
    agent = Agent(model, tools=[add])
    await agent.invoke_async("1 + 1?")
    await agent.invoke_async("Thanks")
    sent = [request.messages for request in model.requests]
    assert sent[0] == [user("1 + 1?")]
    assert [message["role"] for message in sent[1]] == ["user"]
    assert "toolResult" in sent[1][0]["content"][0]
    assert sent[2] == [user("Thanks")]
    assert agent.messages == [user("Thanks"), assistant("Bye.")]
    assert agent.model_state


async def test_what_a_stateful_model_did_not_get_is_sent_again():
    model = ScriptedModel([ModelError("down"), "Hi."], stateful=True)
    agent = Agent(model)
    with pytest.raises(ModelError):
        await agent.invoke_async("One")
    await agent.invoke_async("Two")
    assert model.requests[1].messages == [user("One"), user("Two")]


def test_what_is_no_conversation_manager_is_refused():
    with pytest.raises(InvalidTypeError, match="conversation_manager='sliding' is not a ConversationManager"):
        Agent(ScriptedModel([]), conversation_manager="sliding")


def test_a_stateful_model_takes_no_conversation_manager():
    with pytest.raises(InvalidInputError, match="conversation_manager"):
        Agent(ScriptedModel([], stateful=True), conversation_manager=SlidingWindowConversationManager())

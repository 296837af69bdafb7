"""What a model that answers in turns is, as tests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import deepcopy
from typing import Any, cast

import pytest

from antiphon.agent.turns import Agent
from antiphon.content import ToolSpec, text_of
from antiphon.errors import (
    ContextWindowOverflowException,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelThrottledException,
)
from antiphon.jsonable import encode_json
from antiphon.models.base import Model, StreamEvent
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.memory import InMemoryStorage
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.support import (
    PATIENCE_S,
    PIXEL_PNG,
    Lacks,
    MakeModel,
    TurnProvider,
    ask,
    assistant,
    in_virtual_time,
    nobody,
    result,
    tells_nothing,
    user,
)
from antiphon.tools.decorator import tool

WEATHER: ToolSpec = {
    "name": "weather",
    "description": "Tells the weather of a city",
    "inputSchema": {
        "json": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        }
    },
}
CLOCK: ToolSpec = {
    "name": "clock",
    "description": "Tells the time",
    "inputSchema": {"json": {"type": "object", "properties": {}}},
}
ODD_TEXT = '\u202eعربي\u202c 𝄞 "quoted" \\ back\n\ttab 日本'


class ModelContract(Lacks):
    """The suite that defines a model that answers in turns. Subclass it, and give two fixtures.

    `provider` is a `TurnProvider`: the provider's server on loopback, or anything else that follows a script. `make_model`
    makes a model that asks it; what the suite hands over (`key`, `model_id`, `url`, `clock`) goes before what it would
    use by itself. What a model cannot do goes into `lacks`, with the reason::

        class TestMine(ModelContract):
            lacks = {"images": "this model reads text only"}

            @pytest.fixture
            async def provider(self):
                async with MyServer() as server:
                    yield server

            @pytest.fixture
            def make_model(self, provider):
                return lambda **given: MyModel(**{"url": provider.url, "key": provider.key, **given})

    Capabilities that may be lacking: `tools`, `parallel_tools`, `images`, `reasoning`, `usage`, `credentials`,
    `model_names`, `network`, `throttling`, `overflow`, `max_tokens`, `breaks`, `holding`.
    """

    @pytest.fixture
    def provider(self) -> TurnProvider:
        raise NotImplementedError("give the fixture `provider`")

    @pytest.fixture
    def make_model(self, provider: TurnProvider) -> MakeModel:
        raise NotImplementedError("give the fixture `make_model`")

    @pytest.fixture
    def model(self, make_model: MakeModel) -> Model:
        return make_model()

    # Answers

    async def test_an_answer_has_its_words_its_end_and_its_order(self, model: Model, provider: TurnProvider) -> None:
        provider.say("Good morning to you.")
        told = await ask(model, [user("hello")])
        assert told.text == "Good morning to you."
        assert told.stop_reason == "end_turn"
        assert told.kinds[0] == "messageStart"

    async def test_odd_characters_come_through_both_ways(self, model: Model, provider: TurnProvider) -> None:
        provider.say(ODD_TEXT)
        told = await ask(model, [user(ODD_TEXT)], system=ODD_TEXT)
        assert told.text == ODD_TEXT

    async def test_the_messages_handed_over_are_not_changed(self, model: Model, provider: TurnProvider) -> None:
        provider.say("yes")
        history = [user("a"), assistant("b"), user("c", "d")]
        before = deepcopy(history)
        await ask(model, history, system="Be kind.", tools=None if "tools" in self.lacks else [WEATHER])
        assert history == before

    async def test_tokens_are_counted(self, model: Model, provider: TurnProvider) -> None:
        self.needs("usage")
        provider.say("one two three")
        told = await ask(model, [user("count")])
        assert told.usage is not None
        assert told.usage["inputTokens"] > 0
        assert told.usage["outputTokens"] > 0
        assert told.usage["totalTokens"] >= told.usage["inputTokens"] + told.usage["outputTokens"]

    async def test_an_answer_cut_by_its_token_limit_says_so(self, model: Model, provider: TurnProvider) -> None:
        self.needs("max_tokens")
        provider.stop("max_tokens")
        told = await ask(model, [user("go on for ever")])
        assert told.stop_reason == "max_tokens"

    async def test_what_was_thought_comes_as_reasoning_and_may_be_sent_back(
        self, model: Model, provider: TurnProvider
    ) -> None:
        self.needs("reasoning")
        provider.say("Four.", reasoning="Two and two make four.")
        told = await ask(model, [user("2+2?")])
        assert told.text == "Four."
        assert "Two and two make four." in told.reasoning
        assert "Four." not in told.reasoning
        provider.say("Sure.")
        again = await ask(model, [user("2+2?"), assistant(*told.content), user("sure?")])
        assert again.text == "Sure."

    async def test_a_picture_is_taken(self, model: Model, provider: TurnProvider) -> None:
        self.needs("images")
        provider.say("A dot.")
        picture = {"image": {"format": "png", "source": {"bytes": PIXEL_PNG}}}
        told = await ask(model, [user("What is this?", picture)])
        assert told.text == "A dot."

    # Tools

    async def test_a_call_has_its_name_its_input_and_an_id(self, model: Model, provider: TurnProvider) -> None:
        self.needs("tools")
        provider.call_tools([("weather", {"city": 'Paris ☂ "x"', "days": 2})])
        told = await ask(model, [user("weather?")], tools=[WEATHER])
        [(call_id, name, given)] = told.calls
        assert (name, given) == ("weather", {"city": 'Paris ☂ "x"', "days": 2})
        assert call_id
        assert told.stop_reason == "tool_use"

    async def test_a_call_without_input_has_an_empty_one(self, model: Model, provider: TurnProvider) -> None:
        self.needs("tools")
        provider.call_tools([("clock", {})], text="Let me see.")
        told = await ask(model, [user("time?")], tools=[CLOCK])
        assert [(name, given) for _, name, given in told.calls] == [("clock", {})]
        assert told.text == "Let me see."

    async def test_calls_of_one_answer_are_told_apart(self, model: Model, provider: TurnProvider) -> None:
        self.needs("tools")
        self.needs("parallel_tools")
        calls: list[tuple[str, dict[str, Any]]] = [
            ("weather", {"city": "Paris"}),
            ("weather", {"city": "Rome"}),
            ("clock", {}),
        ]
        provider.call_tools(calls)
        told = await ask(model, [user("weather?")], tools=[WEATHER, CLOCK])
        assert [(name, given) for _, name, given in told.calls] == calls
        assert len({call_id for call_id, _, _ in told.calls}) == 3

    async def test_results_of_all_kinds_are_accepted_in_any_order(self, model: Model, provider: TurnProvider) -> None:
        self.needs("tools")
        self.needs("parallel_tools")
        provider.call_tools([("weather", {"city": "Paris"}), ("weather", {"city": "Rome"}), ("clock", {})])
        told = await ask(model, [user("weather?")], tools=[WEATHER, CLOCK])
        first, second, third = (call_id for call_id, _, _ in told.calls)
        results = [
            result(third),
            result(second, "no such city", status="error"),
            result(first, "sunny", {"json": {"degrees": [20, None, 1.5]}}),
        ]
        provider.say("Sunny in Paris.")
        again = await ask(
            model,
            [user("weather?"), assistant(*told.content), user(*results)],
            tools=[WEATHER, CLOCK],
        )
        assert again.text == "Sunny in Paris."

    async def test_ids_of_another_provider_are_accepted(self, model: Model, provider: TurnProvider) -> None:
        self.needs("tools")
        long_id = "call:" + "z" * 90 + "/1"
        use = {"toolUse": {"toolUseId": long_id, "name": "weather", "input": {"city": "Paris"}}}
        history = [user("weather?"), assistant("Let me see.", use), user(result(long_id, "sunny")), assistant("Sunny.")]
        provider.say("And warm.")
        told = await ask(model, [*history, user("and?")], tools=[WEATHER])
        assert told.text == "And warm."

    async def test_a_conversation_without_its_tools_is_accepted(self, model: Model, provider: TurnProvider) -> None:
        """The agent may have lost its tools since; the calls in its history must not make every request fail."""
        self.needs("tools")
        use = {"toolUse": {"toolUseId": "call-1", "name": "weather", "input": {"city": "Paris"}}}
        history = [user("weather?"), assistant(use), user(result("call-1", "sunny")), assistant("Sunny."), user("so?")]
        provider.say("So it is.")
        told = await ask(model, history)
        assert told.text == "So it is."

    async def test_messages_that_a_cut_conversation_leaves_are_accepted(
        self, model: Model, provider: TurnProvider
    ) -> None:
        """Two of one role in a row, as after a barge-in or a typed word in between; blank text; an answer first."""
        provider.say("Here I am.")
        history = [assistant("I was saying"), user("a"), user("b"), assistant("c"), assistant("d", " "), user("e")]
        told = await ask(model, history)
        assert told.text == "Here I am."

    # An agent

    async def test_an_agent_calls_its_tools_is_saved_and_goes_on_in_another_object(
        self, make_model: MakeModel, provider: TurnProvider
    ) -> None:
        self.needs("tools")
        asked: list[str] = []

        @tool
        def weather(city: str) -> str:
            """Tells the weather of a city.

            Args:
                city: Its name.
            """
            asked.append(city)
            return f"sunny in {city}"

        storage = InMemoryStorage()

        def agent() -> Agent:
            manager = SnapshotSessionManager[Agent](session_id="contract", storage=storage)
            return Agent(make_model(), tools=[weather], session_manager=manager)

        provider.call_tools([("weather", {"city": "Paris"})])
        provider.say("It is sunny.")
        first = await agent().invoke_async("What is the weather in Paris?")
        assert text_of(first.message) == "It is sunny."
        assert asked == ["Paris"]
        provider.say("As I said: sunny.")
        second = agent()
        answer = await second.invoke_async("Say it again.")
        assert text_of(answer.message) == "As I said: sunny."
        assert [message["role"] for message in second.messages] == ["user", "assistant"] * 3
        assert asked == ["Paris"]

    # Several at once, and none any more

    async def test_two_answers_at_once_do_not_mix(self, model: Model, provider: TurnProvider) -> None:
        self.needs("holding")
        held = provider.hold()
        provider.say("second")
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            first = group.create_task(ask(model, [user("one")]))
            await held.reached()
            assert (await ask(model, [user("two")])).text == "second"
            assert not first.done()
            held.release()
        assert first.result().text

    async def test_an_answer_that_is_let_go_of_leaves_nothing_behind(
        self, model: Model, provider: TurnProvider
    ) -> None:
        self.needs("holding")
        held = provider.hold()
        tasks = asyncio.all_tasks()
        answer = cast("AsyncGenerator[StreamEvent, None]", model.stream([user("one")]))
        async with asyncio.timeout(PATIENCE_S), aclosing(answer) as stream:
            async for event in stream:
                if "contentBlockDelta" in event:
                    break
        assert {task for task in asyncio.all_tasks() - tasks if "antiphon" in repr(task.get_coro())} == set()
        held.release()
        provider.say("next")
        assert (await ask(model, [user("two")])).text == "next"

    async def test_an_answer_that_is_cancelled_ends_at_once(self, model: Model, provider: TurnProvider) -> None:
        self.needs("holding")
        held = provider.hold()
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            asking = group.create_task(ask(model, [user("one")]))
            await held.reached()
            asking.cancel()
        assert asking.cancelled()
        held.release()
        provider.say("next")
        assert (await ask(model, [user("two")])).text == "next"

    # Refusals

    async def test_a_crowded_provider_is_asked_again(self, make_model: MakeModel, provider: TurnProvider) -> None:
        self.needs("throttling")
        clock = VirtualClock(autojump=False)
        provider.throttle(retry_after=2)
        provider.say("Here I am.")
        told = await in_virtual_time(clock, ask(make_model(clock=clock), [user("hello")]))
        assert told.text == "Here I am."
        assert clock.now() >= 2

    async def test_a_provider_that_stays_crowded_is_asked_a_bounded_number_of_times(
        self, make_model: MakeModel, provider: TurnProvider
    ) -> None:
        self.needs("throttling")
        clock = VirtualClock(autojump=False)
        for _ in range(12):
            provider.throttle()
        with pytest.raises(ModelThrottledException) as refused:
            await in_virtual_time(clock, ask(make_model(clock=clock), [user("hello")]))
        assert refused.value.status == "RESOURCE_EXHAUSTED"

    async def test_a_conversation_that_is_too_long_is_told_apart(self, model: Model, provider: TurnProvider) -> None:
        self.needs("overflow")
        provider.overflow()
        with pytest.raises(ContextWindowOverflowException):
            await ask(model, [user("a very long story")])

    async def test_an_answer_that_breaks_off_is_an_error_and_is_not_begun_anew(
        self, make_model: MakeModel, provider: TurnProvider
    ) -> None:
        self.needs("breaks")
        clock = VirtualClock(autojump=False)
        provider.cut(after_chunks=5)
        provider.say("not this one")
        with pytest.raises(ModelError) as broken:
            await in_virtual_time(clock, ask(make_model(clock=clock), [user("hello")]))
        assert not isinstance(broken.value, (ModelThrottledException, ContextWindowOverflowException))

    async def test_what_nobody_can_read_is_an_error(self, make_model: MakeModel, provider: TurnProvider) -> None:
        self.needs("breaks")
        clock = VirtualClock(autojump=False)
        for _ in range(6):
            provider.malformed()
        with pytest.raises(ModelError):
            await in_virtual_time(clock, ask(make_model(clock=clock), [user("hello")]))

    async def test_a_wrong_key_is_refused_and_never_told(
        self, make_model: MakeModel, provider: TurnProvider, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.needs("credentials")
        caplog.set_level(logging.DEBUG)
        provider.say("never")
        wrong = "wrong-key-0123456789abcdef"
        model = make_model(key=wrong)
        with pytest.raises(ModelCredentialsError) as refused:
            await ask(model, [user("hello")])
        assert refused.value.status == "UNAUTHENTICATED"
        tells_nothing(wrong, model, refused.value)
        assert wrong not in caplog.text

    async def test_an_unknown_model_is_named(self, make_model: MakeModel, provider: TurnProvider) -> None:
        self.needs("model_names")
        provider.say("never")
        with pytest.raises(ModelNotFoundError, match="no-such-model-9") as refused:
            await ask(make_model(model_id="no-such-model-9"), [user("hello")])
        assert refused.value.status == "NOT_FOUND"

    async def test_a_provider_that_is_not_there_is_an_error_that_says_so(self, make_model: MakeModel) -> None:
        self.needs("network")
        clock = VirtualClock(autojump=False)
        model = make_model(url=await nobody(), clock=clock)
        with pytest.raises(ModelError) as refused:
            await in_virtual_time(clock, ask(model, [user("hello")]))
        assert refused.value.status == "UNAVAILABLE"

    # Configuration

    async def test_the_configuration_is_a_copy_without_secrets(self, model: Model, provider: TurnProvider) -> None:
        config = model.get_config()
        config["model_id"] = "changed"
        assert model.get_config().get("model_id") != "changed"
        encode_json(model.get_config())
        if "credentials" not in self.lacks:
            tells_nothing(provider.key, model, None)

    async def test_the_configuration_can_be_changed(self, model: Model, provider: TurnProvider) -> None:
        self.needs("model_names")
        provider.say("never")
        model.update_config(model_id="no-such-model-8")
        assert model.get_config()["model_id"] == "no-such-model-8"
        with pytest.raises(ModelNotFoundError, match="no-such-model-8"):
            await ask(model, [user("hello")])

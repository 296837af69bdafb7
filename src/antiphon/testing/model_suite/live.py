"""What a model that talks live is, as tests."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.content import ImageBlock, TextBlock
from antiphon.errors import AntiphonError, ConnectionEndedError, ModelCredentialsError, ModelError, ModelNotFoundError
from antiphon.events import (
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiConnectionWarningEvent,
    BidiResponseStartEvent,
    BidiTranscriptBlockEvent,
    BidiUsageEvent,
    ToolResultMessageEvent,
)
from antiphon.jsonable import encode_json
from antiphon.models.bidi import AudioCapable, BidiModel
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.memory import InMemoryStorage
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.held import HeldAnswers
from antiphon.testing.model_suite.owed import OwedAnswers
from antiphon.testing.model_suite.sharing import SharedModels
from antiphon.testing.model_suite.support import PIXEL_PNG, nobody, tells_nothing
from antiphon.testing.model_suite.talk import STORY, LiveProvider, MakeLiveModel, Talk, seconds_of, texts
from antiphon.tools.decorator import tool

ODD_TEXT = '\u202eعربي\u202c 𝄞 "quoted" \\ back 日本'


class BidiModelContract(HeldAnswers, OwedAnswers, SharedModels):
    """The suite that defines a live model. Subclass it, and give two fixtures.

    `provider` is a `LiveProvider`: the provider's server on loopback, or anything else that follows a script.
    `make_model` makes a model that talks to it; what the suite hands over (`key`, `model_id`, `url`, `clock`) goes before
    what it would use by itself. What a model cannot do goes into `lacks`, with the reason::

        class TestMine(BidiModelContract):
            lacks = {"images": "this model hears and reads"}

            @pytest.fixture
            async def provider(self):
                async with MyServer() as server:
                    yield server

            @pytest.fixture
            def make_model(self, provider):
                return lambda **given: MyModel(**{"url": provider.url, "key": provider.key, **given})

    Capabilities that may be lacking: `user_transcripts`, `late_transcripts`, `tools`, `images`, `usage`, `replay`,
    `replays_interrupted`, `expiry`, `warning`, `credentials`, `model_names`, `network`, `breaks`, `held_answers` (the provider
    is a `HoldingProvider`), `talking_beside_tools`, `exact_sound` (what travels is not the very sound that was sent).
    """

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(autojump=False)

    @pytest.fixture
    def provider(self) -> LiveProvider:
        raise NotImplementedError("give the fixture `provider`")

    @pytest.fixture
    def make_model(self, provider: LiveProvider) -> MakeLiveModel:
        raise NotImplementedError("give the fixture `make_model`")

    @pytest.fixture
    def model(self, make_model: MakeLiveModel, clock: VirtualClock) -> BidiModel:
        return make_model(clock=clock)

    @pytest.fixture
    def talkative_model(self, model: BidiModel) -> BidiModel:
        """A model that talks while tools work, where another one than `model` does."""
        return model

    @pytest.fixture
    def talk(self, model: BidiModel, clock: VirtualClock) -> Talk:
        return Talk(BidiAgent(model, clock=clock, system_prompt="Be kind."), clock)

    # Talk

    async def test_a_spoken_question_and_its_answer_are_the_history(self, talk: Talk, provider: LiveProvider) -> None:
        provider.hear("What time is it?")
        provider.say("It is noon.", seconds=1.5)
        async with talk:
            await talk.speak()
            await talk.answers(1)
            await talk.listen(3)
        heard = [] if "user_transcripts" in self.lacks else ["u: What time is it?"]
        assert texts(talk.agent) == [*heard, "a: It is noon."]
        assert provider.complaints() == []

    async def test_the_sound_of_an_answer_comes_whole_and_at_the_rate_that_was_promised(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        provider.say("It is noon.", seconds=1.5)
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.answers(1)
        assert seconds_of(talk.events) == pytest.approx(1.5, abs=0.05)
        assert isinstance(talk.agent.model, AudioCapable)
        promised = talk.agent.model.get_audio_config().get("output", {})
        assert {event.sample_rate for event in talk.sound()} == {promised.get("sample_rate")}
        assert {event.response_id for event in talk.sound()} <= {
            event.response_id for event in talk.of(BidiResponseStartEvent)
        }

    async def test_typed_words_are_answered_again_and_again(self, talk: Talk, provider: LiveProvider) -> None:
        async with talk:
            for number in range(1, 4):
                provider.say(f"Answer {number}.", seconds=0.4)
                await talk.agent.send(f"question {number}")
                await talk.answers(number)
                await talk.listen(1)
        assert texts(talk.agent) == [
            *["u: question 1", "a: Answer 1.", "u: question 2", "a: Answer 2.", "u: question 3", "a: Answer 3."]
        ]
        assert provider.complaints() == []

    async def test_odd_characters_come_through_both_ways(self, talk: Talk, provider: LiveProvider) -> None:
        provider.say(ODD_TEXT)
        async with talk:
            await talk.agent.send(ODD_TEXT)
            await talk.answers(1)
            await talk.listen(3)
        assert texts(talk.agent) == [f"u: {ODD_TEXT}", f"a: {ODD_TEXT}"]

    async def test_words_that_are_understood_late_stand_before_the_answer(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("user_transcripts")
        self.needs("late_transcripts")
        provider.hear("What time is it?", late=True)
        provider.say("It is noon.")
        async with talk:
            await talk.speak()
            await talk.answers(1)
            await talk.listen(8)
            await talk.until(
                lambda: any(event.role == "user" for event in talk.of(BidiTranscriptBlockEvent)), "the user's words"
            )
            await talk.listen(1)
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]

    async def test_a_picture_is_taken_or_refused_in_words(self, talk: Talk, provider: LiveProvider) -> None:
        question: list[TextBlock | ImageBlock] = [TextBlock("What is this?"), ImageBlock("png", {"bytes": PIXEL_PNG})]
        provider.say("A dot.")
        async with talk:
            if "images" in self.lacks:
                with pytest.raises(AntiphonError, match="image"):
                    await talk.agent.send(question)
                pytest.skip(f"images: {self.lacks['images']}")
            await talk.agent.send(question)
            await talk.answers(1)
        assert provider.complaints() == []

    async def test_tokens_are_counted(self, talk: Talk, provider: LiveProvider) -> None:
        self.needs("usage")
        provider.say("It is noon.")
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.answers(1)
            await talk.until(lambda: bool(talk.of(BidiUsageEvent)), "the tokens")
        assert sum(event.total_tokens for event in talk.of(BidiUsageEvent)) > 0

    async def test_events_of_a_later_protocol_are_passed_over(self, talk: Talk, provider: LiveProvider) -> None:
        provider.unknown_event()
        provider.say("It is noon.")
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.answers(1)
            await talk.listen(3)
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]

    # Barge-in

    async def test_after_a_barge_in_the_history_ends_with_what_was_heard(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        provider.say(STORY, seconds=4)
        provider.barge_in("stop")
        provider.say("All right.")
        async with talk:
            await talk.agent.send("tell me a story")
            await talk.until(lambda: seconds_of(talk.events) > 3.9, "the sound")
            await talk.listen(1)
            await talk.speak()
            await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
            await talk.until(
                lambda: any(
                    event.response_id != talk.of(BidiResponseStartEvent)[0].response_id for event in talk.sound()
                ),
                "another answer",
            )
            await talk.listen(3)
        said = texts(talk.agent)
        heard = next(text for text in said if text.startswith("a: Once")).removeprefix("a: ")
        assert STORY.startswith(heard)
        assert 0 < len(heard) < len(STORY) * 0.6
        assert said[-1] == "a: All right."
        assert len(talk.of(BidiBargeInEvent)) == 1
        assert provider.complaints() == []

    async def test_an_answer_that_was_heard_to_its_end_stays_whole(self, talk: Talk, provider: LiveProvider) -> None:
        provider.say("It is noon.", seconds=1)
        provider.hear("thank you")
        provider.say("You are welcome.")
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.answers(1)
            await talk.listen(5)
            await talk.speak()
            await talk.answers(2)
            await talk.listen(5)
        assert "a: It is noon." in texts(talk.agent)
        assert texts(talk.agent)[-1] == "a: You are welcome."
        assert provider.complaints() == []

    async def test_an_answer_that_was_cut_before_it_was_heard_is_not_in_the_history(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        provider.say(STORY, seconds=4)
        provider.barge_in("stop")
        provider.say("All right.")
        async with talk:
            await talk.agent.send("tell me a story")
            await talk.until(lambda: seconds_of(talk.events) > 3.9, "the sound")
            await talk.speak()
            await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
            await talk.until(
                lambda: any(
                    event.response_id != talk.of(BidiResponseStartEvent)[0].response_id for event in talk.sound()
                ),
                "another answer",
            )
            await talk.listen(3)
        assert not [text for text in texts(talk.agent) if "Once" in text]
        assert texts(talk.agent)[-1] == "a: All right."
        assert provider.complaints() == []

    # Tools

    async def test_tools_are_called_and_their_results_are_spoken_of(
        self, model: BidiModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("tools")
        asked: list[tuple[str, int]] = []

        @tool
        def weather(city: str, days: int = 1) -> dict[str, Any]:
            """Tells the weather of a city.

            Args:
                city: Its name.
                days: How many days ahead.
            """
            asked.append((city, days))
            return {
                "status": "success",
                "content": [{"json": {"sky": "clear", "degrees": [20, 1.5]}}, {"text": "fine"}],
            }

        talk = Talk(BidiAgent(model, clock=clock, tools=[weather]), clock)
        provider.call_tools([("weather", {"city": 'Paris ☂ "x"', "days": 2})])
        provider.say("Fine weather.")
        async with talk:
            await talk.agent.send("What is the weather?")
            await talk.until(lambda: "Fine" in str(talk.agent.messages) or seconds_of(talk.events) > 0.9, "the answer")
            await talk.listen(3)
        assert asked == [('Paris ☂ "x"', 2)]
        assert texts(talk.agent) == ["u: What is the weather?", "a: [call weather]", "u: [result]", "a: Fine weather."]
        assert provider.complaints() == []

    async def test_calls_at_the_same_time_are_all_answered_before_the_model_goes_on(
        self, model: BidiModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("tools")

        @tool
        def weather(city: str) -> str:
            """Tells the weather of a city.

            Args:
                city: Its name.
            """
            if city == "Nowhere":
                raise ValueError("there is no such city")
            return f"sunny in {city}"

        talk = Talk(BidiAgent(model, clock=clock, tools=[weather]), clock)
        provider.call_tools([("weather", {"city": city}) for city in ("Paris", "Nowhere", "Rome")])
        provider.say("Sunny.")
        async with talk:
            await talk.agent.send("What is the weather?")
            await talk.until(lambda: bool(talk.of(ToolResultMessageEvent)), "the results")
            await talk.until(lambda: seconds_of(talk.events) > 0.9, "the answer")
            await talk.listen(3)
        results = [
            block["toolResult"]
            for message in talk.agent.messages
            for block in message["content"]
            if "toolResult" in block
        ]
        assert sorted(result["status"] for result in results) == ["error", "success", "success"]
        assert texts(talk.agent)[-1] == "a: Sunny."
        assert provider.complaints() == []

    # Connections

    async def test_a_talk_goes_on_over_a_new_connection_when_the_time_is_up(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("expiry")
        provider.say("My name is Ann.")
        provider.expire()
        provider.say("I am Ann.")
        async with talk:
            await talk.agent.send("Who are you?")
            await talk.answers(1)
            await talk.listen(3)
            await talk.until(lambda: provider.connections() == 2, "a second connection")
            await talk.agent.send("Who?")
            await talk.answers(2)
            await talk.listen(3)
        assert len(talk.of(BidiConnectionRestartEvent)) == 1
        assert texts(talk.agent) == ["u: Who are you?", "a: My name is Ann.", "u: Who?", "a: I am Ann."]
        assert provider.complaints() == []

    async def test_an_end_that_is_announced_is_told_and_met(self, talk: Talk, provider: LiveProvider) -> None:
        self.needs("warning")
        provider.say("My name is Ann.")
        provider.go_away(10)
        provider.say("I am Ann.")
        async with talk:
            await talk.agent.send("Who are you?")
            await talk.answers(1)
            await talk.until(lambda: bool(talk.of(BidiConnectionWarningEvent)), "the warning")
            await talk.listen(12)
            await talk.until(lambda: provider.connections() == 2, "a second connection")
            await talk.agent.send("Who?")
            await talk.answers(2)
            await talk.listen(3)
        assert [event.time_left_s for event in talk.of(BidiConnectionWarningEvent)] == [10]
        assert texts(talk.agent) == ["u: Who are you?", "a: My name is Ann.", "u: Who?", "a: I am Ann."]

    async def test_a_new_process_hands_over_what_was_said(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("replay")

        @tool
        def weather(city: str) -> str:
            """Tells the weather of a city.

            Args:
                city: Its name.
            """
            return f"sunny in {city}"

        storage = InMemoryStorage()

        def agent() -> BidiAgent:
            manager = SnapshotSessionManager[BidiAgent](session_id="contract", storage=storage)
            return BidiAgent(make_model(clock=clock), clock=clock, tools=[weather], session_manager=manager)

        tools = "tools" not in self.lacks
        if tools:
            provider.call_tools([("weather", {"city": "Paris"})])
        provider.say("Sunny.", seconds=0.5)
        provider.say(STORY, seconds=4)
        provider.barge_in("stop")
        provider.say("All right.", seconds=0.5)
        async with Talk(agent(), clock) as first:
            await first.agent.send("What is the weather?")
            await first.until(lambda: seconds_of(first.events) > 0.45, "the weather")
            await first.listen(2)
            await first.agent.send("tell me a story")
            await first.until(lambda: seconds_of(first.events) > 4.4, "the story")
            await first.listen(1)
            await first.speak()
            await first.until(lambda: bool(first.of(BidiBargeInEvent)), "the barge-in")
            await first.until(lambda: seconds_of(first.events) > 4.9, "an answer to that")
            await first.listen(2)
        heard = next(text for text in texts(first.agent) if text.startswith("a: Once")).removeprefix("a: ")
        provider.say("Here I am.")
        async with Talk(agent(), clock) as second:
            told = provider.seeded()
            await second.agent.send("Are you there?")
            await second.until(lambda: seconds_of(second.events) > 0.9, "an answer")
            await second.listen(3)
        assert texts(second.agent)[-2:] == ["u: Are you there?", "a: Here I am."]
        words = " ".join(text for _, text in told)
        assert "What is the weather?" in words
        assert "Sunny." in words
        assert heard in words
        assert STORY not in words
        assert provider.complaints() == []

    async def test_a_long_history_is_handed_over_within_the_limits_the_newest_kept(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("replay")
        history: list[Any] = [{"role": "assistant", "content": [{"text": "an answer to nothing"}]}]
        for number in range(120):
            history += [
                {"role": "user", "content": [{"text": f"question {number} " + "long " * 900}]},
                {"role": "assistant", "content": [{"text": f"answer {number} " + "é" * 3000}]},
                {"role": "assistant", "content": [{"text": "and more"}]},
            ]
        call = {"toolUse": {"toolUseId": "call:" + "z" * 60, "name": "weather", "input": {"city": "Paris"}}}
        history += [
            {"role": "user", "content": [{"text": "and in Paris?"}]},
            {"role": "assistant", "content": [call]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "call:" + "z" * 60, "status": "error", "content": []}}],
            },
            {"role": "assistant", "content": [{"text": "the newest words"}]},
        ]
        provider.say("Here I am.")
        async with Talk(BidiAgent(make_model(clock=clock), clock=clock, messages=history), clock) as talk:
            await talk.agent.send("Are you there?")
            await talk.until(lambda: seconds_of(talk.events) > 0.9, "an answer")
        assert "the newest words" in " ".join(text for _, text in provider.seeded())
        assert provider.complaints() == []

    async def test_a_connection_that_breaks_is_opened_anew_or_ends_the_talk_with_an_error(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("breaks")
        provider.say("My name is Ann.")
        provider.cut()
        provider.say("I am Ann.")
        async with talk:
            await talk.agent.send("Who are you?")
            await talk.answers(1)
            await talk.listen(3)
            await talk.until(lambda: provider.connections() == 2 or talk.error is not None, "the end")
            if talk.error is not None:
                assert isinstance(talk.error, ConnectionEndedError)
                assert str(talk.error)
        assert texts(talk.agent)[:2] == ["u: Who are you?", "a: My name is Ann."]

    async def test_what_nobody_can_read_ends_the_talk_with_an_error(self, talk: Talk, provider: LiveProvider) -> None:
        self.needs("breaks")
        provider.malformed()
        async with talk:
            await talk.until(lambda: talk.error is not None, "the end")
        assert isinstance(talk.error, ModelError)

    async def test_a_model_is_stopped_twice_and_started_again(self, model: BidiModel, provider: LiveProvider) -> None:
        await model.stop()
        await model.start(system_prompt="Be kind.", tools=[], messages=[])
        await model.stop()
        await model.stop()
        await model.start(messages=[])
        await model.stop()
        assert provider.connections() == 2
        assert provider.complaints() == []

    async def test_nothing_is_sent_without_a_connection(self, model: BidiModel, talk: Talk) -> None:
        with pytest.raises(ConnectionEndedError):
            await model.send(talk.sound_of_the_user())

    # Refusals

    async def test_a_wrong_key_is_refused_and_never_told(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("credentials")
        wrong = "wrong-key-0123456789abcdef"
        model = make_model(key=wrong, clock=clock)
        with pytest.raises(ModelCredentialsError) as refused:
            await model.start()
        assert refused.value.status == "UNAUTHENTICATED"
        tells_nothing(wrong, model, refused.value)

    async def test_an_unknown_model_is_named(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("model_names")
        with pytest.raises(ModelNotFoundError, match="no-such-model-9"):
            await make_model(model_id="no-such-model-9", clock=clock).start()

    async def test_a_provider_that_is_not_there_is_an_error_that_says_so(
        self, make_model: MakeLiveModel, clock: VirtualClock
    ) -> None:
        self.needs("network")
        with pytest.raises(ModelError) as refused:
            await make_model(url=await nobody(), clock=clock).start()
        assert refused.value.status == "UNAVAILABLE"

    # Configuration

    async def test_the_configuration_is_a_copy_without_secrets(self, model: BidiModel, provider: LiveProvider) -> None:
        config = model.get_config()
        config["model_id"] = "changed"
        assert model.model_id != "changed"
        encode_json(model.get_config())
        if "credentials" not in self.lacks:
            tells_nothing(provider.key, model, None)

"""What becomes of what was said while a connection of a live model is replaced, as tests."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.agent.waiting_sound import WAITING_SOUND_S
from antiphon.content import AudioDelta
from antiphon.events import BidiConnectionRestartEvent, BidiTranscriptBlockEvent, ToolResultMessageEvent
from antiphon.hooks.events import BidiBeforeConnectionRestartEvent
from antiphon.models.bidi import AudioCapable, BidiModel
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.held import heard_of, hold
from antiphon.testing.model_suite.support import Lacks
from antiphon.testing.model_suite.talk import HoldingProvider, LiveProvider, MakeLiveModel, Talk, texts
from antiphon.tools.decorator import tool


async def another_connection(talk: Talk, provider: LiveProvider, count: int = 2) -> None:
    """Wait until so many connections have been open."""
    await talk.until(lambda: provider.connections() >= count, f"connection {count}")
    await talk.until(lambda: len(talk.of(BidiConnectionRestartEvent)) >= count - 1, "the restart")


async def nothing_is_owed(talk: Talk, provider: LiveProvider) -> None:
    """Whatever was sent before this has reached the provider, and asks for no answer."""
    before = sum(map(len, provider.heard()))
    await talk.speak()
    await talk.until(lambda: sum(map(len, provider.heard())) > before, "the sound")
    assert not provider.owes(), "another answer is asked for"


class OwedAnswers(Lacks):
    """A part of `BidiModelContract`: restarts in the middle of something."""

    async def test_a_question_that_the_old_connection_did_not_answer_is_answered_once_by_the_new_one(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("expiry")
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.until(lambda: ("user", "What time is it?") in provider.told(), "the question")
            provider.expire()
            provider.say("It is noon.")
            await another_connection(talk, provider)
            await talk.answers(1)
            await talk.listen(3)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]
        assert [text for _, text in provider.told() if "What time" in text] == ["What time is it?"]
        assert provider.complaints() == []

    async def test_a_question_is_answered_although_connections_end_one_after_the_other(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("expiry")
        async with talk:
            await talk.agent.send("What time is it?")
            await talk.until(lambda: ("user", "What time is it?") in provider.told(), "the question")
            for count in (2, 3):
                provider.expire()
                await another_connection(talk, provider, count)
                await talk.until(lambda: ("user", "What time is it?") in provider.told(), "the question")
                await talk.listen(6)  # a connection that is short-lived makes the next one wait
            provider.say("It is noon.")
            await talk.answers(1)
            await talk.listen(3)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]
        assert provider.complaints() == []

    async def test_speech_that_the_old_connection_did_not_answer_is_answered_once_by_the_new_one(
        self, talk: Talk, provider: LiveProvider
    ) -> None:
        self.needs("expiry")
        self.needs("user_transcripts")
        async with talk:
            provider.hear("What time is it?")
            await talk.speak()
            await talk.until(
                lambda: (
                    any(event.role == "user" for event in talk.of(BidiTranscriptBlockEvent))
                    or "u: What time is it?" in texts(talk.agent)
                    or any("What time" in getattr(event, "delta", "") or provider.owes() for event in talk.events)
                ),
                "the words",
            )
            provider.expire()
            provider.say("It is noon.")
            await another_connection(talk, provider)
            await talk.answers(1)
            await talk.listen(3)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: What time is it?", "a: It is noon."]
        assert provider.complaints() == []

    async def test_results_that_the_old_connection_did_not_answer_are_spoken_of_once_by_the_new_one(
        self, model: BidiModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        self.needs("expiry")
        self.needs("tools")
        calls: list[str] = []

        @tool
        def weather(city: str) -> str:
            """Tells the weather of a city.

            Args:
                city: Its name.
            """
            calls.append(city)
            return f"sunny in {city}"

        talk = Talk(BidiAgent(model, clock=clock, tools=[weather]), clock)
        provider.call_tools([("weather", {"city": "Paris"})])
        async with talk:
            await talk.agent.send("What is the weather?")
            await talk.until(lambda: bool(talk.of(ToolResultMessageEvent)), "the result")
            await talk.until(provider.owes, "the result at the provider")
            provider.expire()
            provider.say("Sunny.")
            await another_connection(talk, provider)
            await talk.sounds(1)
            await talk.listen(3)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: What is the weather?", "a: [call weather]", "u: [result]", "a: Sunny."]
        assert calls == ["Paris"]
        assert provider.complaints() == []

    @pytest.mark.parametrize("ends", [1, 2])
    async def test_an_answer_that_broke_off_is_gone_on_with_once(
        self, talk: Talk, provider: HoldingProvider, ends: int
    ) -> None:
        self.needs("held_answers")
        self.needs("expiry")
        async with talk:
            await hold(talk, provider)
            for count in range(ends):
                provider.expire()
                await another_connection(talk, provider, 2 + count)
                await talk.until(lambda: heard_of_or_none(talk, provider), "what was heard, told")
                await talk.listen(6)
            provider.say("And so on.")
            await talk.sounds(3)
            await talk.listen(6)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: tell me a story", f"a: {heard_of(talk)}", "a: And so on."]
        assert provider.complaints() == []

    async def test_an_end_that_is_announced_in_an_answer_is_met_and_the_answer_gone_on_with(
        self, talk: Talk, provider: HoldingProvider
    ) -> None:
        self.needs("held_answers")
        self.needs("warning")
        async with talk:
            await hold(talk, provider)
            provider.go_away(10)
            provider.expire()
            await another_connection(talk, provider)
            provider.say("And so on.")
            await talk.sounds(3)
            await talk.listen(6)
            await nothing_is_owed(talk, provider)
        assert texts(talk.agent) == ["u: tell me a story", f"a: {heard_of(talk)}", "a: And so on."]
        assert len(talk.of(BidiConnectionRestartEvent)) == 1
        assert provider.complaints() == []

    # Sound

    @pytest.mark.parametrize("seconds", [2.0, WAITING_SOUND_S + 3.0])
    async def test_sound_that_is_sent_during_a_restart_comes_in_order_the_newest_of_it(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: LiveProvider, seconds: float
    ) -> None:
        self.needs("expiry")
        agent = BidiAgent(make_model(clock=clock), clock=clock)
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def wait(_: BidiBeforeConnectionRestartEvent[BidiAgent]) -> None:
            begun.set()
            await goes_on.wait()

        agent.add_hook(wait, BidiBeforeConnectionRestartEvent)
        sound = frames(agent.model, round(seconds * 10))
        late = frames(agent.model, 3, first=len(sound))
        async with Talk(agent, clock) as talk:
            await talk.speak()
            provider.expire()
            await talk.until(begun.is_set, "the restart")
            async with asyncio.TaskGroup() as group:
                for piece in sound:
                    group.create_task(agent.send(piece))
                await asyncio.sleep(0)
                goes_on.set()
                await another_connection(talk, provider)
                for piece in late:  # nobody overtakes those that wait
                    group.create_task(agent.send(piece))
            await talk.until(lambda: "exact_sound" in self.lacks or late[-1].audio in provider.heard()[-1], "the sound")
        assert talk.error is None
        if "exact_sound" not in self.lacks:
            places = [provider.heard()[-1].find(piece.audio) for piece in [*sound, *late]]
            kept = [place for place in places if place >= 0]
            assert kept == sorted(kept), "out of order"
            # The oldest may be on its way already when newer ones push out what is behind it.
            newest = kept if places[-len(kept) :] == kept else kept[1:]
            assert places[-len(newest) :] == newest, "the newest are kept, and nothing is left out between them"
            least = min(len(sound), round(WAITING_SOUND_S * 10))
            assert least <= len(kept) <= least + len(late)
        assert provider.complaints() == []


def frames(model: BidiModel, count: int, first: int = 0) -> list[AudioDelta]:
    """Pieces of sound of 100 ms, each with a loudness of its own."""
    rate = (
        model.get_audio_config().get("input", {}).get("sample_rate", 16000)
        if isinstance(model, AudioCapable)
        else 16000
    )
    return [
        AudioDelta("pcm", {"bytes": (1000 + 7 * (first + number)).to_bytes(2, "little") * (rate // 10)})
        for number in range(count)
    ]


def heard_of_or_none(talk: Talk, provider: LiveProvider) -> bool:
    """Whether the latest connection was told of the story that was begun."""
    return any("Once upon" in text for _, text in provider.told())

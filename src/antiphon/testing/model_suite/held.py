"""What a model that talks live does while its provider is in the middle of an answer, as tests."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.errors import ConnectionEndedError
from antiphon.events import (
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
)
from antiphon.models.bidi import BidiModel
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.support import Lacks
from antiphon.testing.model_suite.talk import STORY, HoldingProvider, MakeLiveModel, Talk, texts
from antiphon.tools.decorator import tool

SONG = "Lala lulu lili lolo lele lula lila lola and so on and so forth."


async def hold(talk: Talk, provider: HoldingProvider, *, sent: float = 2, heard: float = 1) -> None:
    """Have a story begun that takes four seconds, of which so many are `sent` and `heard`."""
    provider.say_and_hold(STORY, 4, after=sent)
    await talk.agent.send("tell me a story")
    await talk.sounds(sent)
    await talk.listen(heard)


def heard_of(talk: Talk, text: str = STORY) -> str:
    """What the history has of an answer; exactly once, and nothing that was not in it."""
    first = text.split(maxsplit=1)[0]
    found = [said.removeprefix("a: ") for said in texts(talk.agent) if said.startswith(f"a: {first}")]
    assert len(found) == 1, texts(talk.agent)
    assert text.startswith(found[0])
    return found[0]


def understood(talk: Talk) -> str:
    """What the user was understood to say so far."""
    return "".join(event.delta for event in talk.of(BidiTranscriptDeltaEvent) if event.role == "user")


def other_sound(talk: Talk, count: int) -> bool:
    """Whether sound of the answer with this number (from 0) has come."""
    begun = [event.response_id for event in talk.of(BidiResponseStartEvent)]
    return len(begun) > count and any(event.response_id == begun[count] for event in talk.sound())


class HeldAnswers(Lacks):
    """A part of `BidiModelContract`: answers that the provider has not finished."""

    async def test_what_is_typed_into_an_answer_is_answered_once(self, talk: Talk, provider: HoldingProvider) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider)
            await talk.agent.send("wait")
            await talk.until(lambda: ("user", "wait") in provider.told(), "the typed words")
            provider.go_on()
            provider.say("All right.")
            await talk.answers(2)
            await talk.listen(6)
            assert not provider.owes()
        assert heard_of(talk) == STORY or talk.of(BidiBargeInEvent)
        assert sorted(texts(talk.agent)[1:]) == sorted([f"a: {heard_of(talk)}", "u: wait", "a: All right."])
        assert texts(talk.agent)[0] == "u: tell me a story"
        assert texts(talk.agent)[-1] == "a: All right."
        assert provider.complaints() == []

    async def test_sound_beside_an_answer_leaves_it_whole(self, talk: Talk, provider: HoldingProvider) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider)
            for _ in range(5):
                await talk.speak()
            await talk.until(lambda: any(any(sound) for sound in provider.heard()), "the sound")
            provider.go_on()
            await talk.answers(1)
            await talk.listen(6)
            provider.say("You are welcome.")
            await talk.agent.send("thank you")
            await talk.answers(2)
            await talk.listen(2)
        assert texts(talk.agent) == [
            *["u: tell me a story", f"a: {STORY}", "u: thank you", "a: You are welcome."],
        ]
        assert talk.of(BidiBargeInEvent) == []
        assert provider.complaints() == []

    async def test_an_answer_that_is_cut_in_its_middle_is_known_as_far_as_it_was_heard(
        self, talk: Talk, provider: HoldingProvider
    ) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider, sent=3.6, heard=0.6)
            provider.barge_in("stop")
            provider.say("All right.")
            await talk.speak()
            await talk.until(lambda: other_sound(talk, 1), "another answer")
            await talk.listen(3)
            heard = heard_of(talk)
            assert 0 < len(heard) < len(STORY) * 0.45
            if "expiry" not in self.lacks:
                connections = provider.connections()
                provider.expire()
                await talk.until(lambda: provider.connections() > connections, "another connection")
                told = " ".join(text for _, text in provider.seeded())
                assert heard in told
                assert STORY[: len(heard) + 12] not in told
        assert texts(talk.agent)[-1] == "a: All right."
        assert len(talk.of(BidiBargeInEvent)) == 1
        assert provider.complaints() == []

    async def test_an_answer_of_which_all_that_came_was_heard_ends_there(
        self, talk: Talk, provider: HoldingProvider
    ) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider, heard=3)
            provider.barge_in("stop")
            provider.say("All right.")
            await talk.speak()
            await talk.until(lambda: other_sound(talk, 1), "another answer")
            await talk.listen(3)
        assert len(STORY) * 0.35 < len(heard_of(talk)) < len(STORY) * 0.7
        assert texts(talk.agent)[-1] == "a: All right."
        assert len(talk.of(BidiBargeInEvent)) == 1
        assert provider.complaints() == []

    async def test_two_answers_are_cut_one_after_the_other(self, talk: Talk, provider: HoldingProvider) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider)
            provider.barge_in("sing")
            provider.say_and_hold(SONG, 4, after=2)
            await talk.speak()
            await talk.until(lambda: other_sound(talk, 1), "another answer")
            await talk.sounds(4)
            await talk.listen(1)
            provider.barge_in("stop")
            provider.say("All right.")
            await talk.speak()
            await talk.until(lambda: other_sound(talk, 2), "a third answer")
            await talk.listen(3)
        words = [] if "user_transcripts" in self.lacks else ["u: sing", "u: stop"]
        said = texts(talk.agent)
        assert [text for text in said if text.startswith("u:")] == ["u: tell me a story", *words]
        assert 0 < len(heard_of(talk)) < len(STORY) * 0.6
        assert 0 < len(heard_of(talk, SONG)) < len(SONG) * 0.6
        assert said.index(f"a: {heard_of(talk)}") < said.index(f"a: {heard_of(talk, SONG)}")
        assert said[-1] == "a: All right."
        assert len({event.response_id for event in talk.of(BidiBargeInEvent)}) == 2
        assert provider.complaints() == []

    async def test_whoever_speaks_twice_over_an_answer_is_answered(self, talk: Talk, provider: HoldingProvider) -> None:
        self.needs("held_answers")
        async with talk:
            await hold(talk, provider)
            provider.barge_in("stop")
            await talk.speak()
            await talk.until(lambda: bool(talk.of(BidiBargeInEvent)), "the barge-in")
            heard = "" if "user_transcripts" in self.lacks else "stop no, sing"
            await talk.until(lambda: not heard or "stop" in understood(talk), "the words")
            provider.barge_in("no, sing")
            provider.say(SONG)
            await talk.speak()
            await talk.until(lambda: f"a: {SONG}" in texts(talk.agent) or bool(talk.sound()[20:]), "the song")
            await talk.listen(3)
        said = texts(talk.agent)
        assert 0 < len(heard_of(talk)) < len(STORY) * 0.6
        spoken = " ".join(text.removeprefix("u: ") for text in said[1:] if text.startswith("u:"))
        assert spoken.replace(" ", "") == heard.replace(" ", "")  # it may be one utterance, or two
        assert said[-1] == f"a: {SONG}"
        assert provider.complaints() == []

    async def test_a_result_that_comes_in_an_answer_is_spoken_of_after_it(
        self, talkative_model: BidiModel, clock: VirtualClock, provider: HoldingProvider
    ) -> None:
        self.needs("held_answers")
        self.needs("tools")
        self.needs("talking_beside_tools")
        begun, done = asyncio.Event(), asyncio.Event()

        @tool
        async def count_keys() -> str:
            """Counts keys."""
            begun.set()
            await done.wait()
            return "seven"

        talk = Talk(BidiAgent(talkative_model, clock=clock, tools=[count_keys]), clock)
        provider.call_tools([("count_keys", {})])
        async with talk:
            await talk.agent.send("how many keys?")
            await talk.until(begun.is_set, "the call")
            provider.hear("and a story, please")
            provider.say_and_hold(STORY, 4, after=2)
            await talk.speak()
            await talk.listen(3)
            await talk.sounds(2)
            await talk.listen(1)
            done.set()
            await talk.until(lambda: any(event.type == "tool_result" for event in talk.events), "the result")
            before = len(provider.heard()[-1])
            await talk.speak()
            await talk.until(lambda: len(provider.heard()[-1]) > before, "the sound")
            provider.go_on()
            provider.say("Seven keys.")
            await talk.sounds(5)
            await talk.listen(7)
            assert not provider.owes()
        said = texts(talk.agent)
        assert said.count("u: [result]") == 1
        assert said.count("a: [call count_keys]") == 1
        assert heard_of(talk) == STORY
        assert said[-1] == "a: Seven keys."
        assert provider.complaints() == []

    async def test_a_talk_that_is_ended_in_an_answer_keeps_what_was_heard(
        self, make_model: MakeLiveModel, clock: VirtualClock, provider: HoldingProvider
    ) -> None:
        self.needs("held_answers")
        model = make_model(clock=clock)
        first = Talk(BidiAgent(model, clock=clock), clock)
        async with first:
            await hold(first, provider, sent=3.6, heard=0.6)
        assert first.error is None
        assert 0 < len(heard_of(first)) < len(STORY) * 0.45
        before = len(first.events)
        provider.say("Here I am.")
        second = Talk(BidiAgent(model, clock=clock, messages=[*first.agent.messages]), clock)
        async with second:
            await second.agent.send("are you there?")
            await second.answers(1)
            await second.listen(3)
        assert texts(second.agent)[-2:] == ["u: are you there?", "a: Here I am."]
        assert heard_of(second) == heard_of(first)
        assert len(second.of(BidiResponseStopEvent)) == 1
        assert len(first.events) == before
        assert provider.complaints() == []

    @pytest.mark.parametrize("end", ["expire", "cut"])
    async def test_a_connection_that_ends_in_an_answer_leaves_what_was_heard(
        self, talk: Talk, provider: HoldingProvider, clock: VirtualClock, end: str
    ) -> None:
        self.needs("held_answers")
        self.needs("expiry" if end == "expire" else "breaks")
        async with talk:
            await hold(talk, provider)
            getattr(provider, end)()
            await talk.until(lambda: bool(talk.of(BidiConnectionRestartEvent)) or talk.error is not None, "the end")
            await talk.listen(3)  # what had come is heard to its end
            if talk.error is None:
                await talk.until(lambda: provider.connections() > 1, "another connection")
        again = talk
        if talk.error is not None:
            assert isinstance(talk.error, ConnectionEndedError), talk.error
            again = Talk(BidiAgent(talk.agent.model, clock=clock, messages=[*talk.agent.messages]), clock)
            provider.say("Here I am.")
            async with again:
                await again.agent.send("are you there?")
                await again.answers(1)
                await again.listen(3)
            assert texts(again.agent)[-2:] == ["u: are you there?", "a: Here I am."]
        heard = heard_of(again)
        assert 0 < len(heard) < len(STORY) * 0.7
        assert STORY not in " ".join(text for _, text in provider.told())
        assert provider.complaints() == []

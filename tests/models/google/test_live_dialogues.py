"""Whole dialogues with Gemini Live, however the service writes them: the history is what was said and heard."""

from __future__ import annotations

import random

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.conversation.repair import problems
from antiphon.events import BidiBargeInEvent, BidiConnectionStartEvent, BidiResponseStartEvent, BidiResponseStopEvent
from antiphon.models.google.live import GoogleGeminiLiveModel
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.testing.servers.gemini_live import GeminiLiveServer
from antiphon.testing.servers.gemini_live_session import WireStyle
from antiphon.tools.decorator import tool

STYLES = {
    "plain": WireStyle(),
    "merged": WireStyle(merged=True),
    "snake_and_text": WireStyle(snake=True, text=True),
    "fragments": WireStyle(fragment=97, merged=True),
    "words_first": WireStyle(words_first=True),
    "words_last": WireStyle(words_last=True, merged=True, snake=True),
}


@tool
def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


class Dialogue:
    """Turns one after the other, and what the history must be then."""

    def __init__(self, talk: Talk, server: GeminiLiveServer, rng: random.Random) -> None:
        self.talk = talk
        self.server = server
        self.rng = rng
        self.expected: list[str] = []
        self.answers = 0
        self.number = 0

    async def turn(self) -> None:
        """One question in one of many ways, its answer, and what may happen after it."""
        self.number += 1
        question, answer = f"question number {self.number}", f"this is the answer to question {self.number}"
        spoken, tools = self.rng.random() < 0.5, self.rng.random() < 0.4
        if spoken:
            self.server.hear(question, late=self.rng.random() < 0.4 and not tools, interim=self.rng.random() < 0.3)
        self.expected.append(f"u: {question}")
        if tools:
            self.server.call_tools([("weather", {"city": "Rome"})] * self.rng.randint(1, 2))
        self.server.say(answer, seconds=4)
        before = seconds_of(self.talk.events)
        if spoken:
            await self.talk.speak()
        else:
            await self.talk.agent.send(question)
        self.answers += 2 if tools else 1
        await self.talk.answers(self.answers)
        assert seconds_of(self.talk.events) == pytest.approx(before + 4, abs=0.01)
        if tools:
            at = len(self.expected)
            self.expected[at:] = ["a: [call]", "u: [result]"]
        self.expected.append(f"a: {answer}")
        if self.rng.random() < 0.35:
            await self.cut(answer)
        else:
            await self.talk.listen(9)
        if self.rng.random() < 0.3:
            connections = len(self.talk.of(BidiConnectionStartEvent))
            self.server.expire()
            await self.talk.until(
                lambda: len(self.talk.of(BidiConnectionStartEvent)) == connections + 1, "another connection"
            )
            await self.talk.listen(6)

    async def cut(self, answer: str) -> None:
        """The user speaks over the answer when half of it was heard, and gets another one."""
        self.number += 1
        stop, reply = f"stop number {self.number}", f"reply number {self.number}"
        cuts, starts = len(self.talk.of(BidiBargeInEvent)), len(self.talk.of(BidiResponseStartEvent))
        self.server.barge_in(stop)
        self.server.say(reply)
        await self.talk.listen(2)
        await self.talk.speak()
        await self.talk.until(lambda: len(self.talk.of(BidiBargeInEvent)) == cuts + 1, "the barge-in")
        self.answers += 1
        await self.talk.answers(self.answers)
        assert len(self.talk.of(BidiResponseStartEvent)) == starts + 1
        await self.talk.listen(6)
        self.expected[-1] = f"a: ~{answer}"
        self.expected += [f"u: {stop}", f"a: {reply}"]


def agreed(said: list[str], expected: list[str]) -> list[str]:
    """What was expected, with what was said wherever that may be so: what is heard in part, and the names of calls."""
    found: list[str] = []
    for text, wanted in zip(said, expected, strict=False):
        heard, whole = text.removeprefix("a: "), wanted.removeprefix("a: ~")
        in_part = wanted.startswith("a: ~") and whole.startswith(heard) and 0 < len(heard) < len(whole)
        calls = wanted == "a: [call]" and text.startswith("a: [call weather]")
        results = wanted == "u: [result]" and text.startswith("u: [result]")
        found.append(text if in_part or calls or results else wanted)
    return found + expected[len(found) :]


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES.keys())
@pytest.mark.parametrize("seed", range(3))
async def test_the_history_of_a_dialogue_is_what_was_said_and_heard(style, seed):
    rng = random.Random(f"{seed} {style}")
    clock = VirtualClock(autojump=False)
    resume = rng.choice(["auto", "handle", "replay"])
    async with GeminiLiveServer(style=style) as server:
        model = GoogleGeminiLiveModel(
            server.model_id, api_key=server.key, base_url=server.url, clock=clock, resume=resume
        )
        async with Talk(BidiAgent(model, clock=clock, tools=[weather]), clock) as talk:
            dialogue = Dialogue(talk, server, rng)
            for _ in range(6):
                await dialogue.turn()
            await server.played()
        assert texts(talk.agent) == agreed(texts(talk.agent), dialogue.expected)
        assert not problems(talk.agent.messages)
        assert server.complaints() == []
        assert model.unknown_messages == {}
    assert len(talk.of(BidiResponseStartEvent)) == len(talk.of(BidiResponseStopEvent)) == dialogue.answers

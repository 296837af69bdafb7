"""Talks in which anything happens in any order, with each provider over loopback: the history is what was said and heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.agent.live import BidiAgent
from antiphon.conversation.repair import problems
from antiphon.events import BidiBargeInEvent, BidiResponseStartEvent, BidiTranscriptBlockEvent
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of, texts
from antiphon.tools.decorator import tool
from tests.models.contract.providers import PROVIDERS

CUT, LOST = "cut ", "lost "
"""Before what is expected of an answer that the user cut, or that ended with its connection: its beginning."""


class Random:
    """A talk, and what its history must be."""

    def __init__(self, provider, clock: VirtualClock) -> None:
        self.provider = provider
        self.runs: Counter[int] = Counter()
        self.go_on: dict[int, asyncio.Event] = {}
        self.expected: list[str] = []

        @tool
        async def noon(number: int) -> str:
            """Is it noon?"""
            self.runs[number] += 1
            await self.go_on[number].wait()
            return "yes"

        self.talk = Talk(BidiAgent(provider.make(clock=clock), clock=clock, tools=[noon]), clock)

    async def until(self, what: Callable[[], object], wanted: str) -> None:
        """Wait, while time passes: pauses before a restart are part of the talk."""
        for _ in range(600):
            if what():
                return
            assert self.talk.error is None, f"{wanted}: {self.talk.error!r}"
            with_news = asyncio.ensure_future(self.talk.until(lambda: bool(what()), wanted))
            await asyncio.wait({with_news}, timeout=0.01)
            with_news.cancel()
            await asyncio.wait({with_news})
            await self.talk.listen(0.1)
        raise AssertionError(f"{wanted} did not come: {texts(self.talk.agent)}")

    async def answered(self, text: str) -> None:
        """The answer came, and was heard to its end."""
        self.provider.say(text)
        said = self.talk.of
        await self.until(lambda: any(text in block.transcript for block in said(BidiTranscriptBlockEvent)), text)
        await self.talk.listen(4)
        self.expected.append(f"a: {text}")

    async def ask(self, number: int) -> None:
        self.expected.append(f"u: question {number}")
        await self.talk.agent.send(f"question {number}")

    async def lose_the_connection(self) -> None:
        before = self.provider.connections()
        self.provider.expire()
        await self.until(lambda: self.provider.connections() > before, "another connection")

    async def begin_a_story(self, number: int) -> None:
        before = seconds_of(self.talk.events)
        self.provider.say_and_hold(f"Begin{number} two three four five six.", 4, after=3)
        await self.ask(number)
        await self.until(lambda: seconds_of(self.talk.events) > before + 2.9, "a story")
        await self.talk.listen(1)
        self.expected.append(f"{CUT}a: Begin{number}")

    async def barge_in(self, number: int) -> None:
        before = len(self.talk.of(BidiBargeInEvent))
        self.provider.barge_in(f"stop {number}")
        await self.talk.speak()
        await self.until(lambda: len(self.talk.of(BidiBargeInEvent)) > before, "the barge-in")
        await self.until(self.provider.owes, "that it was understood")
        self.expected.append(f"u: stop {number}")

    async def call(self, number: int) -> None:
        self.go_on[number] = asyncio.Event()
        self.provider.call_tools([("noon", {"number": number})])
        await self.ask(number)
        await self.until(lambda: self.runs[number], "the call")
        self.expected += ["a: [call noon]", "u: [result]"]

    # What may happen.

    async def typed(self, number: int) -> None:
        await self.ask(number)
        await self.answered(f"Answer {number}.")

    async def spoken(self, number: int) -> None:
        self.provider.hear(f"spoken {number}")
        await self.talk.speak()
        self.expected.append(f"u: spoken {number}")
        await self.answered(f"Answer {number}.")

    async def cut(self, number: int) -> None:
        await self.begin_a_story(number)
        await self.barge_in(number)
        await self.answered(f"Fine {number}.")

    async def called(self, number: int) -> None:
        await self.call(number)
        self.go_on[number].set()
        await self.answered(f"Done {number}.")

    async def typed_and_lost(self, number: int) -> None:
        await self.ask(number)
        await self.until(self.provider.owes, "that it arrived")
        await self.lose_the_connection()
        await self.answered(f"Answer {number}.")

    async def cut_and_lost(self, number: int) -> None:
        await self.begin_a_story(number)
        await self.barge_in(number)
        await self.lose_the_connection()
        await self.answered(f"Fine {number}.")

    async def begun_and_lost(self, number: int) -> None:
        await self.begin_a_story(number)
        await self.lose_the_connection()
        self.expected[-1] = self.expected[-1].replace(CUT, LOST)
        await self.answered(f"Rest {number}.")

    async def called_and_lost(self, number: int) -> None:
        await self.call(number)
        await self.lose_the_connection()
        self.go_on[number].set()
        await self.answered(f"Done {number}.")

    async def new_in_the_protocol(self, number: int) -> None:
        self.provider.unknown_event()


STEPS: dict[str, Callable[[Random, int], Awaitable[None]]] = {
    step.__name__: step
    for step in (
        Random.typed,
        Random.spoken,
        Random.cut,
        Random.called,
        Random.typed_and_lost,
        Random.cut_and_lost,
        Random.begun_and_lost,
        Random.called_and_lost,
        Random.new_in_the_protocol,
    )
}


@pytest.mark.parametrize("name", ["OpenAI Realtime", "Gemini Live", "Nova Sonic"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5))
def test_whatever_happens_in_whatever_order_the_history_is_what_was_said_and_heard(name, steps):
    asyncio.run(_play(name, steps))


async def _play(name: str, steps: list[str]) -> None:
    clock = VirtualClock(autojump=False)
    async with PROVIDERS[name](clock) as provider:
        random = Random(provider, clock)
        async with random.talk as talk:
            for number, step in enumerate(steps):
                await STEPS[step](random, number)
            await talk.listen(12)
        said = texts(talk.agent)
        assert len(said) == len(random.expected), (said, random.expected)
        for text, expected in zip(said, random.expected, strict=True):
            if expected.startswith((CUT, LOST)):
                assert text.startswith(expected.removeprefix(CUT).removeprefix(LOST))
                # Nova tells a sentence before its sound: how much was said of one that broke off, it does not tell any more.
                assert "six" not in text or (name == "Nova Sonic" and expected.startswith(LOST))
            else:
                assert text == expected, said
        assert problems(talk.agent.messages) == []
        assert provider.complaints() == []
        assert set(random.runs.values()) <= {1}
        begun = Counter(event.response_id for event in talk.of(BidiResponseStartEvent))
        assert set(begun.values()) <= {1}

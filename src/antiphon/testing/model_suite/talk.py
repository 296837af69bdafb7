"""What the tests of live models share: a provider that follows a script, and a talk with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from antiphon.agent.live import BidiAgent
from antiphon.content import AudioDelta, Message, text_of
from antiphon.events import BidiAudioDeltaEvent, BidiResponseStopEvent, OutputEvent
from antiphon.models.bidi import AudioCapable, AudioConfig, BidiModel
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.support import PATIENCE_S

STORY = "Once upon a time a dragon lived in a cave and it guarded seven golden keys."
_LOOK_S = 0.02

EventT = TypeVar("EventT", bound=OutputEvent)


class LiveProvider(Protocol):
    """A provider of a live model: it follows a script over however many connections, and keeps its own rules.

    Steps are done in order. `hear` and `barge_in` begin when the client has sent sound; `say` and `call_tools` when the
    provider is to answer: after it heard something, got a typed text, or was given the results of all its calls; the others
    as soon as it is their turn. `antiphon.testing.servers` has one for every provider; for your own model write a class with
    these methods.
    """

    key: str

    def hear(self, text: str, *, late: bool = False) -> object:
        """The user's speech is noticed and understood; `late`: its words come only after the next answer."""
        ...

    def say(self, text: str, *, seconds: float = 1.0) -> object:
        """Speak a text: a transcript, and sound of that length, faster than real time."""
        ...

    def barge_in(self, text: str) -> object:
        """The user's speech cuts the answer that was delivered last, or is being delivered."""
        ...

    def call_tools(self, calls: list[tuple[str, dict[str, Any]]]) -> object:
        """Call tools, all at once."""
        ...

    def expire(self) -> object:
        """End the connection: its time is over."""
        ...

    def cut(self) -> object:
        """Break the connection without a word."""
        ...

    def unknown_event(self) -> object:
        """Send what a later version of the protocol may have."""
        ...

    def malformed(self) -> object:
        """Send what nobody can read."""
        ...

    def go_away(self, seconds: float) -> object:
        """Announce the end of the connection."""
        ...

    def seeded(self) -> list[tuple[str, str]]:
        """The conversation that the latest connection was opened with, as role and text; calls and results left out."""
        ...

    def told(self) -> list[tuple[str, str]]:
        """What the latest connection was told in words, `seeded()` included, as role and text, in order."""
        ...

    def heard(self) -> list[bytes]:
        """The sound that came over each connection, in the order of the connections."""
        ...

    def owes(self) -> bool:
        """Whether the latest connection waits for an answer that no step of the script has begun."""
        ...

    def complaints(self) -> list[str]:
        """The errors that the provider told its clients of, but for those that the script asked for."""
        ...

    def connections(self) -> int:
        """How many connections were opened."""
        ...


class HoldingProvider(LiveProvider, Protocol):
    """A provider that can stay in the middle of an answer; one that cannot lacks `held_answers`."""

    def say_and_hold(self, text: str, seconds: float = 2.0, *, after: float | None = None) -> object:
        """Begin an answer like `say`, send `after` seconds of its sound (None: half of it), and stay there.

        The step is over then; the answer is not, until `go_on`, `barge_in`, or the end of the connection.
        """
        ...

    def go_on(self) -> object:
        """Send the rest of an answer that is held; nothing, if it was cut. Begins as soon as it is its turn."""
        ...


class Talk:
    """A talk between an agent and a provider, with a clock that the test moves.

    What the agent says is played at the pace of the clock: `listen(1)` plays one second.
    """

    def __init__(self, agent: BidiAgent, clock: VirtualClock, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.agent = agent
        self.events: list[OutputEvent] = []
        self.error: Exception | None = None
        self._clock = clock
        self._news = asyncio.Event()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        try:
            async with asyncio.timeout(self._patience_s):
                await self.agent.start()
        except BaseException as error:
            await self._group.__aexit__(type(error), error, error.__traceback__)
            raise
        self._group.create_task(self._collect())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agent.stop()
        await self._group.__aexit__(kind, error, trace)

    async def _collect(self) -> None:
        try:
            async for event in self.agent.receive():
                self.events.append(event)
                self._news.set()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self._news.set()

    async def until(self, what: Callable[[], bool], wanted: str) -> None:
        """Wait until something is so.

        Raises:
            AssertionError: If it does not become so, with what came instead.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                while not what():
                    assert self.error is None or wanted == "the end", f"{wanted}: the talk ended by {self.error!r}"
                    self._news.clear()
                    with suppress(TimeoutError):  # what is waited for may be no event
                        async with asyncio.timeout(_LOOK_S):
                            await self._news.wait()
        except TimeoutError:
            came = [event.type for event in self.events if not isinstance(event, BidiAudioDeltaEvent)]
            raise AssertionError(f"{wanted} did not come; this did: {came}; {texts(self.agent)}") from None

    async def answers(self, count: int) -> None:
        """Wait until so many answers have been delivered in all."""
        await self.until(lambda: len(self.of(BidiResponseStopEvent)) >= count, f"answer {count}")

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def sound(self) -> list[BidiAudioDeltaEvent]:
        """The sound so far."""
        return self.of(BidiAudioDeltaEvent)

    def sound_of_the_user(self) -> AudioDelta:
        """100 ms at the rate that the model asks for."""
        model = self.agent.model
        given: AudioConfig = model.get_audio_config() if isinstance(model, AudioCapable) else {}
        rate = given.get("input", {}).get("sample_rate", 16000)
        return AudioDelta("pcm", {"bytes": b"\x10\x20" * (rate // 10)})

    async def speak(self) -> None:
        """The user makes a sound."""
        await self.agent.send(self.sound_of_the_user())

    async def sounds(self, seconds: float) -> None:
        """Wait until so much sound has been delivered in all."""
        await self.until(lambda: seconds_of(self.events) > seconds - 0.06, f"{seconds:g} s of sound")

    async def listen(self, seconds: float) -> None:
        """So much time passes."""
        await self._clock.advance(seconds)


def texts(agent: BidiAgent) -> list[str]:
    """The history, as `u: words` and `a: words`; calls and results as `[call name]` and `[result]`."""
    return [f"{message['role'][0]}: {_told(message)}" for message in agent.messages]


def _told(message: Message) -> str:
    parts = [text_of(message)] if text_of(message) else []
    for block in message["content"]:
        if "toolUse" in block:
            parts.append(f"[call {block['toolUse']['name']}]")
        if "toolResult" in block:
            parts.append("[result]")
    return " ".join(parts)


def seconds_of(events: list[OutputEvent]) -> float:
    """How long the sound among events is."""
    sounds = [event for event in events if isinstance(event, BidiAudioDeltaEvent)]
    return sum(len(sound.audio) / 2 / sound.channels / sound.sample_rate for sound in sounds)


MakeLiveModel = Callable[..., BidiModel]
"""Makes a live model that talks to the provider of the test. `key`, `model_id`, `url` and `clock` go before what it would use."""

"""The scripted live model, and the embedded one with a script, as providers."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

from antiphon.content import AudioDelta, TextBlock, ToolResultBlock, text_of
from antiphon.errors import ConnectionEndedError, ModelProtocolError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)
from antiphon.models import EmbeddedBidiModel
from antiphon.models.embedded.stream import word_pieces
from antiphon.testing import (
    BargeIn,
    CallTools,
    Emit,
    Expire,
    Fail,
    GoAway,
    Hear,
    Say,
    ScriptedBidiModel,
    Until,
    Usage,
    VirtualClock,
)


class FromTheFuture(OutputEvent, frozen=True, kw_only=True):
    type = "from_the_future"


class Embedded(EmbeddedBidiModel):
    """The embedded model, which remembers what it was told."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(script=[], clock=clock, voice=False)
        self.sent: list = []
        self.histories: list = []

    async def start(self, *args, messages=None, **options):
        self.histories.append((messages or [], len(self.sent)))
        await super().start(*args, messages=messages, **options)

    async def send(self, content, /):
        await super().send(content)
        self.sent.append(content)

    def add(self, *steps):
        self._player.add(*steps)


class Scripted(ScriptedBidiModel):
    """The scripted model, which remembers when it was told what."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.histories: list = []

    async def start(self, *args, messages=None, **options):
        self.histories.append((messages or [], len(self.sent)))
        await super().start(*args, messages=messages, **options)


class Script:
    """One of them as a provider."""

    key = ""

    def __init__(self, clock: VirtualClock, kind: type[Scripted | Embedded] = Scripted) -> None:
        self.model = kind(clock)
        self.owed: list = [Until("text")]  # what an answer waits for
        self.later: list = [Until("text")]  # what the next one waits for
        self.held: list = []  # the rest of an answer
        self.answers = 0
        self.spoken = 0  # what the user said that is to be answered
        self.called = 0  # tools
        self.latest = ""

    def make(self, **given):
        return self.model

    def _due(self) -> list:
        owed, self.owed, self.later = self.owed, self.later, [Until("text")]
        return owed

    def _heard(self) -> None:
        self.spoken += 1
        waits = [step for step in self.owed if isinstance(step, Until) and step.what == "tool_result"]
        self.owed, self.later = [], waits or [Until("text")]

    def hear(self, text, *, late=False):
        self.model.add(Until("audio"), Hear(text, late_s=6 if late else 0))
        self._heard()

    def say(self, text, *, seconds=1.0):
        self.answers += 1
        pace = len(text.split()) / seconds
        self.model.add(*self._due(), Usage(3, 4), Say(text, words_per_second=pace, real_time=False))

    def say_and_hold(self, text, seconds=2.0, *, after=None):
        self.answers += 1
        key, words = f"held-{self.answers}", word_pieces(text)
        rate = self.model.get_audio_config()["output"]["sample_rate"]
        sound = bytes(2 * round(rate * seconds / len(words)))
        pieces = [
            Emit(
                BidiTranscriptDeltaEvent(delta=word, content_id=key),
                BidiAudioDeltaEvent(audio=sound, sample_rate=rate, content_id=key, response_id=key),
            )
            for word in words
        ]
        sent = ceil(len(words) * (0.5 if after is None else after / seconds))
        begin = (
            BidiResponseStartEvent(response_id=key),
            BidiTranscriptStartEvent(content_id=key),
            BidiAudioStartEvent(content_id=key, response_id=key),
        )
        end = (
            BidiAudioStopEvent(content_id=key, response_id=key),
            BidiTranscriptStopEvent(content_id=key),
            BidiResponseStopEvent(response_id=key),
        )
        self.model.add(*self._due(), Emit(*begin), *pieces[:sent])
        self.held, self.latest = [*pieces[sent:], Emit(*end)], key

    def go_on(self):
        held, self.held = self.held, []
        self.model.add(*held)

    def barge_in(self, text):
        self.model.add(Until("audio"), BargeIn(self.latest if self.held else None), Hear(text))
        self.held = []
        self._heard()

    def call_tools(self, calls):
        self.answers += 1
        self.called += len(calls)
        self.model.add(*self._due(), CallTools(calls))
        self.owed = [Until("tool_result", len(calls))]

    def expire(self):
        if self.held:
            self.owed, self.held = [], []  # the rest of it is still owed
        self.model.add(Expire())

    def cut(self):
        self.held = []
        self.model.add(Fail(ConnectionEndedError("cut")))

    def unknown_event(self):
        self.model.add(Emit(FromTheFuture()))

    def malformed(self):
        self.model.add(Fail(ModelProtocolError("what is this")))

    def go_away(self, seconds):
        self.model.add(GoAway(seconds))

    def seeded(self):
        messages, _ = self.model.histories[-1]
        return [(message["role"], text_of(message)) for message in messages if text_of(message)]

    def told(self):
        _, before = self.model.histories[-1]
        sent = [content for content in self.model.sent[before:] if not isinstance(content, AudioDelta)]
        texts = [[block.text for block in content.content if hasattr(block, "text")] for content in sent]
        return [*self.seeded(), *(("user", " ".join(words)) for words in texts if words)]

    def heard(self):
        marks = [mark for _, mark in self.model.histories] + [len(self.model.sent)]
        return [
            b"".join(content.audio for content in self.model.sent[start:end] if isinstance(content, AudioDelta))
            for start, end in pairwise(marks)
        ]

    def owes(self):
        sent = [content for content in self.model.sent if not isinstance(content, AudioDelta)]
        results = sum(isinstance(block, ToolResultBlock) for content in sent for block in content.content)
        typed = sum(any(isinstance(block, TextBlock) for block in content.content) for content in sent)
        return typed + self.spoken + (self.called > 0 and results >= self.called) > self.answers

    def complaints(self):
        return []

    def connections(self):
        return len(self.model.histories)

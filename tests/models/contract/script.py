"""The scripted live model as a provider."""

from __future__ import annotations

from antiphon.content import text_of
from antiphon.errors import ConnectionEndedError, ModelProtocolError
from antiphon.events import OutputEvent
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


class Script:
    """The scripted model as a provider."""

    key = ""

    def __init__(self, clock: VirtualClock) -> None:
        self.model = ScriptedBidiModel(clock=clock)
        self.owed: list = [Until("text")]  # what an answer waits for

    def make(self, **given) -> ScriptedBidiModel:
        return self.model

    def _due(self) -> list:
        owed, self.owed = self.owed, [Until("text")]
        return owed

    def hear(self, text, *, late=False):
        self.model.add(
            Until("audio"),
            Hear(
                text,
                late_s=6 if late else 0,
            ),
        )
        self.owed = []

    def say(self, text, *, seconds=1.0):
        pace = len(text.split()) / seconds
        self.model.add(*self._due(), Usage(3, 4), Say(text, words_per_second=pace, real_time=False))

    def barge_in(self, text):
        self.model.add(Until("audio"), BargeIn(), Hear(text))
        self.owed = []

    def call_tools(self, calls):
        self.model.add(*self._due(), CallTools(calls))
        self.owed = [Until("tool_result", len(calls))]

    def expire(self):
        self.model.add(Expire())

    def cut(self):
        self.model.add(Fail(ConnectionEndedError("cut")))

    def unknown_event(self):
        self.model.add(Emit(FromTheFuture()))

    def malformed(self):
        self.model.add(Fail(ModelProtocolError("what is this")))

    def go_away(self, seconds):
        self.model.add(GoAway(seconds))

    def seeded(self):
        messages = self.model.starts[-1].messages or []
        return [(message["role"], text_of(message)) for message in messages if text_of(message)]

    def complaints(self):
        return []

    def connections(self):
        return len(self.model.starts)

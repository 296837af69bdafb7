"""The codec and the provider's rules, face to face: no wire, no loop, no clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from antiphon.content import BidiMessage, TextBlock
from antiphon.events import BidiAudioDeltaEvent, OutputEvent
from antiphon.models.openai.realtime_codec import RealtimeCodec
from antiphon.models.openai.realtime_errors import Explainer
from antiphon.models.openai.realtime_history import replay
from antiphon.models.openai.realtime_session import settings
from antiphon.testing.servers.openai_realtime_rules import RealtimeSession

NOON = {"name": "noon", "description": "Is it?", "inputSchema": {"json": {"type": "object", "properties": {}}}}
CONFIG = {
    "model_id": "gpt-realtime-2",
    "transcription_model_id": "gpt-transcribe",
    "voice": "marin",
    "timeout_s": 3000.0,
    "audio": {},
    "params": {},
    "connection": {},
}


def make_codec(*, messages=(), tools=(NOON,), prompt="Be kind.", continued=False, owed="", **config) -> RealtimeCodec:
    chosen = settings({**CONFIG, **config})
    return RealtimeCodec(
        session=chosen.told(prompt, list(tools)),
        hears=chosen.hears,
        speaks=chosen.speaks,
        history=replay(list(messages)),
        explainer=Explainer("gpt-realtime-2", "wss://api.example/v1"),
        limit_s=3000.0,
        continued=continued,
        owed=owed,
    )


def frame(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "event_id": "event_1", **fields})


class Exchange:
    """What either says reaches the other at once, or when `cross` lets it."""

    def __init__(self, codec: RealtimeCodec | None = None, *, opened: bool = True, **given: Any) -> None:
        self.codec = codec or make_codec(**given)
        self.session = RealtimeSession(1, "gpt-realtime-2")
        self.events: list[OutputEvent] = []
        self.alarms: dict[str, float | None] = {}
        if opened:
            self.codec.open()
            self.tell([self.session.created()])
            assert self.codec.ready

    def tell(self, events: Iterable[dict[str, Any]]) -> list[OutputEvent]:
        """The server sends, and takes what comes of it."""
        made: list[OutputEvent] = []
        for event in events:
            came = list(self.codec.receive(json.dumps(event)))
            self.events += came
            made += [*came, *self.tell(self.cross())]
        return made

    def cross(self) -> list[dict[str, Any]]:
        """What the client has said reaches the server. Returns its answers, which are on their way."""
        self.alarms |= self.codec.alarms
        self.codec.alarms = {}
        frames, self.codec.outbox = self.codec.outbox, []
        return [answer for frame in frames for answer in self.session.receive(frame)]

    def cross_into(self, queue: list[str]) -> None:
        """What the client has said goes into a queue of the test's."""
        self.alarms |= self.codec.alarms
        queue += [str(frame) for frame in self.codec.outbox]
        self.codec.alarms, self.codec.outbox = {}, []

    def send(self, *blocks: Any) -> list[OutputEvent]:
        """The client sends a message, and the server's answers come at once."""
        self.codec.send(BidiMessage([TextBlock(block) if isinstance(block, str) else block for block in blocks]))
        return self.tell(self.cross())

    def hear(self, text: str) -> list[OutputEvent]:
        """The user speaks, and a response to it begins."""
        item_id, events = self.session.speech()
        events += [*self.session.silence(item_id), *self.session.transcribed(item_id, text), *self.session.begin()]
        return self.tell(events)

    def say(self, text: str, seconds: float = 0.3) -> list[OutputEvent]:
        """The response under way is a message."""
        return self.tell([*self.session.answer(text, seconds), self.session.done()])

    def call(self, *names: str, status: str = "completed") -> list[OutputEvent]:
        """The response under way is calls of tools."""
        return self.tell([*self.session.calls([(name, "{}") for name in names], status), self.session.done()])

    def asked(self) -> int:
        """How often the client asked for a response."""
        return sum(event["type"] == "response.create" for event in self.session.received)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.session.received if event["type"] == kind]

    @property
    def refusals(self) -> list[str]:
        return [error["code"] for error in self.session.refusals]


def kinds(events: Iterable[OutputEvent]) -> list[str]:
    return [event.type.removeprefix("bidi_") for event in events if not isinstance(event, BidiAudioDeltaEvent)]

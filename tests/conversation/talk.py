"""A conversation that is driven by hand, and the history that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.content import Message, text_of
from antiphon.conversation.history import Commit, Conversation, Effect, Emit, Insert, Remove, Replace, Truncate
from antiphon.events import (
    BidiAudioStopEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
    Word,
)


@dataclass
class Talk:
    """A conversation, and the history its effects make."""

    conversation: Conversation = field(default_factory=Conversation)
    messages: list[Message] = field(default_factory=list)
    truncated: list[Truncate] = field(default_factory=list)
    emitted: list[OutputEvent] = field(default_factory=list)
    now: float = 0.0

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Commit(messages):
                    self.messages += messages
                case Replace(old, new):
                    self.messages[self.index(old)] = new
                case Insert(message, before):
                    self.messages.insert(self.index(before), message)
                case Remove(message):
                    del self.messages[self.index(message)]
                case Truncate():
                    self.truncated.append(effect)
                case Emit(event):
                    self.emitted.append(event)

    def index(self, wanted: Message) -> int:
        return next(index for index, message in enumerate(self.messages) if message is wanted)

    def event(self, event: OutputEvent) -> None:
        self.do(self.conversation.apply(event, self.now))

    def words(self, text: str, content_id: str = "u") -> None:
        self.event(BidiTranscriptDeltaEvent(delta=text, role="user", content_id=content_id))

    def hear(self, text: str, content_id: str = "u") -> None:
        self.hearing(content_id)
        self.heard(text, content_id)

    def hearing(self, content_id: str = "u") -> None:
        self.event(BidiTranscriptStartEvent(role="user", content_id=content_id))

    def heard(self, text: str, content_id: str = "u") -> None:
        if text:
            self.words(text, content_id)
        self.event(BidiTranscriptStopEvent(role="user", content_id=content_id))

    def type(self, text: str) -> None:
        self.do(self.conversation.said([{"role": "user", "content": [{"text": text}]}], self.now))

    def begin(self, response_id: str) -> None:
        self.event(BidiResponseStartEvent(response_id=response_id))

    def say(self, response_id: str, text: str, *, word_ms: int = 500, deliver: bool = True, stop: bool = True) -> None:
        """A response whose sound comes at once."""
        self.begin(response_id)
        self.event(BidiTranscriptStartEvent(content_id=response_id))
        for index, word in enumerate(text.split()):
            timed = Word(word, start_ms=index * word_ms, end_ms=(index + 1) * word_ms)
            delta = word if index == 0 else f" {word}"
            self.event(BidiTranscriptDeltaEvent(delta=delta, content_id=response_id, words=(timed,)))
            self.sound(response_id, word_ms, deliver=deliver)
        if stop:
            self.event(BidiTranscriptStopEvent(content_id=response_id))
            self.end(response_id)

    def write(self, text: str, content_id: str = "") -> None:
        self.event(BidiTranscriptDeltaEvent(delta=text, content_id=content_id))

    def sound(self, response_id: str, ms: float, *, deliver: bool = True) -> None:
        speech = self.conversation.speech(response_id, self.now)
        if speech.cut:
            return  # as the call does: it is heard by nobody
        speech.audio_ms += ms
        if deliver:
            speech.deliver(ms, self.now)

    def sound_stops(self) -> None:
        self.event(BidiAudioStopEvent())

    def end(self, response_id: str) -> None:
        self.event(BidiResponseStopEvent(response_id=response_id))

    def wait(self, seconds: float) -> None:
        """Let time pass, ringing whenever the conversation asked to be woken."""
        until = self.now + seconds
        rings = 0
        while (due := self.conversation.due(self.now)) is not None and due <= until:
            rings += 1
            assert rings < 50 + 40 * seconds, "it asks to be woken again and again"
            self.now = max(self.now, due)
            self.do(self.conversation.tick(self.now))
        self.now = until
        self.do(self.conversation.tick(self.now))

    def cut(self, response_id: str = "") -> list[str]:
        effects, ids = self.conversation.cut(self.now, response_id)
        self.do(effects)
        return ids

    def played(self, response_id: str, ms: float) -> None:
        self.do(self.conversation.played(response_id, ms, self.now))

    def close(self) -> None:
        self.do(self.conversation.close(self.now))

    @property
    def texts(self) -> list[str]:
        return [f"{message['role'][0]}: {text_of(message)}" for message in self.messages]

"""The model's answers: what has come of each, and what to tell the provider of one that was not heard to its end. Pure."""

from __future__ import annotations

import msgspec

from antiphon.content import ToolUse
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)
from antiphon.models.openai.realtime_sound import Incoming, SoundFormat
from antiphon.models.openai.realtime_wire import Item

KEPT = 8
"""Answers that are remembered after they are over."""
_ROUNDING_MS = 1.0


class Spoken:
    """One message of an answer.

    Attributes:
        item_id: The provider's id of it.
        wire_bytes: Sound that came, in bytes of the wire.
        spoke: Whether it is spoken, or was to be.
        whole: Whether the provider has made all of it.
        removed: Whether the provider was told to delete it.
    """

    __slots__ = ("_audio", "_incoming", "_text", "_words", "item_id", "removed", "spoke", "whole", "wire_bytes")

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.wire_bytes = 0
        self.spoke = False
        self.whole = False
        self.removed = False
        self._audio = False  # has begun, and is not complete
        self._words: str | None = None  # of a transcript that has begun
        self._text: str | None = None
        self._incoming: Incoming | None = None

    def sound(self, response_id: str, data: bytes, form: SoundFormat) -> list[OutputEvent]:
        """A piece of sound."""
        events: list[OutputEvent] = []
        if not self._audio:
            self._audio = self.spoke = True
            self._incoming = None if form.plain else Incoming(form)
            events.append(BidiAudioStartEvent(content_id=self.item_id, response_id=response_id))
        self.wire_bytes += len(data)
        if self._incoming is not None:
            data = self._incoming.decode(data)
        if data:
            events.append(self._delta(response_id, data, form))
        return events

    def sound_done(self, response_id: str, form: SoundFormat) -> list[OutputEvent]:
        """The sound is complete."""
        if not self._audio:
            return []
        self._audio = False
        events: list[OutputEvent] = []
        if self._incoming is not None and (rest := self._incoming.flush()):
            events.append(self._delta(response_id, rest, form))
        return [*events, BidiAudioStopEvent(content_id=self.item_id, response_id=response_id)]

    def _delta(self, response_id: str, data: bytes, form: SoundFormat) -> OutputEvent:
        return BidiAudioDeltaEvent(audio=data, sample_rate=form.rate, content_id=self.item_id, response_id=response_id)

    def words(self, delta: str) -> list[OutputEvent]:
        """Words of the transcript."""
        events: list[OutputEvent] = []
        self.spoke = True
        if self._words is None:
            self._words = ""
            events.append(BidiTranscriptStartEvent(content_id=self.item_id))
        self._words += delta
        if delta:
            events.append(BidiTranscriptDeltaEvent(delta=delta, content_id=self.item_id))
        return events

    def words_done(self, whole: str | None) -> list[OutputEvent]:
        """The transcript is complete; `whole` is all of it, where it is told."""
        if self._words is None and not whole:
            return []
        rest = _rest(self._words or "", whole)
        events = self.words(rest) if rest or self._words is None else []
        self._words = None
        return [*events, BidiTranscriptStopEvent(content_id=self.item_id)]

    def text(self, delta: str) -> list[OutputEvent]:
        """Written text, of a session that does not speak."""
        events: list[OutputEvent] = []
        if self._text is None:
            self._text = ""
            events.append(BidiTextStartEvent(content_id=self.item_id))
        self._text += delta
        if delta:
            events.append(BidiTextDeltaEvent(delta=delta, content_id=self.item_id))
        return events

    def text_done(self, whole: str | None) -> list[OutputEvent]:
        """The text is complete."""
        if self._text is None and not whole:
            return []
        rest = _rest(self._text or "", whole)
        events = self.text(rest) if rest or self._text is None else []
        self._text = None
        return [*events, BidiTextStopEvent(content_id=self.item_id)]

    def end(self, response_id: str, form: SoundFormat) -> list[OutputEvent]:
        """Whatever is open ends here."""
        return [*self.sound_done(response_id, form), *self.words_done(None), *self.text_done(None)]


def _rest(begun: str, whole: str | None) -> str:
    """What of `whole` was not told piece by piece."""
    return whole[len(begun) :] if whole is not None and whole.startswith(begun) else ""


class Answer:
    """One response.

    Attributes:
        response_id: The provider's id of it.
        items: Its messages, by id, in order.
        calls: Its complete calls of tools, by their item's id.
        over: Whether it is complete, or was cut off.
        barged_in: Whether the user was said to speak over it.
        heard_ms: How much of it was heard, where that is to be told to the provider when it is over.
    """

    __slots__ = ("barged_in", "calls", "heard_ms", "items", "over", "response_id")

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        self.items: dict[str, Spoken] = {}
        self.calls: dict[str, ToolUse] = {}
        self.over = False
        self.barged_in = False
        self.heard_ms: float | None = None

    def item(self, item_id: str) -> Spoken:
        """The message with this id, which may be new."""
        item = self.items.get(item_id)
        if item is None:
            item = self.items[item_id] = Spoken(item_id)
        return item

    def item_done(self, item: Item, form: SoundFormat) -> list[OutputEvent]:
        """A part is complete, or cut off."""
        key = item.id or ""
        complete = item.status in {None, "completed"}
        if item.type == "function_call":
            # One that was cut off is told of, too: what it would have been called with is not known.
            if complete and key not in self.calls:
                self.calls[key] = tool_use(item)
            return []
        if item.type != "message" or key not in self.items:
            return []
        spoken = self.items[key]
        spoken.whole = complete
        return spoken.end(self.response_id, form)

    def corrections(self, form: SoundFormat) -> list[dict[str, object]]:
        """What the provider must be told of an answer that is over, when only `heard_ms` of it were heard.

        A message that was heard whole needs nothing. One that was heard in part is truncated, at most at its end: beyond it
        the provider refuses. One that was not heard at all, or has no sound, cannot be truncated, and is deleted.
        """
        if self.heard_ms is None:
            return []
        left, self.heard_ms = self.heard_ms, None
        told: list[dict[str, object]] = []
        for item in self.items.values():
            if item.removed or not item.spoke:
                continue
            length = item.wire_bytes / form.wire_bytes_per_ms
            if min(left, length) < _ROUNDING_MS:
                item.removed = True
                told.append({"type": "conversation.item.delete", "item_id": item.item_id})
            elif not item.whole or left < length - _ROUNDING_MS:
                end_ms = int(min(left, length))
                told.append(
                    {
                        "type": "conversation.item.truncate",
                        "item_id": item.item_id,
                        "content_index": 0,
                        "audio_end_ms": end_ms,
                    }
                )
                item.wire_bytes, item.whole = end_ms * form.wire_bytes_per_ms, True
            left = max(0.0, left - length)
        return told


def tool_use(item: Item) -> ToolUse:
    r"""A call of a tool. Arguments that are encoded twice are decoded twice; what is no JSON is passed on as it is.

    >>> tool_use(Item(type="function_call", call_id="c", name="add", arguments='"{\\"a\\": 1}"'))["input"]
    {'a': 1}
    """
    value: object = item.arguments or "{}"
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            break
    return {"toolUseId": item.call_id or item.id or "", "name": item.name or "", "input": value}


class Answers:
    """The answers of a session, the latest of them.

    Attributes:
        latest: The one that began last.
    """

    __slots__ = ("_known", "latest")

    def __init__(self) -> None:
        self._known: dict[str, Answer] = {}
        self.latest: Answer | None = None

    def get(self, response_id: str) -> Answer | None:
        """A known one."""
        return self._known.get(response_id)

    def begin(self, response_id: str) -> Answer:
        """Another one begins."""
        self._known[response_id] = self.latest = answer = Answer(response_id)
        if len(self._known) > KEPT:
            oldest = next((key for key, known in self._known.items() if known.over), next(iter(self._known)))
            del self._known[oldest]
        return answer

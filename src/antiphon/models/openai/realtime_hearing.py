"""The user's words: another model of the provider writes them down, and tells them whenever it is done. Pure."""

from __future__ import annotations

from antiphon.conversation.lines import INAUDIBLE
from antiphon.events import (
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)
from antiphon.models.openai.realtime_wire import HeardDelta, HeardDone, HeardFailed

_KEPT_WORDS = 32


class Hearing:
    """What was heard of the user, item by item."""

    __slots__ = ("_begun", "_silent")

    def __init__(self) -> None:
        self._begun: dict[str, str | None] = {}  # the words so far; None: all are told
        self._silent = ""

    def silent(self, item_id: str) -> None:
        """Nothing was said in this item: the provider wonders where the user is."""
        self._silent = item_id

    def begin(self, item_id: str) -> list[OutputEvent]:
        """The user speaks, or has spoken."""
        if item_id in self._begun or item_id == self._silent:
            return []
        self._begun[item_id] = ""
        while len(self._begun) > _KEPT_WORDS:
            del self._begun[next(iter(self._begun))]
        return [BidiTranscriptStartEvent(role="user", content_id=item_id)]

    def words(self, event: HeardDelta | HeardDone | HeardFailed) -> list[OutputEvent]:
        """What is understood of it."""
        item_id = event.item_id
        if item_id == self._silent:
            return []
        events = self.begin(item_id)
        known = self._begun[item_id]
        if known is None:
            return events
        match event:
            case HeardDelta():
                more, done = event.delta or "", False
            case HeardDone():
                whole = event.transcript or ""
                more, done = whole[len(known) :] if whole.startswith(known) else "", True
            case HeardFailed():
                more, done = "" if known else INAUDIBLE, True
        self._begun[item_id] = None if done else known + more
        if more:
            events.append(BidiTranscriptDeltaEvent(delta=more, role="user", content_id=item_id))
        if done:
            events.append(BidiTranscriptStopEvent(role="user", content_id=item_id))
        return events

"""What began and is not in the history yet, and the message that it becomes."""

from __future__ import annotations

from typing import Literal

from antiphon.content import ContentBlock, Message, MessageMetadata
from antiphon.conversation.heard import Part, Speech

INAUDIBLE = "[inaudible]"
Kind = Literal["messages", "slot", "user", "spoken", "text", "reasoning"]
Written = Literal["text", "reasoning"]


class Line:
    """Something that began.

    Attributes:
        kind: A `slot` is the place before an answer of words that the user may have said.
        key: The model's content id.
        closed: Whether it may be settled as it stands.
        stopped: Whether the model said that it is complete.
        interrupted: Whether it was broken off.
        deadline: When it is settled at the latest.
        answered_by: The response that came after it.
    """

    __slots__ = (
        "answered_by",
        "closed",
        "deadline",
        "interrupted",
        "key",
        "kind",
        "messages",
        "part",
        "speech",
        "stopped",
        "text",
    )

    def __init__(self, kind: Kind, key: str = "", speech: Speech | None = None, part: Part | None = None) -> None:
        self.kind: Kind = kind
        self.key = key
        self.text = ""
        self.speech = speech
        self.part = part
        self.messages: tuple[Message, ...] = ()
        self.closed = False
        self.stopped = False
        self.interrupted = False
        self.deadline: float | None = None
        self.answered_by: Speech | None = None

    @property
    def written(self) -> bool:
        """Whether it is text or reasoning."""
        return self.kind in {"text", "reasoning"}

    @property
    def unanswered(self) -> bool:
        """Whether the user may be speaking it still."""
        return not self.closed and self.answered_by is None

    def overdue(self, now: float) -> bool:
        """Whether it has waited long enough."""
        return self.deadline is not None and now >= self.deadline

    def ready(self, now: float) -> bool:
        """Whether it can be settled."""
        if self.kind == "messages":
            return True
        if self.speech is None or self.part is None:
            return self.closed or self.overdue(now)
        speech, part = self.speech, self.part
        if speech.cut:
            return speech.cut_ms is not None
        if part.stopped and part.timed and speech.reaches(part.end_ms, now):
            return True
        if not speech.complete:
            return False
        return not speech.audio_ms or speech.all_played(now) or now >= speech.playback.stalls_at

    def due(self, now: float) -> float | None:
        """When it should be looked at again, if nothing happens before."""
        if self.speech is None or self.part is None:
            return self.deadline
        speech, part = self.speech, self.part
        if speech.cut:
            return None
        playback = speech.playback
        if part.stopped and part.timed and playback.reported_ms is None:
            return playback.looks_at(part.end_ms, now) if playback.delivered_ms or speech.complete else None
        return playback.looks_at(speech.audio_ms, now) if speech.complete else None

    def message(self, ms: float | None) -> Message | None:
        """What it says; None where it says nothing.

        Args:
            ms: How much of the response's sound was heard; None for all of it.
        """
        if self.kind == "messages":
            return self.messages[0]
        if self.part is not None and self.speech is not None:
            return _spoken(self.speech, self.part, ms)
        text = clean(self.text)
        if not text.strip():
            return None
        if self.kind == "user":
            return message("user", {"text": text}, {"kind": "speech"})
        if self.kind == "reasoning":
            return message("assistant", {"reasoningContent": {"reasoningText": {"text": text}}}, {})
        return message("assistant", {"text": text}, {"interrupted": True} if self.interrupted else {})

    def unsaid(self) -> Message:
        """What stands for it while nothing is known of it."""
        return {"role": "user" if self.kind in {"user", "slot"} else "assistant", "content": []}


def _spoken(speech: Speech, part: Part, ms: float | None) -> Message | None:
    made = clean(part.text).strip()
    heard = made if ms is None else clean(speech.heard(part, ms)).strip()
    if not heard:
        return None
    metadata: MessageMetadata = {"kind": "speech", "response_id": clean(speech.response_id)}
    if heard != made or (speech.cut and not speech.audio_ms):
        metadata |= {"interrupted": True, "generated_text": made}
        if ms is not None:
            metadata["heard_ms"] = round(ms, 3)
    return message("assistant", {"text": heard}, metadata)


def inaudible() -> Message:
    """What stands for words of the user that nobody understood."""
    return message("user", {"text": INAUDIBLE}, {"kind": "speech"})


def message(role: Literal["user", "assistant"], block: ContentBlock, metadata: MessageMetadata) -> Message:
    """A message of one block."""
    made: Message = {"role": role, "content": [block]}
    if metadata:
        made["metadata"] = metadata
    return made


def clean(text: str) -> str:
    r"""`text` as a store can keep it: halves of a character are joined, and one without the other is replaced.

    Models that cut their text in UTF-16 may send the halves in two events.

    >>> clean("\ud83d" + "\ude00") == "\U0001f600", clean("a\ud83d") == "a\ufffd"
    (True, True)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text

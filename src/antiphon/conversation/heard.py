"""What of an answer reached the listener's ear.

A model makes an answer faster than it is played, and a listener who speaks over it hears only a part. This module keeps,
for each response, how much sound came from the model, how much was handed out, how much the loudspeaker says it played,
and where each word lies in the sound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from antiphon.events import Word

_EPSILON_MS = 1e-6
_ROUNDING_MS = 1.0
"""Sinks report whole samples or whole milliseconds; less than this is not missing from a finished answer."""


def heard_text(words: Sequence[Word], played_ms: float) -> str:
    """The part of an answer that reached the listener's ear.

    Args:
        words: The answer's words with their end, in ms from the first sample, ascending.
        played_ms: Sound that left the loudspeaker before it was silenced, in ms.

    >>> heard_text([Word("Hello", 300), Word("there", 700)], played_ms=450)
    'Hello'
    """
    return " ".join(word.text for word in words if word.end_ms <= played_ms + _EPSILON_MS)


class Part:
    """One transcript of a response: its text so far, and where its words end in the text and in the sound."""

    __slots__ = ("_end_chars", "_end_ms", "content_id", "stopped", "text")

    def __init__(self, content_id: str) -> None:
        self.content_id = content_id
        self.text = ""
        self.stopped = False
        self._end_chars: list[int] = []
        self._end_ms: list[float] = []

    def add(self, delta: str, words: Sequence[Word]) -> None:
        """Append text and the times of its words."""
        self.text += delta
        at = self._end_chars[-1] if self._end_chars else 0
        for word in words:
            found = self.text.find(word.text, at)
            at = found + len(word.text) if found >= 0 else len(self.text)
            self._end_chars.append(at)
            # A word cannot end before the one in front of it, whatever an engine says.
            self._end_ms.append(max(word.end_ms, self._end_ms[-1]) if self._end_ms else word.end_ms)

    @property
    def timed(self) -> bool:
        """Whether the times of its words are known."""
        return bool(self._end_ms)

    @property
    def end_ms(self) -> float:
        """Where its last word ends."""
        return self._end_ms[-1] if self._end_ms else 0.0

    def until(self, ms: float) -> str:
        """The text up to the last word that ends within `ms`."""
        count = bisect_right(self._end_ms, ms + _EPSILON_MS)
        if count == len(self._end_ms):
            # What follows the last timed word, such as a full stop, goes with it.
            return self.text if self.stopped else self.text[: self._end_chars[-1]]
        return self.text[: self._end_chars[count - 1]] if count else ""


class Speech:
    """The sound of one response, and its transcripts."""

    __slots__ = (
        "audio_ms",
        "complete",
        "cut",
        "cut_ms",
        "delivered_ms",
        "gap_ms",
        "implicit",
        "parts",
        "progress_at",
        "reported_ms",
        "response_id",
        "started_at",
    )

    def __init__(self, response_id: str, now: float, *, implicit: bool = False) -> None:
        self.response_id = response_id
        self.parts: list[Part] = []
        self.audio_ms = 0.0
        self.delivered_ms = 0.0
        self.started_at: float | None = None
        self.reported_ms: float | None = None
        self.gap_ms: float | None = None
        self.progress_at = now
        self.complete = False
        self.cut = False
        self.cut_ms: float | None = None
        self.implicit = implicit

    def deliver(self, ms: float, now: float) -> None:
        """`ms` of sound were handed to whoever plays it."""
        if self.started_at is None:
            self.started_at = now
        self.delivered_ms += ms
        self.progress_at = now

    def lose(self, ms: float) -> None:
        """`ms` of sound, the next that would have been handed out, were dropped instead."""
        if self.gap_ms is None:
            self.gap_ms = self.delivered_ms
        self.delivered_ms += ms

    def report(self, ms: float, now: float) -> None:
        """The loudspeaker has played the first `ms`."""
        if self.reported_ms is None or ms > self.reported_ms or self.cut:
            self.reported_ms = max(0.0, ms)
            self.progress_at = now

    def position_ms(self, now: float) -> float:
        """How far the sound was played: as reported, else the smaller of wall time and what was handed out."""
        if self.reported_ms is not None:
            return min(self.reported_ms, self.audio_ms)
        if self.started_at is None:
            return 0.0
        return min((now - self.started_at) * 1000, self.delivered_ms)

    def heard_ms(self, now: float) -> float:
        """How much of the beginning was heard without a gap."""
        at = self.position_ms(now) if self.cut_ms is None else self.cut_ms
        return at if self.gap_ms is None else min(at, self.gap_ms)

    def all_played(self, now: float) -> bool:
        """Whether the whole answer is there and was played."""
        return self.complete and self.position_ms(now) >= self.audio_ms - _ROUNDING_MS

    def heard(self, part: Part, ms: float) -> str:
        """What of `part` lies within the first `ms` of the sound.

        By the times of its words where they are known; else in proportion to the sound, cut at the end of a word. A
        response that ended without any sound counts as heard, and so does all of one that was played to its end.
        """
        if not self.audio_ms:
            return part.text if self.complete and not self.cut else ""
        to_the_end = ms >= self.audio_ms - _ROUNDING_MS
        if part.timed and not (to_the_end and self.complete and not self.cut):
            return part.until(ms)
        if to_the_end:
            return part.text
        before = sum(len(other.text) for other in self.parts[: self.parts.index(part)])
        total = sum(len(other.text) for other in self.parts)
        chars = int(total * ms / self.audio_ms) - before
        return _whole_words(part.text, chars)

    def part(self, content_id: str) -> Part | None:
        """The transcript with this id, the newest first."""
        return next((part for part in reversed(self.parts) if part.content_id == content_id), None)


def _whole_words(text: str, chars: int) -> str:
    """The words of `text` that end within its first `chars` characters."""
    if chars >= len(text):
        return text
    if chars <= 0:
        return ""
    if text[chars].isspace():
        return text[:chars].rstrip()
    head = text[:chars]
    cut = max(head.rfind(" "), head.rfind("\n"))
    return head[:cut].rstrip() if cut > 0 else ""

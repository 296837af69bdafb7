"""What of an answer reached the listener's ear.

A model makes an answer faster than it is played, and a listener who speaks over it hears only a part. This module keeps,
for each response, how much sound came from the model, how much was handed out, how much the loudspeaker says it played,
and where each word lies in the sound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.events import Word

STALL_S = 5.0
"""How long a finished answer may make no progress towards the ear before it is taken as not heard to its end."""
UNREPORTED_MS = 500.0
"""Loudspeakers report every 100 ms or so, and not all of them report the end: so much may be missing from the last report."""
REPORT_GAP_S = 0.1
"""How much longer than what is missing a loudspeaker must have been silent before the answer counts as played."""
FASTEST_CHARS_PER_S = 25.0
"""Nobody speaks faster (a quick speaker says 15 to 20): text that is longer than its sound ran ahead of it."""
_EPSILON_MS = 1e-6
_EPSILON_S = 1e-6
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
    """One transcript of a response: its text so far, and where its words end in the text and in the sound.

    Attributes:
        begin_ms: How much sound of the response there was when it began.
        stopped: Whether the model said that it is complete.
        ended: Whether its response is over. A model may send the last words after that.
        settled: Whether it is in the history.
    """

    __slots__ = ("_end_chars", "_end_ms", "_frozen", "begin_ms", "content_id", "ended", "settled", "stopped", "text")

    def __init__(self, content_id: str, begin_ms: float = 0.0) -> None:
        self.content_id = content_id
        self.begin_ms = begin_ms
        self.text = ""
        self.stopped = False
        self.ended = False
        self.settled = False
        self._frozen: int | None = None
        self._end_chars: list[int] = []
        self._end_ms: list[float] = []

    def add(self, delta: str, words: Sequence[Word]) -> None:
        """Append text and the times of its words."""
        self.text += delta
        if not words:
            return
        at = self._end_chars[-1] if self._end_chars else 0
        for word in words:
            found = self.text.find(word.text, at)
            at = found + len(word.text) if found >= 0 else len(self.text)
            self._end_chars.append(at)
            # A word cannot end before the one in front of it, whatever an engine says.
            self._end_ms.append(max(word.end_ms, self._end_ms[-1]) if self._end_ms else word.end_ms)

    def freeze(self) -> None:
        """The sound ends here: words that come later have none."""
        self._frozen = len(self.text)

    @property
    def sounding(self) -> int:
        """How many characters of the text may have a sound."""
        return len(self.text) if self._frozen is None else self._frozen

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
            return self.text if self.stopped or self.ended else self.text[: self._end_chars[-1]]
        return self.text[: self._end_chars[count - 1]] if count else ""


class Loudspeaker:
    """The order in which responses are played, as far as time tells: one after the other."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: list[Speech] = []

    def add(self, speech: Speech, now: float) -> float:
        """A response hands out its first sound. Returns when it is its turn."""
        self._queue = [other for other in self._queue if not other.cut and other.plays_until > now]
        turn = max(now, self._queue[-1].plays_until) if self._queue else now
        self._queue.append(speech)
        return turn

    def move(self, speech: Speech, end: float, now: float) -> None:
        """A response ends earlier or later than it seemed: those behind it follow."""
        if speech in self._queue:
            for other in self._queue[self._queue.index(speech) + 1 :]:
                other.follow(end, now)
                end = other.plays_until


class Speech:
    """The sound of one response, and its transcripts.

    Attributes:
        audio_ms: Sound that came from the model.
        delivered_ms: Sound that was handed out, or dropped where it would have been.
        complete: Whether nothing more of it is made.
        broken: Whether it was broken off: there would have been more.
        cut: Whether whatever was not heard yet never will be; since `cut_at`.
        cut_ms: Where it was cut, when that is known.
        implicit: Whether the model did not say that it begins.
    """

    __slots__ = (
        "_handed_at",
        "_lost_ms",
        "_loudspeaker",
        "_reported_at",
        "_turn_at",
        "_turn_ms",
        "audio_ms",
        "broken",
        "complete",
        "cut",
        "cut_at",
        "cut_ms",
        "delivered_ms",
        "gap_ms",
        "implicit",
        "parts",
        "progress_at",
        "reported_ms",
        "response_id",
    )

    def __init__(
        self, response_id: str, now: float, *, implicit: bool = False, loudspeaker: Loudspeaker | None = None
    ) -> None:
        self.response_id = response_id
        self.implicit = implicit
        self.parts: list[Part] = []
        self.audio_ms = 0.0
        self.delivered_ms = 0.0
        self.reported_ms: float | None = None
        self.gap_ms: float | None = None
        self.progress_at = now
        self.complete = False
        self.broken = False
        self.cut = False
        self.cut_at = now
        self.cut_ms: float | None = None
        self._handed_at: float | None = None
        self._lost_ms = 0.0
        self._reported_at = now
        self._turn_at = now  # since when it is played without a pause, and from where
        self._turn_ms = 0.0
        self._loudspeaker = loudspeaker or Loudspeaker()

    def deliver(self, ms: float, now: float) -> None:
        """`ms` of sound were handed to whoever plays it."""
        if self._handed_at is None:
            self._handed_at = now
            self._turn_at = self._loudspeaker.add(self, now)
        elif self.plays_until < now:
            self._turn_at, self._turn_ms = now, self._given_ms
        self.delivered_ms += ms
        self.progress_at = now

    def lose(self, ms: float) -> None:
        """`ms` of sound, the next that would have been handed out, were dropped instead."""
        if self.gap_ms is None:
            self.gap_ms = self.delivered_ms
        self.delivered_ms += ms
        self._lost_ms += ms

    def report(self, ms: float, now: float) -> None:
        """The loudspeaker has played the first `ms`, which cannot be more than it was given."""
        ms = min(max(0.0, ms), self.delivered_ms)
        if self.reported_ms is None or ms > self.reported_ms or self.cut:
            self.reported_ms = ms
            self._reported_at = self.progress_at = now
            if not self.cut:
                self._turn_at, self._turn_ms = now, min(ms, self._given_ms)
                self._loudspeaker.move(self, self.plays_until, now)

    def follow(self, end: float, now: float) -> None:
        """The response in front of this one ends at `end`."""
        if self.cut or self.reported_ms is not None or self._handed_at is None:
            return
        turn = max(end, self._handed_at)
        if self._turn_at < turn or self._turn_at > now:
            self._turn_at = turn

    def finish(self, now: float, *, broken: bool = False) -> None:
        """Nothing more of it is made."""
        self.complete = True
        self.broken = broken
        self.progress_at = max(self.progress_at, now)
        for part in self.parts:
            part.ended = True
            if broken:
                part.freeze()

    def silence(self, now: float) -> None:
        """Whatever was not heard yet never will be."""
        self.cut = True
        self.cut_at = now
        self._loudspeaker.move(self, now, now)

    @property
    def _given_ms(self) -> float:
        return self.delivered_ms - self._lost_ms

    @property
    def plays_until(self) -> float:
        """When what was handed out will have been played."""
        return self._turn_at + (self._given_ms - self._turn_ms) / 1000

    def position_ms(self, now: float) -> float:
        """How far the sound was played: as reported, else as far as time and what was handed out allow."""
        if self.reported_ms is not None:
            return self.audio_ms if self._covered(now) else min(self.reported_ms, self.audio_ms)
        if self._handed_at is None:
            return 0.0
        since = (min(now, self.cut_at) if self.cut else now) - self._turn_at
        played = min(self._turn_ms + max(0.0, since) * 1000, self._given_ms)
        if self.gap_ms is not None and played > self.gap_ms:
            played += self._lost_ms
        return played

    def _covered(self, now: float) -> bool:
        covered_at = self._covered_at
        if covered_at is None:
            return False
        return covered_at <= self.cut_at if self.cut else now >= covered_at + REPORT_GAP_S

    @property
    def _covered_at(self) -> float | None:
        """When what is missing from the last report was played, where so little is missing that it needs no report."""
        reported = self.reported_ms
        if reported is None or not self.complete or self.broken or self.delivered_ms < self.audio_ms - _ROUNDING_MS:
            return None
        rest = self.audio_ms - reported
        return self._reported_at + max(0.0, rest) / 1000 if rest <= UNREPORTED_MS else None

    def heard_ms(self, now: float) -> float:
        """How much of the beginning was heard without a gap."""
        at = self.position_ms(now) if self.cut_ms is None else self.cut_ms
        return at if self.gap_ms is None else min(at, self.gap_ms)

    def all_played(self, now: float) -> bool:
        """Whether the whole answer is there and was played."""
        return self.complete and self.position_ms(now) >= self.audio_ms - _ROUNDING_MS

    @property
    def stalls_at(self) -> float:
        """When it is given up, if it is complete and nothing is heard of it before."""
        waited = self.progress_at if self.reported_ms is not None else max(self.progress_at, self.plays_until)
        return waited + STALL_S

    def looks_at(self, ms: float, now: float) -> float:
        """When the first `ms` of a complete answer may have been played, or it is given up."""
        if self.reported_ms is not None:
            covered_at = self._covered_at
            return self.stalls_at if covered_at is None else min(self.stalls_at, covered_at + REPORT_GAP_S)
        if self._handed_at is None:
            return self.stalls_at
        if self.delivered_ms < ms - _EPSILON_MS:
            return now  # nobody says when the rest is handed out
        to_play = ms if self.gap_ms is None or ms <= self.gap_ms else ms - self._lost_ms
        return self._turn_at + (to_play - self._turn_ms) / 1000 + _EPSILON_S

    def reaches(self, ms: float, now: float) -> bool:
        """Whether the first `ms` were played."""
        return self.position_ms(now) >= ms - _EPSILON_MS

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
        if to_the_end and self.complete and not self.broken:
            return part.text
        return _whole_words(part.text[: part.sounding], self._chars_within(part, ms))

    def _chars_within(self, part: Part, ms: float) -> int:
        """How many characters of `part` lie within the first `ms`, in proportion to the sound of its stretch."""
        index = self.parts.index(part)
        stretch = next(stretch for stretch in self._stretches() if stretch.first <= index < stretch.end)
        into = ms - stretch.begin_ms
        length = stretch.end_ms - stretch.begin_ms
        if into <= 0 or length <= 0:
            return 0
        chars = stretch.chars if into >= length - _ROUNDING_MS else int(stretch.chars * into / length)
        if self.broken or not self.complete:
            chars = min(chars, int(FASTEST_CHARS_PER_S * into / 1000))
        return chars - sum(other.sounding for other in self.parts[stretch.first : index])

    def _stretches(self) -> list[_Stretch]:
        """The sound, divided among the transcripts: each has it from where it began to where the next one began.

        Text may run ahead of its sound, or lag behind it. What is too long for its stretch shares the one that follows; at
        the end of a complete answer, the one before. Of an answer that is not complete, the end has no sound yet.
        """
        stretches: list[_Stretch] = []
        for index, part in enumerate(self.parts):
            last = stretches[-1] if stretches else None
            if last is not None and (part.begin_ms <= last.end_ms or last.dense(part.begin_ms)):
                last.end, last.chars = index + 1, last.chars + part.sounding
                last.end_ms = max(last.end_ms, part.begin_ms)
            else:
                begin_ms = 0.0 if last is None else part.begin_ms
                if last is not None:
                    last.end_ms = part.begin_ms
                stretches.append(_Stretch(index, index + 1, begin_ms, part.begin_ms, part.sounding))
        stretches[-1].end_ms = self.audio_ms
        while len(stretches) > 1 and self.complete and not self.broken and stretches[-1].dense(self.audio_ms):
            last = stretches.pop()
            stretches[-1].end, stretches[-1].end_ms = last.end, last.end_ms
            stretches[-1].chars += last.chars
        return stretches

    def open_part(self, content_id: str) -> Part | None:
        """The newest transcript with this id that is not complete."""
        for part in reversed(self.parts):
            if part.content_id == content_id and not part.stopped:
                return part
        return None


@dataclass(slots=True)
class _Stretch:
    """A stretch of sound and the transcripts (`first` up to, not including `end`) that it speaks."""

    first: int
    end: int
    begin_ms: float
    end_ms: float
    chars: int

    def dense(self, end_ms: float) -> bool:
        """Whether it has more text than could be said until `end_ms`."""
        return self.chars > FASTEST_CHARS_PER_S * (end_ms - self.begin_ms) / 1000


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

"""What of an answer reached the listener's ear.

A model makes an answer faster than it is played, and a listener who speaks over it hears only a part. This module keeps,
for each response, how much sound came from the model, how much of it was played (`antiphon.conversation.playback`), and
where each word lies in the sound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.conversation.playback import EPSILON_MS, ROUNDING_MS, Loudspeaker, Playback
from antiphon.events import Word

FASTEST_CHARS_PER_S = 25.0
"""Nobody speaks faster (a quick speaker says 15 to 20): text that is longer than its sound ran ahead of it."""
ACCOUNT_S = 1.0
"""A provider's account of what was said holds, unless the loudspeaker was further behind than this."""


def heard_text(words: Sequence[Word], played_ms: float) -> str:
    """The part of an answer that reached the listener's ear.

    Args:
        words: The answer's words with their end, in ms from the first sample, ascending.
        played_ms: Sound that left the loudspeaker before it was silenced, in ms.

    >>> heard_text([Word("Hello", 300), Word("there", 700)], played_ms=450)
    'Hello'
    """
    return " ".join(word.text for word in words if word.end_ms <= played_ms + EPSILON_MS)


class Part:
    """One transcript of a response: its text so far, and where its words end in the text and in the sound.

    Attributes:
        begin_ms: How much sound of the response there was when it began.
        account: What was said of the text, as the provider says, where it was less.
        stopped: Whether the model said that it is complete.
        ended: Whether its response is over. A model may send the last words after that.
        settled: Whether it is in the history.
    """

    __slots__ = (
        "_end_chars",
        "_end_ms",
        "_frozen",
        "account",
        "begin_ms",
        "content_id",
        "ended",
        "settled",
        "stopped",
        "text",
    )

    def __init__(self, content_id: str, begin_ms: float = 0.0) -> None:
        self.content_id = content_id
        self.begin_ms = begin_ms
        self.text = ""
        self.account: str | None = None
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

    def correct(self, said: str) -> None:
        """The provider's own account of what was said: less than the text, or in other words."""
        if len(said) < len(self.text):
            self.account = said
            return
        if self._frozen is not None:
            self._frozen += len(said) - len(self.text)
        self.text = said
        self._end_chars.clear()  # the times are those of other words
        self._end_ms.clear()

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
        count = bisect_right(self._end_ms, ms + EPSILON_MS)
        if count == len(self._end_ms):
            # What follows the last timed word, such as a full stop, goes with it.
            return self.text if self.stopped or self.ended else self.text[: self._end_chars[-1]]
        return self.text[: self._end_chars[count - 1]] if count else ""


class Speech:
    """The sound of one response, and its transcripts.

    Attributes:
        audio_ms: Sound that came from the model.
        playback: Its way to the ear.
        complete: Whether nothing more of it is made.
        broken: Whether it was broken off: there would have been more.
        cut: Whether whatever was not heard yet never will be; since `cut_at`.
        cut_ms: Where it was cut, when that is known.
        implicit: Whether the model did not say that it begins.
    """

    __slots__ = (
        "audio_ms",
        "broken",
        "complete",
        "cut",
        "cut_at",
        "cut_ms",
        "implicit",
        "parts",
        "playback",
        "response_id",
    )

    def __init__(
        self, response_id: str, now: float, *, implicit: bool = False, loudspeaker: Loudspeaker | None = None
    ) -> None:
        self.response_id = response_id
        self.implicit = implicit
        self.parts: list[Part] = []
        self.audio_ms = 0.0
        self.playback = Playback(now, loudspeaker)
        self.complete = False
        self.broken = False
        self.cut = False
        self.cut_at = now
        self.cut_ms: float | None = None

    def deliver(self, ms: float, now: float) -> None:
        """`ms` of sound were handed to whoever plays it."""
        self.playback.deliver(ms, now)

    def lose(self, ms: float) -> None:
        """`ms` of sound, the next that would have been handed out, were dropped instead."""
        self.playback.lose(ms)

    def report(self, ms: float, now: float) -> None:
        """The loudspeaker has played the first `ms`."""
        self.playback.report(ms, now)

    @property
    def delivered_ms(self) -> float:
        """Sound that was handed out, or dropped where it would have been."""
        return self.playback.delivered_ms

    @property
    def gap_ms(self) -> float | None:
        """Where the first sound was dropped."""
        return self.playback.gap_ms

    def finish(self, now: float, *, broken: bool = False) -> None:
        """Nothing more of it is made."""
        self.complete = True
        self.broken = broken
        self.playback.progress_at = max(self.playback.progress_at, now)
        for part in self.parts:
            part.ended = True
            if broken:
                part.freeze()

    def silence(self, now: float) -> None:
        """Whatever was not heard yet never will be."""
        self.cut = True
        self.cut_at = now
        self.playback.silence(now)

    def position_ms(self, now: float) -> float:
        """How far the sound was played."""
        if self.complete and not self.broken and self.playback.covers(self.audio_ms, now):
            return self.audio_ms
        return min(self.playback.position_ms(now), self.audio_ms)

    def heard_ms(self, now: float) -> float:
        """How much of the beginning was heard without a gap."""
        at = self.position_ms(now) if self.cut_ms is None else self.cut_ms
        gap_ms = self.playback.gap_ms
        return at if gap_ms is None else min(at, gap_ms)

    def all_played(self, now: float) -> bool:
        """Whether the whole answer is there and was played."""
        return self.complete and self.position_ms(now) >= self.audio_ms - ROUNDING_MS

    def reaches(self, ms: float, now: float) -> bool:
        """Whether the first `ms` were played."""
        return self.position_ms(now) >= ms - EPSILON_MS

    def heard(self, part: Part, ms: float) -> str:
        """What of `part` lies within the first `ms` of the sound.

        By the provider's own account, if it gives one and the loudspeaker was not far behind it; by the times of its words
        where they are known; else in proportion to the sound, cut at the end of a word. A response that ended without any
        sound counts as heard, and so does all of one that was played to its end.
        """
        if not self.audio_ms:
            return part.text if self.complete and not self.cut else ""
        if part.account is not None and ms > 0:
            behind = len(part.account) - self._chars_within(part, ms)
            if behind <= FASTEST_CHARS_PER_S * ACCOUNT_S:
                return part.account
        to_the_end = ms >= self.audio_ms - ROUNDING_MS
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
        chars = stretch.chars if into >= length - ROUNDING_MS else int(stretch.chars * into / length)
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

"""Voice activity: where speech begins and ends in a stream of sound.

Pure arithmetic on energy. Speech is what stands out of the background for a while; the background is the quietest
moment of the last seconds, so that a fan, hiss or hum that stays is no speech, however loud it is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from operator import mul, sub

from antiphon.audio import SAMPLE_BYTES, Frames, samples
from antiphon.errors import InvalidInputError

FRAME_MS = 20


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Somebody begins to speak.

    Attributes:
        at: The first sample of the speech, counted from the first one that was fed.
        known_at: The sample with which it was certain.
    """

    at: int
    known_at: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """Somebody has finished speaking.

    Attributes:
        at: The sample after the last one of the speech, counted from the first one that was fed.
        known_at: The sample with which it was certain.
    """

    at: int
    known_at: int


class _Floor:
    """The level of the background: the lowest of the last frames, in dB.

    Before enough of them have been heard, it is at most `at_most`: whoever speaks from the first sample on is heard.
    """

    def __init__(self, frames: int, at_most: float) -> None:
        self._frames, self._at_most = frames, at_most
        self._lowest: deque[tuple[int, float]] = deque()  # ascending levels: the first is the lowest of the window
        self._seen = 0

    def feed(self, level: float) -> float:
        while self._lowest and self._lowest[-1][1] >= level:
            self._lowest.pop()
        self._lowest.append((self._seen, level))
        self._seen += 1
        if self._lowest[0][0] <= self._seen - 1 - self._frames:
            self._lowest.popleft()
        lowest = self._lowest[0][1]
        return lowest if self._seen >= self._frames else min(lowest, self._at_most)


class Vad:
    """Finds speech in 16-bit mono PCM; how the stream is sliced makes no difference.

    The level of a frame of 20 ms is taken from the differences of neighbouring samples, which keeps consonants and
    removes hum and offsets. Speech starts when `start_ms` of the last frames rise clearly above the background, and ends
    when nothing has risen above it for `end_ms`; between both levels lies a band in which nothing changes.

    Args:
        sample_rate: In Hz.
        start_ms: How much speech it takes to believe it; a click is shorter.
        end_ms: How long it must be quiet.
        start_db: How far above the background speech begins.
        end_db: How far above it speech goes on.
        quietest_db: Below this level nothing is speech. One step between neighbouring samples is 0 dB.
    """

    WINDOW_MS = 2500
    FLOOR_AT_MOST_DB = 42.0
    # Sound that began less than this before it was believed belongs to the word that follows.
    LOOK_BACK_MS = 200

    def __init__(
        self,
        sample_rate: int,
        *,
        start_ms: float = 60,
        end_ms: float = 500,
        start_db: float = 12.0,
        end_db: float = 8.0,
        quietest_db: float = 36.0,
    ) -> None:
        if sample_rate < 8000:
            raise InvalidInputError(f"sample_rate={sample_rate!r} is too low for speech: use 8000 or more")
        if start_ms <= 0 or end_ms <= 0:
            raise InvalidInputError(f"start_ms={start_ms!r} and end_ms={end_ms!r} must be above 0")
        self._frame = sample_rate * FRAME_MS // 1000
        self._frames = Frames(self._frame * SAMPLE_BYTES)
        self._needed = max(1, math.ceil(start_ms / FRAME_MS))
        self._patience = max(1, math.ceil(end_ms / FRAME_MS))
        self._start_db, self._end_db, self._quietest_db = start_db, end_db, quietest_db
        self._floor = _Floor(self.WINDOW_MS // FRAME_MS, self.FLOOR_AT_MOST_DB)
        # Per recent frame: rises it above the first level, and above the second?
        self._recent: deque[tuple[bool, bool]] = deque(maxlen=self.LOOK_BACK_MS // FRAME_MS + self._needed)
        self._index = 0
        self._last_loud = 0
        self.speaking = False

    def feed(self, pcm: bytes) -> list[SpeechStarted | SpeechEnded]:
        """What the sound in `pcm` makes certain, in order."""
        events: list[SpeechStarted | SpeechEnded] = []
        for frame in self._frames.feed(pcm):
            event = self._hear(_level(frame))
            self._index += 1
            if event is not None:
                events.append(event)
        return events

    def finish(self) -> list[SpeechStarted | SpeechEnded]:
        """The end of what is being said when the stream ends here, after which listening goes on."""
        if not self.speaking:
            return []
        return [self._end(self._index)]

    def _hear(self, level: float) -> SpeechStarted | SpeechEnded | None:
        floor = self._floor.feed(level)
        loud = level >= max(floor + self._start_db, self._quietest_db)
        audible = level >= max(floor + self._end_db, self._quietest_db - 6)
        self._recent.append((loud, audible))
        if self.speaking:
            if audible:
                self._last_loud = self._index
            elif self._index - self._last_loud >= self._patience:
                return self._end(self._index + 1)
            return None
        window = list(self._recent)[-self._needed - 2 :]
        if loud and sum(rises for rises, _ in window) >= self._needed:
            self.speaking = True
            self._last_loud = self._index
            return SpeechStarted(self._onset() * self._frame, (self._index + 1) * self._frame)
        return None

    def _onset(self) -> int:
        """The first frame of the sound that leads up to this one; a stop consonant's gap of two frames is part of it."""
        onset, gap = self._index, 0
        for back, (_, audible) in enumerate(reversed(self._recent)):
            if audible:
                onset, gap = self._index - back, 0
            else:
                gap += 1
                if gap > 2:
                    break
        return onset

    def _end(self, heard: int) -> SpeechEnded:
        self.speaking = False
        self._recent.clear()
        return SpeechEnded((self._last_loud + 1) * self._frame, heard * self._frame)


def _level(frame: bytes) -> float:
    """Mean power of the first differences, in dB; 0 dB at least."""
    values = samples(frame)
    steps = list(map(sub, values[1:], values))
    return 10 * math.log10(max(1.0, sum(map(mul, steps, steps)) / len(steps)))

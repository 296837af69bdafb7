"""Speech as events: sound in pieces of 20 ms, and words with their exact times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from antiphon.events import BidiAudioDeltaEvent, BidiTranscriptDeltaEvent, OutputEvent, Word

PIECE_MS = 20


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text as sound.

    Attributes:
        audio: 16-bit little-endian PCM, mono.
        sample_rate: In Hz.
        words: The text's words, in order, with times from the first sample.
    """

    audio: bytes
    sample_rate: int
    words: tuple[Word, ...]

    @property
    def duration_ms(self) -> float:
        """How long the sound is."""
        return len(self.audio) / 2 * 1000 / self.sample_rate


class Voice(Protocol):
    """What turns text into sound."""

    @property
    def sample_rate(self) -> int:
        """In Hz."""
        ...

    def speak(self, text: str) -> Spoken:
        """The text as sound, with the times of its words."""
        ...


class SilentVoice:
    """A voice that moves its lips: silence of the right length, each word as long as the others.

    Args:
        words_per_second: How fast it speaks.
        sample_rate: In Hz.
    """

    def __init__(self, *, words_per_second: float = 3.0, sample_rate: int = 24000) -> None:
        self._word_ms = 1000 / words_per_second
        self._sample_rate = sample_rate

    @property
    def sample_rate(self) -> int:
        return self._sample_rate

    def speak(self, text: str) -> Spoken:
        ends = [index * self._word_ms for index in range(len(text.split()) + 1)]
        words = [
            Word(word, start_ms=start, end_ms=end)
            for word, start, end in zip(text.split(), ends, ends[1:], strict=False)
        ]
        return silence_for(words, self._sample_rate)


def silence_for(words: Sequence[Word], sample_rate: int) -> Spoken:
    """Silence that is as long as these words."""
    end_ms = max((word.end_ms for word in words), default=0.0)
    return Spoken(b"\0\0" * round(end_ms * sample_rate / 1000), sample_rate, tuple(words))


class Timed(NamedTuple):
    """An event and when it is due, in ms from the beginning of the speech."""

    at_ms: float
    event: OutputEvent


def timed_events(
    spoken: Spoken, *, response_id: str, content_id: str, before: int = 0, word_times: bool = True
) -> Iterator[Timed]:
    """The deltas of a speech: each piece of sound when it is due, each word with the piece in which it begins.

    Args:
        spoken: The speech.
        response_id: The response it belongs to.
        content_id: The id of sound and transcript.
        before: Samples of this response that were spoken earlier; words are timed from the response's first sample.
        word_times: Whether the transcript says when its words are.
    """
    shift_ms = before * 1000 / spoken.sample_rate
    piece = spoken.sample_rate * PIECE_MS // 1000 * 2
    waiting = list(reversed(spoken.words))
    first = before == 0
    for number, start in enumerate(range(0, len(spoken.audio), piece)):
        at_ms = float(number * PIECE_MS)
        while waiting and waiting[-1].start_ms < at_ms + PIECE_MS:
            yield Timed(at_ms, _said(waiting.pop(), content_id, shift_ms, first=first, timed=word_times))
            first = False
        yield Timed(
            at_ms,
            BidiAudioDeltaEvent(
                audio=spoken.audio[start : start + piece],
                sample_rate=spoken.sample_rate,
                content_id=content_id,
                response_id=response_id,
            ),
        )
    while waiting:  # words without a sound of their own
        yield Timed(spoken.duration_ms, _said(waiting.pop(), content_id, shift_ms, first=first, timed=word_times))
        first = False


def _said(word: Word, content_id: str, shift_ms: float, *, first: bool, timed: bool) -> BidiTranscriptDeltaEvent:
    placed = Word(word.text, start_ms=word.start_ms + shift_ms, end_ms=word.end_ms + shift_ms)
    return BidiTranscriptDeltaEvent(
        delta=word.text if first else " " + word.text,
        content_id=content_id,
        words=(placed,) if timed else (),
    )

"""Speech as events: sound in pieces of 20 ms, and words with their exact times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from antiphon.audio import bytes_for_ms, duration_ms, silence
from antiphon.events import BidiAudioDeltaEvent, BidiTranscriptDeltaEvent, OutputEvent, Word
from antiphon.models.embedded.mouth import CHUNK_MS, Chunk


class SilentVoice:
    """A voice that only moves its lips: silence of the right length, each word as long as the others.

    Args:
        words_per_second: How fast it speaks.
        sample_rate: In Hz.
    """

    def __init__(self, *, words_per_second: float = 3.0, sample_rate: int = 24000) -> None:
        self._word_ms = 1000 / words_per_second
        self.sample_rate = sample_rate

    def say(self, text: str) -> Iterator[Chunk]:
        """The text as silence."""
        words = text.split()
        ends = [index * self._word_ms for index in range(len(words) + 1)]
        placed = [Word(word, start_ms=ends[index], end_ms=ends[index + 1]) for index, word in enumerate(words)]
        return silence_for(placed, self.sample_rate)

    async def stream(self, text: str) -> AsyncIterator[Chunk]:
        """The same."""
        for chunk in self.say(text):
            yield chunk


def silence_for(words: Sequence[Word], sample_rate: int) -> Iterator[Chunk]:
    """Silence that is as long as these words, each with the piece in which it begins."""
    pcm = silence(max((word.end_ms for word in words), default=0.0), sample_rate)
    size = bytes_for_ms(CHUNK_MS, sample_rate)
    waiting = list(reversed(words))
    for start in range(0, len(pcm), size):
        end = start + size
        begun: list[Word] = []
        while waiting and (waiting[-1].start_ms < duration_ms(end, sample_rate) or end >= len(pcm)):
            begun.append(waiting.pop())
        yield Chunk(pcm[start:end], tuple(begun))


class Speech:
    """A stretch of one response's speech on its way out, as events.

    Args:
        response_id: The response.
        content_id: The id of the stretch's sound and transcript.
        sample_rate: Of the sound, in Hz.
        before: Bytes of sound that earlier stretches of this response had; words are timed from the response's first
            sample.
        word_times: Whether the transcript says when its words are.
    """

    def __init__(
        self, response_id: str, content_id: str, sample_rate: int, *, before: int = 0, word_times: bool = True
    ) -> None:
        self.response_id = response_id
        self.content_id = content_id
        self._sample_rate = sample_rate
        self._before = before
        self._word_times = word_times
        self._first = before == 0
        self._bytes = 0

    @property
    def position_ms(self) -> float:
        """Sound so far, in this stretch."""
        return duration_ms(self._bytes, self._sample_rate)

    @property
    def response_bytes(self) -> int:
        """Sound so far, of the response."""
        return self._before + self._bytes

    @property
    def response_ms(self) -> float:
        """Sound so far, of the response."""
        return duration_ms(self.response_bytes, self._sample_rate)

    def events(self, chunk: Chunk) -> list[OutputEvent]:
        """The words that begin in a piece of sound, and the piece."""
        shift_ms = duration_ms(self._before, self._sample_rate)
        events: list[OutputEvent] = []
        for word in chunk.words:
            placed = Word(word.text, start_ms=word.start_ms + shift_ms, end_ms=word.end_ms + shift_ms)
            events.append(
                BidiTranscriptDeltaEvent(
                    delta=word.text if self._first else " " + word.text,
                    content_id=self.content_id,
                    words=(placed,) if self._word_times else (),
                )
            )
            self._first = False
        events.append(
            BidiAudioDeltaEvent(
                audio=chunk.pcm,
                sample_rate=self._sample_rate,
                content_id=self.content_id,
                response_id=self.response_id,
            )
        )
        self._bytes += len(chunk.pcm)
        return events

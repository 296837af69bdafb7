"""Ears of the embedded model: sound in, sentences out (the extra `voice`).

`Listener` does the work where it is called, and depends on nothing but the samples. `Ears` runs one on a thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Self

from antiphon.audio import SAMPLE_BYTES, Frames, Resampler, bytes_for_ms, duration_ms
from antiphon.errors import AgentStateError, AntiphonError, InvalidInputError, ModelError
from antiphon.events import Word
from antiphon.iothread import run_in_worker
from antiphon.models.embedded.crosscheck import compare
from antiphon.models.embedded.grammar import Grammar
from antiphon.models.embedded.sphinx import (
    FRAMES_PER_SECOND,
    SAMPLE_RATE,
    Recogniser,
    Segment,
    free_recogniser,
    grammar_recogniser,
    require,
)
from antiphon.models.embedded.vad import FRAME_MS, SpeechEnded, SpeechStarted, Vad


@dataclass(frozen=True, slots=True)
class SpeechStart:
    """Somebody has begun to speak.

    Attributes:
        at_ms: Where, in ms from the first sample that was fed.
    """

    at_ms: float


@dataclass(frozen=True, slots=True)
class Partial:
    """What has been understood so far; later words may replace it.

    Attributes:
        text: All of it, in lower case.
    """

    text: str


@dataclass(frozen=True, slots=True)
class SpeechEnd:
    """Somebody has finished speaking; `Heard` follows.

    Attributes:
        at_ms: Where the speech ended, in ms from the first sample that was fed.
    """

    at_ms: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What was said.

    Attributes:
        text: In lower case, numbers in words; empty when no word was understood.
        confidence: How far both recognisers agree on it, 0 to 1; 0 without a grammar.
        words: Its words, in ms from the first sample that was fed.
        matched: Whether it is a whole sentence of the grammar that free recognition confirms. Only then may it run
            a tool; otherwise `text` is the free recogniser's, and some of it is likely wrong.
    """

    text: str
    confidence: float
    words: tuple[Word, ...]
    matched: bool


EarEvent = SpeechStart | Partial | SpeechEnd | Heard


class Listener:
    """Finds speech in a stream of 16-bit mono PCM and recognises it; how the stream is sliced makes no difference.

    For each utterance: `SpeechStart`, any number of `Partial`, `SpeechEnd`, `Heard`. It is slow to make (half a second)
    and works for as long as the sound takes, divided by five; one thread may use it at a time.

    Args:
        sample_rate: Of the sound, in Hz.
        grammar: What may be said to the tools.
        endpoint_ms: How long it must be quiet for the utterance to have ended.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
    """

    # So much sound before the start is recognised with it: weak consonants come before what rises over the noise.
    BEFORE_MS = 300
    PARTIAL_MS = 200
    LONGEST_MS = 30_000

    def __init__(self, *, sample_rate: int = 16000, grammar: Grammar | None = None, endpoint_ms: float = 500) -> None:
        rate = SAMPLE_RATE
        self._vad = Vad(rate, end_ms=endpoint_ms)
        self._resampler = Resampler(sample_rate, rate)
        self._frames = Frames(bytes_for_ms(FRAME_MS, rate))
        self._recent: deque[bytes] = deque(maxlen=(self.BEFORE_MS + Vad.LOOK_BACK_MS) // FRAME_MS + 8)
        self._count = 0
        self._utterance = _Utterance(grammar)

    def feed(self, pcm: bytes) -> Iterator[EarEvent]:
        """What the sound lets one understand, in order, as it is understood. The iterator must be run to its end."""
        for frame in self._frames.feed(self._resampler.feed(pcm)):
            yield from self._hear(frame)

    def finish(self) -> Iterator[EarEvent]:
        """The end of the stream: what is being said ends here. Listening then goes on where it was."""
        for frame in self._frames.feed(self._resampler.flush()):
            yield from self._hear(frame)
        for event in self._vad.finish():
            yield from self._follow(event)

    def close(self) -> None:
        """Gives the recognisers' memory back; nothing may be fed afterwards."""
        self._utterance.close()

    def _hear(self, frame: bytes) -> Iterator[EarEvent]:
        self._recent.append(frame)
        self._count += 1
        if self._utterance.open:
            self._utterance.feed(frame)
            if self._utterance.frames * FRAME_MS % self.PARTIAL_MS == 0 and (text := self._utterance.news()):
                yield Partial(text)
            if self._utterance.frames * FRAME_MS >= self.LONGEST_MS and self._vad.speaking:
                yield from self._close_at(self._count * FRAME_MS)
                yield from self._open_at(self._count * FRAME_MS, [])
        for event in self._vad.feed(frame):
            yield from self._follow(event)

    def _follow(self, event: SpeechStarted | SpeechEnded) -> Iterator[EarEvent]:
        at_ms = event.at * 1000 / SAMPLE_RATE
        if isinstance(event, SpeechStarted):
            wanted = self._count - int(at_ms - self.BEFORE_MS) // FRAME_MS
            yield from self._open_at(at_ms, list(self._recent)[-wanted:])
        else:
            yield from self._close_at(at_ms)

    def _open_at(self, at_ms: float, before: list[bytes]) -> Iterator[EarEvent]:
        yield SpeechStart(at_ms)
        self._utterance.begin((self._count - len(before)) * FRAME_MS)
        for frame in before:
            self._utterance.feed(frame)

    def _close_at(self, at_ms: float) -> Iterator[EarEvent]:
        yield SpeechEnd(at_ms)
        yield self._utterance.end()


class _Utterance:
    """One utterance at a time, heard by the free recogniser and by the grammar's in step."""

    def __init__(self, grammar: Grammar | None) -> None:
        self._free = free_recogniser()
        self._grammar = grammar if grammar is not None and grammar.phrases else None
        self._strict = grammar_recogniser(self._grammar.jsgf) if self._grammar is not None else None
        self._start_ms = 0.0
        self._told = ""
        self.frames = 0
        self.open = False

    def begin(self, start_ms: float) -> None:
        self._start_ms, self._told, self.frames, self.open = start_ms, "", 0, True
        for recogniser in self._recognisers():
            recogniser.start()

    def feed(self, frame: bytes) -> None:
        self.frames += 1
        for recogniser in self._recognisers():
            recogniser.feed(frame)

    def news(self) -> str:
        """What has been understood so far, when that has changed; else nothing."""
        text = self._free.partial()
        if text == self._told:
            return ""
        self._told = text
        return text

    def end(self) -> Heard:
        self.open = False
        free = self._free.finish()
        if self._strict is None or self._grammar is None:
            return self._heard(free, 0.0, matched=False)
        strict = self._strict.finish()
        agreement = compare(strict, free, self._free.pronunciation)
        # The recogniser also gives sentences that break off; only whole ones count.
        if agreement.holds and self._grammar.accepts(_text(strict)):
            return self._heard(strict, agreement.alike, matched=True)
        return self._heard(free, agreement.alike, matched=False)

    def close(self) -> None:
        for recogniser in self._recognisers():
            recogniser.close()

    def _recognisers(self) -> list[Recogniser]:
        return [self._free] if self._strict is None else [self._free, self._strict]

    def _heard(self, segments: tuple[Segment, ...], confidence: float, *, matched: bool) -> Heard:
        frame_ms = 1000 / FRAMES_PER_SECOND
        words = tuple(
            Word(
                segment.text,
                end_ms=self._start_ms + (segment.end + 1) * frame_ms,
                start_ms=self._start_ms + segment.start * frame_ms,
            )
            for segment in segments
            if segment.is_word
        )
        return Heard(_text(segments), confidence, words, matched)


def _text(segments: tuple[Segment, ...]) -> str:
    return " ".join(segment.text for segment in segments if segment.is_word)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The thread is done, by itself or because of an error."""

    error: AntiphonError | None = None


class Ears:
    """A `Listener` on a thread of its own: fed from the event loop, which it never holds up.

    Use it as an async context manager, feed it, and iterate over it, which gives the events in order until `finish` or
    `close`. The recognisers load on the thread; what is fed meanwhile waits. More than `LONGEST_BACKLOG_S` seconds of
    sound never wait: what comes on top is dropped and counted.

    Args:
        sample_rate: Of the sound, in Hz.
        grammar: What may be said to the tools.
        endpoint_ms: How long it must be quiet for the utterance to have ended.

    Attributes:
        dropped_ms: Sound that was dropped because recognition was too far behind.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
        InvalidInputError: A setting is out of range.
    """

    LONGEST_BACKLOG_S = 600

    def __init__(self, *, sample_rate: int = 16000, grammar: Grammar | None = None, endpoint_ms: float = 500) -> None:
        if sample_rate < 8000:
            raise InvalidInputError(f"sample_rate={sample_rate!r} is too low for speech: use 8000 or more")
        if endpoint_ms < FRAME_MS:
            raise InvalidInputError(f"endpoint_ms={endpoint_ms!r} is too short: use at least {FRAME_MS}")
        require()
        self.sample_rate, self.grammar, self.endpoint_ms = sample_rate, grammar, endpoint_ms
        self.dropped_ms = 0.0
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outbox: asyncio.Queue[EarEvent | _Ended] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        # Written by one side each, so that their difference is never too small by more than what is under way.
        self._fed = self._taken = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins to listen; the recognisers load meanwhile.

        Raises:
            AgentStateError: It has been started before.
        """
        if self._thread is not None:
            raise AgentStateError("these ears have been started before: make new ones")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="antiphon-ears", daemon=True)
        self._thread.start()

    def feed(self, pcm: bytes) -> None:
        """More sound: 16-bit mono PCM, cut anywhere. Returns at once."""
        if self._fed - self._taken > self.LONGEST_BACKLOG_S * self.sample_rate * SAMPLE_BYTES:
            self.dropped_ms += duration_ms(len(pcm), self.sample_rate)
            return
        self._fed += len(pcm)
        self._inbox.put(pcm)

    def finish(self) -> None:
        """No more sound will come: what is being said ends here, and after it the iteration."""
        self._inbox.put(None)

    async def __aiter__(self) -> AsyncIterator[EarEvent]:
        while not isinstance(event := await self._outbox.get(), _Ended):
            yield event
        self._outbox.put_nowait(event)  # for whoever iterates again
        if event.error is not None:
            raise event.error

    async def close(self) -> None:
        """Stops listening at once, ends the iteration and waits for the thread. Twice is once."""
        self._stop.set()
        self._inbox.put(None)
        if self._thread is not None:
            await run_in_worker(self._thread.join)

    def _run(self) -> None:
        error: AntiphonError | None = None
        try:
            listener = Listener(sample_rate=self.sample_rate, grammar=self.grammar, endpoint_ms=self.endpoint_ms)
            try:
                self._listen(listener)
            finally:
                listener.close()
        except AntiphonError as caught:
            error = caught
        except OSError as caught:
            error = ModelError(f"the recognisers cannot be loaded: {caught}")
            error.__cause__ = caught
        self._tell(_Ended(error))

    def _listen(self, listener: Listener) -> None:
        while not self._stop.is_set():
            pcm = self._inbox.get()
            for event in listener.finish() if pcm is None else listener.feed(pcm):
                if self._stop.is_set():
                    return
                self._tell(event)
            if pcm is None:
                return
            self._taken += len(pcm)

    def _tell(self, event: EarEvent | _Ended) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._outbox.put_nowait, event)
        except RuntimeError:
            # The loop is closed: nobody is there to hear it.
            self._stop.set()

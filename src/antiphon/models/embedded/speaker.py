"""The mouth of a live connection: says one response after another, at the pace of the clock, and can be cut."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from antiphon.audio import duration_ms
from antiphon.clock import Clock
from antiphon.events import (
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    Word,
)
from antiphon.iothread import run_in_worker
from antiphon.models.embedded.line import Line
from antiphon.models.embedded.mouth import Chunk, Voice
from antiphon.models.embedded.speech import Speech

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(slots=True, eq=False)
class Response:
    """Something to say.

    Attributes:
        response_id: Its id.
        sentences: What is still to be said.
        urgent: Whether it is said at the end of the sentence that is being said, and not of the whole response.
        words: The words that were sent, with their times in the response.
        bytes: Sound that was sent.
    """

    response_id: str
    sentences: deque[str]
    urgent: bool = False
    words: list[Word] = field(default_factory=list[Word])
    bytes: int = 0

    @property
    def text(self) -> str:
        """The words that were sent, and those still to be."""
        return " ".join([*(word.text for word in self.words), *self.sentences])

    def cut(self, played_ms: float) -> None:
        """Forget what the listener did not hear: the words whose sound had not ended by then."""
        self.words = [word for word in self.words if word.end_ms <= played_ms]
        self.sentences.clear()


def in_sentences(text: str) -> deque[str]:
    """The sentences of a text, white space normalised."""
    return deque(sentence for sentence in _SENTENCE_END.split(" ".join(text.split())) if sentence)


class Speaker:
    """Says responses in order.

    Args:
        line: Where the events go.
        voice: Makes the sound, in a thread.
        clock: Paces it: each piece of sound is sent when it would begin to be heard.
        on_rest: Told when the rest of a response was put off, and became one of its own.
    """

    def __init__(self, line: Line, voice: Voice, clock: Clock, on_rest: Callable[[Response], None]) -> None:
        self._on_rest = on_rest
        self._line = line
        self._voice = voice
        self._clock = clock
        self._waiting: deque[Response] = deque()
        self._current: Response | None = None
        self._held = False
        self._changed = asyncio.Event()

    @property
    def current(self) -> Response | None:
        """What is being said."""
        return self._current

    def say(self, response: Response) -> None:
        """Say this, after what was to be said before; what is urgent comes before what is not."""
        if response.urgent:
            urgent = sum(waiting.urgent for waiting in self._waiting)
            self._waiting.insert(urgent, response)
        else:
            self._waiting.append(response)
        self._changed.set()

    def hold(self, *, held: bool) -> None:
        """Begin nothing new while somebody else speaks."""
        self._held = held
        self._changed.set()

    def cut(self) -> None:
        """Stop what is being said, and drop the rest: of it, and of what waits without being urgent."""
        for waiting in self._waiting:
            if not waiting.urgent:
                waiting.sentences.clear()
        self._waiting = deque(waiting for waiting in self._waiting if waiting.urgent)
        response, self._current = self._current, None
        if response is not None:
            response.cut(duration_ms(response.bytes, self._voice.sample_rate))
            self._line.post(BidiBargeInEvent(response_id=response.response_id))
            self._end(response)

    async def run(self) -> None:
        """Speak until cancelled."""
        while True:
            while self._held or not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            self._current = response = self._waiting.popleft()
            self._line.post(
                BidiResponseStartEvent(response_id=response.response_id),
                BidiTranscriptStartEvent(content_id=response.response_id),
                BidiAudioStartEvent(content_id=response.response_id, response_id=response.response_id),
            )
            await self._speak(response)
            if self._current is response:
                self._current = None
                self._end(response)

    async def _speak(self, response: Response) -> None:
        began: float | None = None
        while response.sentences:
            sentence = response.sentences[0]
            chunks = await run_in_worker(self._make, sentence)
            speech = Speech(response.response_id, response.response_id, self._voice.sample_rate, before=response.bytes)
            if self._current is not response:
                return
            response.sentences.popleft()
            for chunk in chunks:
                began = self._clock.now() if began is None else began
                await self._reach(began + speech.response_ms / 1000)
                if self._current is not response:
                    return
                self._send(response, speech, chunk)
            if began is not None:
                await self._reach(began + speech.response_ms / 1000)
            if self._current is not response:
                return
            if response.sentences and any(waiting.urgent for waiting in self._waiting):
                self._put_off(response)
                return

    def _make(self, sentence: str) -> list[Chunk]:
        return list(self._voice.say(sentence))

    def _send(self, response: Response, speech: Speech, chunk: Chunk) -> None:
        for event in speech.events(chunk):
            if isinstance(event, BidiTranscriptDeltaEvent):
                response.words.extend(event.words)
            self._line.post(event)
        response.bytes = speech.response_bytes

    def _put_off(self, response: Response) -> None:
        """Let what is urgent be said first; the rest becomes a response of its own after it."""
        rest = Response(f"{response.response_id}+", response.sentences)
        response.sentences = deque()
        urgent = sum(waiting.urgent for waiting in self._waiting)
        self._waiting.insert(urgent, rest)
        self._on_rest(rest)

    def _end(self, response: Response) -> None:
        content_id = response.response_id
        self._line.post(
            BidiAudioStopEvent(content_id=content_id, response_id=content_id),
            BidiTranscriptStopEvent(content_id=content_id),
            BidiResponseStopEvent(response_id=content_id),
        )

    async def _reach(self, due: float) -> None:
        left = due - self._clock.now()
        if left > 0:
            await self._clock.sleep(left)

"""A file as a loudspeaker."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from antiphon.agent.streams import LiveAgent
from antiphon.audio import Resampler, bytes_for_ms, duration_ms, silence, to_mono
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import AgentStateError, InvalidInputError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    OutputEvent,
    ToolResultEvent,
)
from antiphon.io.wav_file import AnyPath, WavFile
from antiphon.models.bidi import AudioCapable

_DEFAULT_RATE = 24000


@dataclass(frozen=True, slots=True)
class Span:
    """Where the sound of a response lies in a file.

    Attributes:
        response_id: The response.
        start_ms: Its first sample, from the beginning of the file.
        end_ms: The end of what was played of it so far.
    """

    response_id: str
    start_ms: float
    end_ms: float


class _Track:
    """The sound of one response on its way into the file."""

    __slots__ = ("cut", "end", "full", "played", "rate", "resampler", "response_id", "start")

    def __init__(self, response_id: str, rate: int, resampler: Resampler) -> None:
        self.response_id = response_id
        self.rate = rate
        self.resampler = resampler
        self.start: int | None = None
        self.end = 0
        self.played = 0  # bytes, at the file's rate
        self.cut = False
        self.full = False  # something of it was dropped, so that nothing after that may be played


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How sound is played: see `WavOutput`."""

    speed: float
    frame_ms: float
    gaps: bool
    most_ms: float


class _Activity:
    """Whether anything goes on in the talk, as far as its events tell."""

    __slots__ = ("at", "responses", "tools")

    def __init__(self) -> None:
        self.at = 0.0
        self.responses: set[str] = set()
        self.tools: set[str] = set()

    def note(self, event: OutputEvent, now: float) -> None:
        self.at = now
        match event:
            case BidiResponseStartEvent():
                self.responses.add(event.response_id)
            case BidiResponseStopEvent():
                self.responses.discard(event.response_id)
            case BidiBargeInEvent():
                self.responses.clear()
            case BidiToolUseBlocksEvent():
                self.tools |= {use["toolUseId"] for use in event.tool_uses}
            case ToolResultEvent():
                self.tools.discard(event.tool_result["toolUseId"])
            case _:
                pass


class WavOutput:
    """A loudspeaker that plays into a WAV file. An `OutputStream`.

    Sound is played at the pace of the clock, and a frame enters the file when it is over. Only then is it reported as
    played, so that what the history says was heard is in the file, also when the process is killed. A barge-in drops what
    waits, and what was played until then is reported once more. Taking an event never waits.

    Args:
        path: The file; made anew when the call begins.
        sample_rate: Of the file, in Hz; left out, what the model says, or that of the first sound.
        clock: Paces the sound.
        speed: 0.5 plays at half the speed of life. Sound and its times stay as they are.
        frame_ms: How much sound enters the file, and is reported, at a time.
        gaps: Whether the silence between two sounds is in the file too, so that it is as long as the call at speed 1.
        max_queue_s: How much sound may wait. The rest of a response that would be more is dropped, and so never heard.

    Attributes:
        path: The file.
        lost_ms: Sound that was dropped because too much waited.
    """

    def __init__(
        self,
        path: AnyPath,
        *,
        sample_rate: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        speed: float = 1.0,
        frame_ms: float = 20,
        gaps: bool = False,
        max_queue_s: float = 300.0,
    ) -> None:
        if sample_rate is not None and sample_rate < 1:
            raise InvalidInputError(f"sample_rate={sample_rate!r} cannot be used: give a rate in Hz, such as 24000")
        self.path = path
        self.lost_ms = 0.0
        self._clock = clock
        self._way = _Way(speed=speed, frame_ms=frame_ms, gaps=gaps, most_ms=max_queue_s * 1000)
        self._fixed_rate = sample_rate
        self._speaker: _Speaker | None = None
        self._activity = _Activity()

    async def start(self, agent: LiveAgent) -> None:
        """Make the file, and begin to play.

        Raises:
            AudioFileError: If the file cannot be written.
        """
        rate = self._fixed_rate
        if rate is None and isinstance(agent.model, AudioCapable):
            rate = agent.model.get_audio_config().get("output", {}).get("sample_rate")
        file = WavFile(self.path, rate=rate or _DEFAULT_RATE)
        self._speaker = _Speaker(file, agent, self._clock, self._way)
        self._activity.at = self._clock.now()
        self._speaker.begin()

    async def stop(self) -> None:
        """Drop what waits, and close the file.

        Raises:
            AudioFileError: If it could not be written, and nobody was told yet.
        """
        if self._speaker is not None:
            await self._speaker.end()

    async def __call__(self, event: OutputEvent) -> None:
        """Take an event; returns at once.

        Raises:
            AudioFileError: If the file could not be written.
        """
        speaker = self._started()
        speaker.check()
        self._activity.note(event, self._clock.now())
        match event:
            case BidiAudioDeltaEvent():
                self.lost_ms += speaker.take(event, may_change_rate=self._fixed_rate is None)
            case BidiBargeInEvent():
                speaker.cut()
            case BidiAudioStopEvent() | BidiResponseStopEvent():
                speaker.flush(event.response_id)
            case _:
                pass

    @property
    def played_ms(self) -> float:
        """How long the sound in the file lasts."""
        return self._speaker.file.ms if self._speaker is not None else 0.0

    @property
    def spans(self) -> list[Span]:
        """Where each response of this call lies in the file, in the order in which they were played."""
        return self._speaker.spans() if self._speaker is not None else []

    def quiet_since(self) -> float | None:
        """Since when nothing plays, is being said or done, in the clock's seconds; None while something is.

        Raises:
            AgentStateError: If the loudspeaker is not started.
        """
        speaker = self._started()
        if speaker.playing or self._activity.responses or self._activity.tools:
            return None
        return max(self._activity.at, speaker.silent_since)

    def _started(self) -> _Speaker:
        if self._speaker is None:
            raise AgentStateError(f"the loudspeaker {self.path!r} is not started: give it to agent.run as an output")
        return self._speaker


class _Speaker:
    """The queue of one call, and the task that plays it."""

    def __init__(self, file: WavFile, agent: LiveAgent, clock: Clock, way: _Way) -> None:
        self.file = file
        self.queued_ms = 0.0
        self.silent_since = self._began = clock.now()
        self._agent = agent
        self._clock = clock
        self._way = way
        self._queue: deque[tuple[_Track, bytes]] = deque()
        self._tracks: dict[str, _Track] = {}
        self._frame: tuple[_Track, bytes] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Play what comes, until `end`."""
        # The supervised task of this stream: `end` waits for it, and its failure is raised to whoever gives the next event.
        self._task = asyncio.create_task(self._play(), name="wav loudspeaker")  # noqa: TID251
        self._task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Stop playing and close the file."""
        task, self._task = self._task, None
        if task is None:
            return
        self._queue.clear()
        task.cancel()
        await asyncio.wait({task})
        try:
            self.check()
            self._fill_gap(self._clock.now())
        finally:
            self.file.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failure = error

    def check(self) -> None:
        """Raise what broke the playing, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def playing(self) -> bool:
        """Whether sound waits or is being played."""
        return bool(self._queue) or self._frame is not None

    def take(self, event: BidiAudioDeltaEvent, *, may_change_rate: bool) -> float:
        """Queue sound. Returns how many ms of it are lost because too much waits."""
        response_id = event.response_id
        track = self._tracks.get(response_id)
        if track is None:
            if may_change_rate and not self._tracks:
                self.file.change_rate(event.sample_rate)
            track = _Track(response_id, event.sample_rate, Resampler(event.sample_rate, self.file.rate))
            self._tracks[response_id] = track
            # From here on the agent knows that this response is played by somebody who will say how far.
            self._agent.played(response_id, 0.0)
        if track.cut:
            return 0.0
        if self.queued_ms > self._way.most_ms:
            # Not the oldest sound and not just this piece: what is heard of an answer must be its beginning, without a hole.
            track.full = True
        if track.full:
            return duration_ms(len(event.audio), event.sample_rate, event.channels)
        if event.sample_rate != track.rate:
            self._put(track, track.resampler.flush())
            track.rate, track.resampler = event.sample_rate, Resampler(event.sample_rate, self.file.rate)
        pcm = event.audio if event.channels == 1 else to_mono(event.audio, event.channels)
        self._put(track, track.resampler.feed(pcm))
        return 0.0

    def _put(self, track: _Track, pcm: bytes) -> None:
        size = bytes_for_ms(self._way.frame_ms, self.file.rate)
        for start in range(0, len(pcm), size):
            frame = pcm[start : start + size]
            self._queue.append((track, frame))
            self.queued_ms += duration_ms(len(frame), self.file.rate)
        if pcm:
            self._wake.set()

    def flush(self, response_id: str) -> None:
        """The sound of a response is complete."""
        track = self._tracks.get(response_id)
        if track is not None and not (track.cut or track.full):
            self._put(track, track.resampler.flush())

    def cut(self) -> None:
        """Fall silent, and say what was played."""
        self._queue.clear()
        self.queued_ms = 0.0
        self._frame = None
        self.silent_since = self._clock.now()
        for track in self._tracks.values():
            if not track.cut:
                track.cut = True
                self._agent.played(track.response_id, self._ms(track))

    def spans(self) -> list[Span]:
        """Where the responses lie in the file."""
        rate = self.file.rate
        return [
            Span(track.response_id, duration_ms(track.start, rate), duration_ms(track.end, rate))
            for track in self._tracks.values()
            if track.start is not None
        ]

    def _ms(self, track: _Track) -> float:
        return duration_ms(track.played, self.file.rate)

    async def _play(self) -> None:
        due = self._clock.now()
        while True:
            if not self._queue:
                self.silent_since = self._clock.now()
                self._wake.clear()
                await self._wake.wait()
                due = max(due, self._clock.now())
                continue
            entry = self._frame = self._queue.popleft()
            track, frame = entry
            ms = duration_ms(len(frame), self.file.rate)
            self.queued_ms = max(0.0, self.queued_ms - ms)
            begins = due
            # From the end of the last frame, not from now: lateness must not add up.
            due += ms / 1000 / self._way.speed
            await self._clock.sleep(due - self._clock.now())
            if self._frame is entry:  # else it was cut while it played
                self._frame = None
                self._write(track, frame, begins)

    def _write(self, track: _Track, frame: bytes, begins: float) -> None:
        self._fill_gap(begins)
        if track.start is None:
            track.start = self.file.length
        self.file.append(frame)
        track.end = self.file.length
        track.played += len(frame)
        self._agent.played(track.response_id, self._ms(track))

    def _fill_gap(self, until: float) -> None:
        """Write the silence up to `until`, where silence is wanted."""
        if not self._way.gaps:
            return
        missing = (until - self._began) * 1000 * self._way.speed - self.file.ms
        while missing > self._way.frame_ms:
            piece = min(missing, 1000.0)
            self.file.append(silence(piece, self.file.rate))
            missing -= piece

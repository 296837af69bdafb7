"""Files as a microphone."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, cast

from antiphon.agent.streams import LiveAgent
from antiphon.audio import silence, to_stereo
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta
from antiphon.errors import AgentNotStartedError, AudioFormatError, InvalidInputError, InvalidTypeError
from antiphon.io.wav_file import AnyPath, clip_frames, read_format
from antiphon.models.bidi import AudioCapable

Clip = AnyPath | float
"""A WAV file, or a pause in seconds."""
After = Literal["silence", "end", "hang_up"]

_DEFAULT_RATE = 16000
_CATCH_UP_S = 1.0
"""How far the microphone may fall behind before it goes on later instead of faster."""


class WavInput:
    """A microphone that plays clips, and silence where there is none. An `InputStream`.

    Frames come at the pace of the clock, each when its sound is over, in the format that the model asks for
    (`AudioCapable`; 16 kHz mono otherwise).

    Args:
        clips: WAV files (16-bit PCM; other rates and two channels are converted) and pauses in seconds.
        clock: Paces the frames.
        speed: 2.0 plays twice as fast as life.
        frame_ms: Length of a frame.
        after: What comes after the last clip: `silence` for ever; `end`, and the talk goes on without a microphone; or
            `hang_up`, the end of the talk when it has been quiet for `quiet_s`.
        quiet_s: See `after`.
        quiet_since: Tells since when the other end is quiet, in the clock's seconds; None while it is not.

    Raises:
        AudioFileError: If a file cannot be read.
        AudioFormatError: If a file is no WAV file of 16-bit PCM.
        InvalidInputError: If a pause is negative.
    """

    def __init__(
        self,
        clips: Sequence[Clip] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
        speed: float = 1.0,
        frame_ms: float = 20,
        after: After = "silence",
        quiet_s: float = 3.0,
        quiet_since: Callable[[], float | None] | None = None,
    ) -> None:
        if after not in ("silence", "end", "hang_up"):
            raise InvalidInputError(f"after={after!r} is not known: use 'silence', 'end' or 'hang_up'")
        if after == "hang_up" and quiet_since is None:
            raise InvalidInputError("after='hang_up' needs an output: only a loudspeaker knows when the talk is quiet")
        self._clock = clock
        self._frame_s = frame_ms / 1000 / speed
        self._frame_ms = frame_ms
        self._after: After = after
        self._quiet_s = quiet_s
        self._quiet_since = quiet_since
        self._clips: deque[tuple[Clip, asyncio.Future[None] | None]] = deque((_checked(clip), None) for clip in clips)
        self._frames: Iterator[bytes] = iter(())
        self._spoken: asyncio.Future[None] | None = None
        self._agent: LiveAgent | None = None
        self._rate, self._channels = _DEFAULT_RATE, 1
        self._due = 0.0
        self._ended_at: float | None = None

    async def start(self, agent: LiveAgent) -> None:
        """Take the model's format; the first frame begins now."""
        if isinstance(agent.model, AudioCapable):
            wanted = agent.model.get_audio_config().get("input", {})
            self._rate, self._channels = wanted.get("sample_rate", _DEFAULT_RATE), wanted.get("channels", 1)
            if wanted.get("format", "pcm") != "pcm" or self._channels not in (1, 2):
                raise AudioFormatError(f"the model asks for {wanted!r}: a WavIO gives 16-bit PCM with 1 or 2 channels")
        self._agent = agent
        self._due = self._clock.now()

    async def stop(self) -> None:
        """Fall silent for good; whoever waits in `play` is told."""
        self._agent = None
        waiting = [self._spoken, *(spoken for _, spoken in self._clips)]
        self._clips.clear()
        self._frames, self._spoken = iter(()), None
        for spoken in waiting:
            if spoken is not None and not spoken.done():
                spoken.set_exception(AgentNotStartedError("the microphone was stopped before it had played the clip"))

    async def __call__(self) -> AudioDelta:
        """The next frame, when it is over.

        Raises:
            StopAsyncIteration: When there are no more clips and that ends the input (see `after`).
        """
        frame = self._next()
        if frame is None:
            if self._after == "end" or (self._after == "hang_up" and self._hung_up()):
                raise StopAsyncIteration
            frame = silence(self._frame_ms, self._rate)
        now = self._clock.now()
        # Behind by a little, it catches up, as a device does; after a long stall it goes on from now.
        self._due = max(self._due, now - _CATCH_UP_S) + self._frame_s
        await self._clock.sleep(self._due - now)
        return AudioDelta("pcm", {"bytes": to_stereo(frame) if self._channels == 2 else frame})

    async def play(self, *clips: Clip) -> None:
        """Play more clips, after those that wait already; returns when the last one is over.

        Args:
            *clips: WAV files, and pauses in seconds.

        Raises:
            AudioFileError: If a file cannot be read.
            AudioFormatError: If a file is no WAV file of 16-bit PCM.
            AgentNotStartedError: If the microphone is stopped before it is done.
        """
        if not clips:
            return
        checked = [_checked(clip) for clip in clips]
        spoken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clips.extend((clip, None) for clip in checked[:-1])
        self._clips.append((checked[-1], spoken))
        await spoken

    def _next(self) -> bytes | None:
        """The next frame of a clip; None when all are over."""
        while True:
            frame = next(self._frames, None)
            if frame is not None:
                self._ended_at = None
                return frame
            if self._spoken is not None and not self._spoken.done():
                self._spoken.set_result(None)
            self._spoken = None
            if not self._clips:
                return None
            clip, self._spoken = self._clips.popleft()
            self._frames = self._frames_of(clip)

    def _frames_of(self, clip: Clip) -> Iterator[bytes]:
        if isinstance(clip, (int, float)):
            count = round(clip * 1000 / self._frame_ms)
            return (silence(self._frame_ms, self._rate) for _ in range(count))
        return clip_frames(clip, self._rate, self._frame_ms)

    def _hung_up(self) -> bool:
        """Hang up if the talk has been quiet for long enough."""
        now = self._clock.now()
        if self._ended_at is None:
            self._ended_at = now
        quiet = self._quiet_since() if self._quiet_since is not None else None
        if quiet is None or now - max(quiet, self._ended_at) < self._quiet_s:
            return False
        if self._agent is not None:
            self._agent.cancel()
        return True


def _checked(clip: object) -> Clip:
    if isinstance(clip, (int, float)) and not isinstance(clip, bool):
        if not 0 <= clip < float("inf"):
            raise InvalidInputError(f"a pause of {clip!r} seconds cannot be played: use 0 or more")
        return clip
    if isinstance(clip, (str, os.PathLike)):
        path = os.fsdecode(cast("AnyPath", clip))
        read_format(path)
        return path
    raise InvalidTypeError(f"{clip!r} is no clip: name a WAV file, or give a pause in seconds")

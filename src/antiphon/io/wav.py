"""Files as microphone and loudspeaker of a live call."""

from __future__ import annotations

import math
from collections.abc import Sequence

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import InvalidInputError
from antiphon.io.wav_file import AnyPath
from antiphon.io.wav_input import After, Clip, WavInput
from antiphon.io.wav_output import WavOutput


class WavIO:
    """Both ends of a call as WAV files: what is said is played from them, what is heard is written to one.

    Args:
        input: What the microphone hears: a WAV file, or several with pauses (in seconds) between them. Left out, silence,
            until `input().play(...)` says otherwise.
        output: Where what the listener hears is written.
        sample_rate: Of the output, in Hz; left out, what the model gives.
        clock: Paces both.
        speed: How fast both run: 2.0 is twice as fast as life.
        frame_ms: Sound goes in pieces of this length.
        after: What follows the last clip: `silence`, `end` (of the input; the talk goes on) or `hang_up` (the talk ends
            when it has been quiet for `quiet_s`).
        quiet_s: See `after`.
        gaps: Whether the output holds the silence between sounds, too.
        max_queue_s: How much sound may wait to be played.

    Raises:
        AudioFileError: If an input file cannot be read.
        AudioFormatError: If an input file is no WAV file of 16-bit PCM.
        InvalidInputError: If a number is out of range, or `hang_up` is asked for without an output.

    Example:
        ```
        files = WavIO("question.wav", "answer.wav", after="hang_up")
        await agent.run(inputs=[files.input()], outputs=[files.output()])
        ```
    """

    def __init__(
        self,
        input: AnyPath | Sequence[Clip] | None = None,
        output: AnyPath | None = None,
        *,
        sample_rate: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        speed: float = 1.0,
        frame_ms: float = 20,
        after: After = "silence",
        quiet_s: float = 3.0,
        gaps: bool = False,
        max_queue_s: float = 300.0,
    ) -> None:
        _positive(speed=speed, frame_ms=frame_ms, quiet_s=quiet_s, max_queue_s=max_queue_s)
        if input is None:
            clips: Sequence[Clip] = ()
        elif isinstance(input, Sequence) and not isinstance(input, str):
            clips = input
        else:
            clips = (input,)
        self._output = (
            None
            if output is None
            else WavOutput(
                output,
                sample_rate=sample_rate,
                clock=clock,
                speed=speed,
                frame_ms=frame_ms,
                gaps=gaps,
                max_queue_s=max_queue_s,
            )
        )
        self._input = WavInput(
            clips,
            clock=clock,
            speed=speed,
            frame_ms=frame_ms,
            after=after,
            quiet_s=quiet_s,
            quiet_since=None if self._output is None else self._output.quiet_since,
        )

    def input(self) -> WavInput:
        """The microphone; always the same one."""
        return self._input

    def output(self) -> WavOutput:
        """The loudspeaker; always the same one.

        Raises:
            InvalidInputError: If no output file was named.
        """
        if self._output is None:
            raise InvalidInputError("output=None names no file: give WavIO(output=...) one to play into")
        return self._output


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (value > 0 and math.isfinite(value)):
            raise InvalidInputError(f"{name}={value!r} cannot be used: give a number above 0")

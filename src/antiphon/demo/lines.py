"""What the demo's user says, as sound and as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from antiphon.audio import duration_ms
from antiphon.errors import AudioFileError
from antiphon.io.wav_file import clip_frames
from antiphon.models.embedded.vad import SpeechEnded, SpeechStarted, Vad

_RATE = 16000


@dataclass(frozen=True, slots=True)
class Line:
    """Something the user says.

    Attributes:
        text: The words.
        clip: The file that holds them as speech.
    """

    text: str
    clip: str


LIGHTS = Line("turn on the kitchen lights", "flite-s1.wav")
WEATHER = Line("what is the weather in paris tomorrow", "flite-s2.wav")
BOOKING = Line("please book a table for two at seven o'clock", "flite-s3.wav")
STOP = Line("stop", "flite-s4.wav")
STORY = Line("tell me a short story about a dragon", "flite-s5.wav")
GO_ON = Line("go on", "flite-go-on.wav")


def find_clips(named: Path | None) -> Path:
    """The folder with the clips.

    Raises:
        AudioFileError: If it is not there.
    """
    places = [named] if named is not None else [Path("tests/audio"), Path(__file__).parents[3] / "tests" / "audio"]
    for place in places:
        if (place / GO_ON.clip).is_file():
            return place
    raise AudioFileError(
        f"no clips in {' or '.join(repr(str(place)) for place in places)}: "
        "run the demo in the repository, name their folder with --clips, or use --text"
    )


@dataclass(frozen=True, slots=True)
class Speech:
    """Where the words lie in a clip, in seconds.

    Attributes:
        start: The first sound.
        end: The last one.
        length: The whole clip.
    """

    start: float
    end: float
    length: float


def speech_in(clip: Path) -> Speech:
    """Where the words lie in a clip."""
    vad = Vad(_RATE)
    start = end = length = 0.0
    frames = list(clip_frames(clip, _RATE, 20))
    for event in [each for frame in frames for each in vad.feed(frame)] + vad.finish():
        match event:
            case SpeechStarted():
                start = start or event.at / _RATE
            case SpeechEnded():
                end = event.at / _RATE
    length = sum(duration_ms(len(frame), _RATE) for frame in frames) / 1000
    return Speech(start, end or length, length)

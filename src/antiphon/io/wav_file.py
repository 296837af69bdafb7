"""WAV files: one that grows and can be read at every moment, and clips as frames of sound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from antiphon.audio import (
    SAMPLE_BYTES,
    Frames,
    Resampler,
    WavFormat,
    bytes_for_ms,
    parse_wav,
    to_mono,
    wav_header,
)
from antiphon.errors import AudioFileError, AudioFormatError

_HEADER = 44
_HEAD = 1 << 16
_BLOCK_MS = 100
_MOST = 0xFFFFFFFF - _HEADER
"""What the lengths in a WAV file's header can say, in bytes."""

AnyPath = str | os.PathLike[str]


class WavFile:
    """A WAV file that grows. Its header is right at every moment, so that a killed process leaves a file that can be read.

    What `append` has written is with the operating system: it survives the process, though not a power cut.

    Args:
        path: Made anew; what was there is gone. Only its owner may read it.
        rate: Samples per second, in Hz.

    Attributes:
        path: Where it lies.
        rate: Samples per second, in Hz.
        length: Bytes of sound in it.

    Raises:
        AudioFileError: If it cannot be opened for writing.
    """

    def __init__(self, path: AnyPath, *, rate: int) -> None:
        self.path = os.fspath(path)
        self.rate = rate
        self.length = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        try:
            self._file: int | None = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise AudioFileError(
                f"cannot write sound to {self.path!r}: {error.strerror} | name a file in a folder that exists and is writable"
            ) from error
        self._write(wav_header(0, rate), 0)

    @property
    def ms(self) -> float:
        """How long the sound in it lasts."""
        return self.length / SAMPLE_BYTES * 1000 / self.rate

    def change_rate(self, rate: int) -> None:
        """Say another rate, while there is no sound in it yet."""
        if rate != self.rate and not self.length:
            self.rate = rate
            self._write(wav_header(0, rate), 0)

    def append(self, pcm: bytes) -> None:
        """Write sound at its end: 16-bit little-endian PCM, mono.

        Raises:
            AudioFileError: If it cannot be written, or the file is as long as a WAV file can be.
        """
        if self.length + len(pcm) > _MOST:
            raise AudioFileError(f"{self.path!r} is as long as a WAV file can be: go on in another one")
        self._write(pcm, _HEADER + self.length)
        # The sound first: a header that promises more than there is would not be true.
        self.length += len(pcm)
        self._write(wav_header(self.length, self.rate), 0)

    def close(self) -> None:
        """Close it. Safe to call twice."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # everything was written, and said so
                os.close(file)

    def _write(self, data: bytes, at: int) -> None:
        if self._file is None:
            raise AudioFileError(f"{self.path!r} is closed: open it anew to write sound")
        try:
            while data:
                # No buffer of our own: what is reported as played must be in the file whatever happens to this process.
                os.lseek(self._file, at, os.SEEK_SET)
                written = os.write(self._file, data)
                data, at = data[written:], at + written
        except OSError as error:
            raise AudioFileError(f"cannot write sound to {self.path!r}: {error.strerror}") from error


def read_format(path: AnyPath) -> WavFormat:
    """What the header of a WAV file says.

    Raises:
        AudioFileError: If it cannot be read.
        AudioFormatError: If it is no WAV file of 16-bit PCM with one or two channels.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise AudioFileError(
            f"cannot read sound from {os.fspath(path)!r}: {error.strerror} | name a WAV file that exists"
        ) from error
    try:
        return parse_wav(head)
    except AudioFormatError as error:
        raise AudioFormatError(
            f"{os.fspath(path)!r} cannot be played: {error} | convert it: sox IN -b 16 -e signed-integer OUT.wav"
        ) from error


def clip_frames(path: AnyPath, rate: int, frame_ms: float) -> Iterator[bytes]:
    """A WAV file as frames of mono PCM at `rate`; the last one is filled up with silence. Read as it is played.

    Raises:
        AudioFileError: If it cannot be read.
        AudioFormatError: See `read_format`.
    """
    form = read_format(path)
    size = bytes_for_ms(frame_ms, rate)
    frames = Frames(size)
    resampler = Resampler(form.rate, rate)
    width = SAMPLE_BYTES * form.channels
    block = bytes_for_ms(_BLOCK_MS, form.rate, form.channels)
    try:
        with open(path, "rb") as file:
            file.seek(form.data_start)
            left = form.data_length
            while left > 0 and (pcm := file.read(min(block, left))):
                left -= len(pcm)
                pcm = pcm[: len(pcm) - len(pcm) % width]
                yield from frames.feed(resampler.feed(to_mono(pcm, form.channels)))
    except OSError as error:
        raise AudioFileError(f"cannot read sound from {os.fspath(path)!r}: {error.strerror}") from error
    yield from frames.feed(resampler.flush())
    if rest := frames.rest():
        yield rest.ljust(size, b"\0")

"""Arithmetic on sound.

Sound is 16-bit little-endian PCM everywhere inside Antiphon: two bytes per sample, channels interleaved, rates in Hz.
Functions take and return `bytes`; nothing here keeps time or touches a device.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import mul

from antiphon.errors import AudioFormatError

SAMPLE_BYTES = 2
_LOWEST, _HIGHEST = -32768, 32767
_WAV_PCM = 1
_WAV_EXTENSIBLE = 0xFFFE


def _whole_samples(pcm: bytes | bytearray | memoryview) -> None:
    if len(pcm) % SAMPLE_BYTES:
        raise AudioFormatError(f"{len(pcm)} bytes are not whole 16-bit samples: pass an even number of bytes")


def samples(pcm: bytes | bytearray | memoryview) -> array[int]:
    """The samples of `pcm` as signed integers, in the machine's byte order.

    Raises:
        AudioFormatError: `pcm` ends in the middle of a sample.
    """
    _whole_samples(pcm)
    values = array("h", bytes(pcm))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pcm_bytes(values: array[int]) -> bytes:
    """16-bit little-endian PCM of `values`, an `array("h")` in the machine's byte order, which is left as it is."""
    if sys.byteorder == "big":
        values = array("h", values)
        values.byteswap()
    return values.tobytes()


def _clip(value: float) -> int:
    return max(_LOWEST, min(_HIGHEST, round(value)))


def duration_ms(length: int, rate: int, channels: int = 1) -> float:
    """How long `length` bytes of sound last, in ms.

    >>> duration_ms(960, 24000)
    20.0
    """
    return length / (SAMPLE_BYTES * channels) * 1000 / rate


def bytes_for_ms(ms: float, rate: int, channels: int = 1) -> int:
    """How many bytes `ms` of sound take, in whole samples of all channels, rounded down.

    >>> bytes_for_ms(20, 24000)
    960
    """
    # Rounded to a millionth of a sample first, so that bytes_for_ms(duration_ms(n)) is n although floats are not exact.
    return math.floor(round(ms * rate / 1000, 6)) * SAMPLE_BYTES * channels


def silence(ms: float, rate: int, channels: int = 1) -> bytes:
    """`ms` of digital silence."""
    return bytes(bytes_for_ms(ms, rate, channels))


def rms(pcm: bytes) -> float:
    """Root mean square of the samples: 0.0 for silence or no sound at all, 32768.0 at most."""
    values = samples(pcm)
    return math.sqrt(sum(map(mul, values, values)) / len(values)) if values else 0.0


def peak(pcm: bytes) -> int:
    """The largest distance of a sample from zero."""
    values = samples(pcm)
    return max(-min(values), *values) if values else 0


def gain(pcm: bytes, factor: float) -> bytes:
    """The sound made louder or softer; what would not fit is clipped."""
    return pcm_bytes(array("h", [_clip(value * factor) for value in samples(pcm)]))


def mix(first: bytes, second: bytes) -> bytes:
    """Both sounds at once, as long as the longer one; what would not fit is clipped."""
    longer, shorter = samples(first), samples(second)
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    summed = array("h", [_clip(a + b) for a, b in zip(longer, shorter, strict=False)])
    return pcm_bytes(summed + longer[len(shorter) :])


def to_mono(pcm: bytes, channels: int = 2) -> bytes:
    """One channel: the mean of `channels` interleaved ones.

    Raises:
        AudioFormatError: The samples are not whole frames of `channels`.
    """
    values = samples(pcm)
    if channels < 1 or len(values) % channels:
        raise AudioFormatError(f"{len(values)} samples are not whole frames of channels={channels!r}")
    if channels == 1:
        return bytes(pcm)
    lanes = [values[lane::channels] for lane in range(channels)]
    return pcm_bytes(array("h", [_clip(sum(frame) / channels) for frame in zip(*lanes, strict=True)]))


def to_stereo(pcm: bytes) -> bytes:
    """Two interleaved channels with the same sound, from one."""
    values = samples(pcm)
    both = array("h", bytes(2 * SAMPLE_BYTES * len(values)))
    both[0::2] = values
    both[1::2] = values
    return pcm_bytes(both)


class Frames:
    """Cuts a stream of bytes into frames of one size, however it is sliced.

    >>> frames = Frames(4)
    >>> [*frames.feed(b"abc"), *frames.feed(b"defghi")], frames.rest()
    ([b'abcd', b'efgh'], b'i')
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise AudioFormatError(f"a frame of size={size!r} bytes holds nothing: use at least 1")
        self.size = size
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order; what is left waits for more."""
        self._held += data
        whole = len(self._held) - len(self._held) % self.size
        taken = bytes(self._held[:whole])
        del self._held[:whole]
        return [taken[start : start + self.size] for start in range(0, whole, self.size)]

    def rest(self) -> bytes:
        """The incomplete last frame, which is taken out: at most `size - 1` bytes."""
        held = bytes(self._held)
        self._held.clear()
        return held


class Resampler:
    """Changes the rate of a mono stream; its output does not depend on how the input is sliced.

    A windowed-sinc filter in polyphase form: for every output sample the two dozen input samples around its moment,
    weighted by a Hann-windowed sinc that is cut off below the lower of both rates. Constant input stays constant.
    Output sample `n` stands where input position `n * in_rate / out_rate` does, so that times in ms are kept.
    """

    ZERO_CROSSINGS = 8

    def __init__(self, in_rate: int, out_rate: int) -> None:
        if in_rate < 1 or out_rate < 1:
            raise AudioFormatError(f"cannot resample from {in_rate!r} Hz to {out_rate!r} Hz: use rates above 0")
        shared = math.gcd(in_rate, out_rate)
        self._up, self._down = out_rate // shared, in_rate // shared
        self._cutoff = min(1.0, self._up / self._down)
        self._half = math.ceil(self.ZERO_CROSSINGS / self._cutoff)
        self._taps: dict[int, tuple[float, ...]] = {}
        self._restart()

    def _restart(self) -> None:
        # The moment of the first sample has only silence before it.
        self._held = array("h", bytes(SAMPLE_BYTES * (self._half - 1)))
        self._odd = b""
        self._phase = 0
        self._owed = 0  # output samples still to come for the input seen so far, times `down`

    def _weights(self, phase: int) -> tuple[float, ...]:
        weights = self._taps.get(phase)
        if weights is None:
            at = phase / self._up
            raw = [self._weight(at - offset) for offset in range(1 - self._half, self._half + 1)]
            total = sum(raw)
            weights = self._taps[phase] = tuple(weight / total for weight in raw)
        return weights

    def _weight(self, distance: float) -> float:
        window = 0.5 + 0.5 * math.cos(math.pi * max(-1.0, min(1.0, distance / self._half)))
        angle = math.pi * distance * self._cutoff
        return window * (math.sin(angle) / angle if angle else 1.0)

    def feed(self, pcm: bytes) -> bytes:
        """The output that `pcm` completes, at the new rate. Half a sample is kept until its other half comes."""
        if self._odd:
            pcm = self._odd + pcm
        whole = len(pcm) - len(pcm) % SAMPLE_BYTES
        self._odd = pcm[whole:]
        if self._up == self._down:
            return pcm[:whole]
        values = samples(pcm[:whole])
        self._held += values
        self._owed += len(values) * self._up
        return self._take()

    def _take(self) -> bytes:
        made = array("h")
        position, width, held = 0, 2 * self._half, self._held
        while position + width <= len(held) and self._owed > 0:
            made.append(_clip(sum(map(mul, self._weights(self._phase), held[position : position + width]))))
            self._owed -= self._down
            self._phase += self._down
            position += self._phase // self._up
            self._phase %= self._up
        # A step may be longer than what is held, when the rate falls far: the next input is then skipped too.
        keep = min(position, len(held))
        del held[:keep]
        self._phase += (position - keep) * self._up
        return pcm_bytes(made)

    def flush(self) -> bytes:
        """The last of the output, as if silence followed; the resampler then starts anew.

        All output together has `ceil(input samples * out_rate / in_rate)` samples.
        """
        tail = b""
        if self._up != self._down:
            self._held += array("h", bytes(SAMPLE_BYTES * (2 * self._half + self._down // self._up + 1)))
            tail = self._take()
        self._restart()
        return tail


def resample(pcm: bytes, in_rate: int, out_rate: int) -> bytes:
    """The whole of a mono sound at another rate.

    Raises:
        AudioFormatError: A rate is not positive, or `pcm` ends in the middle of a sample.
    """
    _whole_samples(pcm)
    resampler = Resampler(in_rate, out_rate)
    return resampler.feed(pcm) + resampler.flush()


@dataclass(frozen=True, slots=True)
class WavFormat:
    """What the header of a WAV file says.

    Attributes:
        rate: Samples per second and channel, in Hz.
        channels: Interleaved channels.
        data_start: Where the samples begin, in bytes from the start of the file.
        data_length: How many bytes of samples the header promises.
    """

    rate: int
    channels: int
    data_start: int
    data_length: int


def wav_header(data_length: int, rate: int, channels: int = 1) -> bytes:
    """The 44 bytes before `data_length` bytes of 16-bit PCM in a WAV file."""
    frame = SAMPLE_BYTES * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _WAV_PCM, channels, rate, rate * frame, frame, 8 * SAMPLE_BYTES)
    return struct.pack("<4sI4s", b"RIFF", 36 + data_length, b"WAVE") + form + struct.pack("<4sI", b"data", data_length)


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    start = 12
    while start + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, start)
        yield name, start + 8, length
        start += 8 + length + length % 2  # chunks are padded to an even length


def parse_wav(data: bytes) -> WavFormat:
    """Reads the header of a WAV file from its first bytes.

    Raises:
        AudioFormatError: This is not a WAV file, or its samples are not 16-bit PCM.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise AudioFormatError(f"{data[:12]!r} does not begin a WAV file")
    form: tuple[int, int] | None = None
    for name, start, length in _chunks(data):
        if name == b"fmt " and start + 16 <= len(data):
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, start)
            if kind not in {_WAV_PCM, _WAV_EXTENSIBLE} or bits != 8 * SAMPLE_BYTES or not channels or not rate:
                raise AudioFormatError(
                    f"a WAV file of format {kind!r} with {bits!r} bits, {channels!r} channels at {rate!r} Hz "
                    "cannot be used: convert it to 16-bit PCM"
                )
            form = rate, channels
        elif name == b"data" and form is not None:
            return WavFormat(form[0], form[1], start, length)
    raise AudioFormatError("the WAV file's header is cut short: there is no sound in it")


def energy_db(pcm: bytes) -> float:
    """Loudness in dB below full scale, -96.0 at least.

    >>> energy_db(bytes(640))
    -96.0
    """
    level = rms(pcm)
    return max(-96.0, 20 * math.log10(level / 32768)) if level > 0 else -96.0

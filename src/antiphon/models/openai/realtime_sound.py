"""Sound on its way: the application's 16-bit PCM at its own rate, and the format that the provider was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from antiphon.audio import SAMPLE_BYTES, Resampler
from antiphon.content import AudioDelta
from antiphon.errors import AudioFormatError
from antiphon.models.openai.g711 import RATE as PHONE_RATE
from antiphon.models.openai.g711 import decode, encode

WireFormat = Literal["pcm", "pcmu", "pcma"]
PCM_RATE = 24000
"""Hz: the only rate of PCM that the Realtime API knows."""
_LOWEST_RATE, _HIGHEST_RATE = 4000, 192_000


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """One direction.

    Attributes:
        wire: What travels: 16-bit PCM at 24 kHz, or G.711 at 8 kHz (mu-law, A-law).
        rate: What the application takes or gives, always 16-bit mono PCM, in Hz.
    """

    wire: WireFormat = "pcm"
    rate: int = PCM_RATE

    @property
    def wire_rate(self) -> int:
        """Samples a second on the wire."""
        return PCM_RATE if self.wire == "pcm" else PHONE_RATE

    @property
    def plain(self) -> bool:
        """Whether the application's sound is what travels."""
        return self.wire == "pcm" and self.rate == PCM_RATE

    @property
    def wire_bytes_per_ms(self) -> int:
        """Bytes that a millisecond takes on the wire."""
        return self.wire_rate * (SAMPLE_BYTES if self.wire == "pcm" else 1) // 1000

    def to_wire(self) -> dict[str, Any]:
        """As the session is told."""
        return {"type": "audio/pcm", "rate": PCM_RATE} if self.wire == "pcm" else {"type": f"audio/{self.wire}"}


def sound_format(direction: str, asked: dict[str, Any], told: dict[str, Any]) -> SoundFormat:
    """The format of one direction.

    Args:
        direction: `input` or `output`, for errors.
        asked: What the model was made with: `format`, `sample_rate`, `channels`.
        told: The session's own `format`, where `params` set one: it decides what travels.

    Raises:
        AudioFormatError: If the provider has no such format, or it cannot be converted.
    """
    wire = str(told.get("type", f"audio/{asked.get('format', 'pcm')}")).removeprefix("audio/")
    if wire not in {"pcm", "pcmu", "pcma"}:
        raise AudioFormatError(
            f"{direction} format {wire!r} is not one of the Realtime API: use 'pcm' (16-bit, 24 kHz), 'pcmu' or 'pcma' "
            "(G.711, 8 kHz)"
        )
    if wire == "pcm" and told.get("rate", PCM_RATE) != PCM_RATE:
        raise AudioFormatError(
            f"{direction} PCM at {told['rate']!r} Hz is not a format of the Realtime API, which knows {PCM_RATE} Hz only: "
            f"leave it out, and give audio={{{direction!r}: {{'sample_rate': {told['rate']!r}}}}} to have it converted"
        )
    if asked.get("channels", 1) != 1:
        raise AudioFormatError(
            f"{direction} with channels={asked['channels']!r} cannot be used: the Realtime API is mono "
            "(antiphon.audio.to_mono and to_stereo convert)"
        )
    form = SoundFormat(cast("WireFormat", wire))
    rate = asked.get("sample_rate", form.wire_rate)
    if not isinstance(rate, int) or isinstance(rate, bool) or not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise AudioFormatError(
            f"{direction} sample_rate={rate!r} is not a rate between {_LOWEST_RATE} and {_HIGHEST_RATE} Hz"
        )
    return SoundFormat(form.wire, rate)


class Outgoing:
    """What the user says: one stream for the whole of a connection."""

    __slots__ = ("_form", "_odd", "_resampler")

    def __init__(self, form: SoundFormat) -> None:
        self._form = form
        self._resampler = Resampler(form.rate, form.wire_rate) if form.rate != form.wire_rate else None
        self._odd = b""

    def encode(self, sound: AudioDelta) -> bytes:
        """Bytes for the wire. Half a sample is kept until its other half comes.

        Raises:
            AudioFormatError: If this is no sound of the application's format, nor of the wire's.
        """
        form, pcm = self._form, sound.audio
        if sound.format == form.wire and sound.format != "pcm":
            return pcm  # is encoded already
        if sound.format != "pcm":
            raise AudioFormatError(
                f"sound of format {sound.format!r} cannot be used: give 16-bit PCM at {form.rate} Hz ('pcm')"
                + ("" if form.wire == "pcm" else f", or {form.wire!r}")
            )
        if self._odd or len(pcm) % SAMPLE_BYTES:
            pcm = self._odd + pcm
            whole = len(pcm) - len(pcm) % SAMPLE_BYTES
            pcm, self._odd = pcm[:whole], pcm[whole:]
        if self._resampler is not None:
            pcm = self._resampler.feed(pcm)
        return pcm if form.wire == "pcm" else encode(pcm, form.wire)


class Incoming:
    """The sound of one part of an answer."""

    __slots__ = ("_form", "_resampler")

    def __init__(self, form: SoundFormat) -> None:
        self._form = form
        self._resampler = Resampler(form.wire_rate, form.rate) if form.rate != form.wire_rate else None

    def decode(self, sound: bytes) -> bytes:
        """The application's PCM. With a change of rate the last of it comes from `flush`."""
        pcm = sound if self._form.wire == "pcm" else decode(sound, self._form.wire)
        return pcm if self._resampler is None else self._resampler.feed(pcm)

    def flush(self) -> bytes:
        """The last of the sound."""
        return b"" if self._resampler is None else self._resampler.flush()

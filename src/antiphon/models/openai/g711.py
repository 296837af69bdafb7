"""G.711, the sound of telephones: one byte a sample at 8 kHz. Source: ITU-T G.711, tables 1 and 2."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from typing import Literal

from antiphon.audio import pcm_bytes, samples

RATE = 8000
Law = Literal["pcmu", "pcma"]
_BIAS = 33
_ULAW_CLIP = 8158
_ALAW_CLIP = 4095


def encode(pcm: bytes, law: Law) -> bytes:
    r"""16-bit PCM as G.711: mu-law for `pcmu`, A-law for `pcma`.

    >>> encode(bytes(4), "pcmu"), encode(bytes(4), "pcma")
    (b'\xff\xff', b'\xd5\xd5')
    """
    table, shift = _encoding(law)
    return bytes([table[value >> shift] for value in samples(pcm)])


def decode(sound: bytes, law: Law) -> bytes:
    """G.711 as 16-bit PCM."""
    table = _decoding(law)
    return pcm_bytes(array("h", [table[byte] for byte in sound]))


@cache
def _encoding(law: Law) -> tuple[bytes, int]:
    """A byte for each step of the law's input, the negative ones from the end, as Python counts; and the bits a step has."""
    one: Callable[[int], int] = _ulaw_byte if law == "pcmu" else _alaw_byte
    half = 8192 if law == "pcmu" else 4096
    return bytes([*map(one, range(half)), *map(one, range(-half, 0))]), 2 if law == "pcmu" else 3


@cache
def _decoding(law: Law) -> tuple[int, ...]:
    return tuple(map(_ulaw_sample if law == "pcmu" else _alaw_sample, range(256)))


def _ulaw_byte(value: int) -> int:
    """The byte of a 14-bit sample."""
    mask = 0xFF if value >= 0 else 0x7F
    size = min(value if value >= 0 else -value, _ULAW_CLIP) + _BIAS
    segment = size.bit_length() - 6
    return (segment << 4 | size >> (segment + 1) & 0xF) ^ mask


def _ulaw_sample(byte: int) -> int:
    byte ^= 0xFF
    size = ((byte & 0xF) << 3) + 0x84 << (byte >> 4 & 7)
    return 0x84 - size if byte & 0x80 else size - 0x84


def _alaw_byte(value: int) -> int:
    """The byte of a 13-bit sample."""
    mask = 0xD5 if value >= 0 else 0x55
    size = min(value if value >= 0 else -value - 1, _ALAW_CLIP)
    segment = max(0, size.bit_length() - 5)
    return (segment << 4 | size >> max(1, segment) & 0xF) ^ mask


def _alaw_sample(byte: int) -> int:
    byte ^= 0x55
    segment = byte >> 4 & 7
    size = ((byte & 0xF) << 4) + (8 if not segment else 0x108)
    size <<= max(0, segment - 1)
    return size if byte & 0x80 else -size

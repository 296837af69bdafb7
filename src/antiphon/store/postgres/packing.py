"""Runs: the messages that one save appends to a line, as one value.

A row of a table costs some 40 bytes beside what it holds, and PostgreSQL compresses nothing in rows under 2 KB. So the
messages of a save share a row, and are compressed before they are sent, where that is worth it. The first byte of a value
says which form it has:

* 0: one message that is large, as the address of a blob (`record.body`);
* 1: messages in MessagePack; 2: the same, compressed by Zstandard;
* 3 and 4: as 1 and 2, with addresses among them;
* anything else, or nothing: one message as it is. No JSON begins with one of the above.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from antiphon.errors import MissingExtraError
from antiphon.store.record import addresses_in

try:
    import zstandard
except ImportError as missing:
    raise MissingExtraError("zstandard", "postgres") from missing

MOST_MESSAGES, MOST_BYTES = 64, 65_536
"""How much a run holds, unless a single message has more: whoever wants one message reads its run."""

_PLAIN, _PRESSED, _WITH_ADDRESSES = 1, 2, 2  # the last is added to either of the others
_SHORTEST = 128  # bytes that may be worth compressing
_WORTH = 0.9  # the part of them that may be left then
_LEVEL = 1  # higher ones find nothing more in so little text

# How most messages are written, so that the first one of a run is compressed as well as the others. Part of the format: it
# must never change.
_DICTIONARY = zstandard.ZstdCompressionDict(
    b'{"toolResult":{"toolUseId":"tooluse_","status":"success","content":[{"json":{"text":"'
    b'{"toolUse":{"toolUseId":"","name":"","input":{}}}]}'
    b'{"role":"assistant","content":[{"text":""}]}{"role":"user","content":[{"text":"',
    dict_type=zstandard.DICT_TYPE_RAWCONTENT,
)
_LARGEST = 2**20  # bytes that are compressed at once, so that a few damaged ones never ask for more memory

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class _Tools(threading.local):
    """What compresses and decompresses, for each thread its own. To make them takes longer than a run does."""

    def __init__(self) -> None:
        self.press = zstandard.ZstdCompressor(level=_LEVEL, dict_data=_DICTIONARY, write_dict_id=False).compress
        self.unpress = zstandard.ZstdDecompressor(dict_data=_DICTIONARY).decompress


_tools = _Tools()


class Run(NamedTuple):
    """A run as it stands in the table.

    Attributes:
        line: Its line.
        first: The position of its first message.
        size: How many messages it has.
        value: What is stored.
    """

    line: int
    first: int
    size: int
    value: bytes

    @property
    def stop(self) -> int:
        """The position after its last message."""
        return self.first + self.size


def pack(bodies: Sequence[bytes]) -> bytes:
    """The value that holds these messages, of which there is one at least."""
    size = sum(map(len, bodies))
    if len(bodies) == 1 and (size < _SHORTEST or addresses_in(bodies)):
        return bodies[0]
    plain = _encode(bodies)
    form = _WITH_ADDRESSES if addresses_in(bodies) else 0
    pressed = _tools.press(plain) if _SHORTEST <= len(plain) <= _LARGEST else plain
    if len(pressed) <= _WORTH * len(plain):
        return bytes([form + _PRESSED]) + pressed
    return bodies[0] if len(bodies) == 1 else bytes([form + _PLAIN]) + plain


def unpack(value: bytes, size: int) -> list[bytes] | None:
    """The messages that `pack` was given; None when the value is damaged.

    Args:
        value: What is stored.
        size: How many there should be.
    """
    form = value[0] if value else 0
    if form == 0 or form > _PRESSED + _WITH_ADDRESSES:
        return [value] if size == 1 else None
    try:
        packed = value[1:]
        if form in {_PRESSED, _PRESSED + _WITH_ADDRESSES}:
            if not 0 <= zstandard.frame_content_size(packed) <= _LARGEST:
                return None
            packed = _tools.unpress(packed)
        bodies = _decode(packed)
    except (zstandard.ZstdError, msgspec.MsgspecError):
        return None
    return bodies if len(bodies) == size else None


def pack_runs(line: int, at: int, bodies: Sequence[bytes]) -> Iterator[Run]:
    """Messages from position `at` of a line on, in runs.

    >>> [(run.first, run.size) for run in pack_runs(7, 3, [b"{}"] * 65)]
    [(3, 64), (67, 1)]
    """
    start = weight = 0
    for index, body in enumerate(bodies):
        if index > start and (index - start == MOST_MESSAGES or weight + len(body) > MOST_BYTES):
            yield Run(line, at + start, index - start, pack(bodies[start:index]))
            start, weight = index, 0
        weight += len(body)
    if start < len(bodies):
        yield Run(line, at + start, len(bodies) - start, pack(bodies[start:]))

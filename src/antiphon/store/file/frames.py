"""The form of a log: one frame for each commit.

A frame is a header (`HEADER`), a head in MessagePack (`Head`) and bodies, one behind the other. Its checksum covers everything
of it, the place where it stands and the checksum of the frame before: so a frame is whole or it is none, a copy of one in
another place is none either, and whoever has read up to some frame knows whether the next one continues what was read.

Nothing in a head or body can look like the beginning of a frame by chance: bodies are JSON, where 0xFF does not occur.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from antiphon.errors import CorruptStoreError, SessionRowError
from antiphon.store.record import Record

_KIND = b"\xff\x00A"
VERSION = 1
MAGIC = _KIND + bytes([VERSION])
"""What a frame begins with."""

HEADER = struct.Struct("<4sIIII")
"""Magic, bytes that follow, how many of them are the head, checksum of the frame before, checksum of this one."""

PLACE = struct.Struct("<QIII")
"""What a checksum begins with: where the frame stands, and what its header says before the checksum."""
_LARGEST = 2**32 - 1

_UNWRITTEN = bytes(8)


class Begin(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What the first frame of a log tells, and the second again, lest it be lost.

    Attributes:
        session_id: Whose log it is.
        uid: Names this session among all that had or will have its id.
        last_line: No line has a greater number.
        lost: Damage that was found in logs that this one was written from: from where to where.
    """

    session_id: str
    uid: bytes
    last_line: int
    lost: tuple[tuple[int, int], ...] = ()


class Head(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, kw_only=True, gc=False):
    """What a commit changed. New fields go to the end and have a default.

    Attributes:
        rows: Rows that were written: id, revision, record.
        lines: Runs of bodies on lines: line, first position, how many.
        sizes: Bytes of each body of the frame: those on lines in the order of `lines`, then those of `blobs`.
        blobs: Addresses of large bodies.
        dropped: Ids of rows that were removed.
        is_named: Whether the log's name was durable before this frame was written.
        mark: Count of redactions, and salt.
        masks: What was redacted; None where the frame does not say.
        begin: Only in the first two frames.
    """

    rows: list[tuple[str, int, Record]] = []
    lines: list[tuple[int, int, int]] = []
    sizes: list[int] = []
    blobs: list[bytes] = []
    dropped: list[str] = []
    is_named: bool = False
    mark: tuple[int, bytes] | None = None
    masks: dict[bytes, bytes] | None = None
    begin: Begin | None = None


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame that was found whole.

    Attributes:
        at: Where it stands in the file.
        head: What it says.
        body: Where its first body stands.
        stop: Where it ends.
        previous: The checksum of the frame before.
        checksum: Its own.
    """

    at: int
    head: Head
    body: int
    stop: int
    previous: int
    checksum: int


class Gap(NamedTuple):
    """Damage: no frame begins between `start` and `stop`, and one does at `stop`, or will: there the damaged one ends."""

    start: int
    stop: int


_encoder = msgspec.msgpack.Encoder()

# A long conversation has thousands of frames, and each is taken apart when its log is opened.
_decode = msgspec.msgpack.Decoder(Head).decode
_unpack, _pack_place, _HEADER_SIZE, _crc32 = HEADER.unpack_from, PLACE.pack, HEADER.size, zlib.crc32


def pack_frame(
    at: int, previous: int, head: Head, bodies: Sequence[bytes], *, most: int = _LARGEST
) -> tuple[bytes, int, int]:
    """A frame for the place `at`, where its first body will stand, and its checksum.

    Raises:
        SessionRowError: If it is larger than `most` bytes, by default what a frame can be (4 GiB).
    """
    packed = _encoder.encode(head)
    size = len(packed) + sum(map(len, bodies))
    if size > most:
        raise SessionRowError(f"a commit of {size} bytes is larger than a log can take in one piece ({most})")
    data = b"".join((packed, *bodies))
    checksum = zlib.crc32(data, zlib.crc32(PLACE.pack(at, len(data), len(packed), previous)))
    header = HEADER.pack(MAGIC, len(data), len(packed), previous, checksum)
    return header + data, at + HEADER.size + len(packed), checksum


def scan(data: bytes, base: int, previous: int = 0, start: int = 0) -> Iterator[Frame | Gap]:
    """The frames in a part of a log, in order; ends before what is not whole at the end.

    Args:
        data: The part.
        base: Where it stands in the file.
        previous: The checksum of the frame before.
        start: Where to begin in it; a frame begins there, or it is damaged there.

    Raises:
        CorruptStoreError: If a frame is whole and cannot be understood.
    """
    view = memoryview(data)
    position = start
    while position < len(data):
        frame = _frame(data, view, position, base)
        if frame is None:
            found = position
            while frame is None and (found := data.find(MAGIC, found + 1)) >= 0:
                frame = _frame(data, view, found, base)
            if frame is None:
                found = _damaged(data, position, previous)
                if found < 0:
                    return
            yield Gap(base + position, base + found)
            position = found
        if frame is not None:
            yield frame
            position, previous = frame.stop - base, frame.checksum


def _frame(data: bytes, view: memoryview, position: int, base: int) -> Frame | None:
    start = position + _HEADER_SIZE
    if start > len(data):
        return None
    magic, size, head_size, previous, checksum = _unpack(data, position)
    stop = start + size
    if magic != MAGIC or head_size > size or stop > len(data):
        return None
    at = base + position
    body = start + head_size
    if _crc32(view[start:stop], _crc32(_pack_place(at, size, head_size, previous))) != checksum:
        return None
    try:
        head = _decode(data[start:body])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptStoreError(f"the frame at byte {at} cannot be understood: {error}") from error
    return Frame(at, head, base + body, base + stop, previous, checksum)


def _damaged(data: bytes, position: int, previous: int) -> int:
    """Where a frame ends that is there in full length and was damaged; -1 for one that may never have been written whole.

    Where a power cut came before everything was on the disk, what is missing reads as zeros, although the file may have its
    full length. In a frame as it was written there are none to speak of.

    Args:
        data: As in `scan`.
        position: Where the frame begins in it.
        previous: The checksum of the frame before.
    """
    start = position + _HEADER_SIZE
    if start > len(data):
        return -1
    magic, size, head_size, before, _ = _unpack(data, position)
    stop: int = start + size
    if magic != MAGIC or before != previous or head_size > size or stop > len(data):
        return -1
    return -1 if data.find(_UNWRITTEN, position, stop) >= 0 or data[stop - 1] == 0 else stop


def foreign(beginning: bytes) -> str | None:
    """What is wrong with a file that begins so and holds no frame; None when it may be a first frame that was cut short.

    Args:
        beginning: Its first bytes.
    """
    if beginning[:3] == _KIND and len(beginning) > 3 and beginning[3] != VERSION:
        return f"it has version {beginning[3]}, and this version of Antiphon reads version {VERSION}: upgrade Antiphon"
    if MAGIC.startswith(beginning[:4]) or not beginning.strip(b"\0"):
        return None
    return "it is something else's, or its beginning was overwritten"

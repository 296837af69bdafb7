"""The straight way through a log: frames as ordinary turns leave them, taken in one after the other.

A long conversation has thousands of frames, and nearly all of them say the same: a row, and messages at the end of a line.
Whoever opens the log waits for every one of them. What is done here is what `frames.scan` and `Contents.apply` do, without a
value for each step in between; whatever is not that ordinary, or not whole, is left to them.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec

from antiphon.store.file.contents import ANY_AGENT, Contents
from antiphon.store.file.frames import HEADER, MAGIC, PLACE, Head
from antiphon.store.record import Row

_decode = msgspec.msgpack.Decoder(Head).decode
_unpack, _pack_place, _HEADER_SIZE, _crc32 = HEADER.unpack_from, PLACE.pack, HEADER.size, zlib.crc32

_NEVER = 2**63


class Taken(NamedTuple):
    """How far it went.

    Attributes:
        position: Where the next frame begins in the data.
        checksum: Of the last frame.
        last: Where the last frame begins in the data; -1 when none was taken.
    """

    position: int
    checksum: int
    last: int


def take_ordinary(contents: Contents, data: bytes, base: int, position: int, checksum: int) -> Taken:
    """Take in frames until there is one that is not ordinary, not whole, or does not follow the one before.

    Args:
        contents: What the log says up to here.
        data: A part of the log.
        base: Where it stands in the file.
        position: Where to begin in the data.
        checksum: Of the frame before.
    """
    view, end, last = memoryview(data), len(data), -1
    rows, costs, lines, newest = contents.rows, contents.waste.costs, contents.lines, contents.newest
    session_id, newest_at = contents.session_id, _newest_at(contents)
    while (start := position + _HEADER_SIZE) <= end:
        magic, size, head_size, previous, own = _unpack(data, position)
        stop, body = start + size, start + head_size
        if magic != MAGIC or previous != checksum or head_size > size or stop > end:
            break
        if _crc32(view[start:stop], _crc32(_pack_place(base + position, size, head_size, previous))) != own:
            break
        try:
            head = _decode(view[start:body])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
        if head.begin is not None or head.blobs or head.dropped or head.mark is not None or head.masks is not None:
            break
        if len(head.rows) != 1 or len(head.lines) > 1:
            break
        for number, first, count in head.lines:
            line = lines.get(number)
            if line is None:
                line = contents.line(number)
            if first != len(line.offsets) or count != len(head.sizes):
                return Taken(position, checksum, last)
            offset = base + body
            line.sizes.extend(head.sizes)
            for length in head.sizes:
                line.offsets.append(offset)
                offset += length
        snapshot_id, revision, record = head.rows[0]
        row = Row(snapshot_id, session_id, revision, record)
        created_at = record.created_at
        if created_at > newest_at and snapshot_id not in rows:
            rows[snapshot_id] = newest[ANY_AGENT] = row
            newest_at = created_at
            costs[snapshot_id] = body - position
            if record.agent_id is not None:
                newest[record.agent_id] = row
            if record.idempotency_key is not None:
                contents.keys[record.idempotency_key] = snapshot_id
            for number, _, reached in record.spans or ():
                line = lines.get(number)
                if line is None or len(line.offsets) < reached:
                    contents.line(number).reach(reached)
        else:
            contents.put_row(row, body - position)
            newest_at = _newest_at(contents)
        if head.is_named:
            contents.is_named = True
        last, position, checksum = position, stop, own
    return Taken(position, checksum, last)


def _newest_at(contents: Contents) -> int:
    """After which time a row is the newest one, and nothing else is to be thought of."""
    newest = contents.newest.get(ANY_AGENT)
    return _NEVER if newest is None or contents.order is not None else newest.record.created_at

"""A session's log: what was read of it so far, and reading on."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from antiphon.errors import CorruptStoreError, StoreSchemaError
from antiphon.store.file.contents import Contents
from antiphon.store.file.frames import HEADER, Gap, foreign, scan
from antiphon.store.file.straight import take_ordinary
from antiphon.store.record import Cuts

_NEAR = 8192  # bytes between two bodies that are read together rather than apart


class Log:
    """A log as far as it was read. It holds no descriptor: each use brings its own.

    Attributes:
        contents: What it says.
        inode: Which file that was. Inode numbers are used again, so the last frame is compared too.
        end: Where what was read ends.
        checksum: That of the last frame.
    """

    __slots__ = ("_last", "_read", "checksum", "contents", "end", "inode")

    def __init__(self) -> None:
        self._begin(-1)

    def _begin(self, inode: int) -> None:
        self.contents = Contents()
        self.inode = inode
        self.end: int = 0
        self.checksum: int = 0
        self._last: tuple[int, bytes] = (0, b"")  # where the last frame stands, and its header
        self._read: tuple[int, bytes] = (0, b"")  # what was read last, and where it stands

    def catch_up(self, fd: int) -> bool:
        """Read what was added, or everything when the file is another one, or was cut back and written anew.

        Returns:
            Whether a frame stands behind something that is none. While a writer is at work that may be an illusion:
            then nothing of it was taken in, unless `settled` was called for.

        Raises:
            CorruptStoreError: If a frame cannot be understood.
            StoreSchemaError: If it is not a log of this version.
        """
        return self._read_on(fd, settled=False)

    def catch_up_settled(self, fd: int) -> None:
        """The same under the log's lock: what is damaged now stays damaged, and is named in `contents.lost`."""
        self._read_on(fd, settled=True)

    def _read_on(self, fd: int, *, settled: bool) -> bool:
        status = os.fstat(fd)
        at, header = self._last
        if status.st_ino != self.inode or status.st_size < self.end or os.pread(fd, len(header), at) != header:
            self._begin(status.st_ino)
        elif status.st_size == self.end:
            return False
        base = self.end
        data = read_at(fd, base, status.st_size - base)
        self._read = base, data
        is_first, is_doubtful, last, at = True, False, -1, 0
        while not is_doubtful:
            taken = take_ordinary(self.contents, data, base, at, self.checksum)
            if taken.last >= 0:
                at, self.checksum, last, is_first = *taken, False
                self.end = base + at
            found = next(scan(data, base, self.checksum, at), None)
            if found is None:
                break
            if isinstance(found, Gap):
                if not settled:
                    is_doubtful = True
                    break
            elif is_first and self.end and found.previous != self.checksum:
                # Not the successor of what was read: a writer failed, cut its frame off, and others went on.
                self._begin(-1)
                return self._read_on(fd, settled=settled)
            else:
                self.checksum, last = found.checksum, found.at - base
            self.end, at, is_first = found.stop, found.stop - base, False
            self.contents.apply(found)
        if last >= 0:
            self._last = base + last, data[last : last + HEADER.size]
        if is_doubtful:
            return True
        if self.end == 0 and data:
            wrong = foreign(data[:8])
            if wrong is not None:
                raise StoreSchemaError(f"this is not a log of a session: {wrong}")
        return False

    def take_read(self) -> tuple[int, bytes]:
        """What was read last, and where it stands, once: most of it is wanted at once when a log is opened.

        It ends where the last frame ends. A commit that never ended may follow in the file; a writer cuts it off and writes
        in its place.
        """
        (base, data), self._read = self._read, (0, b"")
        return base, data if base + len(data) <= self.end else data[: self.end - base]

    def advance(self, data: bytes, checksum: int) -> None:
        """Say that a frame was appended; `contents` has it already."""
        self._last = (self.end, data[: HEADER.size])
        self.end += len(data)
        self.checksum = checksum


def read_at(fd: int, offset: int, size: int) -> bytes:
    """`size` bytes of a file, or as many as there are."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(fd, size, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def fetch(fd: int, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    """The bodies at these places of a file, in this order; neighbours are read together.

    Raises:
        CorruptStoreError: If the file ends before.
    """
    if not offsets:
        return []
    low, high = min(offsets), max(offsets)
    if high - low <= 2 * sum(sizes) + _NEAR:  # most of what lies between is wanted
        high += max(sizes)
        data = read_at(fd, low, high - low)
        bodies = [data[at - low : at - low + size] for at, size in zip(offsets, sizes, strict=True)]
        if sum(map(len, bodies)) < sum(sizes):
            raise _cut_short()
        return bodies
    return _fetch_apart(fd, offsets, sizes)


def cut_from(read: tuple[int, bytes], offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes] | None:
    """The bodies at these places of a file, from a part that was read; None when they are not all in it.

    Args:
        read: Where the part begins, and its bytes; whole frames, so of a body it has all or nothing.
        offsets: Where the bodies stand in the file.
        sizes: How many bytes each has.
    """
    base, data = read
    if not _is_within(read, offsets):
        return None
    return [data[at - base : at - base + size] for at, size in zip(offsets, sizes, strict=True)]


def cuts_from(read: tuple[int, bytes], offsets: Sequence[int], sizes: Sequence[int]) -> Cuts | None:
    """The same, not yet cut out, of bodies that make up most of the part: it stays in memory with them.

    None when they do not, or are not all in it.
    """
    base, data = read
    if 2 * sum(sizes) < len(data) or not _is_within(read, offsets):
        return None
    return Cuts(data, offsets if base == 0 else [at - base for at in offsets], sizes)


def _is_within(read: tuple[int, bytes], offsets: Sequence[int]) -> bool:
    base, data = read
    return bool(data and offsets) and min(offsets) >= base and max(offsets) < base + len(data)


def _cut_short() -> CorruptStoreError:
    error = CorruptStoreError("the log ends before what is wanted of it")
    error.__cause__ = OSError(errno.EIO, "short read")
    return error


def _fetch_apart(fd: int, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    bodies: list[bytes] = [b""] * len(offsets)
    order: Sequence[int] = range(len(offsets))
    if any(offsets[index] < offsets[index - 1] for index in range(1, len(offsets))):
        order = sorted(order, key=offsets.__getitem__)
    first = 0
    while first < len(order):
        start = offsets[order[first]]
        stop = start + sizes[order[first]]
        last = first + 1
        while last < len(order) and offsets[order[last]] - stop <= _NEAR:
            stop = max(stop, offsets[order[last]] + sizes[order[last]])
            last += 1
        data = read_at(fd, start, stop - start)
        if len(data) < stop - start:
            raise _cut_short()
        for index in order[first:last]:
            begin = offsets[index] - start
            bodies[index] = data[begin : begin + sizes[index]]
        first = last
    return bodies

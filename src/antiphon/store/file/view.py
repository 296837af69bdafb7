"""Looking at a tenant's sessions: `Reading` over logs."""

from __future__ import annotations

import errno
import os
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from antiphon.errors import CorruptStoreError, SessionStoreError
from antiphon.store.backend import Query, SessionMark
from antiphon.store.file.contents import ANY_AGENT, Contents
from antiphon.store.file.folder import INDEX, LOG, NOTE, Folder, digest, translated
from antiphon.store.file.index import Index, settle
from antiphon.store.file.log import Log, cut_from, cuts_from, fetch
from antiphon.store.lines import lost
from antiphon.store.record import Row

_HEAVIEST = 300_000  # messages in the logs that are kept in memory, by `Contents.weight`
_MOST_HEADS = 100_000


class Head(NamedTuple):
    """What a list shows of a session, and which state of the log it was taken from."""

    inode: int
    size: int
    session_id: str
    rows: int
    newest: Row


class LogCache:
    """Logs and heads of one tenant that were read before. For one thread."""

    def __init__(self) -> None:
        self.heads: dict[bytes, Head] = {}
        self._logs: OrderedDict[bytes, tuple[Log, int]] = OrderedDict()
        self._weight = 0

    def take(self, session: bytes) -> Log:
        """The log, as far as it is known. It is not kept until `keep`: whoever fails with it leaves nothing wrong behind."""
        log, weight = self._logs.pop(session, (None, 0))
        self._weight -= weight
        return log or Log()

    def keep(self, session: bytes, log: Log) -> None:
        """Remember it. Those that were not used for the longest time are forgotten when all weigh too much."""
        weight = log.contents.weight
        self._logs[session] = log, weight
        self._weight += weight
        while self._weight > _HEAVIEST and len(self._logs) > 1:
            self._weight -= self._logs.popitem(last=False)[1][1]

    def see_head(self, session: bytes, head: Head | None) -> None:
        """Remember what a list shows."""
        if head is None:
            self.heads.pop(session, None)
            return
        if len(self.heads) >= _MOST_HEADS:
            self.heads.clear()
        self.heads[session] = head


@dataclass(slots=True)
class Open:
    """A log while it is looked at: what it says, and the very file, which stays there when another takes its name.

    Attributes:
        log: The log.
        fd: The file.
        read: What was just read of it, as `Log.take_read` gives it.
    """

    log: Log
    fd: int
    read: tuple[int, bytes] = (0, b"")

    @property
    def contents(self) -> Contents:
        """What it says."""
        return self.log.contents


class View:
    """A look at one tenant; fulfils `Reading`.

    Each session is seen as it was when the view came to it first. A context manager, for its descriptors.

    Args:
        folder: The tenant's folder; None when there is none.
        cache: What is known of it on this thread.
        index: Its index.
    """

    def __init__(self, folder: Folder | None, cache: LogCache, index: Index) -> None:
        self._folder, self._cache, self._index = folder, cache, index
        self._opened: dict[bytes, Open | None] = {}
        self._is_indexed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session, opened in self._opened.items():
            if opened is not None:
                self.let_go(session, opened)
        self._opened.clear()

    def let_go(self, session: bytes, opened: Open) -> None:
        """End the use of a log."""
        if self._folder is not None:
            self._folder.fs.close(opened.fd)
        self._cache.keep(session, opened.log)

    # Sessions

    def row(self, snapshot_id: str) -> Row | None:
        for opened in self._opened.values():
            if opened is not None and snapshot_id in opened.contents.rows:
                return opened.contents.rows[snapshot_id]
        session = self._indexed().session_of(snapshot_id)
        opened = None if session is None else self._open(session)
        if session is None or opened is None:
            return None
        row = opened.contents.rows.get(snapshot_id)
        if opened.contents.lost and (row is None or not row.session_id):
            raise CorruptStoreError(
                f"snapshot {snapshot_id!r} may have stood in bytes that are damaged: {self._damage(session, opened)}"
            )
        return row

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        opened = self._session(session_id)
        return None if opened is None else opened.contents.newest.get(ANY_AGENT if agent_id is None else agent_id)

    def keyed(self, idempotency_key: str) -> str | None:
        for opened in self._opened.values():
            if opened is not None and idempotency_key in opened.contents.keys:
                return opened.contents.keys[idempotency_key]
        session = self._indexed().session_with(idempotency_key)
        opened = None if session is None else self._open(session)
        return None if opened is None else opened.contents.keys.get(idempotency_key)

    def rows(self, session_id: str) -> list[Row]:
        opened = self._session(session_id)
        return [] if opened is None else list(opened.contents.rows.values())

    def page(self, session_id: str, query: Query) -> list[Row]:
        opened = self._session(session_id)
        found: list[Row] = []
        for row in reversed(opened.contents.ordered() if opened is not None else []):
            if query.admits(row, row.snapshot_id):
                found.append(row)
                if len(found) == query.limit:
                    break
        return found

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        found: list[tuple[str, int, Row]] = []
        if self._folder is None:
            return found
        for session, time in self._indexed().newest_first():
            # The index never says less than the log: what comes now is not newer than `time`.
            if len(found) >= query.limit and time < found[query.limit - 1][2].record.created_at:
                break
            head = self._head(session)
            if head is not None and query.admits(head.newest, head.session_id):
                found.append((head.session_id, head.rows, head.newest))
                found.sort(key=lambda entry: (entry[2].record.created_at, entry[0]), reverse=True)
        return found[: query.limit]

    def mark(self, session_id: str) -> SessionMark | None:
        opened = self._session(session_id)
        return None if opened is None else opened.contents.mark

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        opened = self._session(session_id)
        return {} if opened is None else dict(opened.contents.masks)

    # Bodies

    def length(self, session_id: str, line: int) -> int:
        opened = self._session(session_id)
        found = None if opened is None else opened.contents.lines.get(line)
        return 0 if found is None else len(found)

    def messages(self, session_id: str, line: int, start: int, stop: int) -> Sequence[bytes]:
        opened = self._session(session_id)
        found = None if opened is None else opened.contents.lines.get(line)
        if opened is None or found is None or stop > len(found) or 0 in found.offsets[start:stop]:
            told = "" if opened is None else self._damage(digest(session_id), opened)
            known = 0 if found is None else len(found)
            missing = [at for at in range(start, stop) if found is None or at >= known or not found.offsets[at]]
            raise lost(session_id, line, missing, told)
        offsets, sizes = found.offsets[start:stop], found.sizes[start:stop]
        cuts = cuts_from(opened.read, offsets, sizes)
        return self.bodies_at(opened, offsets, sizes) if cuts is None else cuts

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        opened = self._session(session_id)
        if opened is None:
            return {}
        places = {address: opened.contents.blobs[address] for address in addresses if address in opened.contents.blobs}
        bodies = self.bodies_at(
            opened, [offset for offset, _ in places.values()], [size for _, size in places.values()]
        )
        return dict(zip(places, bodies, strict=True))

    def bodies_at(self, opened: Open, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """The bodies at these places of a log."""
        found = cut_from(opened.read, offsets, sizes)
        if found is not None:
            return found
        with translated("reading a log"):
            return fetch(opened.fd, offsets, sizes)

    # Notes

    def note(self, name: str) -> bytes | None:
        if self._folder is None:
            return None
        file = note_file(name)
        with translated(f"reading {self._folder.path(file)!r}"):
            try:
                data = self._folder.fs.read(file, self._folder.at)
            except FileNotFoundError:
                return None
        return unpack_note(data, self._folder.path(file))[1]

    # What stands where

    def damage(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """Every log of the tenant that is damaged: its path, and from where to where."""
        found: list[tuple[str, list[tuple[int, int]]]] = []
        if self._folder is not None:
            for name, kind in sorted(self._folder.fs.entries(self._folder.at)):
                stem = name.removesuffix(LOG)
                if kind != "file" or stem == name or len(stem) != 32:
                    continue
                opened = self._open(bytes.fromhex(stem))
                if opened is not None and opened.contents.lost:
                    found.append((self._folder.path(name), list(opened.contents.lost)))
        return found

    def _session(self, session_id: str) -> Open | None:
        opened = self._open(digest(session_id))
        if opened is not None and not opened.contents.session_id:
            opened.contents.call(session_id)  # its first frames are damaged
        return opened

    def _open(self, session: bytes) -> Open | None:
        """The log of a session, as it is now, and for the rest of this view."""
        if session in self._opened:
            return self._opened[session]
        with translated(f"reading {session.hex() + LOG!r}"):
            opened = self._opened[session] = self._fresh(session)
        return opened

    def _fresh(self, session: bytes) -> Open | None:
        folder = self._folder
        fd = None if folder is None else folder.open(session.hex() + LOG)
        if folder is None or fd is None:
            return None
        log = self._cache.take(session)
        try:
            if log.catch_up(fd):
                settle(log, folder, session.hex() + LOG)
                if not folder.is_at(fd, session.hex() + LOG):  # it was written anew meanwhile
                    folder.fs.close(fd)
                    return self._fresh(session)
        except SessionStoreError as error:
            folder.fs.close(fd)
            raise type(error)(f"{folder.path(session.hex() + LOG)!r}: {error}") from error
        except BaseException:
            folder.fs.close(fd)
            raise
        if log.end == 0:  # its first commit is under way
            folder.fs.close(fd)
            return None
        return Open(log, fd, log.take_read())

    def _head(self, session: bytes) -> Head | None:
        folder = self._folder
        if folder is None:
            return None
        try:
            status = os.stat(session.hex() + LOG, dir_fd=folder.at, follow_symlinks=False)
        except FileNotFoundError:
            self._cache.see_head(session, None)
            return None
        known = self._cache.heads.get(session)
        if known is not None and (known.inode, known.size) == (status.st_ino, status.st_size):
            return known
        was_open = session in self._opened
        opened = self._open(session)
        newest = None if opened is None else opened.contents.newest.get(ANY_AGENT)
        head = None
        if opened is not None and newest is not None and opened.contents.session_id:
            contents = opened.contents
            head = Head(opened.log.inode, opened.log.end, contents.session_id, len(contents.rows), newest)
        self._cache.see_head(session, head)
        if opened is not None and not was_open:  # a list of many must not hold as many files
            del self._opened[session]
            self.let_go(session, opened)
        return head

    def _indexed(self) -> Index:
        if not self._is_indexed and self._folder is not None:
            with translated(f"reading {self._folder.path(INDEX)!r}"):
                self._index.refresh(self._folder)
            self._is_indexed = True
        return self._index

    def _damage(self, session: bytes, opened: Open) -> str:
        where = "a file" if self._folder is None else repr(self._folder.path(session.hex() + LOG))
        parts = ", ".join(f"{start} to {stop}" for start, stop in opened.contents.lost)
        return f"{where} is damaged at bytes {parts}" if parts else f"{where} lacks them"


def note_file(name: str) -> str:
    """The file of a note."""
    return digest(name).hex() + NOTE


def pack_note(name: str, value: bytes) -> bytes:
    """A note's file."""
    data = msgspec.msgpack.encode((name, value))
    return zlib.crc32(data).to_bytes(4, "little") + data


def unpack_note(data: bytes, where: str) -> tuple[str, bytes]:
    """A note's name and value.

    Raises:
        CorruptStoreError: If it is damaged.
    """
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little") or len(data) < 4:
        raise CorruptStoreError(f"{where!r} is damaged") from OSError(errno.EIO, "checksum")
    return msgspec.msgpack.decode(data[4:], type=tuple[str, bytes])

"""Which session of a tenant an id is in, and which sessions are the newest.

A file of small records of one size, to which every commit of a new row adds one *before* the row is written. So it never
lacks anything that is in a log; what it says too much (a writer died in between, a row was removed) costs a look into a log.
It holds digests only, so nothing of a session stays behind in it.

The file is never flushed: it would be a second fsync for every turn. After a restart of the machine it is made anew from
the logs; until then what was written to it can be read, whoever died.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from antiphon.errors import SessionStoreError
from antiphon.ids import new_uuid7
from antiphon.store.file.contents import Contents
from antiphon.store.file.folder import INDEX, LOG, TEMPORARY, Folder, digest
from antiphon.store.file.log import Log, read_at

_log = logging.getLogger(__name__)

_RECORD = struct.Struct("<16s16sq8sB3xI")  # session, id, created_at, the session's uid, kind, checksum
_BODY = _RECORD.size - 4
_BOOT, _ROW, _KEY, _GONE = range(4)
_NOTHING = b"\0" * 16

_MANY = 256  # sessions that were removed, whose records may stay


class Claim(NamedTuple):
    """Something that may be about to become true.

    Attributes:
        session: Digest of the session.
        uid: Which session of that id.
        id: Digest of a row's id, of an idempotency key, or nothing.
        created_at: The row's time.
        kind: What this is.
    """

    session: bytes
    uid: bytes
    id: bytes
    created_at: int
    kind: int


def row_claim(session: bytes, uid: bytes, snapshot_id: str, created_at: int) -> Claim:
    """The session has, or will have, this row."""
    return Claim(session, uid, digest(snapshot_id), created_at, _ROW)


def key_claim(session: bytes, uid: bytes, key: str) -> Claim:
    """The session has, or will have, a row with this idempotency key."""
    return Claim(session, uid, digest(key), 0, _KEY)


def gone_claim(session: bytes, uid: bytes) -> Claim:
    """The session was removed."""
    return Claim(session, uid, _NOTHING, 0, _GONE)


class Index:
    """The index of one tenant, as far as it was read. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget(-1)

    def _forget(self, inode: int) -> None:
        self._inode, self._size = inode, 0
        self._rows: dict[bytes, bytes] = {}
        self._keys: dict[bytes, bytes] = {}
        self._newest: dict[bytes, tuple[bytes, int]] = {}  # by session: its uid, and a time that no row of it is after
        self._order: list[bytes] = []  # sessions, the one with the greatest such time last; sorted when asked for
        self._is_sorted = True
        self._dead = 0

    def session_of(self, snapshot_id: str) -> bytes | None:
        """The only session that may have this row."""
        return self._rows.get(digest(snapshot_id))

    def session_with(self, key: str) -> bytes | None:
        """The only session that may have this idempotency key."""
        return self._keys.get(digest(key))

    def latest_time(self, session: bytes) -> int | None:
        """A time that no row of the session is after; None when nothing is known of it."""
        found = self._newest.get(session)
        return None if found is None else found[1]

    def newest_first(self) -> list[tuple[bytes, int]]:
        """All sessions, each with a time that no row of it is after; by that time."""
        with self._lock:
            if not self._is_sorted:
                self._order.sort(key=lambda session: self._newest[session][1])
                self._is_sorted = True
            return [(session, self._newest[session][1]) for session in reversed(self._order)]

    def refresh(self, folder: Folder) -> None:
        """Read what was added since."""
        with self._lock:
            if not self._look(folder):
                self._renew(folder)

    def add(self, folder: Folder, claims: Iterable[Claim]) -> None:
        """Add claims. What they are about must be locked by the caller: a row's id, its session."""
        data = b"".join(map(_pack, claims))
        if data:
            with folder.locked(INDEX) as fd:
                self._append(fd, folder, data)

    def remove(self, folder: Folder, session: bytes, uid: bytes) -> None:
        """Say that a session was removed."""
        self.add(folder, [gone_claim(session, uid)])
        with self._lock:
            if self._dead > _MANY and self._dead > len(self._newest):
                self._renew(folder, tidy=True)

    def _append(self, fd: int, folder: Folder, data: bytes) -> None:
        size = os.fstat(fd).st_size
        if size % _RECORD.size:  # somebody died in the middle of a record
            size -= size % _RECORD.size
            folder.fs.truncate(fd, size)
        folder.fs.write_at(fd, data, size)

    def _look(self, folder: Folder) -> bool:
        fd = folder.open(INDEX)
        if fd is None:
            return False
        try:
            return self._read_on(fd, folder)
        finally:
            folder.fs.close(fd)

    def _read_on(self, fd: int, folder: Folder) -> bool:
        """Take in what is new; False when the file cannot be used."""
        status = os.fstat(fd)
        if status.st_ino != self._inode or status.st_size < self._size:
            self._forget(status.st_ino)
        if status.st_size == self._size:
            return self._size > 0
        data = read_at(fd, self._size, status.st_size - self._size)
        claims = list(_parse(data))
        whole = len(data) // _RECORD.size
        if not whole:
            return self._size > 0
        if len(claims) < whole:
            self._forget(-1)
            return False
        if self._size == 0 and claims[0] != _boot(folder):
            self._forget(-1)
            return False
        for claim in claims:
            self._take(claim)
        self._size += whole * _RECORD.size
        return True

    def _take(self, claim: Claim) -> None:
        if claim.kind == _ROW:
            self._rows[claim.id] = claim.session
            known = self._newest.get(claim.session)
            if known is None:
                self._order.append(claim.session)
            if known is None or known[0] != claim.uid or claim.created_at > known[1]:
                self._newest[claim.session] = claim.uid, claim.created_at
                self._is_sorted = False
        elif claim.kind == _KEY:
            self._keys[claim.id] = claim.session
        elif claim.kind == _GONE:
            known = self._newest.get(claim.session)
            if known is not None and known[0] == claim.uid:
                del self._newest[claim.session]
                self._order.remove(claim.session)
                self._dead += 1

    def _renew(self, folder: Folder, *, tidy: bool = False) -> None:
        """Make the file anew: from the logs when it cannot be trusted, else without what is gone."""
        try:
            lock = folder.lock(INDEX)
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM}:
                raise
            # A place that can only be read. Nobody else changes it either, but for each look everything is read.
            self._forget(-1)
            for claim in _from_logs(folder):
                self._take(claim)
            return
        try:
            if lock is None or (not tidy and self._read_on(lock, folder)):
                return  # another one was faster
            if os.fstat(lock).st_size == 0:
                folder.sync_above()  # the folder may be new; once it has an index, its name is durable
            old = list(_parse(read_at(lock, 0, os.fstat(lock).st_size)))
            same_boot = bool(old) and old[0] == _boot(folder)
            # Claims of this boot are kept: their writers may be about to write the row.
            kept = [claim for claim in old[1:] if claim.kind != _BOOT] if same_boot else []
            if not tidy:
                kept += _from_logs(folder)
            gone = {claim.uid for claim in kept if claim.kind == _GONE}
            claims = dict.fromkeys(claim for claim in kept if claim.uid not in gone)
            temporary = f"{INDEX}.{new_uuid7()}{TEMPORARY}"
            try:
                fd = folder.fs.create(temporary, folder.at)
                try:
                    folder.fs.write(fd, b"".join(map(_pack, [_boot(folder), *claims])))
                    folder.fs.replace(temporary, INDEX, folder.at)
                finally:
                    folder.fs.close(fd)
            except OSError:
                with suppress(OSError):
                    folder.fs.remove(temporary, folder.at)
                raise
        finally:
            if lock is not None:
                folder.fs.close(lock)
        self._look(folder)


def _boot(folder: Folder) -> Claim:
    # Where the system does not name its boots, every object makes the index anew: one that may lack something is worse.
    name = folder.fs.boot() or f"process {os.getpid()}"
    return Claim(digest(name), b"\0" * 8, _NOTHING, 0, _BOOT)


def _pack(claim: Claim) -> bytes:
    body = _RECORD.pack(claim.session, claim.id, claim.created_at, claim.uid, claim.kind, 0)[:_BODY]
    return body + zlib.crc32(body).to_bytes(4, "little")


def _parse(data: bytes) -> Iterator[Claim]:
    """The records up to the first one that is damaged or cut."""
    for start in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        session, name, created_at, uid, kind, checksum = _RECORD.unpack_from(data, start)
        if zlib.crc32(data[start : start + _BODY]) != checksum:
            return
        yield Claim(session, uid, name, created_at, kind)


def _from_logs(folder: Folder) -> Iterator[Claim]:
    """What the logs of a tenant say."""
    for name, kind in folder.fs.entries(folder.at):
        stem = name.removesuffix(LOG)
        if kind != "file" or stem == name or len(stem) != 32:
            continue
        try:
            session = bytes.fromhex(stem)
            contents = _contents(folder, name)
        except (ValueError, SessionStoreError) as error:
            _log.warning("%s cannot be read: %s", folder.path(name), error)
            continue
        if contents is not None:
            yield from _claims_of(session, contents)


def _contents(folder: Folder, name: str) -> Contents | None:
    fd = folder.open(name)
    if fd is None:
        return None
    try:
        log = Log()
        if log.catch_up(fd):
            settle(log, folder, name)
    finally:
        folder.fs.close(fd)
    return log.contents


def settle(log: Log, folder: Folder, name: str) -> None:
    """Read a log in which something seemed to be damaged once more, while nobody writes it."""
    fd = folder.lock(name, make=False)
    if fd is not None:
        try:
            log.catch_up_settled(fd)
        finally:
            folder.fs.close(fd)


def _claims_of(session: bytes, contents: Contents) -> Iterator[Claim]:
    for row in contents.rows.values():
        yield row_claim(session, contents.uid, row.snapshot_id, row.record.created_at)
    for key in contents.keys:
        yield key_claim(session, contents.uid, key)

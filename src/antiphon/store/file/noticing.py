"""Hearing of what other processes write: the system tells of files that change, and a look from time to time is the net."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from antiphon.errors import CorruptStoreError, SessionStoreError
from antiphon.filesystem import FileSystem
from antiphon.store.backend import Wake
from antiphon.store.file.folder import LOG, NOTE
from antiphon.store.file.frames import Frame, scan
from antiphon.store.file.log import read_at
from antiphon.store.file.view import unpack_note

# As in the manual page inotify(7).
_MODIFY, _MOVED_TO, _CREATE, _DELETE, _OVERFLOW = 0x2, 0x80, 0x100, 0x200, 0x4000
_ONLY_FOLDER, _NO_SYMLINK, _IS_FOLDER = 0x01000000, 0x02000000, 0x40000000
_EVENT = struct.Struct("iIII")

_MOST_ENDS = 10_000
_LARGEST_LOOK = 1 << 22  # bytes that were added to a log and are looked through for the rows among them


class Inotify:
    """The system's notices of changes in folders (Linux).

    Raises:
        OSError: If the system has no such thing, or no more of it.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.fd: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def add(self, path: str, mask: int) -> int:
        """Watch a folder; returns what its events are called by."""
        watch: int = self._libc.inotify_add_watch(self.fd, os.fsencode(path), ctypes.c_uint32(mask))
        if watch < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        return watch

    def events(self) -> list[tuple[int, int, str]]:
        """What has happened: the folder, how, and the name in it."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        found: list[tuple[int, int, str]] = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            found.append((watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
            at += length
        return found

    def close(self) -> None:
        os.close(self.fd)


class Noticer:
    """A thread that tells of changes until `stop`.

    Args:
        path: The store's folder.
        wake: Whom to tell.
        tenants: Gives the tenant of a folder's name, where this process has used it.
        poll_interval: Seconds after which somebody is told in any case, since on network drives nothing tells.
        fs: The file operations.
        make: Makes the system's notices; raises `OSError` where there are none.
    """

    def __init__(
        self,
        path: str,
        wake: Wake,
        tenants: Callable[[str], str | None],
        *,
        poll_interval: float,
        fs: FileSystem,
        make: Callable[[], Inotify] = Inotify,
    ) -> None:
        self._path, self._wake, self._tenants, self._fs = path, wake, tenants, fs
        self._interval_ms = max(1, round(poll_interval * 1000))
        self._make = make
        self._folders: dict[int, str] = {}
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}  # of logs: inode, and where a frame will begin
        self._is_over = threading.Event()
        self._listen, self._stop = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="antiphon-file-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell nobody any more."""
        if not self._is_over.is_set():
            self._is_over.set()
            os.write(self._stop, b"x")
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _run(self) -> None:
        notices: Inotify | None = None
        try:
            with suppress(OSError):
                notices = self._make()
            waiting = select.poll()
            waiting.register(self._listen, select.POLLIN)
            if notices is not None:
                waiting.register(notices.fd, select.POLLIN)
                self._watch_all(notices)
            self._tell(None, None)  # what changed before this thread was there
            while not self._is_over.is_set():
                if not waiting.poll(self._interval_ms):
                    self._tell(None, None)
                    if notices is not None and not self._folders:  # the folder was away
                        self._watch_all(notices)
                elif notices is not None:
                    self._see(notices)
        finally:
            if notices is not None:
                notices.close()
            os.close(self._listen)
            os.close(self._stop)

    def _tell(self, tenant: str | None, snapshot_id: str | None) -> None:
        if not self._is_over.is_set():
            self._wake(tenant, snapshot_id)

    def _watch_all(self, notices: Inotify) -> None:
        with suppress(OSError):
            watch = notices.add(self._path, _CREATE | _MOVED_TO | _ONLY_FOLDER)
            self._folders[watch] = ""
            with os.scandir(self._path) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        self._watch(notices, entry.name)

    def _watch(self, notices: Inotify, name: str) -> None:
        with suppress(OSError):  # no more watches, or gone: then looking from time to time must do
            mask = _MODIFY | _MOVED_TO | _DELETE | _ONLY_FOLDER | _NO_SYMLINK
            self._folders[notices.add(os.path.join(self._path, name), mask)] = name

    def _see(self, notices: Inotify) -> None:
        changed: dict[tuple[str, str], int] = {}
        for watch, mask, name in notices.events():
            if mask & _OVERFLOW:
                self._tell(None, None)
            folder = self._folders.get(watch)
            if folder == "" and mask & _IS_FOLDER:
                self._watch(notices, name)
                self._tell(self._tenants(name), None)
            elif folder:
                changed[folder, name] = changed.get((folder, name), 0) | mask
        for (folder, name), mask in changed.items():
            if name.endswith(LOG):
                self._see_log(folder, name, mask)
            elif name.endswith(NOTE):
                self._see_note(folder, name)

    def _see_log(self, folder: str, name: str, mask: int) -> None:
        tenant = self._tenants(folder)
        ids = None if mask & (_MOVED_TO | _DELETE) else self._added(folder, name)
        if ids is None:
            self._tell(tenant, None)
        for snapshot_id in ids or ():
            self._tell(tenant, snapshot_id)

    def _see_note(self, folder: str, name: str) -> None:
        note: str | None = None
        with suppress(OSError, SessionStoreError):
            path = os.path.join(self._path, folder)
            at = self._fs.open_base(path)
            try:
                note = unpack_note(self._fs.read(name, at), name)[0]
            finally:
                self._fs.close(at)
        self._tell(self._tenants(folder), note)

    def _added(self, folder: str, name: str) -> set[str] | None:
        """Ids of the rows that were added to a log since the last time; None when that cannot be told."""
        inode, start = self._ends.pop((folder, name), (-1, 0))
        try:
            fd = os.open(os.path.join(self._path, folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(fd)
            if len(self._ends) >= _MOST_ENDS:
                self._ends.clear()
            # The last write has ended, or another notice will come: a frame will begin here.
            self._ends[folder, name] = status.st_ino, status.st_size
            if inode != status.st_ino or not start <= status.st_size <= start + _LARGEST_LOOK:
                return None
            data = read_at(fd, start, status.st_size - start)
        finally:
            os.close(fd)
        ids: set[str] = set()
        end = start
        try:
            for found in scan(data, start):
                if not isinstance(found, Frame):
                    return None
                ids.update(snapshot_id for snapshot_id, _, _ in found.head.rows)
                ids.update(found.head.dropped)
                end = found.stop
        except CorruptStoreError:
            return None
        return ids if end == start + len(data) else None

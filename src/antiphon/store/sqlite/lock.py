"""One writer at a time, across processes: a lock on a file beside the database.

SQLite has a lock for writers of its own, and it is taken too (`BEGIN IMMEDIATE`). This one is in front of it because

* whoever waits for it is woken, in turn, where SQLite's busy handler sleeps for up to 100 ms and may starve;
* it also keeps checkpoints away from writers of other processes, which SQLite before 3.51.3 needs
  (https://sqlite.org/wal.html#walresetbug; `docs/decisions`), and openers from one another.

A lock on the database file itself would not do: closing any descriptor of that file drops SQLite's own locks
(https://sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from antiphon.errors import SessionStoreError


class WriteLock:
    """The right to write. A thread that has it may take it again.

    Args:
        path: The lock's file; it is made when it is missing, and stays.
        patience: How long to wait for other processes, in seconds.
    """

    def __init__(self, path: str, patience: float) -> None:
        self._path, self._patience = path, patience
        self._threads = threading.RLock()
        self._depth = 0
        self._fd: int | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Have the lock.

        Raises:
            SessionStoreError: If it cannot be had in time.
        """
        with self._threads:
            if self._depth == 0:
                self._acquire()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._fd is not None:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; the next `held` opens it again."""
        with self._threads:
            if self._fd is not None and self._depth == 0:
                os.close(self._fd)
                self._fd = None

    @contextmanager
    def stilled(self, patience: float) -> Generator[None]:
        """Closed, and taken by no other thread meanwhile; unless it cannot be had within so many seconds."""
        if not self._threads.acquire(timeout=patience):
            yield
            return
        try:
            self.close()
            yield
        finally:
            self._threads.release()

    def renew(self) -> None:
        """In a forked child: forget what could not be stilled. The parent keeps its lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._depth, self._threads = None, 0, threading.RLock()

    def _acquire(self) -> None:
        try:
            while True:
                fd = self._fd if self._fd is not None else self._open()
                self._fd = None  # until it is locked: a wait that is given up leaves the descriptor to its thread
                _lock(fd, self._path, self._patience)
                if self._is_in_place(fd):
                    self._fd = fd
                    return
                os.close(fd)  # somebody removed or replaced the file: who comes next locks another one
        except OSError as error:
            raise SessionStoreError(f"the lock {self._path!r} cannot be used: {error}") from error

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def _is_in_place(self, fd: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))


def _lock(fd: int, path: str, patience: float) -> None:
    """Lock an open file; closes it when that fails."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not _Wait(fd).is_over(patience):
            raise SessionStoreError(
                f"another process has had the lock {path!r} for {patience:g} s: see whether it hangs"
            ) from None
    except OSError:
        os.close(fd)
        raise


class _Wait:
    """A wait for a lock, on a thread of its own: the system call knows no time limit."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._given_up = False
        self._error: OSError | None = None
        threading.Thread(target=self._wait, name="antiphon-lock", daemon=True).start()

    def is_over(self, seconds: float) -> bool:
        """Wait. False: it took too long; the descriptor is closed as soon as that can be."""
        self._ended.wait(seconds)
        with self._mutex:
            self._given_up = not self._ended.is_set()
        if self._error is not None:
            os.close(self._fd)
            raise self._error
        return not self._given_up

    def _wait(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self._mutex:
            self._ended.set()
            if self._given_up:
                os.close(self._fd)

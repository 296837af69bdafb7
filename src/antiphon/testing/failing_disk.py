"""A disk that is full, read-only or broken."""

from __future__ import annotations

import errno
import os

from antiphon.filesystem import FileSystem

_HALF = 2
_SPARED = {errno.ENOSPC: {"remove", "remove_folder", "truncate", "sync", "sync_data", "sync_folder"}}
"""What still works on a full disk."""


class FailingFileSystem(FileSystem):
    """Real files on a disk that can be made to fail, without a disk of its own and without being root.

    Hand it to `LocalFileStorage` or `FileSessionStore` as `filesystem=`.

    Attributes:
        operations: The operations that change something, in order, by the names of their methods; those that failed too.
    """

    def __init__(self) -> None:
        self.operations: list[str] = []
        self._error: int | None = None
        self._spared = 0

    def fail(self, error: int = errno.ENOSPC, *, after: int = 0) -> None:
        """Let operations that change something fail from now on, until `mend()`.

        Args:
            error: `ENOSPC` (a full disk: a write stops half-way, what frees space works), `EROFS`, `EIO`, ...
            after: How many of them still succeed.
        """
        self._error, self._spared = error, after

    def mend(self) -> None:
        """The disk works again."""
        self._error = None

    def _meet(self, operation: str) -> None:
        self.operations.append(operation)
        if self._error is None or operation in _SPARED.get(self._error, ()):
            return
        if self._spared:
            self._spared -= 1
            return
        raise OSError(self._error, os.strerror(self._error))

    def make_folder(self, name: str, at: int) -> None:
        self._meet("make_folder")
        super().make_folder(name, at)

    def remove_folder(self, name: str, at: int) -> None:
        self._meet("remove_folder")
        super().remove_folder(name, at)

    def create(self, name: str, at: int) -> int:
        self._meet("create")
        return super().create(name, at)

    def open_file(self, name: str, at: int, *, write: bool = False, make: bool = False) -> int:
        if make and self.kind(name, at) is None:
            self._meet("create")
        return super().open_file(name, at, write=write, make=make)

    def write(self, fd: int, data: bytes) -> None:
        try:
            self._meet("write")
        except OSError:
            super().write(fd, data[: len(data) // _HALF])
            raise
        super().write(fd, data)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        try:
            self._meet("write_at")
        except OSError:
            super().write_at(fd, data[: len(data) // _HALF], offset)
            raise
        super().write_at(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._meet("sync")
        super().sync(fd)

    def sync_data(self, fd: int) -> None:
        self._meet("sync_data")
        super().sync_data(fd)

    def sync_folder(self, fd: int) -> None:
        self._meet("sync_folder")
        super().sync_folder(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate")
        super().truncate(fd, size)

    def replace(self, old: str, new: str, at: int) -> None:
        self._meet("replace")
        super().replace(old, new, at)

    def remove(self, name: str, at: int) -> None:
        self._meet("remove")
        super().remove(name, at)

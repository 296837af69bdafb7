"""The file operations of what is kept in files, a seam for tests that cut the power (`UnsyncedFileSystem`).

Every name is a single path segment, looked up in an open folder (`at`, a descriptor) and never through a symlink.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Literal, NamedTuple

EntryKind = Literal["file", "folder", "symlink", "other"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 1 << 20


class Entry(NamedTuple):
    """A name in a folder."""

    name: str
    kind: EntryKind


class FileSystem:
    """The operating system's files. Errors are `OSError`s as they come."""

    def open_base(self, path: str) -> int:
        """Open the folder at an absolute path, which may lie behind symlinks. Returns a descriptor."""
        return os.open(path, _FOLDER)

    def make_base(self, path: str) -> None:
        """Make the folder at `path` and the folders above it, as far as they are missing (0700), durably."""
        missing: list[str] = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            at = self.open_base(os.path.dirname(folder))
            try:
                self.make_folder(os.path.basename(folder), at)
                self.sync_folder(at)
            finally:
                self.close(at)

    def open_folder(self, name: str, at: int) -> int:
        """Open a folder in a folder. Returns a descriptor."""
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)

    def make_folder(self, name: str, at: int) -> None:
        """Make a folder (0700); it is fine when it is there."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=at)

    def remove_folder(self, name: str, at: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=at)

    def create(self, name: str, at: int) -> int:
        """Make a file that must not be there (0600), locked as long as it is open. Returns a descriptor to write to."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=at)
        with suppress(OSError):  # a file system without locks: then leftovers stay where they are
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def write(self, fd: int, data: bytes) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest[:_CHUNK]) :]

    def sync(self, fd: int) -> None:
        """Return when the file's data is on the disk."""
        os.fsync(fd)

    def sync_folder(self, fd: int) -> None:
        """Return when the folder's names are on the disk."""
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems know no such thing
                raise

    def sync_data(self, fd: int) -> None:
        """Return when the file's data, and what it takes to find it, is on the disk."""
        os.fdatasync(fd)

    def replace(self, old: str, new: str, at: int) -> None:
        """Give a file another name, in place of what has that name."""
        os.replace(old, new, src_dir_fd=at, dst_dir_fd=at)

    def remove(self, name: str, at: int) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=at)

    def read(self, name: str, at: int) -> bytes:
        """The whole of a file.

        Raises:
            IsADirectoryError: If it is a folder.
        """
        # Without blocking: a pipe in the place of a file must not hold the thread.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            parts: list[bytes] = []
            while part := os.read(fd, max(_CHUNK, status.st_size)):
                parts.append(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(fd)

    def open_file(self, name: str, at: int, *, write: bool = False, make: bool = False) -> int:
        """Open a file, to read it at least. Returns a descriptor.

        Args:
            name: The file.
            at: Its folder.
            write: To change it too.
            make: Make it when it is missing (0600).

        Raises:
            OSError: `ELOOP` if it is a symlink, `EINVAL` if it is no file.
        """
        flags = (os.O_RDWR if write or make else os.O_RDONLY) | (os.O_CREAT if make else 0)
        # Without blocking: a pipe in the place of a file must not hold the thread.
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=at)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return fd

    def lock(self, fd: int) -> None:
        """Wait until nobody else, also in this process, holds an open file of `open_file`; it is let go by closing it."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at a place of the file."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(fd, rest[:_CHUNK], offset)
            rest, offset = rest[written:], offset + written

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(fd, size)

    def boot(self) -> str:
        """Names the time since the machine was started: what was written since then can be read, flushed or not.

        Empty where the system does not tell.
        """
        with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
        return ""

    def kind(self, name: str, at: int) -> EntryKind | None:
        """What stands under a name; None for nothing."""
        try:
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(mode):
            return "symlink"
        return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def entries(self, fd: int) -> list[Entry]:
        """What stands in a folder, in no order."""
        with os.scandir(fd) as found:
            return [
                Entry(
                    entry.name,
                    "symlink"
                    if entry.is_symlink()
                    else "folder"
                    if entry.is_dir(follow_symlinks=False)
                    else "file"
                    if entry.is_file(follow_symlinks=False)
                    else "other",
                )
                for entry in found
            ]

    def remove_abandoned(self, name: str, at: int) -> bool:
        """Remove an unfinished file unless somebody is still writing it. Says whether it did."""
        try:
            fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove(name, at)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def close(self, fd: int) -> None:
        """Close a descriptor of any of these methods."""
        os.close(fd)


OS = FileSystem()

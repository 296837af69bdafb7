"""Bytes by key in files that survive a crash."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from antiphon.errors import StorageError, StorageKeyError
from antiphon.filesystem import OS, FileSystem
from antiphon.ids import new_uuid7
from antiphon.iothread import IOThread
from antiphon.storage.base import TEMPORARY, SyncStorage, frozen_bytes, normalize_key, normalize_prefix
from antiphon.storage.namespace import NamespacedStorage

T = TypeVar("T")

_LONGEST_NAME = 255  # bytes of UTF-8 in one name, on every file system that matters here
_DEEPEST = 100  # folders of a key, one descriptor each while it is written
_ATTEMPTS = 8  # how often a folder may vanish under a write (another process tidies up) before that is an error
_SWEPT_FOLDERS = 4096  # remembered as free of leftovers; then forgotten, so that memory stays bounded


class LocalFileStorage:
    """A storage in a folder: one file for each key, with the key's segments as folders.

    Files are 0600 in folders 0700. A write goes to a temporary file which is flushed to the disk, takes the place of
    the old one in one step, and is then made durable in its folder: when `write` returns, the value survives a power
    cut; if it fails or the process is killed, the old value is whole. What a killed writer left behind is never listed,
    and is removed when a storage next writes in that folder or lists it. Symlinks below the folder are never followed:
    one in the way is a `StorageError` that names it. A folder that a `delete` leaves empty is removed.

    All I/O is done on a thread of the storage's own. Several storages, threads and processes may use one folder.

    Args:
        base_dir: The folder; made when something is written. A relative path is resolved once, here.
        filesystem: The file operations; another one only in tests.

    Attributes:
        sync: The four verbs for synchronous code.
    """

    __slots__ = ("__weakref__", "_files", "_io", "sync")

    def __init__(self, base_dir: str | os.PathLike[str] = "./.antiphon/", *, filesystem: FileSystem = OS) -> None:
        self._files = _Files(os.path.abspath(os.fspath(base_dir)), filesystem)
        self._io = IOThread("antiphon-files")
        self.sync: SyncStorage = _OnThread(self._io, self._files)

    @property
    def base_dir(self) -> str:
        """The folder, as an absolute path."""
        return self._files.base

    async def write(self, key: str, data: bytes) -> None:
        """Put `data` at `key`, durably.

        Raises:
            StorageError: If it cannot be written (disk full, read-only, a symlink in the way, a name too long): the old
                value is intact.
        """
        # Copied here: the caller may change its buffer while the thread is busy.
        await self._io.run(self._files.write, key, frozen_bytes(data))

    async def read(self, key: str) -> bytes | None:
        """The value at `key`; None when there is none."""
        return await self._io.run(self._files.read, key)

    async def delete(self, key: str) -> None:
        """Remove `key`, if it is there, durably."""
        await self._io.run(self._files.delete, key)

    async def list(self, prefix: str = "") -> builtins.list[str]:
        """All keys that begin with `prefix`, ascending. Only the folder that the prefix names is walked."""
        return await self._io.run(self._files.list, prefix)

    def namespace(self, prefix: str) -> NamespacedStorage:
        """A view of the keys under `prefix`, named without it."""
        return NamespacedStorage(self, prefix)

    def close(self) -> None:
        """Finish what was begun and end the thread. The storage may be used again."""
        self._io.close()

    def __repr__(self) -> str:
        return f"LocalFileStorage({self.base_dir!r})"


class _OnThread:
    """The synchronous face: it blocks the caller, the work is done on the storage's thread."""

    __slots__ = ("_files", "_io")

    def __init__(self, io: IOThread, files: _Files) -> None:
        self._io, self._files = io, files

    def write(self, key: str, data: bytes, /) -> None:
        self._io.call(self._files.write, key, frozen_bytes(data))

    def read(self, key: str, /) -> bytes | None:
        return self._io.call(self._files.read, key)

    def delete(self, key: str, /) -> None:
        self._io.call(self._files.delete, key)

    def list(self, prefix: str = "", /) -> builtins.list[str]:
        return self._io.call(self._files.list, prefix)


class _Files:
    """The four verbs on files, for one thread."""

    __slots__ = ("_fs", "_swept", "base")

    def __init__(self, base: str, filesystem: FileSystem) -> None:
        self.base, self._fs = base, filesystem
        self._swept: set[str] = set()

    def write(self, key: str, data: bytes) -> None:
        folders, name = self._split(key)
        with _translated("write", key):
            for attempt in range(_ATTEMPTS):
                try:
                    self._write(key, folders, name, data)
                except FileNotFoundError:
                    # Another storage removed a folder that was empty, or took the new file for a leftover.
                    if attempt == _ATTEMPTS - 1:
                        raise
                else:
                    return

    def read(self, key: str) -> bytes | None:
        folders, name = self._split(key)
        with _translated("read", key), self._folder(key, folders) as chain:
            if not chain:
                return None
            try:
                return self._fs.read(name, chain[-1])
            except (FileNotFoundError, IsADirectoryError):
                return None
            except OSError as error:
                self._refuse_symlink(key, [*folders, name], chain[-1], error)
                raise

    def delete(self, key: str) -> None:
        folders, name = self._split(key)
        with _translated("delete", key), self._folder(key, folders) as chain:
            kind = self._fs.kind(name, chain[-1]) if chain else None
            if kind == "symlink":
                self._refuse_symlink(key, [*folders, name], chain[-1])
            if kind != "file":
                return
            self._sweep("/".join(folders), chain[-1])
            with suppress(FileNotFoundError):
                self._fs.remove(name, chain[-1])
            self._fs.sync_folder(chain[-1])
            for at, folder in zip(reversed(chain[:-1]), reversed(folders), strict=True):
                try:
                    self._fs.remove_folder(folder, at)
                except OSError:  # not empty, or already gone
                    return

    def list(self, prefix: str) -> builtins.list[str]:
        normal = normalize_prefix(prefix)
        *folders, beginning = normal.split("/")
        found: builtins.list[str] = []
        with _translated("list", prefix), self._folder(prefix, folders) as chain:
            if chain:
                self._walk("".join(f"{folder}/" for folder in folders), beginning, chain[-1], found)
        return sorted(found)

    def _walk(self, path: str, beginning: str, fd: int, found: builtins.list[str]) -> None:
        for name, kind in self._fs.entries(fd):
            if name.startswith(TEMPORARY):
                self._fs.remove_abandoned(name, fd)
            elif name.startswith(beginning) and kind in {"file", "folder"} and _is_segment(name):
                if kind == "file":
                    found.append(path + name)
                    continue
                try:
                    inner = self._fs.open_folder(name, fd)
                except (FileNotFoundError, NotADirectoryError):  # gone since it was listed
                    continue
                try:
                    self._walk(f"{path}{name}/", "", inner, found)
                finally:
                    self._fs.close(inner)

    def _write(self, key: str, folders: builtins.list[str], name: str, data: bytes) -> None:
        fs = self._fs
        with self._folder(key, folders, make=True) as chain:
            at = chain[-1]
            if fs.kind(name, at) == "symlink":
                self._refuse_symlink(key, [*folders, name], at)
            self._sweep("/".join(folders), at)
            temporary = f"{TEMPORARY}{new_uuid7()}"
            try:
                fd = fs.create(temporary, at)
                try:
                    fs.write(fd, data)
                    fs.sync(fd)
                    fs.replace(temporary, name, at)
                finally:
                    fs.close(fd)
            except OSError:
                with suppress(OSError):
                    fs.remove(temporary, at)
                raise
            fs.sync_folder(at)

    @contextmanager
    def _folder(self, key: str, folders: builtins.list[str], *, make: bool = False) -> Generator[builtins.list[int]]:
        """Open a folder and those above it, from the base down, never through a symlink.

        Yields:
            One descriptor each for the base and each of `folders`; nothing when one is missing and is not to be made.
        """
        fs = self._fs
        with ExitStack() as stack:
            chain: builtins.list[int] = []

            def enter(fd: int) -> None:
                stack.callback(fs.close, fd)
                chain.append(fd)

            try:
                if make:
                    fs.make_base(self.base)
                enter(fs.open_base(self.base))
                for depth, folder in enumerate(folders):
                    try:
                        enter(fs.open_folder(folder, chain[-1]))
                    except FileNotFoundError:
                        if not make:
                            raise
                        fs.make_folder(folder, chain[-1])
                        fs.sync_folder(chain[-1])
                        enter(fs.open_folder(folder, chain[-1]))
                    except OSError as error:
                        self._refuse_symlink(key, folders[: depth + 1], chain[-1], error)
                        raise
            except (FileNotFoundError, NotADirectoryError):
                if make:
                    raise
                chain.clear()
            yield chain

    def _split(self, key: str) -> tuple[builtins.list[str], str]:
        *folders, name = normalize_key(key).split("/")
        if len(folders) > _DEEPEST:
            raise StorageError(f"storage key {key[:80]!r}... has more than {_DEEPEST} folders")
        for segment in (*folders, name):
            if len(segment.encode()) > _LONGEST_NAME:
                raise StorageError(
                    f"storage key {key[:80]!r}...: {segment[:40]!r}... is longer than a file's name ({_LONGEST_NAME} bytes)"
                )
        return folders, name

    def _sweep(self, folder: str, fd: int) -> None:
        """Remove what killed writers left in a folder: once per folder, before the first change in it."""
        if folder in self._swept:
            return
        if len(self._swept) >= _SWEPT_FOLDERS:
            self._swept.clear()
        self._swept.add(folder)
        for name, _ in self._fs.entries(fd):
            if name.startswith(TEMPORARY):
                self._fs.remove_abandoned(name, fd)

    def _refuse_symlink(self, key: str, path: builtins.list[str], at: int, cause: OSError | None = None) -> None:
        """Raise if the last name of `path` is a symlink."""
        if self._fs.kind(path[-1], at) == "symlink":
            where = os.path.join(self.base, *path)
            raise StorageError(f"storage key {key!r}: {where!r} is a symlink, and symlinks are not followed") from cause


def _is_segment(name: str) -> bool:
    """Whether a name in a folder can be part of a key; others are foreign files."""
    try:
        return normalize_key(name) == name
    except StorageKeyError:
        return False


@contextmanager
def _translated(verb: str, key: str) -> Generator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        told = error.strerror or str(error)
        number = errno.errorcode.get(error.errno or 0, "")
        raise StorageError(f"failed to {verb} {key!r}: {told}" + (f" [{number}]" if number else "")) from error

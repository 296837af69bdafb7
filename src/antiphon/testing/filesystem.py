"""A file system whose power can be cut."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass

from antiphon.filesystem import Entry, FileSystem

_HALF = 0.5


@dataclass(slots=True)
class _Node:
    """A file or folder: what is written, and what of it is on the disk. Inode numbers are used again, nodes are not."""

    is_folder: bool = False
    flushed: bytes = b""
    written: bytes | None = None


def _partly(node: _Node, written: bytes, chance: random.Random) -> bytes:
    """What a disk may have of a file that was changed and not flushed. What was flushed is there, unless it was cut."""
    if not written.startswith(node.flushed):
        return written if chance.random() < _HALF else node.flushed
    kept = chance.randint(len(node.flushed), len(written))
    rest = b"\0" * chance.randint(0, len(written) - kept) if chance.random() < _HALF else b""
    return written[:kept] + rest


class UnsyncedFileSystem(FileSystem):
    """Real files, and an account of what a power cut would leave of them.

    Hand it to `LocalFileStorage` or `FileSessionStore` as `filesystem=`. What was never flushed (a file's data, a name in
    a folder) is lost in `crash()`. All that stood in a folder when it was first opened counts as flushed.

    Attributes:
        counts: How often each operation was carried out, by the name of its method (`sync`, `sync_folder`, `replace`,
            `write`, ...).
        bytes_written: Data bytes in all.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes_written = 0
        self._cut_after: int | None = None
        self._crashes = 0
        self._folders: dict[int, str] = {}  # open descriptors of folders
        self._files: dict[int, _Node] = {}  # open descriptors of files
        self._nodes: dict[int, _Node] = {}  # by inode
        self._names: dict[str, dict[str, _Node]] = {}  # of each folder: the names that are flushed

    def cut_power_after(self, operations: int) -> None:
        """Fail every operation after the next `operations` with `EIO` until `crash()`, so that nobody tidies up."""
        self._cut_after = operations

    @property
    def is_cut(self) -> bool:
        """Whether an operation has failed for want of power."""
        return self._cut_after is not None and self._cut_after < 0

    def crash(self, chance: random.Random | None = None) -> None:
        """Cut the power and start again: what was not flushed is gone.

        Args:
            chance: Decides, for each folder and each file, whether the disk had got hold of what was never flushed (of
                a file: how much of it, and whether zeros stand in place of the rest). None loses all of it.
        """
        self._crashes += 1
        for folder in sorted(self._names):  # from the top down
            if os.path.isdir(folder):
                self._restore(folder, chance)
        self._cut_after = None
        self._folders, self._files, self._nodes, self._names = {}, {}, {}, {}

    def _restore(self, folder: str, chance: random.Random | None) -> None:
        now = self._list(folder)
        wanted = now if chance is not None and chance.random() < _HALF else self._names[folder]
        for name in now.keys() - wanted.keys():
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        for name, node in wanted.items():
            path = os.path.join(folder, name)
            if node.is_folder:
                os.makedirs(path, exist_ok=True)
            elif node.written is not None or now.get(name) is not node:
                data = node.flushed if chance is None or node.written is None else _partly(node, node.written, chance)
                with open(path, "wb") as file:
                    file.write(data)

    def _list(self, folder: str) -> dict[str, _Node]:
        """The names in a folder as they are; a file seen for the first time counts as flushed."""
        names: dict[str, _Node] = {}
        for entry in os.scandir(folder):
            if entry.inode() not in self._nodes:
                node = self._nodes[entry.inode()] = _Node(is_folder=entry.is_dir(follow_symlinks=False))
                if entry.is_file(follow_symlinks=False):
                    with open(entry.path, "rb") as file:
                        node.flushed = file.read()
            names[entry.name] = self._nodes[entry.inode()]
        return names

    def _step(self, name: str) -> None:
        if self._cut_after is not None:
            self._cut_after -= 1
            if self._cut_after < 0:
                raise OSError(errno.EIO, "power cut")
        self.counts[name] += 1

    def _track(self, fd: int, path: str) -> int:
        self._folders[fd] = path
        if path not in self._names:
            self._names[path] = self._list(path)
        return fd

    def open_base(self, path: str) -> int:
        self._step("open_base")
        return self._track(super().open_base(path), path)

    def open_folder(self, name: str, at: int) -> int:
        self._step("open_folder")
        return self._track(super().open_folder(name, at), os.path.join(self._folders[at], name))

    def make_folder(self, name: str, at: int) -> None:
        self._step("make_folder")
        path = os.path.join(self._folders[at], name)
        fresh = not os.path.lexists(path)
        super().make_folder(name, at)
        if fresh:
            self._nodes[os.lstat(path).st_ino] = _Node(is_folder=True)
            self._names[path] = {}

    def remove_folder(self, name: str, at: int) -> None:
        self._step("remove_folder")
        super().remove_folder(name, at)

    def create(self, name: str, at: int) -> int:
        self._step("create")
        fd = super().create(name, at)
        self._files[fd] = self._nodes[os.fstat(fd).st_ino] = _Node(written=b"")
        return fd

    def write(self, fd: int, data: bytes) -> None:
        self._step("write")
        super().write(fd, data)
        node = self._files[fd]
        node.written = (node.flushed if node.written is None else node.written) + data
        self.bytes_written += len(data)

    def open_file(self, name: str, at: int, *, write: bool = False, make: bool = False) -> int:
        self._step("open_file")
        try:
            fd = super().open_file(name, at, write=write)
        except FileNotFoundError:
            if not make:
                raise
            fd = super().open_file(name, at, make=True)
            self._nodes[os.fstat(fd).st_ino] = _Node(written=b"")
        if write:
            self._files[fd] = self._node(fd)
        return fd

    def _node(self, fd: int) -> _Node:
        """The node of an open file; one seen for the first time counts as flushed."""
        status = os.fstat(fd)
        if status.st_ino not in self._nodes:
            self._nodes[status.st_ino] = _Node(flushed=os.pread(fd, status.st_size, 0))
        return self._nodes[status.st_ino]

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._step("write_at")
        super().write_at(fd, data, offset)
        node = self._files[fd]
        before = node.flushed if node.written is None else node.written
        node.written = before[:offset].ljust(offset, b"\0") + data + before[offset + len(data) :]
        self.bytes_written += len(data)

    def truncate(self, fd: int, size: int) -> None:
        self._step("truncate")
        super().truncate(fd, size)
        node = self._files[fd]
        node.written = (node.flushed if node.written is None else node.written)[:size].ljust(size, b"\0")

    def boot(self) -> str:
        return f"{super().boot()}-{id(self)}-{self._crashes}"

    def sync(self, fd: int) -> None:
        self._step("sync")
        self._flush(fd)

    def sync_data(self, fd: int) -> None:
        self._step("sync_data")
        self._flush(fd)

    def _flush(self, fd: int) -> None:
        node = self._files[fd]
        if node.written is not None:
            node.flushed, node.written = node.written, None

    def sync_folder(self, fd: int) -> None:
        self._step("sync_folder")
        path = self._folders[fd]
        self._names[path] = self._list(path)

    def replace(self, old: str, new: str, at: int) -> None:
        self._step("replace")
        super().replace(old, new, at)

    def remove(self, name: str, at: int) -> None:
        self._step("remove")
        super().remove(name, at)

    def read(self, name: str, at: int) -> bytes:
        self._step("read")
        return super().read(name, at)

    def entries(self, fd: int) -> list[Entry]:
        self._step("entries")
        return super().entries(fd)

    def close(self, fd: int) -> None:
        self._folders.pop(fd, None)
        self._files.pop(fd, None)
        super().close(fd)

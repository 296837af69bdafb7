"""A SQLite whose power can be cut: every operation on the disk passes a hook, and what was never synced can be lost."""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import apsw

from antiphon.errors import SessionStoreError
from antiphon.store.sqlite.driver import failure_of

SECTOR = 512
_numbers = count(1)


@dataclass(slots=True)
class Disk:
    """A file: what of it is on the disk, and what was done to it since."""

    durable: bytearray | None  # None: not even its name
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def flush(self) -> None:
        self.durable = self.durable if self.durable is not None else bytearray()
        for operation in self.pending:
            apply(self.durable, operation)
        self.pending = []

    def after_power_cut(self, chance: random.Random | None) -> bytes | None:
        """What stands there afterwards.

        Args:
            chance: Decides which sectors of what was pending had reached the disk, in any order. None: none of it.
        """
        if self.durable is None and (chance is None or chance.random() < 0.5):
            return None
        left = bytearray(self.durable or b"")
        for kind, at, data in self.pending if chance else ():
            if kind == "truncate":
                if chance.random() < 0.5:
                    apply(left, (kind, at, data))
                continue
            for start in range(0, len(data), SECTOR):
                if chance.random() < 0.5:
                    apply(left, (kind, at + start, data[start : start + SECTOR]))
        return bytes(left)


def apply(file: bytearray, operation: tuple[str, int, bytes]) -> None:
    kind, at, data = operation
    if kind == "truncate":
        del file[at:]
        return
    if len(file) < at:
        file.extend(bytes(at - len(file)))
    file[at : at + len(data)] = data


class PowerVFS(apsw.VFS):
    """Real files, an account of what a power cut would leave of them, and a hook before and after each change.

    Attributes:
        hook: Called with `before` or `after`, the operation and the file's name; it may raise `apsw.IOError`.
        counts: Operations by kind and by the end of the file's name (`sync db-wal`).
        bytes_written: In all.
    """

    def __init__(self, hook: Callable[[str, str, str], None] | None = None) -> None:
        self.name = f"power-{next(_numbers)}"
        super().__init__(self.name, base="")
        self.hook = hook or (lambda *_: None)
        self.counts: Counter[str] = Counter()
        self.bytes_written = 0
        self.files: dict[str, Disk] = {}
        self.ghosts: dict[str, Disk] = {}  # removed, but the folder was not synced

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's name
        return PowerFile(self, name, flags)

    def xDelete(self, name, syncdir):  # noqa: N802
        with self.change("delete", name):
            super().xDelete(name, syncdir)
            gone = self.files.pop(name, None)
            if gone is not None and not syncdir:
                self.ghosts[name] = gone

    def change(self, kind: str, path: str) -> "Change":
        return Change(self, kind, path)

    def cut_power(self, folder: Path, chance: random.Random | None = None) -> None:
        """Put into an empty folder what is left of all files."""
        left = {**self.ghosts, **self.files} if chance and chance.random() < 0.5 else self.files
        for path, disk in left.items():
            data = disk.after_power_cut(chance)
            if data is not None:
                (folder / os.path.basename(path)).write_bytes(data)


class Change:
    """An operation that changes the disk, with the hook around it."""

    def __init__(self, vfs: PowerVFS, kind: str, path: str) -> None:
        self.vfs, self.kind, self.name = vfs, kind, os.path.basename(path)

    def __enter__(self) -> None:
        self.vfs.hook("before", self.kind, self.name)

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.vfs.counts[f"{self.kind} {self.name.rpartition('.')[2]}"] += 1
            self.vfs.hook("after", self.kind, self.name)


class PowerFile(apsw.VFSFile):
    def __init__(self, vfs: PowerVFS, name, flags) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        known = path is None or os.path.exists(path)
        super().__init__("", name, flags)
        self.vfs, self.path = vfs, path
        if path is not None and path not in vfs.files:
            vfs.files[path] = Disk(bytearray(Path(path).read_bytes()) if known else None)

    def xWrite(self, data, offset):  # noqa: N802
        if self.path is None:
            super().xWrite(data, offset)
            return
        with self.vfs.change("write", self.path):
            super().xWrite(data, offset)
            self.vfs.bytes_written += len(data)
            self.vfs.files[self.path].pending.append(("write", offset, bytes(data)))

    def xTruncate(self, size):  # noqa: N802
        if self.path is None:
            super().xTruncate(size)
            return
        with self.vfs.change("truncate", self.path):
            super().xTruncate(size)
            self.vfs.files[self.path].pending.append(("truncate", size, b""))

    def xSync(self, flags):  # noqa: N802
        if self.path is None:
            super().xSync(flags)
            return
        with self.vfs.change("sync", self.path):
            super().xSync(flags)
            disk = self.vfs.files[self.path]
            if disk.durable is None:  # SQLite syncs the folder of a log it has made
                self.vfs.ghosts.clear()
            disk.flush()


class PowerDriver:
    """Connections of apsw over a `PowerVFS`.

    Args:
        vfs: The files.
        pages: How long the log may be before it is copied into the database.
        connection: Makes them.
    """

    def __init__(self, vfs: PowerVFS, pages: int = 1000, connection: "type[PowerConnection] | None" = None) -> None:
        self.vfs, self.pages, self.connection = vfs, pages, connection or PowerConnection

    def connect(self, path: str, patience: float) -> "PowerConnection":
        connection = self.connection(path, patience, self.vfs)
        connection.run(f"PRAGMA wal_autocheckpoint = {self.pages}")
        return connection


class PowerConnection:
    def __init__(self, path: str, patience: float, vfs: PowerVFS) -> None:
        self.path, self.failure = path, None
        try:
            self._db = apsw.Connection(path, vfs=vfs.name)
            self._db.set_busy_timeout(int(patience * 1000))
        except apsw.Error as error:
            raise self._failed(error) from error

    def rows(self, statement, values=()):
        try:
            return self._db.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise self._failed(error) from error

    def run(self, statement, values=()):
        self.rows(statement, values)
        return self._db.changes()

    def run_many(self, statement, rows):
        try:
            self._db.executemany(statement, rows)
        except apsw.Error as error:
            raise self._failed(error) from error

    def close(self):
        try:
            self._db.close()
        except apsw.Error as error:
            self._failed(error)

    def _failed(self, error: apsw.Error) -> SessionStoreError:
        code = {apsw.IOError: 10, apsw.FullError: 13}.get(type(error)) or getattr(error, "extendedresult", 1)
        failure = failure_of(code, str(error), self.path)
        self.failure = self.failure or failure
        return failure

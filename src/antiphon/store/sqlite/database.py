"""A database file: made, opened, checked, and brought to the newest schema."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final, Literal, TypeAlias

from antiphon.errors import SessionStoreError, StoreSchemaError
from antiphon.store.sqlite.driver import Connection, Driver
from antiphon.store.sqlite.lock import WriteLock

Synchronous: TypeAlias = Literal["OFF", "NORMAL", "FULL", "EXTRA"]

APPLICATION_ID: Final = 0x416E7470
"""In the file's header: `Antp`. By it `file` and we know whose database it is."""

_SMALLEST = 512  # bytes of a page

Identity: TypeAlias = tuple[int, int]
"""Which file stands at a path: device and inode."""


@cache
def schemas() -> tuple[str, ...]:
    """The scripts that bring a database from each version to the next, from an empty one to the newest."""
    # Not by `importlib.resources`: its readers take longer to import than a database takes to open.
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "schema", "sqlite")
    scripts: list[str] = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as script:
                scripts.append(script.read())
    return tuple(scripts)


class Database:
    """The file at a path, whoever else uses it.

    Args:
        path: Where. It is made when this is first opened, with its folder, for this user only (0600 in 0700).
        driver: Makes connections.
        synchronous: When SQLite waits for the disk. `FULL` and `EXTRA`: what was acknowledged survives a power cut.
            `NORMAL`: the newest commits may not, but nothing is torn. `OFF`: a power cut may damage the file.
        patience: How long to wait for others, in seconds.
        scripts: See `schemas`.
    """

    def __init__(
        self,
        path: str,
        driver: Driver,
        *,
        synchronous: Synchronous = "FULL",
        patience: float = 30.0,
        scripts: Sequence[str] = (),
    ) -> None:
        self.path = path
        self._driver, self._synchronous, self._patience = driver, synchronous, patience
        self._scripts = scripts or schemas()
        self.lock = WriteLock(f"{path}-lock", patience)
        self._was_there = False

    def open(self) -> tuple[Connection, Identity]:
        """A connection, and which file it is connected to.

        Raises:
            SessionStoreError: If that is not possible: no permission, no room, lost.
            StoreSchemaError: If it is something else's database, or a newer version's.
            CorruptStoreError: If it is damaged.
        """
        if not self._was_there:
            self._make_folder()
        elif not os.path.isdir(os.path.dirname(self.path)):
            raise self._lost()
        # Only who changes something needs the lock: a reader waits for nobody.
        db, identity = self._connect(prepare=False) if self._was_there else (None, None)
        if db is None:
            with self.lock.held():  # openers race for the change to WAL, and SQLite's busy handler is not asked there
                self._make_file()
                db, identity = self._connect(prepare=True)
        if db is None or identity is None:
            raise self._lost()
        self._was_there = True
        return db, identity

    def _connect(self, *, prepare: bool) -> tuple[Connection | None, Identity | None]:
        """A connection and what it is connected to; none where there is nothing, or it would have to be prepared first."""
        identity = self.identity()
        if identity is None:
            return None, None
        db = self._driver.connect(self.path, self._patience)
        try:
            if not self._is_ready(db):
                if not prepare:
                    db.close()
                    return None, None
                self._prepare(db)
            db.run(f"PRAGMA synchronous = {self._synchronous}")
            db.run("PRAGMA secure_delete = ON")
        except BaseException:
            db.close()
            raise
        if identity != self.identity():  # replaced meanwhile: which of the two was opened, nobody can tell
            db.close()
            raise SessionStoreError(f"the database {self.path!r} was replaced while it was opened: try again")
        return db, identity

    def identity(self) -> Identity | None:
        """Which file stands at the path now; None for none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check_version(self, db: Connection) -> None:
        """Refuse to write what a newer version, at work since this was opened, may keep in another way.

        Raises:
            StoreSchemaError: If it was there.
        """
        version = db.rows("PRAGMA user_version")[0][0]
        if version != len(self._scripts):
            raise self._other_version(version)

    def set_patience(self, db: Connection, seconds: float | None = None) -> None:
        """How long a connection's statements wait for others from now on; None: as usual."""
        wait = self._patience if seconds is None else seconds
        db.run(f"PRAGMA busy_timeout = {int(wait * 1000)}")

    def _make_folder(self) -> None:
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise SessionStoreError(f"the folder {folder!r} cannot be made: {error}") from error

    def _make_file(self) -> None:
        with suppress(FileNotFoundError):
            size = os.stat(self.path).st_size
            if 0 < size < _SMALLEST:  # SQLite would take it for an empty one, and write over it
                raise StoreSchemaError(f"{self.path!r} is not a database of SQLite: use another path")
            return
        if self._was_there:
            raise self._lost()
        try:
            # SQLite gives its log the same rights.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise SessionStoreError(f"the database {self.path!r} cannot be made: {error}") from error
        self._sync_folder()

    def _sync_folder(self) -> None:
        try:
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise SessionStoreError(f"the folder of {self.path!r} cannot be synced: {error}") from error

    def _is_ready(self, db: Connection) -> bool:
        """Whether a database is ours, of this version, and has a log.

        Raises:
            StoreSchemaError: If it can never be.
        """
        application: int = db.rows("PRAGMA application_id")[0][0]
        version: int = db.rows("PRAGMA user_version")[0][0]
        if application == 0 and version == 0 and not db.rows("SELECT 1 FROM sqlite_master LIMIT 1"):
            return False
        if application != APPLICATION_ID:
            raise StoreSchemaError(f"{self.path!r} is a database of something else: use another path")
        if version > len(self._scripts):
            raise self._other_version(version)
        mode: str = db.rows("PRAGMA journal_mode")[0][0]
        return version == len(self._scripts) and mode == "wal"

    def _prepare(self, db: Connection) -> None:
        mode = db.rows("PRAGMA journal_mode = WAL")[0][0]
        if mode != "wal":
            raise SessionStoreError(
                f"the database {self.path!r} cannot have a write-ahead log (its mode is {mode!r}): use a local disk"
            )
        # The change was a transaction with a journal; one that came back after a power cut would undo it.
        self._sync_folder()
        migrate(db, self._scripts)

    def _other_version(self, version: int) -> StoreSchemaError:
        return StoreSchemaError(
            f"the database {self.path!r} has schema {version}, and this version of Antiphon knows {len(self._scripts)}:"
            " upgrade Antiphon"
        )

    def _lost(self) -> SessionStoreError:
        return SessionStoreError(
            f"the database {self.path!r} is gone: put it back, or open another store to begin an empty one"
        )


def migrate(db: Connection, scripts: Sequence[str]) -> None:
    """Bring a database to the newest schema, one version after the other, each wholly or not at all.

    Args:
        db: A connection without a transaction.
        scripts: See `schemas`.
    """
    while True:
        db.run("BEGIN IMMEDIATE")
        version: int = db.rows("PRAGMA user_version")[0][0]
        if version >= len(scripts):
            db.run("COMMIT")
            return
        for statement in _statements(scripts[version]):
            db.run(statement)
        db.run(f"PRAGMA application_id = {APPLICATION_ID}")
        db.run(f"PRAGMA user_version = {version + 1}")
        db.run("COMMIT")


def _statements(script: str) -> list[str]:
    """A script's statements: no string in ours holds a semicolon or two hyphens."""
    bare = re.sub(r"--[^\n]*", "", script)
    return [statement.strip() for statement in bare.split(";") if statement.strip()]

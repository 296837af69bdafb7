"""Checks that stores in SQLite pass, and mutants of them do not."""

import random
import sqlite3
from pathlib import Path

import apsw

from antiphon.errors import SessionStoreError
from antiphon.store.backend import Job, SessionMark
from antiphon.store.sqlite import SQLiteSessionStore, Synchronous
from antiphon.store.sqlite.backend import SQLiteBackend
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.driver import Driver
from tests.store.sqlite_life import Told, faults, live, take_turn
from tests.store.sqlite_power import PowerConnection, PowerDriver, PowerVFS


def nobody_writes_in_between(path: Path, driver: Driver) -> None:
    """A program without our lock cannot write between what a change reads and what it writes."""
    backend = SQLiteBackend(Database(str(path), driver))
    foreign = sqlite3.connect(path, timeout=0, isolation_level=None)
    tries = []

    def work(tx):
        assert tx.mark("s") is None
        try:
            foreign.execute("INSERT INTO note (tenant, name, body) VALUES (9, 'theirs', x'00')")
            tries.append("written")
        except sqlite3.OperationalError as error:
            tries.append(str(error))
        tx.put_mark("s", SessionMark(0, b"salt"))

    outcome = backend.write([Job("global", "s", work)])[0]
    foreign.close()
    backend.close()
    assert outcome.error is None
    assert tries == ["database is locked"]


def a_view_is_of_one_moment(path: Path, driver: Driver) -> None:
    """A session that is deleted between two questions of a reader is still there for it."""
    backend, other = SQLiteBackend(Database(str(path), driver)), SQLiteSessionStore(path)
    for _ in range(3):
        take_turn(other, "s")

    def look(view):
        (span,) = view.latest("s", None).record.spans
        other.sync.delete_session("s")
        return view.messages("s", span.line, span.start, span.stop)

    try:
        assert len(backend.read("global", look)) == 3
        assert backend.read("global", lambda view: view.latest("s", None)) is None
    finally:
        backend.close()
        other.close()


class Cut:
    """Lets so many operations pass, and none after them."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def __call__(self, moment: str, kind: str, name: str) -> None:
        if moment == "before":
            self.left -= 1
        if self.left < 0:
            raise apsw.IOError("power cut")


def lives_and_loses_power(
    folder: Path,
    operations: int,
    chance: random.Random | None,
    *,
    synchronous: Synchronous = "FULL",
    connection: type[PowerConnection] = PowerConnection,
) -> tuple[bool, list[str]]:
    """A life until the power is cut. Whether it was before the end, and what is wrong afterwards."""
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    after.mkdir()
    told, vfs, was_cut = Told(), PowerVFS(), False
    store = SQLiteSessionStore(
        before / "s.db", driver=PowerDriver(vfs, pages=40, connection=connection), synchronous=synchronous
    )
    take_turn(store, "long-0")
    told.hear("turn long-0 0")
    vfs.hook = Cut(operations)
    try:
        live(store, operations, told.hear, turns=3)
    except SessionStoreError:
        was_cut = True
    vfs.hook = Cut(0)
    store.close()
    vfs.cut_power(after, chance)
    there = SQLiteSessionStore(after / "s.db")
    found = faults(there, told)
    there.close()
    return was_cut, found

"""Databases of older and newer versions."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import SessionStoreError, StoreSchemaError
from antiphon.store import LineStore
from antiphon.store.core import StoreCore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.store.sqlite.backend import SQLiteBackend
from antiphon.store.sqlite.database import Database, schemas
from antiphon.store.sqlite.driver import StandardDriver
from antiphon.testing.store_suite.support import becomes, exact, row, said, snapshot
from tests.store.sqlite_life import take_turn

NEWEST = len(schemas())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def open_with(path: Path, scripts: list[str]) -> LineStore:
    """A store of a version that knows these schemas."""
    return LineStore(StoreCore(SQLiteBackend(Database(str(path), StandardDriver(), scripts=scripts)), name="version"))


def ask(path: Path, question: str):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(question).fetchall()


def fill(store: LineStore) -> None:
    for turn in range(30):
        wanted = row(
            turn % 7,
            f"s{turn % 3}",
            agent_id=f"a{turn % 2}" if turn % 3 else None,
            idempotency_key=f"k{turn}" if turn % 4 == 0 else None,
            status=("", "pending", "aborting", "failed", "aborted")[turn % 5],
            snapshot=snapshot(said(*(f"{turn} {n}" for n in range(turn))), state={"pad": "x" * (turn * 40)}),
        )
        store.sync.save_snapshot(f"r{turn}", becomes(wanted))


def seen(store: LineStore) -> list[object]:
    rows = [exact(store.sync.get_snapshot(f"r{turn}")) for turn in range(30)]
    latest = [
        exact(store.sync.get_latest_snapshot(f"s{n}", agent_id=agent)) for n in range(3) for agent in (None, "a0", "a1")
    ]
    sessions = [(info.session_id, info.snapshots) for info in store.sync.list_sessions().sessions]
    return [rows, latest, sessions, exact(store.sync.get_snapshot_by_key("k8"))]


@pytest.mark.parametrize("older", range(1, NEWEST + 1))
def test_a_database_of_each_older_version_reads_back_the_same_in_the_newest(path, older):
    with closing(open_with(path, schemas()[:older])) as store:
        fill(store)
        before = seen(store)
    assert ask(path, "PRAGMA user_version") == [(older,)]
    with closing(SQLiteSessionStore(path)) as store:
        assert seen(store) == before
        assert take_turn(store, "new") == 0
    assert ask(path, "PRAGMA user_version") == [(NEWEST,)]
    fresh = path.with_name("fresh.db")
    SQLiteSessionStore(fresh).close()
    tables = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    assert ask(path, tables) == ask(fresh, tables), "migrated or new: the same tables"
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]


LATER = "CREATE TABLE later (x); INSERT INTO later (x) SELECT count(*) FROM snapshot; ALTER TABLE session ADD COLUMN y"


def test_steps_are_taken_in_order_with_the_data_that_is_there(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        before = seen(store)
    with closing(open_with(path, [*schemas(), LATER, "UPDATE later SET x = x + 1"])) as store:
        assert seen(store) == before
    assert ask(path, "SELECT x FROM later") == [(31,)]
    assert ask(path, "PRAGMA user_version") == [(NEWEST + 2,)]


def test_a_step_that_fails_leaves_the_version_before_it_and_everything_that_was_there(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        before = seen(store)
    with pytest.raises(SessionStoreError):
        open_with(path, [*schemas(), LATER, "DELETE FROM snapshot; INSERT INTO nowhere VALUES (1)"])
    assert ask(path, "PRAGMA user_version") == [(NEWEST + 1,)]
    assert ask(path, "SELECT count(*) FROM snapshot") == [(30,)]
    with closing(open_with(path, [*schemas(), LATER])) as store:
        assert seen(store) == before


def test_a_newer_database_is_refused_and_left_alone(path):
    with closing(open_with(path, [*schemas(), LATER])) as store:
        fill(store)
    content = path.read_bytes()
    with pytest.raises(StoreSchemaError, match="upgrade Antiphon"):
        SQLiteSessionStore(path)
    assert path.read_bytes() == content


def test_a_store_that_is_open_while_a_newer_version_comes_writes_no_more(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        before = seen(store)
        with closing(open_with(path, [*schemas(), LATER])) as newer:
            with pytest.raises(StoreSchemaError, match="upgrade Antiphon"):
                take_turn(store, "s")
            assert seen(newer) == before
            assert take_turn(newer, "new") == 0


def test_a_database_is_migrated_once_however_many_open_it_at_one_moment(path):
    with closing(open_with(path, schemas()[:1])) as store:
        fill(store)
        before = seen(store)
    start, stores, errors = threading.Barrier(6), [], []

    def open_it() -> None:
        start.wait()
        try:
            stores.append(open_with(path, [*schemas(), LATER]))
        except SessionStoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [seen(store) == before for store in stores] == [True] * 6
    assert ask(path, "SELECT x FROM later") == [(30,)]
    for store in stores:
        store.close()

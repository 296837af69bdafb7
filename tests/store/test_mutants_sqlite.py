"""Stores in SQLite with one mistake each: the suite and the checks beside it tell every one of them."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.errors import SessionStoreError
from antiphon.store import LineStore
from antiphon.store.base import ANY_TIP
from antiphon.store.core import StoreCore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.store.sqlite.backend import SQLiteBackend
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.driver import StandardConnection, StandardDriver
from antiphon.testing.store_contract import SessionStoreContract
from tests.store.sqlite_checks import a_view_is_of_one_moment, lives_and_loses_power, nobody_writes_in_between
from tests.store.sqlite_power import PowerConnection
from tests.store.test_sqlite_redaction import redaction_holds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def driver(change) -> StandardDriver:
    """The standard driver, whose statements are changed first; None leaves one out."""

    class Changed(StandardConnection):
        def run(self, statement, values=()):
            changed = change(statement)
            return 0 if changed is None else super().run(changed, values)

        def rows(self, statement, values=()):
            changed = change(statement)
            return [(0,)] if changed is None else super().rows(changed, values)

    class Driver(StandardDriver):
        def connect(self, path, patience):
            return Changed(path, patience)

    return Driver()


def store_over(backend) -> LineStore:
    return LineStore(StoreCore(backend, name="mutant"))


def test_a_transaction_that_begins_as_a_readers_is_found(path):
    mutant = driver(lambda statement: statement.replace("BEGIN IMMEDIATE", "BEGIN"))
    with pytest.raises(AssertionError):
        nobody_writes_in_between(path, mutant)


def test_a_view_without_a_transaction_is_found(path):
    mutant = driver(lambda statement: {"BEGIN": "SELECT 1", "COMMIT": "SELECT 1"}.get(statement, statement))
    with pytest.raises((AssertionError, SessionStoreError)):
        a_view_is_of_one_moment(path, mutant)


def power_finds(tmp_path: Path, **mutation) -> bool:
    """Whether some power cut shows what is wrong with a store."""
    for operations in range(0, 120, 3):
        try:
            found = lives_and_loses_power(
                tmp_path / str(operations), operations, random.Random(operations), **mutation
            )[1]
        except SessionStoreError:  # what is left cannot even be opened or read
            return True
        if found:
            return True
    return False


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_who_does_not_wait_for_the_disk_loses_what_was_acknowledged(tmp_path, synchronous):
    assert power_finds(tmp_path, synchronous=synchronous)


class Late(PowerConnection):
    """Commits when the next transaction begins."""

    _left = False

    def rows(self, statement, values=()):
        if statement == "COMMIT":
            self._left = True
            return []
        if self._left and statement.startswith("BEGIN"):
            self._left = False
            super().rows("COMMIT")
        return super().rows(statement, values)


class Piecemeal(PowerConnection):
    """Each statement is a transaction of its own."""

    def rows(self, statement, values=()):
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")):
            return []
        return super().rows(statement, values)


@pytest.mark.parametrize("connection", [Late, Piecemeal])
def test_who_commits_late_or_piece_by_piece_is_found(tmp_path, connection):
    assert power_finds(tmp_path, connection=connection)


class LastWriterWins(SQLiteBackend):
    """Writes whatever was planned, on top of whatever is there."""

    def write(self, jobs):
        return super().write([replace(job, work=self._unchecked(job)) for job in jobs])

    def _unchecked(self, job):
        commit = getattr(job.work, "__self__", None)
        if commit is None:
            return job.work

        def work(tx):
            now = tx.row(commit.snapshot_id)
            return replace(commit, revision=now.revision if now else None, expected_tip=ANY_TIP).carry_out(tx)

        return work


@pytest.mark.parametrize(
    "name", ["test_exactly_one_of_eight_writers_wins_a_tip", "test_eight_writers_of_one_row_each_land_once"]
)
async def test_the_last_writer_must_not_win(path, name):
    test = getattr(SessionStoreContract(), name)
    with_check = SQLiteSessionStore(path)
    await test(with_check)
    with_check.close()
    mutant = store_over(LastWriterWins(Database(str(path.with_name("mutant.db")), StandardDriver())))
    with pytest.raises((Exception, pytest.fail.Exception)):
        await test(mutant)
    mutant.close()


@pytest.mark.parametrize("statement", ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"])
def test_a_redaction_that_leaves_one_step_out_is_found(path, statement):
    mutant = driver(lambda given: None if given == statement else given)
    assert not redaction_holds(path, lambda path: SQLiteSessionStore(path, driver=mutant))


class Deaf(SQLiteBackend):
    """Hears of nothing that others do."""

    def watch(self, wake):
        return lambda: None


async def test_a_store_that_hears_nothing_of_others_is_found(path):
    test = SessionStoreContract().test_a_change_by_the_other_is_told
    mutant, other = store_over(Deaf(Database(str(path), StandardDriver()))), SQLiteSessionStore(path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await test(mutant, other)
    mutant.close()
    other.close()

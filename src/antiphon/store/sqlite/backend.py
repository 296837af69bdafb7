"""Rows and lines in a SQLite database that many processes may use."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from antiphon.errors import SessionStoreError
from antiphon.store.backend import Job, Outcome, Reading, Wake
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.driver import Connection
from antiphon.store.sqlite.scrub import Scrubber
from antiphon.store.sqlite.slot import Slot
from antiphon.store.sqlite.view import SQLiteView
from antiphon.store.sqlite.watch import Watch

T = TypeVar("T")

_FORK_PATIENCE_S = 5.0


class SQLiteBackend:
    """A database as a backend: a connection to read, one to write and, while somebody watches, one to look for changes.

    Locks are taken in this order: of the connection that reads or looks, the file's, of the connection that writes.

    Args:
        database: The file. It is opened at once.
    """

    blocking = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads, self._writes = Slot(database), Slot(database)
        self._watches: list[Watch] = []
        self._fork = ExitStack()
        self._scrubber = Scrubber(database, self._writes)
        self._scrubber.resume()
        _backends.add(self)

    def read(self, tenant: str, look: Callable[[Reading], T]) -> T:
        with self._reads.taken() as db:
            db.run("BEGIN")  # one transaction for all statements, or a sweep between two of them would tear the view
            try:
                return look(SQLiteView(db, tenant))
            finally:
                _end(db, "COMMIT")

    def write(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes = self._carry_out(jobs)
        if any(job.scrub and outcome.error is None for job, outcome in zip(jobs, outcomes, strict=True)):
            self._scrubber.begin()
        return outcomes

    def watch(self, wake: Wake) -> Callable[[], None]:
        watch = Watch(Slot(self._database), wake)
        self._watches = [*(other for other in self._watches if other.is_alive), watch]
        return watch.stop

    def close(self) -> None:
        for watch in self._watches:
            watch.stop()
            watch.join()
        self._watches = []
        self._scrubber.stop()
        self._reads.close()
        with self._database.lock.held():  # the last connection to be closed empties the log into the database
            self._writes.close()
        self._database.lock.close()

    def _carry_out(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            return self._transact(jobs)
        except _TakenBackError as failed:
            if len(jobs) == 1:
                return [Outcome(error=failed.error)]
            return [outcome for job in jobs for outcome in self._carry_out([job])]
        except SessionStoreError as error:  # it could not even be begun; for none of them
            return [Outcome(error=error)] * len(jobs)

    def _transact(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Carry out jobs in one transaction. When this raises, nothing has happened."""
        with self._database.lock.held(), self._writes.taken() as db:
            db.run("BEGIN IMMEDIATE")  # a transaction that begins as a reader may find that it cannot write any more
            try:
                self._database.check_version(db)
                outcomes = [self._carry_out_one(db, job) for job in jobs]
                db.run("ROLLBACK" if all(outcome.error for outcome in outcomes) else "COMMIT")
            except SessionStoreError as error:
                _end(db, "ROLLBACK")
                raise _TakenBackError(error) from error
            except BaseException:
                _end(db, "ROLLBACK")
                raise
            return outcomes

    def _carry_out_one(self, db: Connection, job: Job) -> Outcome:
        db.run("SAVEPOINT job")
        before = _changes(db) if job.scrub else 0
        try:
            value = job.work(SQLiteView(db, job.tenant))
            if job.scrub and _changes(db) != before:
                self._scrubber.want(db)
        except Exception as error:
            if db.failure is not None:  # SQLite may have taken the transaction back
                raise
            db.run("ROLLBACK TO job")
            db.run("RELEASE job")
            return Outcome(error=error)
        db.run("RELEASE job")
        return Outcome(value)

    def before_fork(self) -> None:
        """Close every connection, and keep other threads from opening them.

        They do not survive a fork, and a new one of the child's would share the parent's idea of which locks are held
        (https://sqlite.org/howtocorrupt.html, section 2.6).
        """
        self._fork = ExitStack()
        for slot in (self._reads, *(watch.slot for watch in self._watches)):
            self._fork.enter_context(slot.stilled(_FORK_PATIENCE_S))
        self._fork.enter_context(self._database.lock.stilled(_FORK_PATIENCE_S))
        self._fork.enter_context(self._writes.stilled(_FORK_PATIENCE_S))

    def after_fork(self, *, child: bool) -> None:
        """Go on. A child has none of the parent's threads."""
        self._fork.close()
        if child:
            for slot in (self._reads, self._writes):
                slot.renew()
            self._database.lock.renew()
            self._watches, self._scrubber = [], Scrubber(self._database, self._writes)


class _TakenBackError(Exception):
    """A transaction failed: its jobs may be tried each for itself."""

    def __init__(self, error: SessionStoreError) -> None:
        super().__init__(str(error))
        self.error = error


def _end(db: Connection, how: str) -> None:
    if db.failure is None:
        db.run(how)


def _changes(db: Connection) -> int:
    changes: int = db.rows("SELECT total_changes()")[0][0]
    return changes


_backends: weakref.WeakSet[SQLiteBackend] = weakref.WeakSet()


def _before_fork() -> None:
    for backend in list(_backends):
        backend.before_fork()


def _after_fork(*, child: bool) -> None:
    for backend in list(_backends):
        backend.after_fork(child=child)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(child=False),
    after_in_child=lambda: _after_fork(child=True),
)

"""Rows and lines in a PostgreSQL database.

A change takes an advisory lock for its session (and for the id of a new row), so that writers of one session stand in a
queue and others do not meet; several changes share a transaction, with their locks taken in one order. A look is a
transaction that sees one state. No connection is kept between calls but in a pool.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from antiphon.errors import ContendedError, MovedError, SessionStoreError
from antiphon.store.backend import Job, Outcome, Reading, Wake, one_by_one
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.driver import STATEMENTS, Connection, Pool, execute, is_lost, translated
from antiphon.store.postgres.listening import subscribe
from antiphon.store.postgres.migrations import STEPS, enter_schema, lock_key, migrate, search_path
from antiphon.store.postgres.sending import SERVER, Bounds
from antiphon.store.postgres.view import ReadView, WriteView, together

T = TypeVar("T")

Erasure = Literal["vacuum", "rewrite"]

_log = logging.getLogger(__name__)

_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_COMMIT = b"COMMIT"
_ROLLBACK = b"ROLLBACK"
_SET_PATIENCE = b"SET lock_timeout = '3s'"
_RESET_PATIENCE = b"RESET lock_timeout"

# How long a change waits for those before it; and how long one may be idle within: who hangs there holds up a session.
_LIMITS = {"lock_timeout": "30s", "idle_timeout": "5min"}

_TRIES = 5  # of a change that the server gives up on, because two wait for one another

_COMMIT_LOOKS = 250
_COMMIT_LOOK_S = 0.02

_HELD_WORDS = ("snapshots", "runs", "blobs", "masks")
_SCRUB_LOOKS = 25
_SCRUB_LOOK_S = 0.02


@dataclass(slots=True)
class _Trial:
    """One try to commit some jobs."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    transaction: str | None = None
    is_committing: bool = False


class _SpoiltError(Exception):
    """A job failed after it had changed something; its error is chained. The transaction is to be given up."""


class PostgresBackend:
    """Fulfils `Backend`.

    Args:
        source: A connection string or a pool.
        schema: The PostgreSQL schema of the tables; made, and brought to the newest version, when it is opened.
        listen_dsn: For notifications, where `source` goes through a pooler that hands out connections by transaction.
        poll_interval: Seconds between two looks, where notifications do not come through.
        erasure: See `PostgresSessionStore`.
        bounds: How much goes to the server at once; others only in tests.
    """

    blocking = True

    def __init__(
        self,
        source: str | Pool,
        *,
        schema: str,
        listen_dsn: str | None,
        poll_interval: float,
        erasure: Erasure,
        bounds: Bounds = SERVER,
    ) -> None:
        self._bounds = bounds
        self._connections = Connections(source)
        self._listens = self._connections if listen_dsn is None else Connections(listen_dsn)
        self._schema, self._poll_interval, self._erasure = schema, poll_interval, erasure
        self._enter, self._path = enter_schema(schema), search_path(schema)
        self._channel = f"antiphon_{lock_key('channel', schema) & (2**64 - 1):016x}"
        self._opening = threading.Lock()
        self._is_open = False
        self._is_scrub_due = False
        with translated():
            self._open()

    def read(self, tenant: str, look: Callable[[Reading], T]) -> T:
        with translated():
            self._open()
            return self._patiently(lambda connection: self._look(connection, tenant, look))

    def write(self, jobs: Sequence[Job]) -> list[Outcome]:
        with translated():
            self._open()
            outcomes = self._write(jobs)
        if self._is_scrub_due or any(
            job.scrub and outcome.error is None for job, outcome in zip(jobs, outcomes, strict=True)
        ):
            self._scrub()
        return outcomes

    def watch(self, wake: Wake) -> Callable[[], None]:
        return subscribe(self._listens, self._channel, wake, self._poll_interval)

    def close(self) -> None:
        self._is_open = False
        self._connections.close()
        self._listens.close()

    def _open(self) -> None:
        if self._is_open:
            return
        with self._opening:
            if not self._is_open:
                self._patiently(self._prepare)
                self._is_open = True

    def _prepare(self, connection: Connection) -> None:
        pending = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(self._schema, "scrubs"))
        version = sql.SQL("SELECT max(version) FROM {}").format(sql.Identifier(self._schema, "store_version"))
        found: tuple[Any, ...] | None = None
        # One way to the server and back: whoever opens a store waits for it.
        with suppress(errors.UndefinedTable, errors.UndefinedColumn):
            found = execute(connection, sql.SQL("SELECT ({}), ({})").format(version, pending).as_bytes(None)).fetchone()
        if found is None or found[0] != len(STEPS):
            migrate(connection, self._schema)
            found = execute(connection, sql.SQL("SELECT NULL, ({})").format(pending).as_bytes(None)).fetchone()
        self._is_scrub_due = found is not None and bool(found[1])

    def _patiently(self, work: Callable[[Connection], T]) -> T:
        """Do something that may be done twice; on a new connection when the one that was at hand has ended."""
        is_last = False
        while True:
            with self._connections.borrow() as connection:
                try:
                    return work(connection)
                except psycopg.OperationalError as error:
                    if is_last or not is_lost(connection, error):
                        raise
            self._connections.refresh()
            is_last = True

    def _look(self, connection: Connection, tenant: str, look: Callable[[Reading], T]) -> T:
        try:
            return look(ReadView(connection, tenant, (_BEGIN_READ, self._path)))
        except errors.UndefinedTable:
            self._is_open = False  # somebody dropped the schema: it is made anew
            raise
        finally:
            _end(connection)

    def _write(self, jobs: Sequence[Job]) -> list[Outcome]:
        if len(jobs) > 1:
            try:
                return self._commit(jobs)
            except (_SpoiltError, psycopg.Error) as error:
                if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
                    raise  # there is no server to try each for itself with
        return one_by_one(self._write_one, jobs)

    def _write_one(self, job: Job) -> Any:
        with translated():
            tries = _TRIES
            while True:
                tries -= 1
                try:
                    outcome = self._commit([job])[0]
                    break
                except _SpoiltError as spoilt:
                    if spoilt.__cause__ is None:
                        raise
                    raise spoilt.__cause__ from spoilt.__cause__.__cause__
                except errors.UniqueViolation as error:
                    raise MovedError(f"a row of session {job.session_id!r} met another's id or key") from error
                except (errors.DeadlockDetected, errors.SerializationFailure):
                    if not tries:
                        raise
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _commit(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Carry out jobs in one transaction; once more, if its connection ends and it did not come to be."""
        is_last = False
        while True:
            trial = _Trial()
            with self._connections.borrow() as connection:
                try:
                    self._carry_out(connection, jobs, trial)
                    return trial.outcomes
                except psycopg.OperationalError as error:
                    if not is_lost(connection, error) or (is_last and not trial.is_committing):
                        raise
                    lost = error
            self._connections.refresh()
            if trial.is_committing and self._was_committed(trial, lost):
                return trial.outcomes
            if is_last:
                raise lost
            is_last = True

    def _carry_out(self, connection: Connection, jobs: Sequence[Job], trial: _Trial) -> None:
        alone = jobs[0] if len(jobs) == 1 else None
        try:
            with together(connection):
                connection.execute(_BEGIN_WRITE)
                execute(connection, STATEMENTS["set_up_write"], {"search_path": self._path, **_LIMITS})
                execute(connection, STATEMENTS["lock"], {"keys": self._keys(jobs)})
                known = row = length = None
                if alone is not None:
                    place = {"tenant": alone.tenant, "session_id": alone.session_id}
                    known = execute(connection, STATEMENTS["session"], place)
                    if alone.line is not None:
                        length = execute(connection, STATEMENTS["length_of"], {**place, "line": alone.line})
                if alone is not None and alone.is_new is not None:
                    named = {"tenant": alone.tenant, "snapshot_id": alone.is_new}
                    row = execute(connection, STATEMENTS["row_alone"], named)
            has_changed = False
            for job in jobs:
                view = WriteView(connection, job.tenant, self._channel, self._bounds)
                if known is not None:
                    view.take_up(job.session_id, known.fetchone())
                if row is not None and job.is_new is not None:
                    view.take_up_row(job.is_new, row.fetchone())
                if length is not None and job.line is not None:
                    view.take_up_length(job.session_id, job.line, length.fetchone())
                trial.outcomes.append(_work(job, view))
                has_changed = has_changed or not view.is_clean
                trial.transaction = view.transaction or trial.transaction
            if has_changed:
                if trial.transaction is None:
                    trial.transaction = _first(execute(connection, STATEMENTS["transaction_id"]).fetchone())
                trial.is_committing = True
                connection.execute(_COMMIT)
        except errors.UndefinedTable:
            self._is_open = False
            raise
        finally:
            _end(connection)

    def _keys(self, jobs: Sequence[Job]) -> list[int]:
        """The locks that jobs take, in the order that all processes take them in."""
        keys: set[int] = set()
        for job in jobs:
            keys.add(lock_key("session", self._schema, job.tenant, job.session_id))
            if job.is_new is not None:
                keys.add(lock_key("snapshot", self._schema, job.tenant, job.is_new))
        return sorted(keys)

    def _was_committed(self, trial: _Trial, lost: psycopg.OperationalError) -> bool:
        """What became of a commit whose answer did not come.

        Raises:
            SessionStoreError: If it cannot be told.
        """
        status = None
        with suppress(psycopg.Error), self._connections.borrow() as connection:
            for _ in range(_COMMIT_LOOKS):
                asked = execute(connection, STATEMENTS["transaction_status"], {"transaction": trial.transaction})
                status = _first(asked.fetchone())
                if status != "in progress":  # so it is until the server has noticed that nobody is there any more
                    break
                threading.Event().wait(_COMMIT_LOOK_S)
        if status not in {"committed", "aborted"}:
            raise SessionStoreError(
                "the connection to PostgreSQL ended during a commit: read the row again to see whether it was written"
            ) from lost
        return bool(status == "committed")

    def _scrub(self) -> None:
        """Remove what was taken back from the tables' files too, once nobody can see it any more."""
        self._is_scrub_due = True
        try:
            with translated():
                self._patiently(self._scrub_files)
        except SessionStoreError as error:
            # Others who hold a table, or vacuum it themselves, are nothing to worry about.
            is_known = isinstance(error, ContendedError)
            told = "what was redacted or deleted is not yet removed from the tables' files: %s"
            _log.warning(told, error, exc_info=not is_known)

    def _scrub_files(self, connection: Connection) -> None:
        ripe: list[str] = []
        for _ in range(_SCRUB_LOOKS):
            ripe = self._asked_all(connection, "ripe_scrubs")
            if ripe:
                break
            threading.Event().wait(
                _SCRUB_LOOK_S
            )  # most transactions are over by then; the rest wait for a later change
        if ripe:
            self._vacuum(connection)
            with connection.transaction():
                connection.execute(self._enter)
                execute(connection, STATEMENTS["drop_scrubs"], {"transactions": ripe})
        self._is_scrub_due = bool(self._asked(connection, "pending_scrubs"))

    def _vacuum(self, connection: Connection) -> None:
        # Whoever waits for a table to rewrite it makes all others wait behind him.
        connection.execute(_SET_PATIENCE)
        try:
            vacuum = sql.SQL("VACUUM (FULL) {}" if self._erasure == "rewrite" else "VACUUM {}")
            for table in _HELD_WORDS:
                connection.execute(vacuum.format(sql.Identifier(self._schema, table)))
        finally:
            if not connection.closed:
                connection.execute(_RESET_PATIENCE)

    def _asked(self, connection: Connection, name: str) -> Any:
        return next(iter(self._asked_all(connection, name)), None)

    def _asked_all(self, connection: Connection, name: str) -> list[Any]:
        with connection.transaction():
            connection.execute(self._enter)
            return [found[0] for found in execute(connection, STATEMENTS[name])]


def _work(job: Job, view: WriteView) -> Outcome:
    try:
        value = job.work(view)
        if job.scrub and view.has_changed:
            view.ask_scrub()
        view.flush()
        return Outcome(value)
    except psycopg.Error:
        raise
    except Exception as error:
        if view.is_clean:
            return Outcome(error=error)
        raise _SpoiltError from error


def _end(connection: Connection) -> None:
    """Leave no transaction open."""
    if connection.info.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
        try:
            connection.execute(_ROLLBACK)
        except psycopg.Error:
            connection.close()  # it is of no more use; the server takes back what was begun


def _first(found: tuple[Any, ...] | None) -> Any:
    return None if found is None else found[0]

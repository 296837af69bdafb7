"""Rows and lines in SQL, as far as SQLite and PostgreSQL agree.

`SqlView` fulfils `Writing` over tables that both have by the same names (`store/schema/`), in statements that both
understand, with `?` for values. Whose transaction it is, who locks whom and what an error means is the backend's affair.

A session, a row and a line have numbers of their own, by which other tables name them. A message's place is one number
too, `line << 32 | position`: a range of a line is a range of the table, and a turn appends to one page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from antiphon.errors import CorruptStoreError, MovedError
from antiphon.store.backend import Query, SessionMark
from antiphon.store.record import ADDRESS_LENGTH, Row, addresses_in, pack, unpack

Value: TypeAlias = str | bytes | int | None

_POSITION_BITS = 32
_ASKED_AT_ONCE = 200  # values in one list of a statement; SQLite took 999 for a long time


class Sql(Protocol):
    """A connection in a transaction. Errors are ours (`SessionStoreError`) already."""

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        ...

    def run(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        ...

    def run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Carry out a statement for each row of values."""
        ...


@dataclass(slots=True)
class _Session:
    """A session's own row."""

    number: int
    redactions: int
    salt: bytes
    latest: int | None
    latest_at: int | None


class SqlView:
    """One tenant's rows within a transaction; fulfils `Reading`, and `Writing` in a transaction that may write.

    Args:
        sql: The transaction.
        tenant: Whose rows.
    """

    def __init__(self, sql: Sql, tenant: str) -> None:
        self._sql, self._tenant = sql, tenant
        self._numbers = sql.rows("SELECT n FROM tenant WHERE name = ?", (tenant,))
        self._sessions: dict[str, _Session] = {}

    # Reading

    def row(self, snapshot_id: str) -> Row | None:
        found = self._ask(
            "SELECT s.id, r.revision, r.record FROM snapshot r JOIN session s ON s.n = r.session"
            " WHERE r.tenant = ? AND r.id = ?",
            snapshot_id,
        )
        return next((Row(snapshot_id, session, revision, unpack(record)) for session, revision, record in found), None)

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        found = self.page(session_id, Query(limit=1, agent_id=agent_id))
        return found[0] if found else None

    def keyed(self, idempotency_key: str) -> str | None:
        found = self._ask("SELECT id FROM snapshot WHERE tenant = ? AND idempotency_key = ?", idempotency_key)
        return cast("str", found[0][0]) if found else None

    def rows(self, session_id: str) -> list[Row]:
        return self._rows(session_id, "", [])

    def page(self, session_id: str, query: Query) -> list[Row]:
        where, values = _conditions(query, at="created_at", id="id")
        return self._rows(session_id, f"{where} ORDER BY created_at DESC, id DESC LIMIT ?", [*values, query.limit])

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        where, values = _conditions(query, at="s.latest_at", id="s.id", row="r.")
        found = self._ask(
            "SELECT s.id, s.snapshots, r.id, r.revision, r.record"  # noqa: S608 - built of our own words only
            " FROM session s JOIN snapshot r ON r.n = s.latest"
            f" WHERE s.tenant = ? AND s.latest_at IS NOT NULL{where}"
            " ORDER BY s.latest_at DESC, s.id DESC LIMIT ?",
            *values,
            query.limit,
        )
        return [
            (session_id, count, Row(snapshot_id, session_id, revision, unpack(record)))
            for session_id, count, snapshot_id, revision, record in found
        ]

    def mark(self, session_id: str) -> SessionMark | None:
        session = self._session(session_id)
        return None if session is None else SessionMark(session.redactions, session.salt)

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        session = self._session(session_id)
        if session is None:
            return {}
        return dict(self._sql.rows("SELECT digest, body FROM mask WHERE session = ?", (session.number,)))

    def length(self, session_id: str, line: int) -> int:
        last = self._sql.rows(
            "SELECT place FROM message WHERE place >= ? AND place < ? ORDER BY place DESC LIMIT 1", _places(line)
        )
        return _position(last[0][0]) + 1 if last else 0

    def messages(self, session_id: str, line: int, start: int, stop: int) -> list[bytes]:
        found = self._sql.rows(
            "SELECT body FROM message WHERE place >= ? AND place < ? ORDER BY place", _places(line, start, stop)
        )
        if len(found) != stop - start:
            raise CorruptStoreError(f"messages {start} to {stop} of line {line} in session {session_id!r} are lost")
        return [body for (body,) in found]

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        session = self._session(session_id)
        if session is None:
            return {}
        wanted, found = sorted(addresses), dict[bytes, bytes]()
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            some = wanted[start : start + _ASKED_AT_ONCE]
            found.update(
                self._sql.rows(
                    f"SELECT address, body FROM blob WHERE session = ? AND address IN ({_marks(some)})",  # noqa: S608
                    (session.number, *some),
                )
            )
        return found

    def note(self, name: str) -> bytes | None:
        found = self._ask("SELECT body FROM note WHERE tenant = ? AND name = ?", name)
        return cast("bytes", found[0][0]) if found else None

    # Writing

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        session = self._session(session_id)
        if session is None:
            number = self._sql.rows(
                "INSERT INTO session (tenant, id, redactions, salt) VALUES (?, ?, ?, ?) RETURNING n",
                (self._number(), session_id, mark.redactions, mark.salt),
            )[0][0]
            self._sessions[session_id] = _Session(number, mark.redactions, mark.salt, None, None)
        else:
            session.redactions, session.salt = mark.redactions, mark.salt
            self._sql.run(
                "UPDATE session SET redactions = ?, salt = ? WHERE n = ?",
                (mark.redactions, mark.salt, session.number),
            )

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        session = self._there(session_id)
        self._sql.run("DELETE FROM mask WHERE session = ?", (session.number,))
        self._sql.run_many(
            "INSERT INTO mask (session, digest, body) VALUES (?, ?, ?)",
            [(session.number, digest, body) for digest, body in masks.items()],
        )

    def put_row(self, row: Row) -> None:
        session, record = self._there(row.session_id), row.record
        before = self._ask("SELECT n, session FROM snapshot WHERE tenant = ? AND id = ?", row.snapshot_id)
        if before and before[0][1] != session.number:
            raise MovedError(f"snapshot {row.snapshot_id!r} is in another session")
        values = (
            record.created_at,
            row.revision,
            record.status,
            record.agent_id,
            record.idempotency_key,
            pack(record),
        )
        if before:
            number = before[0][0]
            self._sql.run(
                "UPDATE snapshot SET created_at = ?, revision = ?, status = ?, agent = ?, idempotency_key = ?, record = ?"
                " WHERE n = ?",
                (*values, number),
            )
        else:
            number = self._sql.rows(
                "INSERT INTO snapshot (tenant, id, session, created_at, revision, status, agent, idempotency_key, record)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
                (self._number(), row.snapshot_id, session.number, *values),
            )[0][0]
        newest: tuple[int | None, int | None] = (number, record.created_at)
        if session.latest_at is not None and record.created_at <= session.latest_at:
            newest = session.latest, session.latest_at
            if record.created_at == session.latest_at or session.latest == number:
                newest = self._newest(session)
        self._point(session, newest, more=0 if before else 1)

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        session = self._there(session_id)
        self._sql.run_many(
            "DELETE FROM snapshot WHERE tenant = ? AND id = ? AND session = ?",
            [(self._number(), snapshot_id, session.number) for snapshot_id in snapshot_ids],
        )
        left = self._sql.rows("SELECT count(*) FROM snapshot WHERE session = ?", (session.number,))[0][0]
        before = self._sql.rows("SELECT snapshots FROM session WHERE n = ?", (session.number,))[0][0]
        self._point(session, self._newest(session), more=left - before)

    def new_line(self, session_id: str) -> int:
        return cast(
            "int",
            self._sql.rows("INSERT INTO line (session) VALUES (?) RETURNING n", (self._there(session_id).number,))[0][
                0
            ],
        )

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        first = _places(line, at)[0]
        self._sql.run_many(
            "INSERT INTO message (place, body) VALUES (?, ?)",
            [(first + index, body) for index, body in enumerate(bodies)],
        )

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        self._sql.run("UPDATE message SET body = ? WHERE place = ?", (body, _places(line, at)[0]))

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        session = self._there(session_id)
        self._sql.run_many(
            "INSERT INTO blob (session, address, body) VALUES (?, ?, ?) ON CONFLICT (session, address) DO NOTHING",
            [(session.number, address, body) for address, body in blobs.items()],
        )

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        forgotten = 0
        for line in self._lines(session_id):
            free = 0
            for start, stop in kept.get(line, ()):
                if free < start:
                    forgotten += self._forget(_places(line, free, start))
                free = stop
            forgotten += self._forget((_places(line, free)[0], _places(line)[1]))
            if line not in kept:
                self._sql.run("DELETE FROM line WHERE n = ?", (line,))
        return forgotten

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        return [
            (line, _position(place), body)
            for line in self._lines(session_id)
            for place, body in self._sql.rows(
                "SELECT place, body FROM message WHERE place >= ? AND place < ? ORDER BY place", _places(line)
            )
        ]

    def addressed(self, session_id: str) -> set[bytes]:
        return addresses_in(
            body
            for line in self._lines(session_id)
            for (body,) in self._sql.rows(
                "SELECT body FROM message WHERE place >= ? AND place < ? AND length(body) = ?",
                (*_places(line), ADDRESS_LENGTH + 1),
            )
        )

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        session = self._there(session_id)
        found = self._sql.rows("SELECT address FROM blob WHERE session = ?", (session.number,))
        self._sql.run_many(
            "DELETE FROM blob WHERE session = ? AND address = ?",
            [(session.number, address) for (address,) in found if address not in addresses],
        )

    def drop_session(self, session_id: str) -> None:
        session = self._there(session_id)
        self.keep_messages(session_id, {})
        for table in ("snapshot", "blob", "mask"):
            self._sql.run(f"DELETE FROM {table} WHERE session = ?", (session.number,))  # noqa: S608 - a name of ours
        self._sql.run("DELETE FROM session WHERE n = ?", (session.number,))
        del self._sessions[session_id]

    def put_note(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._sql.run("DELETE FROM note WHERE tenant = ? AND name = ?", (self._number(), name))
        else:
            self._sql.run(
                "INSERT INTO note (tenant, name, body) VALUES (?, ?, ?)"
                " ON CONFLICT (tenant, name) DO UPDATE SET body = excluded.body",
                (self._number(), name, value),
            )

    # Numbers

    def _ask(self, statement: str, *values: Value) -> list[tuple[Any, ...]]:
        """The answer to a question whose first value is the tenant; nothing while there is none of that name."""
        return self._sql.rows(statement, (self._numbers[0][0], *values)) if self._numbers else []

    def _number(self) -> int:
        if not self._numbers:
            self._numbers = self._sql.rows("INSERT INTO tenant (name) VALUES (?) RETURNING n", (self._tenant,))
        return cast("int", self._numbers[0][0])

    def _session(self, session_id: str) -> _Session | None:
        if session_id not in self._sessions:
            for found in self._ask(
                "SELECT n, redactions, salt, latest, latest_at FROM session WHERE tenant = ? AND id = ?", session_id
            ):
                self._sessions[session_id] = _Session(*found)
        return self._sessions.get(session_id)

    def _there(self, session_id: str) -> _Session:
        session = self._session(session_id)
        if session is None:
            raise MovedError(f"session {session_id!r} is not there any more")
        return session

    def _rows(self, session_id: str, rest: str, values: Sequence[Value]) -> list[Row]:
        session = self._session(session_id)
        if session is None:
            return []
        found = self._sql.rows(
            f"SELECT id, revision, record FROM snapshot WHERE session = ?{rest}",  # noqa: S608 - of our own words only
            (session.number, *values),
        )
        return [Row(snapshot_id, session_id, revision, unpack(record)) for snapshot_id, revision, record in found]

    def _lines(self, session_id: str) -> list[int]:
        found = self._sql.rows("SELECT n FROM line WHERE session = ? ORDER BY n", (self._there(session_id).number,))
        return [line for (line,) in found]

    def _forget(self, places: tuple[int, int]) -> int:
        return self._sql.run("DELETE FROM message WHERE place >= ? AND place < ?", places)

    def _point(self, session: _Session, newest: tuple[int | None, int | None], *, more: int) -> None:
        """Keep which row of a session is its newest (number and time), and how many rows it has got more."""
        if more or newest != (session.latest, session.latest_at):
            session.latest, session.latest_at = newest
            self._sql.run(
                "UPDATE session SET snapshots = snapshots + ?, latest = ?, latest_at = ? WHERE n = ?",
                (more, *newest, session.number),
            )

    def _newest(self, session: _Session) -> tuple[int | None, int | None]:
        found = self._sql.rows(
            "SELECT n, created_at FROM snapshot WHERE session = ? ORDER BY created_at DESC, id DESC LIMIT 1",
            (session.number,),
        )
        return (found[0][0], found[0][1]) if found else (None, None)


def _places(line: int, start: int = 0, stop: int = 1 << _POSITION_BITS) -> tuple[int, int]:
    """Where positions `start` to `stop` of a line are; by default all of it."""
    return (line << _POSITION_BITS) + start, (line << _POSITION_BITS) + stop


def _position(place: int) -> int:
    return place & ((1 << _POSITION_BITS) - 1)


def _marks(values: Sequence[Value]) -> str:
    return ", ".join("?" * len(values))


def _conditions(query: Query, *, at: str, id: str, row: str = "") -> tuple[str, list[Value]]:
    """What a query asks for, to be appended to a condition.

    Args:
        query: The query; its limit is left out.
        at: The column of its times.
        id: The column of its ids.
        row: What the columns of a row are prefixed with.
    """
    parts: list[str] = []
    values: list[Value] = []
    if query.after is not None:
        parts.append(f" AND ({at}, {id}) < (?, ?)")
        values += query.after
    if query.statuses:
        statuses = sorted(query.statuses)
        parts.append(f" AND {row}status IN ({_marks(statuses)})")
        values += statuses
    if query.agent_id is not None:
        parts.append(f" AND {row}agent = ?")
        values.append(query.agent_id)
    if query.since is not None:
        parts.append(f" AND {at} >= ?")
        values.append(query.since)
    if query.until is not None:
        parts.append(f" AND {at} < ?")
        values.append(query.until)
    return "".join(parts), values

"""One tenant's rows within a transaction."""

# ruff: noqa: S608 - statements are put together from words that stand in this file; values are bound

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from antiphon.errors import MovedError
from antiphon.store.backend import Query, SessionMark
from antiphon.store.lines import lost
from antiphon.store.record import ADDRESS_LENGTH, Row, addresses_in, pack, unpack
from antiphon.store.sqlite.driver import Connection, Value

_POSITION_BITS = 32
_ASKED_AT_ONCE = 200  # values in one list of a statement; SQLite took 999 for a long time

_STATUSES = ("completed", "pending", "aborting", "failed", "aborted")
"""In the order of the numbers that stand for them."""

# What a `Row` is made of, by `_row`.
_ROW = "r.id, r.revision, r.created_at, r.status, r.agent, r.idempotency_key, r.record"


@dataclass(slots=True)
class _Session:
    """A session's own row."""

    number: int
    redactions: int
    salt: bytes


class SQLiteView:
    """Fulfils `Reading`, and `Writing` in a transaction that may write.

    Args:
        db: In a transaction, which is the caller's to end.
        tenant: Whose rows.
    """

    def __init__(self, db: Connection, tenant: str) -> None:
        self._db, self._tenant = db, tenant
        self._numbers = db.rows("SELECT n FROM tenant WHERE name = ?", (tenant,))
        self._sessions: dict[str, _Session] = {}

    # Reading

    def row(self, snapshot_id: str) -> Row | None:
        found = self._ask(
            f"SELECT s.id, {_ROW} FROM snapshot r JOIN session s ON s.n = r.session WHERE r.tenant = ? AND r.id = ?",
            snapshot_id,
        )
        return _row(*found[0]) if found else None

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        found = self.page(session_id, Query(limit=1, agent_id=agent_id))
        return found[0] if found else None

    def keyed(self, idempotency_key: str) -> str | None:
        found = self._ask("SELECT id FROM snapshot WHERE tenant = ? AND idempotency_key = ?", idempotency_key)
        return cast("str", found[0][0]) if found else None

    def rows(self, session_id: str) -> list[Row]:
        return self._rows(session_id, "", [])

    def page(self, session_id: str, query: Query) -> list[Row]:
        where, values = _conditions(query, id="r.id")
        order = " ORDER BY r.created_at DESC, r.id DESC LIMIT ?"
        return self._rows(session_id, where + order, [*values, query.limit])

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        where, values = _conditions(query, id="s.id", row="n.")
        found = self._ask(
            f"SELECT (SELECT count(*) FROM snapshot WHERE session = s.n), s.id, {_ROW}"
            " FROM newest n JOIN session s ON s.n = n.session JOIN snapshot r ON r.n = n.snapshot"
            f" WHERE n.tenant = ?{where} ORDER BY n.created_at DESC, s.id DESC LIMIT ?",
            *values,
            query.limit,
        )
        return [(session_id, count, _row(session_id, *row)) for count, session_id, *row in found]

    def mark(self, session_id: str) -> SessionMark | None:
        session = self._session(session_id)
        return None if session is None else SessionMark(session.redactions, session.salt)

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        session = self._session(session_id)
        if session is None:
            return {}
        return dict(self._db.rows("SELECT digest, body FROM mask WHERE session = ?", (session.number,)))

    def length(self, session_id: str, line: int) -> int:
        last = self._db.rows(
            "SELECT place FROM message WHERE place >= ? AND place < ? ORDER BY place DESC LIMIT 1", _places(line)
        )
        return _position(last[0][0]) + 1 if last else 0

    def messages(self, session_id: str, line: int, start: int, stop: int) -> list[bytes]:
        found = self._db.rows(
            "SELECT body FROM message WHERE place >= ? AND place < ? ORDER BY place", _places(line, start, stop)
        )
        if len(found) != stop - start:
            asked = "SELECT place FROM message WHERE place >= ? AND place < ?"
            there = {_position(place) for (place,) in self._db.rows(asked, _places(line, start, stop))}
            raise lost(session_id, line, [at for at in range(start, stop) if at not in there])
        return [body for (body,) in found]

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        session = self._session(session_id)
        if session is None:
            return {}
        wanted, found = sorted(addresses), dict[bytes, bytes]()
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            some = wanted[start : start + _ASKED_AT_ONCE]
            found.update(
                self._db.rows(
                    f"SELECT address, body FROM blob WHERE session = ? AND address IN ({_marks(some)})",
                    (session.number, *some),
                )
            )
        return found

    def note(self, name: str) -> bytes | None:
        found = self._ask("SELECT body FROM note WHERE tenant = ? AND name = ?", name)
        return cast("bytes", found[0][0]) if found else None

    def erasure_pending(self) -> bool:
        return bool(self._db.rows("SELECT 1 FROM note WHERE tenant = 0 AND name = 'scrub'"))

    # Writing

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        session = self._session(session_id)
        if session is None:
            number = self._db.rows(
                "INSERT INTO session (tenant, id, redactions, salt) VALUES (?, ?, ?, ?) RETURNING n",
                (self._number(), session_id, mark.redactions, mark.salt),
            )[0][0]
            self._sessions[session_id] = _Session(number, mark.redactions, mark.salt)
        else:
            session.redactions, session.salt = mark.redactions, mark.salt
            self._db.run(
                "UPDATE session SET redactions = ?, salt = ? WHERE n = ?", (mark.redactions, mark.salt, session.number)
            )

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        session = self._there(session_id)
        self._db.run("DELETE FROM mask WHERE session = ?", (session.number,))
        self._db.run_many(
            "INSERT INTO mask (session, digest, body) VALUES (?, ?, ?)",
            [(session.number, digest, body) for digest, body in masks.items()],
        )

    def put_row(self, row: Row) -> None:
        session, record = self._there(row.session_id), row.record
        before = self._ask("SELECT n, session FROM snapshot WHERE tenant = ? AND id = ?", row.snapshot_id)
        if before and before[0][1] != session.number:
            raise MovedError(f"snapshot {row.snapshot_id!r} is in another session")
        newest = self._newest(session)
        values = (
            record.created_at,
            row.revision,
            _STATUSES.index(record.status),
            record.agent_id,
            record.idempotency_key,
            # Without what has a column.
            pack(replace(record, created_at=0, status="", agent_id=None, idempotency_key=None)),
        )
        if before:
            self._db.run(
                "UPDATE snapshot SET created_at = ?, revision = ?, status = ?, agent = ?, idempotency_key = ?, record = ?"
                " WHERE n = ?",
                (*values, before[0][0]),
            )
        else:
            self._db.run(
                "INSERT INTO snapshot (tenant, id, session, created_at, revision, status, agent, idempotency_key, record)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self._number(), row.snapshot_id, session.number, *values),
            )
        self._point(session, newest)

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        session = self._there(session_id)
        newest = self._newest(session)
        self._db.run_many(
            "DELETE FROM snapshot WHERE tenant = ? AND id = ? AND session = ?",
            [(self._number(), snapshot_id, session.number) for snapshot_id in snapshot_ids],
        )
        self._point(session, newest)

    def new_line(self, session_id: str) -> int:
        line: int = self._db.rows(
            "INSERT INTO note (tenant, name, body) VALUES (0, 'line', 1)"
            " ON CONFLICT (tenant, name) DO UPDATE SET body = body + 1 RETURNING body"
        )[0][0]
        self._db.run("INSERT INTO line (session, n) VALUES (?, ?)", (self._there(session_id).number, line))
        return line

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        first = _places(line, at)[0]
        self._db.run_many(
            "INSERT INTO message (place, body) VALUES (?, ?)",
            [(first + index, body) for index, body in enumerate(bodies)],
        )

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        self._db.run("UPDATE message SET body = ? WHERE place = ?", (body, _places(line, at)[0]))

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        session = self._there(session_id)
        self._db.run_many(
            "INSERT INTO blob (session, address, body) VALUES (?, ?, ?) ON CONFLICT (session, address) DO NOTHING",
            [(session.number, address, body) for address, body in blobs.items()],
        )

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        session, forgotten = self._there(session_id), 0
        for line in self._lines(session):
            free = 0
            for start, stop in kept.get(line, ()):
                if free < start:
                    forgotten += self._forget(_places(line, free, start))
                free = stop
            forgotten += self._forget((_places(line, free)[0], _places(line)[1]))
            if line not in kept:
                self._db.run("DELETE FROM line WHERE session = ? AND n = ?", (session.number, line))
        return forgotten

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        return [
            (line, _position(place), body)
            for line in self._lines(self._there(session_id))
            for place, body in self._db.rows(
                "SELECT place, body FROM message WHERE place >= ? AND place < ? ORDER BY place", _places(line)
            )
        ]

    def addressed(self, session_id: str) -> set[bytes]:
        return addresses_in(
            body
            for line in self._lines(self._there(session_id))
            for (body,) in self._db.rows(
                "SELECT body FROM message WHERE place >= ? AND place < ? AND length(body) = ?",
                (*_places(line), ADDRESS_LENGTH + 1),
            )
        )

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        session = self._there(session_id)
        found = self._db.rows("SELECT address FROM blob WHERE session = ?", (session.number,))
        self._db.run_many(
            "DELETE FROM blob WHERE session = ? AND address = ?",
            [(session.number, address) for (address,) in found if address not in addresses],
        )

    def drop_session(self, session_id: str) -> None:
        session = self._there(session_id)
        newest = self._newest(session)
        self.keep_messages(session_id, {})
        self._db.run("DELETE FROM snapshot WHERE session = ?", (session.number,))
        self._point(session, newest)
        self._db.run("DELETE FROM blob WHERE session = ?", (session.number,))
        self._db.run("DELETE FROM mask WHERE session = ?", (session.number,))
        self._db.run("DELETE FROM session WHERE n = ?", (session.number,))
        del self._sessions[session_id]

    def put_note(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._db.run("DELETE FROM note WHERE tenant = ? AND name = ?", (self._number(), name))
        else:
            self._db.run(
                "INSERT INTO note (tenant, name, body) VALUES (?, ?, ?)"
                " ON CONFLICT (tenant, name) DO UPDATE SET body = excluded.body",
                (self._number(), name, value),
            )

    # Numbers

    def _ask(self, statement: str, *values: Value) -> list[tuple[Any, ...]]:
        """The answer to a question whose first value is the tenant; nothing while there is none of that name."""
        return self._db.rows(statement, (self._numbers[0][0], *values)) if self._numbers else []

    def _number(self) -> int:
        if not self._numbers:
            self._numbers = self._db.rows(
                "INSERT INTO tenant (name, n) SELECT ?, coalesce(max(n), 0) + 1 FROM tenant RETURNING n",
                (self._tenant,),
            )
        return cast("int", self._numbers[0][0])

    def _session(self, session_id: str) -> _Session | None:
        if session_id not in self._sessions:
            for found in self._ask("SELECT n, redactions, salt FROM session WHERE tenant = ? AND id = ?", session_id):
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
        statement = f"SELECT {_ROW} FROM snapshot r WHERE r.session = ?{rest}"
        return [_row(session_id, *found) for found in self._db.rows(statement, (session.number, *values))]

    def _lines(self, session: _Session) -> list[int]:
        return [line for (line,) in self._db.rows("SELECT n FROM line WHERE session = ?", (session.number,))]

    def _forget(self, places: tuple[int, int]) -> int:
        return self._db.run("DELETE FROM message WHERE place >= ? AND place < ?", places)

    def _newest(self, session: _Session) -> tuple[int, int] | None:
        """Time and number of a session's newest row."""
        found = self._db.rows(
            "SELECT created_at, n FROM snapshot WHERE session = ? ORDER BY created_at DESC, id DESC LIMIT 1",
            (session.number,),
        )
        return (found[0][0], found[0][1]) if found else None

    def _point(self, session: _Session, before: tuple[int, int] | None) -> None:
        """Keep which row is the newest of a session after rows came or went.

        Args:
            session: The session.
            before: Its newest row when they had not yet.
        """
        now = self._newest(session)
        if now == before:
            return
        if before is not None:
            self._db.run(
                "DELETE FROM newest WHERE tenant = ? AND created_at = ? AND session = ?",
                (self._number(), before[0], session.number),
            )
        if now is not None:
            self._db.run(
                "INSERT INTO newest (tenant, created_at, session, snapshot) VALUES (?, ?, ?, ?)",
                (self._number(), now[0], session.number, now[1]),
            )


def _row(
    session_id: str,
    snapshot_id: str,
    revision: int,
    created_at: int,
    status: int,
    agent_id: str | None,
    idempotency_key: str | None,
    record: bytes,
) -> Row:
    whole = replace(
        unpack(record),
        created_at=created_at,
        status=_STATUSES[status],
        agent_id=agent_id,
        idempotency_key=idempotency_key,
    )
    return Row(snapshot_id, session_id, revision, whole)


def _places(line: int, start: int = 0, stop: int = 1 << _POSITION_BITS) -> tuple[int, int]:
    """Where positions `start` to `stop` of a line are; by default all of it."""
    return (line << _POSITION_BITS) + start, (line << _POSITION_BITS) + stop


def _position(place: int) -> int:
    return place & ((1 << _POSITION_BITS) - 1)


def _marks(values: Sequence[Value]) -> str:
    return ", ".join("?" * len(values))


def _conditions(query: Query, *, id: str, row: str = "r.") -> tuple[str, list[Value]]:
    """What a query asks for, to be appended to a condition.

    Args:
        query: The query; its limit is left out.
        id: The column of its ids.
        row: What the column of its times is prefixed with.
    """
    parts: list[str] = []
    values: list[Value] = []
    if query.after is not None:
        parts.append(f" AND ({row}created_at, {id}) < (?, ?)")
        values += query.after
    if query.statuses:
        statuses = [_STATUSES.index(status) for status in sorted(query.statuses)]
        parts.append(f" AND r.status IN ({_marks(statuses)})")
        values += statuses
    if query.agent_id is not None:
        parts.append(" AND r.agent = ?")
        values.append(query.agent_id)
    if query.since is not None:
        parts.append(f" AND {row}created_at >= ?")
        values.append(query.since)
    if query.until is not None:
        parts.append(f" AND {row}created_at < ?")
        values.append(query.until)
    return "".join(parts), values

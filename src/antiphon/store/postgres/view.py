"""One transaction as a backend's view: `Reading`, and `Writing` on top of it.

Every statement is a way to the server and back, so what a change writes is collected and sent together, and what one
answer brings along (a session with its row, its newest row with the session) is not asked for again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec
from psycopg import capabilities

from antiphon.errors import CorruptStoreError, MovedError
from antiphon.store.backend import Query, SessionMark
from antiphon.store.lines import lost
from antiphon.store.postgres.driver import STATEMENTS, Connection, Cursor, execute
from antiphon.store.postgres.packing import Run, pack, pack_runs, unpack
from antiphon.store.postgres.sending import Bounds, check_sizes, parts
from antiphon.store.record import Row, addresses_in
from antiphon.store.record import pack as pack_record
from antiphon.store.record import unpack as unpack_record

_MOST_PAYLOAD = 7000
"""Bytes of a notification; PostgreSQL takes 7,999."""

_DAMAGED = b"\xff"  # neither JSON nor an address

_MOST_NAMED = 16
"""Rows of one change that are told by name; of more, the tenant is."""


@dataclass(slots=True)
class _Session:
    """A session as this view sees it.

    The newest row is None also where it was not read yet (`newest_id` tells), and so are the runs that may be changed.
    Those of them that were, and are not sent yet, are `changed`, by line and first position.
    """

    number: int
    session_id: str
    mark: SessionMark
    snapshots: int
    newest_at: int | None
    newest_id: str | None
    newest: Row | None = None
    moved: bool = False
    lengths: dict[int, int] = field(default_factory=dict[int, int])
    open: list[_OpenRun] | None = None
    changed: dict[tuple[int, int], _OpenRun] = field(default_factory=dict[tuple[int, int], "_OpenRun"])


@dataclass(slots=True)
class _Write:
    """A statement that waits to be sent. `must` names the row that it has to write."""

    name: str
    arguments: dict[str, Any]
    must: str | None = None


@dataclass(slots=True)
class _OpenRun:
    """A run whose messages may be replaced."""

    line: int
    first: int
    bodies: list[bytes]


@dataclass(slots=True)
class _Seen:
    """What is known of the database within one view."""

    sessions: dict[str, _Session | None] = field(default_factory=dict[str, "_Session | None"])
    rows: dict[str, Row | None] = field(default_factory=dict[str, "Row | None"])


def together(connection: Connection) -> AbstractContextManager[object]:
    """Statements within go out together, and their answers come back together; one by one where the library is too old."""
    return connection.pipeline() if capabilities.has_pipeline() else nullcontext()


class ReadView:
    """Fulfils `Reading` in a transaction that sees one state of the database.

    Args:
        connection: In autocommit mode; the transaction begins with the first statement, and is the caller's to end.
        tenant: Whose rows.
        begin: The statement that begins the transaction, and its search path; None when it has begun.
    """

    def __init__(self, connection: Connection, tenant: str, begin: tuple[bytes, str] | None) -> None:
        self._connection, self._tenant = connection, tenant
        self._begin = begin
        self._seen = _Seen()

    def row(self, snapshot_id: str) -> Row | None:
        if snapshot_id not in self._seen.rows:
            found = self._ask("row", {"tenant": self._tenant, "snapshot_id": snapshot_id}).fetchone()
            self._seen.rows[snapshot_id] = None if found is None else self._meet(found, is_newest=False)
        return self._seen.rows[snapshot_id]

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        session = self._session(session_id)
        if session is None or session.newest_id is None:
            return None
        if agent_id is not None:
            return self._one_row(session, "latest_of_agent", {"agent_id": agent_id})
        if session.newest is None:
            session.newest = self.row(session.newest_id)
        return session.newest

    def keyed(self, idempotency_key: str) -> str | None:
        found = self._ask("keyed", {"tenant": self._tenant, "idempotency_key": idempotency_key}).fetchone()
        return None if found is None else found[0]

    def rows(self, session_id: str) -> list[Row]:
        session = self._session(session_id)
        if session is None:
            return []
        rows = [_row(session_id, *found) for found in self._ask("rows", {"session": session.number})]
        self._seen.rows.update((row.snapshot_id, row) for row in rows)
        return rows

    def page(self, session_id: str, query: Query) -> list[Row]:
        session = self._session(session_id)
        if session is None:
            return []
        asked = self._ask("page", {"session": session.number, **_arguments(query)})
        return [_row(session_id, *found) for found in asked]

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        listed: list[tuple[str, int, Row]] = []
        for found in self._ask("sessions", {"tenant": self._tenant, **_arguments(query)}).fetchall():
            row = self._meet(found, is_newest=True)
            if row is not None:
                listed.append((row.session_id, found[3], row))
        return listed

    def mark(self, session_id: str) -> SessionMark | None:
        session = self._session(session_id)
        return None if session is None else session.mark

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        session = self._session(session_id)
        if session is None:
            return {}
        return dict(self._ask("masks", {"session": session.number}))

    def length(self, session_id: str, line: int) -> int:
        session = self._session(session_id)
        if session is None:
            return 0
        if line not in session.lengths:
            found = self._ask("length", {"session": session.number, "line": line}).fetchone()
            session.lengths[line] = 0 if found is None else found[0]
        return session.lengths[line]

    def messages(self, session_id: str, line: int, start: int, stop: int) -> list[bytes]:
        session = self._session(session_id)
        runs: list[tuple[int, int, bytes]] = []
        if session is not None:
            place = {"session": session.number, "line": line, "start": start, "stop": stop}
            runs = self._ask("messages", place).fetchall()
        bodies: list[bytes] = []
        missing: list[int] = []
        at = start
        for first, size, value in runs:
            begin, end = max(first, at), min(first + size, stop)
            if begin >= end:  # it ends before what is wanted
                continue
            held = unpack(value, size)
            missing += range(at, begin)
            if held is None:
                missing += range(begin, end)
            else:
                bodies += held if end - begin == size else held[begin - first : end - first]
            at = end
        missing += range(at, stop)
        if missing:
            raise lost(session_id, line, missing)
        return bodies

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        session = self._session(session_id)
        if session is None or not addresses:
            return {}
        return dict(self._ask("blobs", {"session": session.number, "addresses": list(addresses)}))

    def note(self, name: str) -> bytes | None:
        found = self._ask("note", {"tenant": self._tenant, "name": name}).fetchone()
        return None if found is None else found[0]

    def erasure_pending(self) -> bool:
        found = self._ask("pending_scrubs", {}).fetchone()
        return found is not None and bool(found[0])

    def _ask(self, name: str, arguments: dict[str, Any]) -> Cursor:
        if self._begin is None:
            return execute(self._connection, STATEMENTS[name], arguments)
        begin, search_path = self._begin
        with together(self._connection):
            self._connection.execute(begin)
            execute(self._connection, STATEMENTS["set_up_read"], {"search_path": search_path})
            self._begin = None
            return execute(self._connection, STATEMENTS[name], arguments)

    def _session(self, session_id: str) -> _Session | None:
        if session_id not in self._seen.sessions:
            found = self._ask("session", {"tenant": self._tenant, "session_id": session_id}).fetchone()
            if found is None:
                self._seen.sessions[session_id] = None
            else:
                self._meet(found, is_newest=True)
        return self._seen.sessions[session_id]

    def _meet(self, found: tuple[Any, ...], *, is_newest: bool) -> Row | None:
        """Take up a session and a row that came together; the row, where there is one."""
        number, redactions, salt, snapshots, newest_at, newest_id, session_id, snapshot_id, revision, record = found
        row = None if snapshot_id is None else _row(session_id, snapshot_id, revision, record)
        if session_id not in self._seen.sessions:
            mark = SessionMark(redactions, salt)
            self._seen.sessions[session_id] = _Session(number, session_id, mark, snapshots, newest_at, newest_id)
        session = self._seen.sessions[session_id]
        if row is not None:
            self._seen.rows[row.snapshot_id] = row
            if session is not None and (is_newest or session.newest_id == row.snapshot_id):
                session.newest = row
        return row

    def _one_row(self, session: _Session, statement: str, arguments: dict[str, Any]) -> Row | None:
        found = self._ask(statement, {"session": session.number, **arguments}).fetchone()
        return None if found is None else _row(session.session_id, *found)


class WriteView(ReadView):
    """Fulfils `Writing`; the session is locked by whoever made the transaction.

    Call `flush` when the change is complete.

    Args:
        connection: In a transaction.
        tenant: Whose rows.
        channel: Where to tell of changes.
        bounds: How much goes to the server at once.

    Attributes:
        transaction: The transaction's id, when something was sent.
    """

    def __init__(self, connection: Connection, tenant: str, channel: str, bounds: Bounds) -> None:
        super().__init__(connection, tenant, None)
        self.transaction: str | None = None
        self._channel, self._bounds = channel, bounds
        self._waiting: list[_Write] = []
        self._told: dict[str, None] = {}
        self._has_sent = False

    def take_up(self, session_id: str, found: tuple[Any, ...] | None) -> None:
        """Spare the question for a session; `found` is the answer to the statement `session`."""
        if found is None:
            self._seen.sessions[session_id] = None
        else:
            self._meet(found, is_newest=True)

    def take_up_row(self, snapshot_id: str, found: tuple[Any, ...] | None) -> None:
        """Spare the question for a row that is not there, or is in a known session.

        `found` is the answer to the statement `row_alone`.
        """
        if found is None:
            self._seen.rows[snapshot_id] = None
            return
        number, *of_row = found
        for session in filter(None, self._seen.sessions.values()):
            if session.number == number:
                row = self._seen.rows[snapshot_id] = _row(session.session_id, *of_row)
                if session.newest_id == snapshot_id:
                    session.newest = row

    def take_up_length(self, session_id: str, line: int, found: tuple[Any, ...] | None) -> None:
        """Spare the question for the length of a line; `found` is the answer to the statement `length_of`."""
        session = self._seen.sessions.get(session_id)
        if session is not None:
            session.lengths[line] = 0 if found is None else found[0]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was sent: the transaction is as it was before this view."""
        return not self._has_sent

    @property
    def has_changed(self) -> bool:
        """Whether there is anything to commit."""
        return self._has_sent or self._has_waiting

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        session = self._session(session_id)
        if session is not None:
            session.mark = mark
            self._put("put_mark", session, redactions=mark.redactions, salt=mark.salt)
            return
        names = {"tenant": self._tenant, "session_id": session_id}
        self._has_sent = True
        added = self._ask("add_session", {**names, "redactions": mark.redactions, "salt": mark.salt}).fetchone()
        if added is None:
            raise CorruptStoreError(f"PostgreSQL gave session {session_id!r} no number")
        self._seen.sessions[session_id] = _Session(added[0], session_id, mark, 0, None, None)

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        session = self._known(session_id)
        self._put("drop_masks", session)
        digests, bodies = list(masks), list(masks.values())
        for part in parts(bodies, session_id, self._bounds):
            self._put("put_masks", session, digests=digests[part], replacements=bodies[part])

    def put_row(self, row: Row) -> None:
        session = self._known(row.session_id)
        before = self.row(row.snapshot_id)
        if before is not None and before.session_id != row.session_id:
            raise MovedError(f"snapshot {row.snapshot_id!r} is in another session")
        newest = self.latest(row.session_id, None)
        record = row.record
        written: dict[str, Any] = {
            "snapshot_id": row.snapshot_id,
            "created_at": record.created_at,
            "status": record.status,
            "agent_id": record.agent_id,
            "idempotency_key": record.idempotency_key,
            "revision": row.revision,
            "record": pack_record(record),
        }
        self._put("put_row", session, must=row.snapshot_id, **written)
        self._seen.rows[row.snapshot_id] = row
        if before is None:
            session.snapshots += 1
            session.moved = True
        elif before.record.status != record.status:
            self._told[row.snapshot_id] = None
        if newest is None or row.recency >= newest.recency:
            session.moved = session.moved or newest is None or newest.recency != row.recency
            _settle(session, row)
        elif newest.snapshot_id == row.snapshot_id:  # it was the newest, and was given an earlier time
            self._find_newest(session)

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        session = self._known(session_id)
        self._put("drop_rows", session, snapshot_ids=list(snapshot_ids))
        for snapshot_id in snapshot_ids:
            self._seen.rows[snapshot_id] = None
            self._told[snapshot_id] = None
        session.snapshots = self._count(session)
        self._find_newest(session)

    def new_line(self, session_id: str) -> int:
        found = self._ask("new_line", {}).fetchone()
        return 0 if found is None else found[0]

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        check_sizes(bodies, session_id, self._bounds)
        self._put_runs(self._known(session_id), list(pack_runs(line, at, bodies)))

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        session = self._known(session_id)
        runs = self._opened(session)
        before = bisect_right(runs, (line, at), key=lambda run: (run.line, run.first)) - 1
        run = runs[before] if before >= 0 else None
        if run is None or run.line != line or at - run.first >= len(run.bodies):
            raise lost(session_id, line, [at])
        run.bodies[at - run.first] = body
        session.changed[line, run.first] = run

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        if blobs:
            session, addresses = self._known(session_id), sorted(blobs)
            bodies = [blobs[address] for address in addresses]
            for part in parts(bodies, session_id, self._bounds):
                self._put("put_blobs", session, addresses=addresses[part], bodies=bodies[part])

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        session = self._known(session_id)
        extents = [Run(*found) for found in self._ask("extents", {"session": session.number})]
        session.open = None
        session.lengths.clear()
        left = {(run.line, run.first): _within(run, kept.get(run.line, ())) for run in extents}
        gone = [run for run in extents if left[run.line, run.first] != [(run.first, run.stop)]]
        if not gone:
            return 0
        cut = [run for run in gone if left[run.line, run.first]]
        rest: list[Run] = []
        if cut:
            for found in self._ask("some_runs", {"session": session.number, **_places(cut)}):
                run = Run(*found)
                held = _readable(run)
                for start, stop in left[run.line, run.first]:
                    rest += pack_runs(run.line, start, held[start - run.first : stop - run.first])
        self._put("drop_runs", session, **_places(gone))
        self._put_runs(session, rest)
        return sum(run.size for run in gone) - sum(run.size for run in rest)

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        return [
            (run.line, at, body)
            for run in self._opened(self._known(session_id))
            for at, body in enumerate(run.bodies, run.first)
        ]

    def addressed(self, session_id: str) -> set[bytes]:
        found = self._ask("addressed", {"session": self._known(session_id).number})
        return addresses_in(body for run in found for body in _readable(Run(*run)))

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        self._put("keep_blobs", self._known(session_id), addresses=list(addresses))

    def drop_session(self, session_id: str) -> None:
        session = self._known(session_id)
        ids = self._ask("row_ids", {"session": session.number, "limit": _MOST_NAMED + 1})
        self._told.update((found[0], None) for found in ids)
        session.moved = False
        self._put("drop_session", session)
        self.flush()
        self._seen = _Seen()

    def put_note(self, name: str, value: bytes | None) -> None:
        arguments: dict[str, Any] = {"tenant": self._tenant, "name": name}
        if value is None:
            self._waiting.append(_Write("drop_note", arguments))
        else:
            self._waiting.append(_Write("put_note", {**arguments, "value": value}))
        self._told[name] = None

    def ask_scrub(self) -> None:
        """Keep in mind that this transaction takes words back."""
        self._waiting.append(_Write("ask_scrub", {}))

    def flush(self) -> None:
        """Send what waits to be sent.

        Raises:
            MovedError: If a row's id was taken by another session's writer.
        """
        for session in self._seen.sessions.values():
            if session is not None and session.moved:
                session.moved = False
                counted: dict[str, Any] = {
                    "snapshots": session.snapshots,
                    "newest_at": session.newest_at,
                    "newest_id": session.newest_id,
                }
                self._put("put_newest", session, **counted)
        self._put_changed_runs()
        payloads = list(self._payloads())
        if payloads:
            self._waiting.append(_Write("notify", {"channel": self._channel, "payloads": payloads}))
            self._told.clear()
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._has_sent = True
        with together(self._connection):
            sent = [(write, execute(self._connection, STATEMENTS[write.name], write.arguments)) for write in waiting]
            named = execute(self._connection, STATEMENTS["transaction_id"])
        found = named.fetchone()
        self.transaction = None if found is None else found[0]
        for write, cursor in sent:
            if write.must is not None and cursor.rowcount != 1:
                raise MovedError(f"snapshot {write.must!r} is in another session")

    def _payloads(self) -> Iterator[str]:
        if len(self._told) > _MOST_NAMED:
            yield payload_of(self._tenant, None)
            return
        for name in self._told:
            yield payload_of(self._tenant, name)

    def _known(self, session_id: str) -> _Session:
        session = self._session(session_id)
        if session is None:
            raise CorruptStoreError(f"session {session_id!r} is not there")
        return session

    def _put(self, statement: str, session: _Session, *, must: str | None = None, **arguments: Any) -> None:
        if statement in {"put_row", "drop_rows"}:
            arguments["tenant"] = self._tenant
        self._waiting.append(_Write(statement, {"session": session.number, **arguments}, must))

    def _ask(self, name: str, arguments: dict[str, Any]) -> Cursor:
        if self._has_waiting:  # a change sees what it has changed
            self.flush()
        return super()._ask(name, arguments)

    @property
    def _has_waiting(self) -> bool:
        sessions = filter(None, self._seen.sessions.values())
        return bool(self._waiting) or any(session.changed for session in sessions)

    def _opened(self, session: _Session) -> list[_OpenRun]:
        """Every run of a session, in order, to be changed."""
        if session.open is None:
            runs = [Run(*found) for found in self._ask("runs", {"session": session.number})]
            session.open = [_OpenRun(run.line, run.first, _readable(run)) for run in runs]
        return session.open

    def _put_runs(self, session: _Session, runs: Sequence[Run]) -> None:
        session.lengths.clear()
        session.open = None  # what was changed in them waits still
        values = [run.value for run in runs]
        for part in parts(values, session.session_id, self._bounds):
            held = runs[part]
            if len(held) == 1:
                (run,) = held
                self._put("put_run", session, line=run.line, first=run.first, size=run.size, value=run.value)
            else:
                sizes = [run.size for run in held]
                self._put("put_runs", session, **_places(held), sizes=sizes, values=values[part])

    def _put_changed_runs(self) -> None:
        for session in filter(None, self._seen.sessions.values()):
            changed = list(session.changed.values())
            session.changed.clear()
            values = [pack(run.bodies) for run in changed]
            for part in parts(values, session.session_id, self._bounds):
                self._put("replace_runs", session, **_places(changed[part]), values=values[part])

    def _find_newest(self, session: _Session) -> None:
        _settle(session, self._one_row(session, "newest", {}))
        session.moved = True

    def _count(self, session: _Session) -> int:
        found = self._ask("count", {"session": session.number}).fetchone()
        return 0 if found is None else found[0]


def payload_of(tenant: str, name: str | None) -> str:
    """A notification: the tenant and what has changed; without the latter where it does not fit."""
    named = msgspec.json.encode([tenant] if name is None else [tenant, name])
    return named.decode() if len(named) <= _MOST_PAYLOAD else ""


def read_payload(payload: str) -> tuple[str | None, str | None]:
    """The tenant and the name in a notification; None for any."""
    try:
        found = msgspec.json.decode(payload, type=list[str])
    except msgspec.MsgspecError:
        found = []
    return (found[0] if found else None), (found[1] if len(found) > 1 else None)


def _readable(run: Run) -> list[bytes]:
    """A run's messages; of one that is damaged something that is no message, for each."""
    held = unpack(run.value, run.size)
    return [_DAMAGED] * run.size if held is None else held


def _places(runs: Sequence[Run | _OpenRun]) -> dict[str, Any]:
    return {"lines": [run.line for run in runs], "firsts": [run.first for run in runs]}


def _within(run: Run, intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What a run has of intervals, which are ascending and apart."""
    found: list[tuple[int, int]] = []
    for start, stop in intervals[max(0, bisect_right(intervals, run.first, key=lambda interval: interval[0]) - 1) :]:
        if start >= run.stop:
            break
        if stop > run.first:
            found.append((max(start, run.first), min(stop, run.stop)))
    return found


def _settle(session: _Session, newest: Row | None) -> None:
    session.newest = newest
    session.newest_at = None if newest is None else newest.record.created_at
    session.newest_id = None if newest is None else newest.snapshot_id


def _row(session_id: str, snapshot_id: str, revision: int, record: bytes) -> Row:
    try:
        return Row(snapshot_id, session_id, revision, unpack_record(record))
    except CorruptStoreError as error:
        raise CorruptStoreError(f"snapshot {snapshot_id!r} of session {session_id!r}: {error}") from error


def _arguments(query: Query) -> dict[str, Any]:
    after_at, after_id = query.after or (None, None)
    return {
        "limit": query.limit,
        "after_at": after_at,
        "after_id": after_id,
        "statuses": list(query.statuses) or None,
        "agent_id": query.agent_id,
        "since": query.since,
        "until": query.until,
    }

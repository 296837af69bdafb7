"""Sessions in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import MovedError, SessionRowError
from antiphon.store.backend import Job, Outcome, Query, Reading, SessionMark, Wake, one_by_one
from antiphon.store.base import EXPIRES_AFTER
from antiphon.store.core import StoreCore
from antiphon.store.line_store import LineStore
from antiphon.store.lines import lost
from antiphon.store.record import Row, addresses_in
from antiphon.store.tenants import Prefix

T = TypeVar("T")


class InMemorySessionStore(LineStore):
    """A session store in memory: for tests, and for programs that may forget. Everything else as in the durable ones.

    Args:
        prefix: The tenant, or a function that gives it for each operation.
        clock: Decides whether a row has expired.
        expires_after: Seconds without a heartbeat after which a row in flight reads as expired.
    """

    def __init__(
        self, *, prefix: Prefix = None, clock: Clock = SYSTEM_CLOCK, expires_after: float = EXPIRES_AFTER
    ) -> None:
        core = StoreCore(MemoryBackend(), name="antiphon-memory", clock=clock, expires_after=expires_after)
        super().__init__(core, prefix=prefix)


def open_url(url: str, **options: Any) -> InMemorySessionStore:
    """For `open_store`: each one is a store of its own.

    Raises:
        SessionRowError: If something is named: nobody else could open that.
    """
    if name := url.partition(":")[2]:
        raise SessionRowError(f"memory: names {name!r}, but stores in memory have no names: write memory:")
    return InMemorySessionStore(**options)


class MemoryBackend:
    """Dicts under a lock, and the plainest `Backend` there is."""

    blocking = False

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._wakes: list[Wake] = []
        self._lock = threading.RLock()

    def read(self, tenant: str, look: Callable[[Reading], T]) -> T:
        with self._lock:
            return look(self._tenant(tenant))

    def write(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes = one_by_one(self._carry_out, jobs)
        for wake in list(self._wakes):  # several stores may share one of these
            for tenant in {job.tenant for job in jobs}:
                wake(tenant, None)
        return outcomes

    def watch(self, wake: Wake) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake)

    def close(self) -> None:
        pass

    def _carry_out(self, job: Job) -> Any:
        with self._lock:
            return job.work(self._tenant(job.tenant))

    def _tenant(self, name: str) -> _Tenant:
        return self._tenants.setdefault(name, _Tenant())


@dataclass(slots=True)
class _Session:
    """One session. A message that was swept is None."""

    mark: SessionMark
    masks: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    lines: dict[int, list[bytes | None]] = field(default_factory=dict[int, "list[bytes | None]"])
    blobs: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    newest: Row | None = None


class _Tenant:
    """One tenant; fulfils `Writing`. Changes happen at once: a job raises before its first one."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._notes: dict[str, bytes] = {}
        self._last_line = 0

    def row(self, snapshot_id: str) -> Row | None:
        session = self._session_of.get(snapshot_id)
        return None if session is None else self._sessions[session].rows.get(snapshot_id)

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        session = self._sessions.get(session_id)
        if session is None or agent_id is None:
            return None if session is None else session.newest
        mine = (row for row in session.rows.values() if row.record.agent_id == agent_id)
        return max(mine, key=lambda row: row.recency, default=None)

    def keyed(self, idempotency_key: str) -> str | None:
        return self._keys.get(idempotency_key)

    def rows(self, session_id: str) -> list[Row]:
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.rows.values())

    def page(self, session_id: str, query: Query) -> list[Row]:
        found = [row for row in self.rows(session_id) if query.admits(row, row.snapshot_id)]
        return sorted(found, key=lambda row: row.recency, reverse=True)[: query.limit]

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        found = [
            (session_id, len(session.rows), session.newest)
            for session_id, session in self._sessions.items()
            if session.newest is not None and query.admits(session.newest, session_id)
        ]
        return sorted(found, key=lambda entry: (entry[2].record.created_at, entry[0]), reverse=True)[: query.limit]

    def mark(self, session_id: str) -> SessionMark | None:
        session = self._sessions.get(session_id)
        return None if session is None else session.mark

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        session = self._sessions.get(session_id)
        return {} if session is None else dict(session.masks)

    def length(self, session_id: str, line: int) -> int:
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.lines.get(line, ()))

    def messages(self, session_id: str, line: int, start: int, stop: int) -> list[bytes]:
        session = self._sessions.get(session_id)
        found = [] if session is None else session.lines.get(line, [])[start:stop]
        bodies = [body for body in found if body is not None]
        if len(bodies) != stop - start:
            there = {start + index for index, body in enumerate(found) if body is not None}
            raise lost(session_id, line, [at for at in range(start, stop) if at not in there])
        return bodies

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        session = self._sessions.get(session_id)
        return {} if session is None else {key: session.blobs[key] for key in addresses if key in session.blobs}

    def note(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            self._sessions[session_id] = _Session(mark)
        else:
            session.mark = mark

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        self._sessions[session_id].masks = dict(masks)

    def put_row(self, row: Row) -> None:
        session = self._sessions[row.session_id]
        if self._session_of.get(row.snapshot_id, row.session_id) != row.session_id:
            raise MovedError(f"snapshot {row.snapshot_id!r} is in another session")
        before = session.rows.get(row.snapshot_id)
        if before is not None and before.record.idempotency_key is not None:
            self._keys.pop(before.record.idempotency_key, None)
        session.rows[row.snapshot_id] = row
        self._session_of[row.snapshot_id] = row.session_id
        if row.record.idempotency_key is not None:
            self._keys[row.record.idempotency_key] = row.snapshot_id
        newest = session.newest
        if newest is None or row.recency >= newest.recency:
            session.newest = row
        elif newest.snapshot_id == row.snapshot_id:  # it was the newest, and was given an earlier time
            self._find_newest(session)

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        session = self._sessions[session_id]
        for snapshot_id in snapshot_ids:
            row = session.rows.pop(snapshot_id, None)
            if row is not None:
                del self._session_of[snapshot_id]
                if row.record.idempotency_key is not None:
                    self._keys.pop(row.record.idempotency_key, None)
        self._find_newest(session)

    def _find_newest(self, session: _Session) -> None:
        session.newest = max(session.rows.values(), key=lambda row: row.recency, default=None)

    def new_line(self, session_id: str) -> int:
        self._last_line += 1
        self._sessions[session_id].lines[self._last_line] = []
        return self._last_line

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        self._sessions[session_id].lines[line][at:] = bodies

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        self._sessions[session_id].lines[line][at] = body

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        for address, body in blobs.items():
            self._sessions[session_id].blobs.setdefault(address, body)

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        session = self._sessions[session_id]
        forgotten = 0
        for line, bodies in list(session.lines.items()):
            if line not in kept:
                del session.lines[line]
            else:
                left: list[bytes | None] = [None] * kept[line][-1][1]
                for start, stop in kept[line]:
                    left[start:stop] = bodies[start:stop]
                session.lines[line] = left
            now = sum(body is not None for body in session.lines.get(line, ()))
            forgotten += sum(body is not None for body in bodies) - now
        return forgotten

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        return [
            (line, at, body)
            for line, bodies in self._sessions[session_id].lines.items()
            for at, body in enumerate(bodies)
            if body is not None
        ]

    def addressed(self, session_id: str) -> set[bytes]:
        return addresses_in(body for _, _, body in self.bodies(session_id))

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        session = self._sessions[session_id]
        session.blobs = {address: body for address, body in session.blobs.items() if address in addresses}

    def drop_session(self, session_id: str) -> None:
        self.drop_rows(session_id, list(self._sessions[session_id].rows))
        del self._sessions[session_id]

    def put_note(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = value

"""What stores do beside saving, as steps: look up, list, remove, redact, and keep queues."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec

from antiphon.errors import InvalidTypeError, LeaseLostError, SessionRowError
from antiphon.ids import check_id
from antiphon.store.backend import Erasing, Job, Query, Reading, Writing
from antiphon.store.base import (
    STATUSES,
    Lease,
    PruneReport,
    RedactMessage,
    RedactPart,
    SessionInfo,
    SessionPage,
    SessionSnapshot,
    SnapshotPage,
    SnapshotStatus,
    from_microseconds,
    to_microseconds,
    with_expiry,
)
from antiphon.store.changes import erase_session, prune_session, redact_session, sweep_session
from antiphon.store.core import EVERY_ROW, Read, Steps, StoreCore, Write
from antiphon.store.leases import Queue, Ticket, dump, lease_key
from antiphon.store.leases import load as load_queue
from antiphon.store.record import Row
from antiphon.store.rows import Loaded, check_moment, check_name, load

T = TypeVar("T")

_MOST_LISTED = 1000
_LONGEST_S = 10**9


def get(core: StoreCore, tenant: str, snapshot_id: str, *, state: bool = True) -> Steps[SessionSnapshot | None]:
    """A row by id."""
    check_id("snapshot_id", snapshot_id)
    return (yield from _found(core, tenant, lambda view: view.row(snapshot_id), state=state))


def latest(
    core: StoreCore, tenant: str, session_id: str, agent_id: str | None, *, state: bool = True
) -> Steps[SessionSnapshot | None]:
    """The newest row of a session, or of one agent in it."""
    check_id("session_id", session_id)
    if agent_id is not None:
        check_id("agent_id", agent_id)
    return (yield from _found(core, tenant, lambda view: view.latest(session_id, agent_id), state=state))


def keyed(core: StoreCore, tenant: str, key: str) -> Steps[SessionSnapshot | None]:
    """The row that has an idempotency key."""
    check_name("idempotency_key", key)

    def look(view: Reading) -> Row | None:
        found = view.keyed(key)
        return None if found is None else view.row(found)

    return (yield from _found(core, tenant, look))


def _found(
    core: StoreCore, tenant: str, look: Callable[[Reading], Row | None], *, state: bool = True
) -> Steps[SessionSnapshot | None]:
    def read(view: Reading) -> Loaded | None:
        row = look(view)
        return None if row is None else load(view, tenant, row, state=state)

    loaded: Loaded | None = yield Read(tenant, read)
    if loaded is None:
        return None
    if loaded.messages is not None and core.known.get(loaded.origin) is None:
        core.known.put(loaded.origin, loaded.messages, loaded.size)
    return with_expiry(loaded.shown(state=state), core.clock.utc(), core.expires_after)


def stored_status(tenant: str, snapshot_id: str) -> Steps[str | None]:
    """A row's status as it is stored; None when the row is not there."""

    def read(view: Reading) -> str | None:
        row = view.row(snapshot_id)
        return None if row is None else row.record.status

    status: str | None = yield Read(tenant, read)
    return status


# Lists


def query_of(
    *,
    limit: int,
    cursor: str | None,
    status: SnapshotStatus | None,
    agent_id: str | None,
    since: datetime | None,
    until: datetime | None,
) -> Query:
    """What a list asks for.

    Raises:
        SessionRowError: If it makes no sense.
    """
    if type(limit) is not int or not 1 <= limit <= _MOST_LISTED:
        raise SessionRowError(f"limit={limit!r} is not from 1 to {_MOST_LISTED}")
    if status is not None and status not in STATUSES:
        raise SessionRowError(f"status={status!r} is none of {', '.join(STATUSES)}")
    return Query(
        limit=limit,
        after=None if cursor is None else _from_cursor(cursor),
        # An expired row is stored as one in flight; which of them have expired, the reader tells.
        statuses=frozenset()
        if status is None
        else frozenset({"pending", "aborting"} if status == "expired" else {status}),
        agent_id=agent_id,
        since=check_moment("since", since),
        until=check_moment("until", until),
    )


def list_sessions(core: StoreCore, tenant: str, query: Query, status: SnapshotStatus | None) -> Steps[SessionPage]:
    """Sessions by their newest row."""

    def read(view: Reading) -> list[tuple[str, int, Loaded]]:
        return [
            (session_id, count, load(view, tenant, row, state=False)) for session_id, count, row in view.sessions(query)
        ]

    found: list[tuple[str, int, Loaded]] = yield Read(tenant, read)
    sessions = [
        SessionInfo(session_id, count, with_expiry(loaded.shown(state=False), core.clock.utc(), core.expires_after))
        for session_id, count, loaded in found
    ]
    return SessionPage(
        tuple(session for session in sessions if status is None or session.latest.status == status),
        _cursor(found[-1][2].row.record.created_at, found[-1][0]) if len(found) == query.limit else None,
    )


def list_snapshots(
    core: StoreCore, tenant: str, session_id: str, query: Query, status: SnapshotStatus | None
) -> Steps[SnapshotPage]:
    """Rows of a session."""
    check_id("session_id", session_id)

    def read(view: Reading) -> list[Loaded]:
        return [load(view, tenant, row, state=False) for row in view.page(session_id, query)]

    found: list[Loaded] = yield Read(tenant, read)
    rows = [with_expiry(loaded.shown(state=False), core.clock.utc(), core.expires_after) for loaded in found]
    return SnapshotPage(
        tuple(row for row in rows if status is None or row.status == status),
        _cursor(*found[-1].row.recency) if len(found) == query.limit else None,
    )


def _cursor(created_at: int, id: str) -> str:
    return urlsafe_b64encode(msgspec.json.encode([created_at, id])).decode("ascii").rstrip("=")


def _from_cursor(cursor: str) -> tuple[int, str]:
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=tuple[int, str])
    except (ValueError, TypeError) as error:
        raise SessionRowError(f"cursor={cursor!r} is not one that a page gave") from error


# Removal


def delete_session(core: StoreCore, tenant: str, session_id: str) -> Steps[bool]:
    """Erase a session."""
    check_id("session_id", session_id)
    gone: bool = yield Write(
        Job(tenant, session_id, lambda tx: erase_session(tx, session_id), scrub=True), wakes=EVERY_ROW
    )
    core.known.forget()
    return gone


def prune(
    tenant: str, session_id: str, *, keep: int | None, older_than: datetime | None, max_bytes: int | None
) -> Steps[PruneReport]:
    """Remove old rows."""
    check_id("session_id", session_id)
    if keep is None and older_than is None and max_bytes is None:
        raise SessionRowError("prune needs keep=, older_than= or max_bytes=")
    if keep is not None and (type(keep) is not int or keep < 1):
        raise SessionRowError(f"keep={keep!r} is not a count of at least 1")
    if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 0):
        raise SessionRowError(f"max_bytes={max_bytes!r} is not a number of bytes")
    moment = check_moment("older_than", older_than)
    report: PruneReport = yield Write(
        Job(
            tenant,
            session_id,
            lambda tx: prune_session(tx, session_id, keep=keep, older_than=moment, max_bytes=max_bytes),
        ),
        wakes=EVERY_ROW,
    )
    return report


def sweep(core: StoreCore, tenant: str, session_id: str | None, grace: float) -> Steps[int]:
    """Forget what no row holds, in one session or all."""
    if session_id is not None:
        check_id("session_id", session_id)
    if not _is_number(grace) or not 0 <= grace < _LONGEST_S:
        raise SessionRowError(f"grace={grace!r} is not a number of seconds")
    before = to_microseconds(core.clock.utc() - timedelta(seconds=grace)) if grace > 0 else None
    forgotten = 0
    after: tuple[int, str] | None = None
    while True:
        if session_id is not None:
            sessions = [session_id]
        else:
            query = Query(limit=_MOST_LISTED, after=after)
            page: list[tuple[str, int, Row]] = yield Read(tenant, partial(_page_of_sessions, query=query))
            sessions = [found for found, _, _ in page]
            after = (page[-1][2].record.created_at, page[-1][0]) if len(page) == _MOST_LISTED else None
        for each in sessions:
            forgotten += yield Write(Job(tenant, each, partial(_sweep, session_id=each, before=before)))
        if after is None:
            return forgotten


def _page_of_sessions(view: Reading, query: Query) -> list[tuple[str, int, Row]]:
    return view.sessions(query)


def _sweep(tx: Writing, session_id: str, before: int | None) -> int:
    newest = tx.latest(session_id, None)
    if newest is None or (before is not None and newest.record.created_at >= before):
        return 0
    return sweep_session(tx, session_id)


def redact(
    core: StoreCore, tenant: str, session_id: str, message: RedactMessage, part: RedactPart | None
) -> Steps[int]:
    """Replace words wherever a session holds them."""
    check_id("session_id", session_id)
    for name, function in (("message", message), ("part", part)):
        if not callable(function) and (name == "message" or function is not None):
            raise InvalidTypeError(f"{name}={function!r} is not a function")

    def new_message(old: Any) -> dict[str, Any] | None:
        new = message(old)
        if new is not None and not isinstance(new, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise InvalidTypeError(f"message() returned {type(new).__name__}, not a dict or None")
        return new

    def new_part(name: str, old: Any) -> Any:
        new: Any = old if part is None else part(name, old)
        given: object = new
        if not name.startswith("data.") and not isinstance(given, dict):
            raise InvalidTypeError(f"part({name!r}, ...) returned {type(given).__name__}, not a dict")
        return new

    count: int = yield Write(
        Job(
            tenant,
            session_id,
            lambda tx: redact_session(tx, session_id, new_message, None if part is None else new_part),
            scrub=True,
        )
    )
    core.known.forget()  # the old words are not kept in memory either
    return count


def erasure_pending(tenant: str) -> Steps[bool]:
    """Whether bytes of what was redacted or deleted may still be in the backend's files."""
    pending: bool = yield Read(tenant, lambda view: isinstance(view, Erasing) and view.erasure_pending())
    return pending


# Queues


def _change_queue(
    core: StoreCore,
    tenant: str,
    session_id: str,
    change: Callable[[Queue, int], tuple[Queue, T]],
    *,
    wakes: bool = False,
) -> Steps[T]:
    name = lease_key(session_id)

    def work(tx: Writing) -> T:
        now = to_microseconds(core.clock.utc())
        stored = load_queue(tx.note(name))
        changed, result = change(stored.at(now), now)
        if changed != stored:
            tx.put_note(name, dump(changed))
        return result

    result: T = yield Write(Job(tenant, session_id, work), wakes=name if wakes else None)
    return result


def draw_ticket(
    core: StoreCore, tenant: str, session_id: str, owner: str, ttl: float, *, nonce: str, keep: bool
) -> Steps[tuple[Ticket, Ticket]]:
    """A ticket, and the one whose turn it is. Unless `keep`, a ticket that would have to wait is not drawn.

    Args:
        core: The store.
        tenant: Whose.
        session_id: The session.
        owner: Who draws.
        ttl: Seconds until its owner is believed to be dead.
        nonce: By which the ticket can be given back before its number is known.
        keep: Whether to wait.

    Raises:
        InvalidIdError: At once, before the first step, if `session_id` cannot name anything.
        SessionRowError: At once, if `owner` or `ttl` makes no sense.
    """
    check_id("session_id", session_id)
    check_name("owner", owner)
    microseconds = _ttl(ttl)

    def change(queue: Queue, now: int) -> tuple[Queue, tuple[Ticket, Ticket]]:
        changed, ticket = queue.draw(owner, now + microseconds, nonce)
        holder = changed.holder or ticket
        return (changed if keep or holder == ticket else queue), (ticket, holder)

    return _change_queue(core, tenant, session_id, change)


def keep_ticket(
    core: StoreCore, tenant: str, session_id: str, ticket: Ticket, ttl: float
) -> Steps[tuple[Ticket, Ticket]]:
    """The ticket with a later end, and the one whose turn it is.

    Raises:
        LeaseLostError: If the ticket's time was over.
    """
    microseconds = _ttl(ttl)

    def change(queue: Queue, now: int) -> tuple[Queue, tuple[Ticket, Ticket] | None]:
        changed = queue.renew(ticket.number, now + microseconds)
        renewed, holder = changed.find(ticket.number), changed.holder
        return changed, None if renewed is None or holder is None else (renewed, holder)

    kept = yield from _change_queue(core, tenant, session_id, change)
    if kept is None:
        raise LeaseLostError(session_id, ticket.owner)
    return kept


def whose_turn(core: StoreCore, tenant: str, session_id: str) -> Steps[int | None]:
    """The number of the ticket whose turn it is. Only looks: a change would wake who waits, and so itself."""

    def read(view: Reading) -> int | None:
        holder = load_queue(view.note(lease_key(session_id))).at(to_microseconds(core.clock.utc())).holder
        return None if holder is None else holder.number

    number: int | None = yield Read(tenant, read)
    return number


def give_back(core: StoreCore, tenant: str, session_id: str, called: int | str) -> Steps[None]:
    """Remove a ticket, given by its number or its nonce."""
    yield from _change_queue(core, tenant, session_id, lambda queue, _: (queue.leave(called), None), wakes=True)


def lease_of(session_id: str, ticket: Ticket) -> Lease:
    """A ticket whose turn it is, for its owner."""
    return Lease(session_id, ticket.owner, ticket.number, from_microseconds(ticket.expires_at))


def _ttl(seconds: Any) -> int:
    if not _is_number(seconds) or not 0 < seconds < _LONGEST_S:
        raise SessionRowError(f"ttl={seconds!r} is not a positive number of seconds")
    return int(seconds * 1_000_000)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

"""What a session store is: snapshots with identity, lineage and status.

A *session* is a tree of rows. A row (`SessionSnapshot`) is the state of one agent after one turn, or a run that is still
under way. `SessionStore` is what everybody needs; the other protocols are optional, each small, and a store says by
having the methods that it can do them (`isinstance` tells).

`antiphon.testing.SessionStoreContract` is the suite that defines a store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

from antiphon.snapshot.envelope import Snapshot

SnapshotStatus = Literal["pending", "aborting", "completed", "failed", "aborted", "expired"]
"""`expired` is computed when a row is read, and never stored: a worker has stopped giving signs of life."""

STATUSES: Final[tuple[str, ...]] = get_args(SnapshotStatus)

IN_FLIGHT: Final[frozenset[str]] = frozenset({"pending", "aborting"})
"""Statuses that somebody still owes the row another one for. Every other status is terminal: it never changes again."""

EXPIRES_AFTER: Final = 60.0
"""Seconds without a heartbeat after which a row in flight reads as `expired`."""


class Tip(Enum):
    """Which tips a writer accepts."""

    ANY = "any"


ANY_TIP: Final = Tip.ANY
"""As `expected_tip`: whatever the session's newest row is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """A row.

    Mutable parts (`error`, `usage`, `journal`, `snapshot`) of a row that a store gave are the caller's own. Use
    `dataclasses.replace` to make the next state of a row.

    Attributes:
        session_id: The conversation. Never changes once the row is there.
        created_at: When it was first written, with a time zone; the store keeps it to the microsecond and gives it in UTC.
            What is latest is decided by it, and the caller decides it.
        snapshot_id: The row's name, unique within a tenant. What stands here when a row is saved does not matter.
        agent_id: Which agent of the session; None where there is one only.
        parent_id: The row it descends from. It need not exist.
        updated_at: When its state or status last changed; None reads as `created_at`.
        heartbeat_at: When the worker of a row in flight last gave a sign of life.
        status: Empty is `completed`.
        finish_reason: Why the turn ended: `stop`, `length`, `interrupted`, `failed`, `aborted` and so on.
        error: What went wrong: `{"status": ..., "message": ..., "details"?: ...}`.
        usage: What the session has used so far, by name; numbers.
        owner: The worker that has the run.
        epoch: Raised by whoever adopts a run: a writer of an older epoch is refused.
        idempotency_key: Unique within a tenant: a repeated request finds the row of the first.
        journal: What is open beside the snapshot (`conversation.journal`).
        snapshot: The agent's state; None is not the same as an empty one. `data["messages"]` of a row that was read is
            a `StoredMessages`; `loaded()` gives plain lists.
    """

    session_id: str
    created_at: datetime
    snapshot_id: str = ""
    agent_id: str | None = None
    parent_id: str | None = None
    updated_at: datetime | None = None
    heartbeat_at: datetime | None = None
    status: SnapshotStatus | Literal[""] = ""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    owner: str | None = None
    epoch: int = 0
    idempotency_key: str | None = None
    journal: dict[str, Any] | None = None
    snapshot: Snapshot | None = None

    @property
    def terminal(self) -> bool:
        """Whether the status is settled for good. `expired` is not: a slow worker may still come back."""
        return self.status not in IN_FLIGHT and self.status != "expired"

    def status_at(self, now: datetime, *, expires_after: float = EXPIRES_AFTER) -> SnapshotStatus:
        """The status to show at `now`: `expired` for a row in flight whose last heartbeat is older than that.

        Without a heartbeat a row never expires.

        Args:
            now: With a time zone.
            expires_after: Seconds.
        """
        beat = self.heartbeat_at if self.status in IN_FLIGHT else None
        if beat is not None and now - beat > timedelta(seconds=expires_after):
            return "expired"
        return self.status or "completed"

    def loaded(self) -> Snapshot | None:
        """The snapshot with plain lists, ready for `load_snapshot`; None where there is none."""
        if self.snapshot is None:
            return None
        messages = self.snapshot.data.get("messages")
        if messages is None or isinstance(messages, list):
            return self.snapshot
        return replace(self.snapshot, data={**self.snapshot.data, "messages": list(messages)})


Change: TypeAlias = Callable[[SessionSnapshot | None], SessionSnapshot | None]
"""Makes the next state of a row from the one that is there (None: there is none). None declines: nothing is written.

It must be pure: where writers meet it is called again. It is shown the row as this store saw it last, before the store is
asked; if the row has changed since, or `fn` declines or raises, it is called again with the row as it is stored, and that counts.
It gets the stored status, never `expired`.
"""


@runtime_checkable
class SessionStore(Protocol):
    """Rows by id, and the latest of a session.

    Every operation is within one tenant. Rows are handed over as values: what a caller does to them afterwards changes
    nothing that is stored. A store serves any number of event loops and threads.

    Ids are as `antiphon.ids.check_id` takes them; others are refused (`InvalidIdError`).
    """

    async def get_snapshot(self, snapshot_id: str, /) -> SessionSnapshot | None:
        """The row of this id; None when there is none."""
        ...

    async def get_latest_snapshot(self, session_id: str, /, *, agent_id: str | None = None) -> SessionSnapshot | None:
        """The row with the greatest `created_at`, of any status; of two the one with the greater id (by code point).

        Rewriting a row does not move it. `parent_id` plays no part.

        Args:
            session_id: The session.
            agent_id: Only this agent's rows.
        """
        ...

    async def save_snapshot(
        self, snapshot_id: str, fn: Change, /, *, expected_tip: str | Tip | None = ANY_TIP
    ) -> SessionSnapshot | None:
        """Read a row, change it, and write it, as one step.

        The row is replaced whole by what `fn` returns. The store decides its id; its session is the one it had, or the
        one that `fn` gives a new row, and is never inferred. Times are kept as they are. An empty status is `completed`.

        Args:
            snapshot_id: The row; `""` makes a new one with an id of the store's.
            fn: See `Change`.
            expected_tip: The row that the caller took for the latest of the session (with `agent_id` of the new row, if
                that is set); None: it takes the session for empty.

        Returns:
            The row as it is now stored, or None when `fn` declined.

        Raises:
            SessionConflictError: If another row is the latest.
            TerminalStatusError: If the row has settled and `fn` changes its status.
            StaleEpochError: If the row's epoch is greater than the one that `fn` gives.
            IdempotencyKeyError: If another row has the key.
            SessionRowError: If `fn` gives a row that cannot be stored: without a session, with a naive time, `expired`.
            NotJsonError: If a part of it cannot be stored.
            ContendedError: If other writers were in the way too often.
        """
        ...


@runtime_checkable
class SnapshotSubscriber(Protocol):
    """Tells when a status changes, whoever changes it and in whichever process."""

    def on_snapshot_status_change(self, snapshot_id: str, /) -> AsyncIterator[SnapshotStatus]:
        """The status now, then each time that it has changed.

        A slow reader may miss one between two, never the last. Ends when the row is not there (also at once), and when
        it is closed; while the store is out of reach it waits, and goes on when the store is back. `expired` does not
        appear: nothing is written when a worker falls silent.
        """
        ...


@runtime_checkable
class SnapshotMetadataReader(Protocol):
    """Rows without their state, at a cost that does not depend on how long the conversation is."""

    async def get_snapshot_metadata(self, snapshot_id: str, /) -> SessionSnapshot | None:
        """`get_snapshot` with `snapshot` and `journal` None."""
        ...

    async def get_latest_snapshot_metadata(
        self, session_id: str, /, *, agent_id: str | None = None
    ) -> SessionSnapshot | None:
        """`get_latest_snapshot` with `snapshot` and `journal` None."""
        ...


@runtime_checkable
class IdempotencyReader(Protocol):
    """Finds the row of a request that was made before."""

    async def get_snapshot_by_key(self, idempotency_key: str, /) -> SessionSnapshot | None:
        """The row that has this key; None when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list.

    Attributes:
        session_id: Its id.
        snapshots: How many rows it has.
        latest: Its newest row, without its state.
    """

    session_id: str
    snapshots: int
    latest: SessionSnapshot


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some sessions, newest first; `cursor` gets the next page, and is None at the end."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Some rows without their state, newest first; `cursor` gets the next page, and is None at the end."""

    snapshots: tuple[SessionSnapshot, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed.

    Attributes:
        snapshot_ids: The rows.
        messages: How many messages no row holds any more.
    """

    snapshot_ids: tuple[str, ...] = ()
    messages: int = 0


@runtime_checkable
class SessionCatalogue(Protocol):
    """What is stored, and the removal of it."""

    async def list_sessions(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: SnapshotStatus | None = None,
        agent_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> SessionPage:
        """Sessions by their newest row: newest first, filtered by that row.

        Raises:
            SessionRowError: If the limit is not positive, the cursor is none of ours, or a time has no zone.
        """
        ...

    async def list_snapshots(
        self,
        session_id: str,
        /,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: SnapshotStatus | None = None,
        agent_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> SnapshotPage:
        """The rows of a session, newest first, without their state. Raises as `list_sessions` does."""
        ...

    async def delete_session(self, session_id: str, /) -> bool:
        """Erase a session from everything the store controls. Whether it was there."""
        ...

    async def prune(
        self,
        session_id: str,
        /,
        *,
        keep: int | None = None,
        older_than: datetime | None = None,
        max_bytes: int | None = None,
    ) -> PruneReport:
        """Remove old rows, oldest first: all but the newest `keep`, those created before a time, or until it fits.

        Never removed are the newest row, the last one that can be resumed from, rows with several children, rows in
        flight and their parents. A row that is kept reads back as before.

        Args:
            session_id: The session.
            keep: How many of the newest stay; at least 1.
            older_than: Only rows created before this are removed.
            max_bytes: Rows are removed until messages and parts of those left take at most this.

        Raises:
            SessionRowError: If none of the three is given, or one makes no sense.
        """
        ...

    async def sweep(self, session_id: str | None = None, /, *, grace: float = 0.0) -> int:
        """Forget messages that no row holds: of one session, or of all. Returns how many.

        Args:
            session_id: The session; None for all of the tenant.
            grace: Leave alone sessions whose newest row is younger than this, in seconds.
        """
        ...


@runtime_checkable
class SessionExporter(Protocol):
    """A session as one JSON Lines file, from any store to any other."""

    def export(self, session_id: str, /) -> AsyncIterator[bytes]:
        r"""The session as lines (each with its `\n`); every message once, however many rows hold it.

        Raises:
            SnapshotNotFoundError: If the session is not there.
        """
        ...

    async def import_(self, lines: Iterable[bytes], /) -> str:
        """Store what `export` gave, and return the session's id. Every row reads back the same.

        Raises:
            SnapshotExistsError: If the session is there already.
            SessionRowError: If these are not lines of an export; nothing was written.
        """
        ...


RedactMessage: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]
"""Gives a message's replacement, or None to leave it."""

RedactPart: TypeAlias = Callable[[str, Any], Any]
"""Gets a part's name (`data.state`, `app_data`, `error`, `usage`, `journal` ...) and its value; returns what shall stand
there, or the value itself to leave it."""


@runtime_checkable
class SessionRedactor(Protocol):
    """Takes words back."""

    async def redact(self, session_id: str, message: RedactMessage, /, *, part: RedactPart | None = None) -> int:
        """Replace messages in every row, branch and journal of a session, and leave no byte of the old ones.

        Whoever still holds an old message and saves it again saves the replacement; so it is with other parts, and with a
        text that was replaced within one, wherever it stands in a part as a whole (a field that was removed is removed
        where it comes back with its value). What the store had forgotten before (`prune`, `sweep`, an older state of a
        part) it does not know when it comes back: redact first, then prune. Both functions must be pure.

        Args:
            session_id: The session.
            message: Asked about every message.
            part: Asked about every other part of every row (the messages within one are asked about before: a journal's
                lines, what a run in the background has still to say, a turn that waits for a person).

        Returns:
            How many messages and parts were replaced, each counted once however many rows share it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a session, for a time.

    Attributes:
        session_id: The session.
        owner: Who has it.
        ticket: Its number: greater than that of every lease before, of any owner.
        expires_at: When it is over, unless it is renewed.
    """

    session_id: str
    owner: str
    ticket: int
    expires_at: datetime


@runtime_checkable
class SessionLease(Protocol):
    """A queue for a session: one owner at a time, in the order in which they came."""

    async def acquire_lease(
        self, session_id: str, /, *, owner: str, ttl: float = 30.0, wait: bool = True
    ) -> Lease | None:
        """Draw a ticket and wait until it is one's turn.

        Waiting is safe to cancel: the ticket is given back. Who dies while waiting, or with the lease, is passed over
        after `ttl` seconds.

        Args:
            session_id: The session; it need not exist.
            owner: The caller's name, different for each run.
            ttl: Seconds; positive.
            wait: False: None at once when it is somebody else's turn, and no ticket is kept.
        """
        ...

    async def renew_lease(self, lease: Lease, /, *, ttl: float = 30.0) -> Lease:
        """The lease, for `ttl` seconds from now.

        Raises:
            LeaseLostError: If it was over.
            InvalidTypeError: If it is not a lease (but None, for instance).
        """
        ...

    async def release_lease(self, lease: Lease, /) -> None:
        """Give it back; nothing happens when it was over.

        Raises:
            InvalidTypeError: If it is not a lease.
        """
        ...


def with_expiry(row: SessionSnapshot, now: datetime, expires_after: float = EXPIRES_AFTER) -> SessionSnapshot:
    """The row as it is shown at `now` (`SessionSnapshot.status_at`)."""
    shown = row.status_at(now, expires_after=expires_after)
    return row if shown == row.status else replace(row, status=shown)


def add_usage(total: Mapping[str, Any] | None, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """Usage totals: numbers of one name are added, at any depth; of anything else the later stands.

    >>> add_usage({"inputTokens": 3, "custom": {"gpu_s": 1.5}}, {"inputTokens": 4, "custom": {"gpu_s": 0.5}})
    {'inputTokens': 7, 'custom': {'gpu_s': 2.0}}
    """
    result: dict[str, Any] = dict(total or {})
    for name, value in (more or {}).items():
        before = result.get(name)
        if isinstance(value, Mapping):
            nested = cast("Mapping[str, Any]", value)
            result[name] = add_usage(cast("Mapping[str, Any]", before) if isinstance(before, Mapping) else None, nested)
        elif _is_number(value) and _is_number(before):
            result[name] = before + value
        else:
            result[name] = value
    return result


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970; `moment` has a time zone."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The moment in UTC."""
    return _EPOCH + value * _MICROSECOND

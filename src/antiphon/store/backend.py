"""The seam between what all session stores do and where one keeps it.

`LineStore` (in `store.line_store`) fulfils the whole contract of session stores over a `Backend`. A backend knows tables
and bytes, and nothing of messages, statuses, tips or tenants' rights: it gives a consistent view (`Reading`) and an
atomic change (`Writing`) of

* rows, by tenant and id, with a few fields by which they are found (`Row`);
* lines: append-only runs of bodies, by session, number and position;
* blobs: large bodies, by session and address (`store.record.body`);
* a little about each session: a count of its redactions, a salt, and digests of what was redacted;
* notes: small values by tenant and name.

Nothing here is shared between tenants or between sessions. A backend fails with `SessionStoreError` and its kinds, the
driver's error chained, and stays usable: the next call tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from antiphon.store.record import Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionMark:
    """What is kept of a session beside its rows.

    Attributes:
        redactions: How many redactions it has seen.
        salt: Random bytes, made with the session.
    """

    redactions: int
    salt: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows, or sessions by their newest row, and where to go on. Newest first.

    Attributes:
        limit: How many at most; positive.
        after: Give only what comes after this `(created_at, id)` in that order: older, or as old with a smaller id.
            For sessions the id is the session's.
        statuses: Only these stored statuses; empty for any.
        agent_id: Only this agent's; None for any.
        since: Only those created at this microsecond or later.
        until: Only those created before this microsecond.
    """

    limit: int
    after: tuple[int, str] | None = None
    statuses: frozenset[str] = frozenset()
    agent_id: str | None = None
    since: int | None = None
    until: int | None = None

    def admits(self, row: Row, id: str) -> bool:
        """Whether a row (or the session `id`, by its newest row) belongs to the answer, the limit aside."""
        record = row.record
        return (
            (self.after is None or (record.created_at, id) < self.after)
            and (not self.statuses or record.status in self.statuses)
            and (self.agent_id is None or record.agent_id == self.agent_id)
            and (self.since is None or record.created_at >= self.since)
            and (self.until is None or record.created_at < self.until)
        )


class Reading(Protocol):
    """One consistent view of one tenant: what is committed meanwhile is not seen."""

    def row(self, snapshot_id: str) -> Row | None:
        """The row of this id, in whichever session."""
        ...

    def latest(self, session_id: str, agent_id: str | None) -> Row | None:
        """The row with the greatest `Row.recency`, of any status; of one agent's rows when `agent_id` is given."""
        ...

    def keyed(self, idempotency_key: str) -> str | None:
        """The id of the row that has this key."""
        ...

    def rows(self, session_id: str) -> list[Row]:
        """All rows of a session, in any order."""
        ...

    def page(self, session_id: str, query: Query) -> list[Row]:
        """Rows of a session by `Query`, by descending `recency`. Must not read what it does not give (but filters)."""
        ...

    def sessions(self, query: Query) -> list[tuple[str, int, Row]]:
        """Sessions by `Query`: id, number of rows, newest row; by descending `(created_at of the newest row, id)`.

        Only sessions with rows. 20 of 10,000 take at most 10 ms: keep each session's newest row in an index.
        """
        ...

    def mark(self, session_id: str) -> SessionMark | None:
        """What is kept of a session; None when it is not there."""
        ...

    def masks(self, session_id: str) -> dict[bytes, bytes]:
        """What was redacted in a session: digests, and what stands in the place now."""
        ...

    def length(self, session_id: str, line: int) -> int:
        """One more than the greatest position on a line; 0 for a line that is not there."""
        ...

    def messages(self, session_id: str, line: int, start: int, stop: int) -> Sequence[bytes]:
        """The bodies at these positions, in order.

        Raises:
            CorruptStoreError: If one is not there; names session, line and positions.
        """
        ...

    def blobs(self, session_id: str, addresses: set[bytes]) -> Mapping[bytes, bytes]:
        """Those of these blobs that are there."""
        ...

    def note(self, name: str) -> bytes | None:
        """A small value."""
        ...


class Writing(Reading, Protocol):
    """A change of one session of one tenant, with what it has changed so far in view.

    The session is locked, across processes too, until the change is durable or given up. All of it happens or nothing.
    """

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        """Keep this of the session. Always the first thing that is written of a new one."""
        ...

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        """Keep these, and no others."""
        ...

    def put_row(self, row: Row) -> None:
        """Write a row, in the place of the one with its id, which has the same session.

        Raises:
            MovedError: If an id or a key that was free in this view turns out to be taken (by another session's writer).
        """
        ...

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        """Remove rows. Their messages stay until `keep_messages`."""
        ...

    def new_line(self, session_id: str) -> int:
        """The number of a new line: positive, and never used before in this session, nor in one of its name."""
        ...

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        """Put bodies on a line, from position `at` on, which is its `length`."""
        ...

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        """Put another body in the place of one that is there."""
        ...

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        """Add blobs; those that are there already cost nothing."""
        ...

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        """Forget every message of the session outside of these intervals by line (ascending and apart).

        Returns how many were forgotten. Lines that are not named are gone; the others keep their numbering.
        """
        ...

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        """Every message of the session: line, position, body."""
        ...

    def addressed(self, session_id: str) -> set[bytes]:
        """The addresses that stand in the place of messages."""
        ...

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        """Forget every blob of the session but these."""
        ...

    def drop_session(self, session_id: str) -> None:
        """Forget the session, its rows, lines, blobs and masks. Its line numbers are not used again."""
        ...

    def put_note(self, name: str, value: bytes | None) -> None:
        """Keep a small value; None forgets it."""
        ...


@runtime_checkable
class Erasing(Protocol):
    """A view of a medium that may have to wait for others before it can remove bytes; optional."""

    def erasure_pending(self) -> bool:
        """Whether bytes of what was taken back may still be there, of whichever tenant."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A change to carry out.

    Attributes:
        tenant: Whose.
        session_id: The session that it changes.
        work: Gets the view and makes the changes. What it raises, it raises before its first change.
        is_new: An id that `work` may take for a new row; a backend that keeps ids apart from sessions can lock it.
        scrub: Whether what is forgotten must leave no byte behind, in whatever of the medium the backend still controls:
            log, WAL, free pages, backups of its own. What a reader still holds may wait; the backend finishes it as soon
            as it can, also after a restart.
        also_new: More such ids as `is_new`.
        line: The line whose length `work` asks for; a backend behind a network can bring it along.
    """

    tenant: str
    session_id: str
    work: Callable[[Writing], Any]
    is_new: str | None = None
    scrub: bool = False
    also_new: tuple[str, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job: what `work` returned, or what was raised instead."""

    value: Any = None
    error: BaseException | None = None


Wake = Callable[[str | None, str | None], None]
"""Told `(tenant, snapshot_id)` of a row that may have changed; None for any. May be called from any thread, and in vain."""


class Backend(Protocol):
    """A place for rows and lines.

    `read` is called on one thread, `write` on another, at the same time; both are called one at a time. Where `blocking` is
    False no thread is used, and both may be called from any. The constructor opens the place or fails: a folder that
    cannot be made, a foreign or newer schema (`StoreSchemaError`).
    """

    @property
    def blocking(self) -> bool:
        """Whether calls may wait for a disk, a lock or a network."""
        ...

    def read(self, tenant: str, look: Callable[[Reading], T]) -> T:
        """Give `look` a consistent view and return what it returns."""
        ...

    def write(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Carry out jobs in their order, each wholly or not at all; what succeeded is durable when this returns.

        They may share a transaction and its fsync: a job that raises an error of ours has changed nothing, so the others
        go on; after any other error the transaction is taken back and each job tried for itself.
        """
        ...

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` whenever another object or process may have changed a row, until the returned function is called.

        Called while somebody subscribes, once at a time. Where nothing tells, poll: `wake(None, None)` will do.
        """
        ...

    def close(self) -> None:
        """Let go of everything; called with no call under way. Afterwards the next call opens the place again."""
        ...


def one_by_one(carry_out: Callable[[Job], Any], jobs: Sequence[Job]) -> list[Outcome]:
    """`Backend.write` for backends whose jobs share nothing."""
    outcomes: list[Outcome] = []
    for job in jobs:
        try:
            outcomes.append(Outcome(carry_out(job)))
        except Exception as error:  # noqa: BLE001 - each error belongs to the one who handed the job in
            outcomes.append(Outcome(error=error))
    return outcomes

"""The whole contract of session stores, over any backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Self, cast

from antiphon.errors import CorruptStoreError, InvalidTypeError, SessionRowError, SessionStoreError, StoreSchemaError
from antiphon.ids import check_id, new_uuid7
from antiphon.snapshot.diff import SnapshotDiff
from antiphon.store.base import (
    ANY_TIP,
    Change,
    Lease,
    PruneReport,
    RedactMessage,
    RedactPart,
    SessionPage,
    SessionSnapshot,
    SnapshotPage,
    SnapshotStatus,
    Tip,
)
from antiphon.store.core import StoreCore
from antiphon.store.export import export_lines, import_rows, parse_export
from antiphon.store.leases import Ticket, lease_key
from antiphon.store.lineage import SnapshotTree, session_tree, snapshot_diff
from antiphon.store.operations import (
    delete_session,
    draw_ticket,
    erasure_pending,
    get,
    give_back,
    keep_ticket,
    keyed,
    latest,
    lease_of,
    list_sessions,
    list_snapshots,
    prune,
    query_of,
    redact,
    stored_status,
    sweep,
    whose_turn,
)
from antiphon.store.saving import save
from antiphon.store.sync import SyncSessionStore
from antiphon.store.tenants import Prefix, check_tenant, current_tenant
from antiphon.store.watching import Watcher

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How often a waiting ticket is looked at where nothing tells that it is its turn."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
"""Between two looks of a subscription at a store that is out of reach."""


class LineStore:
    """A session store over a `Backend`: every protocol of `antiphon.store.base`.

    One object serves any number of event loops and threads, and blocks none of them.

    Args:
        core: The backend with its threads; shared by all views of one store.
        prefix: The tenant, or a function that gives it for each operation.

    Attributes:
        sync: The same store for plain code.
    """

    def __init__(self, core: StoreCore, *, prefix: Prefix = None) -> None:
        if prefix is not None and not callable(prefix):
            check_tenant(prefix)
        self._core, self._prefix = core, prefix
        self.sync = SyncSessionStore(core, prefix)

    def for_tenant(self, tenant: str) -> LineStore:
        """A view of this store for one tenant, `org-42/user-7` for instance.

        A view of a view that has a tenant lies beneath it: nobody gets out of the tenant that a view was made for.

        Raises:
            SessionRowError: If it cannot name one.
        """
        name = check_tenant(tenant)
        if self._prefix is not None:
            name = check_tenant(f"{self._tenant()}/{name}")
        return LineStore(self._core, prefix=name)

    def close(self) -> None:
        """Finish what was handed in and let go of files, connections and threads; of all views at once."""
        self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.close)

    async def get_snapshot(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return await self._core.run(get(self._core, self._tenant(), snapshot_id))

    async def get_latest_snapshot(self, session_id: str, /, *, agent_id: str | None = None) -> SessionSnapshot | None:
        return await self._core.run(latest(self._core, self._tenant(), session_id, agent_id))

    async def save_snapshot(
        self, snapshot_id: str, fn: Change, /, *, expected_tip: str | Tip | None = ANY_TIP
    ) -> SessionSnapshot | None:
        return await self._core.run(save(self._core.known, self._tenant(), snapshot_id, fn, expected_tip))

    async def get_snapshot_metadata(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return await self._core.run(get(self._core, self._tenant(), snapshot_id, state=False))

    async def get_latest_snapshot_metadata(
        self, session_id: str, /, *, agent_id: str | None = None
    ) -> SessionSnapshot | None:
        return await self._core.run(latest(self._core, self._tenant(), session_id, agent_id, state=False))

    async def get_snapshot_by_key(self, idempotency_key: str, /) -> SessionSnapshot | None:
        return await self._core.run(keyed(self._core, self._tenant(), idempotency_key))

    def on_snapshot_status_change(self, snapshot_id: str, /) -> AsyncIterator[SnapshotStatus]:
        return self._statuses(self._tenant(), snapshot_id)

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
        query = query_of(limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until)
        return await self._core.run(list_sessions(self._core, self._tenant(), query, status))

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
        query = query_of(limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until)
        return await self._core.run(list_snapshots(self._core, self._tenant(), session_id, query, status))

    async def tree(self, session_id: str, /) -> SnapshotTree:
        """The session as a tree; without rows when it is not there."""
        return await session_tree(self._pinned(), session_id)

    async def diff(self, one: str, other: str, /) -> SnapshotDiff:
        """What makes the state of the second row of the first one's.

        Raises:
            SnapshotNotFoundError: If one of them is not there.
        """
        return await snapshot_diff(self._pinned(), one, other)

    async def delete_session(self, session_id: str, /) -> bool:
        return await self._core.run(delete_session(self._core, self._tenant(), session_id))

    async def prune(
        self,
        session_id: str,
        /,
        *,
        keep: int | None = None,
        older_than: datetime | None = None,
        max_bytes: int | None = None,
    ) -> PruneReport:
        return await self._core.run(
            prune(self._tenant(), session_id, keep=keep, older_than=older_than, max_bytes=max_bytes)
        )

    async def sweep(self, session_id: str | None = None, /, *, grace: float = 0.0) -> int:
        return await self._core.run(sweep(self._core, self._tenant(), session_id, grace))

    def export(self, session_id: str, /) -> AsyncIterator[bytes]:
        return self._export(self._tenant(), session_id)

    async def import_(self, lines: Iterable[bytes], /) -> str:
        return await self._core.run(import_rows(self._tenant(), parse_export(lines)))

    async def redact(self, session_id: str, message: RedactMessage, /, *, part: RedactPart | None = None) -> int:
        return await self._core.run(redact(self._core, self._tenant(), session_id, message, part))

    async def erasure_pending(self) -> bool:
        """Whether bytes of what was redacted or deleted may still be in a file.

        So it is while somebody else reads an older state of the database, and for a moment after that: the store removes
        them as soon as it can, in SQLite by itself and in PostgreSQL with its next change; if need be, when it is opened
        again.
        """
        return await self._core.run(erasure_pending(self._tenant()))

    async def acquire_lease(
        self, session_id: str, /, *, owner: str, ttl: float = 30.0, wait: bool = True
    ) -> Lease | None:
        tenant, core = self._tenant(), self._core
        with Watcher(core.hub, (tenant, lease_key(session_id))) as watcher:
            nonce = new_uuid7()
            drawing = draw_ticket(core, tenant, session_id, owner, ttl, nonce=nonce, keep=wait)
            try:
                ticket, holder = await core.run(drawing)
                if not wait and holder.number != ticket.number:
                    return None
                turn: int | None = holder.number
                renewed = core.clock.now()
                while turn != ticket.number:
                    await watcher.changed_or(core.clock, min(_LOOK_S, ttl / 3))
                    turn = await core.run(whose_turn(core, tenant, session_id))
                    if turn == ticket.number or core.clock.now() - renewed >= ttl / 3:
                        ticket, holder = await core.run(keep_ticket(core, tenant, session_id, ticket, ttl))
                        turn, renewed = holder.number, core.clock.now()
            except BaseException:
                with suppress(SessionStoreError):  # what happened first is what is told
                    # By its nonce: who is cancelled while a ticket is drawn never learns its number.
                    await core.run(give_back(core, tenant, session_id, nonce))
                raise
            return lease_of(session_id, ticket)

    async def renew_lease(self, lease: Lease, /, *, ttl: float = 30.0) -> Lease:
        held = _checked(lease)
        ticket, _ = await self._core.run(
            keep_ticket(self._core, self._tenant(), held.session_id, Ticket(held.ticket, held.owner, 0), ttl)
        )
        return lease_of(held.session_id, ticket)

    async def release_lease(self, lease: Lease, /) -> None:
        held = _checked(lease)
        await self._core.run(give_back(self._core, self._tenant(), held.session_id, held.ticket))

    def _tenant(self) -> str:
        return current_tenant(self._prefix)

    def _pinned(self) -> LineStore:
        """This store for an operation of several steps, all of which are the same tenant's."""
        return LineStore(self._core, prefix=self._tenant())

    async def _export(self, tenant: str, session_id: str) -> AsyncIterator[bytes]:
        for line in await self._core.run(export_lines(tenant, session_id)):
            yield line

    async def _statuses(self, tenant: str, snapshot_id: str) -> AsyncIterator[SnapshotStatus]:
        check_id("snapshot_id", snapshot_id)
        with Watcher(
            self._core.hub, (tenant, snapshot_id)
        ) as watcher:  # first of all: what comes after it is not missed
            last: str | None = None
            while True:
                status = await self._status(tenant, snapshot_id, watcher)
                if status is None:
                    return
                if status != last:
                    last = status
                    yield cast("SnapshotStatus", status)
                await watcher.changed()

    async def _status(self, tenant: str, snapshot_id: str, watcher: Watcher) -> str | None:
        """A row's status as it is stored, as soon as the store can be asked; None when the row is not there."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await self._core.run(stored_status(tenant, snapshot_id))
            except (CorruptStoreError, SessionRowError, StoreSchemaError):
                raise  # waiting mends none of these
            except SessionStoreError as error:
                if pause == _FIRST_PAUSE_S:
                    _log.warning("the status of snapshot %r cannot be read for now: %s", snapshot_id, error)
            await self._core.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            if self._core.hub.is_paused:  # closed: a look would open everything again, and its next use wakes us
                await watcher.changed()


def _checked(lease: object) -> Lease:
    if not isinstance(lease, Lease):
        raise InvalidTypeError(f"{lease!r} is not a Lease: give what acquire_lease returned, when it is not None")
    return lease

"""A storage and a session store that fail on demand: before or after any write, for a while or for ever."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from antiphon.errors import SessionStoreError, StorageError
from antiphon.storage.base import Storage
from antiphon.storage.namespace import NamespacedStorage
from antiphon.store.base import (
    ANY_TIP,
    Change,
    PruneReport,
    RedactMessage,
    RedactPart,
    SessionPage,
    SessionSnapshot,
    SnapshotPage,
    SnapshotStatus,
    Tip,
)
from antiphon.store.line_store import LineStore

T = TypeVar("T")
Verb = Literal["write", "read", "delete", "list"]
Moment = Literal["before", "after"]
CHANGES: tuple[Verb, ...] = ("write", "delete")


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that was asked of a storage or store.

    Attributes:
        verb: What. Of a store, `save_snapshot` and `redact` are writes.
        key: On which key or prefix; of a store, on which row or session.
        size: Bytes given to a storage's write; 0 otherwise.
    """

    verb: Verb
    key: str
    size: int = 0


@dataclass(slots=True)
class _Fault:
    verbs: Sequence[Verb]
    key: str
    moment: Moment
    times: float
    error: Exception | None
    gate: Hold | None = None

    def concerns(self, operation: Operation, moment: Moment) -> bool:
        return (
            self.times > 0
            and moment == self.moment
            and operation.verb in self.verbs
            and operation.key.endswith(self.key)
        )


class Hold:
    """Operations that wait at a storage's door until `release`. Works across threads and event loops."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._released: Future[None] = Future()

    async def reached(self) -> None:
        """Return as soon as an operation waits."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def release(self) -> None:
        """Let them go on."""
        if not self._released.done():
            self._released.set_result(None)

    async def pass_through(self) -> None:
        """Wait for `release`, as an operation."""
        if not self._reached.done():
            self._reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._released))


class Faults:
    """What goes wrong, and when.

    Args:
        cut_at: Cut the power at this change, counted from 1.
        cut: Cut it before the change reaches the place, or after it did but before anybody knows.
        default: What an operation raises that fails.

    Attributes:
        operations: What was asked so far, refused operations included, in the order in which it arrived.
        off: Whether the power is off.
    """

    def __init__(
        self, *, cut_at: int | None = None, cut: Moment = "before", default: Callable[[str], Exception] = StorageError
    ) -> None:
        self.operations: list[Operation] = []
        self.off = False
        self._cut_at, self._cut, self._default = cut_at, cut, default
        self._changes = 0
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def fail(
        self,
        times: float = float("inf"),
        *,
        verbs: Sequence[Verb] = CHANGES,
        key: str = "",
        when: Moment = "before",
        error: Exception | None = None,
    ) -> None:
        """Let operations fail.

        Args:
            times: How many; infinity until `mend`.
            verbs: Which.
            key: Only on keys that end so.
            when: Before they reach the place, or after (done, but reported as failed).
            error: What they raise; by default a `StorageError` of a storage, a `SessionStoreError` of a store.
        """
        with self._lock:
            self._faults.append(_Fault(verbs, key, when, times, error))

    def hold(
        self, *, verbs: Sequence[Verb] = CHANGES, key: str = "", when: Moment = "before", times: float = 1
    ) -> Hold:
        """Let operations wait: a slow storage, or one that hangs."""
        gate = Hold()
        with self._lock:
            self._faults.append(_Fault(verbs, key, when, times, None, gate))
        return gate

    def mend(self) -> None:
        """End all faults, and let everything go on that waits."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            if fault.gate is not None:
                fault.gate.release()

    def cut_power(self) -> None:
        """Refuse everything from now on."""
        self.off = True

    @property
    def changes(self) -> int:
        """How many writes and deletes were asked for so far."""
        return self._changes

    def written(self, key: str = "") -> list[Operation]:
        """The writes so far to keys that end with `key`."""
        return [entry for entry in self.operations if entry.verb == "write" and entry.key.endswith(key)]

    async def _enter(self, operation: Operation) -> bool:
        """Returns whether the power goes off after this operation."""
        with self._lock:
            self.operations.append(operation)
            cut = False
            if operation.verb in CHANGES:
                self._changes += 1
                cut = self._changes == self._cut_at
            self.off = self.off or (cut and self._cut == "before")
        await self._meet(operation, "before")
        return cut

    async def _leave(self, operation: Operation, *, cut: bool) -> None:
        self.off = self.off or cut
        await self._meet(operation, "after")

    async def _meet(self, operation: Operation, moment: Moment) -> None:
        self._refuse_without_power(operation)
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(operation, moment)), None)
            if fault is not None:
                fault.times -= 1
        if fault is None:
            return
        if fault.gate is None:
            raise fault.error or self._default(f"{operation.verb} of {operation.key!r} failed, as it was told to")
        await fault.gate.pass_through()
        self._refuse_without_power(operation)

    def _refuse_without_power(self, operation: Operation) -> None:
        if self.off:
            raise self._default(f"{operation.verb} of {operation.key!r}: the power is off")


class FaultStorage(Faults):
    """Any storage, with faults.

    It counts what is asked of it, refuses when told so, and can cut the power: from then on it refuses everything, and what
    it holds is what the next process finds (open another `FaultStorage`, or the storage within, on it).

    Args:
        storage: Holds the bytes.
        cut_at: Cut the power at this change (write or delete), counted from 1.
        cut: Cut it before the change reaches the storage, or after it did but before anybody knows.

    Attributes:
        storage: The storage within.
    """

    def __init__(self, storage: Storage, *, cut_at: int | None = None, cut: Moment = "before") -> None:
        super().__init__(cut_at=cut_at, cut=cut)
        self.storage = storage

    async def write(self, key: str, data: bytes, /) -> None:
        """Put `data` at `key`, if nothing is in the way."""
        operation = Operation("write", key, len(data))
        cut = await self._enter(operation)
        await self.storage.write(key, data)
        await self._leave(operation, cut=cut)

    async def read(self, key: str, /) -> bytes | None:
        """The value at `key`, if nothing is in the way."""
        operation = Operation("read", key)
        cut = await self._enter(operation)
        data = await self.storage.read(key)
        await self._leave(operation, cut=cut)
        return data

    async def delete(self, key: str, /) -> None:
        """Remove `key`, if nothing is in the way."""
        operation = Operation("delete", key)
        cut = await self._enter(operation)
        await self.storage.delete(key)
        await self._leave(operation, cut=cut)

    async def list(self, prefix: str = "", /) -> builtins.list[str]:
        """All keys that begin with `prefix`, if nothing is in the way."""
        operation = Operation("list", prefix)
        cut = await self._enter(operation)
        keys = await self.storage.list(prefix)
        await self._leave(operation, cut=cut)
        return keys

    def namespace(self, prefix: str) -> NamespacedStorage:
        """A view of the keys under `prefix`, with the same faults."""
        return NamespacedStorage(self, prefix)


class FaultStore(Faults):
    """A session store of ours, with faults.

    It counts, refuses and cuts the power as `FaultStorage` does. It has the operations that session managers use, for
    coroutines.

    Args:
        store: Holds the rows.
        cut_at: Cut the power at this change (`save_snapshot`, `redact`, `prune`, `sweep`, `delete_session`), counted from 1.
        cut: Cut it before the change reaches the store, or after it did but before anybody knows.

    Attributes:
        store: The store within.
    """

    def __init__(self, store: LineStore, *, cut_at: int | None = None, cut: Moment = "before") -> None:
        super().__init__(cut_at=cut_at, cut=cut, default=SessionStoreError)
        self.store = store

    async def get_snapshot(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return await self._meeting("read", snapshot_id, self.store.get_snapshot(snapshot_id))

    async def get_latest_snapshot(self, session_id: str, /, *, agent_id: str | None = None) -> SessionSnapshot | None:
        return await self._meeting("read", session_id, self.store.get_latest_snapshot(session_id, agent_id=agent_id))

    async def get_snapshot_metadata(self, snapshot_id: str, /) -> SessionSnapshot | None:
        return await self._meeting("read", snapshot_id, self.store.get_snapshot_metadata(snapshot_id))

    async def get_latest_snapshot_metadata(
        self, session_id: str, /, *, agent_id: str | None = None
    ) -> SessionSnapshot | None:
        found = self.store.get_latest_snapshot_metadata(session_id, agent_id=agent_id)
        return await self._meeting("read", session_id, found)

    async def save_snapshot(
        self, snapshot_id: str, fn: Change, /, *, expected_tip: str | Tip | None = ANY_TIP
    ) -> SessionSnapshot | None:
        saved = self.store.save_snapshot(snapshot_id, fn, expected_tip=expected_tip)
        return await self._meeting("write", snapshot_id, saved)

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
        page = self.store.list_sessions(
            limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until
        )
        return await self._meeting("list", "", page)

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
        page = self.store.list_snapshots(
            session_id, limit=limit, cursor=cursor, status=status, agent_id=agent_id, since=since, until=until
        )
        return await self._meeting("list", session_id, page)

    async def delete_session(self, session_id: str, /) -> bool:
        return await self._meeting("delete", session_id, self.store.delete_session(session_id))

    async def prune(
        self,
        session_id: str,
        /,
        *,
        keep: int | None = None,
        older_than: datetime | None = None,
        max_bytes: int | None = None,
    ) -> PruneReport:
        report = self.store.prune(session_id, keep=keep, older_than=older_than, max_bytes=max_bytes)
        return await self._meeting("delete", session_id, report)

    async def sweep(self, session_id: str | None = None, /, *, grace: float = 0.0) -> int:
        return await self._meeting("delete", session_id or "", self.store.sweep(session_id, grace=grace))

    async def redact(self, session_id: str, message: RedactMessage, /, *, part: RedactPart | None = None) -> int:
        return await self._meeting("write", session_id, self.store.redact(session_id, message, part=part))

    async def _meeting(self, verb: Verb, key: str, work: Coroutine[object, object, T]) -> T:
        operation = Operation(verb, key)
        try:
            cut = await self._enter(operation)
        except BaseException:
            work.close()
            raise
        result = await work
        await self._leave(operation, cut=cut)
        return result

"""What the tests of a store are made of: rows, and the changes that a runtime makes to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import msgspec
import pytest

from antiphon.clock import Clock
from antiphon.jsonable import copy_json, encode_json
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import IN_FLIGHT, Change, SessionSnapshot, SessionStore, SnapshotStatus

PATIENCE_S = 15.0
"""How long an event may take that a store tells of."""

START = datetime.now(timezone(timedelta(hours=5, minutes=30))).replace(microsecond=123_000) + timedelta(days=1)
"""When the tests' rows begin: a time to the millisecond in another zone, ahead of every clock, so that no row in flight
expires while the tests run."""

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """`START` and so many seconds."""
    return START + timedelta(seconds=seconds)


def said(*texts: str) -> list[Any]:
    """Messages with these words, of user and assistant by turns."""
    return [
        {"role": "assistant" if index % 2 else "user", "content": [{"text": text}]} for index, text in enumerate(texts)
    ]


def snapshot(messages: Sequence[Any] | None = (), **data: Any) -> Snapshot:
    """A snapshot with these messages (None: without the field) and other fields."""
    fields = {} if messages is None else {"messages": list(messages) if isinstance(messages, tuple) else messages}
    return Snapshot("agent", "1.0", {**fields, **data}, {}, "2026-01-01T00:00:00.000000Z")


def row(seconds: float = 0, session_id: str = "s", **fields: Any) -> SessionSnapshot:
    """A row created `seconds` after `START`."""
    return SessionSnapshot(session_id=session_id, created_at=at(seconds), **fields)


def becomes(wanted: SessionSnapshot | None) -> Change:
    """A change whatever was there."""
    return lambda _: wanted


async def put(store: SessionStore, snapshot_id: str, wanted: SessionSnapshot, **options: Any) -> SessionSnapshot:
    """Save a row as it is, and return what the store made of it."""
    saved = await store.save_snapshot(snapshot_id, becomes(wanted), **options)
    assert saved is not None, f"{snapshot_id}: nothing was written"
    return saved


async def found(store: SessionStore, snapshot_id: str) -> SessionSnapshot:
    """A row that must be there."""
    there = await store.get_snapshot(snapshot_id)
    assert there is not None, f"there is no {snapshot_id}"
    return there


async def latest_id(store: SessionStore, session_id: str, agent_id: str | None = None) -> str | None:
    """The id of a session's newest row."""
    there = await store.get_latest_snapshot(session_id, agent_id=agent_id)
    return None if there is None else there.snapshot_id


def words(there: SessionSnapshot) -> list[str]:
    """The words of a row's messages."""
    loaded = there.loaded()
    assert loaded is not None, f"{there.snapshot_id} has no snapshot"
    return [message["content"][0]["text"] for message in loaded.data["messages"]]


def exact(there: SessionSnapshot | None) -> bytes:
    """A row as JSON, equal for rows that are equal to the bit; times as instants."""
    if there is None:
        return b"null"
    loaded = there.loaded()
    parts = [
        encode_json(copy_json(None if loaded is None else loaded.to_dict())),
        *(encode_json(copy_json(part)) for part in (there.error, there.usage, there.journal)),
    ]
    plain = [
        *(there.session_id, there.snapshot_id, there.agent_id, there.parent_id, there.status, there.finish_reason),
        *(there.owner, there.epoch, there.idempotency_key),
        *(
            None if moment is None else moment.astimezone(UTC).isoformat()
            for moment in (there.created_at, there.updated_at, there.heartbeat_at)
        ),
        *(msgspec.json.decode(part) for part in parts),
    ]
    return msgspec.json.encode(plain, order="deterministic")


def heartbeat(moment: datetime) -> Change:
    """A sign of life of the worker."""

    def change(there: SessionSnapshot | None) -> SessionSnapshot | None:
        return replace(there, heartbeat_at=moment) if there is not None and there.status in IN_FLIGHT else None

    return change


def abort(moment: datetime) -> Change:
    """The wish that a run ends; a settled row is written again as it is, so that its status is returned."""

    def change(there: SessionSnapshot | None) -> SessionSnapshot | None:
        if there is None or there.status != "pending":
            return there
        return replace(there, status="aborting", updated_at=moment)

    return change


def finalize(moment: datetime, state: Snapshot, *, status: SnapshotStatus = "completed") -> Change:
    """The end of a run, with what came of it."""

    def change(there: SessionSnapshot | None) -> SessionSnapshot | None:
        if there is None or there.status not in IN_FLIGHT:
            return None
        settled: SnapshotStatus = "aborted" if there.status == "aborting" else status
        reason = "aborted" if settled == "aborted" else "stop"
        return replace(
            there, status=settled, finish_reason=reason, snapshot=state, updated_at=moment, heartbeat_at=None
        )

    return change


async def after(statuses: AsyncIterator[SnapshotStatus], wanted: SnapshotStatus) -> list[SnapshotStatus]:
    """The statuses up to the one wanted."""
    seen: list[SnapshotStatus] = []
    async with asyncio.timeout(PATIENCE_S):
        while wanted not in seen:
            seen.append(await anext(statuses))
    return seen


async def close(statuses: AsyncIterator[Any]) -> None:
    """End a subscription."""
    closing = getattr(statuses, "aclose", None)
    if closing is not None:
        await closing()


async def at_once(*coroutines: Any) -> list[Any]:
    """Run all of them together; the outcomes in their order, errors among them."""
    return list(await asyncio.gather(*coroutines, return_exceptions=True))


def able(store: object, capability: Any) -> Any:
    """The store, as one that fulfils this protocol; else the test is skipped and says why."""
    if not isinstance(store, capability):
        pytest.skip(f"this store has no {capability.__name__}")
    return store


class StoreFixtures:
    """The fixtures that a store gives, and those made of them."""

    @pytest.fixture
    def open_store(self) -> Callable[[], SessionStore]:
        """Opens a store over the test's own place, which is empty at the test's beginning. The one fixture to give."""
        raise NotImplementedError("give a fixture `open_store` that returns a function")

    @pytest.fixture
    def reopen(self) -> Callable[[], SessionStore] | None:
        """Opens another object over the same place. None: the place is gone with the object."""
        return None

    @pytest.fixture
    def scoped(self) -> Callable[[str], SessionStore] | None:
        """Gives a view of `store` for a tenant. None: `store.for_tenant`, where there is one."""
        return None

    @pytest.fixture
    def open_at(self) -> Callable[[Clock], SessionStore] | None:
        """Opens a store over an empty place, with this clock. None: tests in which time passes are skipped."""
        return None

    @pytest.fixture
    def store(self, open_store: Callable[[], SessionStore]) -> Iterator[SessionStore]:
        store = open_store()
        yield store
        _close(store)

    @pytest.fixture
    def other(self, store: SessionStore, reopen: Callable[[], SessionStore] | None) -> Iterator[SessionStore]:
        """A second object over the place of `store`."""
        if reopen is None:
            pytest.skip("no fixture `reopen`: the place of this store is gone with the object")
        other = reopen()
        yield other
        _close(other)

    @pytest.fixture
    def tenant(
        self, store: SessionStore, scoped: Callable[[str], SessionStore] | None
    ) -> Callable[[str], SessionStore]:
        """Gives a view of `store` for a tenant."""
        view = scoped or getattr(store, "for_tenant", None)
        if view is None:
            pytest.skip("no fixture `scoped`, and the store has no `for_tenant`")
        return cast("Callable[[str], SessionStore]", view)


def _close(store: SessionStore) -> None:
    closing = getattr(store, "close", None)
    if closing is not None:
        closing()

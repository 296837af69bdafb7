"""A subscription lives through a time in which its store is out of reach."""

import asyncio
import os

import pytest

from antiphon.errors import CorruptStoreError, SessionStoreError
from antiphon.store import LineStore
from antiphon.store.core import StoreCore
from antiphon.store.memory import MemoryBackend
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.clock import VirtualClock
from antiphon.testing.store_suite.support import PATIENCE_S, after, close, found, put, row


class Away(MemoryBackend):
    """Memory that cannot be read while `error` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.refused = 0
        self.asked = asyncio.Event()

    def read(self, tenant, look):
        if self.error is not None:
            self.refused += 1
            self.asked.set()
            raise self.error
        return super().read(tenant, look)


@pytest.fixture
def clock():
    return VirtualClock(autojump=False)


@pytest.fixture
def place():
    return Away()


@pytest.fixture
def store(place, clock):
    return LineStore(StoreCore(place, name="test", clock=clock))


async def test_a_subscription_waits_until_the_store_is_back_and_tells_what_happened(place, store, clock):
    await put(store, "r", row(status="pending"))
    statuses = store.on_snapshot_status_change("r")
    assert await anext(statuses) == "pending"
    await put(store, "r", row(status="aborting"))
    place.error = SessionStoreError("the network is down")
    waiting = asyncio.ensure_future(anext(statuses))
    await place.asked.wait()
    await clock.advance(60)
    assert not waiting.done()
    assert 30 <= place.refused <= 70  # about once a second: no tight loop, and no forgetting either
    place.error = None
    await clock.advance(2)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "aborting"
    await close(statuses)


async def test_a_subscription_that_begins_in_an_outage_begins_when_it_is_over(place, store, clock):
    await put(store, "r", row(status="pending"))
    place.error = SessionStoreError("the network is down")
    waiting = asyncio.ensure_future(anext(statuses := store.on_snapshot_status_change("r")))
    await place.asked.wait()
    place.error = None
    await clock.advance(1)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "pending"
    await close(statuses)


async def test_a_store_that_is_closed_in_an_outage_is_not_asked_until_it_is_used(place, store, clock):
    await put(store, "r", row(status="pending"))
    statuses = store.on_snapshot_status_change("r")
    assert await anext(statuses) == "pending"
    await put(store, "r", row(status="aborting"))
    place.error = SessionStoreError("the network is down")
    waiting = asyncio.ensure_future(anext(statuses))
    await place.asked.wait()
    store.close()
    refused = place.refused
    await clock.advance(60)
    assert place.refused == refused
    place.error = None
    await found(store, "r")
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "aborting"
    await close(statuses)


async def test_damage_is_told_to_a_subscriber(place, store):
    await put(store, "r", row(status="pending"))
    place.error = CorruptStoreError("the row is damaged")
    with pytest.raises(CorruptStoreError):
        await anext(store.on_snapshot_status_change("r"))


async def test_a_database_file_that_was_away_for_a_while_ends_no_subscription(tmp_path):
    path, aside = tmp_path / "s" / "s.db", tmp_path / "aside"
    with pytest.raises(StopAsyncIteration):
        async with SQLiteSessionStore(path) as store:
            await put(store, "r", row(status="pending"))
            statuses = store.on_snapshot_status_change("r")
            assert await anext(statuses) == "pending"
            os.rename(path.parent, aside)
            with pytest.raises(SessionStoreError, match="is gone"):
                await store.get_snapshot("r")
            waiting = asyncio.ensure_future(after(statuses, "aborting"))
            os.rename(aside, path.parent)
            await put(store, "r", row(status="aborting"))
            async with asyncio.timeout(PATIENCE_S):
                assert await waiting == ["aborting"]
            await store.delete_session("s")
            await anext(statuses)

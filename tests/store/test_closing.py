"""A store that was closed is opened by its next use, for those who listen, too."""

import asyncio
from contextlib import closing

import pytest

from antiphon.store.file import FileSessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.store_suite.support import PATIENCE_S, close, put, row


@pytest.fixture(params=["sqlite", "file"])
def pair(request, tmp_path):
    """Two objects over one place."""

    def open_one():
        if request.param == "sqlite":
            return SQLiteSessionStore(tmp_path / "s.db", synchronous="OFF")
        return FileSessionStore(tmp_path / "sessions")

    with closing(open_one()) as one, closing(open_one()) as other:
        yield one, other


async def test_subscribers_hear_of_others_again_when_a_closed_store_is_used(pair):
    mine, theirs = pair
    for snapshot_id in ("old", "new"):
        await put(mine, snapshot_id, row(status="pending"))
    old = mine.on_snapshot_status_change("old")
    assert await anext(old) == "pending"
    waiting = asyncio.ensure_future(anext(old))
    await asyncio.sleep(0)
    await asyncio.to_thread(mine.close)
    new = mine.on_snapshot_status_change("new")
    assert await anext(new) == "pending"
    for snapshot_id in ("old", "new"):
        await put(theirs, snapshot_id, row(status="aborting"))
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "aborting"
        assert await anext(new) == "aborting"
    for subscription in (old, new):
        await close(subscription)


async def test_a_subscriber_is_told_what_happened_while_the_store_was_closed(pair):
    mine, theirs = pair
    await put(mine, "r", row(status="pending"))
    statuses = mine.on_snapshot_status_change("r")
    assert await anext(statuses) == "pending"
    waiting = asyncio.ensure_future(anext(statuses))
    await asyncio.sleep(0)
    await asyncio.to_thread(mine.close)
    await put(theirs, "r", row(status="aborting"))
    assert not waiting.done()
    await mine.get_snapshot("other")
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "aborting"
    await close(statuses)

"""A sweep leaves young sessions alone, and finds old ones however many there are."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.store import FileSessionStore, InMemorySessionStore, LineStore, SQLiteSessionStore
from antiphon.testing import VirtualClock
from antiphon.testing.store_suite.support import found, put, row, said, snapshot, words

OPENERS: list[Callable[[Path, VirtualClock], LineStore]] = [
    lambda _, clock: InMemorySessionStore(clock=clock),
    lambda folder, clock: FileSessionStore(folder / "files", clock=clock),
    lambda folder, clock: SQLiteSessionStore(folder / "x.db", clock=clock),
]


@pytest.mark.parametrize("opener", OPENERS, ids=["memory", "file", "sqlite"])
async def test_a_sweep_with_a_grace_period_leaves_sessions_alone_that_were_written_within_it(
    tmp_path: Path, opener: Callable[[Path, VirtualClock], LineStore]
):
    clock = VirtualClock()
    async with opener(tmp_path, clock) as store:
        for session, age in (("old", 61), ("young", 59)):
            created = clock.utc() - timedelta(seconds=age)
            for texts in (said("forgotten", "words"), said("other")):
                wanted = replace(row(0, session, status="pending", snapshot=snapshot(texts)), created_at=created)
                await put(store, f"in-{session}", wanted)
        assert await store.sweep("young", grace=60) == 0
        assert await store.sweep(grace=60) == 2
        assert await store.sweep(grace=60) == 0
        assert await store.sweep("young", grace=58.5) == 2
        assert words(await found(store, "in-old")) == words(await found(store, "in-young")) == ["other"]


async def test_a_sweep_of_all_sessions_reaches_each_of_more_than_a_page():
    sessions = 1_100
    store = InMemorySessionStore()
    for number in range(sessions):
        for texts in (said("forgotten"), said("other")):
            await put(store, f"r{number}", row(number // 3, f"s{number}", status="pending", snapshot=snapshot(texts)))
    assert await store.sweep() == sessions
    assert await store.sweep() == 0

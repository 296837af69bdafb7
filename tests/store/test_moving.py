"""A session moves from store to store, and reads back the same in each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.store import LineStore, open_store
from antiphon.testing.store_suite.support import at, exact, put, row, said, snapshot


@pytest.fixture(params=["memory", "file", "sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LineStore]:
    """A store of each kind."""
    kind = request.param
    if kind == "postgresql":
        schema = request.getfixturevalue("schema")
        store = open_store(request.getfixturevalue("postgres_dsn"), schema=schema)
    else:
        store = open_store(f"{kind}:{'' if kind == 'memory' else tmp_path / 'place'}")
    yield store
    store.close()


@pytest.fixture
async def home() -> LineStore:
    store = open_store("memory:")
    history = said("a", "b\0 \U0001f600", "c")
    large = said("x" * 10_000)[0]
    await put(store, "r1", row(0, snapshot=snapshot(history, state={"blob": b"\x00\xff", "t": "y" * 5_000})))
    history[1] = said("", "edited")[1]
    await put(store, "r2", row(1, parent_id="r1", agent_id="x", snapshot=snapshot([*history, large]), usage={"n": 1.0}))
    await put(store, "r3", row(2, parent_id="r1", snapshot=snapshot([large, *history[:2]])))
    await put(
        store,
        "r4",
        row(
            3, parent_id="r3", status="pending", heartbeat_at=at(3), owner="w", epoch=2, idempotency_key="k",
            journal={"lines": said("open")},
        ),
    )  # fmt: skip
    await put(store, "r5", row(4, parent_id="r2", status="failed", error={"message": "no"}, snapshot=snapshot(None)))
    return store


async def test_a_session_reads_back_the_same_in_every_store(home: LineStore, elsewhere: LineStore) -> None:
    lines = [line async for line in home.export("s")]
    assert await elsewhere.import_(lines) == "s"
    for name in ("r1", "r2", "r3", "r4", "r5"):
        assert exact(await elsewhere.get_snapshot(name)) == exact(await home.get_snapshot(name))
    assert exact(await elsewhere.get_snapshot_by_key("k")) == exact(await home.get_snapshot("r4"))
    assert [line async for line in elsewhere.export("s")] == lines
    assert list((await elsewhere.tree("s")).walk()) == list((await home.tree("s")).walk())
    again = open_store("memory:")
    assert again.sync.import_(elsewhere.sync.export("s")) == "s"
    assert list(again.sync.export("s")) == lines


def test_plain_code_sees_the_tree_and_differences_too(elsewhere: LineStore) -> None:
    store = elsewhere.sync
    store.save_snapshot("one", lambda _: row(0, snapshot=snapshot(said("a"), state={"n": 1})))
    store.save_snapshot("two", lambda _: row(1, parent_id="one", snapshot=snapshot(said("a", "b"), state={"n": 2})))
    assert [(depth, there.snapshot_id) for depth, there in store.tree("s").walk()] == [(0, "one"), (1, "two")]
    diff = store.diff("one", "two")
    assert (len(diff.added), diff.state) == (1, [{"op": "replace", "path": "/n", "value": 2}])

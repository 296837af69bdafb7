"""The store in memory against the suite that defines a store, and what all stores over lines have in common."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from antiphon.clock import Clock
from antiphon.errors import InvalidTypeError, SessionRowError
from antiphon.jsonable import encode_json
from antiphon.store import InMemorySessionStore, LineStore, SessionStore, open_store
from antiphon.store.core import StoreCore
from antiphon.store.memory import MemoryBackend
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.support import becomes, exact, found, put, row, said, snapshot, words


class TestMemory(SessionStoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], SessionStore]:
        return InMemorySessionStore

    @pytest.fixture
    def open_at(self) -> Callable[[Clock], SessionStore]:
        return lambda clock: InMemorySessionStore(clock=clock)


class SlowMemory(MemoryBackend):
    """Memory behind threads, as if it were a disk."""

    blocking = True


class TestTwoStoresOverOneBackendBehindThreads(SessionStoreContract):
    @pytest.fixture
    def place(self) -> MemoryBackend:
        return SlowMemory()

    @pytest.fixture
    def open_store(self, place: MemoryBackend) -> Callable[[], SessionStore]:
        return lambda: LineStore(StoreCore(place, name="test"))

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store

    @pytest.fixture
    def open_at(self, place: MemoryBackend) -> Callable[[Clock], SessionStore]:
        return lambda clock: LineStore(StoreCore(place, name="test", clock=clock))

    @pytest.fixture
    def scoped(self, store: LineStore) -> Callable[[str], SessionStore]:
        return lambda name: LineStore(store._core, prefix=lambda: name)


CURRENT: ContextVar[str] = ContextVar("CURRENT")


async def test_a_prefix_is_read_in_the_context_of_the_caller_when_an_operation_begins():
    store = InMemorySessionStore(prefix=CURRENT.get)

    async def use(name: str) -> None:
        CURRENT.set(name)
        await put(store, "r", row(snapshot=snapshot(said(name))))
        await asyncio.sleep(0)
        assert words(await found(store, "r")) == [name]
        assert store.sync.get_snapshot("r") is not None

    async with asyncio.TaskGroup() as group:
        for name in ("one", "two/deep", "three"):
            group.create_task(use(name))
    with pytest.raises(LookupError):
        await store.get_snapshot("r")
    CURRENT.set("")
    with pytest.raises(SessionRowError):
        await store.get_snapshot("r")


async def test_nobody_gets_out_of_the_tenant_that_a_view_was_made_for():
    store = InMemorySessionStore()
    view = store.for_tenant("org-1")
    await put(view.for_tenant("user"), "r", row())
    assert await store.for_tenant("org-1/user").get_snapshot("r") is not None
    assert await store.for_tenant("user").get_snapshot("r") is None
    with pytest.raises(SessionRowError):
        view.for_tenant("../org-2")


@pytest.mark.parametrize("prefix", ["global", lambda: "global"])
async def test_a_view_beneath_the_tenant_that_is_called_as_the_default_lies_within_it(prefix: Any):
    place = InMemorySessionStore()
    view = place.for_tenant("global") if prefix == "global" else LineStore(place._core, prefix=prefix)
    await put(view.for_tenant("o"), "r", row())
    assert await place.for_tenant("global/o").get_snapshot("r") is not None
    assert await place.for_tenant("o").get_snapshot("r") is None


async def _lease(store: LineStore) -> Any:
    lease = await store.acquire_lease("s", owner="w")
    assert lease is not None
    return (await store.renew_lease(lease)).owner


OPERATIONS: dict[str, Callable[[LineStore], Any]] = {
    "get": lambda store: store.get_snapshot("r0"),
    "metadata": lambda store: store.get_snapshot_metadata("r0"),
    "latest": lambda store: store.get_latest_snapshot("s"),
    "latest metadata": lambda store: store.get_latest_snapshot_metadata("s"),
    "by key": lambda store: store.get_snapshot_by_key("k0"),
    "save": lambda store: store.save_snapshot("r0", lambda there: there),
    "sessions": lambda store: store.list_sessions(),
    "snapshots": lambda store: store.list_snapshots("s"),
    "tree": lambda store: store.tree("s"),
    "diff": lambda store: store.diff("r0", "r1"),
    "delete": lambda store: store.delete_session("s"),
    "prune": lambda store: store.prune("s", keep=1),
    "sweep": lambda store: store.sweep(),
    "redact": lambda store: store.redact("s", lambda message: {**message, "content": [{"text": "gone"}]}),
    "lease": _lease,
}


async def _two_tenants() -> InMemorySessionStore:
    store = InMemorySessionStore()
    for turn in range(3):
        await put(
            store.for_tenant("mine"), f"r{turn}", row(turn, idempotency_key=f"k{turn}", snapshot=snapshot(said("x")))
        )
    return store


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_operation_asks_for_the_tenant_when_it_begins_and_not_again(name: str):
    store = await _two_tenants()
    wanted = await OPERATIONS[name]((await _two_tenants()).for_tenant("mine"))
    asked: list[str] = []

    def prefix() -> str:
        asked.append("mine" if not asked or name == "lease" else "another")
        return asked[-1]

    assert repr(await OPERATIONS[name](LineStore(store._core, prefix=prefix))) == repr(wanted)
    assert asked == ["mine"] * (2 if name == "lease" else 1)


async def test_what_is_read_bit_by_bit_is_of_the_tenant_at_the_call():
    store = LineStore((await _two_tenants())._core, prefix=CURRENT.get)
    CURRENT.set("mine")
    exported, statuses = store.export("s"), store.on_snapshot_status_change("r0")
    plain = store.sync.export("s")
    CURRENT.set("another")
    lines = [line async for line in exported]
    assert lines == list(plain)
    assert len(lines) == 6
    assert await anext(statuses) == "completed"
    await statuses.aclose()


@pytest.mark.parametrize("prefix", [5, b"x", ["a"], "", "a/../b", "\ud800"])
def test_a_prefix_that_names_no_tenant_is_refused_at_once(prefix: Any):
    with pytest.raises(SessionRowError, match="the tenant"):
        InMemorySessionStore(prefix=prefix)


async def test_plain_code_and_coroutines_use_one_store():
    store = LineStore(StoreCore(SlowMemory(), name="test"))
    history = said("a")
    store.sync.save_snapshot("r", becomes(row(snapshot=snapshot(history))))
    saved = await put(store, "q", row(1, parent_id="r", snapshot=snapshot([*history, *said("b")])))
    assert exact(store.sync.get_snapshot("q")) == exact(saved) == exact(store.sync.get_latest_snapshot("s"))
    assert [session.session_id for session in store.sync.list_sessions().sessions] == ["s"]
    lines = list(store.sync.export("s"))
    assert store.sync.delete_session("s")
    assert store.sync.import_(lines) == "s"
    assert exact(store.sync.get_snapshot("q")) == exact(saved)
    assert store.sync.prune("s", keep=1).snapshot_ids == ("r",)
    assert store.sync.sweep() == 0
    store.close()
    assert exact(store.sync.get_snapshot("q")) == exact(saved), "it can be used again"
    store.close()


async def test_a_url_names_a_store():
    store = open_store("memory:", prefix="tenant")
    await put(store, "r", row())
    for wrong in ("nothing:here", "no-url", "", "memory:a-name", "sqlite://host/s.db", "sqlite://s.db"):
        with pytest.raises(SessionRowError):
            open_store(wrong)
    url: Any
    for url in (None, 5, b"memory:"):
        with pytest.raises(InvalidTypeError, match="url="):
            open_store(url)


async def test_an_ordinary_turn_hands_over_its_own_messages_only():
    class Counting(MemoryBackend):
        def __init__(self) -> None:
            super().__init__()
            self.handed: list[int] = []

        def write(self, jobs):
            for job in jobs:
                commit = getattr(job.work, "__self__", None)
                self.handed.append(len(commit.fresh) + len(commit.grown))
            return super().write(jobs)

    backend = Counting()
    store = LineStore(StoreCore(backend, name="test"))
    history = said(*(f"m{n}" for n in range(3000)))
    parent = None
    for turn in range(20):
        if turn:
            history += said(f"q{turn}", f"a{turn}")
        await put(store, f"r{turn}", row(turn, parent_id=parent, snapshot=snapshot(history)), expected_tip=parent)
        parent = f"r{turn}"
    assert backend.handed == [3000] + [2] * 19
    history[3]["content"][0]["text"] = "edited"
    await put(store, "edit", row(50, parent_id=parent, snapshot=snapshot(history)))
    del history[1500]
    await put(store, "drop", row(51, parent_id="edit", snapshot=snapshot(history)))
    await put(store, "window", row(52, parent_id="drop", snapshot=snapshot(history[1000:])))
    read = (await found(store, "window")).snapshot
    await put(store, "carried", row(53, parent_id="window", snapshot=snapshot(read.data["messages"] + said("x"))))
    # An edit of the fourth message writes the three before it too: so short a run costs less than a span.
    assert backend.handed[20:] == [1, 0, 0, 1]
    for name, count in (("r19", 3038), ("edit", 3038), ("drop", 3037), ("window", 2037), ("carried", 2038)):
        assert len(words(await found(store, name))) == count


class Counted(dict[str, Any]):
    """A message that knows how often messages were gone through entry by entry: comparing them does not."""

    walked = 0

    def items(self):
        Counted.walked += 1
        return super().items()


async def test_an_ordinary_turn_copies_and_encodes_its_own_messages_only():
    class Weighing(MemoryBackend):
        def __init__(self) -> None:
            super().__init__()
            self.bytes = 0

        def write(self, jobs):
            for job in jobs:
                commit = getattr(job.work, "__self__", None)
                self.bytes += sum(map(len, [*commit.fresh, *commit.grown]))
            return super().write(jobs)

    backend = Weighing()
    store = LineStore(StoreCore(backend, name="test"))
    history: list[Any] = [Counted(message) for message in said(*(f"m{n}" for n in range(10_000)))]
    rows: dict[str, list[Any]] = {}

    async def save(name: str) -> tuple[int, int]:
        walked, size = Counted.walked, backend.bytes
        parent = next(reversed(rows), None)
        await put(store, name, row(len(rows), parent_id=parent, snapshot=snapshot(history)))
        rows[name] = [dict(message) for message in history]
        return Counted.walked - walked, backend.bytes - size

    assert (await save("all"))[0] == 10_000
    new = [Counted(message) for message in said("question", "answer")]
    history += new
    assert await save("turn") == (2, sum(len(encode_json(dict(message))) for message in new))
    history[3] = Counted(said("", "", "", "edited")[3])
    assert (await save("edit"))[0] == 1
    del history[5_000]
    assert await save("drop") == (0, 0)
    history[:] = [Counted(message) for message in history]
    assert await save("the same in other objects") == (0, 0)
    history[:] = [Counted(message) for message in said("all", "new")]
    assert (await save("replaced"))[0] == 2
    for name, messages in rows.items():
        loaded = (await found(store, name)).loaded()
        assert loaded is not None
        assert loaded.data["messages"] == messages

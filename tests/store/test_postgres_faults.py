"""What the store does when the server or the way to it breaks."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from psycopg import sql  # noqa: E402

from antiphon.errors import SessionRowError, SessionStoreError  # noqa: E402
from antiphon.store.core import StoreCore  # noqa: E402
from antiphon.store.line_store import LineStore  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.postgres.sending import Bounds  # noqa: E402
from antiphon.testing.postgres import PostgresServer, find_binaries  # noqa: E402
from antiphon.testing.store_suite.support import (  # noqa: E402
    PATIENCE_S,
    after,
    becomes,
    close,
    found,
    put,
    row,
    said,
    snapshot,
    words,
)
from tests.store.cut_connection import CuttingProxy  # noqa: E402


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server to stop and start, whose disk is flushed."""
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not here")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres_server.folder) as proxy:
        yield proxy


def ask(dsn: str, question: str, *values: object) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question, values).fetchone()[0]


def end_all(dsn: str) -> int:
    """End everybody's connections but this one; how many there were."""
    return ask(
        dsn,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )


# What a database does not hold


@pytest.fixture
def small(postgres_dsn: str, schema: str) -> Iterator[LineStore]:
    """A store over a server that is taken for one that holds little."""
    backend = PostgresBackend(
        postgres_dsn,
        schema=schema,
        listen_dsn=None,
        poll_interval=5,
        erasure="vacuum",
        bounds=Bounds(body=10_000, together=5_000),
    )
    store = LineStore(StoreCore(backend, name="small"))
    yield store
    store.close()


@pytest.mark.parametrize("kind", ["message", "part"])
async def test_what_is_larger_than_the_server_holds_is_refused_with_its_size_and_leaves_nothing(small, kind):
    large = snapshot(said("x" * 10_000)) if kind == "message" else snapshot(said("hi"), state={"x": "x" * 10_000})
    refused = pytest.raises(SessionRowError, match=r"session 's' has 100\d\d bytes of JSON, and PostgreSQL holds 10000")
    with refused:
        await put(small, "a", row(snapshot=large))
    assert await small.get_snapshot("a") is None
    assert (await small.list_sessions()).sessions == ()
    await put(small, "a", row(snapshot=snapshot(said("x" * 9_000))))
    with refused:
        await put(small, "a", row(snapshot=large))
    assert words(await found(small, "a")) == ["x" * 9_000]


async def test_who_waits_beside_one_that_is_too_large_is_saved(small):
    outcomes = await asyncio.gather(
        *(put(small, f"{name}", row(session_id=name, snapshot=snapshot(said(name * 4_900)))) for name in "abc"),
        put(small, "d", row(session_id="d", snapshot=snapshot(said("d" * 10_000)))),
        *(put(small, f"{name}", row(session_id=name, snapshot=snapshot(said(name * 4_900)))) for name in "efg"),
        return_exceptions=True,
    )
    assert [isinstance(outcome, SessionRowError) for outcome in outcomes] == [False] * 3 + [True] + [False] * 3
    assert [words(await found(small, name)) for name in "abcefg"] == [[name * 4_900] for name in "abcefg"]


async def test_more_than_goes_out_at_once_is_sent_piece_by_piece_and_reads_the_same(small):
    told = [f"{number} " + "x" * (1_000 * (number % 9)) for number in range(40)]
    await put(small, "a", row(snapshot=snapshot(said(*told[:20]))))
    await put(small, "b", row(1, parent_id="a", snapshot=snapshot(said(*told))))
    assert words(await found(small, "b")) == told

    def shorter(message):
        text = message["content"][0]["text"]
        return {**message, "content": [{"text": text[:-1] + "y"}]}

    assert await small.redact("s", shorter) == 40
    await put(small, "c", row(2, parent_id="b", snapshot=snapshot(said(*told))))
    assert words(await found(small, "c")) == [text[:-1] + "y" for text in told]


# A lost database


async def test_a_lost_server_is_an_error_of_ours_and_the_store_works_again_when_it_is_back(own_server):
    async with PostgresSessionStore(own_server.dsn) as store:
        await put(store, "a", row(snapshot=snapshot(said("hi"))))
        own_server.stop()
        with pytest.raises(SessionStoreError, match="PostgreSQL"):
            await store.get_snapshot("a")
        with pytest.raises(SessionStoreError, match="PostgreSQL"):
            await put(store, "b", row(1))
        own_server.start()
        assert words(await found(store, "a")) == ["hi"]
        await put(store, "b", row(1))


def test_a_server_that_is_not_there_is_an_error_of_the_constructor(tmp_path):
    with pytest.raises(SessionStoreError, match="PostgreSQL"):
        PostgresSessionStore(f"postgresql://postgres@/postgres?host={tmp_path}")


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


async def test_a_full_disk_is_a_clear_error_and_the_store_works_again_when_there_is_room(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await put(store, "a", row(snapshot=snapshot(said("one"))))
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
            connection.execute(FULL)
            with pytest.raises(SessionStoreError, match="No space left on device") as caught:
                await put(store, "b", row(1, parent_id="a", snapshot=snapshot(said("one", "two"))), expected_tip="a")
            assert isinstance(caught.value.__cause__, psycopg.errors.DiskFull)
            assert await store.get_snapshot("b") is None
            assert words(await found(store, "a")) == ["one"]
            connection.execute("DROP TRIGGER full_disk ON runs")
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot(said("one", "two"))), expected_tip="a")
        assert words(await found(store, "b")) == ["one", "two"]


async def test_connections_that_the_server_ended_are_replaced_without_an_error(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await put(store, "a", row())
        assert end_all(postgres_dsn) >= 1
        assert (await found(store, "a")).session_id == "s"
        end_all(postgres_dsn)
        await put(store, "b", row(1))
        assert (await store.get_latest_snapshot("s")).snapshot_id == "b"


async def test_a_pools_connections_that_the_server_ended_are_replaced_without_an_error(postgres_dsn, schema):
    from psycopg_pool import ConnectionPool

    with ConnectionPool(postgres_dsn, min_size=3, max_size=3, open=True) as pool:
        pool.wait()
        store = PostgresSessionStore(pool, schema=schema)
        await put(store, "a", row())
        assert end_all(postgres_dsn) >= 3
        await put(store, "b", row(1))
        end_all(postgres_dsn)
        assert (await found(store, "b")).session_id == "s"
        store.close()
        assert not pool.closed


# The restart of a server under load


async def test_writers_and_a_subscriber_live_through_stops_and_starts_of_the_server(own_server):
    turns, writers = 24, 3
    acknowledged: dict[str, int] = {f"s{number}": 0 for number in range(writers)}
    progress = asyncio.Event()
    store, other = PostgresSessionStore(own_server.dsn), PostgresSessionStore(own_server.dsn)
    await put(store, "job", row(session_id="job", status="pending"))

    async def write(session_id: str) -> None:
        messages: list[object] = []
        for turn in range(turns):
            messages += said(f"{session_id} turn {turn}")
            wanted = row(turn, session_id, snapshot=snapshot(list(messages)))
            async with asyncio.timeout(30):
                while True:
                    try:
                        await store.save_snapshot(f"{session_id}.{turn}", lambda _, wanted=wanted: wanted)
                        break
                    except SessionStoreError:
                        await asyncio.sleep(0)
            acknowledged[session_id] = turn + 1
            progress.set()

    async def watch() -> list[str]:
        seen: list[str] = []
        statuses = other.on_snapshot_status_change("job")  # one subscription: no stop ends it
        async for status in statuses:
            seen.append(status)
            if status == "completed":
                break
        await close(statuses)
        return seen

    async def disturb() -> None:
        for at, at_once in ((4, True), (10, False), (16, True)):
            while min(acknowledged.values()) < at:
                progress.clear()
                await progress.wait()
            await asyncio.to_thread(own_server.stop, at_once=at_once)
            await asyncio.to_thread(own_server.start)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        writing = [group.create_task(write(session_id)) for session_id in acknowledged]
        group.create_task(disturb())
        await asyncio.wait(writing)
        await store.save_snapshot("job", becomes(row(session_id="job", status="completed")))
        async with asyncio.timeout(PATIENCE_S):
            assert (await watching)[-1] == "completed"
    for session_id in acknowledged:
        listed = await store.list_snapshots(session_id, limit=1000)
        assert [shown.snapshot_id for shown in reversed(listed.snapshots)] == [
            f"{session_id}.{turn}" for turn in range(turns)
        ]
        for turn in range(turns):
            told = [f"{session_id} turn {earlier}" for earlier in range(turn + 1)]
            assert words(await found(store, f"{session_id}.{turn}")) == told
    await asyncio.to_thread(store.close)
    await asyncio.to_thread(other.close)


# A commit whose answer is lost


async def test_a_commit_whose_answer_is_lost_is_not_made_twice(proxy, schema):
    async with PostgresSessionStore(proxy.dsn, schema=schema) as store:
        await put(store, "a", row(snapshot=snapshot(said("one"))))
        proxy.cut_at = b"COMMIT\0"
        calls: list[object] = []
        await store.save_snapshot("b", lambda there: calls.append(there) or row(1), expected_tip="a")
        assert proxy.cuts == 1
        assert calls == [None]
        assert (await store.get_latest_snapshot("s")).snapshot_id == "b"


async def test_a_commit_that_did_not_arrive_is_made_again(proxy, schema):
    async with PostgresSessionStore(proxy.dsn, schema=schema) as store:
        await put(store, "a", row())
        proxy.cut_at, proxy.delivers = b"COMMIT\0", False
        await store.save_snapshot("b", becomes(row(1, snapshot=snapshot(said("two")))), expected_tip="a")
        assert proxy.cuts == 1
        assert words(await found(store, "b")) == ["two"]
        assert (await store.list_sessions()).sessions[0].snapshots == 2


@pytest.mark.parametrize("delivers", [True, False])
async def test_a_commit_of_which_nothing_can_be_learned_says_so(proxy, schema, delivers):
    async with PostgresSessionStore(proxy.dsn, schema=schema) as store:
        await put(store, "a", row())
        proxy.cut_at, proxy.delivers, proxy.refuses_after_cut = b"COMMIT\0", delivers, True
        with pytest.raises(SessionStoreError, match="read the row again"):
            await put(store, "b", row(1))
        proxy.refuses = False
        assert (await store.get_snapshot("b") is not None) == delivers


@pytest.mark.parametrize("at", [b"BEGIN", b"pg_advisory_xact_lock", b"INSERT INTO snapshots"])
@pytest.mark.parametrize("delivers", [True, False])
async def test_a_change_that_is_cut_on_its_way_is_made_once(proxy, schema, at, delivers):
    async with PostgresSessionStore(proxy.dsn, schema=schema) as store:
        await put(store, "a", row(snapshot=snapshot(said("one"))))
        proxy.cut_at, proxy.delivers = at, delivers
        await put(store, "b", row(1, snapshot=snapshot(said("one", "two"))), expected_tip="a")
        assert proxy.cuts == 1
        assert words(await found(store, "b")) == ["one", "two"]
        assert (await store.list_sessions()).sessions[0].snapshots == 2


# Notifications


async def test_a_subscriber_hears_of_a_change_after_its_connection_was_ended(postgres_dsn, schema):
    store = PostgresSessionStore(postgres_dsn, schema=schema, poll_interval=3600)
    other = PostgresSessionStore(postgres_dsn, schema=schema)
    await put(store, "a", row(status="pending"))
    statuses = store.on_snapshot_status_change("a")
    assert await anext(statuses) == "pending"
    for wanted in ("aborting", "aborted"):
        await until_listening(postgres_dsn)
        end_all(postgres_dsn)
        await put(other, "a", row(status=wanted))
        await after(statuses, wanted)
    await close(statuses)
    store.close()
    other.close()


async def test_changes_are_seen_by_polling_where_no_notification_comes_through(postgres_dsn, schema):
    deaf = postgres_dsn.replace("/postgres?", "/template1?")  # a database of its own: nobody notifies there
    store = PostgresSessionStore(postgres_dsn, schema=schema, listen_dsn=deaf, poll_interval=0.05)
    other = PostgresSessionStore(postgres_dsn, schema=schema)
    await put(store, "a", row(status="pending"))
    statuses = store.on_snapshot_status_change("a")
    assert await anext(statuses) == "pending"
    for wanted in ("aborting", "aborted"):  # the first may be seen because listening has just begun
        await put(other, "a", row(status=wanted))
        await after(statuses, wanted)
    await close(statuses)
    store.close()
    other.close()


LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND pid <> pg_backend_pid()"


async def until_listening(dsn: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(ask, dsn, LISTENERS):
            pass


async def test_a_process_listens_over_one_connection(own_server):
    stores = [PostgresSessionStore(own_server.dsn, schema=f"s{number % 2}") for number in range(4)]
    waiting = []
    for number, store in enumerate(stores):
        await put(store, f"a{number}", row(status="pending"))
        for _ in range(3):
            statuses = store.on_snapshot_status_change(f"a{number}")
            assert await anext(statuses) == "pending"
            waiting.append((number, statuses))
    await until_listening(own_server.dsn)
    others = [PostgresSessionStore(own_server.dsn, schema=f"s{number % 2}") for number in range(4)]
    for number, other in enumerate(others):
        await put(other, f"a{number}", row(status="completed"))
    for _, statuses in waiting:
        await after(statuses, "completed")
        await close(statuses)
    assert ask(own_server.dsn, LISTENERS) == 1
    for store in [*stores, *others]:
        store.close()


async def test_no_connection_is_held_between_calls_not_even_by_a_subscriber(postgres_dsn, schema):
    from psycopg_pool import ConnectionPool

    with ConnectionPool(postgres_dsn, min_size=1, max_size=1, open=True, timeout=10) as pool:
        pool.wait()
        store = PostgresSessionStore(pool, schema=schema)
        await put(store, "a", row(status="pending"))
        statuses = store.on_snapshot_status_change("a")
        assert await anext(statuses) == "pending"
        with pool.connection() as all_there_is:
            assert all_there_is.execute("SELECT 1").fetchone() == (1,)
        await put(store, "a", row(status="completed"))
        await after(statuses, "completed")
        await close(statuses)
        assert pool.get_stats()["pool_available"] == 1
        store.close()


async def test_a_pools_connections_go_back_as_they_were(postgres_dsn, schema):
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    settings = {"row_factory": dict_row, "autocommit": False}
    with ConnectionPool(postgres_dsn, kwargs=settings, min_size=1, max_size=1, open=True) as pool:
        store = PostgresSessionStore(pool, schema=schema)
        await put(store, "a", row(snapshot=snapshot(said("hi"))))
        assert words(await found(store, "a")) == ["hi"]
        with pool.connection() as connection:
            assert not connection.autocommit
            shown = "SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS patience"
            assert connection.execute(shown).fetchone() == {"path": '"$user", public', "patience": "0"}
        store.close()


# One after the other


def test_a_change_waits_for_another_of_its_session_and_for_no_other(postgres_dsn, schema):
    stores = [PostgresSessionStore(postgres_dsn, schema=schema) for _ in range(3)]
    inside, go_on = threading.Event(), threading.Event()
    order: list[str] = []
    for session_id in ("s", "t"):
        stores[0].sync.save_snapshot(f"{session_id}.0", becomes(row(session_id=session_id)))

    def slow(message: object) -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    def hold() -> None:
        stores[0].sync.redact("s", slow)
        order.append("first")

    def follow() -> None:
        stores[1].sync.save_snapshot("s.1", becomes(row(1)))
        order.append("second")

    stores[0].sync.save_snapshot("s.0", becomes(row(snapshot=snapshot(said("hi")))))
    threads = [threading.Thread(target=hold), threading.Thread(target=follow)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    while not ask(postgres_dsn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert threads[1].is_alive(), "the second writer did not wait"
    stores[2].sync.save_snapshot("t.1", becomes(row(1, "t")))
    assert order == []
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(order) == ["first", "second"]
    for store in stores:
        store.close()


def test_many_changes_share_a_transaction(postgres_dsn, schema):
    store = PostgresSessionStore(postgres_dsn, schema=schema)

    async def all_at_once() -> None:
        core, go_on = store._core, threading.Event()
        held = asyncio.ensure_future(core._writes.run(go_on.wait, PATIENCE_S))  # the thread that commits is busy
        saving = asyncio.gather(*(put(store, f"{number}", row(session_id=f"s{number}")) for number in range(100)))
        while len(core._waiting) < 100:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(held, saving)

    asyncio.run(all_at_once())
    assert all(store.sync.get_snapshot(f"{number}") is not None for number in range(100))
    counted = sql.SQL("SELECT count(DISTINCT xmin::text) FROM {}.snapshots").format(sql.Identifier(schema))
    with psycopg.connect(postgres_dsn) as connection:
        transactions = connection.execute(counted).fetchone()[0]
    assert transactions < 50
    store.close()


FORKED = """
import os, sys
from antiphon.store.postgres import PostgresSessionStore
from antiphon.testing.store_suite.support import becomes, row
store = PostgresSessionStore(sys.argv[1], schema=sys.argv[2])
store.sync.save_snapshot("parent", becomes(row()))
child = os.fork()
name = "parent" if child else "child"
for number in range(30):
    store.sync.save_snapshot(f"{name}{number}", becomes(row(number, name)))
    assert store.sync.get_latest_snapshot(name).snapshot_id == f"{name}{number}"
store.close()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.sync.get_snapshot("child29") is not None
store.close()
print("well")
"""


def test_a_forked_child_takes_connections_of_its_own(postgres_dsn, schema):
    told = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORKED, postgres_dsn, schema],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("well\n", "")

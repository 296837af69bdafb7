"""Many writers of one session, in one process and in several."""

import asyncio
import json
import subprocess
import sys

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from antiphon.errors import MovedError, SessionConflictError  # noqa: E402
from antiphon.store.backend import Job, SessionMark  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.record import Record, Row  # noqa: E402
from antiphon.testing.store_suite.support import becomes, found, put, row, said, snapshot, words  # noqa: E402

# Each writer builds on the newest row that it knows of, until it has won so many times; told are its wins.
RACER = """
import asyncio, json, sys
from antiphon.errors import SessionConflictError
from antiphon.store.postgres import PostgresSessionStore
from antiphon.testing.store_suite.support import becomes, row, said, snapshot

dsn, schema, name, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

async def main():
    async with PostgresSessionStore(dsn, schema=schema) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        wins = []
        while len(wins) < wanted:
            tip = await store.get_latest_snapshot("s")
            messages = [*tip.snapshot.data["messages"], *said(f"{name}.{len(wins)}")]
            seconds = (tip.created_at - row().created_at).total_seconds() + 1
            child = f"{name}.{len(wins)}"
            new = row(seconds, parent_id=tip.snapshot_id, snapshot=snapshot(messages))
            try:
                await store.save_snapshot(child, lambda there: None if there else new, expected_tip=tip.snapshot_id)
            except SessionConflictError:
                continue
            wins.append([tip.snapshot_id, child])
        print(json.dumps(wins), flush=True)

asyncio.run(main())
"""


async def test_eight_writers_in_one_process_have_one_winner_a_tip(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await put(store, "0", row(snapshot=snapshot(said("0"))))
        tip, told = "0", ["0"]
        for turn in range(1, 9):
            tries = [
                store.save_snapshot(
                    f"{turn}.{writer}",
                    becomes(row(turn, parent_id=tip, snapshot=snapshot(said(*told, f"{turn}.{writer}")))),
                    expected_tip=tip,
                )
                for writer in range(8)
            ]
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            winners = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            losers = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError)]
            assert (len(winners), len(losers)) == (1, 7)
            tip = winners[0].snapshot_id
            told.append(tip)
        assert words(await found(store, tip)) == told
        assert len((await store.list_snapshots("s", limit=100)).snapshots) == 9


def test_four_processes_have_one_winner_a_tip_and_lose_no_turn(postgres_dsn, schema):
    store = PostgresSessionStore(postgres_dsn, schema=schema)
    store.sync.save_snapshot("root", becomes(row(snapshot=snapshot(said("root")))))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, postgres_dsn, schema, f"p{number}", "6"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    outcomes = []
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        told, _ = racer.communicate(timeout=50)
        assert racer.returncode == 0
        outcomes += json.loads(told)
    after = dict(outcomes)
    assert len(after) == len(outcomes) == 24  # no tip has two children
    chain = ["root"]
    while chain[-1] in after:
        chain.append(after[chain[-1]])
    assert len(chain) == 25
    newest = store.sync.get_latest_snapshot("s")
    assert newest.snapshot_id == chain[-1]
    assert words(newest) == chain
    store.close()


# Each works alone while it holds the lease: two lines of one owner are never parted.
QUEUER = """
import asyncio, sys
from antiphon.store.postgres import PostgresSessionStore

dsn, schema, name, path = sys.argv[1:5]

async def main():
    async with PostgresSessionStore(dsn, schema=schema) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for turn in range(4):
            lease = await store.acquire_lease("s", owner=f"{name}.{turn}")
            with open(path, "a") as log:
                log.write(f"{lease.ticket} in\\n")
                log.flush()
                await store.get_latest_snapshot("s")
                log.write(f"{lease.ticket} out\\n")
            await store.release_lease(lease)

asyncio.run(main())
"""


def test_processes_that_queue_for_a_session_get_it_one_after_the_other_in_their_order(postgres_dsn, schema, tmp_path):
    PostgresSessionStore(postgres_dsn, schema=schema).close()
    path = tmp_path / "log"
    queuers = [
        subprocess.Popen(
            [sys.executable, "-c", QUEUER, postgres_dsn, schema, f"p{number}", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for queuer in queuers:
        assert queuer.stdout.readline() == "ready\n"
    for queuer in queuers:
        queuer.stdin.write("go\n")
        queuer.stdin.flush()
    for queuer in queuers:
        queuer.communicate(timeout=50)
        assert queuer.returncode == 0
    lines = [line.split() for line in path.read_text().splitlines()]
    tickets = [int(ticket) for ticket, _ in lines]
    assert [what for _, what in lines] == ["in", "out"] * 12
    assert tickets[::2] == tickets[1::2] == sorted(tickets[::2])


async def test_writers_of_two_sessions_that_want_one_id_or_one_key_have_one_winner(postgres_dsn, schema):
    stores = [PostgresSessionStore(postgres_dsn, schema=schema) for _ in range(2)]
    for turn in range(10):
        wanted = [
            store.save_snapshot(
                f"id{turn}", lambda there, number=number: None if there else row(session_id=f"s{number}")
            )
            for number, store in enumerate(stores)
        ]
        saved = [outcome for outcome in await asyncio.gather(*wanted) if outcome is not None]
        assert len(saved) == 1
        wanted = [
            store.save_snapshot(
                f"k{turn}.{number}", becomes(row(session_id=f"s{number}", idempotency_key=f"key{turn}"))
            )
            for number, store in enumerate(stores)
        ]
        outcomes = await asyncio.gather(*wanted, return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["IdempotencyKeyError", "SessionSnapshot"]
    for store in stores:
        await asyncio.to_thread(store.close)


async def test_a_key_belongs_to_its_tenant(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        views = [store.for_tenant(name) for name in ("one", "two")]
        for view, name in zip(views, ("a", "b"), strict=True):
            await put(view, name, row(idempotency_key="key"))
        assert [(await view.get_snapshot_by_key("key")).snapshot_id for view in views] == ["a", "b"]
        assert await store.get_snapshot_by_key("key") is None


def test_an_id_that_another_sessions_writer_took_meanwhile_is_told_before_anything_is_written(postgres_dsn, schema):
    mine, others = (backend_of(postgres_dsn, schema) for _ in range(2))

    def add(session_id: str, between=lambda: None):
        def work(tx) -> None:
            assert tx.row("x") is None
            tx.put_mark(session_id, SessionMark(0, b"salt"))
            between()
            tx.put_row(Row("x", session_id, 1, Record(status="completed", created_at=1)))

        return work

    def take() -> None:
        [outcome] = others.write([Job("global", "t", add("t"))])
        assert outcome.error is None

    [outcome] = mine.write([Job("global", "s", add("s", take))])  # no hint that the id is new, so no lock on it
    assert isinstance(outcome.error, MovedError)
    assert mine.read("global", lambda view: (view.mark("s"), view.row("x").session_id)) == (None, "t")
    mine.close()
    others.close()


def backend_of(dsn: str, schema: str) -> PostgresBackend:
    return PostgresBackend(dsn, schema=schema, listen_dsn=None, poll_interval=5.0, erasure="vacuum")

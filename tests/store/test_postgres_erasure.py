"""Words that were taken back are gone from the database, and from its files."""

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

import zstandard  # noqa: E402
from psycopg import sql  # noqa: E402

from antiphon.store.core import StoreCore  # noqa: E402
from antiphon.store.line_store import LineStore  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore, packing  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.postgres.migrations import STEPS, migrate  # noqa: E402
from antiphon.testing.postgres import PostgresServer, find_binaries  # noqa: E402
from antiphon.testing.store_suite.support import becomes, found, put, row, said, snapshot, words  # noqa: E402

SECRET = "sesame-4711"


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not here")
    # Nobody else looks at the tables, so that nothing but the store removes dead rows.
    with PostgresServer(fsync=False, settings={"autovacuum": "off"}) as server:
        yield server


def copied(dsn: str, schema: str) -> bytes:
    plain = copied_as_it_is(dsn, schema)
    return plain + decompressed(plain)


def copied_as_it_is(dsn: str, schema: str) -> bytes:
    """All tables of the schema, byte by byte as they are read."""
    parts: list[bytes] = []
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert len(tables) == 8
        for (table,) in tables:
            copying = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(schema, table))
            with connection.cursor().copy(copying) as copy:
                parts += [bytes(part) for part in copy]
    return b"".join(parts)


def decompressed(data: bytes) -> bytes:
    """What is compressed in these bytes, wherever it begins."""
    found: list[bytes] = []
    at = data.find(zstandard.FRAME_HEADER)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            found.append(packing._tools.unpress(data[at : at + 2 * packing.MOST_BYTES], read_across_frames=False))
        at = data.find(zstandard.FRAME_HEADER, at + 1)
    return b"".join(found)


def in_files(server: PostgresServer) -> bool:
    """Whether the words stand in the tables' files. The WAL is not among them: it is the server's."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    for folder, _, names in os.walk(os.path.join(server.folder, "data", "base")):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                held = file.read()
                if SECRET.encode() in held or SECRET.encode() in decompressed(held):
                    return True
    return False


def mask(message):
    return said("gone")[0] if SECRET in str(message) else None


def mask_part(name, value):
    return {"word": "gone"} if SECRET in str(value) else value


async def tell(store) -> None:
    """The secret in a message, a large message, branches, the state, large state, the journal and the error."""
    secret = f"it is {SECRET}"
    long = "and so on and on " * 20
    talk = said("hi", secret, "large " + secret + "\0 . " * 3000, *(f"{long} {secret} {long}",) * 2)
    state = {"state": {"word": secret}, "notes": {"long": [secret] * 500}}
    await put(store, "a", row(snapshot=snapshot(talk, **state)))
    await put(
        store, "b", row(1, parent_id="a", snapshot=snapshot([*talk, *said("more " + secret, long + secret)], **state))
    )
    await put(store, "c", row(2, parent_id="a", snapshot=snapshot([*talk, *said("other " + secret)])))
    await put(store, "d", row(3, status="failed", error={"message": secret}, journal={"v": 1, "lines": said(secret)}))


async def test_no_table_holds_a_word_that_was_redacted(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await tell(store)
        assert SECRET.encode() in copied(postgres_dsn, schema)
        assert await store.redact("s", mask, part=mask_part) > 0
        assert SECRET.encode() not in copied(postgres_dsn, schema)
        assert words(await found(store, "b")) == ["hi", *["gone"] * 6]
        held = said("hi", f"it is {SECRET}")
        await put(store, "e", row(4, snapshot=snapshot(held)))
        assert SECRET.encode() not in copied(postgres_dsn, schema)


class Unreplaced:
    """A change in which nothing is replaced."""

    def __init__(self, tx) -> None:
        self._tx = tx

    def __getattr__(self, name):
        return getattr(self._tx, name)

    def replace(self, *_) -> None:
        pass


class LeavesRuns(PostgresBackend):
    """Redacts everything but the runs."""

    def write(self, jobs):
        return super().write([replace(job, work=lambda tx, job=job: job.work(Unreplaced(tx))) for job in jobs])


@pytest.mark.parametrize("backend", [PostgresBackend, LeavesRuns])
def test_a_word_that_is_left_in_a_compressed_run_is_found_by_the_search(postgres_dsn, schema, backend):
    settings = {"listen_dsn": None, "poll_interval": 60.0, "erasure": "vacuum"}
    with closing(LineStore(StoreCore(backend(postgres_dsn, schema=schema, **settings), name="mutant"))) as store:
        text = " ".join(f"word{number * number % 97}" for number in range(90))
        store.sync.save_snapshot("a", becomes(row(snapshot=snapshot(said("hi", f"{text} {SECRET} {text[::-1]}")))))
        assert SECRET.encode() not in copied_as_it_is(postgres_dsn, schema)
        assert SECRET.encode() in copied(postgres_dsn, schema)
        assert store.sync.redact("s", mask) == 1
        assert (SECRET.encode() in copied(postgres_dsn, schema)) == (backend is LeavesRuns)


@pytest.mark.parametrize("version", [4, len(STEPS)])
def test_the_servers_statistics_hold_no_words(own_server, version):
    """ANALYZE, which autovacuum runs too, keeps samples of columns: no redaction reaches them."""
    columns = {"snapshots": "record", "blobs": "body", "masks": "replacement"}
    columns |= {"messages": "body"} if version == 4 else {"runs": "value"}
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        migrate(connection, "antiphon", STEPS[:version])
        for table, column in columns.items():
            keys = {
                "snapshots": ("'t', n::text, 1, n, '', NULL, NULL, 1, {}", 300),
                "messages": ("1, 1, n, {}", 300),
                "runs": ("1, 1, n, {}, 1", 300),
            }.get(table, ("1, n::text::bytea, {}", 300))
            words = keys[0].format(f"'{SECRET}'::bytea || (n % 7)::text::bytea")
            connection.execute(f"INSERT INTO antiphon.{table} SELECT {words} FROM generate_series(1, {keys[1]}) AS n")
            connection.execute(f"ANALYZE antiphon.{table}")
            assert (SECRET.encode().hex() in sampled(connection, table, column)) == (version == 4)
        migrate(connection, "antiphon")
        for table, column in columns.items():
            now = {"messages": "runs"}.get(table, table)
            connection.execute(f"ANALYZE antiphon.{now}")
            assert SECRET.encode().hex() not in sampled(connection, now, "value" if now == "runs" else column)


def sampled(connection, table: str, column: str) -> str:
    asked = "SELECT * FROM pg_stats WHERE schemaname = 'antiphon' AND tablename = %s AND attname = %s"
    return str(connection.execute(asked, (table, column)).fetchall())


async def test_no_table_holds_a_word_of_a_session_that_was_deleted(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await tell(store)
        await put(store, "x", row(session_id="t", snapshot=snapshot(said("stays"))))
        assert await store.delete_session("s")
        held = copied(postgres_dsn, schema)
        assert SECRET.encode() not in held
        assert b"stays" in held


async def test_swept_and_pruned_words_are_in_no_table(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await tell(store)
        await put(store, "e", row(4, snapshot=snapshot(said("new"))))
        await put(store, "f", row(5, parent_id="e", snapshot=snapshot(said("new", "newer"))))
        report = await store.prune("s", keep=1)
        assert "b" in report.snapshot_ids
        left = await store.list_snapshots("s")
        assert words(await found(store, "f")) == ["new", "newer"]
        if {"a", "b", "c", "d"} <= set(report.snapshot_ids):
            assert SECRET.encode() not in copied(postgres_dsn, schema)
        assert len(left.snapshots) + len(report.snapshot_ids) == 6


@pytest.mark.parametrize("act", ["redact", "delete"])
async def test_tables_that_are_rewritten_leave_no_old_word_in_their_files(own_server, act):
    async with PostgresSessionStore(own_server.dsn, erasure="rewrite") as store:
        await tell(store)
        assert in_files(own_server)
        if act == "redact":
            await store.redact("s", mask, part=mask_part)
        else:
            await store.delete_session("s")
        assert not in_files(own_server)


@pytest.mark.parametrize("reads", ["antiphon.runs", "pg_class"])
async def test_a_reader_who_can_see_the_old_words_delays_their_end_until_the_next_change(own_server, reads):
    async with PostgresSessionStore(own_server.dsn, erasure="rewrite") as store:
        await tell(store)
        with psycopg.connect(own_server.dsn) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute(f"SELECT count(*) FROM {reads}")
            await store.redact("s", mask, part=mask_part)
            assert SECRET.encode() not in copied(own_server.dsn, "antiphon")
            assert in_files(own_server)
            told = reader.execute("SELECT string_agg(value, '') FROM antiphon.runs").fetchone()[0]
            assert SECRET.encode() in told + decompressed(told)
            assert await store.erasure_pending()
    async with PostgresSessionStore(own_server.dsn, erasure="rewrite") as store:  # another process, later
        assert await store.erasure_pending()
        await put(store, "x", row(session_id="t"))
        assert not in_files(own_server)
        assert not await store.erasure_pending()


async def test_vacuum_removes_dead_rows_at_once(own_server):
    async with PostgresSessionStore(own_server.dsn) as store:
        await tell(store)
        await store.redact("s", mask, part=mask_part)
        with psycopg.connect(own_server.dsn) as connection:
            vacuumed = (
                "SELECT relname FROM pg_stat_all_tables WHERE schemaname = 'antiphon' AND last_vacuum IS NOT NULL"
            )
            tables = {table for (table,) in connection.execute(vacuumed)}
            assert {"snapshots", "runs", "blobs", "masks"} <= tables
            assert connection.execute("SELECT count(*) FROM antiphon.scrubs").fetchone() == (0,)


async def test_a_table_that_somebody_holds_is_rewritten_later(own_server, caplog):
    async with PostgresSessionStore(own_server.dsn, erasure="rewrite") as store:
        await tell(store)
        with psycopg.connect(own_server.dsn) as holder:
            holder.execute("LOCK TABLE antiphon.runs IN ROW SHARE MODE")
            assert await store.redact("s", mask, part=mask_part) > 0
            assert "not yet removed" in caplog.text
            assert "Traceback" not in caplog.text  # it is expected, and made up for
            assert words(await found(store, "b")) == ["hi", *["gone"] * 6]
        await put(store, "x", row(session_id="t"))
        assert not in_files(own_server)


async def test_messages_before_a_window_go_when_nobody_holds_them_any_more(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        talk = said(*(f"{SECRET} {number}" for number in range(6)), *(f"stays {number}" for number in range(6)))
        await put(store, "a", row(snapshot=snapshot(talk)))
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot([*talk[6:], *said("new")])))
        report = await store.prune("s", keep=1)
        assert (report.snapshot_ids, report.messages) == (("a",), 6)
        held = copied(postgres_dsn, schema)
        assert SECRET.encode() not in held
        assert all(f"stays {number}".encode() in held for number in range(6))
        assert words(await found(store, "b")) == [*(f"stays {number}" for number in range(6)), "new"]
        await put(store, "c", row(2, parent_id="b", snapshot=snapshot([*talk[6:], *said("new", "newer")])))
        assert words(await found(store, "c"))[-2:] == ["new", "newer"]

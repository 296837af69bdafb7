"""Messages that share a row in PostgreSQL: how they are packed, what damage does, and what older tables hold."""

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")
zstandard = pytest.importorskip("zstandard", reason="the extra postgres is not installed")

from antiphon.errors import CorruptStoreError  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.migrations import STEPS, enter_schema, migrate  # noqa: E402
from antiphon.store.postgres.packing import MOST_BYTES, MOST_MESSAGES, pack, pack_runs, unpack  # noqa: E402
from antiphon.store.record import Record  # noqa: E402
from antiphon.store.record import pack as pack_record  # noqa: E402
from antiphon.testing.store_suite.support import found, put, row, said, snapshot, words  # noqa: E402

ADDRESS = st.binary(min_size=32, max_size=32).map(lambda address: b"\0" + address)
TEXT = st.text(max_size=40).map(lambda text: b'{"role":"user","content":[{"text":"%s"}]}' % (text * 9).encode())
BODY = st.one_of(TEXT, TEXT, TEXT, ADDRESS, st.just(b""), st.just(b"\xff"))


@given(st.lists(BODY, min_size=1, max_size=70))
def test_what_is_packed_is_unpacked_to_the_bit_and_says_whether_it_holds_addresses(bodies):
    value = pack(bodies)
    assert unpack(value, len(bodies)) == bodies
    assert unpack(value, len(bodies) + 1) is None
    holds_addresses = any(len(body) == 33 and body[0] == 0 for body in bodies)
    assert (value[:1] in {b"\0", b"\3", b"\4"}) == holds_addresses
    assert len(value) <= sum(map(len, bodies)) + 9 * len(bodies)


@given(st.binary(max_size=200), st.integers(1, 70))
def test_no_bytes_end_in_another_error_or_in_another_number_of_messages(value, size):
    for each in (value, *(bytes([form]) + value for form in range(1, 6))):
        held = unpack(each, size)
        assert held is None or len(held) == size


def test_a_value_that_claims_to_be_larger_than_any_row_is_not_unpacked():
    header = zstandard.FRAME_HEADER + bytes([0xE0]) + (2**40).to_bytes(8, "little")
    assert zstandard.frame_content_size(header) == 2**40
    assert unpack(b"\2" + header + bytes(100), 2) is None


@given(st.lists(st.binary(max_size=3000).map(lambda body: b'"' + body), max_size=200), st.integers(0, 10**6))
def test_runs_are_bounded_and_in_order(bodies, at):
    runs = list(pack_runs(3, at, bodies))
    assert [body for run in runs for body in unpack(run.value, run.size) or ()] == bodies
    assert all(after.first == before.stop for before, after in itertools.pairwise(runs))
    assert not runs or runs[0].first == at
    for run in runs:
        held = unpack(run.value, run.size) or []
        assert len(held) <= MOST_MESSAGES
        assert len(held) == 1 or sum(map(len, held)) <= MOST_BYTES


def test_an_ordinary_turn_takes_two_thirds_of_its_bytes():
    texts = ["Please book a table for two at seven o'clock, near the window if there is one left.", "All right. " * 9]
    bodies = [b'{"role":"user","content":[{"text":"%s"}]}' % text.encode() for text in texts]
    assert len(pack(bodies)) < 0.67 * sum(map(len, bodies))


async def test_a_damaged_run_is_named_and_everything_else_is_read_and_gone_on_from(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        for turn in range(4):
            texts = [f"m{number} " + "and on " * 30 for number in range(2 * turn)]
            talk = said("a", "b", *texts)
            await put(store, f"t{turn}", row(turn, parent_id=f"t{turn - 1}" if turn else None, snapshot=snapshot(talk)))
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(enter_schema(schema).replace(b"SET LOCAL", b"SET"))
            assert connection.execute("UPDATE runs SET value = '\\x02ffee' WHERE first = 4").rowcount == 1
        assert words(await found(store, "t1"))[:2] == ["a", "b"]
        lost = r"snapshot 't3' of session 's': messages 4 to 5 of line 1 .* are lost"
        with pytest.raises(CorruptStoreError, match=lost):
            await store.get_snapshot("t3")
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await put(store, "t4", row(9, parent_id="t3", snapshot=snapshot([*talk, *said("on")])))
        assert words(await found(store, "t4"))[-1] == "on"
        assert await store.redact("s", lambda message: said("x")[0] if "m0 " in str(message) else None) >= 1
        assert words(await found(store, "t4"))[2] == "x"
        assert words(await found(store, "t1"))[2] == "x"
        with pytest.raises(CorruptStoreError, match="t3"):
            words(await found(store, "t3"))


@pytest.mark.parametrize("version", [1, 4])
async def test_messages_of_older_tables_are_read_and_gone_on_from(postgres_dsn, schema, version):
    record = Record(status="completed", created_at=7, envelope=("agent", "1.0", ""), spans=((5, 0, 3),))
    bodies = [b'{"role":"user","content":[{"text":"m%d"}]}' % number for number in range(3)]
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        migrate(connection, schema, STEPS[:version])
        with connection.transaction():
            connection.execute(enter_schema(schema))
            connection.execute(
                "INSERT INTO sessions (tenant, session_id, redactions, salt, snapshots, newest_at, newest_id)"
                " VALUES ('global', 's', 0, 'salt', 1, 7, 'a')"
            )
            connection.execute(
                "INSERT INTO snapshots (tenant, snapshot_id, session, created_at, status, revision, record)"
                " VALUES ('global', 'a', 1, 7, 'completed', 3, %s)",
                (pack_record(record),),
            )
            for seq, body in enumerate(bodies):
                connection.execute("INSERT INTO messages VALUES (1, 5, %s, %s)", (seq, body))
            connection.execute("SELECT setval('line_numbers', 5)")
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        there = await found(store, "a")
        assert words(there) == ["m0", "m1", "m2"]
        more = [*there.loaded().data["messages"], *said("m3", "m4")]
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot(more)))
        assert words(await found(store, "b")) == ["m0", "m1", "m2", "m3", "m4"]
        assert await store.redact("s", lambda message: said("x")[0] if "m1" in str(message) else None) >= 1
        assert words(await found(store, "b")) == ["m0", "x", "m2", "m3", "m4"]
        assert words(await found(store, "a")) == ["m0", "x", "m2"]


async def test_a_long_history_is_kept_in_bounded_runs_and_reads_back(postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        talk = said(*(f"m{number}" for number in range(10_000)))
        await put(store, "a", row(snapshot=snapshot(talk)))
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(enter_schema(schema).replace(b"SET LOCAL", b"SET"))
            largest, count = connection.execute("SELECT max(size), count(*) FROM runs").fetchone()
        assert (largest, count) == (MOST_MESSAGES, -(-10_000 // MOST_MESSAGES))
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot(talk[4_990:5_010])))
        assert words(await found(store, "b")) == [f"m{number}" for number in range(4_990, 5_010)]
        assert words(await found(store, "a"))[9_999] == "m9999"


def test_without_zstandard_the_extra_is_named():
    code = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from antiphon.store import open_store\n"
        "try: open_store('postgresql://postgres@/postgres')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("MissingExtraError")
    assert "antiphon[postgres]" in told
    assert "zstandard" in told

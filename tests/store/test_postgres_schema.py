"""How the tables come to be, and what they keep."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from psycopg import sql  # noqa: E402

from antiphon.errors import MissingExtraError, SessionRowError, SessionStoreError, StoreSchemaError  # noqa: E402
from antiphon.store import open_store  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.driver import STATEMENTS  # noqa: E402
from antiphon.store.postgres.migrations import STEPS, enter_schema, migrate, search_path  # noqa: E402
from antiphon.store.record import Record, pack  # noqa: E402
from antiphon.testing.store_suite.support import becomes, found, put, row, said, snapshot, words  # noqa: E402


@pytest.fixture
def connection(postgres_dsn: str) -> Iterator[object]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


def version_of(connection, schema: str) -> int:
    return connection.execute(
        sql.SQL("SELECT version FROM {}").format(sql.Identifier(schema, "store_version"))
    ).fetchone()[0]


def shape_of(connection, schema: str) -> list[tuple[object, ...]]:
    """Tables, columns and indexes, without the schema's name."""
    columns = connection.execute(
        "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default IS NULL"
        " FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
        (schema,),
    ).fetchall()
    indexes = connection.execute(
        "SELECT tablename, indexname, replace(indexdef, quote_ident(schemaname), '') FROM pg_indexes"
        " WHERE schemaname = %s ORDER BY 1, 2",
        (schema,),
    ).fetchall()
    return [*columns, *indexes]


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_a_schema_of_any_version_becomes_what_a_new_one_is(connection, schema, version):
    migrate(connection, schema, STEPS)
    new = shape_of(connection, schema)
    connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    migrate(connection, schema, STEPS[:version])
    migrate(connection, schema, STEPS)
    assert shape_of(connection, schema) == new
    assert version_of(connection, schema) == len(STEPS)


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
async def test_rows_of_every_version_are_read_and_listed(connection, postgres_dsn, schema, version):
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
            (pack(Record(status="completed", created_at=7)),),
        )
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        assert (await found(store, "a")).session_id == "s"
        page = await store.list_sessions()
        assert [(listed.session_id, listed.latest.snapshot_id) for listed in page.sessions] == [("s", "a")]
        await put(store, "b", row(1))
        assert (await store.get_latest_snapshot("s")).snapshot_id == "b"


def test_openers_that_meet_make_one_schema(connection, postgres_dsn, schema):
    gate = threading.Barrier(8)
    failures: list[BaseException] = []

    def open_it() -> None:
        gate.wait()
        try:
            PostgresSessionStore(postgres_dsn, schema=schema).close()
        except BaseException as error:  # noqa: BLE001 - it is told below
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert version_of(connection, schema) == len(STEPS)


def test_a_newer_schema_is_refused_and_left_alone(connection, postgres_dsn, schema):
    migrate(connection, schema)
    with connection.transaction():
        connection.execute(enter_schema(schema))
        connection.execute("UPDATE store_version SET version = 99")
    with pytest.raises(StoreSchemaError, match="99"):
        PostgresSessionStore(postgres_dsn, schema=schema)
    assert version_of(connection, schema) == 99


@pytest.mark.parametrize("table", ["messages (words text)", "store_version (version text)", "store_version (n int)"])
def test_somebody_elses_tables_are_refused_and_left_alone(connection, postgres_dsn, schema, table):
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    with connection.transaction():
        connection.execute(enter_schema(schema))
        connection.execute(f"CREATE TABLE {table}")
    before = shape_of(connection, schema)
    with pytest.raises(StoreSchemaError):
        PostgresSessionStore(postgres_dsn, schema=schema)
    assert shape_of(connection, schema) == before


async def test_who_may_not_make_tables_can_use_those_that_are_there(connection, postgres_server, postgres_dsn, schema):
    PostgresSessionStore(postgres_dsn, schema=schema).close()
    name = sql.Identifier(schema)
    connection.execute("CREATE ROLE clerk LOGIN")
    try:
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO clerk").format(name))
        rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {} TO clerk"
        connection.execute(sql.SQL(rights).format(name))
        connection.execute(sql.SQL("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {} TO clerk").format(name))
        async with PostgresSessionStore(postgres_dsn.replace("postgres@", "clerk@"), schema=schema) as store:
            await put(store, "a", row(snapshot=snapshot(said("hi"))))
            assert words(await found(store, "a")) == ["hi"]
        with pytest.raises(SessionStoreError):
            PostgresSessionStore(postgres_dsn.replace("postgres@", "clerk@"), schema="another")
    finally:
        connection.execute("DROP OWNED BY clerk")
        connection.execute("DROP ROLE clerk")


async def test_a_schema_that_was_dropped_is_an_error_once_and_made_anew(connection, postgres_dsn, schema):
    async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
        await put(store, "a", row())
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        with pytest.raises(StoreSchemaError, match="dropped"):
            await store.get_snapshot("a")
        assert await store.get_snapshot("a") is None
        await put(store, "a", row())


def test_ids_are_compared_by_bytes_whatever_the_databases_language(connection, postgres_dsn, schema):
    try:
        connection.execute(
            "CREATE DATABASE german TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de'"
            " LOCALE 'C.UTF-8'"
        )
    except psycopg.Error as error:
        pytest.skip(f"this server has no ICU: {error}")
    dsn = postgres_dsn.replace("/postgres?", "/german?")
    try:
        store = PostgresSessionStore(dsn, schema=schema)
        ids = ["B", "a", "Z", "_", "ä", "\U0001f600", "\ufffd"]
        for name in ids:
            store.sync.save_snapshot(name, becomes(row(session_id=name)))
            store.sync.save_snapshot(f"in-one.{name}", becomes(row(session_id="one")))
        listed = [page.session_id for page in store.sync.list_sessions().sessions if page.session_id != "one"]
        assert listed == sorted(ids, reverse=True)
        assert store.sync.get_latest_snapshot("one").snapshot_id == f"in-one.{max(ids)}"
        shown = [there.snapshot_id for there in store.sync.list_snapshots("one").snapshots]
        assert shown == sorted(shown, reverse=True)
        store.close()
    finally:
        connection.execute("DROP DATABASE german WITH (FORCE)")


def test_every_column_of_text_is_compared_by_bytes(connection, schema):
    migrate(connection, schema)
    columns = connection.execute(
        "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = %s AND data_type = 'text'",
        (schema,),
    ).fetchall()
    assert columns
    assert {collation for _, _, collation in columns} == {"C"}


def test_a_database_in_another_encoding_is_refused(connection, postgres_dsn, schema):
    connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        with pytest.raises(StoreSchemaError, match="LATIN1"):
            PostgresSessionStore(postgres_dsn.replace("/postgres?", "/latin?"), schema=schema)
    finally:
        connection.execute("DROP DATABASE latin WITH (FORCE)")


async def test_names_that_look_like_sql_are_only_names(connection, postgres_dsn):
    schema = 'x"; DROP TABLE sessions; --%s'
    evil = "'); DROP TABLE snapshots; --"
    try:
        async with PostgresSessionStore(postgres_dsn, schema=schema) as store:
            view = store.for_tenant(evil)
            await put(view, evil, row(session_id=evil, agent_id=evil, idempotency_key=evil, owner=evil))
            assert (await found(view, evil)).session_id == evil
            assert (await view.get_latest_snapshot(evil, agent_id=evil)).snapshot_id == evil
            assert (await view.get_snapshot_by_key(evil)).snapshot_id == evil
            assert len((await view.list_sessions(agent_id=evil)).sessions) == 1
            assert (await view.list_sessions(agent_id="' OR ''='")).sessions == ()
            assert await view.delete_session(evil)
    finally:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


async def test_a_temporary_table_of_the_same_name_is_not_taken_for_ours(postgres_dsn, schema):
    from psycopg_pool import ConnectionPool

    def shadow(connection) -> None:
        connection.execute("CREATE TEMPORARY TABLE IF NOT EXISTS snapshots (n int)")
        connection.commit()

    with ConnectionPool(postgres_dsn, min_size=1, max_size=2, open=True, configure=shadow) as pool:
        store = PostgresSessionStore(pool, schema=schema)
        await put(store, "a", row())
        assert (await found(store, "a")).session_id == "s"
        store.close()


async def test_a_pool_that_prepares_every_statement_makes_the_tables_too(postgres_dsn, schema):
    from psycopg_pool import ConnectionPool

    with ConnectionPool(postgres_dsn, min_size=1, max_size=2, open=True, kwargs={"prepare_threshold": 0}) as pool:
        store = PostgresSessionStore(pool, schema=schema)
        await put(store, "a", row(snapshot=snapshot(said("hi"))))
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot(said("hi", "there"))))
        assert words(await found(store, "b")) == ["hi", "there"]
        store.close()


@pytest.mark.parametrize(
    ("argument", "value"),
    [("schema", ""), ("schema", "x" * 64), ("schema", "a\0b"), ("poll_interval", 0), ("erasure", "shred")],
)
def test_arguments_without_sense_are_refused(postgres_dsn, argument, value):
    with pytest.raises(SessionRowError, match=argument):
        PostgresSessionStore(postgres_dsn, **{argument: value})


@pytest.mark.parametrize("dsn", ["postgresql://me:s3same@host:port/%zz", "host='s3same", "s3same"])
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(dsn):
    with pytest.raises(SessionRowError) as refused:
        PostgresSessionStore(dsn)
    told: BaseException | None = refused.value
    assert "s3same" not in str(told)
    assert told.__cause__ is None
    assert told.__suppress_context__


def test_a_url_opens_the_store(postgres_dsn, schema):
    store = open_store(postgres_dsn, schema=schema, prefix="org-42")
    assert isinstance(store, PostgresSessionStore)
    assert store.sync.get_snapshot("a") is None
    store.close()


def test_a_pool_for_one_event_loop_is_refused(postgres_dsn):
    from psycopg_pool import AsyncConnectionPool

    with pytest.raises(SessionRowError, match="AsyncConnectionPool"):
        PostgresSessionStore(AsyncConnectionPool(postgres_dsn, open=False))


def test_without_the_driver_the_extra_is_named():
    program = (
        "import sys\nsys.modules['psycopg'] = None\nfrom antiphon.store.opening import open_store\n"
        "try:\n    open_store('postgresql://localhost/')\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.startswith(MissingExtraError.__name__)
    assert "antiphon[postgres]" in told


def test_every_statement_is_accepted_by_the_server(connection, schema):
    """The server reads each, with arguments of the types that are bound."""
    migrate(connection, schema)
    connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
    for statement in STATEMENTS.values():
        names = list(dict.fromkeys(re.findall(rb"%\((\w+)\)[sb]", statement)))
        for number, name in enumerate(names, 1):
            statement = re.sub(rb"%%\(%b\)[sb]" % name, b"$%d" % number, statement)  # noqa: PLW2901
        connection.execute(b"PREPARE p AS " + statement)
        connection.execute("DEALLOCATE p")


def test_lists_and_the_latest_walk_along_indexes_before_there_are_statistics(connection, schema):
    migrate(connection, schema)
    nothing = {"after_at": None, "after_id": None, "statuses": None, "agent_id": None, "since": None, "until": None}
    asked = {"tenant": "global", "session": 7, "agent_id": "a", "limit": 20, "line": 3, "start": 2000, "stop": 2007}
    with connection.transaction():
        connection.execute(enter_schema(schema))
        connection.execute(
            "INSERT INTO sessions (tenant, session_id, redactions, salt, snapshots, newest_at, newest_id)"
            " SELECT 'global', 's' || n, 0, '', 1, n, 'r' || n FROM generate_series(1, 3000) AS n"
        )
        connection.execute(
            "INSERT INTO snapshots (tenant, snapshot_id, session, created_at, status, agent_id, revision, record)"
            " SELECT 'global', 'r' || n, n % 10, n, 'completed', 'a', n, '' FROM generate_series(1, 3000) AS n"
        )
        connection.execute("INSERT INTO runs SELECT 7, n % 5, n, '', 1 FROM generate_series(1, 3000) AS n")
        connection.execute(STATEMENTS["set_up_read"], {"search_path": search_path(schema)})
        for name, more in (
            ("sessions", {}),
            ("sessions", {"after_at": 1500, "after_id": "s1500", "agent_id": "a", "statuses": ["completed"]}),
            ("page", {}),
            ("page", {"after_at": 1500, "after_id": "r1500", "agent_id": "a"}),
            ("newest", {}),
            ("latest_of_agent", {"agent_id": "a"}),
            ("length", {}),
            ("messages", {}),
            ("runs", {}),
            ("extents", {}),
        ):
            arguments = {**nothing, **asked, "agent_id": None, **more}
            plan = connection.execute(b"EXPLAIN (FORMAT text) " + STATEMENTS[name], arguments).fetchall()
            told = "\n".join(line for (line,) in plan)
            assert "Sort" not in told, told
            assert "Seq Scan" not in told, told
            assert "Join Filter" not in told, told

"""The schema of a store in its URL, beside what libpq takes."""

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from psycopg.conninfo import conninfo_to_dict  # noqa: E402

from antiphon.errors import SessionRowError  # noqa: E402
from antiphon.store import open_store  # noqa: E402
from antiphon.store.postgres.session_store import split_schema  # noqa: E402
from antiphon.testing.store_suite.support import put, row, snapshot  # noqa: E402


def with_schema(dsn: str, schema: str) -> str:
    return f"{dsn}{'&' if '?' in dsn else '?'}schema={schema}"


async def test_a_url_names_the_schema_of_the_tables(postgres_dsn, schema):
    url = with_schema(postgres_dsn, schema)
    async with open_store(url) as store, open_store(postgres_dsn, schema=schema) as same:
        made = await put(store, "", row(snapshot=snapshot()))
        assert (await same.get_snapshot(made.snapshot_id)) is not None
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    assert found is not None


async def test_parameters_of_libpq_pass_through_beside_the_schema(postgres_dsn, schema):
    async with open_store(with_schema(postgres_dsn, schema) + "&application_name=told%20apart") as store:
        await store.list_sessions()
        with psycopg.connect(postgres_dsn) as connection:
            names = connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
    assert ("told apart",) in names


@pytest.mark.parametrize(
    ("url", "dsn", "schema"),
    [
        ("postgresql://h/d", "postgresql://h/d", None),
        ("postgresql://h/d?schema=s", "postgresql://h/d", "s"),
        ("postgres://h/d?schema=s", "postgres://h/d", "s"),
        ("postgresql://?schema=a%20b%2Fc", "postgresql://", "a b/c"),
        ("postgresql://h/d?schema=", "postgresql://h/d", ""),
        ("postgresql://u:p?schema=x@h/d?sslmode=require", "postgresql://u:p?schema=x@h/d?sslmode=require", None),
        ("postgresql://u:p?schema=x@h/d?schema=s", "postgresql://u:p?schema=x@h/d", "s"),
        ("postgresql://h/d?options=-cschema%3Dx&schema=s", "postgresql://h/d?options=-cschema%3Dx", "s"),
        ("postgresql://a,b/d?host=/tmp&schema=s&port=1,2", "postgresql://a,b/d?host=/tmp&port=1,2", "s"),
    ],
)
def test_the_schema_is_taken_out_and_all_else_stays_as_it_is(url, dsn, schema):
    assert split_schema(url) == (dsn, schema)


@given(
    user=st.text(alphabet="ab%?=:é", max_size=5).map(lambda text: text.replace("%", "%25")),
    query=st.permutations(["connect_timeout=5", "application_name=x%26schema%3Dy", "sslmode=require", "schema=s"]),
)
def test_libpq_reads_the_rest_as_if_the_schema_had_not_been_there(user, query):
    before = f"postgresql://{user}@h/d"
    dsn, schema = split_schema(f"{before}?{'&'.join(query)}")
    assert schema == "s"
    rest = "&".join(pair for pair in query if pair != "schema=s")
    assert conninfo_to_dict(dsn) == conninfo_to_dict(f"{before}?{rest}")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("schema=a&schema=a", "more than once"),
        ("schema=%ff", "not UTF-8"),
        ("schema=", "not a name of 1 to 63 bytes"),
        ("schema=" + "x" * 64, "not a name of 1 to 63 bytes"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_refused_and_the_password_is_not_told(query, words):
    with pytest.raises(SessionRowError, match=words) as refused:
        open_store(f"postgresql://ann:geheim@127.0.0.1:1/d?{query}")
    assert "geheim" not in str(refused.value)


def test_a_url_and_an_argument_that_name_different_schemas_are_refused():
    with pytest.raises(SessionRowError, match="schema='a', and the argument schema='b'"):
        open_store("postgresql://127.0.0.1:1/d?schema=a", schema="b")

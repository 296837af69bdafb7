"""What is damaged is named, and nothing else suffers from it."""

import json
import sqlite3
from contextlib import closing

import pytest

from antiphon.errors import CorruptStoreError
from antiphon.store import InMemorySessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.store_suite.support import becomes, put, row, said, snapshot, words

TALK = said("SECRET one", "two", "three", "SECRET four")


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement, values).rowcount == 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


@pytest.fixture(params=[b"{{", b"\xff", b'1,{"a":2}', b""], ids=["no JSON", "no UTF-8", "two", "nothing"])
def store(request, path):
    """A session of which the second message cannot be read."""
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as filled:
        filled.sync.save_snapshot("r", becomes(row(snapshot=snapshot(TALK))))
    change(path, "UPDATE message SET body = ? WHERE place % 65536 = 1", request.param)
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as store:
        yield store


def gone(message):
    return {**message, "content": [{"text": "*"}]} if "SECRET" in str(message) else None


async def test_a_message_that_cannot_be_read_is_named(store):
    messages = (await store.get_snapshot("r")).snapshot.data["messages"]
    for read in (lambda: list(messages), lambda: messages[1], lambda: messages[-3], lambda: messages[1:][0]):
        with pytest.raises(CorruptStoreError, match="message 1 of snapshot 'r' cannot be read"):
            read()
    assert messages[0] == TALK[0]
    assert list(messages[2:]) == TALK[2:]


async def test_a_session_with_a_message_that_cannot_be_read_goes_on(store):
    await put(store, "next", row(1, parent_id="r", snapshot=snapshot([*TALK, *said("five")])))
    assert words(await store.get_snapshot("next")) == [*(m["content"][0]["text"] for m in TALK), "five"]


async def test_a_redaction_reaches_beyond_a_message_that_cannot_be_read(store, path):
    assert await store.redact("s", gone) in {2, 3}
    assert b"SECRET" not in path.read_bytes()
    messages = (await store.get_snapshot("r")).snapshot.data["messages"]
    assert [messages[at]["content"][0]["text"] for at in (0, 2, 3)] == ["*", "three", "*"]
    with pytest.raises(CorruptStoreError, match="message 1 of snapshot 'r'"):
        list(messages)
    assert await store.redact("s", gone) == 0


async def test_the_bytes_of_a_message_that_cannot_be_read_are_redacted_too(path):
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as filled:
        filled.sync.save_snapshot("r", becomes(row(snapshot=snapshot(TALK))))
    change(path, "UPDATE message SET body = ? WHERE place % 65536 = 1", json.dumps(TALK[0]).encode()[:-1])
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as store:
        assert await store.redact("s", gone) == 3
        assert b"SECRET" not in path.read_bytes()


async def test_only_the_messages_that_are_lost_are_named(path):
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as filled:
        filled.sync.save_snapshot("r", becomes(row(snapshot=snapshot(said(*"abcdefgh")))))
    for lost in (2, 4, 5):
        change(path, "DELETE FROM message WHERE place % 65536 = ?", lost)
    named = r"snapshot 'r'.*: messages 2, 4 to 5 of line \d+ .* are lost"
    with closing(SQLiteSessionStore(path, synchronous="OFF")) as store, pytest.raises(CorruptStoreError, match=named):
        await store.get_snapshot("r")


def test_one_message_that_is_lost_in_memory_is_named():
    tenant = InMemorySessionStore()._core.backend._tenant("t")
    with pytest.raises(CorruptStoreError, match="message 3 of line 1 in session 's' is lost"):
        tenant.messages("s", 1, 3, 4)

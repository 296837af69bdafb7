"""Words that were taken back stay away, though somebody still holds them and saves them again."""

from contextlib import closing

import pytest

from antiphon.errors import SessionRowError
from antiphon.store import InMemorySessionStore, SessionSnapshot
from antiphon.store.file import FileSessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.store_suite.support import found, put, row, said, snapshot, words


@pytest.fixture(params=["memory", "sqlite", "file"])
def store(request, tmp_path):
    if request.param == "memory":
        made = InMemorySessionStore()
    elif request.param == "sqlite":
        made = SQLiteSessionStore(tmp_path / "s.db", synchronous="OFF")
    else:
        made = FileSessionStore(tmp_path / "sessions")
    with closing(made):
        yield made


def gone(message):
    return {**message, "content": [{"text": "*"}]} if "SECRET" in str(message) else None


def stays(message):
    return None


def pending(**fields) -> SessionSnapshot:
    return row(status="pending", **fields)


async def test_a_journal_that_was_redacted_as_a_part_does_not_come_back(store):
    journal = {"heard": "my SECRET word", "lines": said("hello")}
    await put(store, "r", pending(journal=journal))
    assert await store.redact("s", stays, part=lambda _, value: {**value, "heard": "*"}) == 1
    saved = await put(store, "r", pending(journal=journal))
    assert saved.journal == (await found(store, "r")).journal == {"heard": "*", "lines": said("hello")}
    moved = await put(store, "r", pending(journal={**journal, "lines": said("hello", "more")}))
    assert moved.journal == {"heard": "*", "lines": said("hello", "more")}


async def test_a_journal_that_was_redacted_by_its_messages_and_as_a_part_does_not_come_back(store):
    journal = {"heard": "my SECRET word", "lines": said("SECRET")}
    await put(store, "r", pending(journal=journal))
    assert await store.redact("s", gone, part=lambda _, value: {**value, "heard": "*"}) == 1
    assert (await put(store, "r", pending(journal=journal))).journal == {"heard": "*", "lines": said("*")}


async def test_a_message_that_no_row_held_any_more_when_it_was_redacted_does_not_come_back(store):
    old = said("my SECRET word", "ok")
    await put(store, "r", pending(snapshot=snapshot(old)))
    await put(store, "r", pending(snapshot=snapshot(said("quite", "different"))))
    assert await store.redact("s", gone) == 0
    await put(store, "r", pending(snapshot=snapshot(old)))
    assert words(await found(store, "r")) == ["*", "ok"]


async def test_a_word_does_not_come_back_in_a_state_that_has_changed_beside_it(store):
    def state(count):
        return {"w": "SECRET", "n": count, "deep": [{"again": "SECRET", "mode": "fast"}], "free": "as it is"}

    def without(name, value):
        if name != "data.state":
            return value
        return {**value, "w": "*", "deep": [{**value["deep"][0], "again": "*"}]}

    await put(store, "r", pending(snapshot=snapshot(said("x"), state=state(1))))
    assert await store.redact("s", stays, part=without) == 1
    await put(store, "r", pending(snapshot=snapshot(said("x"), state={**state(2), "else": ["SECRET"]})))
    there = (await found(store, "r")).loaded().data["state"]
    assert there == {**without("data.state", state(2)), "else": ["*"]}


async def test_a_field_that_was_removed_from_a_state_does_not_come_back(store):
    def state(count):
        return {"w": "SECRET", "n": count, "mode": "SECRET"}

    def without(name, value):
        return {key: item for key, item in value.items() if key != "w"} if name == "data.state" else value

    await put(store, "r", pending(snapshot=snapshot(said("x"), state=state(1))))
    assert await store.redact("s", stays, part=without) == 1
    await put(store, "r", pending(snapshot=snapshot(said("x"), state=state(2))))
    assert (await found(store, "r")).loaded().data["state"] == {"n": 2, "mode": "SECRET"}


async def test_words_whose_replacement_was_redacted_in_turn_become_the_last_one(store):
    def into(new, *olds):
        return lambda _, value: {**value, "w": new} if value.get("w") in olds else value

    await put(store, "r", pending(snapshot=snapshot(said("x"), state={"w": "SECRET", "n": 1})))
    await store.redact("s", stays, part=into("first", "SECRET"))
    await store.redact("s", stays, part=into("second", "first"))
    for count in (1, 2):
        await put(store, "r", pending(snapshot=snapshot(said("x"), state={"w": "SECRET", "n": count})))
        assert (await found(store, "r")).loaded().data["state"] == {"w": "second", "n": count}


async def test_what_was_redacted_stays_away_from_a_session_that_was_exported_and_imported(store):
    def state(count):
        return {"w": "SECRET", "n": count}

    def without(name, value):
        return {**value, "w": "*"} if name == "data.state" else value

    old = row(snapshot=snapshot(said("SECRET"), state=state(1)))
    await put(store, "r", old)
    assert await store.redact("s", gone, part=without) == 2
    lines = [line async for line in store.export("s")]
    assert b"SECRET" not in b"".join(lines)
    await store.delete_session("s")
    await store.import_(lines)
    assert [line async for line in store.export("s")] == lines
    saved = await put(store, "next", row(1, snapshot=snapshot(said("SECRET"), state=state(2))))
    assert words(saved) == ["*"]
    assert saved.loaded().data["state"] == {"w": "*", "n": 2}


@pytest.mark.parametrize(
    "masks", [b'{"zz":1}', b'{"6d":1}', b'{"%b":1}' % (b"70" * 17), b'{"%b":1}' % (b"20" * 17), b"[]"]
)
async def test_an_export_whose_digests_are_none_is_refused(store, masks):
    await put(store, "r", row(snapshot=snapshot(said("SECRET"))))
    await store.redact("s", gone)
    lines = [line async for line in store.export("s")]
    await store.delete_session("s")
    lines[1] = lines[1][: lines[1].index(b'"masks":') + 8] + masks + b"}\n"
    with pytest.raises(SessionRowError):
        await store.import_(lines)
    assert await store.get_snapshot("r") is None


async def test_an_erased_session_leaves_no_name_of_who_had_its_lease(store, tmp_path):
    await put(store, "r", row(session_id="the-session", owner="the-worker"))
    first = await store.acquire_lease("the-session", owner="the-worker")
    await store.release_lease(first)
    await store.acquire_lease("the-session", owner="the-worker")
    assert await store.delete_session("the-session")
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"the-session" not in held
    assert b"the-worker" not in held
    again = await store.acquire_lease("the-session", owner="the-worker", wait=False)
    assert again.ticket == 3

"""What a branch writes: in its session its own messages; as a session of its own, the conversation once."""

import pytest

from antiphon import Agent, NullConversationManager, Runner
from antiphon.store.file import FileSessionStore
from antiphon.testing import ScriptedModel, UnsyncedFileSystem
from tests.runner.support import assistant, rows_of, texts, user

LENGTHS = [20, 200, 1_000]
TEXT = "x" * 450


@pytest.fixture
def disk():
    return UnsyncedFileSystem()


@pytest.fixture
async def runner(tmp_path, disk):
    store = FileSessionStore(tmp_path / "sessions", filesystem=disk)

    def make():
        return Agent(ScriptedModel(["Yes."]), conversation_manager=NullConversationManager())

    yield Runner(make, store=store)
    store.close()


async def talked(runner, session_id, length):
    """A session with so many turns of a kilobyte, as two rows; the id of the older one."""
    history = [make(f"{number} {TEXT}") for number in range(length) for make in (user, assistant)]
    old = await runner.run([*history, user("old")], session_id=session_id)
    await runner.run("new", session_id=session_id)
    return old.snapshot_id


async def test_a_branch_within_its_session_writes_the_same_however_long_the_conversation_is(runner, disk):
    costs = []
    for length in LENGTHS:
        old = await talked(runner, f"s{length}", length)
        before = disk.bytes_written
        branch = await runner.run("left", snapshot_id=old)
        costs.append(disk.bytes_written - before)
        row = await runner.store.get_snapshot(branch.snapshot_id)
        assert (row.parent_id, len(texts(row))) == (old, 2 * length + 4)
    assert max(costs) < 4_096
    assert max(costs) <= 1.2 * min(costs), costs


async def test_a_branch_that_is_a_session_of_its_own_writes_the_conversation_once_and_then_only_what_is_new(
    runner, disk
):
    costs, turns = [], []
    for length in LENGTHS:
        old = await talked(runner, f"s{length}", length)
        before = disk.bytes_written
        row = await runner.branch(old, f"own{length}")
        costs.append(disk.bytes_written - before)
        before = disk.bytes_written
        await runner.run("on", session_id=f"own{length}")
        turns.append(disk.bytes_written - before)
        assert row.parent_id == old
    for length, cost in zip(LENGTHS, costs, strict=True):
        assert cost < 1.4 * 2 * length * 550 + 4_096, "the messages as JSON, once"
    assert max(turns) < 4_096
    assert max(turns) <= 1.2 * min(turns), turns


async def test_a_branch_that_is_a_session_of_its_own_shares_nothing_that_a_removal_or_redaction_could_reach(runner):
    store = runner.store
    old = await talked(runner, "s", 5)
    await runner.branch(old, "own")
    before = texts(await store.get_latest_snapshot("own"))
    await store.redact("s", lambda message: {**message, "content": [{"text": "gone"}]})
    assert texts(await store.get_latest_snapshot("own")) == before
    assert await store.delete_session("s")
    assert texts(await store.get_latest_snapshot("own")) == before
    await runner.run("on", session_id="own")
    assert len(await rows_of(store, "own")) == 2
    assert await store.delete_session("own")
    assert await rows_of(store, "own") == []

"""What is different in a store: a row for each process, conflicts instead of overwriting, tenants, and every backend."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.agent.turns import Agent
from antiphon.content import text_of
from antiphon.errors import CorruptStoreError, NotSupportedError, SessionConflictError, SessionSaveError
from antiphon.hooks.events import SessionSaveFailedEvent
from antiphon.session import SnapshotSessionManager, read_tree
from antiphon.snapshot.envelope import Snapshot
from antiphon.store import FileSessionStore, InMemorySessionStore, LineStore, SessionSnapshot, SQLiteSessionStore
from antiphon.testing import Answer, Say, ScriptedBidiModel, ScriptedModel, VirtualClock
from antiphon.tools import tool
from tests.session.agents import KINDS, LiveAgent, TurnAgent, said
from tests.session.places import PlainStore, StorePlace


@pytest.fixture
def place():
    return StorePlace()


def manager(store, **more):
    return SnapshotSessionManager("talk", store=store, **more)


def rows(place):
    """Oldest first."""
    return list(reversed(place.inner.sync.list_snapshots("talk").snapshots))


async def test_each_process_grows_a_row_of_its_own_which_the_next_one_leaves_as_it_is(place):
    for text in "abc":
        agent = TurnAgent(place.manager(save_latest_on="message"))
        await agent.add(text, text.upper())
        agent.state.set("last", text)
        await agent.finish()
    found = rows(place)
    assert [row.parent_id for row in found] == [None, *(row.snapshot_id for row in found[:-1])]
    assert {row.status for row in found} == {"completed"}
    assert len({row.owner for row in found}) == 3
    texts = [
        [text_of(message) for message in place.inner.sync.get_snapshot(row.snapshot_id).loaded().data["messages"]]
        for row in found
    ]
    assert texts == [["a", "A"], ["a", "A", "b", "B"], ["a", "A", "b", "B", "c", "C"]]
    last = place.manager()
    agent = TurnAgent(last)
    # The newest may still grow; those before it are checkpoints, too.
    assert await last.list_snapshot_ids(agent) == [row.snapshot_id for row in found[:-1]]
    tree = await place.tree()
    assert ([node.snapshot_id for node in tree.nodes], tree.latest.snapshot_id) == (
        [row.snapshot_id for row in found[:-1]],
        found[-1].snapshot_id,
    )
    assert [node.last_words for node in (*tree.nodes, tree.latest)] == ["A", "B", "C"]


@pytest.mark.parametrize("kind", KINDS)
async def test_who_changes_nothing_writes_nothing(kind, place):
    agent = kind(place.manager(save_latest_on="message"))
    await agent.add("one")
    before = place.faults.changes
    await agent.finish()
    again = kind(place.manager(save_latest_on="message"))
    await again.finish()
    assert place.faults.changes == before
    assert len(rows(place)) == 1


async def test_a_checkpoint_and_latest_of_one_moment_are_one_row(place):
    keeper = place.manager()
    agent = TurnAgent(keeper)
    await agent.add("one")
    checkpoint = await keeper.save_snapshot(agent, is_latest=False)
    await keeper.save_snapshot(agent, is_latest=True)
    await agent.finish()
    assert [row.snapshot_id for row in rows(place)] == [checkpoint]
    assert await keeper.save_snapshot(agent, is_latest=False) != checkpoint
    assert len(await keeper.list_snapshot_ids(agent)) == 2


async def test_a_checkpoint_in_the_middle_of_a_turn_keeps_what_is_open_for_the_next_process(place):
    keeper = place.manager(save_latest_on="message")
    agent = LiveAgent(keeper)
    await agent.add("one")
    await agent.hear("half a line")
    checkpoint = await keeper.save_snapshot(agent, is_latest=False)
    assert LiveAgent(place.next()).texts() == ["one", "half a line"]
    agent.lines.clear()
    await keeper.restore_snapshot(agent, snapshot_id=checkpoint)
    assert agent.texts() == ["one"]  # what was open then is let go of


async def test_what_was_said_before_a_rewind_stays_in_the_tree(place):
    keeper = place.manager()
    agent = LiveAgent(keeper)
    await agent.add("a")
    one = await keeper.save_snapshot(agent, is_latest=False)
    await agent.add("b")
    await keeper.restore_snapshot(agent, snapshot_id=one)
    await agent.add("c")
    tree = await place.tree()
    assert [(node.parent_id, node.last_words) for node in tree.nodes] == [(None, "a"), (one, "b")]
    assert (tree.latest.parent_id, tree.latest.last_words) == (one, "c")
    assert await keeper.list_snapshot_ids(agent) == [node.snapshot_id for node in tree.nodes]


async def overtaken(place, kind, **more):
    """An agent whose session another process has moved on."""
    mine = kind(place.manager(**more))
    await mine.add("base")
    await mine.finish()
    theirs = kind(place.next())
    await theirs.add("theirs")
    await theirs.finish()
    await mine.add("mine")
    return mine


async def test_an_agent_whose_session_was_moved_on_raises_and_forks_nothing(place):
    mine = await overtaken(place, TurnAgent)
    with pytest.raises(SessionSaveError, match="moved on") as caught:
        await mine.finish()
    assert isinstance(caught.value.__cause__, SessionConflictError)
    assert place.texts() == ["base", "theirs"]
    assert len(rows(place)) == 2


async def test_a_call_whose_session_was_moved_on_goes_on_and_tells_it_at_its_end(place):
    clock = VirtualClock()
    keeper = place.manager(clock=clock)
    mine = LiveAgent(keeper)
    told = []
    mine.hooks.add_callback(SessionSaveFailedEvent, told.append)
    await mine.add("base")
    theirs = LiveAgent(place.next(clock=clock))
    await theirs.add("theirs")
    await mine.add("mine")
    assert isinstance(told[0].error, SessionConflictError)
    assert keeper.health.behind
    with pytest.raises(SessionSaveError):
        await mine.finish()
    assert place.texts() == ["base", "theirs"]
    assert len(asyncio.all_tasks()) == 1


async def test_after_a_conflict_one_can_take_over_what_is_there(place):
    mine = await overtaken(place, TurnAgent)
    keeper = mine._session_manager
    with pytest.raises(SessionSaveError):
        await mine.finish()
    assert await keeper.restore_snapshot(mine)
    assert mine.texts() == ["base", "theirs"]
    await mine.add("and mine")
    await mine.finish()
    assert place.texts() == ["base", "theirs", "and mine"]


async def test_after_a_conflict_one_can_go_on_beside_it(place):
    mine = await overtaken(place, TurnAgent)
    keeper = mine._session_manager
    with pytest.raises(SessionSaveError) as caught:
        await mine.finish()
    kept = mine.take_snapshot(preset="session")
    assert await keeper.restore_snapshot(mine, snapshot_id=caught.value.__cause__.expected)
    mine.load_snapshot(kept)
    await mine.finish()
    base, theirs, beside = rows(place)
    assert theirs.parent_id == beside.parent_id == base.snapshot_id
    assert place.texts() == ["base", "mine"]


async def test_a_session_that_was_deleted_elsewhere_is_told_of_and_can_be_begun_anew(place):
    keeper = place.manager()
    agent = TurnAgent(keeper)
    await agent.add("one")
    await agent.finish()
    await place.next().delete_session()
    await agent.add("two")
    with pytest.raises(SessionSaveError):
        await agent.finish()
    assert not await keeper.restore_snapshot(agent)
    await agent.finish()
    assert place.texts() == ["one", "two"]


async def test_an_agent_that_was_not_restored_does_not_write_over_a_session(place):
    await LiveAgent(place.manager()).add("one")
    stranger, keeper = TurnAgent(), place.manager()
    with pytest.raises(SessionConflictError):
        await keeper.save_snapshot(stranger, is_latest=True)
    assert place.texts() == ["one"]


CURRENT: ContextVar[str] = ContextVar("CURRENT")


async def test_the_tenant_is_asked_for_in_the_context_of_whoever_saves():
    store = InMemorySessionStore(prefix=CURRENT.get)

    async def live(name: str) -> None:
        CURRENT.set(name)
        agent = LiveAgent(manager(store))
        await agent.add(name)
        agent.state.set("name", name)
        agent._session_manager.sync_agent(agent)
        assert LiveAgent(manager(store)).texts() == [name]

    async with asyncio.TaskGroup() as group:
        for name in ("one", "two"):
            group.create_task(live(name))
    CURRENT.set("three")
    assert LiveAgent(manager(store)).texts() == []


async def test_a_store_of_three_operations_saves_and_restores_and_says_what_it_cannot_do():
    store = PlainStore()
    for text in "ab":
        keeper = manager(store)
        agent = LiveAgent(keeper)
        await agent.add(text)
        checkpoint = await keeper.save_snapshot(agent, is_latest=False)
        await agent.hear("open")
    agent = LiveAgent(manager(store))
    assert agent.texts() == ["a", "open", "b", "open"]
    assert await keeper.restore_snapshot(agent, snapshot_id=checkpoint)
    assert agent.texts() == ["a", "open", "b"]
    for refused in (keeper.list_snapshot_ids(agent), keeper.delete_session(), read_tree(store, "talk")):
        with pytest.raises(NotSupportedError, match="PlainStore cannot"):
            await refused


async def test_rows_without_a_state_are_passed_over_and_stay_the_tip(place):
    agent = TurnAgent(place.manager())
    await agent.add("one")
    await agent.finish()
    base = rows(place)[0]
    begun = SessionSnapshot(
        session_id="talk",
        agent_id="default",
        parent_id=base.snapshot_id,
        created_at=base.created_at + timedelta(seconds=1),
        status="failed",
    )
    await place.inner.save_snapshot("run-1", lambda _: begun)
    again = TurnAgent(place.manager())
    assert again.texts() == ["one"]
    await again.add("two")
    await again.finish()
    assert [row.parent_id for row in rows(place)] == [None, base.snapshot_id, base.snapshot_id]


async def test_a_row_that_no_writer_of_ours_made_can_be_restored_by_its_id(place):
    row = SessionSnapshot(
        session_id="talk",
        agent_id="default",
        created_at=VirtualClock().utc(),
        snapshot=Snapshot("agent", "1.0", {"messages": [said("from elsewhere")]}, {}),
    )
    await place.inner.save_snapshot("snap-1", lambda _: row)
    await place.inner.save_snapshot("snap-2", lambda _: replace(row, agent_id="other"))
    keeper = place.manager()
    agent = TurnAgent(keeper)
    assert agent.texts() == ["from elsewhere"]
    assert await keeper.list_snapshot_ids(agent) == ["snap-1"]
    assert await keeper.restore_snapshot(agent, snapshot_id="snap-1")
    assert not await keeper.restore_snapshot(agent, snapshot_id="snap-2")
    await agent.add("and on")
    await agent.finish()
    assert rows(place)[-1].parent_id == "snap-1"


@pytest.mark.parametrize("checkpoint", [False, True], ids=["newest", "by its id"])
async def test_what_a_session_has_used_is_still_known_after_a_manager_went_on_with_it(place, checkpoint):
    used = {"inputTokens": 7, "totalTokens": 9}
    row = SessionSnapshot(
        session_id="talk",
        agent_id="default",
        created_at=VirtualClock().utc(),
        usage=used,
        snapshot=Snapshot("agent", "1.0", {"messages": [said("of a runner")]}, {}),
    )
    await place.inner.save_snapshot("snap-1", lambda _: row)
    keeper = place.manager(save_latest_on="message")
    agent = TurnAgent(keeper)
    if checkpoint:
        await agent.add("left aside")
        await agent.finish()
        assert await keeper.restore_snapshot(agent, snapshot_id="snap-1")
    await agent.add("and on")
    await keeper.save_snapshot(agent, is_latest=False)
    await agent.add("and on again")
    await agent.finish()
    found = rows(place)
    assert len(found) == (4 if checkpoint else 3)
    assert [each.usage for each in found] == [used] * len(found)


async def test_a_row_with_a_malformed_message_is_refused_with_its_id_and_the_path(place):
    row = SessionSnapshot(
        session_id="talk",
        agent_id="default",
        created_at=VirtualClock().utc(),
        snapshot=Snapshot("agent", "1.0", {"messages": [{"role": "narrator", "content": []}]}, {}),
    )
    await place.inner.save_snapshot("snap-1", lambda _: row)
    with pytest.raises(ValueError, match=r"snap-1.*messages\[0\].role"):
        TurnAgent(place.manager())
    assert (await place.tree()).latest.message_count == 1


async def test_a_store_that_lost_a_message_raises_in_the_constructor_and_an_earlier_row_can_be_restored(place):
    keeper = place.manager()
    agent = TurnAgent(keeper)
    await agent.add("a")
    early = await keeper.save_snapshot(agent, is_latest=False)
    await agent.add("b")
    await agent.finish()
    (session,) = place.inner._core.backend._tenants["global"]._sessions.values()
    session.lines[max(session.lines)][-1] = None
    place.inner._core.known.forget()
    with pytest.raises(CorruptStoreError):
        TurnAgent(place.manager())
    rescuer, fresh = place.manager(), TurnAgent()
    assert await rescuer.restore_snapshot(fresh, snapshot_id=early)
    await rescuer.save_snapshot(fresh, is_latest=True)
    assert TurnAgent(place.next()).texts() == ["a"]
    tree = await place.tree()
    assert [node.damaged for node in tree.nodes] == [False, True]


# --- every backend, under the agents themselves ---


@pytest.fixture(params=["memory", "file", "sqlite", "postgres"])
def open_store(request, tmp_path) -> Callable[[], LineStore]:
    """Opens the same place each time, as another process would."""
    match request.param:
        case "memory":
            store = InMemorySessionStore()
            return lambda: store
        case "file":
            return lambda: FileSessionStore(tmp_path / "sessions")
        case "sqlite":
            return lambda: SQLiteSessionStore(tmp_path / "sessions.db")
        case _:
            dsn, schema = request.getfixturevalue("postgres_dsn"), request.getfixturevalue("schema")
            from antiphon.store.postgres.session_store import PostgresSessionStore

            return lambda: PostgresSessionStore(dsn, schema=schema)


async def test_text_and_voice_go_on_in_one_session_in_every_store(open_store):
    booked = []

    @tool
    def book(guests: int) -> str:
        """Book."""
        booked.append(guests)
        return "booked"

    async with open_store() as store:
        first = manager(store, save_latest_on="message")
        agent = Agent(
            ScriptedModel([Answer(tool_uses=[("book", {"guests": 2})]), "It is booked."]),
            tools=[book],
            session_manager=first,
        )
        await agent.invoke_async("book a table")
        checkpoint = await first.save_snapshot(agent, is_latest=False)
        # Another agent of the same session has a tip of its own.
        await Agent(ScriptedModel(["hello"]), agent_id="helper", session_manager=manager(store)).invoke_async("hi")

    async with open_store() as store:
        clock = VirtualClock()
        talk = BidiAgent(
            ScriptedBidiModel([Say("See you then")], clock=clock),
            session_manager=manager(store, clock=clock),
            clock=clock,
        )
        assert talk.messages == agent.messages
        async with talk:
            await talk.send("thank you")
            await clock.sleep(10)
        assert {text_of(message) for message in talk.messages[-2:]} == {"thank you", "See you then"}

    async with open_store() as store:
        last = manager(store)
        again = Agent(ScriptedModel(["Which one?"]), session_manager=last)
        assert again.messages == talk.messages
        helper = Agent(ScriptedModel([]), agent_id="helper", session_manager=last)
        assert [text_of(message) for message in helper.messages] == ["hi", "hello"]
        assert await last.restore_snapshot(again, snapshot_id=checkpoint)
        await again.invoke_async("another table")
        tree = await read_tree(store, "talk")
        assert [node.parent_id for node in (*tree.nodes, tree.latest)] == [None, checkpoint, checkpoint]
        again.messages[-1] = said("[redacted]", "assistant")
        await last.redact_latest_message_async(again.messages[-1], again)
        exported = b"".join([line async for line in store.export("talk")])
        assert b"Which one?" not in exported
        assert b"[redacted]" in exported
        assert (await store.list_sessions()).sessions[0].snapshots == 4
        await last.delete_session()
        assert Agent(ScriptedModel([]), session_manager=manager(store)).messages == []
    assert booked == [2]


def test_an_agent_that_is_called_without_a_loop_is_kept_in_every_store(open_store):
    with_store = open_store()
    Agent(ScriptedModel(["hello"]), session_manager=manager(with_store))("hi")
    with_store.close()
    other = open_store()
    again = Agent(ScriptedModel([]), session_manager=manager(other))
    assert [text_of(message) for message in again.messages] == ["hi", "hello"]
    other.close()

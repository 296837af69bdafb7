"""The row writer: one row that grows, sealed in its time, and no session forked silently."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidIdError, SessionConflictError, SessionStoreError, StaleEpochError
from antiphon.session.rows import RowWriter
from antiphon.snapshot.envelope import Snapshot
from antiphon.store import InMemorySessionStore
from antiphon.testing import FaultStore, VirtualClock
from tests.session.places import PlainStore

MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def store():
    return InMemorySessionStore()


def writer(store, **more):
    return RowWriter(store, "talk", **{"agent_id": "default", "clock": VirtualClock(), **more})


def says(*texts, **fields):
    """A change: the row says these words."""
    messages = [{"role": "user", "content": [{"text": text}]} for text in texts]
    return lambda row: replace(row, snapshot=Snapshot("agent", "1.0", {"messages": messages}, {}), **fields)


def words(row):
    return [message["content"][0]["text"] for message in row.snapshot.data["messages"]]


async def rows(store):
    return list(reversed((await store.list_snapshots("talk")).snapshots))


@pytest.mark.parametrize("kind", [InMemorySessionStore, PlainStore])
async def test_a_row_grows_until_it_is_sealed_and_the_next_one_descends_from_it(kind):
    store = kind()
    keeper = writer(store)
    minted = keeper.next_id
    first = await keeper.put(says("a"))
    assert (first.snapshot_id, first.parent_id, first.owner) == (minted, None, keeper.owner)
    grown = await keeper.put(says("a", "b"))
    assert (grown.snapshot_id, grown.created_at) == (first.snapshot_id, first.created_at)
    sealed = await keeper.put(says("a", "b", "c"), seal=True)
    assert (sealed.snapshot_id, sealed.owner) == (first.snapshot_id, None)
    after = await keeper.put(says("d"))
    assert (after.parent_id, after.owner) == (first.snapshot_id, keeper.owner)
    assert words(await store.get_snapshot(first.snapshot_id)) == ["a", "b", "c"]
    assert after.created_at == first.created_at + MICROSECOND  # the clock has not moved


async def test_a_child_is_newer_than_its_parent_although_clocks_disagree(store):
    ahead = writer(store, clock=VirtualClock(start=datetime(2030, 1, 1, tzinfo=UTC)))
    first = await ahead.put(says("a"), seal=True)
    behind = writer(store, clock=VirtualClock(start=datetime(2020, 1, 1, tzinfo=UTC)))
    behind.restored(await behind.read_latest())
    second = await behind.put(says("b"))
    assert second.created_at == first.created_at + MICROSECOND
    assert second.updated_at >= second.created_at
    assert (await store.get_latest_snapshot("talk")).snapshot_id == second.snapshot_id


async def test_identity_lineage_and_time_are_the_writers_whatever_a_change_says(store):
    keeper = writer(store, epoch=3)
    wrong = replace(
        await keeper.put(says("a", session_id="other", owner="me", epoch=9, parent_id="x", agent_id="y")), journal=None
    )
    assert (wrong.session_id, wrong.owner, wrong.epoch, wrong.parent_id, wrong.agent_id) == (
        *("talk", keeper.owner, 3, None, "default"),
    )


async def test_who_was_overtaken_is_refused_until_it_is_told_on_what_to_go_on(store):
    one, two = writer(store), writer(store)
    base = await one.put(says("base"))
    two.restored(await two.read_latest())
    theirs = await two.put(says("base", "theirs"))
    for _ in range(2):
        with pytest.raises(SessionConflictError) as caught:
            await one.put(says("base", "mine"))
        assert (caught.value.expected, caught.value.found) == (base.snapshot_id, theirs.snapshot_id)
    with pytest.raises(SessionConflictError):
        await one.put(says("base", "mine"), seal=True)
    assert [words(row) for row in [await store.get_snapshot(row.snapshot_id) for row in await rows(store)]] == [
        ["base"],
        ["base", "theirs"],
    ]
    one.restored(await one.read(base.snapshot_id))  # beside it
    mine = await one.put(says("base", "mine"))
    assert mine.parent_id == base.snapshot_id == theirs.parent_id
    assert (await store.get_latest_snapshot("talk")).snapshot_id == mine.snapshot_id


async def test_two_who_begin_a_session_at_once_do_not_both_begin_it(store):
    one, two = writer(store), writer(store)
    await one.put(says("a"))
    with pytest.raises(SessionConflictError) as caught:
        await two.put(says("b"))
    assert caught.value.expected is None
    assert len(await rows(store)) == 1


async def test_agents_of_one_session_have_tips_of_their_own(store):
    one, two = writer(store, agent_id="one"), writer(store, agent_id="two")
    for text in "ab":
        await one.put(says(text))
        await two.put(says(text), seal=True)
    assert [row.agent_id for row in await rows(store)].count("two") == 2
    assert await writer(store, agent_id="three").read_latest() is None
    assert await one.read(two.position.tip) is None


async def test_a_row_of_another_writer_is_never_grown(store):
    first = writer(store)
    left = await first.put(says("a"))
    second = writer(store)
    second.restored(await second.read_latest(), grow=True)
    assert (await second.put(says("b"))).parent_id == left.snapshot_id
    assert words(await store.get_snapshot(left.snapshot_id)) == ["a"]


async def test_ones_own_newest_row_is_grown_further_after_it_was_read_again(store):
    keeper = writer(store)
    head = await keeper.put(says("a"))
    keeper.restored(await keeper.read_latest(), grow=True)
    assert (await keeper.put(says("b"))).snapshot_id == head.snapshot_id
    keeper.restored(await keeper.read(head.snapshot_id))
    assert (await keeper.put(says("c"))).parent_id == head.snapshot_id


async def test_what_is_written_between_a_look_and_going_on_from_it_is_no_conflict(store):
    keeper = writer(store)
    first = await keeper.put(says("a"), seal=True)
    seen = await keeper.read(first.snapshot_id)
    second = await keeper.put(says("b"))
    keeper.restored(seen)
    third = await keeper.put(says("c"))
    assert third.parent_id == first.snapshot_id
    assert third.created_at > second.created_at


async def test_a_deleted_session_is_begun_anew_only_by_who_knows(store):
    keeper = writer(store)
    await keeper.put(says("a"))
    await store.delete_session("talk")
    with pytest.raises(SessionConflictError) as caught:
        await keeper.put(says("b"))
    assert caught.value.found is None
    assert await keeper.read_latest() is None
    keeper.begin_anew()
    assert (await keeper.put(says("b"))).parent_id is None


async def test_a_writer_of_an_older_epoch_can_write_no_more(store):
    worker = writer(store)
    row = await worker.put(says("a", status="pending"))
    await store.save_snapshot(row.snapshot_id, lambda row: replace(row, owner="adopter", epoch=1))
    with pytest.raises(StaleEpochError):
        await worker.put(says("b", status="pending"))


async def test_a_writer_that_lets_others_stand_after_its_row_grows_and_seals_it_beside_them(store):
    one, two = writer(store), writer(store)
    head = await one.put(says("a"))
    two.restored(await two.read_latest())
    theirs = await two.put(says("b"))
    one.position = replace(one.position, tip=theirs.snapshot_id, tip_at=theirs.created_at)
    for seal in (False, False, True):
        assert (await one.put(says("a", "more"), seal=seal)).snapshot_id == head.snapshot_id
    after = await one.put(says("c"))
    assert after.parent_id == head.snapshot_id
    assert after.created_at > theirs.created_at


async def test_ids_that_cannot_name_anything_are_refused(store):
    for names in ({"agent_id": ""}, {"agent_id": "a/b"}):
        with pytest.raises(InvalidIdError):
            writer(store, **names)
    with pytest.raises(InvalidIdError):
        RowWriter(store, "..", agent_id="default", clock=VirtualClock())


@pytest.mark.parametrize("seal", [False, True])
async def test_a_write_that_was_done_but_reported_as_failed_is_known_by_the_next(store, seal):
    faults = FaultStore(store)
    keeper = writer(faults)
    for text in "ab":
        faults.fail(1, when="after")
        with pytest.raises(SessionStoreError):
            await keeper.put(says(text), seal=seal)
        await keeper.put(says(text, "more"), seal=seal)
    found = await rows(store)
    # What was sealed is not touched again: somebody may have seen it.
    assert len(found) == (4 if seal else 1)
    assert [row.parent_id for row in found] == [None, *[row.snapshot_id for row in found[:-1]]]


puts = st.lists(
    st.tuples(
        st.sampled_from(["put", "seal", "read", "latest"]),
        st.integers(0, 2),
        st.sampled_from([None, "before", "after"]),
    ),
    max_size=30,
)


@given(steps=puts, skew=st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_rows_that_are_not_the_newest_or_were_sealed_never_change(steps, skew):
    """Three writers, whose clocks disagree, work on one session and are refused, or fail, at times."""

    async def run():
        store = InMemorySessionStore()
        faults = [FaultStore(store) for _ in range(3)]
        start = datetime(2026, 1, 1, tzinfo=UTC)
        writers = [
            writer(faulty, clock=VirtualClock(start=start + timedelta(hours=hours)))
            for faulty, hours in zip(faults, skew, strict=True)
        ]
        settled, newest = {}, None
        for number, (act, who, fault) in enumerate(steps):
            keeper = writers[who]
            match act:
                case "put" | "seal":
                    if fault:
                        faults[who].fail(1, when=fault)
                    built_on = keeper.position
                    try:
                        row = await keeper.put(says(str(number)), seal=act == "seal")
                    except SessionConflictError:
                        assert newest != built_on.tip
                    except SessionStoreError:
                        pass
                    else:
                        assert row.snapshot_id == keeper.position.tip
                        assert row.created_at == max(row.created_at for row in await rows(store))
                    faults[who].mend()
                case "latest":
                    seen = await keeper.read_latest()
                    if seen is not None:
                        keeper.restored(seen, grow=True)
                case "read":
                    found = await rows(store)
                    if found:
                        keeper.restored(await keeper.read(found[number % len(found)].snapshot_id))
            found = await rows(store)
            for row in found:
                whole = await store.get_snapshot(row.snapshot_id)
                said = (words(whole), whole.parent_id, whole.created_at)
                assert settled.setdefault(row.snapshot_id, said) == said or row.snapshot_id == newest
                settled[row.snapshot_id] = said
                if row.owner is None:
                    assert settled.setdefault((row.snapshot_id, "sealed"), said) == said
            assert len({row.created_at for row in found}) == len(found)
            newest = found[-1].snapshot_id if found else None

    asyncio.run(run())

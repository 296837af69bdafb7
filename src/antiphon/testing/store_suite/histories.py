"""Rows over time: runs that are under way, chains, branches, and what is latest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from antiphon.errors import InvalidIdError, SessionRowError
from antiphon.store.base import (
    SessionCatalogue,
    SessionSnapshot,
    SessionStore,
    SnapshotMetadataReader,
    SnapshotStatus,
)
from antiphon.testing.store_suite.support import (
    LONG_AGO,
    START,
    StoreFixtures,
    able,
    abort,
    at,
    exact,
    finalize,
    found,
    heartbeat,
    latest_id,
    put,
    row,
    said,
    snapshot,
    words,
)

Messages = list[Any]


def _comb(messages: Messages) -> Messages:
    return [message for pair in zip(messages[::2], said(*("x" * 20)), strict=False) for message in pair]


EDITS: dict[str, Callable[[Messages], Messages]] = {
    "edit": lambda messages: messages[:3] + said("edited") + messages[4:],
    "drop": lambda messages: messages[:20] + messages[21:],
    "window": lambda messages: messages[17:],
    "summary": lambda messages: said("a summary") + messages[30:],
    "insert": lambda messages: messages[:10] + said("inserted") + messages[10:],
    "reverse": lambda messages: messages[::-1],
    "rotate": lambda messages: messages[20:] + messages[:20],
    "twice": lambda messages: messages + messages,
    "replace": lambda messages: messages[:0] + said("all new"),
    "clear": lambda messages: messages[:0],
    "every": lambda messages: [{**message, "metadata": {"n": index}} for index, message in enumerate(messages)],
    "comb": _comb,
}


class LifecycleContract(StoreFixtures):
    """A run in flight: signs of life, an abort, its end."""

    async def test_a_heartbeat_moves_nothing_else(self, store: SessionStore) -> None:
        before = await put(store, "r", row(status="pending", heartbeat_at=at(0), updated_at=at(0), owner="w"))
        saved = await store.save_snapshot("r", heartbeat(at(9)))
        assert exact(saved) == exact(replace(before, heartbeat_at=at(9)))
        assert exact(await found(store, "r")) == exact(saved)

    async def test_a_settled_row_has_no_heartbeat(self, store: SessionStore) -> None:
        before = await put(store, "r", row(status="failed"))
        assert await store.save_snapshot("r", heartbeat(at(9))) is None
        assert exact(await found(store, "r")) == exact(before)

    async def test_a_heartbeat_does_not_make_a_row_the_latest(self, store: SessionStore) -> None:
        await put(store, "old", row(0, status="pending", heartbeat_at=at(0)))
        await put(store, "new", row(1))
        await store.save_snapshot("old", heartbeat(at(100)))
        assert await latest_id(store, "s") == "new"

    async def test_an_abort_makes_a_pending_row_aborting_and_a_second_one_nothing(self, store: SessionStore) -> None:
        before = await put(store, "r", row(status="pending", heartbeat_at=at(1), updated_at=at(1)))
        first = await store.save_snapshot("r", abort(at(5)))
        assert exact(first) == exact(replace(before, status="aborting", updated_at=at(5)))
        second = await store.save_snapshot("r", abort(at(6)))
        assert exact(second) == exact(first)

    async def test_an_abort_leaves_a_settled_row_alone_and_gives_its_status(self, store: SessionStore) -> None:
        before = await put(store, "r", row(snapshot=snapshot(said("a", "b"))))
        after = await store.save_snapshot("r", abort(at(5)))
        assert after is not None
        assert after.status == "completed"
        assert exact(await found(store, "r")) == exact(before) == exact(after)

    async def test_an_abort_of_a_missing_row_writes_nothing(self, store: SessionStore) -> None:
        assert await store.save_snapshot("r", abort(at(5))) is None
        assert await store.get_snapshot("r") is None

    async def test_the_end_of_an_aborted_run_lands_its_state_and_ends_the_heartbeat(self, store: SessionStore) -> None:
        await put(store, "p", row(snapshot=snapshot(said("a"))))
        await put(store, "r", row(1, parent_id="p", status="pending", heartbeat_at=at(2)))
        await store.save_snapshot("r", abort(at(3)))
        saved = await store.save_snapshot("r", finalize(at(4), snapshot(said("a", "b"))))
        assert saved is not None
        there = await found(store, "r")
        assert exact(there) == exact(saved)
        assert (there.status, there.finish_reason, there.heartbeat_at) == ("aborted", "aborted", None)
        assert (there.parent_id, there.created_at, there.updated_at) == ("p", at(1), at(4))
        assert words(there) == ["a", "b"]

    async def test_the_end_of_a_settled_run_writes_nothing(self, store: SessionStore) -> None:
        before = await put(store, "r", row(status="aborted", snapshot=snapshot(said("a"))))
        assert await store.save_snapshot("r", finalize(at(4), snapshot(said("late")))) is None
        assert exact(await found(store, "r")) == exact(before)

    async def test_a_row_in_flight_may_be_rewritten_with_its_state_again_and_again(self, store: SessionStore) -> None:
        await put(store, "r", row(status="pending", heartbeat_at=at(0)))
        history: list[Any] = []
        for turn in range(20):
            history += said(f"q{turn}", f"a{turn}")
            await put(store, "r", row(status="pending", heartbeat_at=at(turn), snapshot=snapshot(history)))
            assert len(words(await found(store, "r"))) == len(history)
        saved = await store.save_snapshot("r", finalize(at(30), snapshot(history)))
        assert saved is not None
        assert saved.status == "completed"
        assert exact(await found(store, "r")) == exact(saved)

    @pytest.mark.parametrize("status", ["pending", "aborting"])
    async def test_a_run_whose_worker_fell_silent_reads_as_expired_and_is_not_stored_so(
        self, store: SessionStore, status: SnapshotStatus
    ) -> None:
        await put(store, "r", row(status=status, heartbeat_at=LONG_AGO))
        await put(store, "quiet", replace(row(status=status), created_at=LONG_AGO))
        assert (await found(store, "r")).status == "expired"
        assert (await found(store, "quiet")).status == status, "without a heartbeat nothing expires"
        latest = await store.get_latest_snapshot("s")
        assert latest is not None
        assert latest.status == "expired"
        raw: list[str] = []

        def beat(there: SessionSnapshot | None) -> SessionSnapshot:
            assert there is not None
            raw.append(there.status)
            return replace(there, heartbeat_at=datetime.now(UTC))

        await store.save_snapshot("r", beat)
        assert raw == [status]
        assert (await found(store, "r")).status == status, "a slow worker comes back"


class ChainContract(StoreFixtures):
    """Histories that grow, part, change in the middle, and are rewritten. A row that was written reads back the same."""

    async def test_a_long_chain_reads_back_in_every_row(self, store: SessionStore) -> None:
        history: list[Any] = []
        wanted: dict[str, bytes] = {}
        parent: str | None = None
        for turn in range(60):
            history += said(f"question {turn}", f"answer {turn}")
            if turn == 30:
                history[:40] = said("a summary of forty messages")
            artifacts = [{"name": f"doc{turn // 7}", "parts": [{"text": "x" * (turn % 5) * 100}]}]
            state = snapshot(history, state={"turn": turn}, artifacts=artifacts)
            if turn == 20:
                pending = row(turn, parent_id=parent, status="pending", heartbeat_at=at(turn))
                await put(store, f"turn-{turn}", pending, expected_tip=parent)
                saved = await store.save_snapshot(f"turn-{turn}", finalize(at(turn + 1), state))
            else:
                saved = await put(
                    store, f"turn-{turn}", row(turn, parent_id=parent, snapshot=state), expected_tip=parent
                )
            parent = f"turn-{turn}"
            wanted[parent] = exact(saved)
        for snapshot_id, before in wanted.items():
            assert exact(await found(store, snapshot_id)) == before, snapshot_id

    async def test_branches_read_back_each_for_itself(self, store: SessionStore) -> None:
        trunk = said(*(f"m{n}" for n in range(10)))
        await put(store, "trunk", row(snapshot=snapshot(trunk)))
        for branch in ("left", "right", "middle"):
            history = trunk[:8] if branch == "middle" else list(trunk)
            parent = "trunk"
            for turn in range(5):
                history += said(f"{branch} {turn}", "yes")
                seconds = 10 + turn + {"left": 0, "right": 100, "middle": 50}[branch]
                await put(store, f"{branch}-{turn}", row(seconds, parent_id=parent, snapshot=snapshot(history)))
                parent = f"{branch}-{turn}"
        for branch in ("left", "right", "middle"):
            for turn in range(5):
                told = words(await found(store, f"{branch}-{turn}"))
                assert told[-2] == f"{branch} {turn}"
                assert len(told) == (8 if branch == "middle" else 10) + 2 * (turn + 1)
                assert all(text[0] == "m" or text == "yes" or text.startswith(branch) for text in told)
        assert words(await found(store, "trunk")) == [f"m{n}" for n in range(10)]
        assert await latest_id(store, "s") == "right-4"

    async def test_rewriting_a_leaf_leaves_its_ancestors_alone(self, store: SessionStore) -> None:
        history = said("a", "b", "c")
        parent = await put(store, "p", row(snapshot=snapshot(history)))
        for text in ("first", "second"):
            await put(store, "leaf", row(1, parent_id="p", snapshot=snapshot([*history, *said(text)])))
        child = await put(store, "c", row(2, parent_id="leaf", snapshot=snapshot([*history, *said("second", "more")])))
        assert exact(await found(store, "p")) == exact(parent)
        assert words(await found(store, "leaf")) == ["a", "b", "c", "second"]
        assert exact(await found(store, "c")) == exact(child)

    async def test_rewriting_a_row_in_the_middle_leaves_its_descendants_alone(self, store: SessionStore) -> None:
        history = said("a", "b", "c", "d", "e", "f")
        await put(store, "p", row(snapshot=snapshot(history)))
        child = await put(store, "c", row(1, parent_id="p", snapshot=snapshot([*history, *said("g")])))
        await put(store, "p", row(snapshot=snapshot(said("something else"))))
        assert exact(await found(store, "c")) == exact(child)
        await put(store, "p", row())
        assert exact(await found(store, "c")) == exact(child)

    @pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
    async def test_whatever_becomes_of_a_history_each_row_reads_back(self, store: SessionStore, edit: Any) -> None:
        history: list[Any] = said(*(f"m{n}" for n in range(40)))
        parent = await put(store, "p", row(snapshot=snapshot(history)))
        edited = edit(history)
        child = await put(store, "c", row(1, parent_id="p", snapshot=snapshot(edited)))
        more = await put(store, "d", row(2, parent_id="c", snapshot=snapshot([*edited, *said("more")])))
        back = await put(store, "e", row(3, parent_id="d", snapshot=snapshot(history)))
        for snapshot_id, saved, wanted in (
            ("p", parent, history),
            ("c", child, edited),
            ("d", more, [*edited, *said("more")]),
            ("e", back, history),
        ):
            there = await found(store, snapshot_id)
            assert exact(there) == exact(saved)
            loaded = there.loaded()
            assert loaded is not None
            assert loaded.data["messages"] == wanted

    async def test_numbers_that_are_equal_to_python_stay_what_they_are(self, store: SessionStore) -> None:
        values: list[Any] = [1, 1.0, True, 0, 0.0, -0.0, False]
        parent = None
        for index, value in enumerate(values):
            history = [{"role": "user", "content": [{"text": "n"}], "metadata": {"custom": {"v": value}}}]
            await put(store, f"r{index}", row(index, parent_id=parent, snapshot=snapshot(history, state={"v": value})))
            parent = f"r{index}"
        for index, value in enumerate(values):
            loaded = (await found(store, f"r{index}")).loaded()
            assert loaded is not None
            assert repr(loaded.data["messages"][0]["metadata"]["custom"]["v"]) == repr(value)
            assert repr(loaded.data["state"]["v"]) == repr(value)

    async def test_messages_that_were_read_may_be_handed_over_as_they_are(self, store: SessionStore) -> None:
        await put(store, "p", row(snapshot=snapshot(said(*(f"m{n}" for n in range(20))))))
        read = (await found(store, "p")).snapshot
        assert read is not None
        messages: Any = read.data["messages"]
        assert len(messages) == 20
        assert messages[3] == said("", "", "", "m3")[3]
        window: Any = messages[5:] + said("more")
        await put(store, "c", row(1, parent_id="p", snapshot=snapshot(window)))
        await put(store, "d", row(2, session_id="t", snapshot=snapshot(window)))
        for snapshot_id in ("c", "d"):
            assert words(await found(store, snapshot_id)) == [*(f"m{n}" for n in range(5, 20)), "more"]

    async def test_a_list_edited_in_place_is_seen_as_it_is_now(self, store: SessionStore) -> None:
        history: list[Any] = said("a", "b", "c")
        await put(store, "one", row(0, snapshot=snapshot(history)))
        history[1]["content"][0]["text"] = "B"
        history[2].setdefault("metadata", {})["interrupted"] = True
        await put(store, "two", row(1, parent_id="one", snapshot=snapshot(history)))
        assert words(await found(store, "one")) == ["a", "b", "c"]
        assert words(await found(store, "two")) == ["a", "B", "c"]


class LatestContract(StoreFixtures):
    """Which row of a session is the latest."""

    async def test_the_latest_is_the_one_created_last_whatever_the_ids(self, store: SessionStore) -> None:
        for snapshot_id, seconds in (("z", 1), ("a", 3), ("m", 2)):
            await put(store, snapshot_id, row(seconds, snapshot=snapshot(said(snapshot_id))))
        latest = await store.get_latest_snapshot("s")
        assert exact(latest) == exact(await found(store, "a"))

    async def test_a_millisecond_and_a_microsecond_decide(self, store: SessionStore) -> None:
        await put(store, "a", replace(row(), created_at=START + timedelta(milliseconds=1)))
        await put(store, "b", row())
        assert await latest_id(store, "s") == "a"
        await put(store, "0", replace(row(), created_at=START + timedelta(milliseconds=1, microseconds=1)))
        assert await latest_id(store, "s") == "0"

    async def test_times_are_compared_as_instants(self, store: SessionStore) -> None:
        await put(store, "a", replace(row(), created_at=at(10)))
        await put(store, "b", replace(row(), created_at=at(5).astimezone(UTC)))
        assert await latest_id(store, "s") == "a"

    async def test_rewriting_an_older_row_does_not_move_it(self, store: SessionStore) -> None:
        await put(store, "old", row(1))
        await put(store, "new", row(2))
        await put(store, "old", row(1, updated_at=at(100), snapshot=snapshot(said("rewritten"))))
        assert await latest_id(store, "s") == "new"

    async def test_a_row_whose_time_is_rewritten_is_where_its_time_says(self, store: SessionStore) -> None:
        await put(store, "a", row(1))
        await put(store, "b", row(2))
        await put(store, "b", row(0))
        assert await latest_id(store, "s") == "a"
        await put(store, "b", row(3))
        assert await latest_id(store, "s") == "b"

    @pytest.mark.parametrize("status", ["failed", "aborted", "pending", "aborting"])
    async def test_the_latest_may_have_any_status(self, store: SessionStore, status: SnapshotStatus) -> None:
        await put(store, "a", row(1))
        await put(store, "b", row(2, status=status))
        assert await latest_id(store, "s") == "b"

    async def test_of_two_at_one_moment_the_greater_id_is_the_latest(self, store: SessionStore) -> None:
        for session_id, order in (("one", ["b", "a", "B"]), ("two", ["a", "B", "b"]), ("three", ["B", "b", "a"])):
            for name in order:
                await put(store, f"{name}-{session_id}", row(1, session_id=session_id))
            assert await latest_id(store, session_id) == f"b-{session_id}"
        for name in ("z", "é", "\uffee", "𝄞"):  # by code point, not by a language's or UTF-16's order
            await put(store, name, row(1, session_id="four"))
        assert await latest_id(store, "four") == "𝄞"

    async def test_a_new_row_with_an_earlier_time_is_not_the_latest(self, store: SessionStore) -> None:
        await put(store, "a", row(5))
        await put(store, "b", row(1, parent_id="a"))
        assert await latest_id(store, "s") == "a"

    async def test_sessions_are_apart(self, store: SessionStore) -> None:
        for name in ("s", "s1", "S", "s%", "s_"):
            await put(store, f"r-{name}", row(session_id=name))
        for name in ("s", "s1", "S", "s%", "s_"):
            assert await latest_id(store, name) == f"r-{name}"

    async def test_an_unknown_session_has_no_latest(self, store: SessionStore) -> None:
        assert await store.get_latest_snapshot("nothing") is None

    async def test_an_empty_session_id_is_refused(self, store: SessionStore) -> None:
        with pytest.raises(InvalidIdError):
            await store.get_latest_snapshot("")

    async def test_each_agent_of_a_session_has_its_own_latest(self, store: SessionStore) -> None:
        await put(store, "a1", row(1, agent_id="a"))
        await put(store, "b1", row(2, agent_id="b"))
        await put(store, "n1", row(3))
        assert await latest_id(store, "s", "a") == "a1"
        assert await latest_id(store, "s", "b") == "b1"
        assert await latest_id(store, "s", "c") is None
        assert await latest_id(store, "s") == "n1"


class MetadataContract(StoreFixtures):
    """Rows without their state."""

    async def test_metadata_are_the_row_without_its_state(self, store: SessionStore) -> None:
        reader: SnapshotMetadataReader = able(store, SnapshotMetadataReader)
        full = await put(
            store,
            "r",
            row(
                status="pending", heartbeat_at=at(0), error={"m": 1}, usage={"n": 2}, owner="w", epoch=2,
                journal={"lines": said("x")}, snapshot=snapshot(said("a"), state={"x": 1}),
            ),
        )  # fmt: skip
        there = await reader.get_snapshot_metadata("r")
        assert exact(there) == exact(replace(full, snapshot=None, journal=None))

    async def test_the_latest_is_the_same_row(self, store: SessionStore) -> None:
        reader: SnapshotMetadataReader = able(store, SnapshotMetadataReader)
        await put(store, "a", row(2, agent_id="x", snapshot=snapshot(said("a"))))
        await put(store, "b", row(1, agent_id="y"))
        there = await reader.get_latest_snapshot_metadata("s")
        assert exact(there) == exact(replace(await found(store, "a"), snapshot=None))
        other = await reader.get_latest_snapshot_metadata("s", agent_id="y")
        assert other is not None
        assert other.snapshot_id == "b"

    async def test_what_is_not_there_has_no_metadata(self, store: SessionStore) -> None:
        reader: SnapshotMetadataReader = able(store, SnapshotMetadataReader)
        assert await reader.get_snapshot_metadata("nothing") is None
        assert await reader.get_latest_snapshot_metadata("nothing") is None
        with pytest.raises(InvalidIdError):
            await reader.get_latest_snapshot_metadata("")

    async def test_metadata_are_the_callers_own(self, store: SessionStore) -> None:
        reader: SnapshotMetadataReader = able(store, SnapshotMetadataReader)
        await put(store, "r", row(error={"m": 1}))
        there = await reader.get_snapshot_metadata("r")
        assert there is not None
        assert there.error is not None
        there.error["m"] = "spoiled"
        assert (await found(store, "r")).error == {"m": 1}

    async def test_metadata_show_what_has_expired(self, store: SessionStore) -> None:
        reader: SnapshotMetadataReader = able(store, SnapshotMetadataReader)
        await put(store, "r", row(status="pending", heartbeat_at=LONG_AGO))
        there = await reader.get_snapshot_metadata("r")
        assert there is not None
        assert there.status == "expired"


class CatalogueContract(StoreFixtures):
    """What is stored, and its removal."""

    async def test_sessions_are_listed_newest_first_in_pages(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for number in range(25):
            await put(store, f"r{number}", row(number % 20, session_id=f"s{number:02}", snapshot=snapshot(said("x"))))
        await put(store, "again", row(100, session_id="s03"))
        listed: list[str] = []
        cursor: str | None = None
        pages = 0
        while True:
            page = await catalogue.list_sessions(limit=10, cursor=cursor)
            listed += [session.session_id for session in page.sessions]
            pages += 1
            cursor = page.cursor
            if cursor is None:
                break
        order = sorted((number % 20, f"s{number:02}") for number in range(25) if number != 3)
        assert listed == ["s03", *(session_id for _, session_id in reversed(order))]
        assert pages == 3
        first = (await catalogue.list_sessions(limit=1)).sessions[0]
        assert (first.session_id, first.snapshots, first.latest.snapshot_id) == ("s03", 2, "again")
        assert first.latest.snapshot is None

    async def test_a_list_is_steady_while_sessions_come_and_go(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for number in range(6):
            await put(store, f"r{number}", row(number, session_id=f"s{number}"))
        page = await catalogue.list_sessions(limit=3)
        await put(store, "new", row(50, session_id="new"))
        await catalogue.delete_session("s4")
        rest = await catalogue.list_sessions(limit=10, cursor=page.cursor)
        assert [session.session_id for session in page.sessions] == ["s5", "s4", "s3"]
        assert [session.session_id for session in rest.sessions] == ["s2", "s1", "s0"]

    async def test_lists_are_filtered_by_status_agent_and_time(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        await put(store, "r0", row(0, session_id="a", agent_id="x", status="failed"))
        await put(store, "r1", row(1, session_id="a", agent_id="x"))
        await put(store, "r2", row(2, session_id="b", agent_id="y", status="failed"))
        await put(store, "r3", row(3, session_id="c", status="pending", heartbeat_at=LONG_AGO))

        async def sessions(**filters: Any) -> list[str]:
            return [session.session_id for session in (await catalogue.list_sessions(**filters)).sessions]

        async def snapshots(**filters: Any) -> list[str]:
            return [there.snapshot_id for there in (await catalogue.list_snapshots("a", **filters)).snapshots]

        assert await sessions() == ["c", "b", "a"]
        assert await sessions(status="failed") == ["b"]
        assert await sessions(status="expired") == ["c"]
        assert await sessions(status="pending") == []
        assert await sessions(agent_id="x") == ["a"]
        await put(store, "r4", row(1, session_id="b", agent_id="x"))
        assert await sessions(agent_id="x") == ["a"], "sessions are filtered by their newest row"
        assert await sessions(since=at(2)) == ["c", "b"]
        assert await sessions(since=at(1), until=at(3)) == ["b", "a"]
        assert await snapshots() == ["r1", "r0"]
        assert await snapshots(status="failed") == ["r0"]
        assert await snapshots(until=at(1)) == ["r0"]
        assert await snapshots(agent_id="y") == []

    async def test_snapshots_of_a_session_are_listed_in_pages_without_their_state(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for number in range(7):
            await put(store, f"r{number}", row(number // 2, snapshot=snapshot(said("x")), usage={"n": number}))
        await put(store, "other", row(99, session_id="t"))
        listed: list[SessionSnapshot] = []
        cursor: str | None = None
        while True:
            page = await catalogue.list_snapshots("s", limit=3, cursor=cursor)
            listed += page.snapshots
            cursor = page.cursor
            if cursor is None:
                break
        assert [there.snapshot_id for there in listed] == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
        assert all(there.snapshot is None for there in listed)
        assert listed[0].usage == {"n": 6}
        assert (await catalogue.list_snapshots("nothing")).snapshots == ()

    @pytest.mark.parametrize(
        "wrong",
        [{"limit": 0}, {"limit": -1}, {"cursor": "?"}, {"status": "done"}, {"since": datetime(2026, 1, 1)}],  # noqa: DTZ001 - it is refused for that
    )
    async def test_a_list_that_makes_no_sense_is_refused(self, store: SessionStore, wrong: Any) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for listing in (lambda: catalogue.list_sessions(**wrong), lambda: catalogue.list_snapshots("s", **wrong)):
            with pytest.raises(SessionRowError):
                await listing()

    async def test_a_deleted_session_is_gone_and_its_ids_are_free(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        await put(store, "r1", row(snapshot=snapshot(said("a"), state={"x": "y" * 1000}), idempotency_key="k"))
        await put(store, "r2", row(1, parent_id="r1", snapshot=snapshot(said("a", "b"))))
        kept = await put(store, "t1", row(session_id="t", snapshot=snapshot(said("a"))))
        assert await catalogue.delete_session("s")
        assert not await catalogue.delete_session("s")
        assert await store.get_snapshot("r1") is None
        assert await store.get_latest_snapshot("s") is None
        assert [session.session_id for session in (await catalogue.list_sessions()).sessions] == ["t"]
        assert exact(await found(store, "t1")) == exact(kept)
        again = await put(store, "r1", row(session_id="u", snapshot=snapshot(said("new")), idempotency_key="k"))
        assert exact(await found(store, "r1")) == exact(again)
        await put(store, "r2", row(snapshot=snapshot(said("b"))), expected_tip=None)
        assert words(await found(store, "r2")) == ["b"]

    async def test_pruning_keeps_the_newest_and_what_they_share(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        history: list[Any] = []
        parent = None
        for turn in range(10):
            history += said(f"q{turn}", f"a{turn}")
            await put(
                store, f"r{turn}", row(turn, parent_id=parent, snapshot=snapshot(history, state={"t": "x" * 300}))
            )
            parent = f"r{turn}"
        before = {name: exact(await found(store, name)) for name in ("r7", "r8", "r9")}
        report = await catalogue.prune("s", keep=3)
        assert sorted(report.snapshot_ids) == [f"r{turn}" for turn in range(7)]
        for turn in range(7):
            assert await store.get_snapshot(f"r{turn}") is None
        for name, wanted in before.items():
            assert exact(await found(store, name)) == wanted
        assert (await catalogue.prune("s", keep=3)).snapshot_ids == ()
        assert await catalogue.sweep("s") == 0
        assert await latest_id(store, "s") == "r9"

    async def test_pruning_spares_branch_points_runs_in_flight_their_parents_and_the_last_to_resume_from(
        self, store: SessionStore
    ) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        state = snapshot(said("a"))
        for seconds, snapshot_id, parent_id, status, has_state in (
            (0, "plain", None, "completed", True),
            (1, "fork", "plain", "completed", True),
            (2, "left", "fork", "completed", True),
            (3, "right", "fork", "completed", True),
            (4, "before-run", "right", "completed", True),
            (5, "run", "before-run", "pending", False),
            (6, "resumable", "left", "failed", True),
            (7, "stateless", "resumable", "aborted", False),
            (8, "newest", "stateless", "aborted", False),
        ):
            await put(
                store,
                snapshot_id,
                row(seconds, parent_id=parent_id, status=status, snapshot=state if has_state else None),
            )
        report = await catalogue.prune("s", keep=1)
        assert set(report.snapshot_ids) == {"plain", "left", "right", "stateless"}
        for kept in ("fork", "before-run", "run", "resumable", "newest"):
            await found(store, kept)

    async def test_pruning_keeps_what_each_agent_goes_on_from(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        state = snapshot(said("a"))
        for turn in range(2):
            await put(store, f"b{turn}", row(turn, agent_id="b", snapshot=state))
        await put(store, "b-failed", row(2, agent_id="b", status="failed"))
        await put(store, "head", row(3, agent_id="c", owner="writer", snapshot=state))
        await put(store, "c", row(4, agent_id="c", snapshot=state))
        for turn in range(5, 9):
            await put(store, f"a{turn}", row(turn, agent_id="a", snapshot=state))
        report = await catalogue.prune("s", keep=1)
        assert report.snapshot_ids == ("b0", "a5", "a6", "a7")
        assert [await latest_id(store, "s", agent) for agent in ("a", "b", "c")] == ["a8", "b-failed", "c"]
        await found(store, "b1")
        await found(store, "head")

    async def test_pruning_spares_the_way_from_a_run_in_flight_to_what_it_is_taken_up_from(
        self, store: SessionStore
    ) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        state = snapshot(said("a"))
        for seconds, snapshot_id, parent_id, status, has_state in (
            (0, "oldest", None, "completed", True),
            (1, "base", "oldest", "completed", True),
            (2, "failed", "base", "failed", False),
            (3, "stuck", "failed", "aborting", True),
            (4, "run", "stuck", "pending", False),
            (5, "other", None, "completed", True),
            (6, "newest", None, "completed", True),
        ):
            wanted = row(seconds, parent_id=parent_id, status=status, snapshot=state if has_state else None)
            await put(store, snapshot_id, wanted)
        assert (await catalogue.prune("s", keep=1)).snapshot_ids == ("oldest", "other")
        for kept in ("base", "failed", "stuck", "run"):
            await found(store, kept)

    async def test_pruning_ends_where_ancestors_run_in_a_circle(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        await put(store, "x", row(0, parent_id="y", status="pending"))
        await put(store, "y", row(1, parent_id="x", status="failed"))
        await put(store, "z", row(2, snapshot=snapshot(said("a"))))
        assert (await catalogue.prune("s", keep=1)).snapshot_ids == ()

    @pytest.mark.parametrize("grace", ["x", float("inf"), float("nan"), -1, None, True, 10**12])
    async def test_a_sweep_needs_a_number_of_seconds(self, store: SessionStore, grace: Any) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        with pytest.raises(SessionRowError, match="grace="):
            await catalogue.sweep("s", grace=grace)

    async def test_pruning_by_age_and_by_bytes(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for turn in range(6):
            await put(store, f"r{turn}", row(turn, snapshot=snapshot(said(f"{turn}" * 1000))))
        assert (await catalogue.prune("s", older_than=at(2))).snapshot_ids == ("r0", "r1")
        assert (await catalogue.prune("s", older_than=at(5), keep=3)).snapshot_ids == ("r2",)
        report = await catalogue.prune("s", max_bytes=2500)
        assert report.snapshot_ids == ("r3",)
        assert report.messages == 1
        assert (await catalogue.prune("s", max_bytes=0)).snapshot_ids == ("r4",)
        assert words(await found(store, "r5")) == ["5" * 1000]
        nonsense: list[dict[str, Any]] = [{}, {"keep": 0}, {"max_bytes": -1}]
        for wrong in nonsense:
            with pytest.raises(SessionRowError):
                await catalogue.prune("s", **wrong)

    async def test_messages_before_a_window_go_when_no_row_holds_them_any_more(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        talk = said(*(f"m{n}" for n in range(12)))
        await put(store, "a", row(snapshot=snapshot(talk)))
        await put(store, "b", row(1, parent_id="a", snapshot=snapshot([*talk[6:], *said("new")])))
        report = await catalogue.prune("s", keep=1)
        assert (report.snapshot_ids, report.messages) == (("a",), 6)
        told = [f"m{n}" for n in range(6, 12)]
        assert words(await found(store, "b")) == [*told, "new"]
        await put(store, "c", row(2, parent_id="b", snapshot=snapshot([*talk[6:], *said("new", "newer")])))
        assert words(await found(store, "c")) == [*told, "new", "newer"]
        # The first ones are new when they come back, and so they are there again.
        await put(store, "d", row(3, parent_id="c", snapshot=snapshot([*talk, *said("new")])))
        assert words(await found(store, "d")) == [*(f"m{n}" for n in range(12)), "new"]
        assert words(await found(store, "c")) == [*told, "new", "newer"]

    async def test_sweeping_forgets_what_no_row_holds_and_nothing_else(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        history = said(*(f"m{n}" for n in range(10)))
        await put(store, "r", row(status="pending", snapshot=snapshot(history, state={"x": "1" * 500})))
        await put(store, "r", row(status="pending", snapshot=snapshot(said("other"), state={"x": "2" * 500})))
        kept = await put(store, "q", row(1, session_id="t", snapshot=snapshot(history)))
        assert await catalogue.sweep("s", grace=10**6) == 0
        assert await catalogue.sweep() == 10
        assert await catalogue.sweep() == 0
        assert words(await found(store, "r")) == ["other"]
        assert exact(await found(store, "q")) == exact(kept)
        await put(store, "r", row(status="pending", snapshot=snapshot(history, state={"x": "1" * 500})))
        assert words(await found(store, "r")) == [f"m{n}" for n in range(10)]

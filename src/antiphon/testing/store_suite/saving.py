"""Saving rows: identity, what is kept as it is, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

from antiphon.errors import (
    IdempotencyKeyError,
    InvalidIdError,
    NotJsonError,
    SessionConflictError,
    SessionRowError,
    SnapshotException,
    StaleEpochError,
    TerminalStatusError,
)
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import IdempotencyReader, SessionCatalogue, SessionSnapshot, SessionStore, SnapshotStatus
from antiphon.testing.store_suite.support import (
    LONG_AGO,
    START,
    StoreFixtures,
    able,
    at,
    at_once,
    becomes,
    exact,
    found,
    latest_id,
    put,
    row,
    said,
    snapshot,
    words,
)

RICH: list[Any] = [
    {"role": "user", "content": [{"text": "NUL \x00, BOM \ufeff, right-to-left \u202eabc\u202c, astral 𝄞🎧, \u2028"}]},
    {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": bytes(range(256))}}}]},
    {
        "role": "assistant",
        "content": [
            {
                "reasoningContent": {
                    "reasoningText": {"text": "hm", "signature": "c2ln"},
                    "redactedContent": b"\x00\xff",
                }
            },
            {
                "toolUse": {
                    "toolUseId": "t1",
                    "name": "book",
                    "input": {"seats": [None, [], {}, [[None]], 0, False, ""]},
                }
            },
        ],
        "metadata": {"interrupted": True, "custom": {"n": 1, "x": 1.0, "t": True, "z": -0.0, "big": 2**63}},
    },
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"json": {}}]}}]},
    {"role": "assistant", "content": [{"document": {"name": "a", "__bytes_encoded__": True}}], "metadata": {}},
    {"role": "assistant", "content": []},
]

# Python can hold these moments, but not say them in UTC.
BEFORE_ALL = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
AFTER_ALL = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))

BAD_IDS = [" ", "a/b", "a\\b", "a\x00b", "a\nb", ".", "..", "a\u2028b", "a\ud800", "x" * 201, " a"]


class SavingContract(StoreFixtures):
    """Rows, one at a time."""

    def test_it_is_a_session_store(self, store: SessionStore) -> None:
        assert isinstance(store, SessionStore)

    async def test_an_empty_id_is_replaced_by_a_new_one_of_the_store(self, store: SessionStore) -> None:
        one, two = await put(store, "", row(1)), await put(store, "", row(2))
        assert one.snapshot_id
        assert one.snapshot_id != two.snapshot_id
        for saved in (one, two):
            assert exact(await found(store, saved.snapshot_id)) == exact(saved)

    async def test_the_given_id_stands_and_the_one_in_the_row_does_not_matter(self, store: SessionStore) -> None:
        saved = await put(store, "mine", row(snapshot_id="another"))
        assert saved.snapshot_id == "mine"
        assert (await found(store, "mine")).snapshot_id == "mine"
        assert await store.get_snapshot("another") is None

    async def test_fn_gets_none_for_a_new_row_and_then_the_row_as_it_is(self, store: SessionStore) -> None:
        seen: list[SessionSnapshot | None] = []
        first = row(parent_id="p", error={"message": "m"}, usage={"n": 1}, snapshot=snapshot(said("a", "b"), state={}))
        second = replace(first, status="failed")

        def change(there: SessionSnapshot | None) -> SessionSnapshot:
            seen.append(there)
            return replace(first, status="pending") if there is None else second

        await store.save_snapshot("r", change)
        saved = await store.save_snapshot("r", change)
        assert seen[0] is None
        assert exact(seen[-1]) == exact(replace(first, snapshot_id="r", status="pending"))
        assert saved is not None
        assert exact(saved) == exact(replace(second, snapshot_id="r"))

    async def test_nothing_is_written_when_fn_declines(self, store: SessionStore) -> None:
        assert await store.save_snapshot("r", becomes(None)) is None
        assert await store.get_snapshot("r") is None
        before = await put(store, "r", row(snapshot=snapshot(said("a"))))
        assert await store.save_snapshot("r", becomes(None)) is None
        assert exact(await found(store, "r")) == exact(before)

    async def test_the_error_of_fn_is_raised_and_nothing_is_written(self, store: SessionStore) -> None:
        class OwnError(Exception):
            pass

        def fails(there: SessionSnapshot | None) -> SessionSnapshot:
            raise OwnError("no")

        with pytest.raises(OwnError):
            await store.save_snapshot("r", fails)
        assert await store.get_snapshot("r") is None

    async def test_an_empty_status_is_completed(self, store: SessionStore) -> None:
        assert (await put(store, "r", row())).status == "completed"
        assert (await found(store, "r")).status == "completed"

    async def test_every_field_is_kept_as_it_is(self, store: SessionStore) -> None:
        now = datetime.now(UTC)
        full = row(
            5,
            snapshot_id="r",
            agent_id="agent-1",
            parent_id="never-written",
            updated_at=now.replace(microsecond=1),
            heartbeat_at=at(7),
            status="pending",
            finish_reason="détaché",
            error={"status": "INTERNAL", "message": "\x00", "details": [1, 1.0, True, None]},
            usage={"inputTokens": 3, "custom": {"gpu_s": 0.5}},
            owner="worker/1",
            epoch=3,
            idempotency_key="request 1/2",
            journal={"mark": 0, "lines": said("heard so far"), "calls": []},
            snapshot=replace(snapshot(said("a"), state={"k": [1]}), app_data={"title": "x"}),
        )
        saved = await put(store, "r", full)
        assert exact(saved) == exact(full)
        assert exact(await found(store, "r")) == exact(full)
        assert saved.created_at == START.astimezone(UTC) + (at(5) - START)
        assert saved.created_at.utcoffset() is not None

    async def test_times_before_and_after_now_are_kept(self, store: SessionStore) -> None:
        first, last = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
        for name, moment in (("old", LONG_AGO), ("first", first), ("last", last)):
            await put(store, name, replace(row(), created_at=moment, updated_at=moment))
            there = await found(store, name)
            assert (there.created_at, there.updated_at) == (moment, moment)

    async def test_a_session_id_of_any_form_is_kept(self, store: SessionStore) -> None:
        for name in ("not a uuid", "Ünïcode-𝄞", "a.b:c@d", "%2F?&=#'\";--", "CON"):
            await put(store, f"r-{name}", row(session_id=name))
            assert (await found(store, f"r-{name}")).session_id == name
            assert await latest_id(store, name) == f"r-{name}"

    async def test_a_row_keeps_its_session_whatever_a_rewrite_says(self, store: SessionStore) -> None:
        await put(store, "r", row(session_id="first"))
        for contradiction in ("", "second"):
            saved = await put(store, "r", row(session_id=contradiction, finish_reason=contradiction or None))
            assert saved.session_id == "first"
        assert (await found(store, "r")).session_id == "first"
        assert await latest_id(store, "second") is None

    async def test_a_new_row_without_a_session_is_refused_and_nothing_is_inferred(self, store: SessionStore) -> None:
        await put(store, "parent", row())
        with pytest.raises(SessionRowError):
            await store.save_snapshot("r", becomes(row(1, session_id="", parent_id="parent")))
        assert await store.get_snapshot("r") is None

    async def test_none_and_empty_are_not_the_same(self, store: SessionStore) -> None:
        rows = {
            "no snapshot": row(),
            "no messages": row(snapshot=snapshot(None)),
            "empty messages": row(snapshot=snapshot([])),
            "null messages": row(snapshot=replace(snapshot(None), data={"messages": None})),
            "odd messages": row(snapshot=replace(snapshot(None), data={"messages": "odd"})),
            "null state": row(snapshot=snapshot([], state=None)),
            "empty state": row(snapshot=snapshot([], state={})),
            "empty parts": row(error={}, usage={}, journal={}),
        }
        for name, wanted in rows.items():
            await put(store, name, wanted)
        for name, wanted in rows.items():
            there = await found(store, name)
            assert exact(there) == exact(replace(wanted, snapshot_id=name, status="completed")), name

    async def test_everything_that_messages_may_hold_comes_back_and_edits_leave_the_parent_alone(
        self, store: SessionStore
    ) -> None:
        state: dict[str, Any] = {
            "\x00key": "\ufeff",
            "deep": [[{"x": None}]],
            "n": [0, 0.0, -0.0, False, "", [], {}, 1e300, 2**64 - 1],
        }
        parent = await put(store, "p", row(snapshot=snapshot(RICH, state=state, artifacts=[{"parts": []}])))
        edited = [dict(message) for message in RICH]
        edited[2] = {**edited[2], "metadata": {"interrupted": False, "custom": {"n": 1.0, "x": 1, "t": 1, "z": 0.0}}}
        del edited[4]["metadata"]
        child = await put(store, "c", row(1, parent_id="p", snapshot=snapshot(edited, state=state)))
        assert exact(await found(store, "c")) == exact(child)
        assert exact(await found(store, "p")) == exact(parent)
        assert exact(parent) == exact(
            row(snapshot_id="p", status="completed", snapshot=snapshot(RICH, state=state, artifacts=[{"parts": []}]))
        )
        assert exact(child) == exact(
            row(1, snapshot_id="c", status="completed", parent_id="p", snapshot=snapshot(edited, state=state))
        )

    async def test_megabytes_come_back_also_beside_a_tiny_rewrite(self, store: SessionStore) -> None:
        large = [*said(*(f"{n} " + "x" * 1000 for n in range(1500))), *said("y" * 1_000_000)]
        parent = await put(store, "p", row(snapshot=snapshot(large, state={"blob": "z" * 100_000})))
        child = await put(store, "c", row(1, parent_id="p", snapshot=snapshot([*large, *said("more")])))
        assert exact(await found(store, "c")) == exact(child)
        await put(store, "c", row(1, parent_id="p", snapshot=snapshot(said("tiny"))))
        assert words(await found(store, "c")) == ["tiny"]
        assert exact(await found(store, "p")) == exact(parent)
        assert len(words(parent)) == 1501

    async def test_nothing_that_a_caller_holds_is_what_is_stored(self, store: SessionStore) -> None:
        messages = said("a", "b")
        state = {"list": [1]}
        handed = row(error={"message": "e"}, journal={"lines": []}, snapshot=snapshot(messages, state=state))
        saved = await put(store, "r", handed)
        before = exact(saved)

        def spoil(there: SessionSnapshot | None) -> None:
            assert there is not None
            assert there.snapshot is not None
            assert there.error is not None
            assert there.journal is not None
            there.error["message"] = "spoiled"
            there.journal["lines"].append("spoiled")
            there.snapshot.data["state"]["list"].append("spoiled")
            loaded = there.loaded()
            assert loaded is not None
            for message in [*there.snapshot.data["messages"], *loaded.data["messages"]]:
                message["content"][0]["text"] = "spoiled"
            there.snapshot.data["messages"] = []
            there.snapshot.data.clear()

        def spoil_and_decline(there: SessionSnapshot | None) -> None:
            spoil(there)

        spoil(handed)
        spoil(saved)
        spoil(await store.get_snapshot("r"))
        spoil(await store.get_latest_snapshot("s"))
        assert await store.save_snapshot("r", spoil_and_decline) is None
        messages[0]["content"][0]["text"] = "spoiled"
        state["list"].append(2)
        assert exact(await found(store, "r")) == before

    async def test_a_rewrite_replaces_the_row_whole(self, store: SessionStore) -> None:
        await put(
            store,
            "r",
            row(
                agent_id="a", parent_id="p", owner="o", finish_reason="stop", error={"x": 1}, usage={"n": 1},
                idempotency_key="k", journal={"lines": []}, updated_at=at(1), snapshot=snapshot(said("a"), state={}),
            ),
        )  # fmt: skip
        saved = await put(store, "r", row())
        assert exact(saved) == exact(row(snapshot_id="r", status="completed"))
        assert exact(await found(store, "r")) == exact(saved)

    async def test_eight_writers_of_one_row_each_land_once(self, store: SessionStore) -> None:
        await put(store, "r", row(snapshot=snapshot([], state={"n": 0})))

        def add(name: str) -> Any:
            def change(there: SessionSnapshot | None) -> SessionSnapshot:
                assert there is not None
                loaded = there.loaded()
                assert loaded is not None
                data = {
                    "messages": [*loaded.data["messages"], *said(name)],
                    "state": {"n": loaded.data["state"]["n"] + 1},
                }
                return replace(there, snapshot=replace(loaded, data=data))

            return change

        outcomes = await at_once(*(store.save_snapshot("r", add(f"w{number}")) for number in range(8)))
        assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        there = await found(store, "r")
        assert there.snapshot is not None
        assert there.snapshot.data["state"] == {"n": 8}
        assert sorted(words(there)) == [f"w{number}" for number in range(8)]

    async def test_eight_children_of_one_parent_all_land(self, store: SessionStore) -> None:
        history = said("a", "b")
        await put(store, "p", row(snapshot=snapshot(history)))
        await at_once(
            *(
                put(store, f"c{n}", row(1 + n, parent_id="p", snapshot=snapshot([*history, *said(f"branch {n}")])))
                for n in range(8)
            )
        )
        for n in range(8):
            assert words(await found(store, f"c{n}")) == ["a", "b", f"branch {n}"]
        assert await latest_id(store, "s") == "c7"

    async def test_exactly_one_of_eight_writers_wins_a_tip(self, store: SessionStore) -> None:
        await put(store, "p", row(snapshot=snapshot(said("a"))))
        outcomes = await at_once(*(put(store, f"c{n}", row(1, parent_id="p"), expected_tip="p") for n in range(8)))
        losers = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError)]
        assert len(losers) == 7
        tip = await latest_id(store, "s")
        assert {(loser.session_id, loser.expected, loser.found) for loser in losers} == {("s", "p", tip)}
        there = [n for n in range(8) if await store.get_snapshot(f"c{n}") is not None]
        assert [f"c{n}" for n in there] == [tip]

    async def test_a_tip_that_moved_is_a_conflict_and_nothing_is_written(self, store: SessionStore) -> None:
        with pytest.raises(SessionConflictError):
            await put(store, "r", row(), expected_tip="nothing")
        await put(store, "one", row(), expected_tip=None)
        with pytest.raises(SessionConflictError):
            await put(store, "r", row(1), expected_tip=None)
        await put(store, "two", row(1), expected_tip="one")
        with pytest.raises(SessionConflictError):
            await put(store, "r", row(2), expected_tip="one")
        assert await store.get_snapshot("r") is None
        await put(store, "two", row(1, finish_reason="stop"), expected_tip="two")

    async def test_the_tip_of_one_agent_is_not_moved_by_another(self, store: SessionStore) -> None:
        await put(store, "a1", row(agent_id="a"), expected_tip=None)
        await put(store, "b1", row(1, agent_id="b"), expected_tip=None)
        await put(store, "a2", row(2, agent_id="a"), expected_tip="a1")
        with pytest.raises(SessionConflictError):
            await put(store, "b2", row(3, agent_id="b"), expected_tip="a2")
        await put(store, "b2", row(3, agent_id="b"), expected_tip="b1")

    @pytest.mark.parametrize("status", ["completed", "failed", "aborted"])
    async def test_a_settled_status_never_changes(self, store: SessionStore, status: SnapshotStatus) -> None:
        before = await put(store, "r", row(status=status, snapshot=snapshot(said("a"))))
        for wanted in ("pending", "aborting", "completed", "failed", "aborted"):
            if wanted != status:
                with pytest.raises(TerminalStatusError):
                    await put(store, "r", row(status=wanted))
        assert exact(await found(store, "r")) == exact(before)
        assert (await put(store, "r", row(status=status, finish_reason="x"))).finish_reason == "x"

    async def test_a_writer_of_an_older_epoch_is_refused(self, store: SessionStore) -> None:
        await put(store, "r", row(status="pending", owner="one", epoch=1))
        await put(store, "r", row(status="pending", owner="two", epoch=2))
        with pytest.raises(StaleEpochError):
            await put(store, "r", row(status="completed", owner="one", epoch=1))
        assert (await found(store, "r")).owner == "two"
        await put(store, "r", row(owner="two", epoch=2))

    async def test_an_idempotency_key_belongs_to_one_row(self, store: SessionStore) -> None:
        await put(store, "r", row(idempotency_key="k"))
        with pytest.raises(IdempotencyKeyError) as refused:
            await put(store, "q", row(1, session_id="t", idempotency_key="k"))
        assert (refused.value.key, refused.value.snapshot_id) == ("k", "r")
        assert await store.get_snapshot("q") is None
        await put(store, "r", row(idempotency_key="k", finish_reason="stop"))
        await put(store, "r", row(idempotency_key="other"))
        await put(store, "q", row(1, session_id="t", idempotency_key="k"))

    async def test_exactly_one_of_eight_writers_gets_a_key(self, store: SessionStore) -> None:
        outcomes = await at_once(
            *(put(store, f"r{n}", row(n, session_id=f"s{n % 3}", idempotency_key="k")) for n in range(8))
        )
        assert sum(isinstance(outcome, SessionSnapshot) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, IdempotencyKeyError) for outcome in outcomes) == 7

    async def test_a_row_is_found_by_its_key(self, store: SessionStore) -> None:
        reader: IdempotencyReader = able(store, IdempotencyReader)
        saved = await put(store, "r", row(idempotency_key="k", snapshot=snapshot(said("a"))))
        assert exact(await reader.get_snapshot_by_key("k")) == exact(saved)
        assert await reader.get_snapshot_by_key("another") is None

    @pytest.mark.parametrize("bad", BAD_IDS, ids=range(len(BAD_IDS)))
    async def test_a_bad_id_is_refused_wherever_it_stands(self, store: SessionStore, bad: str) -> None:
        with pytest.raises(InvalidIdError):
            await store.save_snapshot(bad, becomes(row()))
        with pytest.raises(InvalidIdError):
            await store.get_snapshot(bad)
        with pytest.raises(InvalidIdError):
            await store.get_latest_snapshot(bad)
        for wanted in (row(session_id=bad), row(agent_id=bad), row(parent_id=bad)):
            with pytest.raises(InvalidIdError):
                await store.save_snapshot("r", becomes(wanted))
        assert await store.get_snapshot("r") is None

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("status", "done"),
            ("status", "expired"),
            ("created_at", datetime(2026, 1, 1)),  # noqa: DTZ001 - it is refused for that
            ("heartbeat_at", datetime(2026, 1, 1)),  # noqa: DTZ001 - as above
            ("created_at", None),
            ("created_at", BEFORE_ALL),
            ("updated_at", BEFORE_ALL),
            ("heartbeat_at", BEFORE_ALL),
            ("created_at", AFTER_ALL),
            ("epoch", -1),
            ("epoch", 1.5),
            ("error", "text"),
            ("usage", [1]),
            ("owner", ""),
            ("idempotency_key", "a\ud800"),
            ("snapshot", {"messages": []}),
        ],
        ids=range(16),
    )
    async def test_a_row_that_cannot_be_stored_is_refused(self, store: SessionStore, field: str, value: Any) -> None:
        with pytest.raises(SessionRowError):
            await store.save_snapshot("r", becomes(replace(row(), **{field: value})))
        assert await store.get_snapshot("r") is None
        if isinstance(store, SessionCatalogue):
            assert (await store.list_snapshots("s")).snapshots == ()

    async def test_the_first_and_the_last_moment_in_any_zone_are_kept(self, store: SessionStore) -> None:
        west, east = timezone(-timedelta(hours=12)), timezone(timedelta(hours=14))
        first, last = datetime.min.replace(tzinfo=west), datetime.max.replace(tzinfo=east)
        for name, moment in (("first", first), ("last", last)):
            await put(store, name, replace(row(), created_at=moment, updated_at=moment, heartbeat_at=moment))
            there = await found(store, name)
            assert (there.created_at, there.updated_at, there.heartbeat_at) == (moment, moment, moment)

    @pytest.mark.parametrize(
        "state",
        [
            replace(snapshot(None), data={"\ud800": 1}),
            replace(snapshot(None), data=cast("Any", {5: 1})),
            replace(snapshot(None), created_at="\ud800"),
            replace(snapshot(None), created_at=cast("Any", 5)),
        ],
        ids=range(4),
    )
    async def test_a_snapshot_that_no_store_can_write_is_refused(self, store: SessionStore, state: Snapshot) -> None:
        with pytest.raises((NotJsonError, SnapshotException), match=r"ud800|5|created_at"):
            await store.save_snapshot("r", becomes(row(snapshot=state)))
        assert await store.get_snapshot("r") is None

    @pytest.mark.parametrize("key", ["\ud800", 5, "", None, "a\0", b"k"])
    async def test_what_is_no_key_is_refused(self, store: SessionStore, key: Any) -> None:
        reader: IdempotencyReader = able(store, IdempotencyReader)
        with pytest.raises(SessionRowError, match="idempotency_key="):
            await reader.get_snapshot_by_key(key)

    @pytest.mark.parametrize(
        "value", [float("nan"), float("inf"), 2**65, "\ud800", {1: 2}, object(), {1, 2}], ids=range(7)
    )
    async def test_what_json_cannot_carry_is_refused_by_its_path(self, store: SessionStore, value: Any) -> None:
        bad = [*said("a"), {"role": "user", "content": [{"text": "b", "x": [value]}]}]
        for wanted in (
            row(snapshot=snapshot(bad)),
            row(snapshot=snapshot([], state={"k": value})),
            row(error={"k": value}),
            row(journal={"k": value}),
        ):
            with pytest.raises((NotJsonError, SnapshotException)):
                await store.save_snapshot("r", becomes(wanted))
        with pytest.raises((NotJsonError, SnapshotException), match=r"messages\[1\]\.content\[0\]"):
            await store.save_snapshot("r", becomes(row(snapshot=snapshot(bad))))
        assert await store.get_snapshot("r") is None

    async def test_a_save_that_is_cancelled_at_any_moment_is_whole_or_not_there(self, store: SessionStore) -> None:
        history = said("a", "b")
        await put(store, "r0", row(snapshot=snapshot(history)))
        for moment in range(12):
            wanted = row(1 + moment, parent_id="r0", snapshot=snapshot([*history, *said(f"turn {moment}")]))
            async with asyncio.TaskGroup() as group:
                task = group.create_task(put(store, f"c{moment}", wanted))
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
            there = await store.get_snapshot(f"c{moment}")
            assert there is None or words(there) == ["a", "b", f"turn {moment}"]
        assert words(await found(store, "r0")) == ["a", "b"]

    def test_one_store_serves_several_event_loops_at_once(self, store: SessionStore) -> None:
        failed: list[BaseException] = []

        async def use(name: str) -> None:
            for turn in range(5):
                await put(store, f"{name}-{turn}", row(turn, session_id=name, snapshot=snapshot(said(name))))
                assert words(await found(store, f"{name}-{turn}")) == [name]

        def run(name: str) -> None:
            try:
                asyncio.run(use(name))
            except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
                failed.append(error)

        threads = [threading.Thread(target=run, args=(f"loop{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not failed

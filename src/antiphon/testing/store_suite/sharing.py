"""Several who use one place: subscribers, other objects, tenants, queues; and words that are taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from antiphon.clock import Clock
from antiphon.errors import (
    IdempotencyKeyError,
    InvalidIdError,
    InvalidTypeError,
    LeaseLostError,
    SessionConflictError,
    SessionRowError,
    SnapshotExistsError,
    SnapshotNotFoundError,
)
from antiphon.store.base import (
    IdempotencyReader,
    SessionCatalogue,
    SessionExporter,
    SessionLease,
    SessionRedactor,
    SessionSnapshot,
    SessionStore,
    SnapshotMetadataReader,
    SnapshotSubscriber,
)
from antiphon.testing.clock import VirtualClock
from antiphon.testing.store_suite.support import (
    LONG_AGO,
    PATIENCE_S,
    StoreFixtures,
    able,
    abort,
    after,
    at,
    at_once,
    close,
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


class WatchingContract(StoreFixtures):
    """Changes of a status, as they are told."""

    @pytest.mark.parametrize("status", ["pending", "completed"])
    async def test_a_subscription_begins_with_the_status_that_is(self, store: SessionStore, status: Any) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status=status))
        statuses = subscriber.on_snapshot_status_change("r")
        assert await after(statuses, status) == [status]
        await close(statuses)

    async def test_changes_are_told_up_to_the_last(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending", heartbeat_at=at(0)))
        statuses = subscriber.on_snapshot_status_change("r")
        await after(statuses, "pending")
        await store.save_snapshot("r", heartbeat(at(1)))
        await store.save_snapshot("r", abort(at(2)))
        assert set(await after(statuses, "aborting")) <= {"pending", "aborting"}
        await store.save_snapshot("r", finalize(at(3), snapshot([])))
        assert set(await after(statuses, "aborted")) <= {"aborting", "aborted"}
        await close(statuses)

    async def test_a_change_made_to_the_very_row_that_fn_got_is_told(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending"))
        statuses = subscriber.on_snapshot_status_change("r")
        await after(statuses, "pending")

        def in_place(there: SessionSnapshot | None) -> SessionSnapshot | None:
            object.__setattr__(there, "status", "failed")
            return there

        await store.save_snapshot("r", in_place)
        await after(statuses, "failed")
        await close(statuses)

    async def test_every_subscriber_is_told(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending"))
        all_statuses = [subscriber.on_snapshot_status_change("r") for _ in range(5)]
        for statuses in all_statuses:
            await after(statuses, "pending")
        await close(all_statuses.pop())
        await store.save_snapshot("r", abort(at(1)))
        for statuses in all_statuses:
            await after(statuses, "aborting")
            await close(statuses)

    async def test_a_missing_row_ends_the_subscription_at_once(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        async with asyncio.timeout(PATIENCE_S):
            assert [status async for status in subscriber.on_snapshot_status_change("nothing")] == []

    async def test_a_row_that_is_deleted_ends_the_subscription(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        await put(store, "r", row(status="pending"))
        statuses = subscriber.on_snapshot_status_change("r")
        await after(statuses, "pending")
        await catalogue.delete_session("s")
        with pytest.raises(StopAsyncIteration):
            await after(statuses, "completed")

    async def test_a_subscription_ends_with_the_task_that_reads_it(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending"))
        begun = asyncio.Event()
        ended = asyncio.Event()

        async def read() -> None:
            try:
                async for _ in subscriber.on_snapshot_status_change("r"):
                    begun.set()
            finally:
                ended.set()

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            await begun.wait()
            reader.cancel()
        assert ended.is_set()

    async def test_what_expired_is_told_as_it_is_stored(self, store: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending", heartbeat_at=LONG_AGO))
        statuses = subscriber.on_snapshot_status_change("r")
        assert await after(statuses, "pending") == ["pending"]
        await close(statuses)


class SecondObjectContract(StoreFixtures):
    """Two objects over one place, as two processes are."""

    async def test_each_reads_what_the_other_wrote(self, store: SessionStore, other: SessionStore) -> None:
        history: list[Any] = []
        parent = None
        for turn in range(6):
            history += said(f"q{turn}", f"a{turn}")
            writer, reader = (store, other) if turn % 2 else (other, store)
            saved = await put(writer, f"r{turn}", row(turn, parent_id=parent, snapshot=snapshot(history)))
            parent = f"r{turn}"
            assert exact(await found(reader, parent)) == exact(saved)
            assert await latest_id(reader, "s") == parent

    async def test_a_change_by_the_other_is_told(self, store: SessionStore, other: SessionStore) -> None:
        subscriber: SnapshotSubscriber = able(store, SnapshotSubscriber)
        await put(store, "r", row(status="pending"))
        statuses = subscriber.on_snapshot_status_change("r")
        await after(statuses, "pending")
        await other.save_snapshot("r", abort(at(1)))
        await after(statuses, "aborting")
        await close(statuses)

    async def test_racing_pairs_lose_nothing_and_interleave_nothing(
        self, store: SessionStore, other: SessionStore
    ) -> None:
        tip: str | None = None
        history: list[Any] = []
        for turn in range(15):
            both = await at_once(
                *(
                    put(
                        writer,
                        f"{turn}-{name}",
                        row(turn, parent_id=tip, snapshot=snapshot([*history, *said(f"{turn} {name}")])),
                        expected_tip=tip,
                    )
                    for name, writer in (("one", store), ("two", other))
                )
            )
            winners = [outcome for outcome in both if isinstance(outcome, SessionSnapshot)]
            losers = [outcome for outcome in both if isinstance(outcome, SessionConflictError)]
            assert (len(winners), len(losers)) == (1, 1), both
            tip = winners[0].snapshot_id
            history += said(f"{turn} {tip.partition('-')[2]}")
        assert words(await found(store, tip or "")) == [message["content"][0]["text"] for message in history]
        assert exact(await found(store, tip or "")) == exact(await found(other, tip or ""))

    async def test_eight_writers_over_two_objects_each_land_once(
        self, store: SessionStore, other: SessionStore
    ) -> None:
        await put(store, "r", row(snapshot=snapshot([], state={"n": 0})))

        def add(there: SessionSnapshot | None) -> SessionSnapshot:
            assert there is not None
            assert there.snapshot is not None
            data = {**there.snapshot.data, "state": {"n": there.snapshot.data["state"]["n"] + 1}}
            return replace(there, snapshot=replace(there.snapshot, data=data))

        outcomes = await at_once(*((store, other)[n % 2].save_snapshot("r", add) for n in range(8)))
        assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        there = await found(other, "r")
        assert there.snapshot is not None
        assert there.snapshot.data["state"] == {"n": 8}

    async def test_branches_by_two_objects_do_not_mix(self, store: SessionStore, other: SessionStore) -> None:
        history = said(*(f"m{n}" for n in range(6)))
        await put(store, "p", row(snapshot=snapshot(history)))
        await found(other, "p")
        branches = {"one": list(history), "two": list(history)}
        for turn in range(8):
            for name, branch in branches.items():
                branch.extend(said(f"{name} {turn}"))
            await at_once(
                *(
                    put(writer, f"{name}-{turn}", row(turn + 1, parent_id="p", snapshot=snapshot(branches[name])))
                    for name, writer in (("one", store), ("two", other))
                )
            )
        for name, reader in (("one", other), ("two", store)):
            for turn in range(8):
                told = words(await found(reader, f"{name}-{turn}"))
                assert told == [*(f"m{n}" for n in range(6)), *(f"{name} {n}" for n in range(turn + 1))]

    async def test_what_was_acknowledged_is_there_when_the_place_is_opened_again(
        self, store: SessionStore, reopen: Callable[[], SessionStore] | None
    ) -> None:
        if reopen is None:
            pytest.skip("no fixture `reopen`: the place of this store is gone with the object")
        history: list[Any] = []
        for turn in range(4):
            history += said(f"m{turn}")
            saved = await put(store, f"r{turn}", row(turn, snapshot=snapshot(history)))
            again = reopen()
            assert exact(await found(again, f"r{turn}")) == exact(saved)
            closing = getattr(again, "close", None)
            if closing is not None:
                closing()

    async def test_pruning_by_one_does_not_disturb_the_other(self, store: SessionStore, other: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        history: list[Any] = []
        parent = None
        for turn in range(12):
            history += said(f"m{turn}")
            await put(other, f"r{turn}", row(turn, parent_id=parent, snapshot=snapshot(history[-6:])))
            parent = f"r{turn}"
            await catalogue.prune("s", keep=2)
            await catalogue.sweep("s")
            told = words(await found(other, parent))
            assert told == [f"m{n}" for n in range(max(0, turn - 5), turn + 1)]
        assert len((await catalogue.list_snapshots("s")).snapshots) == 2


class TenantContract(StoreFixtures):
    """Nothing crosses a tenant."""

    async def test_rows_are_read_by_their_own_tenant_only(
        self, store: SessionStore, tenant: Callable[[str], SessionStore]
    ) -> None:
        one, two = tenant("org-1/user"), tenant("org-1/user-2")
        await put(one, "r", row(snapshot=snapshot(said("one")), idempotency_key="k"))
        for outsider in (two, store, tenant("org-1"), tenant("org-1/user/deeper")):
            assert await outsider.get_snapshot("r") is None
            assert await outsider.get_latest_snapshot("s") is None
            if isinstance(outsider, SnapshotMetadataReader):
                assert await outsider.get_snapshot_metadata("r") is None
                assert await outsider.get_latest_snapshot_metadata("s") is None
            if isinstance(outsider, SessionCatalogue):
                assert (await outsider.list_sessions()).sessions == ()
                assert (await outsider.list_snapshots("s")).snapshots == ()
            if isinstance(outsider, IdempotencyReader):
                assert await outsider.get_snapshot_by_key("k") is None
            if isinstance(outsider, SessionExporter):
                with pytest.raises(SnapshotNotFoundError):
                    _ = [line async for line in outsider.export("s")]
            if isinstance(outsider, SessionLease):
                lease = await outsider.acquire_lease("s", owner="outsider", wait=False)
                assert lease is not None
        assert words(await found(tenant("org-1/user"), "r")) == ["one"]

    async def test_one_id_in_two_tenants_is_two_rows(self, tenant: Callable[[str], SessionStore]) -> None:
        one, two = tenant("a"), tenant("b")
        await put(one, "r", row(5, status="pending", idempotency_key="k", snapshot=snapshot(said("one"))))
        seen: list[SessionSnapshot | None] = []

        def change(there: SessionSnapshot | None) -> SessionSnapshot:
            seen.append(there)
            return row(1, session_id="t", status="pending", idempotency_key="k", snapshot=snapshot(said("two")))

        await two.save_snapshot("r", change)
        assert seen == [None]
        await two.save_snapshot("r", abort(at(9)))
        assert ((await found(one, "r")).status, (await found(two, "r")).status) == ("pending", "aborting")
        assert (words(await found(one, "r")), words(await found(two, "r"))) == (["one"], ["two"])
        assert await latest_id(one, "s") == "r"
        assert await latest_id(one, "t") is None

    async def test_one_idempotency_key_in_two_tenants_is_two_keys(self, tenant: Callable[[str], SessionStore]) -> None:
        one, two = tenant("a"), tenant("b")
        for view, name in ((one, "one"), (two, "two")):
            await put(view, f"of-{name}", row(idempotency_key="k", snapshot=snapshot(said(name))))
        for view, name in ((one, "one"), (two, "two")):
            with pytest.raises(IdempotencyKeyError):
                await put(view, f"again-{name}", row(1, session_id="t", idempotency_key="k"))
            if isinstance(view, IdempotencyReader):
                there = await view.get_snapshot_by_key("k")
                assert there is not None
                assert (there.snapshot_id, words(there)) == (f"of-{name}", [name])
        if isinstance(one, SessionCatalogue):
            await one.delete_session("s")
            await put(one, "again-one", row(1, session_id="t", idempotency_key="k"))
            if isinstance(two, IdempotencyReader):
                assert await two.get_snapshot_by_key("k") is not None

    async def test_removal_stays_within_the_tenant(self, tenant: Callable[[str], SessionStore]) -> None:
        one: SessionCatalogue = able(tenant("a"), SessionCatalogue)
        two = tenant("b")
        for view in (tenant("a"), two):
            for turn in range(4):
                await put(view, f"r{turn}", row(turn, snapshot=snapshot(said("secret", f"{turn}"))))
        before = {n: exact(await found(two, f"r{n}")) for n in range(4)}
        await one.prune("s", keep=1)
        await one.sweep()
        if isinstance(one, SessionRedactor):
            await one.redact("s", lambda message: {**message, "content": [{"text": "gone"}]})
        await one.delete_session("s")
        for number, wanted in before.items():
            assert exact(await found(two, f"r{number}")) == wanted

    async def test_a_subscription_is_to_a_row_of_ones_own(self, tenant: Callable[[str], SessionStore]) -> None:
        one = tenant("a")
        two: SnapshotSubscriber = able(tenant("b"), SnapshotSubscriber)
        await put(one, "r", row(status="pending"))
        async with asyncio.timeout(PATIENCE_S):
            assert [status async for status in two.on_snapshot_status_change("r")] == []

    @pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a//b", "..", "a/../b", ".a", "a\\b", "a\x00", "a\n", " a"])
    async def test_a_name_that_is_not_safe_is_refused(self, tenant: Callable[[str], SessionStore], name: str) -> None:
        with pytest.raises(SessionRowError):
            await tenant(name).get_snapshot("r")


class ExportContract(StoreFixtures):
    """A session as a file."""

    async def test_an_exported_session_reads_back_the_same_elsewhere(
        self, store: SessionStore, tenant: Callable[[str], SessionStore]
    ) -> None:
        exporter: SessionExporter = able(store, SessionExporter)
        history: list[Any] = []
        parent = None
        for turn in range(12):
            history += said(f"q{turn}" + "x" * 5000 * (turn == 3), "\x00𝄞")
            if turn == 6:
                history[:4] = said("summary")
            full = row(
                turn, parent_id=parent, agent_id="a", usage={"n": turn}, error={"e": 1.0}, owner="w", epoch=turn,
                idempotency_key=f"k{turn}", journal={"lines": said("j")}, updated_at=at(turn + 0.5),
                snapshot=replace(snapshot(history, state={"t": "y" * 400}), app_data={"b": b"\x00"}),
            )  # fmt: skip
            await put(store, f"r{turn}", full)
            parent = f"r{turn}"
        await put(store, "pending", row(50, parent_id="r3", status="pending", heartbeat_at=at(50)))
        await put(store, "branch", row(13, parent_id="r3", snapshot=snapshot([*history[:3], *said("b")])))
        lines = [line async for line in exporter.export("s")]
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
        assert sum(line.count(b"x" * 5000) for line in lines) == 1
        target = tenant("elsewhere")
        importer: SessionExporter = able(target, SessionExporter)
        assert await importer.import_(lines) == "s"
        for name in [*(f"r{turn}" for turn in range(12)), "pending", "branch"]:
            assert exact(await found(target, name)) == exact(await found(store, name)), name
        assert await latest_id(target, "s") == "pending"
        assert [line async for line in importer.export("s")] == lines
        with pytest.raises(Exception, match="there already"):
            await importer.import_(lines)

    async def test_an_export_that_is_cut_short_or_foreign_is_refused_and_nothing_is_written(
        self, store: SessionStore, tenant: Callable[[str], SessionStore]
    ) -> None:
        exporter: SessionExporter = able(store, SessionExporter)
        for turn in range(3):
            await put(store, f"r{turn}", row(turn, snapshot=snapshot(said(f"m{turn}"))))
        lines = [line async for line in exporter.export("s")]
        target = tenant("elsewhere")
        importer: SessionExporter = able(target, SessionExporter)
        for broken in (lines[:-1], lines[:2], [], [b"{}"], [b"not json\n"], [*lines[:1], b"[]\n"], [*lines, lines[1]]):
            with pytest.raises(SessionRowError):
                await importer.import_(broken)
        assert await target.get_latest_snapshot("s") is None
        with pytest.raises(SnapshotNotFoundError):
            _ = [line async for line in exporter.export("nothing")]

    async def test_an_import_that_fails_in_the_middle_has_written_nothing(
        self, store: SessionStore, tenant: Callable[[str], SessionStore]
    ) -> None:
        exporter: SessionExporter = able(store, SessionExporter)
        for turn in range(4):
            state = snapshot(said(*(f"m{n}" for n in range(turn + 1))), state={"x": "y" * 500})
            await put(store, f"r{turn}", row(turn, idempotency_key=f"k{turn}", snapshot=state))
        lines = [line async for line in exporter.export("s")]
        target = tenant("elsewhere")
        importer: SessionExporter = able(target, SessionExporter)
        third = b'{"snapshot_id":"r2",'
        for old, new in (
            (b'"status":"completed"', b'"status":"expired"'),
            (b'"epoch":0', b'"epoch":-1'),
            (b'"r2"', b'"r1"'),
            (b'"k2"', b'"k1"'),
            (b'"parent_id":null', b'"parent_id":"../x"'),
            (b'"created_at":', b'"created_at":9999'),
        ):
            bad = [line.replace(old, new) if line.startswith(third) else line for line in lines]
            assert bad != lines
            with pytest.raises((SessionRowError, InvalidIdError)):
                await importer.import_(bad)
        await put(target, "of-another", row(session_id="t", idempotency_key="k2"))
        with pytest.raises(IdempotencyKeyError):
            await importer.import_(lines)
        await put(target, "of-another", row(session_id="t"))
        await put(target, "r2", row(session_id="u"))
        with pytest.raises(SnapshotExistsError):
            await importer.import_(lines)
        assert await target.get_latest_snapshot("s") is None
        assert await target.get_snapshot("r0") is None
        other = tenant("third")
        again: SessionExporter = able(other, SessionExporter)
        with pytest.raises(SessionRowError):
            await again.import_(bad)
        assert await again.import_(lines) == "s"
        assert [line async for line in again.export("s")] == lines
        await put(other, "r4", row(4, parent_id="r3", snapshot=snapshot(said(*(f"m{n}" for n in range(5))))))
        for turn in range(5):
            assert words(await found(other, f"r{turn}")) == [f"m{n}" for n in range(turn + 1)]


def gone(message: dict[str, Any]) -> dict[str, Any] | None:
    """Takes a secret back."""
    told = message["content"][0].get("text", "")
    return {**message, "content": [{"text": told.replace("secret", "[gone]")}]} if "secret" in told else None


def gone_part(name: str, value: Any) -> Any:
    """Takes a secret out of the other parts."""
    if isinstance(value, str):
        return value.replace("secret", "[gone]")
    if isinstance(value, dict):
        return {key: gone_part(name, item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [gone_part(name, item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


class RedactionContract(StoreFixtures):
    """Words that were taken back are nowhere any more, and do not come back."""

    async def test_a_redaction_reaches_every_row_branch_and_journal(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        history: list[Any] = said("a", "the secret", "c", "d", "secret " + "x" * 5000)
        await put(store, "p", row(snapshot=snapshot(history)))
        await put(store, "q", row(1, parent_id="p", snapshot=snapshot([*history, *said("more")])))
        await put(store, "branch", row(2, parent_id="p", snapshot=snapshot([*history[1:], *said("b")])))
        await put(
            store,
            "run",
            row(
                3, parent_id="q", status="pending", error={"message": "secret"}, journal={"lines": said("secret"), "mark": 1},
                snapshot=snapshot([], state={"note": "secret", "pad": "y" * 400}),
            ),
        )  # fmt: skip
        kept = await put(store, "t", row(session_id="t", snapshot=snapshot(history)))
        assert await redactor.redact("s", gone, part=gone_part) >= 4
        large = "[gone] " + "x" * 5000
        assert words(await found(store, "p")) == ["a", "the [gone]", "c", "d", large]
        assert words(await found(store, "q")) == ["a", "the [gone]", "c", "d", large, "more"]
        assert words(await found(store, "branch")) == ["the [gone]", "c", "d", large, "b"]
        run = await found(store, "run")
        assert b"secret" not in exact(run)
        assert run.journal is not None
        assert run.journal["lines"][0]["content"] == [{"text": "[gone]"}]
        assert exact(await found(store, "t")) == exact(kept), "another session is another matter"

    async def test_who_still_holds_the_old_words_saves_the_new_ones(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        history: list[Any] = said(*(f"m{n}" for n in range(6)), "the secret", "b")
        await put(store, "p", row(snapshot=snapshot(history, state={"note": "secret"})))
        read = (await found(store, "p")).snapshot
        assert read is not None
        await redactor.redact("s", gone, part=gone_part)
        await put(
            store, "q", row(1, parent_id="p", snapshot=snapshot([*history, *said("c")], state={"note": "secret"}))
        )
        await put(store, "r", row(2, parent_id="q", snapshot=replace(read, data={**read.data})))
        await put(store, "j", row(3, status="pending", journal={"lines": [history[6]]}))
        edited = [*said("new"), *history[3:], *said("d")]
        await put(store, "e", row(4, parent_id="p", snapshot=snapshot(edited)))
        for name in ("p", "q", "r", "j", "e"):
            assert b"secret" not in exact(await found(store, name)), name
        assert words(await found(store, "q"))[-3:] == ["the [gone]", "b", "c"]

    async def test_two_objects_keep_a_redaction(self, store: SessionStore, other: SessionStore) -> None:
        redactor: SessionRedactor = able(other, SessionRedactor)
        history: list[Any] = said("a", "the secret")
        await put(store, "p", row(snapshot=snapshot(history)))
        await redactor.redact("s", gone)
        await put(store, "q", row(1, parent_id="p", snapshot=snapshot([*history, *said("more")])))
        for name in ("p", "q"):
            assert b"secret" not in exact(await found(store, name))
            assert exact(await found(store, name)) == exact(await found(other, name))

    async def test_a_redaction_that_fails_changes_nothing(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        before = await put(store, "p", row(snapshot=snapshot(said("secret", "b", "c"))))

        def fails(message: dict[str, Any]) -> dict[str, Any] | None:
            if message["content"][0]["text"] == "c":
                raise ZeroDivisionError
            return gone(message)

        with pytest.raises(ZeroDivisionError):
            await redactor.redact("s", fails)
        assert exact(await found(store, "p")) == exact(before)

    async def test_a_redaction_that_gives_something_else_than_a_message_is_refused(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        before = await put(store, "p", row(error={"e": 1}, snapshot=snapshot(said("a"), state={})))
        wrong: Any
        for wrong in ("text", [1], 5):

            def message(old: Any, wrong: Any = wrong) -> Any:
                return wrong

            def part(name: str, value: Any, wrong: Any = wrong) -> Any:
                return wrong if name == "error" else value

            with pytest.raises(InvalidTypeError, match=r"message\(\)"):
                await redactor.redact("s", message)
            with pytest.raises(InvalidTypeError, match="'error'"):
                await redactor.redact("s", gone, part=part)
        for wrong in (None, "text"):
            with pytest.raises(InvalidTypeError, match="message="):
                await redactor.redact("s", wrong)
        assert exact(await found(store, "p")) == exact(before)

    async def test_a_redaction_of_nothing_is_nothing(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        assert await redactor.redact("nothing", gone) == 0
        before = await put(store, "p", row(snapshot=snapshot(said("a"))))
        assert await redactor.redact("s", gone) == 0
        assert exact(await found(store, "p")) == exact(before)

    async def test_what_was_redacted_may_be_redacted_again(self, store: SessionStore) -> None:
        redactor: SessionRedactor = able(store, SessionRedactor)
        history = said("a", "the secret")
        await put(store, "p", row(snapshot=snapshot(history)))
        await redactor.redact("s", gone)

        def again(message: dict[str, Any]) -> dict[str, Any] | None:
            told = message["content"][0]["text"]
            return {**message, "content": [{"text": "[twice]"}]} if "[gone]" in told else None

        await redactor.redact("s", again)
        await put(store, "q", row(1, snapshot=snapshot(history)))
        assert words(await found(store, "p")) == words(await found(store, "q")) == ["a", "[twice]"]


class LeaseContract(StoreFixtures):
    """A queue for a session."""

    async def test_one_owner_at_a_time_in_the_order_in_which_they_came(self, store: SessionStore) -> None:
        leases: SessionLease = able(store, SessionLease)
        first = await leases.acquire_lease("s", owner="first")
        assert first is not None
        order: list[str] = []

        async def work(name: str) -> None:
            lease = await leases.acquire_lease("s", owner=name)
            assert lease is not None
            order.append(name)
            await leases.release_lease(lease)

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for name in ("a", "b", "c", "d"):
                group.create_task(work(name))
                await self._has_drawn(leases)
            assert order == []
            await leases.release_lease(first)
        assert order == ["a", "b", "c", "d"]

    async def _has_drawn(self, leases: SessionLease) -> None:
        """Return when a task that was begun has drawn its ticket: so many operations later it has."""
        for _ in range(20):
            await asyncio.sleep(0)
            assert await leases.acquire_lease("s", owner="asks", wait=False) is None

    async def test_a_lease_that_is_taken_is_refused_at_once_to_who_does_not_wait(self, store: SessionStore) -> None:
        leases: SessionLease = able(store, SessionLease)
        lease = await leases.acquire_lease("s", owner="a", wait=False)
        assert lease is not None
        assert await leases.acquire_lease("s", owner="b", wait=False) is None
        assert await leases.acquire_lease("other", owner="b", wait=False) is not None
        await leases.release_lease(lease)
        await leases.release_lease(lease)
        again = await leases.acquire_lease("s", owner="b", wait=False)
        assert again is not None
        assert again.ticket > lease.ticket

    async def test_a_lease_that_was_given_back_cannot_be_renewed(self, store: SessionStore) -> None:
        leases: SessionLease = able(store, SessionLease)
        lease = await leases.acquire_lease("s", owner="a")
        assert lease is not None
        renewed = await leases.renew_lease(lease, ttl=100)
        assert renewed.expires_at > lease.expires_at
        await leases.release_lease(renewed)
        with pytest.raises(LeaseLostError):
            await leases.renew_lease(renewed)

    async def test_who_stops_waiting_gives_the_ticket_back(self, store: SessionStore) -> None:
        leases: SessionLease = able(store, SessionLease)
        lease = await leases.acquire_lease("s", owner="a")
        assert lease is not None
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(leases.acquire_lease("s", owner="b"))
            await self._has_drawn(leases)
            waiter.cancel()
        await leases.release_lease(lease)
        assert await leases.acquire_lease("s", owner="c", wait=False) is not None

    @pytest.mark.parametrize("holder", [None, "before"])
    async def test_who_is_cancelled_at_any_moment_leaves_no_ticket(
        self, store: SessionStore, holder: str | None
    ) -> None:
        leases: SessionLease = able(store, SessionLease)
        for moment in range(12):
            session_id = f"s{moment}"
            before = None if holder is None else await leases.acquire_lease(session_id, owner=holder)
            async with asyncio.TaskGroup() as group:
                waiter = group.create_task(leases.acquire_lease(session_id, owner="b"))
                for _ in range(moment):
                    await asyncio.sleep(0)
                waiter.cancel()
            got = None if waiter.cancelled() else waiter.result()
            for lease in (before, got):
                if lease is not None:
                    await leases.release_lease(lease)
            assert await leases.acquire_lease(session_id, owner="c", wait=False) is not None, moment

    async def test_who_falls_silent_is_passed_over(self, open_at: Callable[[Clock], SessionStore] | None) -> None:
        if open_at is None:
            pytest.skip("no fixture `open_at`: no time passes in this store")
        clock = VirtualClock(autojump=False)
        store = open_at(clock)
        leases: SessionLease = able(store, SessionLease)
        dead = await leases.acquire_lease("s", owner="dead", ttl=10)
        assert dead is not None
        await clock.advance(9)
        assert await leases.acquire_lease("s", owner="b", wait=False) is None
        await clock.advance(2)
        lease = await leases.acquire_lease("s", owner="b", wait=False)
        assert lease is not None
        with pytest.raises(LeaseLostError):
            await leases.renew_lease(dead)
        await leases.release_lease(dead)
        with pytest.raises(LeaseLostError):
            await leases.renew_lease(dead)
        await leases.renew_lease(lease)
        closing = getattr(store, "close", None)
        if closing is not None:
            closing()

    async def test_a_waiting_owner_gets_its_turn_when_the_holder_falls_silent(
        self, open_at: Callable[[Clock], SessionStore] | None
    ) -> None:
        if open_at is None:
            pytest.skip("no fixture `open_at`: no time passes in this store")
        store = open_at(VirtualClock())
        leases: SessionLease = able(store, SessionLease)
        assert await leases.acquire_lease("s", owner="dead", ttl=10) is not None
        async with asyncio.timeout(PATIENCE_S):
            lease = await leases.acquire_lease("s", owner="b", ttl=10)
        assert lease is not None
        assert lease.owner == "b"
        closing = getattr(store, "close", None)
        if closing is not None:
            closing()

    async def test_leases_of_two_tenants_are_apart(self, tenant: Callable[[str], SessionStore]) -> None:
        one: SessionLease = able(tenant("a"), SessionLease)
        two: SessionLease = able(tenant("b"), SessionLease)
        assert await one.acquire_lease("s", owner="x", wait=False) is not None
        assert await two.acquire_lease("s", owner="x", wait=False) is not None
        assert await one.acquire_lease("s", owner="y", wait=False) is None

    @pytest.mark.parametrize("lease", [None, "s", ("s", "me", 1)])
    async def test_what_is_no_lease_is_refused_by_name(self, store: SessionStore, lease: Any) -> None:
        leases: SessionLease = able(store, SessionLease)
        held = await leases.acquire_lease("s", owner="me")
        for use in (leases.renew_lease, leases.release_lease):
            with pytest.raises(TypeError, match="Lease"):
                await use(lease)
        assert held is not None
        assert (await leases.renew_lease(held)).ticket == held.ticket

    @pytest.mark.parametrize("ttl", [0, -1, float("nan"), "1"])
    async def test_a_lease_needs_an_owner_and_a_time(self, store: SessionStore, ttl: Any) -> None:
        leases: SessionLease = able(store, SessionLease)
        with pytest.raises(SessionRowError):
            await leases.acquire_lease("s", owner="a", ttl=ttl)
        with pytest.raises(SessionRowError):
            await leases.acquire_lease("s", owner="")
        owner: Any
        for owner in (5, None, b"a", "a\0", "\ud800", "x" * 501):
            with pytest.raises(SessionRowError, match="owner="):
                await leases.acquire_lease("s", owner=owner)
        with pytest.raises(InvalidIdError):
            await leases.acquire_lease("a/b", owner="a")
        assert await leases.acquire_lease("s", owner="a", wait=False) is not None, "its queue is as it was"

"""Where rows come from, what is different in two of them, and long histories."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import SnapshotNotFoundError
from antiphon.store.base import SessionCatalogue, SessionStore
from antiphon.store.lineage import session_tree, snapshot_diff
from antiphon.testing.store_suite.support import StoreFixtures, able, exact, found, put, row, said, snapshot, words


class LineageContract(StoreFixtures):
    """A session as a tree."""

    async def test_a_session_is_a_tree(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for seconds, snapshot_id, parent_id in (
            (0, "root", None),
            (1, "left", "root"),
            (2, "right", "root"),
            (3, "left-2", "left"),
            (4, "orphan", "pruned"),
            (5, "left-3", "left-2"),
        ):
            await put(store, snapshot_id, row(seconds, parent_id=parent_id, snapshot=snapshot(said(snapshot_id))))
        await put(store, "other", row(1, session_id="t", parent_id="root"))
        tree = await session_tree(catalogue, "s")
        assert [(depth, there.snapshot_id) for depth, there in tree.walk()] == [
            (0, "root"),
            (1, "left"),
            (2, "left-2"),
            (3, "left-3"),
            (1, "right"),
            (0, "orphan"),
        ]
        assert [there.snapshot_id for there in tree.rows] == ["root", "left", "right", "left-2", "orphan", "left-3"]
        assert [there.snapshot_id for there in tree.path("left-3")] == ["root", "left", "left-2", "left-3"]
        assert [there.snapshot_id for there in tree.leaves()] == ["right", "orphan", "left-3"]
        assert [there.snapshot_id for there in tree.children("root")] == ["left", "right"]
        assert all(there.snapshot is None for there in tree.rows)
        with pytest.raises(SnapshotNotFoundError):
            tree.path("other")
        assert (await session_tree(catalogue, "nothing")).rows == ()

    async def test_rows_that_descend_from_each_other_are_a_tree_nevertheless(self, store: SessionStore) -> None:
        catalogue: SessionCatalogue = able(store, SessionCatalogue)
        for seconds, snapshot_id, parent_id in (
            (0, "into", "c"),
            (1, "b", "c"),
            (2, "c", "d"),
            (3, "d", "b"),
            (4, "self", "self"),
        ):
            await put(store, snapshot_id, row(seconds, parent_id=parent_id))
        tree = await session_tree(catalogue, "s")
        assert [(depth, there.snapshot_id) for depth, there in tree.walk()] == [
            (0, "b"),
            (1, "d"),
            (2, "c"),
            (3, "into"),
            (0, "self"),
        ]

    async def test_any_two_rows_can_be_compared(self, store: SessionStore) -> None:
        await put(store, "one", row(0, snapshot=snapshot(said("a", "b", "c"), state={"n": 1, "keep": [1]})))
        await put(
            store,
            "two",
            row(1, session_id="t", snapshot=snapshot(said("a", "B", "c", "d"), state={"n": 1.0, "keep": [1]})),
        )
        await put(store, "none", row(2))
        diff = await snapshot_diff(store, "one", "two")
        assert [change.after["content"] for change in diff.changed] == [[{"text": "B"}]]
        assert [(placed.index, placed.message) for placed in diff.added] == [(3, said("", "", "", "d")[3])]
        assert not diff.removed
        assert [(op["op"], op["path"], repr(op["value"])) for op in diff.state] == [("replace", "/n", "1.0")]
        before, after = (await found(store, "one")).loaded(), (await found(store, "two")).loaded()
        assert before is not None
        assert after is not None
        assert diff.apply(before).data == after.data
        assert not await snapshot_diff(store, "two", "two")
        assert len((await snapshot_diff(store, "one", "none")).removed) == 3
        with pytest.raises(SnapshotNotFoundError):
            await snapshot_diff(store, "one", "nothing")


class LongContract(StoreFixtures):
    """A conversation of ten thousand messages."""

    async def test_whatever_is_done_to_a_long_history_each_row_reads_back(self, store: SessionStore) -> None:
        history: list[Any] = said(*(f"m{number}" for number in range(10_000)))
        kept = {"whole": list(history)}
        await put(store, "whole", row(0, snapshot=snapshot(history)))
        history[3] = said("", "", "", "edited")[3]
        kept["edit"] = list(history)
        await put(store, "edit", row(1, parent_id="whole", snapshot=snapshot(history)))
        del history[5_000]
        kept["drop"] = list(history)
        await put(store, "drop", row(2, parent_id="edit", snapshot=snapshot(history)))
        history[:] = [*said("a summary"), *history[-6:]]
        kept["summary"] = list(history)
        await put(store, "summary", row(3, parent_id="drop", snapshot=snapshot(history)))
        history[:] = said("all", "new")
        kept["replaced"] = list(history)
        await put(store, "replaced", row(4, parent_id="summary", snapshot=snapshot(history)))
        kept["back"] = [*kept["whole"], *said("more")]
        await put(store, "back", row(5, parent_id="replaced", snapshot=snapshot(kept["back"])))
        for snapshot_id, messages in kept.items():
            there = await found(store, snapshot_id)
            assert words(there) == [message["content"][0]["text"] for message in messages]
            loaded = there.loaded()
            assert loaded is not None
            assert loaded.data["messages"] == messages
            assert exact(there) == exact(await found(store, snapshot_id))

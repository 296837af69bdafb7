"""Our session stores under the load of the store suite."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from antiphon.errors import SessionConflictError
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import SessionSnapshot
from antiphon.store.line_store import LineStore
from benchmarks.child import Numbers, Work
from benchmarks.turns import Place, Shelf, long_cases

START = datetime(2026, 1, 1, tzinfo=UTC)


def turn_id(turn: int) -> str:
    """A turn's row."""
    return f"turn-{turn:08}"


class StoreShelf(Shelf):
    """A store that is made by `_made`; handed the whole history each time."""

    async def open(self) -> None:
        self._store = self._made()
        self._messages: list[Any] = []

    async def close(self) -> None:
        for name in ("_store", "_open"):
            if hasattr(self, name):
                getattr(self, name).close()

    def _made(self) -> LineStore:
        raise NotImplementedError

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        self._messages += messages

    async def save(self, turn: int) -> None:
        parent = turn_id(turn - 1) if turn > 1 else None
        await self._put(turn_id(turn), turn, parent, self._messages, parent)

    async def branch(self, turn: int, number: int, messages: list[dict[str, Any]]) -> None:
        history = [*self._messages[: 2 * turn], *messages]
        await self._put(f"branch-{number}", 10**6 + number, turn_id(turn), history)

    async def _put(self, name: str, second: int, parent: str | None, messages: list[Any], *tip: str | None) -> None:
        row = self.row(name, second, parent, messages)
        if tip:
            await self._store.save_snapshot(name, lambda _: row, expected_tip=tip[0])
        else:
            await self._store.save_snapshot(name, lambda _: row)

    def row(self, name: str, second: int, parent: str | None, messages: list[Any]) -> SessionSnapshot:
        """A row of the conversation."""
        return SessionSnapshot(
            session_id="talk",
            created_at=START + timedelta(seconds=second),
            parent_id=parent,
            status="completed",
            snapshot=Snapshot(
                "agent", "1.0", {"messages": messages, "state": {"turn": second}}, {}, "2026-01-01T00:00:00Z"
            ),
        )

    async def begin(self, session_id: str, second: int) -> None:
        """Make a session with one row."""
        row = replace(self.row(session_id, second, None, [_said("Hello")]), session_id=session_id)
        await self._store.save_snapshot(f"first-of-{session_id}", lambda _: row)

    def another(self) -> LineStore:
        """An object over the same place, which knows nothing yet."""
        return self._made() if self.elsewhere else self._store

    def let_go(self, store: LineStore) -> None:
        """End the use of it."""
        if store is not self._store:
            store.close()

    async def warm(self) -> None:
        if not hasattr(self, "_store"):
            self._open = self._made()
            await self._open.get_latest_snapshot("nobody")

    async def load(self, turn: int | None) -> int:
        is_open = hasattr(self, "_open")
        store = self._open if is_open else self.another() if hasattr(self, "_store") else self._made()
        found = await (store.get_latest_snapshot("talk") if turn is None else store.get_snapshot(turn_id(turn)))
        assert found is not None
        loaded = found.loaded()
        assert loaded is not None
        messages: list[Any] = loaded.data["messages"]
        if self.elsewhere and not is_open:
            store.close()
        return len(messages)


def own_cases(make: Callable[[str], StoreShelf]) -> dict[str, Work]:
    """Everything that a store of ours is asked for."""
    return {**long_cases(make), "list": partial(_list, make), "race": partial(_race, make)}


async def _list(make: Callable[[str], StoreShelf], *, quick: bool) -> Numbers:
    """A page of sessions, the newest first, of very many: each once by a fresh object and by one that was asked before."""
    sessions, first, again = 100 if quick else 10_000, list[float](), list[float]()
    async with Place(make) as shelf:
        assert isinstance(shelf, StoreShelf)
        for begin in range(0, sessions, 100):
            async with asyncio.TaskGroup() as group:
                for number in range(begin, begin + 100):
                    group.create_task(shelf.begin(f"talk-{number:05}", number))
        for _ in range(2 if quick else 7):
            store = shelf.another()
            for times in (first, again, again, again):
                start = time.perf_counter()
                page = await store.list_sessions(limit=20)
                times.append((time.perf_counter() - start) * 1e3)
                assert page.sessions[0].session_id == f"talk-{sessions - 1:05}"
            shelf.let_go(store)
    return {"store_list_ms": statistics.median(again), "store_list_first_ms": statistics.median(first)}


async def _race(make: Callable[[str], StoreShelf], *, quick: bool) -> Numbers:
    """Two writers over one place, each on a thread of its own, say for each turn that they build on the same tip."""
    pairs = 20 if quick else 10_000
    async with Place(make) as shelf:
        assert isinstance(shelf, StoreShelf)
        stores = shelf.another(), shelf.another()
        begin = time.perf_counter()
        tip: str | None = None
        wrong = 0
        for pair in range(pairs):
            name = f"{pair:06}"
            rows = [shelf.row(f"{name}-{side}", pair, tip, [_said(f"{name}-{side}")]) for side in "ab"]
            outcomes = await asyncio.gather(
                *(
                    store.save_snapshot(f"{name}-{side}", lambda _, row=row: row, expected_tip=tip)
                    for store, side, row in zip(stores, "ab", rows, strict=True)
                ),
                return_exceptions=True,
            )
            won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            lost = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError)]
            latest = await stores[pair % 2].get_latest_snapshot_metadata("talk")
            if (
                len(won) != 1
                or len(lost) != 1
                or latest is None
                or won[0] is None
                or latest.snapshot_id != won[0].snapshot_id
            ):
                wrong += 1
            tip = None if latest is None else latest.snapshot_id
        taken = time.perf_counter() - begin
        for store in stores:
            shelf.let_go(store)
    return {"store_race_wrong": wrong, "store_race_ms": taken / pairs * 1e3}


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": text}]}

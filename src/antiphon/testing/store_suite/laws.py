"""The laws of a session store: what holds whatever happens, in whatever order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from antiphon.store.base import Change, SessionSnapshot, SessionStore
from antiphon.testing.store_suite.support import StoreFixtures, becomes, exact, found, put, row, said, snapshot

_WRITES = 6
_IDS = ["a", "b", "c"]
_SESSIONS = ["s", "t"]


class _PowerCutError(Exception):
    """The process ends here, as far as the one who waits can tell."""


@dataclass
class _Process:
    """Whoever writes until the power is cut at its n-th write: before it reaches the store, or after, unheard."""

    store: SessionStore
    cut_at: int
    after: bool
    writes: int = 0
    acknowledged: dict[str, bytes] = field(default_factory=dict[str, bytes])
    attempted: dict[str, bytes] = field(default_factory=dict[str, bytes])

    async def save(self, snapshot_id: str, wanted: SessionSnapshot) -> None:
        self.writes += 1
        self.attempted[snapshot_id] = exact(wanted)
        if self.writes == self.cut_at and not self.after:
            raise _PowerCutError
        saved = await put(self.store, snapshot_id, wanted)
        if self.writes == self.cut_at:
            self.attempted[snapshot_id] = exact(saved)
            raise _PowerCutError
        self.acknowledged[snapshot_id] = exact(saved)

    async def live(self, session_id: str) -> None:
        """Turns of a session, and a row that is rewritten while it is in flight."""
        texts: list[str] = []
        parent: str | None = None
        for turn in range(_WRITES // 2):
            texts += [f"question {turn}", f"answer {turn}"]
            key = f"{session_id}-{turn}"
            pending = row(
                turn,
                session_id,
                snapshot_id=key,
                parent_id=parent,
                status="pending",
                snapshot=snapshot(said(*texts[:-1])),
            )
            await self.save(key, pending)
            settled = row(turn, session_id, snapshot_id=key, parent_id=parent, snapshot=snapshot(said(*texts)))
            await self.save(key, settled)
            parent = key


class LawContract(StoreFixtures):
    """What is acknowledged is there; a turn costs its own messages; nothing crosses a tenant."""

    @pytest.fixture
    def bytes_written(self) -> Callable[[], int] | None:
        """Bytes that the store has handed to its place so far. None: what a turn costs is not looked at."""
        return None

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("cut_at", range(1, _WRITES + 1))
    async def test_whichever_write_is_the_last_one_what_was_acknowledged_is_there(
        self,
        store: SessionStore,
        other: SessionStore,
        cut_at: int,
        after: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        process = _Process(store, cut_at, after)
        with pytest.raises(_PowerCutError):
            await process.live("s")
        for snapshot_id, told in process.acknowledged.items():
            there = exact(await found(other, snapshot_id))
            assert there == told or (after and there == process.attempted[snapshot_id])
        last = f"s-{(cut_at - 1) // 2}"
        if await other.get_snapshot(last) is None:
            assert not after
            assert last not in process.acknowledged

    async def test_a_process_that_is_cut_off_in_the_middle_of_a_write_leaves_all_of_it_or_nothing(
        self, store: SessionStore, other: SessionStore
    ) -> None:
        """The task that saves is dropped after so many steps of the loop, as by a cancelled request."""
        for steps in range(0, 40, 3):
            key = f"row-{steps}"
            wanted = row(steps, "s", snapshot_id=key, snapshot=snapshot(said("one", f"two {steps}")))
            async with asyncio.TaskGroup() as group:
                saving = group.create_task(put(store, key, wanted))
                for _ in range(steps):
                    await asyncio.sleep(0)
                saving.cancel()
            there = await other.get_snapshot(key)
            if there is not None:
                assert there.loaded() is not None
                assert exact(there) == exact(await found(store, key))
            again = await put(store, key, wanted)
            assert exact(await found(other, key)) == exact(again)

    async def test_a_turn_costs_its_own_messages_however_long_the_session_is(
        self, store: SessionStore, bytes_written: Callable[[], int] | None
    ) -> None:
        if bytes_written is None:
            pytest.skip("no fixture `bytes_written`: what a turn costs is not looked at")
        texts: list[str] = []
        costs: list[int] = []
        for turn in range(80):
            texts += [f"question {turn:04}" + "x" * 400, f"answer {turn:04}" + "y" * 400]
            parent = f"row-{turn - 1}" if turn else None
            before = bytes_written()
            wanted = row(turn, "s", snapshot_id=f"row-{turn}", parent_id=parent, snapshot=snapshot(said(*texts)))
            await put(store, f"row-{turn}", wanted)
            costs.append(bytes_written() - before)
        early, late = sum(costs[10:20]), sum(costs[70:80])
        assert late <= 1.3 * early

    @pytest.mark.parametrize("seed", range(4))
    async def test_nothing_crosses_a_tenant_whatever_is_done(
        self, store: SessionStore, tenant: Callable[[str], SessionStore], seed: int
    ) -> None:
        """Two tenants do the same kinds of things under the same ids; each sees its own account of them."""
        chance = random.Random(seed)  # noqa: S311 - a schedule that can be repeated
        views = {name: tenant(name) for name in ("org-1", "org-2/a")}
        accounts: dict[str, dict[str, bytes]] = {name: {} for name in views}
        for step in range(60):
            name = chance.choice(list(views))
            view, account = views[name], accounts[name]
            key, session = chance.choice(_IDS), chance.choice(_SESSIONS)
            known = await view.get_snapshot(key)
            session = session if known is None else known.session_id
            wanted = row(step, session, snapshot_id=key, snapshot=snapshot(said(name, str(step))))
            change: Change = becomes(wanted if known is None or known.status != "completed" else None)
            saved = await view.save_snapshot(key, change)
            if saved is not None:
                account[key] = exact(saved)
            for other_name, other_view in views.items():
                for other_key in _IDS:
                    there = await other_view.get_snapshot(other_key)
                    told = accounts[other_name].get(other_key)
                    assert (there is None) == (told is None)
                    assert there is None or exact(there) == told
                for other_session in _SESSIONS:
                    latest = await other_view.get_latest_snapshot(other_session)
                    assert latest is None or exact(latest) in accounts[other_name].values()

"""Strands Agents: a snapshot that is never overwritten and the latest one, each turn, in local files (`strands-agents`)."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

from benchmarks.child import main
from benchmarks.subjects.strands_save import agent
from benchmarks.turns import Shelf, store_cases


class StrandsShelf(Shelf):
    """`SnapshotSessionManager` over `LocalFileStorage`, with every checkpoint kept."""

    async def open(self) -> None:
        self._manager = self._made()
        self._agent = agent(self._manager)

    def _made(self) -> SnapshotSessionManager:
        return SnapshotSessionManager("talk", storage=LocalFileStorage(self.folder))

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        self._agent.messages.extend(messages)

    async def save(self, turn: int) -> None:
        await self._manager.save_snapshot(self._agent, is_latest=False)
        await self._manager.save_snapshot(self._agent, is_latest=True)

    async def load(self, turn: int | None) -> int:
        manager = self._made()
        if turn is None:
            return len(agent(manager).messages)
        empty = agent(None)
        ids = await manager.list_snapshot_ids(empty, limit=turn)
        await manager.restore_snapshot(empty, snapshot_id=ids[turn - 1])
        return len(empty.messages)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    main(store_cases(StrandsShelf))

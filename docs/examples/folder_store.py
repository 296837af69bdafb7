"""A session store in sixty lines: a folder with a JSON file for each row."""

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from antiphon.errors import IdempotencyKeyError, SessionConflictError
from antiphon.ids import check_id, new_uuid7
from antiphon.store import ANY_TIP, Change, SessionSnapshot, Tip, decode_row, encode_row, settled_row, with_expiry

T = TypeVar("T")


class FolderStore:
    """Keeps every row whole, so a turn costs the whole conversation; any number of processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def get_snapshot(self, snapshot_id: str, /) -> SessionSnapshot | None:
        check_id("snapshot_id", snapshot_id)
        return _shown(await self._locked(lambda: self._read(snapshot_id)))

    async def get_latest_snapshot(self, session_id: str, /, *, agent_id: str | None = None) -> SessionSnapshot | None:
        check_id("session_id", session_id)
        return _shown(await self._locked(lambda: self._latest(session_id, agent_id)))

    async def save_snapshot(
        self, snapshot_id: str, fn: Change, /, *, expected_tip: str | Tip | None = ANY_TIP
    ) -> SessionSnapshot | None:
        name = check_id("snapshot_id", snapshot_id) if snapshot_id else new_uuid7()
        return await self._locked(lambda: self._save(name, fn, expected_tip))

    def _save(self, snapshot_id: str, fn: Change, expected_tip: str | Tip | None) -> SessionSnapshot | None:
        before = self._read(snapshot_id)
        wanted = fn(self._read(snapshot_id))  # a copy: what fn does to it changes nothing
        if wanted is None:
            return None
        row = settled_row(snapshot_id, before, wanted)
        for other in self._rows():
            if row.idempotency_key in {other.idempotency_key} - {None} and other.snapshot_id != snapshot_id:
                raise IdempotencyKeyError(str(row.idempotency_key), other.snapshot_id)
        if not isinstance(expected_tip, Tip):
            latest = self._latest(row.session_id, row.agent_id)
            tip = None if latest is None else latest.snapshot_id
            if tip != expected_tip:
                raise SessionConflictError(row.session_id, expected_tip, tip)
        new = self._folder / "new"
        with new.open("wb") as file:
            file.write(encode_row(row))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path(snapshot_id))
        return self._read(snapshot_id)

    def _path(self, snapshot_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(snapshot_id.encode()).hexdigest()}.json"

    def _read(self, snapshot_id: str) -> SessionSnapshot | None:
        path = self._path(snapshot_id)
        return decode_row(path.read_bytes()) if path.exists() else None

    def _rows(self) -> Iterator[SessionSnapshot]:
        return (decode_row(path.read_bytes()) for path in self._folder.glob("*.json"))

    def _latest(self, session_id: str, agent_id: str | None) -> SessionSnapshot | None:
        mine = (row for row in self._rows() if row.session_id == session_id and agent_id in (None, row.agent_id))
        return max(mine, key=lambda row: (row.created_at, row.snapshot_id), default=None)

    async def _locked(self, work: Callable[[], T]) -> T:
        def run() -> T:
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the descriptor
                return work()

        return await asyncio.to_thread(run)


def _shown(row: SessionSnapshot | None) -> SessionSnapshot | None:
    return None if row is None else with_expiry(row, datetime.now(UTC))

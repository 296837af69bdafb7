"""Where sessions may lie, each behind faults: a storage or a session store in memory, or a session store on disk."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon.errors import SessionConflictError, SessionStoreError, StorageError
from antiphon.session import SessionTree, SnapshotSessionManager, read_tree
from antiphon.storage import InMemoryStorage
from antiphon.store import ANY_TIP, InMemorySessionStore, LineStore, SessionSnapshot
from antiphon.store.file import FileSessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing import FaultStorage, FaultStore


class StoragePlace:
    """Blobs."""

    name = "storage"
    error = StorageError

    def __init__(self, inner: InMemoryStorage | None = None, **faults: Any) -> None:
        self.inner = InMemoryStorage() if inner is None else inner
        self.faults = FaultStorage(self.inner, **faults)

    def manager(self, session_id: str = "talk", **more: Any) -> SnapshotSessionManager:
        """A manager of this process."""
        return SnapshotSessionManager(session_id, storage=self.faults, **more)

    def next(self, session_id: str = "talk", **more: Any) -> SnapshotSessionManager:
        """A manager of the next process, which finds what is at rest; nothing fails there."""
        return SnapshotSessionManager(session_id, storage=self.inner, **more)

    def again(self, **faults: Any) -> "StoragePlace":
        """The same place for another process."""
        return StoragePlace(self.inner, **faults)

    def fresh(self, **faults: Any) -> "StoragePlace":
        """An empty place of the same kind."""
        return type(self)(**faults)

    def close(self) -> None:
        """The end of it, and of those that it gave."""

    def latest(self, agent_id: str = "default") -> dict[str, Any] | None:
        """The data that the next process goes on from."""
        data = self.inner.sync.read(f"session/talk/scopes/agent/{agent_id}/snapshots/snapshot_latest.json")
        return None if data is None else json.loads(data)["data"]

    def texts(self, agent_id: str = "default") -> list[str] | None:
        """The words that the next process goes on from."""
        data = self.latest(agent_id)
        return None if data is None else [message["content"][0]["text"] for message in data["messages"]]

    async def tree(self, agent_id: str = "default", session_id: str = "talk") -> SessionTree:
        return await read_tree(self.inner, session_id, agent_id)

    def everything(self) -> bytes:
        """What is at rest."""
        return b"".join(self.inner.sync.read(key) or b"" for key in self.inner.sync.list())


class StorePlace(StoragePlace):
    """Rows."""

    name = "store"
    error = SessionStoreError

    def __init__(self, inner: LineStore | None = None, **faults: Any) -> None:
        self.inner = InMemorySessionStore() if inner is None else inner
        self.faults = FaultStore(self.inner, **faults)

    def manager(self, session_id: str = "talk", **more: Any) -> SnapshotSessionManager:
        return SnapshotSessionManager(session_id, store=self.faults, **more)

    def next(self, session_id: str = "talk", **more: Any) -> SnapshotSessionManager:
        return SnapshotSessionManager(session_id, store=self.inner, **more)

    def again(self, **faults: Any) -> "StorePlace":
        return StorePlace(self.inner, **faults)

    def latest(self, agent_id: str = "default") -> dict[str, Any] | None:
        row = self.inner.sync.get_latest_snapshot("talk", agent_id=agent_id)
        return None if row is None else row.loaded().data

    def everything(self) -> bytes:
        # Not an export: what no row holds any more must be gone, too.
        sessions = [
            session for tenant in self.inner._core.backend._tenants.values() for session in tenant._sessions.values()
        ]
        return repr(sessions).encode()


class DiskPlace(StorePlace):
    """Rows in a folder."""

    def __init__(self, folder: Path, inner: LineStore | None = None, **faults: Any) -> None:
        super().__init__(self.open(folder) if inner is None else inner, **faults)
        self.folder, self._given = folder, list[DiskPlace]()

    @staticmethod
    def open(folder: Path) -> LineStore:
        """The store over a folder."""
        raise NotImplementedError

    def again(self, **faults: Any) -> "DiskPlace":
        return type(self)(self.folder, self.inner, **faults)

    def fresh(self, **faults: Any) -> "DiskPlace":
        folder = self.folder / f"fresh-{len(self._given)}"
        folder.mkdir()
        self._given.append(type(self)(folder, **faults))
        return self._given[-1]

    def close(self) -> None:
        for place in (self, *self._given):
            place.inner.close()

    def everything(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file())


class SQLitePlace(DiskPlace):
    """Rows in a database."""

    name = "sqlite"

    @staticmethod
    def open(folder: Path) -> LineStore:
        return SQLiteSessionStore(folder / "sessions.db", synchronous="OFF")


class FilePlace(DiskPlace):
    """Rows in files."""

    name = "files"

    @staticmethod
    def open(folder: Path) -> LineStore:
        return FileSessionStore(folder / "sessions")


PLACES = [StoragePlace, StorePlace]
DISK_PLACES = [SQLitePlace, FilePlace]


class PlainStore:
    """A store of a user's own: the three operations that every store has, and no more. It keeps plain lists."""

    def __init__(self):
        self.rows: dict[str, SessionSnapshot] = {}

    async def get_snapshot(self, snapshot_id, /):
        return copy.deepcopy(self.rows.get(snapshot_id))

    async def get_latest_snapshot(self, session_id, /, *, agent_id=None):
        rows = [row for row in self.rows.values() if row.session_id == session_id and agent_id in {None, row.agent_id}]
        return copy.deepcopy(max(rows, key=lambda row: (row.created_at, row.snapshot_id), default=None))

    async def save_snapshot(self, snapshot_id, fn, /, *, expected_tip=ANY_TIP):
        row = fn(await self.get_snapshot(snapshot_id))
        if row is None:
            return None
        tip = await self.get_latest_snapshot(row.session_id, agent_id=row.agent_id)
        found = tip and tip.snapshot_id
        if expected_tip is not ANY_TIP and expected_tip != found:
            raise SessionConflictError(row.session_id, expected_tip, found)
        snapshot = replace(row.snapshot, data={**row.snapshot.data, "messages": list(row.snapshot.data["messages"])})
        self.rows[snapshot_id] = copy.deepcopy(replace(row, snapshot_id=snapshot_id, snapshot=snapshot))
        return await self.get_snapshot(snapshot_id)

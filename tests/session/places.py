"""Where sessions may lie: a storage or a session store, each in memory and behind faults."""

import json
from typing import Any

from antiphon.errors import SessionStoreError, StorageError
from antiphon.session import SessionTree, SnapshotSessionManager, read_tree
from antiphon.storage import InMemoryStorage
from antiphon.store import InMemorySessionStore
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

    def __init__(self, inner: InMemorySessionStore | None = None, **faults: Any) -> None:
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
        return repr(self.inner._core.backend._tenants).encode()


PLACES = [StoragePlace, StorePlace]

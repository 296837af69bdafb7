"""Bytes by key in memory."""

from __future__ import annotations

import builtins
import threading

from antiphon.storage.base import SyncStorage, frozen_bytes, normalize_key, normalize_prefix
from antiphon.storage.namespace import NamespacedStorage


class InMemoryStorage:
    """A storage in this process's memory. It serves any number of threads and event loops, and forgets all at the end.

    Attributes:
        sync: The four verbs for synchronous code.
    """

    __slots__ = ("_memory", "sync")

    def __init__(self) -> None:
        self._memory = _Memory()
        self.sync: SyncStorage = self._memory

    async def write(self, key: str, data: bytes) -> None:
        """Put a copy of `data` at `key`."""
        self._memory.write(key, data)

    async def read(self, key: str) -> bytes | None:
        """The value at `key`; None when there is none."""
        return self._memory.read(key)

    async def delete(self, key: str) -> None:
        """Remove `key`, if it is there."""
        self._memory.delete(key)

    async def list(self, prefix: str = "") -> builtins.list[str]:
        """All keys that begin with `prefix`, ascending."""
        return self._memory.list(prefix)

    def clear(self) -> None:
        """Forget everything."""
        self._memory.clear()

    def namespace(self, prefix: str) -> NamespacedStorage:
        """A view of the keys under `prefix`, named without it."""
        return NamespacedStorage(self, prefix)


class _Memory:
    """The bytes, and their lock."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def write(self, key: str, data: bytes, /) -> None:
        key, data = normalize_key(key), frozen_bytes(data)
        with self._lock:
            self._values[key] = data

    def read(self, key: str, /) -> bytes | None:
        return self._values.get(normalize_key(key))

    def delete(self, key: str, /) -> None:
        with self._lock:
            self._values.pop(normalize_key(key), None)

    def list(self, prefix: str = "", /) -> builtins.list[str]:
        prefix = normalize_prefix(prefix)
        with self._lock:
            return sorted(key for key in self._values if key.startswith(prefix))

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

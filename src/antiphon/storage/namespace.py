"""A view of a part of a storage."""

from __future__ import annotations

import builtins
from typing import Final

from antiphon.storage.base import Storage, SyncStorage, normalize_key, normalize_prefix, sync_storage


class NamespacedStorage:
    """The keys of a storage under one prefix, named without it.

    Nothing outside of the prefix can be reached through it. A namespace in a namespace is one with a longer prefix.

    Args:
        storage: Any storage.
        prefix: A key (`normalize_key`); slashes at its ends do not matter.

    Attributes:
        namespaced: Always True: whoever lays out keys uses such a view as it is, without a level of its own.
    """

    __slots__ = ("_prefix", "_storage")

    namespaced: Final = True

    def __init__(self, storage: Storage, prefix: str) -> None:
        self._prefix = normalize_key(prefix)
        if isinstance(storage, NamespacedStorage):
            self._prefix = f"{storage.prefix}/{self._prefix}"
            storage = storage.storage
        self._storage = storage

    @property
    def storage(self) -> Storage:
        """The storage that holds the bytes."""
        return self._storage

    @property
    def prefix(self) -> str:
        """The whole prefix, without a slash at its end."""
        return self._prefix

    @property
    def sync(self) -> SyncStorage:
        """The four verbs for synchronous code."""
        return _Namespaced(sync_storage(self._storage), self._prefix)

    async def write(self, key: str, data: bytes) -> None:
        """Put `data` at `key`."""
        await self._storage.write(f"{self._prefix}/{normalize_key(key)}", data)

    async def read(self, key: str) -> bytes | None:
        """The value at `key`; None when there is none."""
        return await self._storage.read(f"{self._prefix}/{normalize_key(key)}")

    async def delete(self, key: str) -> None:
        """Remove `key`, if it is there."""
        await self._storage.delete(f"{self._prefix}/{normalize_key(key)}")

    async def list(self, prefix: str = "") -> builtins.list[str]:
        """All keys of this namespace that begin with `prefix`, ascending."""
        found = await self._storage.list(f"{self._prefix}/{normalize_prefix(prefix)}")
        return _without(self._prefix, found)

    def namespace(self, prefix: str) -> NamespacedStorage:
        """A view of the keys under `prefix` in this namespace."""
        return NamespacedStorage(self, prefix)


class _Namespaced:
    """The synchronous face of a namespace."""

    __slots__ = ("_prefix", "_storage")

    def __init__(self, storage: SyncStorage, prefix: str) -> None:
        self._storage, self._prefix = storage, prefix

    def write(self, key: str, data: bytes, /) -> None:
        self._storage.write(f"{self._prefix}/{normalize_key(key)}", data)

    def read(self, key: str, /) -> bytes | None:
        return self._storage.read(f"{self._prefix}/{normalize_key(key)}")

    def delete(self, key: str, /) -> None:
        self._storage.delete(f"{self._prefix}/{normalize_key(key)}")

    def list(self, prefix: str = "", /) -> builtins.list[str]:
        return _without(self._prefix, self._storage.list(f"{self._prefix}/{normalize_prefix(prefix)}"))


def _without(prefix: str, keys: builtins.list[str]) -> builtins.list[str]:
    head = f"{prefix}/"
    return [key[len(head) :] for key in keys if key.startswith(head)]


def resolve_namespace(storage: Storage, prefix: str) -> Storage:
    """`storage` itself when it is a namespaced view already, else a view of it under `prefix`."""
    if getattr(storage, "namespaced", False) is True:
        return storage
    return NamespacedStorage(storage, prefix)

"""Bytes by key: the contract `Storage`, and what fulfils it."""

from antiphon.storage.base import Storage, SyncStorage, blocking, sync_storage
from antiphon.storage.file import LocalFileStorage
from antiphon.storage.memory import InMemoryStorage
from antiphon.storage.namespace import NamespacedStorage, resolve_namespace

__all__ = [
    "InMemoryStorage",
    "LocalFileStorage",
    "NamespacedStorage",
    "Storage",
    "SyncStorage",
    "blocking",
    "resolve_namespace",
    "sync_storage",
]

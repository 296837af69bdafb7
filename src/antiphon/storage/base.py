"""The contract of storages, the rules for keys, and the way to use any storage from synchronous code."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Coroutine
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from antiphon.errors import InvalidTypeError, StorageKeyError
from antiphon.iothread import IOThread

P = ParamSpec("P")
T = TypeVar("T")

TEMPORARY = ".__antiphon_tmp_"
"""How the names of unfinished files begin; no key has a segment that begins so."""

_RESERVED = (TEMPORARY, ".__strands_tmp_")  # the second: leftovers in folders that Strands wrote
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SLASHES = re.compile("/+")


@runtime_checkable
class Storage(Protocol):
    """Bytes by key.

    Keys are strings of segments between slashes. Every method takes a key or prefix in any spelling that
    `normalize_key` or `normalize_prefix` accepts. A key should not be the folder of another one (`a` beside `a/b`): a
    file system cannot hold both, and refuses the second with `StorageError`.

    Storages fail with `StorageError`, the cause chained, and with `StorageKeyError` for keys. `antiphon.testing` has
    the suite that defines a storage: `StorageContract`.
    """

    async def write(self, key: str, data: bytes, /) -> None:
        """Put `data` at `key`, in place of what was there.

        When it returns, the data is as durable as this storage makes it; a reader sees the old value or the new one and
        never a part. The caller may reuse its buffer afterwards.
        """
        ...

    async def read(self, key: str, /) -> bytes | None:
        """The value at `key`; None when there is none."""
        ...

    async def delete(self, key: str, /) -> None:
        """Remove `key`; nothing happens when it is not there."""
        ...

    async def list(self, prefix: str, /) -> builtins.list[str]:
        """All keys that begin with the string `prefix` (`""`: all there are), whole, ascending by code point."""
        ...


class SyncStorage(Protocol):
    """The four verbs for synchronous code: each blocks until it is done, also inside a running event loop."""

    def write(self, key: str, data: bytes, /) -> None:
        """See `Storage.write`."""
        ...

    def read(self, key: str, /) -> bytes | None:
        """See `Storage.read`."""
        ...

    def delete(self, key: str, /) -> None:
        """See `Storage.delete`."""
        ...

    def list(self, prefix: str = "", /) -> builtins.list[str]:
        """See `Storage.list`."""
        ...


def normalize_key(key: str) -> str:
    """`key` in the one spelling under which it is stored: no slash at either end, single slashes between.

    Raises:
        StorageKeyError: If it is empty, or holds a backslash, a control character, a lone surrogate, a line or
            paragraph separator, a `.` or `..` segment, or a segment that is reserved for unfinished files.
        InvalidTypeError: If it is not a string.

    >>> normalize_key("/a//b/")
    'a/b'
    """
    _check_text("key", key)
    normal = _SLASHES.sub("/", key).strip("/")
    if not normal:
        raise StorageKeyError(f"storage key {key!r} is empty")
    for segment in normal.split("/"):
        if segment in {".", ".."}:
            raise StorageKeyError(f"invalid storage key {key!r}: {segment!r} path segments are not allowed")
        if segment.startswith(_RESERVED):
            raise StorageKeyError(f"invalid storage key {key!r}: {segment!r} is reserved for unfinished files")
    return normal


def normalize_prefix(prefix: str) -> str:
    """`prefix` in the spelling of stored keys; a slash at its end stays, because it says where the segment ends.

    Raises:
        StorageKeyError: If no key could begin so: as for keys, save that `""` is fine (all keys), and so is a last
            segment that is only the beginning of one (`a/.` finds `a/.hidden`).
        InvalidTypeError: If it is not a string.
    """
    _check_text("prefix", prefix)
    normal = _SLASHES.sub("/", prefix).lstrip("/")
    *folders, last = normal.split("/")
    for segment in folders:
        if segment in {".", ".."}:
            raise StorageKeyError(f"invalid storage prefix {prefix!r}: {segment!r} path segments are not allowed")
    if last == "..":
        raise StorageKeyError(f"invalid storage prefix {prefix!r}: '..' path segments are not allowed")
    return normal


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidTypeError(f"{what}={value!r} is not a string")
    if "\\" in value:
        raise StorageKeyError(f"invalid storage {what} {value!r}: backslashes are not allowed")
    found = _FORBIDDEN.search(value)
    if found is not None:
        raise StorageKeyError(
            f"invalid storage {what} {value!r}: {found.group()!r} at position {found.start()} is not allowed"
        )


def frozen_bytes(data: object) -> bytes:
    """`data` as `bytes` that nobody can change.

    Raises:
        InvalidTypeError: If it is not bytes-like.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(cast("bytearray", data))
    raise InvalidTypeError(f"data is {type(data).__name__}, not bytes")


_helper = IOThread("antiphon-blocking")


def blocking(
    storage: Storage,
    operation: Callable[Concatenate[Storage, P], Coroutine[object, object, T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run `operation(storage, *args, **kwargs)`, a coroutine function, to its end and return what it returns.

    It runs on the event loop of a helper thread, one for the process, so it works for any storage, from inside a
    running loop as from outside, and never waits for the loop that waits for it.

    >>> from antiphon.storage.memory import InMemoryStorage
    >>> async def copied(storage, source, target):
    ...     await storage.write(target, await storage.read(source) or b"")
    ...     return await storage.list("")
    >>> storage = InMemoryStorage()
    >>> storage.sync.write("a", b"1")
    >>> blocking(storage, copied, "a", "b")
    ['a', 'b']
    """
    return _helper.call_async(operation, storage, *args, **kwargs)


async def on_helper_loop(
    storage: Storage,
    operation: Callable[Concatenate[Storage, P], Coroutine[object, object, T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """`blocking` for coroutines: a storage whose driver belongs to one event loop can be used from every loop so."""
    return await _helper.run_async(operation, storage, *args, **kwargs)


def sync_storage(storage: Storage) -> SyncStorage:
    """The synchronous face of any storage: its own (`storage.sync`), or one over `blocking`."""
    face = getattr(storage, "sync", None)
    return _Blocking(storage) if face is None else cast("SyncStorage", face)


class _Blocking:
    """The four verbs of somebody else's storage, on the helper's loop."""

    __slots__ = ("_storage",)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def write(self, key: str, data: bytes, /) -> None:
        async def write(storage: Storage) -> None:
            await storage.write(key, data)

        blocking(self._storage, write)

    def read(self, key: str, /) -> bytes | None:
        async def read(storage: Storage) -> bytes | None:
            return await storage.read(key)

        return blocking(self._storage, read)

    def delete(self, key: str, /) -> None:
        async def delete(storage: Storage) -> None:
            await storage.delete(key)

        blocking(self._storage, delete)

    def list(self, prefix: str = "", /) -> builtins.list[str]:
        async def listed(storage: Storage) -> builtins.list[str]:
            return await storage.list(prefix)

        return blocking(self._storage, listed)

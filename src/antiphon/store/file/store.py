"""Sessions in a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import SessionRowError
from antiphon.filesystem import OS, FileSystem
from antiphon.store.backend import Reading
from antiphon.store.base import EXPIRES_AFTER
from antiphon.store.core import Read, Steps, StoreCore
from antiphon.store.file.backend import FileBackend
from antiphon.store.file.view import View
from antiphon.store.line_store import LineStore
from antiphon.store.tenants import Prefix


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a file that cannot be read.

    Attributes:
        path: The file.
        start: The first byte of it.
        stop: The first byte that can be read again.
    """

    path: str
    start: int
    stop: int


class FileSessionStore(LineStore):
    """A session store in a folder: one append-only log for each session, and no other program needed.

    A turn costs its own messages and one fsync. Any number of stores, threads and processes of one machine may use the
    folder; of another machine only through a file system with locks that reach so far. Files are 0600 in folders 0700, and
    no symlink below the folder is followed. What was acknowledged survives a killed process and a power cut; what was
    not is there whole or not at all. Where bytes are damaged, what they held is named when it is asked for
    (`CorruptStoreError`), and everything else can be read.

    Args:
        directory: The folder; made if it is missing. A relative path is resolved once, here.
        max_chain_length: Keep so many rows of a chain and remove those before them with each save, except what `prune`
            never removes. None keeps all.
        prefix: The tenant, or a function that gives it for each operation.
        poll_interval: How often to look for changes of other processes, in seconds, where the system does not tell.
        clock: Decides whether a row has expired.
        expires_after: Seconds without a heartbeat after which a row in flight reads as expired.
        filesystem: The file operations; others only in tests.

    Raises:
        SessionStoreError: If the folder cannot be made.
        StoreSchemaError: If it belongs to something else, or to a newer version.
        SessionRowError: If `max_chain_length` or `poll_interval` makes no sense.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_chain_length: int | None = None,
        prefix: Prefix = None,
        poll_interval: float = 2.0,
        clock: Clock = SYSTEM_CLOCK,
        expires_after: float = EXPIRES_AFTER,
        filesystem: FileSystem = OS,
    ) -> None:
        backend = FileBackend(
            directory, max_chain_length=max_chain_length, poll_interval=poll_interval, filesystem=filesystem
        )
        super().__init__(
            StoreCore(backend, name="antiphon-file", clock=clock, expires_after=expires_after), prefix=prefix
        )

    async def find_damage(self) -> list[Damage]:
        """Read every log of the tenant, and tell what cannot be read. A damaged part takes nothing with it but itself.

        Raises:
            StoreSchemaError: If a file is not a log of this version; names it.
        """
        return await self._core.run(_find_damage(self._tenant()))


def _find_damage(tenant: str) -> Steps[list[Damage]]:
    def look(view: Reading) -> list[Damage]:
        return [Damage(path, start, stop) for path, gaps in cast("View", view).damage() for start, stop in gaps]

    found: list[Damage] = yield Read(tenant, look)
    return found


def open_url(url: str, **options: Any) -> FileSessionStore:
    """For `open_store`: `file:<folder>`, or `file:///<folder>`, percent-encoded where it must be."""
    path = url.partition(":")[2]
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host not in {"", "localhost"}:
            raise SessionRowError(f"file: names the host {host!r}: write file:<folder> or file:///<folder>")
        path = slash + rest
    if not path:
        raise SessionRowError("file: needs a folder: file:<folder>")
    return FileSessionStore(unquote(path), **options)

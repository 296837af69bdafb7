"""One agent's blobs, written in the order in which they were captured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.jsonable import decode_json, encode_json
from antiphon.session.layout import AgentKeys
from antiphon.session.redaction import Redaction, redacted
from antiphon.storage.base import Storage, blocking, on_helper_loop

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes on their way to a key.

    Attributes:
        key: Where to.
        parts: The bytes, in pieces.
        rewritten: Whether the key is written again and again, so that an older value must not follow a newer one.
    """

    key: str
    parts: Sequence[bytes]
    rewritten: bool = True


class Writer:
    """Writes what captures came to, one capture after the other, and never an older state over a newer one.

    Every write is made on the helper thread's loop: so a synchronous save inside a running event loop waits for nobody who
    waits for that loop, saves from several loops keep their order, and a write whose caller was cancelled is still made
    whole.

    Args:
        storage: The session's namespace.
        keys: The agent's keys.
    """

    def __init__(self, storage: Storage, keys: AgentKeys) -> None:
        self.storage, self.keys = storage, keys
        self._lock = asyncio.Lock()
        self._written: dict[str, int] = {}
        self._redactions: list[tuple[int, Redaction]] = []

    async def write(self, number: int, blobs: Sequence[Blob]) -> None:
        """Write the blobs of capture `number`, in their order.

        Raises:
            StorageError: What the storage raised; blobs after that one are not written.
        """
        await on_helper_loop(self.storage, self._write, number, blobs)

    def write_blocking(self, number: int, blobs: Sequence[Blob]) -> None:
        """Like `write`; returns when it is done."""
        blocking(self.storage, self._write, number, blobs)

    async def redact(self, number: int, blobs: Sequence[Blob], redactions: Sequence[Redaction]) -> None:
        """Write the blobs, then bring redactions to the journal and to every immutable snapshot.

        Captures with a smaller number that are still on their way are redacted before they are written.

        Raises:
            StorageError: What the storage raised; some copies may be redacted already. Call it again.
        """
        await on_helper_loop(self.storage, self._redact, number, blobs, redactions)

    def redact_blocking(self, number: int, blobs: Sequence[Blob], redactions: Sequence[Redaction]) -> None:
        """Like `redact`; returns when it is done."""
        blocking(self.storage, self._redact, number, blobs, redactions)

    async def _write(self, storage: Storage, number: int, blobs: Sequence[Blob]) -> None:
        async with self._lock:
            await self._put(storage, number, blobs)

    async def _put(self, storage: Storage, number: int, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            if blob.rewritten and number < self._written.get(blob.key, 0):
                continue
            data = b"".join(blob.parts)
            late = [redaction for since, redaction in self._redactions if number < since]
            if late:
                value, changed = redacted(decode_json(data), late)
                data = encode_json(value) if changed else data
            if blob.rewritten:
                # Before the write: one that fails may have reached the storage all the same.
                self._written[blob.key] = number
            await storage.write(blob.key, data)

    async def _redact(
        self, storage: Storage, number: int, blobs: Sequence[Blob], redactions: Sequence[Redaction]
    ) -> None:
        self._redactions += [(number, redaction) for redaction in redactions]
        async with self._lock:
            await self._put(storage, number, blobs)
            if not redactions:
                return
            history = [key for key in await storage.list(self.keys.history) if self.keys.snapshot_id(key)]
            for key in [self.keys.journal, *history]:
                data = await storage.read(key)
                if data is None:
                    continue
                try:
                    value = decode_json(data)
                except ValueError:
                    _log.warning("%s is damaged and could not be redacted: delete it", key)
                    continue
                value, changed = redacted(value, list(redactions))
                if changed:
                    await storage.write(key, encode_json(value))

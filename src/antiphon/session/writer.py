"""One agent's blobs, written in the order in which they were captured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.jsonable import decode_json, encode_json
from antiphon.session.layout import AgentKeys
from antiphon.session.redaction import Redaction, redacted
from antiphon.storage.base import Storage

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

    Its coroutines run on one event loop.

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
        async with self._lock:
            await self._put(number, blobs)

    async def _put(self, number: int, blobs: Sequence[Blob]) -> None:
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
            await self.storage.write(blob.key, data)

    async def redact(self, number: int, blobs: Sequence[Blob], redactions: Sequence[Redaction]) -> None:
        """Write the blobs, then bring redactions to the journal and to every immutable snapshot.

        Captures with a smaller number that are still on their way are redacted before they are written.

        Raises:
            StorageError: What the storage raised; some copies may be redacted already. Call it again.
        """
        self._redactions += [(number, redaction) for redaction in redactions]
        async with self._lock:
            await self._put(number, blobs)
            if not redactions:
                return
            history = [key for key in await self.storage.list(self.keys.history) if self.keys.snapshot_id(key)]
            for key in [self.keys.journal, *history]:
                data = await self.storage.read(key)
                if data is None:
                    continue
                try:
                    value = decode_json(data)
                except ValueError:
                    _log.warning("%s is damaged and could not be redacted: delete it", key)
                    continue
                value, changed = redacted(value, list(redactions))
                if changed:
                    await self.storage.write(key, encode_json(value))

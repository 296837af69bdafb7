"""What a store remembers of rows that it read or wrote lately, so that the next save need not ask for them.

Nothing here is ever shown to a reader, and nothing that was built on it is written unless the store finds, within the change
itself, that it is still so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.store.messages import Origin, StoredMessages
from antiphon.store.record import Row

_ROW_BYTES = 1_000  # of a row beside its parts: a guess


@dataclass(frozen=True, slots=True)
class Footing:
    """A row as it was when it was last seen, to be built on.

    Attributes:
        row: The row.
        redactions: How many its session had seen.
        length: How long the line of its last span was; 0 for a row without messages.
        parts: Its parts in JSON, large ones resolved; None where nobody will grow it.
    """

    row: Row
    redactions: int
    length: int
    parts: dict[str, bytes] | None = None

    @property
    def weight(self) -> int:
        """Bytes that it takes, about."""
        return _ROW_BYTES + sum(map(len, (self.parts or {}).values()))


class KnownRows:
    """The messages of rows, and what the next save may build on.

    A row's state never changes under one `Origin`, so messages cannot be out of date; a `Footing` can. Lists of successive
    rows share their messages.

    Args:
        most: How many messages may be held, shared ones counted each time; the newest row's always are.
        most_bytes: How many bytes of footings may be held.
    """

    def __init__(self, most: int = 200_000, most_bytes: int = 16 << 20) -> None:
        self._most, self._held = most, 0
        self._most_bytes, self._bytes = most_bytes, 0
        self._rows: OrderedDict[Origin, StoredMessages] = OrderedDict()
        self._footings: OrderedDict[tuple[str, str], Footing] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, origin: Origin) -> StoredMessages | None:
        """The messages of a row in this very state."""
        with self._lock:
            found = self._rows.get(origin)
            if found is not None:
                self._rows.move_to_end(origin)
            return found

    def put(self, origin: Origin, messages: StoredMessages) -> None:
        """Remember them."""
        with self._lock:
            before = self._rows.pop(origin, None)
            self._held += len(messages) - (0 if before is None else len(before))
            self._rows[origin] = messages
            while self._held > self._most and len(self._rows) > 1:
                self._held -= len(self._rows.popitem(last=False)[1])

    def footing(self, tenant: str, snapshot_id: str) -> Footing | None:
        """A row as it was seen last."""
        with self._lock:
            found = self._footings.get((tenant, snapshot_id))
            if found is not None:
                self._footings.move_to_end((tenant, snapshot_id))
            return found

    def see(self, tenant: str, footing: Footing) -> None:
        """Remember a row as it is now."""
        key = tenant, footing.row.snapshot_id
        with self._lock:
            before = self._footings.pop(key, None)
            if before is not None:
                self._bytes -= before.weight
                if footing.parts is None and before.row.revision == footing.row.revision:
                    footing = replace(footing, parts=before.parts)
            self._bytes += footing.weight
            self._footings[key] = footing
            while self._bytes > self._most_bytes and len(self._footings) > 1:
                self._bytes -= self._footings.popitem(last=False)[1].weight

    def forget(self, origins: Iterable[Origin] | None = None) -> None:
        """Let go of these messages; without `origins`, of everything."""
        with self._lock:
            if origins is None:
                self._footings.clear()
                self._bytes = 0
            for origin in list(self._rows) if origins is None else origins:
                gone = self._rows.pop(origin, None)
                self._held -= 0 if gone is None else len(gone)

"""`InMemorySessionStore`."""

from __future__ import annotations

from antiphon.store.line_store import LineStore
from antiphon.store.memory import InMemorySessionStore
from benchmarks.child import main
from benchmarks.own_stores import StoreShelf, own_cases


class MemoryShelf(StoreShelf):
    """It is gone with its process, and so is loaded in it."""

    def _made(self) -> LineStore:
        return InMemorySessionStore()

    @property
    def elsewhere(self) -> str:
        return ""


if __name__ == "__main__":
    main(own_cases(MemoryShelf))

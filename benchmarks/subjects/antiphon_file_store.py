"""`FileSessionStore`."""

from __future__ import annotations

from antiphon.store.file.store import FileSessionStore
from antiphon.store.line_store import LineStore
from benchmarks.child import main
from benchmarks.own_stores import StoreShelf, own_cases


class FileShelf(StoreShelf):
    """One log for the whole conversation."""

    def _made(self) -> LineStore:
        return FileSessionStore(self.folder)


if __name__ == "__main__":
    main(own_cases(FileShelf))

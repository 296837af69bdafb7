"""The plainest things that keep a conversation: what any store is compared with.

Standard library only.
"""

# ruff: noqa: ASYNC230 - nothing else runs beside what is measured here

from __future__ import annotations

import json
import os
import sqlite3
import time
from typing import Any

from benchmarks.turns import CannotError, Shelf


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class AppendedLines(Shelf):
    """A file to which each message is appended as a line; one `fsync` a turn. It knows no earlier turn but by counting."""

    async def open(self) -> None:
        self._file = open(os.path.join(self.folder, "log.jsonl"), "ab")  # noqa: SIM115 - closed by `close`
        self._new: list[dict[str, Any]] = []

    async def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        self._new = messages

    async def save(self, turn: int) -> None:
        self._file.write(b"".join(_encoded(message) + b"\n" for message in self._new))
        self._file.flush()
        os.fsync(self._file.fileno())

    async def load(self, turn: int | None) -> int:
        with open(os.path.join(self.folder, "log.jsonl"), "rb") as file:
            lines = [json.loads(line) for line, _ in zip(file, range(2 * turn if turn else 2**60), strict=False)]
        return len(lines)


class OverwrittenFile(Shelf):
    """A JSON file that is replaced by each turn; nothing but the newest state is kept."""

    async def open(self) -> None:
        self._messages: list[dict[str, Any]] = []

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        self._messages += messages

    async def save(self, turn: int) -> None:
        path = os.path.join(self.folder, "latest.json")
        with open(path + ".new", "wb") as file:
            file.write(_encoded({"messages": self._messages}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    async def load(self, turn: int | None) -> int:
        if turn is not None:
            raise CannotError
        with open(os.path.join(self.folder, "latest.json"), "rb") as file:
            return len(json.load(file)["messages"])


class AppendedRows(Shelf):
    """SQLite in WAL mode: the new messages and one small row a turn, by which any turn can be read; nothing is checked."""

    async def open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.executescript(
            """PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE IF NOT EXISTS messages (line INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (line, seq)) WITHOUT ROWID;
            CREATE TABLE IF NOT EXISTS turns
                (id TEXT PRIMARY KEY, parent TEXT, line INTEGER, shared INTEGER, count INTEGER, at REAL) WITHOUT ROWID;"""
        )
        self._count, self._new = 0, list[dict[str, Any]]()

    async def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        self._new = messages

    async def save(self, turn: int) -> None:
        self._insert(0, f"turn-{turn:08}", f"turn-{turn - 1:08}", 0, self._count, self._new)
        self._count += len(self._new)

    async def branch(self, turn: int, number: int, messages: list[dict[str, Any]]) -> None:
        self._insert(number + 1, f"branch-{number}", f"turn-{turn:08}", 2 * turn, 2 * turn, messages)

    def _insert(
        self, line: int, name: str, parent: str, shared: int, first: int, messages: list[dict[str, Any]]
    ) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for at, message in enumerate(messages, first):
            self._db.execute("INSERT INTO messages VALUES (?, ?, ?)", (line, at, _encoded(message).decode()))
        turn = (name, parent, line, shared, first + len(messages), time.time())
        self._db.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?)", turn)
        self._db.execute("COMMIT")

    async def load(self, turn: int | None) -> int:
        db = sqlite3.connect(self._path)
        if turn is None:
            (count,) = db.execute("SELECT count FROM turns WHERE line = 0 ORDER BY id DESC LIMIT 1").fetchone()
        else:
            (count,) = db.execute("SELECT count FROM turns WHERE id = ?", (f"turn-{turn:08}",)).fetchone()
        rows = db.execute("SELECT body FROM messages WHERE line = 0 AND seq < ? ORDER BY seq", (count,))
        messages = [json.loads(body) for (body,) in rows]
        db.close()
        return len(messages)

    async def settle(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, "sessions.db")

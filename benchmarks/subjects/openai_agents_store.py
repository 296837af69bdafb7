"""The OpenAI Agents SDK: a log of messages in SQLite with branches, without checkpoints (`openai-agents`)."""

from __future__ import annotations

import os
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from benchmarks.child import main
from benchmarks.turns import CannotError, Shelf, long_cases


class OpenAIAgentsShelf(Shelf):
    """`SQLiteSession`; it is handed what is new. Nothing older than the newest state can be asked for."""

    async def open(self) -> None:
        self._session = self._made()

    async def close(self) -> None:
        if hasattr(self, "_session"):
            self._session.close()

    def _made(self) -> Any:
        return SQLiteSession("talk", os.path.join(self.folder, "sessions.db"))

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        said, answered = (message["content"][0]["text"] for message in messages)
        answer = {"type": "output_text", "text": answered, "annotations": []}
        self._new = [
            {"role": "user", "content": said},
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "id": f"msg_{turn:06}",
                "content": [answer],
            },
        ]

    async def save(self, turn: int) -> None:
        await self._session.add_items(self._new)

    async def load(self, turn: int | None) -> int:
        if turn is not None:
            raise CannotError
        session = self._made()
        messages = await session.get_items()
        session.close()
        return len(messages)


class AdvancedShelf(OpenAIAgentsShelf):
    """`AdvancedSQLiteSession`, which has branches: each copies what it shares."""

    def _made(self) -> Any:
        path = os.path.join(self.folder, "sessions.db")
        return AdvancedSQLiteSession(session_id="talk", db_path=path, create_tables=True)

    async def branch(self, turn: int, number: int, messages: list[dict[str, Any]]) -> None:
        await self._session.switch_to_branch("main")
        await self._session.create_branch_from_turn(turn + 1, f"branch-{number}")
        self.add(10**5 + number, messages)
        await self._session.add_items(self._new)


if __name__ == "__main__":
    main(long_cases(AdvancedShelf))

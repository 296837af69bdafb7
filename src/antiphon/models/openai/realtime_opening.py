"""What a new session is told before anything else. Pure."""

from __future__ import annotations

from typing import Any

from antiphon.models.live import Owed
from antiphon.models.openai.realtime_history import Item

CONTINUED = (
    "The line dropped for a moment and is back. The messages above are the conversation so far. Carry on from there in the "
    "same language and manner, without a greeting and without a word about the interruption."
)
"""Tells a session that replaces another one in the middle of a talk."""


class Opening:
    """What a new session is told.

    Attributes:
        session: Its configuration.
        owed: Whether to ask for an answer.
        continues: Whether that is the rest of one that has begun.
        begun: Whether it is what it was told to be.
        untold: The ids of items that it is not known to have.
    """

    __slots__ = ("_continued", "_history", "begun", "continues", "owed", "session", "untold")

    def __init__(self, session: dict[str, Any], history: list[Item], *, continued: bool, owed: Owed) -> None:
        self.session = session
        self.begun = False
        self.untold: set[str] = set()
        self._history = history
        self._continued = continued
        last = history[-1] if history else {}
        waits = last.get("role") == "user" or last.get("type") == "function_call_output"
        self.owed = bool(history) and (owed == "cut" or (owed == "said" and waits))
        self.continues = self.owed and not waits

    def items(self) -> list[tuple[str, Item]]:
        """The history with its ids, and a word about the restart where there was one."""
        items = list(self._history)
        if self._continued and items:
            items.append({"type": "message", "role": "system", "content": [{"type": "input_text", "text": CONTINUED}]})
        told = [(f"history-{number}", item) for number, item in enumerate(items)]
        self.untold = {key for key, _ in told}
        return told

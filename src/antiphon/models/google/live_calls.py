"""The tool calls of one Gemini Live connection, and what is said of their results. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from antiphon.content import ToolResultBlock, ToolUse, ToolUseBlock
from antiphon.models.google.live_reading import arguments, text_at
from antiphon.models.google.live_setup import LiveSettings, as_json, result_text

_REMEMBERED = 256
"""Calls that were taken back, and whose results may still come."""


class Calls:
    """The tool calls of one connection: their names, which their results must repeat, and those that were taken back."""

    __slots__ = ("_cancelled", "_nameless", "_names")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._nameless: set[str] = set()  # ids of ours, for calls that came without one, until they are answered
        self._cancelled: dict[str, None] = {}  # the latest last

    def register(self, calls: Sequence[dict[str, Any]], answer_id: str) -> list[ToolUse]:
        """Calls as they came, as the agent knows them."""
        uses: list[ToolUse] = []
        for number, call in enumerate(calls, 1):
            given = call.get("id")
            if isinstance(given, str) and given:
                key = given
            else:
                key = f"{answer_id}-call-{number}"
                self._nameless.add(key)
            name = text_at(call, "name")
            self._names[key] = name
            self._cancelled.pop(key, None)
            uses.append({"toolUseId": key, "name": name, "input": arguments(call.get("args"))})
        return uses

    def cancel(self, ids: Sequence[str]) -> None:
        """The model takes these back."""
        for key in ids:
            self._names.pop(key, None)
            self._nameless.discard(key)
            self._cancelled[key] = None
        while len(self._cancelled) > _REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]

    def is_cancelled(self, key: str) -> bool:
        """Whether the model took this call back, and must not be answered."""
        return key in self._cancelled

    def response(self, result: ToolResultBlock, settings: LiveSettings) -> dict[str, Any] | None:
        """The result as the connection wants it; None if it does not know the call."""
        name = self._names.pop(result.tool_use_id, None)
        if name is None:
            return None
        response: dict[str, Any] = {"name": name, "response": _outcome(result)}
        if result.tool_use_id in self._nameless:
            self._nameless.discard(result.tool_use_id)
        else:
            response["id"] = result.tool_use_id
        parts = [
            {
                "inlineData": {
                    "mimeType": f"image/{block['image']['format']}",
                    "data": b64encode(block["image"]["source"]["bytes"]).decode(),
                }
            }
            for block in result.content
            if "image" in block and "bytes" in block["image"].get("source", {})
        ]
        if parts:
            response["parts"] = parts
        if settings.scheduling is not None and settings.does_not_block(name):
            response["scheduling"] = settings.scheduling
        return response


def _outcome(result: ToolResultBlock) -> dict[str, Any]:
    if result.status == "error":
        return {"error": result_text(result.content)}
    values = [
        block["json"] if "json" in block else block["text"]
        for block in result.content
        if "json" in block or "text" in block
    ]
    return {"output": values[0] if len(values) == 1 else values or "done"}


def told_result(result: ToolResultBlock, call: ToolUseBlock | None) -> str:
    """A result in words, for a connection that did not make the call."""
    made = "" if call is None else f" of {call.name} with {as_json(call.input)}"
    end = "failed" if result.status == "error" else "returned"
    return f"[An earlier tool call{made} has {end}: {result_text(result.content)}]"

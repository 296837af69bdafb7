"""The stream of Anthropic's Messages API, read. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any

from antiphon.errors import ModelConnectionError, ModelProtocolError
from antiphon.models.anthropic.failures import failure_from
from antiphon.models.base import ModelStopReason, StreamEvent

_log = logging.getLogger(__name__)

_STOPS: dict[str, ModelStopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "content_filtered",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
}
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class MessageReader:
    """Reads the events of one answer, over as many streams as it takes: a turn that pauses is continued in another.

    Args:
        model_id: The model, for errors.

    Attributes:
        paused: Whether the stream ended with the turn only paused; `content` is then to be sent back.
        content: The blocks of the stream that ended last, as the API wants them back.
    """

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id
        self._begun = False
        self._complete = False
        self._index = -1
        self._open: _Block | None = None
        self._stop: str | None = None
        self._spent = {"input": 0, "output": 0, "read": 0, "written": 0}
        self._usage: dict[str, int] = {}
        self.paused = False
        self.content: list[dict[str, Any]] = []

    def feed(self, event: Any) -> list[StreamEvent]:
        """Take one event.

        Raises:
            ModelError: If it tells of a failure.
            ModelProtocolError: If it cannot be read.
        """
        try:
            return self._feed(event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelProtocolError(f"Anthropic sent an event that cannot be read: {short_repr(event)}") from error

    def end(self) -> None:
        """The stream is over.

        Raises:
            ModelConnectionError: If the answer is not.
        """
        if not self._complete:
            raise ModelConnectionError("Anthropic's stream broke off in the middle of the answer", passing=True)

    def next_stream(self) -> None:
        """The paused turn is continued in another stream."""
        self.paused = self._complete = False
        self.content = []

    def _feed(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        kind = event["type"]
        if kind == "content_block_delta":
            return self._delta(event["delta"])
        if kind == "content_block_start":
            return self._start(event["content_block"])
        if kind == "content_block_stop":
            return self._close()
        if kind == "message_start":
            self._count(event["message"].get("usage"))
            begun, self._begun = self._begun, True
            return [] if begun else [{"messageStart": {"role": "assistant"}}]
        if kind == "message_delta":
            self._count(event.get("usage"))
            self._stop = event["delta"].get("stop_reason") or self._stop
            return []
        if kind == "message_stop":
            return self._finish()
        if kind == "error":
            error = event["error"]
            raise failure_from(error["type"], error["message"], status=None, model_id=self._model_id)
        if kind != "ping":
            _log.debug("an event of the unknown type %r was left out", kind)
        return []

    def _start(self, block: Mapping[str, Any]) -> list[StreamEvent]:
        events = self._close()
        opened = self._open = _Block(dict(block))
        if opened.kind == "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            events.append({"contentBlockStart": {"contentBlockIndex": self._told(opened), "start": start}})
        elif opened.kind == "redacted_thinking":
            # Bytes, as Bedrock's Converse API has them.
            events += self._piece({"reasoningContent": {"redactedContent": str(block["data"]).encode()}})
        elif opened.kind == "text" and block.get("text"):
            events += self._piece({"text": block["text"]})
        elif opened.kind == "thinking" and block.get("thinking"):
            events += self._piece({"reasoningContent": {"text": block["thinking"]}})
        return events

    def _delta(self, delta: Mapping[str, Any]) -> list[StreamEvent]:
        kind, opened = delta["type"], self._open
        if opened is None:
            raise ValueError("a piece of no block")
        if kind == "text_delta":
            opened.add("text", delta["text"])
            return self._piece({"text": delta["text"]})
        if kind == "input_json_delta":
            opened.arguments += delta["partial_json"]
            if opened.kind != "tool_use" or not delta["partial_json"]:  # else a tool that runs at Anthropic
                return []
            return self._piece({"toolUse": {"input": delta["partial_json"]}})
        if kind == "thinking_delta":
            opened.add("thinking", delta["thinking"])
            return self._piece({"reasoningContent": {"text": delta["thinking"]}})
        if kind == "signature_delta":
            opened.add("signature", delta["signature"])
            return self._piece({"reasoningContent": {"signature": delta["signature"]}})
        if kind == "citations_delta":
            opened.block["citations"] = [*(opened.block.get("citations") or []), delta["citation"]]
        else:
            _log.debug("a piece of the unknown type %r was left out", kind)
        return []

    def _piece(self, delta: dict[str, Any]) -> list[StreamEvent]:
        opened = self._open
        if opened is None:
            return []
        return [{"contentBlockDelta": {"contentBlockIndex": self._told(opened), "delta": delta}}]

    def _told(self, opened: _Block) -> int:
        """The block's number among those that are told of."""
        if not opened.told:
            opened.told = True
            self._index += 1
        return self._index

    def _close(self) -> list[StreamEvent]:
        opened, self._open = self._open, None
        if opened is None:
            return []
        events: list[StreamEvent] = []
        if opened.kind == "tool_use" and not opened.arguments and opened.block.get("input"):
            arguments = json.dumps(opened.block["input"])  # a compatible server that sends them at once
            delta = {"toolUse": {"input": arguments}}
            events.append({"contentBlockDelta": {"contentBlockIndex": self._index, "delta": delta}})
        self.content.append(opened.whole())
        if opened.told:
            events.append({"contentBlockStop": {"contentBlockIndex": self._index}})
        return events

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Tokens of this stream; what comes later replaces what came before."""
        for name, value in (usage or {}).items():
            if isinstance(value, int):
                self._usage[name] = value

    def _finish(self) -> list[StreamEvent]:
        events = self._close()
        self._complete = True
        usage, self._usage = self._usage, {}
        for key, name in (
            ("input", _INPUT[0]),
            ("read", _INPUT[1]),
            ("written", _INPUT[2]),
            ("output", "output_tokens"),
        ):
            self._spent[key] += usage.get(name, 0)
        if self._stop == "pause_turn":
            self.paused, self._stop = True, None
            return events
        stop = _STOPS.get(self._stop or "end_turn")
        if stop is None:
            _log.warning("the unknown stop reason %r is taken for the end of the turn", self._stop)
            stop = "end_turn"
        events.append({"messageStop": {"stopReason": stop}})
        events.append({"metadata": {"usage": self._told_usage()}})
        return events

    def _told_usage(self) -> dict[str, int]:
        spent = self._spent
        usage = {
            "inputTokens": spent["input"],
            "outputTokens": spent["output"],
            "totalTokens": sum(spent.values()),
        }
        if spent["read"]:
            usage["cacheReadInputTokens"] = spent["read"]
        if spent["written"]:
            usage["cacheWriteInputTokens"] = spent["written"]
        return usage


class _Block:
    """A block that is being read."""

    __slots__ = ("arguments", "block", "told")

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self.arguments = ""
        self.told = False

    @property
    def kind(self) -> str:
        return str(self.block["type"])

    def add(self, name: str, piece: str) -> None:
        self.block[name] = (self.block.get(name) or "") + piece

    def whole(self) -> dict[str, Any]:
        try:
            return {**self.block, "input": json.loads(self.arguments)} if self.arguments.strip() else self.block
        except ValueError:  # cut off by the token limit: the agent tells the model so
            return self.block

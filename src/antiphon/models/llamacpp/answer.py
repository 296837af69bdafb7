"""llama.cpp's chunks as the events of an answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from antiphon.errors import (
    ContextWindowOverflowException,
    ModelError,
    ModelProtocolError,
    ModelRequestError,
)
from antiphon.models.base import StreamEvent

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

Kind = Literal["text", "reasoning"] | int


class ChatAnswer:
    """Puts the events of one answer in order.

    Args:
        context_size: The engine's context, in tokens.
        limit: The answer's token limit, if it has one.
    """

    def __init__(self, *, context_size: int, limit: int | None) -> None:
        self._context_size = context_size
        self._limit = limit
        self._open: Kind | None = None
        self._begun = False
        self._reason: str | None = None

    @property
    def over(self) -> bool:
        """Whether the answer has come to its end."""
        return self._reason is not None

    def feed(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        """Take one chunk.

        Raises:
            ContextWindowOverflowException: If the conversation is too long, or the answer filled the context.
            ModelRequestError: If llama.cpp refuses the request.
            ModelError: If it fails otherwise.
        """
        if "error" in chunk:
            raise failure(chunk["error"])
        events: list[StreamEvent] = []
        if not self._begun:
            self._begun = True
            events.append({"messageStart": {"role": "assistant"}})
        for choice in cast("list[dict[str, Any]]", chunk.get("choices") or []):
            events += self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._reason = _REASONS.get(choice["finish_reason"], "end_turn")
                events += self._close()
        if chunk.get("usage"):
            events += self._end(chunk["usage"], chunk.get("timings") or {})
        return events

    def _delta(self, delta: dict[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if delta.get("reasoning_content"):
            events += self._begin("reasoning")
            events.append({"contentBlockDelta": {"delta": {"reasoningContent": {"text": delta["reasoning_content"]}}}})
        if delta.get("content"):
            events += self._begin("text")
            events.append({"contentBlockDelta": {"delta": {"text": delta["content"]}}})
        for call in cast("list[dict[str, Any]]", delta.get("tool_calls") or []):
            function: dict[str, Any] = call.get("function") or {}
            events += self._begin(int(call.get("index", 0)), call.get("id"), function.get("name"))
            if function.get("arguments"):
                events.append({"contentBlockDelta": {"delta": {"toolUse": {"input": function["arguments"]}}}})
        return events

    def _begin(self, kind: Kind, call_id: str | None = None, name: str | None = None) -> list[StreamEvent]:
        if self._open == kind:
            return []
        events = self._close()
        self._open = kind
        start = (
            {}
            if not isinstance(kind, int)
            else {"toolUse": {"toolUseId": call_id or f"call-{kind}", "name": name or ""}}
        )
        return [*events, {"contentBlockStart": {"start": start}}]

    def _close(self) -> list[StreamEvent]:
        if self._open is None:
            return []
        self._open = None
        return [{"contentBlockStop": {}}]

    def _end(self, usage: dict[str, Any], timings: dict[str, Any]) -> list[StreamEvent]:
        if self._reason is None:
            raise ModelProtocolError("llama.cpp counted an answer that has no end")
        read, written = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))
        full = read + written >= self._context_size - 1 and (self._limit is None or written < self._limit)
        if self._reason == "max_tokens" and full:
            raise ContextWindowOverflowException(
                f"the conversation and its answer fill the context of {self._context_size} tokens: shorten the history, or "
                "load the model with a larger context_size"
            )
        counted = {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
        details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
        if cached := details.get("cached_tokens"):
            counted["cacheReadInputTokens"] = int(cached)
        spent = float(timings.get("prompt_ms", 0)) + float(timings.get("predicted_ms", 0))
        return [
            {"messageStop": {"stopReason": self._reason}},
            {"metadata": {"usage": counted, "metrics": {"latencyMs": round(spent)}}},
        ]


def failure(error: Any) -> ModelError:
    """The error of ours for an error of llama.cpp's: `{"code", "message", "type"}`."""
    entry: dict[str, Any] = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    words = str(entry.get("message", "no reason given"))
    if entry.get("type") == "exceed_context_size_error" or "context size" in words:
        return ContextWindowOverflowException(f"llama.cpp says: {words}")
    if 400 <= int(entry.get("code", 400)) < 500:
        return ModelRequestError(f"llama.cpp refuses the request: {words}")
    return ModelError(f"llama.cpp failed: {words}")

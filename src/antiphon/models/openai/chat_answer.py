"""The chunks of a chat completion as events. Pure.

Source: OpenAI's reference of the chat completion chunk; and what compatible servers do otherwise: reasoning in
`reasoning_content` (DeepSeek, vLLM, llama.cpp) or `reasoning` (OpenRouter, Ollama), calls without an index or all with index
0, usage in every chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import ModelProtocolError
from antiphon.models.base import ModelStopReason, StreamEvent
from antiphon.models.openai.blocks import BlockOrder
from antiphon.models.openai.failures import refusal_from
from antiphon.models.openai.frames import count, entries, entry, text

_log = logging.getLogger(__name__)

_REASONS: Mapping[str, ModelStopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filtered",
}


@dataclass(slots=True)
class _Call:
    """A call that is arriving: what came of its arguments before its name was known."""

    number: int
    id: str
    name: str = ""
    opened: bool = False
    early: list[str] = field(default_factory=list[str])


class ChatAnswer:
    """Takes the chunks of one answer.

    Args:
        model_id: The model that was asked, for errors.
    """

    def __init__(self, model_id: str = "") -> None:
        self._model_id = model_id
        self._order = BlockOrder()
        self._words: tuple[str, int] | None = None  # the block of words that is open: its kind, and its number
        self._number = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._refused = False
        self._finished = False
        self._usage: Mapping[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether the answer is whole; how many tokens it took may still come."""
        return self._finished

    def feed(self, chunk: dict[str, Any]) -> list[StreamEvent]:
        """The events of a chunk.

        Raises:
            ModelError: If the chunk tells of a failure, or cannot be read.
        """
        if chunk.get("error"):
            raise refusal_from(chunk, status=None, fallback="no reason given", model_id=self._model_id)
        self._usage = entry(chunk, "usage") or self._usage
        told: list[StreamEvent] = []
        for choice in entries(chunk, "choices"):
            if count(choice, "index") != 0 or self._finished:
                continue
            told += self._delta(entry(choice, "delta"))
            if (reason := text(choice, "finish_reason")) != "":
                self._finished = True
                told += self._order.begin() + self._name_calls() + self._order.finish()
                told.append({"messageStop": {"stopReason": self._reason(reason, choice)}})
        return told

    def end(self) -> list[StreamEvent]:
        """What is left to tell when the stream is over.

        Raises:
            ModelProtocolError: If the answer is not over.
        """
        if not self._finished:
            raise ModelProtocolError(
                "the answer broke off: its stream ended without a finish_reason (is this an endpoint for chat completions?)"
            )
        if not self._usage:
            return []
        read, written = count(self._usage, "prompt_tokens"), count(self._usage, "completion_tokens")
        usage = {
            "inputTokens": read,
            "outputTokens": written,
            "totalTokens": count(self._usage, "total_tokens") or read + written,
        }
        if cached := count(entry(self._usage, "prompt_tokens_details"), "cached_tokens"):
            usage["cacheReadInputTokens"] = cached
        return [{"metadata": {"usage": usage}}]

    def _reason(self, reason: str, choice: Mapping[str, Any]) -> ModelStopReason:
        if self._refused:
            return "content_filtered"
        if reason not in _REASONS:
            _log.warning("the provider gave the unknown finish_reason %r: taken for the end of its turn", reason)
        elif reason == "stop" and isinstance(
            choice.get("stop_reason"), str
        ):  # vLLM: which of the texts in `stop` it met
            return "stop_sequence"
        known = _REASONS.get(reason, "end_turn")
        return "tool_use" if known == "end_turn" and self._calls else known

    def _delta(self, delta: Mapping[str, Any]) -> list[StreamEvent]:
        told = self._order.begin() if delta else []
        if thought := text(delta, "reasoning_content") or text(delta, "reasoning"):
            told += self._said("reasoning", {"reasoningContent": {"text": thought}})
        if words := text(delta, "content"):
            told += self._said("text", {"text": words})
        if words := text(delta, "refusal"):
            self._refused = True
            told += self._said("text", {"text": words})
        for piece in entries(delta, "tool_calls"):
            told += self._end_words()
            told += self._call(piece)
        return told

    def _said(self, kind: str, delta: dict[str, Any]) -> list[StreamEvent]:
        told: list[StreamEvent] = []
        if self._words is None or self._words[0] != kind:
            told += self._end_words()
            self._number += 1
            self._words = (kind, self._number)
            told += self._order.open(self._words)
        return told + self._order.delta(self._words, delta)

    def _end_words(self) -> list[StreamEvent]:
        words, self._words = self._words, None
        return [] if words is None else self._order.close(words)

    def _call(self, piece: Mapping[str, Any]) -> list[StreamEvent]:
        call = self._called(piece)
        function = entry(piece, "function")
        call.name = call.name or text(function, "name")
        pieces = [text(function, "arguments")]
        told: list[StreamEvent] = []
        if not call.opened:
            call.early += pieces
            if not call.name:
                return []
            told, pieces = self._open(call), call.early
        for part in pieces:
            if part:
                told += self._order.delta(call.number, {"toolUse": {"input": part}})
        return told

    def _called(self, piece: Mapping[str, Any]) -> _Call:
        """The call that a piece belongs to."""
        key = text(piece, "id")
        index = count(piece, "index") if piece.get("index") is not None else None
        known = self._by_index.get(index) if index is not None else self._calls[-1] if self._calls else None
        # Another id is another call, whatever the index says.
        if known is None or (key and known.id and key != known.id):
            known = _Call(len(self._calls), key)
            self._calls.append(known)
            if index is not None:
                self._by_index[index] = known
        known.id = known.id or key
        return known

    def _open(self, call: _Call) -> list[StreamEvent]:
        call.opened = True
        return self._order.open(call.number, {"toolUse": {"toolUseId": call.id, "name": call.name}})

    def _name_calls(self) -> list[StreamEvent]:
        """Calls that never got a name are told all the same: the agent answers them."""
        told: list[StreamEvent] = []
        for call in self._calls:
            if not call.opened:
                told += self._open(call)
                told += self._order.delta(call.number, {"toolUse": {"input": "".join(call.early)}})
        return told

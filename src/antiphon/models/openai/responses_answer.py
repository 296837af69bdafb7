"""The events of a response as events of an answer. Pure.

Source: OpenAI's reference of the streaming events of `POST /v1/responses`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from antiphon.errors import ModelError, ModelProtocolError
from antiphon.models.base import ModelStopReason, StreamEvent
from antiphon.models.openai.blocks import BlockOrder
from antiphon.models.openai.failures import refusal, refusal_from
from antiphon.models.openai.frames import count, entries, entry, text
from antiphon.models.openai.responses_request import said, signature


class ResponsesAnswer:
    """Takes the events of one response.

    Args:
        model_id: The model that was asked, for errors.

    Attributes:
        response_id: The response's name at the server, once it is known.
        items: What the answer is as input of a later request: its words and its calls.
        open_calls: Ids of the calls in it.
        unknown: How often an event came that nothing is known of, by its type.
    """

    def __init__(self, model_id: str = "") -> None:
        self._model_id = model_id
        self._order = BlockOrder()
        self._refused = False
        self._stop: ModelStopReason | None = None
        self._usage: Mapping[str, Any] = {}
        self._given: set[int] = set()  # items of which a piece has come
        self.response_id: str | None = None
        self.items: list[dict[str, Any]] = []
        self.open_calls: list[str] = []
        self.unknown: Counter[str] = Counter()

    @property
    def over(self) -> bool:
        """Whether the answer is whole."""
        return self._stop is not None

    def feed(self, frame: dict[str, Any]) -> list[StreamEvent]:
        """The events of an event.

        Raises:
            ModelError: If it tells of a failure, or cannot be read.
        """
        kind = text(frame, "type")
        if kind == "error" or (not kind and frame.get("error")):
            raise refusal_from(frame, status=None, fallback="no reason given", model_id=self._model_id)
        if self._stop is not None:
            return []
        match kind:
            case "response.created" | "response.in_progress" | "response.queued":
                self.response_id = text(entry(frame, "response"), "id") or self.response_id
                return self._order.begin()
            case "response.output_item.added":
                return self._added(count(frame, "output_index"), entry(frame, "item"))
            case "response.output_text.delta":
                return self._piece(frame, {"text": text(frame, "delta")})
            case "response.refusal.delta":
                self._refused = True
                return self._piece(frame, {"text": text(frame, "delta")})
            case "response.function_call_arguments.delta":
                return self._piece(frame, {"toolUse": {"input": text(frame, "delta")}})
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._piece(frame, {"reasoningContent": {"text": text(frame, "delta")}})
            case "response.reasoning_summary_part.added":
                if count(frame, "output_index") in self._given:
                    return self._piece(frame, {"reasoningContent": {"text": "\n\n"}})
                return []
            case "response.output_item.done":
                return self._done(count(frame, "output_index"), entry(frame, "item"))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self._over(entry(frame, "response"), kind.removeprefix("response."))
            case _:
                self.unknown[kind] += 1
                return []

    def end(self) -> list[StreamEvent]:
        """What is left to tell when the stream is over.

        Raises:
            ModelProtocolError: If the answer is not over.
        """
        if self._stop is None:
            raise ModelProtocolError(
                "the answer broke off: its stream ended without response.completed (is this an endpoint for responses?)"
            )
        if not self._usage:
            return []
        read, written = count(self._usage, "input_tokens"), count(self._usage, "output_tokens")
        usage = {
            "inputTokens": read,
            "outputTokens": written,
            "totalTokens": count(self._usage, "total_tokens") or read + written,
        }
        if cached := count(entry(self._usage, "input_tokens_details"), "cached_tokens"):
            usage["cacheReadInputTokens"] = cached
        return [{"metadata": {"usage": usage}}]

    def _added(self, index: int, item: Mapping[str, Any]) -> list[StreamEvent]:
        match text(item, "type"):
            case "message" | "reasoning":
                return self._order.open(index)
            case "function_call":
                return self._order.open(
                    index, {"toolUse": {"toolUseId": text(item, "call_id"), "name": text(item, "name")}}
                )
            case _:  # what the provider's own tools do is theirs
                return []

    def _piece(self, frame: Mapping[str, Any], delta: dict[str, Any]) -> list[StreamEvent]:
        index = count(frame, "output_index")
        self._given.add(index)
        opened = [] if "toolUse" in delta else self._order.open(index)
        return opened + self._order.delta(index, delta)

    def _done(self, index: int, item: Mapping[str, Any]) -> list[StreamEvent]:
        told = self._added(index, item)
        given = index in self._given
        match text(item, "type"):
            case "message":
                parts = entries(item, "content")
                words = "".join(text(part, "text") or text(part, "refusal") for part in parts)
                self._refused |= any(text(part, "type") == "refusal" for part in parts)
                if words:
                    self.items.append(said(words))
                    told += [] if given else self._order.delta(index, {"text": words})
            case "function_call":
                written = text(item, "arguments")
                told += [] if given else self._order.delta(index, {"toolUse": {"input": written}})
                call = {"call_id": text(item, "call_id"), "name": text(item, "name"), "arguments": written}
                self.items.append({"type": "function_call", **call})
                self.open_calls.append(call["call_id"])
            case "reasoning":
                parts = [*entries(item, "summary"), *entries(item, "content")]
                thought = "\n\n".join(text(part, "text") for part in parts)
                if thought and not given:
                    told += self._order.delta(index, {"reasoningContent": {"text": thought}})
                if encrypted := text(item, "encrypted_content"):
                    signed = signature(text(item, "id"), encrypted)
                    told += self._order.delta(index, {"reasoningContent": {"signature": signed}})
            case _:
                pass
        return told + self._order.close(index)

    def _over(self, response: Mapping[str, Any], how: str) -> list[StreamEvent]:
        self.response_id = text(response, "id") or self.response_id
        self._usage = entry(response, "usage")
        if how == "failed":
            error = entry(response, "error")
            raise refusal(text(error, "message"), code=text(error, "code") or "server_error", model_id=self._model_id)
        if how == "cancelled":
            raise ModelError(f"response {self.response_id!r} was cancelled at the provider")
        self._stop = self._reason(response, how)
        return [
            *self._order.begin(),
            *self._order.finish(),
            {"messageStop": {"stopReason": self._stop}},
        ]

    def _reason(self, response: Mapping[str, Any], how: str) -> ModelStopReason:
        reason = text(entry(response, "incomplete_details"), "reason")
        if how == "incomplete" and reason == "max_output_tokens":
            return "max_tokens"
        if self._refused or (how == "incomplete" and reason == "content_filter"):
            return "content_filtered"
        return "tool_use" if self.open_calls else "end_turn"

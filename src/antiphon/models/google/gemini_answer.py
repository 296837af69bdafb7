"""The stream of `streamGenerateContent`, read. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, Literal

from antiphon.errors import ModelConnectionError, ModelError, ModelProtocolError, ModelRequestError
from antiphon.models.base import ModelStopReason, StreamEvent
from antiphon.models.google.gemini_signatures import ON_CALLS, to_text

_log = logging.getLogger(__name__)

_FILTERED = {
    *["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"],
    *["IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"],
}
_FAILED = {
    "MALFORMED_FUNCTION_CALL": "Gemini made a call of a tool that cannot be read",
    "UNEXPECTED_TOOL_CALL": "Gemini called a tool although there was none to call",
    "TOO_MANY_TOOL_CALLS": "Gemini called too many tools in a row",
    "MALFORMED_RESPONSE": "Gemini made an answer that cannot be read",
    "OTHER": "Gemini ended the answer for a reason it does not tell",
    "NO_IMAGE": "Gemini was to make an image and made none",
    "IMAGE_OTHER": "Gemini could not make the image",
}
"""Reasons that are failures of the model: asked again, it may do better."""


class GeminiReader:
    """Reads the chunks of one answer, as dicts with the SDK's names and with bytes as bytes."""

    def __init__(self) -> None:
        self._begun = False
        self._index = -1
        self._kind: Literal["text", "reasoning"] | None = None
        self._called = False
        self._end: str | None = None
        self._why = ""
        self._blocked = False
        self._usage: dict[str, Any] = {}

    def feed(self, chunk: Any) -> list[StreamEvent]:
        """Take one chunk.

        Raises:
            ModelProtocolError: If it cannot be read.
        """
        try:
            return self._feed(chunk)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelProtocolError(f"Gemini sent a chunk that cannot be read: {short_repr(chunk)}") from error

    def end(self) -> list[StreamEvent]:
        """The stream is over.

        Raises:
            ModelConnectionError: If the answer is not.
            ModelError: If Gemini says that it failed.
        """
        stop = self._stop()
        events = [] if self._begun else self._begin()
        events += self._close()
        events.append({"messageStop": {"stopReason": stop}})
        events.append({"metadata": {"usage": self._told_usage()}})
        return events

    def _feed(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        events = [] if self._begun else self._begin()
        usage: dict[str, Any] = chunk.get("usage_metadata") or {}
        self._usage.update({key: value for key, value in usage.items() if value})
        feedback: dict[str, Any] = chunk.get("prompt_feedback") or {}
        if feedback.get("block_reason"):
            self._blocked = True
        candidates: list[dict[str, Any]] = chunk.get("candidates") or []
        for candidate in candidates[:1]:
            content: dict[str, Any] = candidate.get("content") or {}
            parts: list[dict[str, Any]] = content.get("parts") or []
            for part in parts:
                events += self._part(part)
            if candidate.get("finish_reason"):
                self._end = _word(candidate["finish_reason"])
                self._why = str(candidate.get("finish_message") or "")
        return events

    def _begin(self) -> list[StreamEvent]:
        self._begun = True
        return [{"messageStart": {"role": "assistant"}}]

    def _part(self, part: Mapping[str, Any]) -> list[StreamEvent]:
        if part.get("function_call") is not None:
            return self._call(part["function_call"], part.get("thought_signature"))
        text, signature = part.get("text"), part.get("thought_signature")
        if text is None and signature is None:
            known = {"executable_code", "code_execution_result", "inline_data", "tool_call", "tool_response"}
            _log.debug("a part with %s was left out", sorted(known & part.keys()) or "nothing known")
            return []
        if part.get("thought"):
            events = self._piece("reasoning", {"reasoningContent": {"text": text}}) if text else []
            return events + (self._signed(signature) if signature is not None else [])
        events = self._piece("text", {"text": text}) if text else []
        if signature is not None:
            # A block of its own after the words: reasoning is where a history keeps signatures.
            events += self._close()
            events += self._signed(signature)
        return events

    def _signed(self, signature: bytes) -> list[StreamEvent]:
        return self._piece("reasoning", {"reasoningContent": {"signature": to_text(signature)}}) + self._close()

    def _call(self, call: Mapping[str, Any], signature: bytes | None) -> list[StreamEvent]:
        events = self._close()
        self._index += 1
        self._called = True
        start: dict[str, Any] = {"toolUseId": call.get("id") or "", "name": call["name"]}
        if signature is not None:
            start[ON_CALLS] = signature
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        delta = {"toolUse": {"input": arguments}}
        events.append({"contentBlockStart": {"contentBlockIndex": self._index, "start": {"toolUse": start}}})
        events.append({"contentBlockDelta": {"contentBlockIndex": self._index, "delta": delta}})
        events.append({"contentBlockStop": {"contentBlockIndex": self._index}})
        return events

    def _piece(self, kind: Literal["text", "reasoning"], delta: dict[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self._kind != kind:
            events += self._close()
            self._kind = kind
            self._index += 1
        events.append({"contentBlockDelta": {"contentBlockIndex": self._index, "delta": delta}})
        return events

    def _close(self) -> list[StreamEvent]:
        if self._kind is None:
            return []
        self._kind = None
        return [{"contentBlockStop": {"contentBlockIndex": self._index}}]

    def _stop(self) -> ModelStopReason:
        if self._blocked and self._end is None:
            return "content_filtered"
        if self._end is None:
            raise ModelConnectionError("Gemini's stream broke off in the middle of the answer", passing=True)
        if self._end == "MAX_TOKENS":
            return "max_tokens"
        if self._end in _FILTERED:
            return "content_filtered"
        if self._end == "MISSING_THOUGHT_SIGNATURE":
            raise ModelRequestError(f"Gemini misses the thought signature of a call: {self._why or self._end}")
        if self._end in _FAILED:
            raise ModelError(f"{_FAILED[self._end]}: {self._end} {self._why}".rstrip(), passing=True)
        if self._end != "STOP":
            _log.warning("the unknown finish reason %r is taken for the end of the turn", self._end)
        return "tool_use" if self._called else "end_turn"

    def _told_usage(self) -> dict[str, int]:
        def count(*names: str) -> int:
            return sum(int(self._usage.get(name) or 0) for name in names)

        usage = {
            "inputTokens": count("prompt_token_count", "tool_use_prompt_token_count"),
            "outputTokens": count("candidates_token_count", "thoughts_token_count"),
        }
        usage["totalTokens"] = count("total_token_count") or usage["inputTokens"] + usage["outputTokens"]
        if cached := count("cached_content_token_count"):
            usage["cacheReadInputTokens"] = cached
        return usage


def _word(reason: object) -> str:
    """A finish reason as text: the SDK has an enumeration for those that it knows."""
    return str(getattr(reason, "value", reason))

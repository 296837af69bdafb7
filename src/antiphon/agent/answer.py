"""A model's answer, put together from its stream of events. Pure."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from antiphon.content import ContentBlock, Message, MessageMetadata, ToolResult, error_result
from antiphon.conversation.journal import tool_uses
from antiphon.errors import ModelError
from antiphon.models.base import StreamEvent
from antiphon.results import StopReason, Usage

_CUT = "[The call of {!r} was cut off: the answer reached its token limit.]"
_REASONS: tuple[StopReason, ...] = (
    "content_filtered",
    "end_turn",
    "guardrail_intervened",
    "max_tokens",
    "stop_sequence",
    "tool_use",
)


class Answer:
    """What has arrived of an answer.

    Attributes:
        usage: Tokens, as the provider told.
        user_redaction: What the user's latest message is to be replaced by.
        refused: Results of calls that cannot run, because their input is not JSON.
    """

    __slots__ = (
        "_blocks",
        "_kind",
        "_pieces",
        "_reason",
        "_redaction",
        "_signature",
        "_tool",
        "refused",
        "usage",
        "user_redaction",
    )

    def __init__(self) -> None:
        self.usage = Usage()
        self.user_redaction: str | None = None
        self.refused: dict[str, ToolResult] = {}
        self._reason: str | None = None
        self._redaction: str | None = None
        self._blocks: list[ContentBlock] = []
        self._kind: Literal["text", "toolUse", "reasoning"] | None = None
        self._pieces: list[str] = []
        self._tool: dict[str, Any] = {}
        self._signature: str | None = None

    def apply(self, event: StreamEvent) -> list[dict[str, Any]]:
        """Take one event.

        Returns:
            What an application is told of it: `{"data": text}`, `{"reasoning": text}`, `{"current_tool_use": {...}}` or
            `{"redact": {"role": ..., "text": ...}}`.
        """
        if "contentBlockDelta" in event:
            return self._delta(event["contentBlockDelta"].get("delta", {}))
        if "contentBlockStart" in event:
            self._end_block()
            start = event["contentBlockStart"].get("start", {})
            if "toolUse" in start:
                self._kind, self._tool = "toolUse", dict(start["toolUse"])
        elif "contentBlockStop" in event:
            self._end_block()
        elif "messageStop" in event:
            self._end_block()
            self._reason = str(event["messageStop"].get("stopReason", "end_turn"))
        elif "metadata" in event:
            usage = event["metadata"].get("usage", {})
            self.usage += Usage(
                int(usage.get("inputTokens", 0)), int(usage.get("outputTokens", 0)), int(usage.get("totalTokens", 0))
            )
        elif "redactContent" in event:
            return self._redact(event["redactContent"])
        return []

    @property
    def stop_reason(self) -> StopReason:
        """Why the answer ended.

        Raises:
            ModelError: If it has not: the stream broke off without saying so.
        """
        if self._reason is None:
            raise ModelError("the model's answer broke off: its stream ended without a messageStop event")
        if self._reason == "end_turn" and self._redaction is None and any("toolUse" in block for block in self._blocks):
            return "tool_use"
        if self._reason not in _REASONS:
            raise ModelError(f"the model gave the stop reason {self._reason!r}; known are {sorted(_REASONS)!r}")
        return self._reason

    def message(self) -> Message | None:
        """The whole answer as the history keeps it; None when nothing was said.

        Calls are part of it only when they are to be run: a filter or a token limit makes half of them worthless. Of calls
        that the limit cut off, a word of text remains.
        """
        if self._redaction is not None:
            return _said(self._redaction)
        content = list(self._blocks)
        if self.stop_reason != "tool_use":
            content = [block for block in content if "toolUse" not in block]
            if self.stop_reason == "max_tokens":
                for call in tool_uses({"role": "assistant", "content": self._blocks}):
                    content.append({"text": _CUT.format(call["name"])})
        if all("reasoningContent" in block for block in content):
            return None
        return {"role": "assistant", "content": content}

    def cut(self, note: str | None, fallback: str) -> Message:
        """What remains of an answer that was cancelled: what was said so far, marked `interrupted`.

        Args:
            note: What else is to be said.
            fallback: What stands there when nothing was said at all.
        """
        self._end_block()
        texts = [block["text"] for block in self._blocks if "text" in block]
        if self._redaction is not None:
            texts = [self._redaction]
        if note is not None:
            texts.append(note)
        metadata: MessageMetadata = {"interrupted": True}
        return {"role": "assistant", "content": [{"text": text} for text in texts or [fallback]], "metadata": metadata}

    def _delta(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        if "text" in delta:
            self._begin("text")
            self._pieces.append(delta["text"])
            return [{"data": delta["text"]}] if self._redaction is None else []
        if "toolUse" in delta:
            self._pieces.append(delta["toolUse"].get("input", ""))
            return [{"current_tool_use": {**self._tool, "input": "".join(self._pieces)}}]
        if "reasoningContent" in delta:
            return self._reasoning(delta["reasoningContent"])
        return []

    def _reasoning(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        if "redactedContent" in delta:
            self._end_block()
            self._blocks.append({"reasoningContent": {"redactedContent": delta["redactedContent"]}})
            return []
        self._begin("reasoning")
        if "signature" in delta:
            self._signature = (self._signature or "") + delta["signature"]
        if "text" not in delta:
            return []
        self._pieces.append(delta["text"])
        return [{"reasoning": delta["text"]}] if self._redaction is None else []

    def _redact(self, redaction: dict[str, Any]) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        if "redactUserContentMessage" in redaction:
            self.user_redaction = redaction["redactUserContentMessage"]
            told.append({"redact": {"role": "user", "text": self.user_redaction}})
        if "redactAssistantContentMessage" in redaction:
            self._redaction = redaction["redactAssistantContentMessage"]
            self._blocks.clear()
            told.append({"redact": {"role": "assistant", "text": self._redaction}})
        return told

    def _begin(self, kind: Literal["text", "reasoning"]) -> None:
        if self._kind != kind:
            self._end_block()
            self._kind = kind

    def _end_block(self) -> None:
        text, kind = _clean("".join(self._pieces)), self._kind
        if kind == "text" and text.strip():
            self._blocks.append({"text": text})
        elif kind == "reasoning":
            reasoning = {"text": text} if self._signature is None else {"text": text, "signature": self._signature}
            self._blocks.append({"reasoningContent": {"reasoningText": reasoning}})
        elif kind == "toolUse":
            self._end_call(text)
        self._kind, self._signature = None, None
        self._pieces.clear()

    def _end_call(self, text: str) -> None:
        key, name = str(self._tool.get("toolUseId", "")), str(self._tool.get("name", ""))
        value: object = {}
        try:
            value = msgspec.json.decode(text.encode()) if text.strip() else {}
        except msgspec.DecodeError as error:
            self.refused[key] = error_result(key, f"Error: the input is not JSON: {error}")
        if not isinstance(value, dict):
            self.refused[key] = error_result(key, f"Error: the input is not a JSON object: {text[:200]}")
            value = {}
        self._blocks.append({"toolUse": {"toolUseId": key, "name": name, "input": cast("dict[str, Any]", value)}})


def _said(text: str) -> Message:
    return {"role": "assistant", "content": [{"text": text}]}


def _clean(text: str) -> str:
    """`text` without lone surrogates, which no storage takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")

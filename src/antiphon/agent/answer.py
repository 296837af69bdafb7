"""A model's answer, put together from its stream of events. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from antiphon.content import ContentBlock, Message, MessageMetadata, ToolResult, error_result
from antiphon.conversation.calls import normalised
from antiphon.errors import ModelError
from antiphon.jsonable import clean_text, copy_json
from antiphon.models.base import StreamEvent
from antiphon.results import StopReason, Usage

_CUT = "[The call of {!r} was cut off: the answer reached its token limit.]"
_REDACTED = "[redacted]"
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
        refused: Results of calls that cannot run as the model made them; `message()` fills it in.
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
        self._blocks: list[ContentBlock | _Call] = []
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
    def calls_tools(self) -> bool:
        """Whether the model called a tool, whatever becomes of it."""
        return any(isinstance(block, _Call) for block in self._blocks)

    @property
    def stop_reason(self) -> StopReason:
        """Why the answer ended.

        Raises:
            ModelError: If it has not: the stream broke off without saying so.
        """
        if self._reason is None:
            raise ModelError("the model's answer broke off: its stream ended without a messageStop event")
        if self._reason == "end_turn" and self._redaction is None and self.calls_tools:
            return "tool_use"
        if self._reason not in _REASONS:
            raise ModelError(f"the model gave the stop reason {self._reason!r}; known are {sorted(_REASONS)!r}")
        return self._reason

    def message(self, taken: Collection[str] = ()) -> Message | None:
        """The whole answer as the history keeps it; None when nothing was said.

        Calls are part of it only when they are to be run: a filter or a token limit makes half of them worthless. Of calls
        that the limit cut off, a word of text remains.

        Args:
            taken: The ids that the history knows: calls get others.
        """
        if self._redaction is not None:
            return {"role": "assistant", "content": [{"text": self._redaction}]}
        reason, kept = (
            self.stop_reason,
            iter(normalised([block.tool_use for block in self._blocks if isinstance(block, _Call)], taken)),
        )
        content: list[ContentBlock] = []
        cut: list[ContentBlock] = []
        for block in self._blocks:
            if not isinstance(block, _Call):
                content.append(block)
                continue
            call = next(kept)
            if reason == "tool_use":
                content.append({"toolUse": call.tool_use})
                if (refusal := block.unreadable or call.refusal) is not None:
                    key = call.tool_use["toolUseId"]
                    self.refused[key] = error_result(key, refusal)
            elif reason == "max_tokens":
                cut.append({"text": _CUT.format(call.tool_use["name"])})
        content += cut
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
        texts = [block["text"] for block in self._blocks if not isinstance(block, _Call) and "text" in block]
        if self._redaction is not None:
            texts = [self._redaction]
        if note is not None and note.strip():
            texts.append(clean_text(note))
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
            self._blocks.append(copy_json({"reasoningContent": {"redactedContent": delta["redactedContent"]}}))
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
            self.user_redaction = _said_instead(redaction["redactUserContentMessage"])
            told.append({"redact": {"role": "user", "text": self.user_redaction}})
        if "redactAssistantContentMessage" in redaction:
            self._redaction = _said_instead(redaction["redactAssistantContentMessage"])
            self._blocks.clear()
            told.append({"redact": {"role": "assistant", "text": self._redaction}})
        return told

    def _begin(self, kind: Literal["text", "reasoning"]) -> None:
        if self._kind != kind:
            self._end_block()
            self._kind = kind

    def _end_block(self) -> None:
        text, kind = clean_text("".join(self._pieces)), self._kind
        if kind == "text" and text.strip():
            self._blocks.append({"text": text})
        elif kind == "reasoning" and (text or self._signature):
            reasoning = {"text": text}
            if self._signature is not None:
                reasoning["signature"] = clean_text(self._signature)
            self._blocks.append({"reasoningContent": {"reasoningText": reasoning}})
        elif kind == "toolUse":
            self._blocks.append(_call(self._tool, text))
        self._kind, self._signature = None, None
        self._pieces.clear()


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as the model made it, and why its input cannot be read."""

    tool_use: dict[str, Any]
    unreadable: str | None


def _call(tool_use: dict[str, Any], text: str) -> _Call:
    value: object = {}
    unreadable: str | None = None
    try:
        value = msgspec.json.decode(text.encode()) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError) as error:
        unreadable = f"Error: the input is not JSON: {clean_text(str(error))}"
    return _Call({**tool_use, "input": value}, unreadable)


def _said_instead(redaction: object) -> str:
    """What stands in the place of words that are taken back."""
    return clean_text(redaction) if isinstance(redaction, str) and redaction.strip() else _REDACTED

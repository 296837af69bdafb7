"""What every model offers, and the contract of a model that answers in turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol, TypedDict

from antiphon.content import Message, Messages, SystemContentBlock, ToolSpec

ModelStopReason = Literal[
    "content_filtered", "end_turn", "guardrail_intervened", "max_tokens", "stop_sequence", "tool_use"
]


class ConfiguredModel(Protocol):
    """What `LocalAgent.model` promises, for both kinds of model."""

    @property
    def stateful(self) -> bool:
        """Whether the provider keeps the history; the agent then sends only what is new and saves `model_state`."""
        ...

    def get_config(self) -> dict[str, Any]:
        """The configuration, as a copy; never with a secret in it."""
        ...

    def update_config(self, **config: Any) -> None:
        """Change the configuration from the next request (or connection) on."""
        ...


class StreamEvent(TypedDict, total=False):
    """One event of an answer, in the shape of Bedrock's ConverseStream; exactly one key is set.

    In order: `messageStart` once; for each block `contentBlockStart` (needed for tools:
    `{"start": {"toolUse": {"toolUseId", "name"}}}`), `contentBlockDelta`s (`{"delta": {"text"} | {"toolUse": {"input":
    "<piece of JSON>"}} | {"reasoningContent": {"text"} | {"signature"}}}`), `contentBlockStop`; `messageStop` with the
    `stopReason`; `metadata` with `{"usage": {"inputTokens", "outputTokens", "totalTokens"}}`. `redactContent` may come at
    any time: `{"redactUserContentMessage": str}` replaces the user's latest message, `{"redactAssistantContentMessage":
    str}` the answer.
    """

    messageStart: dict[str, Any]
    contentBlockStart: dict[str, Any]
    contentBlockDelta: dict[str, Any]
    contentBlockStop: dict[str, Any]
    messageStop: dict[str, Any]
    metadata: dict[str, Any]
    redactContent: dict[str, Any]


class Model(ABC):
    """A model that answers one request per turn."""

    @property
    def stateful(self) -> bool:
        return False

    @abstractmethod
    def get_config(self) -> dict[str, Any]: ...

    @abstractmethod
    def update_config(self, **config: Any) -> None: ...

    @abstractmethod
    def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]:
        """Answer a conversation.

        Args:
            messages: The history; the last one is the user's. Without metadata. Not to be changed.
            tool_specs: The tools that may be called.
            system_prompt: The system prompt.
            model_state: For stateful models: a dict that the agent saves with the session; change it in place.
            **kwargs: Room for what later versions pass.

        Raises:
            ModelThrottledException: If the provider asks to slow down.
            ContextWindowOverflowException: If the history is too long.
            ModelError: If the provider fails otherwise.
        """
        ...


def strip_metadata(messages: Messages) -> Messages:
    """The messages as providers may see them: roles and content only. Content is shared, not copied."""
    return [Message(role=message["role"], content=message["content"]) for message in messages]


def without_reasoning(messages: Messages) -> Messages:
    """The messages without what was thought, for a provider that cannot read it; those with nothing else are left out."""
    kept: Messages = []
    for message in messages:
        content = [block for block in message["content"] if "reasoningContent" not in block]
        if content or not message["content"]:
            kept.append(Message(role=message["role"], content=content))
    return kept

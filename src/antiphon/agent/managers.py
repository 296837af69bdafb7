"""Conversation managers: what of a long history the model still gets to see."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from antiphon.content import ContentBlock, Message, Messages
from antiphon.errors import ContextWindowOverflowException, InvalidInputError, SnapshotException
from antiphon.local_agent import LocalAgent

_log = logging.getLogger(__name__)
_LARGE = 20_000
_KEPT = 1_000


class ConversationManager(ABC):
    """Keeps an agent's history within bounds, by changing `agent.messages` in place.

    Attributes:
        removed_message_count: How many messages were taken away in the life of the session.
    """

    def __init__(self) -> None:
        self.removed_message_count = 0

    @abstractmethod
    def apply_management(self, agent: LocalAgent, **kwargs: Any) -> None:
        """Called at the end of every invocation, before it is saved."""

    @abstractmethod
    def reduce_context(self, agent: LocalAgent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history shorter, because the model cannot read it.

        Args:
            agent: The agent.
            e: What the model said.
            **kwargs: Room for what later versions pass.

        Raises:
            ContextWindowOverflowException: If nothing can be made shorter.
        """

    def get_state(self) -> dict[str, Any]:
        """What a snapshot keeps of this manager; JSON."""
        return {"__name__": type(self).__name__, "removed_message_count": self.removed_message_count}

    def restore_from_session(self, state: dict[str, Any]) -> None:
        """Take over what `get_state` gave. Must refuse before it changes anything.

        The state of another manager is ignored, with a warning: whoever changes the manager in the code keeps the session.

        Raises:
            SnapshotException: If the state is malformed.
        """
        if not self.knows(state):
            return
        count = state.get("removed_message_count", 0)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise SnapshotException(f"conversation_manager_state.removed_message_count={count!r} is not a count")
        self.removed_message_count = count

    def knows(self, state: dict[str, Any]) -> bool:
        """Whether a state is of this class; a warning says when it is not."""
        name = state.get("__name__")
        if name == type(self).__name__:
            return True
        _log.warning("the state of conversation manager %r is ignored by %r", name, type(self).__name__)
        return False


class NullConversationManager(ConversationManager):
    """Changes nothing."""

    def apply_management(self, agent: LocalAgent, **kwargs: Any) -> None:
        pass

    def reduce_context(self, agent: LocalAgent, e: Exception | None = None, **kwargs: Any) -> None:
        raise _overflow("NullConversationManager leaves the history as it is", e)


class SlidingWindowConversationManager(ConversationManager):
    """Keeps the newest messages.

    The window begins at a user's own message where there is one, and never between a call and its result, so that it may be
    smaller than `window_size`, and larger by one when a single call with its result does not fit.

    Args:
        window_size: How many messages stay.
        should_truncate_results: Whether very long results (beyond 20,000 characters) may lose their middle when the model
            cannot read the history.
    """

    def __init__(self, window_size: int = 40, *, should_truncate_results: bool = True) -> None:
        """See the class.

        Raises:
            InvalidInputError: If `window_size` is less than 1.
        """
        super().__init__()
        if window_size < 1:
            raise InvalidInputError(f"window_size={window_size!r} is less than 1")
        self.window_size = window_size
        self.should_truncate_results = should_truncate_results

    def apply_management(self, agent: LocalAgent, **kwargs: Any) -> None:
        self._drop(agent.messages, len(agent.messages) - self.window_size)

    def reduce_context(self, agent: LocalAgent, e: Exception | None = None, **kwargs: Any) -> None:
        messages = agent.messages
        if self.should_truncate_results and _truncate_results(messages):
            return
        beyond = len(messages) - self.window_size
        if not self._drop(messages, beyond if beyond > 0 else 2):
            raise _overflow("nothing is left to take away from the history", e)

    def _drop(self, messages: Messages, count: int) -> bool:
        """Take at least `count` messages away, as far as that leaves something legal."""
        start = _start(messages, count) if count > 0 else 0
        del messages[:start]
        self.removed_message_count += start
        return start > 0


def _start(messages: Messages, least: int) -> int:
    """Where a history of this length may begin after losing its first `least` messages."""
    after = range(least, len(messages))
    before = range(min(least, len(messages)) - 1, 0, -1)
    return (
        next((index for index in after if _is_prompt(messages[index])), 0)
        or next((index for index in after if not _has_results(messages[index])), 0)
        or next((index for index in before if not _has_results(messages[index])), 0)
    )


def _is_prompt(message: Message) -> bool:
    return message["role"] == "user" and not _has_results(message)


def _has_results(message: Message) -> bool:
    return any("toolResult" in block for block in message["content"])


def _truncate_results(messages: Messages) -> bool:
    """Shorten very long results; whether there were any. Messages are replaced, not changed."""
    found = False
    for index, message in enumerate(messages):
        content = [_truncated(block) for block in message["content"]]
        if any(one is not other for one, other in zip(content, message["content"], strict=True)):
            changed = message.copy()
            changed["content"] = content
            messages[index] = changed
            found = True
    return found


def _truncated(block: ContentBlock) -> ContentBlock:
    if "toolResult" not in block:
        return block
    result = block["toolResult"]
    content = [
        {"text": _shortened(part["text"])} if len(part.get("text", "")) > _LARGE else part for part in result["content"]
    ]
    if all(one is other for one, other in zip(content, result["content"], strict=True)):
        return block
    return {"toolResult": {"toolUseId": result["toolUseId"], "status": result["status"], "content": content}}


def _shortened(text: str) -> str:
    return f"{text[:_KEPT]}\n[... {len(text) - 2 * _KEPT} characters left out ...]\n{text[-_KEPT:]}"


def _overflow(why: str, error: Exception | None) -> ContextWindowOverflowException:
    overflow = ContextWindowOverflowException(why if error is None else f"{error}: {why}")
    overflow.__cause__ = error
    return overflow

"""An answer as a stream of events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from antiphon.clock import Clock
from antiphon.content import Messages
from antiphon.models.base import StreamEvent
from antiphon.models.embedded.script import Answer, numbered_calls

_PIECE = re.compile(r"\s*\S+\s*$|\s*\S+")


def word_pieces(text: str) -> list[str]:
    """The text in words, each with the blanks before it; joined, they are the text again.

    >>> word_pieces("Good  morning, all ")
    ['Good', '  morning,', ' all ']
    """
    return _PIECE.findall(text) or ([text] if text else [])


def count_tokens(messages: Messages) -> int:
    """Words of a history: what the embedded model counts instead of tokens."""
    return sum(len(block.get("text", "").split()) for message in messages for block in message["content"])


def count_calls(messages: Messages) -> int:
    """Calls of tools in a history."""
    return sum("toolUse" in block for message in messages for block in message["content"])


async def stream_answer(
    answer: Answer, *, messages: Messages, first_call: int, clock: Clock, word_seconds: float
) -> AsyncGenerator[StreamEvent, None]:
    """An answer, word by word, in the order that `StreamEvent` describes.

    Args:
        answer: The answer.
        messages: The history, to count its words.
        first_call: The number of the first call that has no id.
        clock: Paces the words.
        word_seconds: Seconds before each word; 0 is without a pause.

    Raises:
        Exception: The answer's own `error`.
    """
    yield {"messageStart": {"role": "assistant"}}
    index = 0
    if answer.reasoning:
        for piece in word_pieces(answer.reasoning):
            delta = {"reasoningContent": {"text": piece}}
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
        index += 1
    pieces = word_pieces(answer.text)
    for done, piece in enumerate(pieces):
        await _reach(answer, done)
        if word_seconds > 0:
            await clock.sleep(word_seconds)
        yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": piece}}}
    await _reach(answer, len(pieces))
    if pieces:
        yield {"contentBlockStop": {"contentBlockIndex": index}}
        index += 1
    calls = numbered_calls(answer.tool_uses, first_call)
    for call in calls:
        start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
        yield {"contentBlockStart": {"contentBlockIndex": index, "start": start}}
        for piece in _halves(json.dumps(call["input"])):
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
        index += 1
    if answer.redact_user is not None:
        yield {"redactContent": {"redactUserContentMessage": answer.redact_user}}
    if answer.redact_answer is not None:
        yield {"redactContent": {"redactAssistantContentMessage": answer.redact_answer}}
    yield {"messageStop": {"stopReason": answer.stop_reason or ("tool_use" if calls else "end_turn")}}
    usage: dict[str, Any] = dict(answer.usage or {})
    if not usage:
        heard, said = count_tokens(messages), len(pieces)
        usage = {"inputTokens": heard, "outputTokens": said, "totalTokens": heard + said}
    yield {"metadata": {"usage": usage}}


async def _reach(answer: Answer, words: int) -> None:
    if answer.error is not None and answer.error_after_words == words:
        raise answer.error
    if answer.until is not None and answer.pause_after_words == words:
        await answer.until.wait()


def _halves(text: str) -> Iterator[str]:
    # In two pieces, because a provider sends several, and who joins them wrongly should see it here.
    middle = len(text) // 2
    yield text[:middle]
    yield text[middle:]

"""What an agent may be asked with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from antiphon.content import ContentBlock, ImageBlock, Message, Messages, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.errors import InvalidInputError, SnapshotException
from antiphon.jsonable import copy_json
from antiphon.snapshot.checks import check_message

AgentInput = (
    str
    | Sequence[str | TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ContentBlock]
    | Sequence[Message]
    | Sequence[dict[str, Any]]
    | None
)
"""A text, content blocks (one message), whole messages, answers to questions, or None: go on with what is there."""


def prompt_messages(prompt: object) -> Messages:
    """The messages that a prompt adds to the history; copies.

    Raises:
        InvalidInputError: If `prompt` is nothing that an agent may be asked with.
    """
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [{"role": "user", "content": [_block(prompt)]}]
    if not isinstance(prompt, (list, tuple)):
        raise InvalidInputError(
            "Input prompt must be of type: `str | list[ContentBlock] | list[Message] | list[interruptResponse] | None`, "
            f"not {type(prompt).__name__}"
        )
    entries = cast("Sequence[Any]", prompt)
    if not entries:
        return []
    whole = [isinstance(entry, dict) and "role" in entry for entry in entries]
    if all(whole):
        return [_message(entry, index) for index, entry in enumerate(entries)]
    if any(whole):
        raise InvalidInputError("the prompt mixes messages and content blocks: give one or the other")
    return [{"role": "user", "content": [_block(entry) for entry in entries]}]


def _message(entry: object, index: int) -> Message:
    message = cast("Message", copy_json(entry, f"prompt[{index}]"))
    try:
        check_message(message, f"prompt[{index}]")
    except SnapshotException as error:
        raise InvalidInputError(str(error)) from None
    if not message["content"]:
        raise InvalidInputError(f"prompt[{index}].content is empty")
    return message


def _block(entry: object) -> ContentBlock:
    if isinstance(entry, str):
        entry = {"text": entry}
    if isinstance(entry, (TextBlock, ImageBlock, ToolUseBlock, ToolResultBlock)):
        entry = entry.to_dict()
    if not isinstance(entry, dict) or not entry:
        raise InvalidInputError(f"the prompt holds {entry!r}, which is no content block")
    block = cast("ContentBlock", copy_json(entry, "prompt"))
    if "interruptResponse" in block:
        raise InvalidInputError("the prompt answers a question, but none is open")
    if "text" in block and not block["text"].strip():
        raise InvalidInputError("the prompt has an empty text")
    try:
        check_message({"role": "user", "content": [block]}, "prompt")
    except SnapshotException as error:
        raise InvalidInputError(str(error)) from None
    return block

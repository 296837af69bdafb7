"""The conversation as the provider's items: what is replayed to a new session, and what is said to a running one. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from antiphon.content import (
    BidiMessage,
    Block,
    ContentBlock,
    ImageBlock,
    Message,
    Messages,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from antiphon.errors import InvalidInputError
from antiphon.jsonable import encode_json

LONGEST_ID = 32
"""Characters of an item's or a call's id."""
REPLAYED_CHARS = 64_000
"""How much of the history a new session is told: about 16,000 tokens, half of the smallest model's window."""
_IMAGE_CHARS = 4_000  # what an image counts for
_IMAGES = {"png", "jpeg"}
"""What the Realtime API takes as `input_image`."""
_UNSEEN = "[an image]"

Item = dict[str, Any]


def call_id(tool_use_id: str) -> str:
    """The id under which the provider knows a call: other providers' ids may be longer than it takes.

    >>> call_id("call_1"), len(call_id("tooluse_" + "x" * 40))
    ('call_1', 32)
    """
    if 0 < len(tool_use_id) <= LONGEST_ID:
        return tool_use_id
    return "call_" + sha256(tool_use_id.encode("utf-8", "surrogatepass")).hexdigest()[: LONGEST_ID - 5]


def replay(messages: Messages, budget: int = REPLAYED_CHARS) -> list[Item]:
    """What tells a new session of the conversation so far, in order.

    The newest messages are kept, whole, as far as they fit `budget` (at least one). A call without its result, and a result
    without its call, are left out; so is what the provider takes no part in (documents, reasoning). What was said aloud
    comes back as text: sound cannot be handed in.

    Args:
        messages: The history.
        budget: Characters, all told.
    """
    kept = _newest(messages, budget)
    paired = _paired(kept)
    items: list[Item] = []
    for message in kept:
        parts: list[dict[str, Any]] = []
        for block in message["content"]:
            if "toolUse" in block or "toolResult" in block:
                items += _spoken(message, parts)
                parts = []
                items += _tool_items(block, paired)
            else:
                parts += _part(message, block)
        items += _spoken(message, parts)
    return items


def _newest(messages: Messages, budget: int) -> Messages:
    left, first = budget, len(messages)
    while first > 0:
        size = _size(messages[first - 1])
        if size > left and first < len(messages):
            break
        left, first = left - size, first - 1
    return messages[first:]


def _size(message: Message) -> int:
    size = 0
    for block in message["content"]:
        if "text" in block:
            size += len(block["text"])
        elif "image" in block:
            size += _IMAGE_CHARS
        elif "toolUse" in block:
            size += len(encode_json(block["toolUse"]["input"])) + len(block["toolUse"]["name"])
        elif "toolResult" in block:
            size += len(output_of(block["toolResult"]["status"], block["toolResult"]["content"]))
    return size


def _paired(messages: Messages) -> set[str]:
    """The ids of calls that have a result after them."""
    open_calls: set[str] = set()
    paired: set[str] = set()
    for message in messages:
        for block in message["content"]:
            if "toolUse" in block:
                open_calls.add(block["toolUse"]["toolUseId"])
            elif "toolResult" in block and block["toolResult"]["toolUseId"] in open_calls:
                paired.add(block["toolResult"]["toolUseId"])
    return paired


def _tool_items(block: ContentBlock, paired: set[str]) -> list[Item]:
    if "toolUse" in block:
        use = block["toolUse"]
        return [function_call(use["toolUseId"], use["name"], use["input"])] if use["toolUseId"] in paired else []
    result = block.get("toolResult")
    if result is None or result["toolUseId"] not in paired:
        return []
    paired.discard(result["toolUseId"])  # one result for each call
    return [function_output(result["toolUseId"], result["status"], result["content"])]


def _spoken(message: Message, parts: list[dict[str, Any]]) -> list[Item]:
    return [{"type": "message", "role": message["role"], "content": parts}] if parts else []


def _part(message: Message, block: ContentBlock) -> list[dict[str, Any]]:
    by_user = message["role"] == "user"
    if "text" in block and block["text"].strip():
        return [{"type": "input_text" if by_user else "output_text", "text": block["text"]}]
    if "image" not in block:
        return []
    image = block["image"]
    if by_user and image["format"] in _IMAGES and "bytes" in image["source"]:
        return [image_part(image["format"], image["source"]["bytes"])]
    return [{"type": "input_text" if by_user else "output_text", "text": _UNSEEN}]


def image_part(form: str, data: bytes) -> dict[str, Any]:
    """An image within a user's message."""
    return {"type": "input_image", "image_url": f"data:image/{form};base64,{b64encode(data).decode()}"}


def function_call(tool_use_id: str, name: str, value: Any) -> Item:
    """A call, as the provider would have made it."""
    return {
        "type": "function_call",
        "call_id": call_id(tool_use_id),
        "name": name,
        "arguments": encode_json(value).decode(),
    }


def function_output(tool_use_id: str, status: str, content: Sequence[Mapping[str, Any]]) -> Item:
    """What a call came to."""
    return {"type": "function_call_output", "call_id": call_id(tool_use_id), "output": output_of(status, content)}


def output_of(status: str, content: Sequence[Mapping[str, Any]]) -> str:
    """A result as the one text that the provider takes: plain where it is text, else JSON; an error is named as one."""
    plain = [block.get("text", _UNSEEN) for block in content if "text" in block or "image" in block]
    if len(plain) == len(content):
        text = "\n".join(plain)
        return text if status == "success" else encode_json({"error": text}).decode()
    values = [block["json"] if "json" in block else block.get("text", _UNSEEN) for block in content]
    value = values[0] if len(values) == 1 else values
    return encode_json(value if status == "success" else {"error": value}).decode()


def said(message: BidiMessage) -> list[Item]:
    """What the user typed, or tools came to, as items.

    Raises:
        InvalidInputError: If there is something in it that the provider does not take.
    """
    items: list[Item] = []
    parts: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case ToolUseBlock():
                items.append(function_call(block.tool_use_id, block.name, block.input))
            case ToolResultBlock():
                items.append(function_output(block.tool_use_id, block.status, block.content))
            case _:
                parts += _typed(block)
    if parts:
        items.append({"type": "message", "role": "user", "content": parts})
    return items


def _typed(block: Block) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock):
        return [{"type": "input_text", "text": block.text}] if block.text else []
    if not isinstance(block, ImageBlock):
        raise InvalidInputError(f"{type(block).__name__} cannot be sent to a Realtime session")
    if block.format not in _IMAGES:
        raise InvalidInputError(
            f"an image of format {block.format!r} cannot be sent: the Realtime API takes png and jpeg"
        )
    data = block.source.get("bytes")
    if not data:
        raise InvalidInputError("an image without bytes cannot be sent: the Realtime API takes no other source")
    return [image_part(block.format, data)]

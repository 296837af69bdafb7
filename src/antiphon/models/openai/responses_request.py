"""A conversation as a request to OpenAI's Responses API. Pure.

Source: OpenAI's reference of `POST /v1/responses`. What it demands: each `function_call_output` belongs to a call that the
server knows or that stands before it, every call has one, and a `reasoning` item is followed by what was thought out. Ids of
items are not sent: with them the server would look for items that it does not keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.content import ContentBlock, Message, Messages, SystemContentBlock, ToolResult, ToolSpec
from antiphon.conversation.repair import repair
from antiphon.models.openai.parts import (
    SKIPPED,
    arguments,
    call_id,
    document,
    image_url,
    reasoning_text,
    refused_block,
    result_text,
    system_text,
    text_of_block,
)
from antiphon.models.schemas import object_schema

OWN = ("background", "input", "model", "previous_response_id", "store", "stream")
"""Parameters that are the model's own to set."""
ENCRYPTED = "reasoning.encrypted_content"
_SIGNED = "openai-reasoning:"


def responses_request(
    items: Sequence[Mapping[str, Any]],
    tool_specs: Sequence[ToolSpec] | None,
    system_prompt: str | Sequence[SystemContentBlock] | None,
    *,
    model_id: str,
    params: Mapping[str, Any],
    store: bool,
    previous: str | None = None,
    encrypted: bool = False,
) -> dict[str, Any]:
    """The body of the request.

    Args:
        items: What is new to the server: `input_items`.
        tool_specs: The tools.
        system_prompt: The system prompt; the server does not keep it.
        model_id: The model.
        params: More parameters; `tools` and `include` are joined with those made here.
        store: Whether the server keeps the response.
        previous: The response that this goes on from.
        encrypted: Whether reasoning is wanted in the form that can be sent back.
    """
    body: dict[str, Any] = {**params, "model": model_id, "stream": True, "store": store, "input": list(items)}
    if system := system_text(system_prompt):
        body["instructions"] = system
    if tools := [*params.get("tools", ()), *map(_tool, tool_specs or ())]:
        body["tools"] = tools
    if previous is not None:
        body["previous_response_id"] = previous
    if encrypted:
        body["include"] = [*dict.fromkeys([*params.get("include", ()), ENCRYPTED])]
    return body


def input_items(messages: Messages, open_calls: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Messages as input.

    Args:
        messages: Any messages; what the API would refuse of them is mended.
        open_calls: Ids of calls that the server has and that have no result there yet; each gets one.

    Raises:
        ModelRequestError: If a block is none that the API takes.
    """
    # As if the server's calls stood before: what the repair says of their results is what is sent.
    known: Messages = []
    if open_calls:
        known = [
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": key, "name": "known", "input": {}}} for key in open_calls],
            }
        ]
    items: list[dict[str, Any]] = []
    for index, message in enumerate(repair([*known, *messages])[len(known) :]):
        where = f"messages[{index}]"
        items += _assistant(message, where) if message["role"] == "assistant" else _user(message, where)
    return items


def signature(item_id: str, encrypted: str) -> str:
    """What a reasoning block keeps of its item, so that it can be sent back."""
    return _SIGNED + json.dumps([item_id, encrypted])


def without_reasoning(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Input without what was thought: for a server that cannot read it."""
    return [item for item in items if item.get("type") != "reasoning"]


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": spec["name"],
        "description": spec["description"],
        "parameters": object_schema(spec["inputSchema"]["json"]),
        "strict": False,  # strict schemas are a dialect of their own, which tools need not speak
    }


def _assistant(message: Message, where: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message["content"]:
        if "toolUse" in block:
            use = block["toolUse"]
            items.append(
                {
                    "type": "function_call",
                    "call_id": call_id(use["toolUseId"]),
                    "name": use["name"],
                    "arguments": arguments(use["input"]),
                }
            )
        elif "reasoningContent" in block:
            items += _reasoning(reasoning_text(block))
        elif (text := text_of_block(block)) is not None:
            items.append(said(text))
        elif not SKIPPED & block.keys():
            raise refused_block(block, where)
    while items and items[-1]["type"] == "reasoning":  # nothing came of it, and the API wants that
        items.pop()
    return items


def said(text: str) -> dict[str, Any]:
    """An item of what the model said."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _reasoning(thought: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A reasoning block as an item, where it came from this API; of other providers' thoughts it can read nothing."""
    signed = str(thought.get("signature") or "")
    if not signed.startswith(_SIGNED):
        return []
    try:
        item_id, encrypted = json.loads(signed.removeprefix(_SIGNED))
    except ValueError:
        return []
    text = thought.get("text")
    summary = [{"type": "summary_text", "text": text}] if text else []
    return [{"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": encrypted}]


def _user(message: Message, where: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message["content"]:
        if "toolResult" in block:
            result = block["toolResult"]
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": call_id(result["toolUseId"]),
                    "output": _output(result, where),
                }
            )
        elif (part := _part(block, where)) is not None:
            parts.append(part)
    if parts:
        items.append({"type": "message", "role": "user", "content": parts})
    return items


def _output(result: ToolResult, where: str) -> str | list[dict[str, Any]]:
    text = result_text(result)
    shown: list[dict[str, Any]] = []
    for block in result["content"]:
        if text_of_block(block) is not None:
            continue
        if "image" in block:
            shown.append({"type": "input_image", "image_url": image_url(block["image"], where), "detail": "auto"})
        elif "document" in block:
            shown.append(_file(block["document"], where))
        elif not SKIPPED & block.keys():
            raise refused_block(block, where)
    if not shown:
        return text
    return [*([{"type": "input_text", "text": text}] if text else []), *shown]


def _part(block: ContentBlock, where: str) -> dict[str, Any] | None:
    if (text := text_of_block(block)) is not None:
        return {"type": "input_text", "text": text}
    if "image" in block:
        return {"type": "input_image", "image_url": image_url(block["image"], where), "detail": "auto"}
    if "document" in block:
        return _file(block["document"], where)
    if SKIPPED & block.keys():
        return None
    raise refused_block(block, where)


def _file(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    given = document(entry, where)
    if isinstance(given, str):
        return {"type": "input_text", "text": given}
    name, data = given
    return {"type": "input_file", "filename": name, "file_data": data}

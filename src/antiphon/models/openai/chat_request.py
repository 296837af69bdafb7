"""A conversation as a request for chat completions. Pure.

Source: OpenAI's reference of `POST /v1/chat/completions`. What it demands: each `tool` message follows the assistant's
message that made the call, and every call of it is answered before anything else; only a user's message holds images and
files, so those of a tool's result stand in a message of their own after the results.
"""

from __future__ import annotations

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

OWN = ("messages", "model", "stream")
"""Parameters that are the model's own to set."""


def chat_request(
    messages: Messages,
    tool_specs: Sequence[ToolSpec] | None,
    system_prompt: str | Sequence[SystemContentBlock] | None,
    *,
    model_id: str,
    params: Mapping[str, Any],
    send_reasoning: bool = False,
) -> dict[str, Any]:
    """The body of the request.

    Args:
        messages: Any history; what the API would refuse of it is mended.
        tool_specs: The tools.
        system_prompt: The system prompt.
        model_id: The model.
        params: More parameters; `tools` and `stream_options` are joined with those made here.
        send_reasoning: Whether the reasoning of earlier answers goes back, as `reasoning_content`.

    Raises:
        ModelRequestError: If a block is none that the API takes.
    """
    body: dict[str, Any] = {**params, "model": model_id, "stream": True}
    options = params.get("stream_options", {})
    if options is None:  # for servers that do not know it
        del body["stream_options"]
    else:
        body["stream_options"] = {"include_usage": True, **options}
    if tools := [*params.get("tools", ()), *map(_tool, tool_specs or ())]:
        body["tools"] = tools
    body["messages"] = chat_messages(messages, system_prompt, send_reasoning=send_reasoning)
    return body


def chat_messages(
    messages: Messages, system_prompt: str | Sequence[SystemContentBlock] | None, *, send_reasoning: bool = False
) -> list[dict[str, Any]]:
    """The history in the API's shape; arguments and errors as in `chat_request`."""
    system = system_text(system_prompt)
    sent: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for index, message in enumerate(repair(messages)):
        if message["role"] == "assistant":
            sent += _assistant(message, f"messages[{index}]", send_reasoning=send_reasoning)
        else:
            sent += _user(message, f"messages[{index}]")
    return sent


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": spec["name"],
            "description": spec["description"],
            "parameters": object_schema(spec["inputSchema"]["json"]),
        },
    }


def _assistant(message: Message, where: str, *, send_reasoning: bool) -> list[dict[str, Any]]:
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message["content"]:
        if "toolUse" in block:
            use = block["toolUse"]
            calls.append(
                {
                    "id": call_id(use["toolUseId"]),
                    "type": "function",
                    "function": {"name": use["name"], "arguments": arguments(use["input"])},
                }
            )
        elif "reasoningContent" in block:
            reasoning.append(str(reasoning_text(block).get("text", "")))
        elif (text := text_of_block(block)) is not None:
            texts.append(text)
        elif not SKIPPED & block.keys():
            raise refused_block(block, where)
    if not texts and not calls:
        return []
    sent: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    if calls:
        sent["tool_calls"] = calls
    if send_reasoning and any(reasoning):
        sent["reasoning_content"] = "\n".join(reasoning)
    return [sent]


def _user(message: Message, where: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message["content"]:
        if "toolResult" in block:
            result = block["toolResult"]
            sent.append(
                {
                    "role": "tool",
                    "tool_call_id": call_id(result["toolUseId"]),
                    "content": result_text(result),
                }
            )
            parts += _shown_by(result, where)
    for block in message["content"]:
        if "toolResult" not in block and (part := _part(block, where)) is not None:
            parts.append(part)
    if not parts:
        return sent
    if all(part["type"] == "text" for part in parts):  # a plain text is what every compatible server takes
        return [*sent, {"role": "user", "content": "\n".join(part["text"] for part in parts)}]
    return [*sent, {"role": "user", "content": parts}]


def _shown_by(result: ToolResult, where: str) -> list[dict[str, Any]]:
    """Images and files of a tool's result, after a word that says where they are from."""
    shown: list[dict[str, Any]] = []
    for block in result["content"]:
        if text_of_block(block) is not None:
            continue
        if "image" in block:
            shown.append({"type": "image_url", "image_url": {"url": image_url(block["image"], where)}})
        elif "document" in block:
            shown.append(_file(block["document"], where))
        elif not SKIPPED & block.keys():
            raise refused_block(block, where)
    if shown:
        shown.insert(0, {"type": "text", "text": f"Result of the call {call_id(result['toolUseId'])}, continued:"})
    return shown


def _part(block: ContentBlock, where: str) -> dict[str, Any] | None:
    if (text := text_of_block(block)) is not None:
        return {"type": "text", "text": text}
    if "image" in block:
        return {"type": "image_url", "image_url": {"url": image_url(block["image"], where)}}
    if "document" in block:
        return _file(block["document"], where)
    if SKIPPED & block.keys():
        return None
    raise refused_block(block, where)


def _file(entry: dict[str, Any], where: str) -> dict[str, Any]:
    given = document(entry, where)
    if isinstance(given, str):
        return {"type": "text", "text": given}
    name, data = given
    return {"type": "file", "file": {"filename": name, "file_data": data}}

"""A conversation as a request of llama.cpp, which reads OpenAI's chat completions. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from antiphon.content import ContentBlock, Messages, SystemContentBlock, ToolSpec
from antiphon.errors import ModelRequestError
from antiphon.jsonable import encode_json

_BEGINNING = "[the conversation begins]"
_BLANK = "[blank]"


def chat_request(
    config: Mapping[str, Any],
    messages: Messages,
    tool_specs: list[ToolSpec] | None,
    system_prompt: str | list[SystemContentBlock] | None,
    *,
    takes_tools: bool,
) -> dict[str, Any]:
    """The request.

    Args:
        config: The model's configuration.
        messages: The history. Most templates want roles that alternate from a user's on, so they do.
        tool_specs: Tools; none where `takes_tools` is False.
        system_prompt: The system prompt.
        takes_tools: Whether the template has a place for calls. Where it has none, the calls of a history are told in words.

    Raises:
        ModelRequestError: If a block is neither text, picture, call, result nor reasoning.
    """
    request: dict[str, Any] = {
        "messages": _messages(messages, system_prompt, takes_tools=takes_tools),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # so that a request can be let go of while its prompt is read
    }
    names = {"stop_sequences": "stop"}
    for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "cache_prompt", "stop_sequences"):
        if config.get(name) is not None:
            request[names.get(name, name)] = config[name]
    if tool_specs:
        request["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": spec["name"],
                    "description": spec["description"],
                    "parameters": spec["inputSchema"].get("json", {"type": "object"}),
                },
            }
            for spec in tool_specs
        ]
    return {**request, **(config.get("params") or {})}


def _messages(
    messages: Messages, system_prompt: str | list[SystemContentBlock] | None, *, takes_tools: bool
) -> list[dict[str, Any]]:
    blocks = [{"text": system_prompt}] if isinstance(system_prompt, str) else system_prompt or []
    system = "\n".join(text for block in blocks if (text := block.get("text", "").strip()))
    out: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            if "toolUse" in block:
                names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
        for made in _parts(message["role"], message["content"], names, takes_tools=takes_tools):
            if not out and made["role"] != "user":
                out.append({"role": "user", "content": [_text(_BEGINNING)]})
            if out and made["role"] in {"user", "assistant"} and out[-1]["role"] == made["role"]:
                out[-1]["content"] += made["content"]
                out[-1]["tool_calls"] += made["tool_calls"]
            else:
                out.append(made)
    return [*([{"role": "system", "content": system}] if system else []), *map(_finished, out)]


def _parts(
    role: str, content: list[ContentBlock], names: Mapping[str, str], *, takes_tools: bool
) -> list[dict[str, Any]]:
    """A message as those that it becomes: results of tools are messages of their own, before the others' words."""
    results: list[dict[str, Any]] = []
    said: dict[str, Any] = {"role": role, "content": [], "tool_calls": []}
    for block in content:
        if "toolResult" in block and takes_tools:
            result = block["toolResult"]
            told = _result_text(result["content"])
            text = f"Error: {told}" if result["status"] == "error" else told
            results.append({"role": "tool", "tool_call_id": result["toolUseId"], "content": text})
        elif "toolResult" in block:
            result = block["toolResult"]
            name = names.get(result["toolUseId"], "the tool")
            said["content"].append(_text(f"[{name} gave: {_result_text(result['content'])}]"))
        elif "toolUse" in block and takes_tools:
            use = block["toolUse"]
            function = {"name": use["name"], "arguments": encode_json(use["input"]).decode()}
            call = {"id": use["toolUseId"], "type": "function", "function": function}
            said["tool_calls"].append(call)
        elif "toolUse" in block:
            use = block["toolUse"]
            said["content"].append(_text(f"[called {use['name']} with {encode_json(use['input']).decode()}]"))
        else:
            said["content"] += _piece(block)
    return [*results, *([said] if said["content"] or said["tool_calls"] or not results else [])]


def _piece(block: ContentBlock) -> list[dict[str, Any]]:
    if "text" in block:
        return [_text(block["text"])] if block["text"].strip() else []
    if "image" in block:
        data = b64encode(block["image"]["source"].get("bytes", b"")).decode()
        return [{"type": "image_url", "image_url": {"url": f"data:image/{block['image']['format']};base64,{data}"}}]
    if "reasoningContent" in block or "cachePoint" in block:
        return []
    raise ModelRequestError(f"a local model reads text and pictures, and a message has {sorted(block)!r}: leave it out")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result_text(content: list[dict[str, Any]]) -> str:
    told = [
        str(part["text"])
        if "text" in part
        else encode_json(part["json"]).decode()
        if "json" in part
        else f"[{next(iter(part), 'nothing')}]"
        for part in content
    ]
    return "\n".join(told)


def _finished(message: dict[str, Any]) -> dict[str, Any]:
    """Plain text where there is nothing else: some templates know no list."""
    if message["role"] == "tool":
        return message
    parts: list[dict[str, Any]] = message["content"]
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    content: Any = parts
    if all(part["type"] == "text" for part in parts):
        content = "\n".join(part["text"] for part in parts) or (None if calls else _BLANK)
    return {"role": message["role"], "content": content, **({"tool_calls": calls} if calls else {})}

"""A conversation as a request of Anthropic's Messages API. Pure.

The API wants the user to begin and to end, results of tools before anything else in the message that follows their calls,
no blank text, and ids of letters, digits, `_` and `-`. Whatever the agent's history is like, the request is like that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from antiphon.content import Message, Messages, SystemContentBlock, ToolSpec
from antiphon.models.anthropic.blocks import block_of
from antiphon.models.schemas import object_schema

OWN = frozenset({"model", "max_tokens", "messages", "stream", "system"})
"""Parameters of the API that the model sets by itself."""

BEGINNING = "[The conversation begins.]"
"""What the user says where a history begins with the assistant."""
GO_ON = "[Go on.]"
"""What the user says where a history ends with the assistant: today's models do not continue an answer."""

_MOST_CACHE_POINTS = 4
_LIFETIMES = {"5m", "1h"}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THOUGHTS = {"thinking", "redacted_thinking"}


def messages_request(
    messages: Messages,
    tool_specs: list[ToolSpec] | None,
    system_prompt: str | list[SystemContentBlock] | None,
    *,
    model_id: str,
    max_tokens: int,
    params: Mapping[str, Any],
) -> dict[str, Any]:
    """The body of a request.

    Args:
        messages: The history.
        tool_specs: The tools; they come before those in `params`.
        system_prompt: The system prompt.
        model_id: The model.
        max_tokens: How long the answer may be.
        params: More parameters of the API; `tools` are added to the agent's own.

    Raises:
        ModelRequestError: If there is content that the model cannot take.
    """
    request: dict[str, Any] = {**params, "model": model_id, "max_tokens": max_tokens, "stream": True}
    tools = [_tool(spec) for spec in tool_specs or []] + list(params.get("tools", []))
    request.pop("tools", None)
    if tools:
        request["tools"] = tools
    system = _system(system_prompt)
    if system:
        request["system"] = system
    request["messages"] = turns = _turns(messages)
    _limit_cache_points(request)
    thinking: dict[str, Any] = params.get("thinking") or {}
    if thinking.get("type") == "enabled" and _calls_without_thought(turns):
        # Half a turn of another model's: the API would want to see Claude's thoughts before the calls.
        request["thinking"] = {"type": "disabled"}
    return request


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = object_schema(spec["inputSchema"].get("json", {}))
    return {"name": spec["name"], "description": spec["description"], "input_schema": schema}


def _system(prompt: str | list[SystemContentBlock] | None) -> str | list[dict[str, Any]]:
    if prompt is None or isinstance(prompt, str):
        return prompt if prompt and prompt.strip() else ""
    blocks: list[dict[str, Any]] = []
    for block in prompt:
        if "cachePoint" in block:
            _mark(blocks, block["cachePoint"])
        text = block.get("text", "") or block.get("guardContent", {}).get("text", {}).get("text", "")
        if text.strip():
            blocks.append({"type": "text", "text": text})
    return blocks


def _turns(messages: Messages) -> list[dict[str, Any]]:
    ids = _ids(messages)
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = _blocks(message, ids)
        if not blocks:
            continue
        if not turns and message["role"] == "assistant":
            turns.append({"role": "user", "content": [{"type": "text", "text": BEGINNING}]})
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": message["role"], "content": blocks})
    if turns and turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": [{"type": "text", "text": GO_ON}]})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=_follows_results)  # stable
    return turns


def _follows_results(block: Mapping[str, Any]) -> bool:
    return bool(block["type"] != "tool_result")


def _blocks(message: Message, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in message["content"]:
        if "cachePoint" in block:
            _mark(blocks, block["cachePoint"])
        elif message["role"] == "user" or not ("document" in block or "image" in block):
            blocks += block_of(block, ids)
    return blocks


def _mark(blocks: list[dict[str, Any]], point: Mapping[str, Any]) -> None:
    """Let what comes before the point be cached. Thoughts cannot carry the mark."""
    marked = next((block for block in reversed(blocks) if block["type"] not in _THOUGHTS), None)
    if marked is not None:
        lifetime = {"ttl": point["ttl"]} if point.get("ttl") in _LIFETIMES else {}
        marked["cache_control"] = {"type": "ephemeral", **lifetime}


def _limit_cache_points(request: Mapping[str, Any]) -> None:
    """The API takes four marks. The system prompt's are kept, and of the others the newest."""
    system: str | list[dict[str, Any]] = request.get("system", "")
    fixed: list[dict[str, Any]] = [*request.get("tools", []), *([] if isinstance(system, str) else system)]
    left = _MOST_CACHE_POINTS - sum("cache_control" in block for block in fixed) - ("cache_control" in request)
    blocks = [block for turn in request["messages"] for block in turn["content"] if "cache_control" in block]
    for block in blocks[: len(blocks) - max(0, left)]:
        del block["cache_control"]


def _calls_without_thought(turns: list[dict[str, Any]]) -> bool:
    if len(turns) < 2:
        return False
    content = turns[-2]["content"]
    return any(block["type"] == "tool_use" for block in content) and content[0]["type"] not in _THOUGHTS


def _ids(messages: Messages) -> dict[str, str]:
    """For each id of a call the one that the API takes: the same, where it can be."""
    given = [
        block["toolUse"]["toolUseId"] for message in messages for block in message["content"] if "toolUse" in block
    ]
    ids = {key: key for key in given if _LEGAL_ID.fullmatch(key)}
    taken = set(ids)
    for key in given:
        if key in ids:
            continue
        base = re.sub(r"[^a-zA-Z0-9_-]", "_", key) or "call"
        free, number = base, 1
        while free in taken:
            number += 1
            free = f"{base}-{number}"
        ids[key] = free
        taken.add(free)
    return ids

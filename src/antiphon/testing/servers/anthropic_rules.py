"""What Anthropic's Messages API refuses, in its own words. Pure.

Sources: the API reference (versions, errors, the Messages endpoint) and error texts that users of the API have reported.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

VERSIONS = {"2023-06-01", "2026-10-21"}
LATEST = "2026-10-21"

_REMOVED = {"temperature", "top_p", "top_k"}
_FIELDS = {
    *["model", "messages", "max_tokens", "cache_control", "container", "diagnostics", "inference_geo", "metadata"],
    *[
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    ],
    *["user_profile_id", "workspace_id", "context_management", "mcp_servers"],
}
_IDS = re.compile(r"[a-zA-Z0-9_-]+")
_NAMES = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_BLOCKS = {
    "user": {"text", "image", "document", "tool_result", "search_result", "container_upload"},
    "assistant": {
        *["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result"],
        *["document", "image"],
    },
}
_MOST_CACHED = 4


class Refusal(Exception):
    """A request that the API refuses."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.type, self.message = status, kind, message


def error_body(kind: str, message: str, request_id: str = "req_loopback") -> dict[str, Any]:
    """An error as the API writes it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def sign(thinking: str) -> str:
    """The signature of a thought: any server can check it, and nobody else can make it for another text."""
    return b64encode(hashlib.sha256(b"antiphon loopback " + thinking.encode()).digest()).decode()


def check_headers(headers: Mapping[str, str], key: str) -> None:
    """Raise what is wrong with the headers: the key first, then the version."""
    given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    if not given:
        raise Refusal(401, "authentication_error", "x-api-key header is required")
    if given != key:
        raise Refusal(401, "authentication_error", "invalid x-api-key")
    version = headers.get("anthropic-version")
    if version is None:
        raise _invalid("anthropic-version: header is required")
    if version not in VERSIONS:
        raise _invalid(f'anthropic-version: "{version}" is not a valid version')


def check_body(
    body: Any, *, model_id: str, version: str, context_tokens: int, most_tokens: int, paused: str | None = None
) -> None:
    """Raise the first thing that is wrong with a request.

    `paused` is what was said before a pause: a request that ends with it goes on from there.
    """
    if not isinstance(body, dict):
        raise _invalid("Input should be an object")
    request = cast("dict[str, Any]", body)
    for name in ("model", "max_tokens", "messages"):
        if name not in request:
            raise _invalid(f"{name}: Field required")
    for name in request:
        if name not in _FIELDS and not (name in _REMOVED and version != LATEST):
            raise _invalid(f"{name}: Extra inputs are not permitted")
    if request["model"] != model_id:
        raise Refusal(404, "not_found_error", f"model: {request['model']}")
    _check_limit(request, model_id, most_tokens)
    _check_tools(request.get("tools", []))
    _check_messages(request, version, paused)
    _check_cache(request)
    tokens = count_tokens(request)
    if tokens > context_tokens:
        raise _invalid(f"prompt is too long: {tokens} tokens > {context_tokens} maximum")


def count_tokens(request: Mapping[str, Any]) -> int:
    """About how long a request is: four characters of what it says are a token."""
    return sum(len(text) for text in _texts([request.get("system", ""), request["messages"]])) // 4 + 1


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("Iterable[Any]", value):
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key not in {"type", "role", "data", "signature", "media_type", "id", "tool_use_id"}:
                yield from _texts(item)


def _invalid(message: str) -> Refusal:
    return Refusal(400, "invalid_request_error", message)


def _check_limit(request: Mapping[str, Any], model_id: str, most_tokens: int) -> None:
    limit = request["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise _invalid("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise _invalid("max_tokens: Input should be greater than or equal to 1")
    if limit > most_tokens:
        raise _invalid(
            f"max_tokens: {limit} > {most_tokens}, which is the maximum allowed number of output tokens for {model_id}"
        )
    thinking: dict[str, Any] = request.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int):
            raise _invalid("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise _invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= limit:
            raise _invalid("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_tools(tools: list[dict[str, Any]]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool.get("name", "")
        if tool.get("type", "custom") != "custom":
            continue
        if not _NAMES.fullmatch(name):
            raise _invalid(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if "input_schema" not in tool:
            raise _invalid(f"tools.{index}.custom.input_schema: Field required")
        if tool["input_schema"].get("type") != "object":
            raise _invalid(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        if {"oneOf", "allOf", "anyOf"} & tool["input_schema"].keys():
            raise _invalid(
                f"tools.{index}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            )
        if name in names:
            raise _invalid("tools: Tool names must be unique.")
        names.add(name)


def _check_messages(request: Mapping[str, Any], version: str, paused: str | None) -> None:
    messages = request["messages"]
    if not messages:
        raise _invalid("messages: at least one message is required")
    turns: list[tuple[int, str, list[dict[str, Any]]]] = []  # consecutive messages of one role are one turn
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in _BLOCKS:
            raise _invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[Any]", content)
        if not blocks:
            raise _invalid(
                f"messages.{index}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
        for place, block in enumerate(blocks):
            _check_block(f"messages.{index}.content.{place}", role, block, version)
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(blocks)
        else:
            turns.append((index, role, list(blocks)))
    if turns[0][1] != "user":
        raise _invalid('messages: first message must use the "user" role')
    _check_pairs(turns)
    if turns[-1][1] == "assistant" and paused not in [block.get("text", "") for block in turns[-1][2]]:
        raise _invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _check_thinking(request, turns)


def _check_block(at: str, role: str, block: Mapping[str, Any], version: str) -> None:
    kind = block.get("type")
    if kind not in _BLOCKS[role] or (kind == "document" and role == "assistant" and version == LATEST):
        expected = ", ".join(f"'{name}'" for name in sorted(_BLOCKS[role]))
        raise _invalid(
            f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
        )
    if kind == "text":
        if not block["text"]:
            raise _invalid("messages: text content blocks must be non-empty")
        if not block["text"].strip():
            raise _invalid("messages: text content blocks must contain non-whitespace text")
        if role == "user" and block.get("citations") and version == LATEST:
            raise _invalid(f"{at}.text.citations: Extra inputs are not permitted")
    elif kind == "image":
        _check_image(at, block["source"])
    elif kind == "tool_use":
        if not _IDS.fullmatch(block["id"]):
            raise _invalid(f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(block["input"], dict):
            raise _invalid(f"{at}.tool_use.input: Input should be a valid dictionary")
        extra = set(block) - {"type", "id", "name", "input", "cache_control", "caller"}
        if extra:
            raise _invalid(f"{at}.tool_use.{min(extra)}: Extra inputs are not permitted")
    elif kind == "tool_result":
        _check_result(at, block)
    elif kind == "thinking" and block.get("signature") != sign(block["thinking"]):
        raise _invalid(f"{at}: Invalid `signature` in `thinking` block")
    elif kind == "redacted_thinking" and not str(block.get("data", "")).startswith("redacted:"):
        raise _invalid(f"{at}: Invalid `data` in `redacted_thinking` block")
    if kind in {"thinking", "redacted_thinking"} and "cache_control" in block:
        raise _invalid(f"{at}.{kind}.cache_control: Extra inputs are not permitted")


def _check_image(at: str, source: Mapping[str, Any]) -> None:
    if source["type"] == "base64" and source["media_type"] not in _IMAGES:
        raise _invalid(
            f"{at}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
            "'image/webp'"
        )


def _check_result(at: str, block: Mapping[str, Any]) -> None:
    content = block.get("content", [])
    for place, inner in enumerate(cast("list[dict[str, Any]]", content if isinstance(content, list) else [])):
        if inner.get("type") not in {"text", "image", "document", "search_result"}:
            raise _invalid(
                f"{at}.tool_result.content.{place}: Input tag '{inner.get('type')}' found using 'type' does not match "
                "any of the expected tags: 'document', 'image', 'search_result', 'text'"
            )
        _check_block(f"{at}.tool_result.content.{place}", "user", inner, LATEST)


def _check_pairs(turns: list[tuple[int, str, list[dict[str, Any]]]]) -> None:
    seen: set[str] = set()
    for place, (index, role, blocks) in enumerate(turns):
        if role == "user":
            before = turns[place - 1][2] if place else []
            known = {block["id"] for block in before if block["type"] == "tool_use"}
            for at, block in enumerate(blocks):
                if block["type"] == "tool_result" and block["tool_use_id"] not in known:
                    raise _invalid(
                        f"messages.{index}.content.{at}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in "
                        "the previous message."
                    )
            continue
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if seen & set(calls) or len(set(calls)) < len(calls):
            raise _invalid("messages: `tool_use` ids must be unique")
        seen.update(calls)
        after = turns[place + 1][2] if place + 1 < len(turns) else []
        leading: list[str] = []
        for block in after:
            if block["type"] != "tool_result":
                break
            leading.append(block["tool_use_id"])
        if missing := [call for call in calls if call not in leading]:
            raise _invalid(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
                "message."
            )
        for call in calls:
            if leading.count(call) > 1:
                raise _invalid(
                    f"messages.{index + 1}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                    f"with id: {call}"
                )


def _check_thinking(request: Mapping[str, Any], turns: list[tuple[int, str, list[dict[str, Any]]]]) -> None:
    thinking: dict[str, Any] = request.get("thinking") or {}
    if thinking.get("type") != "enabled" or len(turns) < 2:
        return
    index, _, blocks = turns[-2]
    if any(block["type"] == "tool_use" for block in blocks):
        first = blocks[0]["type"]
        if first not in {"thinking", "redacted_thinking"}:
            raise _invalid(
                f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
                "lastmost set of `tool_use` and `tool_result` blocks)."
            )


def _check_cache(request: Mapping[str, Any]) -> None:
    found = sum(1 for _ in _marked([request.get("tools", []), request.get("system", ""), request["messages"]]))
    if found > _MOST_CACHED:
        raise _invalid(f"A maximum of 4 blocks with cache_control may be provided. Found {found}.")


def _marked(value: Any) -> Iterator[None]:
    if isinstance(value, list):
        for item in cast("Iterable[Any]", value):
            yield from _marked(item)
    elif isinstance(value, dict):
        entry = cast("dict[str, Any]", value)
        if "cache_control" in entry:
            yield None
        for key in ("content", "source"):
            yield from _marked(entry.get(key))

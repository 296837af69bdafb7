"""A conversation as a request of Bedrock's Converse API. Pure.

Messages have that API's shape already; what is done here is what its rules ask beyond it. Sources: "ConverseStream" and the
data types below it in the Amazon Bedrock API reference; the texts of its validation errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from antiphon.content import ContentBlock, Messages, SystemContentBlock, ToolSpec
from antiphon.jsonable import encode_json
from antiphon.models.schemas import object_schema

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/_=-]+")
_IN_NO_NAME = re.compile(r"[^a-zA-Z0-9\s()\[\]-]")
_LONGEST_NAME = 200
_BLANK = "[blank text]"
_BEGINNING = "[the conversation begins]"
_NO_OUTPUT = "[no output]"
_STATUS_READERS = ("anthropic.claude", "amazon.nova")
"""Families of models that take a `status` in a tool's result; the others refuse it."""


def converse_request(
    config: Mapping[str, Any],
    messages: Messages,
    tool_specs: list[ToolSpec] | None,
    system_prompt: str | list[SystemContentBlock] | None,
) -> dict[str, Any]:
    """The arguments of `converse` and `converse_stream`."""
    request: dict[str, Any] = {
        "modelId": config["model_id"],
        "messages": _messages(messages, with_status=_takes_status(config)),
        "inferenceConfig": _chosen(
            config, maxTokens="max_tokens", temperature="temperature", topP="top_p", stopSequences="stop_sequences"
        ),
    }
    if system := _system(config, system_prompt):
        request["system"] = system
    if tools := _tools(config, tool_specs, messages):
        request["toolConfig"] = {"tools": tools, **_chosen(config, toolChoice="tool_choice")}
    if config.get("guardrail_id"):
        request["guardrailConfig"] = {
            "guardrailIdentifier": config["guardrail_id"],
            "guardrailVersion": config.get("guardrail_version") or "DRAFT",
            "trace": config.get("guardrail_trace") or "enabled",
            **(
                _chosen(config, streamProcessingMode="guardrail_stream_processing_mode")
                if config.get("streaming", True)
                else {}
            ),
        }
    request |= _chosen(
        config,
        additionalModelRequestFields="additional_request_fields",
        additionalModelResponseFieldPaths="additional_response_field_paths",
    )
    fields: Mapping[str, Any] = config.get("additional_request_fields") or {}
    thinking: Mapping[str, Any] = fields.get("thinking") or {}
    if thinking.get("type") == "enabled" and _calls_without_thought(request["messages"]):
        # Half a turn of another model's: Claude would want to see its own thoughts before the calls.
        request["additionalModelRequestFields"] = {**fields, "thinking": {"type": "disabled"}}
    if config.get("service_tier"):
        request["serviceTier"] = {"type": config["service_tier"]}
    return {**request, **(config.get("additional_args") or {})}


def _chosen(config: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {wire: config[name] for wire, name in names.items() if config.get(name) is not None}


def _takes_status(config: Mapping[str, Any]) -> bool:
    wanted = config.get("include_tool_result_status", "auto")
    if isinstance(wanted, bool):
        return wanted
    return any(family in config["model_id"] for family in _STATUS_READERS)


def _system(config: Mapping[str, Any], prompt: str | list[SystemContentBlock] | None) -> list[dict[str, Any]]:
    blocks: Iterable[Any] = [{"text": prompt}] if isinstance(prompt, str) else prompt or []
    system = [dict(block) for block in blocks if str(block.get("text", "-")).strip()]
    if config.get("cache_prompt") and system:
        system.append({"cachePoint": {"type": config["cache_prompt"]}})
    return system


def _tools(config: Mapping[str, Any], specs: list[ToolSpec] | None, messages: Messages) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [
        {
            "toolSpec": {
                "name": spec["name"],
                "description": spec["description"] or spec["name"],
                "inputSchema": {"json": object_schema(spec["inputSchema"].get("json", {}))},
            }
        }
        for spec in specs or []
    ]
    if not tools:
        # A history with calls is refused without tools, also where the agent that goes on with it has none.
        used = {
            block["toolUse"]["name"]: None for message in messages for block in message["content"] if "toolUse" in block
        }
        tools = [
            {
                "toolSpec": {
                    "name": name,
                    "description": "Not available any more; do not call it.",
                    "inputSchema": {"json": {"type": "object", "properties": {}}},
                }
            }
            for name in used
        ]
    if config.get("cache_tools") and tools:
        tools.append({"cachePoint": {"type": config["cache_tools"]}})
    return tools


def _messages(messages: Messages, *, with_status: bool) -> list[dict[str, Any]]:
    """The messages, with roles that alternate from a user's on: that is what Bedrock takes."""
    out: list[dict[str, Any]] = []
    names: set[str] = set()
    for message in messages:
        content = [
            block
            for given in message["content"]
            if (block := _block(given, names, with_status=with_status)) is not None
        ]
        if message["role"] == "assistant" and content and all("reasoningContent" in block for block in content):
            continue  # nothing came of the thoughts; newer models refuse such a message
        if not out and message["role"] == "assistant":
            out.append({"role": "user", "content": [{"text": _BEGINNING}]})
        if out and out[-1]["role"] == message["role"]:
            out[-1]["content"] += content
        else:
            out.append({"role": message["role"], "content": content})
    for made in out:
        blocks: list[dict[str, Any]] = made["content"]
        # Results go first: they answer the calls just before them.
        results = [block for block in blocks if "toolResult" in block]
        made["content"] = [*results, *(block for block in blocks if "toolResult" not in block)] or [{"text": _BLANK}]
    return out


def documents_in(messages: Iterable[Mapping[str, Any]]) -> int:
    """How many documents a request's messages have, in the results of tools as well."""
    blocks = [block for message in messages for block in message["content"]]
    parts = [part for block in blocks if "toolResult" in block for part in block["toolResult"]["content"]]
    return sum("document" in block for block in [*blocks, *parts])


def _calls_without_thought(messages: list[dict[str, Any]]) -> bool:
    if len(messages) < 2:
        return False
    content: list[dict[str, Any]] = messages[-2]["content"]
    return any("toolUse" in block for block in content) and "reasoningContent" not in content[0]


def _block(block: ContentBlock, names: set[str], *, with_status: bool) -> dict[str, Any] | None:
    """A block as Bedrock takes it; None for one that it would refuse and nobody misses.

    Args:
        block: The block.
        names: The names of the documents before it; its own are added.
        with_status: Whether a tool's result tells its status.
    """
    if "text" in block:
        return {"text": block["text"]} if block["text"].strip() else None
    if "toolUse" in block:
        use = block["toolUse"]
        given: object = use["input"]
        return {
            "toolUse": {
                "toolUseId": _id(use["toolUseId"]),
                "name": use["name"],
                "input": given if isinstance(given, dict) else {"input": given},
            }
        }
    if "toolResult" in block:
        result = block["toolResult"]
        content = [found for part in result["content"] if (found := _result_part(part, names)) is not None]
        out: dict[str, Any] = {
            "toolUseId": _id(result["toolUseId"]),
            "content": content or [{"text": _NO_OUTPUT}],
        }
        if with_status:
            out["status"] = result["status"]
        return {"toolResult": out}
    if "reasoningContent" in block:
        reasoning = block["reasoningContent"]
        if "redactedContent" in reasoning:
            return {"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}
        text = reasoning.get("reasoningText", {})
        # Reasoning with no signature, or with a marked one, is another provider's; a thought without words is refused.
        is_ours = text.get("text") and _SIGNATURE.fullmatch(str(text.get("signature") or ""))
        return {"reasoningContent": {"reasoningText": dict(text)}} if is_ours else None
    for kind in ("image", "document", "video"):
        if kind in block:
            return {kind: _media(kind, cast("dict[str, Any]", block)[kind], names)}
    return dict(block)


def _result_part(part: dict[str, Any], names: set[str]) -> dict[str, Any] | None:
    if "text" in part:
        return {"text": part["text"]} if str(part["text"]).strip() else None
    if "json" in part:
        value: object = part["json"]
        return {"json": value} if isinstance(value, dict) else {"text": encode_json(value).decode()}
    for kind in ("image", "document", "video"):
        if kind in part:
            return {kind: _media(kind, part[kind], names)}
    return dict(part)


def _media(kind: str, media: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Bytes go as they are; a `location` of type `s3` becomes what Bedrock calls `s3Location`.

    Documents get names that Bedrock takes: of few characters, and each once in a conversation.
    """
    source = dict(media["source"])
    location = source.pop("location", None)
    if isinstance(location, Mapping):
        place = cast("Mapping[str, Any]", location)
        source["s3Location"] = {name: place[name] for name in ("uri", "bucketOwner") if name in place}
    if kind == "document":
        return {**media, "name": _free_name(str(media.get("name") or ""), names), "source": source}
    return {**media, "source": source}


def _free_name(given: str, names: set[str]) -> str:
    """A document's own name, as far as it is one for Bedrock and nothing before has it."""
    legal = " ".join(_IN_NO_NAME.sub("-", given).split())[:_LONGEST_NAME].strip() or "document"
    free, number = legal, 1
    while free.lower() in names:
        number += 1
        free = f"{legal[: _LONGEST_NAME - 8]}-{number}"
    names.add(free.lower())
    return free


def _id(tool_use_id: str) -> str:
    """The id itself, or, where Bedrock takes no such id (another provider's), one that stands for it."""
    if _ID.fullmatch(tool_use_id):
        return tool_use_id
    return f"id-{sha256(tool_use_id.encode()).hexdigest()[:32]}"

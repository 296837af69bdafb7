"""What Bedrock's Converse API refuses, and in which words. Pure.

The texts are those that users of the service report, and those of "ConverseStream" in the Amazon Bedrock API reference.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, cast

_ID = re.compile(r"[a-zA-Z0-9_.:-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[A-Za-z0-9\s()\[\]-]+")
_KINDS = {
    "text",
    "image",
    "document",
    "video",
    "audio",
    "toolUse",
    "toolResult",
    "guardContent",
    "cachePoint",
    "reasoningContent",
    "citationsContent",
    "searchResult",
}
_TOP = {
    "messages",
    "system",
    "inferenceConfig",
    "toolConfig",
    "guardrailConfig",
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "promptVariables",
    "requestMetadata",
    "performanceConfig",
    "serviceTier",
    "outputConfig",
    "projectIdentifier",
}
_RANGES = {"temperature": (0, 1), "topP": (0, 1), "maxTokens": (1, 2**31)}
_STATUS_READERS = ("anthropic.claude", "amazon.nova")


class Refused(Exception):
    """A request that breaks a rule; the text is Bedrock's."""


def check_request(
    body: Mapping[str, Any],
    *,
    model_id: str,
    signatures: Collection[str],
    guardrails: Collection[tuple[str, str]],
    longest: int | None,
) -> None:
    """Check a body of Converse or ConverseStream.

    Args:
        body: The body.
        model_id: Which model is asked.
        signatures: Signatures of reasoning that were given out.
        guardrails: Identifier and version of those that exist.
        longest: The model's context, in characters of text; None: no bound.

    Raises:
        Refused: With the text of the `ValidationException`.
    """
    if extra := sorted(set(body) - _TOP):
        raise Refused(
            f"Malformed input request: #: extraneous key [{extra[0]}] is not permitted, please reformat your input and try "
            "again."
        )
    messages = cast("list[dict[str, Any]]", body.get("messages") or [])
    _check_settings(body)
    _check_tools(body, model_id)
    _check_order(messages)
    for index, message in enumerate(messages):
        _check_content(index, message, model_id=model_id, signatures=signatures)
    _check_pairs(messages)
    _check_documents(messages)
    _check_thinking(body, messages)
    if "toolConfig" not in body and any(kind in {"toolUse", "toolResult"} for _, kind, _ in _blocks(messages)):
        raise Refused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    if (guard := body.get("guardrailConfig")) is not None and (
        (guard.get("guardrailIdentifier"), guard.get("guardrailVersion")) not in guardrails
    ):
        raise Refused("The guardrail identifier or version provided in the request does not exist.")
    if longest is not None and sum(_length(block) for _, _, block in _blocks(messages)) > longest:
        raise Refused("Input is too long for requested model.")


def _blocks(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where each block is, its kind, and the block."""
    for at, message in enumerate(messages):
        for index, block in enumerate(message["content"]):
            yield f"messages.{at}.content.{index}", next(iter(block)), block


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_length, cast("dict[str, object]", value).values()))
    return sum(map(_length, cast("list[object]", value))) if isinstance(value, list) else 0


def _check_settings(body: Mapping[str, Any]) -> None:
    settings: dict[str, Any] = body.get("inferenceConfig") or {}
    for name, value in settings.items():
        low, high = _RANGES.get(name, (None, None))
        if low is None or high is None:
            continue
        if value < low or value > high:
            bound = f"greater than or equal to {low}" if value < low else f"less than or equal to {high}"
            raise Refused(
                f"1 validation error detected: Value '{value}' at 'inferenceConfig.{name}' failed to satisfy constraint: "
                f"Member must have value {bound}"
            )
    for index, block in enumerate(body.get("system") or []):
        if "text" in block and not block["text"].strip():
            raise Refused(
                f"The text field in the SystemContentBlock object at system.{index} is blank. Add text to the text field, "
                "and try again."
            )


def _check_tools(body: Mapping[str, Any], model_id: str) -> None:
    config = body.get("toolConfig")
    if config is None:
        return
    tools = [tool["toolSpec"] for tool in config.get("tools", []) if "toolSpec" in tool]
    if not tools:
        raise Refused(
            "1 validation error detected: Value '[]' at 'toolConfig.tools' failed to satisfy constraint: Member must have "
            "length greater than or equal to 1"
        )
    for index, spec in enumerate(tools):
        if not _NAME.fullmatch(spec["name"]) or len(spec["name"]) > 64:
            raise Refused(
                f"1 validation error detected: Value '{spec['name']}' at 'toolConfig.tools.{index + 1}.member.toolSpec.name'"
                " failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
            )
        if spec["inputSchema"].get("json", {}).get("type") != "object":
            raise Refused(
                f"The value at toolConfig.tools.{index}.toolSpec.inputSchema.json.type must be one of the following: object."
            )
        if "anthropic.claude" in model_id and {"oneOf", "allOf", "anyOf"} & spec["inputSchema"]["json"].keys():
            raise Refused(
                f"The model returned the following errors: tools.{index}.custom.input_schema: input_schema does not support "
                "oneOf, allOf, or anyOf at the top level"
            )
        if extra := sorted(set(spec) - {"name", "description", "inputSchema", "strict"}):
            raise Refused(f"Malformed input request: #/toolConfig: extraneous key [{extra[0]}] is not permitted")
    names = [spec["name"] for spec in tools]
    if len(set(names)) != len(names):
        raise Refused("The toolConfig field contains duplicate tool names.")


def _check_order(messages: list[dict[str, Any]]) -> None:
    if not messages or messages[0]["role"] != "user":
        raise Refused(
            "A conversation must start with a user message. Try again with a conversation that starts with a user message."
        )
    for before, after in pairwise(messages):
        if before["role"] == after["role"]:
            raise Refused(
                "A conversation must alternate between user and assistant roles. Make sure the conversation alternates "
                "between user and assistant roles and try again."
            )
    if messages[-1]["role"] != "user":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_content(index: int, message: dict[str, Any], *, model_id: str, signatures: Collection[str]) -> None:
    if extra := sorted(set(message) - {"role", "content"}):
        raise Refused(f"Malformed input request: #/messages/{index}: extraneous key [{extra[0]}] is not permitted")
    if not message["content"]:
        raise Refused(
            f"The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to the content "
            "field and try again."
        )
    for at, block in enumerate(message["content"]):
        place = f"messages.{index}.content.{at}"
        if len(block) != 1 or next(iter(block)) not in _KINDS:
            raise Refused(
                f"Malformed input request: #/messages/{index}/content/{at}: a block has exactly one known key"
            )
        if "text" in block and not block["text"].strip():
            raise Refused(
                f"The text field in the ContentBlock object at {place} is blank. Add text to the text field, and try again."
            )
        if "toolUse" in block:
            _check_call(place, message["role"], block["toolUse"])
        if "toolResult" in block:
            _check_result(place, message["role"], block["toolResult"], model_id)
        if "reasoningContent" in block:
            _check_reasoning(place, block["reasoningContent"], signatures)
        if "document" in block and not _DOCUMENT_NAME.fullmatch(block["document"].get("name", "")):
            raise Refused(
                "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, "
                "parentheses, and square brackets. The name can't contain more than one consecutive whitespace character."
            )


def _check_id(place: str, value: str) -> None:
    if not _ID.fullmatch(value) or len(value) > 64:
        raise Refused(
            f"1 validation error detected: Value '{value}' at '{place}.toolUseId' failed to satisfy constraint: Member must "
            "satisfy regular expression pattern: [a-zA-Z0-9_.:-]+"
        )


def _check_call(place: str, role: str, use: dict[str, Any]) -> None:
    if role != "assistant":
        raise Refused(f"The toolUse block at {place} must be in an assistant message.")
    _check_id(f"{place}.toolUse", use["toolUseId"])
    if not isinstance(use["input"], dict):
        raise Refused(
            f"The format of the value at {place}.toolUse.input is invalid. Provide a json object for the field and try again."
        )


def _check_result(place: str, role: str, result: dict[str, Any], model_id: str) -> None:
    if role != "user":
        raise Refused(f"The toolResult block at {place} must be in a user message.")
    _check_id(f"{place}.toolResult", result["toolUseId"])
    if "status" in result and not any(family in model_id for family in _STATUS_READERS):
        raise Refused("This model doesn't support the status field. Remove status and try again.")
    if not result["content"] and result.get("status") == "error":
        raise Refused(f"The content field at {place}.toolResult cannot be empty when status value is error.")
    for at, part in enumerate(result["content"]):
        if "json" in part and not isinstance(part["json"], dict):
            raise Refused(
                f"The format of the value at {place}.toolResult.content.{at}.json is invalid. Provide a json object for the "
                "field and try again."
            )
        if "text" in part and not part["text"].strip():
            raise Refused(
                f"The text field in the ToolResultContentBlock object at {place}.toolResult.content.{at} is blank. Add text "
                "to the text field, and try again."
            )


def _check_reasoning(place: str, reasoning: dict[str, Any], signatures: Collection[str]) -> None:
    if "redactedContent" in reasoning:
        return
    signature = reasoning.get("reasoningText", {}).get("signature")
    if signature is None:
        raise Refused(f"The model returned the following errors: {place}.thinking.signature: Field required")
    if signature not in signatures:
        raise Refused(f"The model returned the following errors: {place}: Invalid `signature` in `thinking` block")


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    """Each call is answered in the next message, and nothing else is."""
    called: list[str] = []
    for index, message in enumerate(messages):
        uses = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        if len(set(uses)) != len(uses):
            raise Refused(f"The toolUse blocks at messages.{index}.content contain duplicate Ids: {', '.join(uses)}")
        if missing := [call for call in called if call not in results]:
            raise Refused(
                f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}"
            )
        if len(results) > len(called) or len(set(results)) != len(results):
            raise Refused(
                f"The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of "
                "previous turn."
            )
        called = uses


def _check_documents(messages: list[dict[str, Any]]) -> None:
    """Names are of the whole conversation."""
    names: list[str] = []
    for _, kind, block in _blocks(messages):
        inner = [block] if kind == "document" else block[kind].get("content", []) if kind == "toolResult" else []
        names += [part["document"].get("name", "").lower() for part in inner if "document" in part]
    if len(set(names)) != len(names):
        raise Refused("Messages can't contain duplicate document names. Rename the document and retry your request.")


def _check_thinking(body: Mapping[str, Any], messages: list[dict[str, Any]]) -> None:
    """Claude, thinking, wants its thoughts before the calls that it is told the results of."""
    fields: Mapping[str, Any] = body.get("additionalModelRequestFields") or {}
    thinking: Mapping[str, Any] = fields.get("thinking") or {}
    if thinking.get("type") != "enabled" or len(messages) < 2:
        return
    content = messages[-2]["content"]
    if any("toolUse" in block for block in content) and "reasoningContent" not in content[0]:
        found = "tool_use" if "toolUse" in content[0] else "text"
        raise Refused(
            f"The model returned the following errors: messages.{len(messages) - 2}.content.0.type: Expected `thinking` or "
            f"`redacted_thinking`, but found `{found}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
        )

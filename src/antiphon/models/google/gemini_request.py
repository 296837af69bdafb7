"""A conversation as a request of `generateContent`. Pure.

Gemini wants content in every message, and a turn with calls of tools after one of the user's and before one with exactly as
many results. Whatever the agent's history is like, the request is like that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from antiphon.content import ContentBlock, Message, Messages, SystemContentBlock, ToolResult, ToolSpec
from antiphon.errors import ModelRequestError
from antiphon.models.google.gemini_schema import gemini_schema
from antiphon.models.google.gemini_signatures import ON_CALLS, UNSIGNED, from_text
from antiphon.models.schemas import object_schema

OWN = frozenset({"system_instruction", "automatic_function_calling", "http_options"})
"""Parameters that the model sets by itself."""

BEGINNING = "[The conversation begins.]"
"""What the user says where a history begins with the assistant."""
GO_ON = "[Go on.]"
"""What the user says where a history ends with the assistant."""

_IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_DOCUMENTS = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "xml": "text/xml",
}
_VIDEOS = {
    "mp4": "video/mp4",
    "mov": "video/mov",
    "webm": "video/webm",
    "mpeg": "video/mpeg",
    "mkv": "video/x-matroska",
}


def gemini_config(
    tool_specs: list[ToolSpec] | None,
    system_prompt: str | list[SystemContentBlock] | None,
    params: Mapping[str, Any],
) -> dict[str, Any]:
    """The SDK's `GenerateContentConfig`, as a dict.

    Args:
        tool_specs: The tools; they come before those in `params`.
        system_prompt: The system prompt. Cache points mean nothing to Gemini, which caches by itself.
        params: More parameters, in the SDK's names; `tools` are added to the agent's own.
    """
    config: dict[str, Any] = {**params, "automatic_function_calling": {"disable": True}}
    tools: list[Any] = list(params.get("tools", []))
    if tool_specs:
        tools.insert(0, {"function_declarations": [_declaration(spec) for spec in tool_specs]})
    config.pop("tools", None)
    if tools:
        config["tools"] = tools
    system = _system(system_prompt)
    if system.strip():
        config["system_instruction"] = system
    return config


def _declaration(spec: ToolSpec) -> dict[str, Any]:
    schema = gemini_schema(object_schema(spec["inputSchema"].get("json", {})))
    return {"name": spec["name"], "description": spec["description"], "parameters_json_schema": schema}


def _system(prompt: str | list[SystemContentBlock] | None) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    texts = [block.get("text", "") or block.get("guardContent", {}).get("text", {}).get("text", "") for block in prompt]
    return "\n".join(text for text in texts if text)


def gemini_contents(messages: Messages) -> list[dict[str, Any]]:
    """The history as the SDK's `contents`, as dicts.

    Raises:
        ModelRequestError: If there is content that the model cannot take.
    """
    names = {
        block["toolUse"]["toolUseId"]: block["toolUse"]["name"]
        for message in messages
        for block in message["content"]
        if "toolUse" in block
    }
    contents: list[dict[str, Any]] = []
    for message in messages:
        for role, parts in _contents(message, names):
            if not contents and role == "model":
                contents.append({"role": "user", "parts": [{"text": BEGINNING}]})
            if contents and contents[-1]["role"] == role and not _has_results(contents[-1]) and not _has_results(parts):
                contents[-1]["parts"] += parts
            else:
                contents.append({"role": role, "parts": parts})
    if contents and contents[-1]["role"] == "model":
        contents.append({"role": "user", "parts": [{"text": GO_ON}]})
    for content in contents:
        _sign(content)
    return contents


def unsigned(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The contents without signatures, for a model that cannot read them: it was another's, or another project's."""
    bare: list[dict[str, Any]] = []
    for content in contents:
        parts: list[dict[str, Any]] = [
            {key: value for key, value in part.items() if key != "thought_signature"}
            for part in content["parts"]
            if "thought_signature" not in part or "function_call" in part
        ]
        if parts:
            bare.append({"role": content["role"], "parts": parts})
            _sign(bare[-1])
    return bare


def _contents(message: Message, names: Mapping[str, str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A message as one content, or two: results of tools stand alone, as Gemini counts them."""
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message["content"]:
        if "toolResult" in block:
            results.append(_result(block["toolResult"], names))
        else:
            parts += _parts(block)
    if results:
        yield "user", results
    if parts:
        yield ("user" if message["role"] == "user" else "model"), parts


def _has_results(content: dict[str, Any] | list[dict[str, Any]]) -> bool:
    parts: list[dict[str, Any]] = content["parts"] if isinstance(content, dict) else content
    return any("function_response" in part for part in parts)


def _sign(content: dict[str, Any]) -> None:
    """The first call of a turn must be signed: what another model called is said to be so."""
    first = next((part for part in content["parts"] if "function_call" in part), None)
    if first is not None and "thought_signature" not in first:
        first["thought_signature"] = UNSIGNED


def _parts(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if "text" in block:
        if block["text"].strip():
            yield {"text": block["text"]}
    elif "image" in block:
        yield _media("image", block["image"], _IMAGES)
    elif "document" in block:
        yield _media("document", block["document"], _DOCUMENTS)
    elif "video" in block:
        yield _media("video", block["video"], _VIDEOS)
    elif "toolUse" in block:
        yield _call(cast("Mapping[str, Any]", block["toolUse"]))
    elif "reasoningContent" in block:
        yield from _thought(block["reasoningContent"])
    elif "citationsContent" in block:
        texts = [part.get("text", "") for part in block["citationsContent"].get("content", [])]
        yield from ({"text": text} for text in texts if text.strip())
    elif "guardContent" in block:
        text = block["guardContent"].get("text", {}).get("text", "")
        if text.strip():
            yield {"text": text}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    made = {"id": call["toolUseId"], "name": call["name"], "args": call["input"]}
    part: dict[str, Any] = {"function_call": made if isinstance(call["input"], dict) else {**made, "args": {}}}
    if isinstance(call.get(ON_CALLS), bytes):
        part["thought_signature"] = call[ON_CALLS]
    return part


def _thought(reasoning: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    thought = cast("Mapping[str, Any]", reasoning.get("reasoningText") or {})
    signature = from_text(thought.get("signature"))
    if signature is None:  # what was thought aloud need not go back, unless it is signed
        return
    text = thought.get("text", "")
    yield {"text": text, **({"thought": True} if text else {}), "thought_signature": signature}


def _result(result: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
    values: list[Any] = []
    media: list[dict[str, Any]] = []
    for part in result["content"]:
        if "json" in part:
            values.append(part["json"])
        elif "text" in part:
            values.append(part["text"])
        else:
            media += _parts(cast("ContentBlock", part))
    value: Any = values[0] if len(values) == 1 else values
    key = result["toolUseId"]
    response: dict[str, Any] = {"id": key, "name": names.get(key, "unknown")}
    response["response"] = {"error" if result["status"] == "error" else "output": value}
    if media:
        response["parts"] = media
    return {"function_response": response}


def _media(what: str, media: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    form = str(media.get("format", "txt"))
    kind = known.get(form)
    if kind is None:
        raise ModelRequestError(f"Gemini takes no {what} of the format {form!r}: use one of {sorted(known)!r}")
    source = cast("Mapping[str, Any]", media["source"])
    if "bytes" in source:
        return {"inline_data": {"mime_type": kind, "data": bytes(source["bytes"])}}
    if "text" in source:
        return {"text": source["text"]}
    location = cast("Mapping[str, Any]", source.get("location") or {})
    uri = str(location.get("uri") or location.get("url") or "")
    if not uri.startswith(("https://", "gs://")):
        raise ModelRequestError(f"the {what} has no bytes, and Gemini reads only https:// and gs://, not {uri!r}")
    return {"file_data": {"file_uri": uri, "mime_type": kind}}

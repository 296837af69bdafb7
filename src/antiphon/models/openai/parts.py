"""Blocks of messages as parts of OpenAI's requests, as far as its two turn-based protocols agree. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from antiphon.content import SystemContentBlock, ToolResult
from antiphon.errors import ModelRequestError

LONGEST_CALL_ID = 40
"""Chat completions refuse longer ids of calls (`string_above_max_length`)."""

_TYPES = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
_READABLE = {"csv", "html", "txt", "md"}
"""Documents that are sent as text: every model reads that."""


def call_id(given: str) -> str:
    """An id that the API takes: histories may come from providers whose ids are longer."""
    return given if 0 < len(given) <= LONGEST_CALL_ID else "call_" + sha256(given.encode()).hexdigest()[:32]


def system_text(system_prompt: str | Sequence[SystemContentBlock] | None) -> str:
    """A system prompt as one text."""
    if system_prompt is None or isinstance(system_prompt, str):
        return system_prompt or ""
    return "\n".join(block["text"] for block in system_prompt if "text" in block)


def image_url(image: Mapping[str, Any], where: str) -> str:
    """An image as a data URL, or the web address where it lies.

    Raises:
        ModelRequestError: If it has neither bytes nor a web address.
    """
    source: Mapping[str, Any] = image.get("source") or {}
    if "bytes" in source:
        return f"data:image/{image.get('format', 'png')};base64,{b64encode(source['bytes']).decode()}"
    location: Mapping[str, Any] = source.get("location") or {}
    address = location.get("url") or location.get("uri") or source.get("url")
    if isinstance(address, str) and address.startswith(("https://", "http://")):
        return address
    raise ModelRequestError(f"{where}: OpenAI takes an image's bytes or a web address, not {sorted(source)!r}")


def document(entry: Mapping[str, Any], where: str) -> str | tuple[str, str]:
    """A document: its text, or a file name and a data URL.

    Raises:
        ModelRequestError: If it has no bytes and no text.
    """
    kind = str(entry.get("format", "txt"))
    name = f"{entry.get('name') or 'document'}.{kind}"
    source: Mapping[str, Any] = entry.get("source") or {}
    if isinstance(source.get("text"), str):
        return f"{name}:\n{source['text']}"
    if "bytes" not in source:
        raise ModelRequestError(f"{where}: OpenAI takes a document's bytes or text, not {sorted(source)!r}")
    data = bytes(source["bytes"])
    if kind in _READABLE:
        return f"{name}:\n{data.decode('utf-8', 'replace')}"
    return name, f"data:{_TYPES.get(kind, 'application/octet-stream')};base64,{b64encode(data).decode()}"


def text_of_block(block: Mapping[str, Any]) -> str | None:
    """The words of a block that stands for words; None: it is something else."""
    if "text" in block:
        return str(block["text"])
    if "json" in block:
        return json.dumps(block["json"], ensure_ascii=False, separators=(",", ":"))
    if "guardContent" in block:
        guarded: Mapping[str, Any] = block["guardContent"].get("text") or {}
        return str(guarded.get("text", ""))
    if "citationsContent" in block:
        return "".join(str(part.get("text", "")) for part in block["citationsContent"].get("content", ()))
    return None


def result_text(result: ToolResult) -> str:
    """The words of a tool's result. OpenAI's protocols have no field for its status: a failure is told in words."""
    texts = [text for block in result["content"] if (text := text_of_block(block)) is not None]
    text = "\n".join(texts)
    if result.get("status") == "error" and not text.lower().startswith("error"):
        return f"Error: {text}" if text else "Error"
    return text


def arguments(value: Any) -> str:
    """A call's input as the JSON text that the API keeps it in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def refused_block(block: Mapping[str, Any], where: str) -> ModelRequestError:
    """What is said of a block that OpenAI does not take."""
    kind = next(iter(block), "nothing")
    return ModelRequestError(f"{where}: OpenAI takes no {kind!r} block here: leave it out, or ask another model")


def reasoning_text(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The readable part of a reasoning block: `text`, and `signature` where there is one."""
    return cast("Mapping[str, Any]", block["reasoningContent"].get("reasoningText") or {})


SKIPPED = {"cachePoint"}
"""Blocks that are advice to other providers."""

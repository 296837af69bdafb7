"""Content blocks in the shape of Anthropic's Messages API. Pure."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, cast

from antiphon.content import ContentBlock, ToolResult
from antiphon.errors import ModelRequestError

_SIGNATURE = re.compile(r"[A-Za-z0-9+/_=-]+")
_IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_TEXTS = {"txt", "md", "csv", "html", "json", "xml"}


def block_of(block: ContentBlock, ids: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A block as the API takes it; none where it would refuse it or has no use for it.

    Blank texts and thoughts that Anthropic did not sign are left out.

    Args:
        block: The block; `cachePoint` is not one of these.
        ids: For each id of a call the one that the API takes.

    Raises:
        ModelRequestError: If the model cannot take such content.
    """
    if "text" in block:
        yield from _text(block["text"])
    elif "image" in block:
        yield _image(block["image"])
    elif "document" in block:
        yield _document(block["document"])
    elif "toolUse" in block:
        call = block["toolUse"]
        yield {
            "type": "tool_use",
            "id": ids[call["toolUseId"]],
            "name": call["name"],
            "input": call["input"] if isinstance(call["input"], dict) else {},
        }
    elif "toolResult" in block:
        yield _result(block["toolResult"], ids)
    elif "reasoningContent" in block:
        yield from _thought(block["reasoningContent"])
    elif "citationsContent" in block:
        for part in block["citationsContent"].get("content", []):
            yield from _text(part.get("text", ""))
    elif "guardContent" in block:
        yield from _text(block["guardContent"].get("text", {}).get("text", ""))
    elif "video" in block:
        raise ModelRequestError("Claude takes no video: remove the 'video' block from the message")


def _text(text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"type": "text", "text": text}


def _image(image: Mapping[str, Any]) -> dict[str, Any]:
    source = cast("Mapping[str, Any]", image["source"])
    if "bytes" in source:
        kind = _IMAGES.get(image["format"])
        if kind is None:
            raise ModelRequestError(f"Claude takes no image of the format {image['format']!r}: use {sorted(_IMAGES)!r}")
        return {"type": "image", "source": _base64(kind, source["bytes"])}
    return {"type": "image", "source": _linked("image", source)}


def _document(document: Mapping[str, Any]) -> dict[str, Any]:
    form, source = document.get("format", "txt"), cast("Mapping[str, Any]", document["source"])
    made: dict[str, Any] = {"type": "document"}
    if "text" in source:
        made["source"] = _plain(source["text"])
    elif "bytes" not in source:
        made["source"] = _linked("document", source)
    elif form == "pdf":
        made["source"] = _base64("application/pdf", source["bytes"])
    elif form in _TEXTS:
        made["source"] = _plain(bytes(source["bytes"]).decode("utf-8", "replace"))
    else:
        raise ModelRequestError(f"Claude takes no document of the format {form!r}: send a PDF, or its text")
    if document.get("name"):
        made["title"] = document["name"]
    if document.get("context"):
        made["context"] = document["context"]
    return made


def _base64(kind: str, data: bytes) -> dict[str, Any]:
    return {"type": "base64", "media_type": kind, "data": b64encode(data).decode("ascii")}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _linked(what: str, source: Mapping[str, Any]) -> dict[str, Any]:
    location = cast("Mapping[str, Any]", source.get("location") or {})
    uri = str(location.get("uri") or location.get("url") or "")
    if not uri.startswith("https://"):
        raise ModelRequestError(f"the {what} has no bytes, and Claude fetches only https:// addresses, not {uri!r}")
    return {"type": "url", "url": uri}


def _result(result: ToolResult, ids: Mapping[str, str]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for part in result["content"]:
        if "json" in part:
            content.append({"type": "text", "text": json.dumps(part["json"], ensure_ascii=False)})
        else:
            content += block_of(cast("ContentBlock", part), ids)
    key = result["toolUseId"]
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.get(key, key), "content": content}
    if result["status"] == "error":
        made["is_error"] = True
    return made


def _thought(reasoning: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "redactedContent" in reasoning:
        data = reasoning["redactedContent"]
        text = data if isinstance(data, str) else bytes(data).decode("ascii", "replace")
        if text.isascii():  # else it is another provider's
            yield {"type": "redacted_thinking", "data": text}
        return
    thought = cast("Mapping[str, Any]", reasoning.get("reasoningText") or {})
    signature = thought.get("signature")
    # Without its signature the API refuses a thought, and what another provider signed is no signature here.
    if isinstance(signature, str) and _SIGNATURE.fullmatch(signature):
        yield {"type": "thinking", "thinking": thought.get("text", ""), "signature": signature}

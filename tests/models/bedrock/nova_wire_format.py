"""Nova Sonic's events as bytes, and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from antiphon.models.bedrock.nova_codec import NovaSonicCodec
from antiphon.models.bedrock.nova_opening import Opening
from antiphon.transports.eventstream import Decoder, encode_message

HEADERS = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}


def chunk(name: str, body: Any) -> bytes:
    inner = b64encode(json.dumps({"event": {name: body}}).encode()).decode()
    return encode_message(HEADERS, json.dumps({"bytes": inner}).encode())


def exception(kind: str, message: str) -> bytes:
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return encode_message(headers, json.dumps({"message": message}).encode())


def sent(codec: NovaSonicCodec) -> list[tuple[str, dict[str, Any]]]:
    """What the codec wants to send, decoded; taken out of its outbox."""
    frames, codec.outbox[:] = list(codec.outbox), []
    found = []
    for frame in frames:
        [message] = Decoder().feed(frame)
        assert dict(message.headers) == HEADERS
        [(name, body)] = json.loads(b64decode(json.loads(message.payload)["bytes"]))["event"].items()
        found.append((name, body))
    return found


def opened(**settings: Any) -> NovaSonicCodec:
    codec = NovaSonicCodec(Opening(**{"model_id": "amazon.nova-2-sonic-v1:0", **settings}), "p", region="us-east-1")
    codec.open()
    codec.outbox.clear()
    codec.alarms.clear()
    return codec


def text(content_id: str, role: str, stage: str, words: str, stopped: str = "PARTIAL_TURN") -> list[bytes]:
    names = {"contentId": content_id, "completionId": "c"}
    extra = json.dumps({"generationStage": stage})
    return [
        chunk("contentStart", {**names, "type": "TEXT", "role": role, "additionalModelFields": extra}),
        chunk("textOutput", {**names, "role": role, "content": words}),
        chunk("contentEnd", {**names, "type": "TEXT", "stopReason": stopped}),
    ]


def sound(content_id: str, pcm: bytes, stopped: str | None = "PARTIAL_TURN", rate: int = 24000) -> list[bytes]:
    names = {"contentId": content_id, "completionId": "c"}
    config = {"sampleRateHertz": rate}
    frames = [
        chunk("contentStart", {**names, "type": "AUDIO", "role": "ASSISTANT", "audioOutputConfiguration": config}),
        chunk("audioOutput", {**names, "content": b64encode(pcm).decode()}),
    ]
    if stopped is not None:
        frames.append(chunk("contentEnd", {**names, "type": "AUDIO", "stopReason": stopped}))
    return frames


def call(content_id: str, tool_use_id: str, name: str, content: Any) -> list[bytes]:
    names = {"contentId": content_id, "completionId": "c"}
    return [
        chunk("contentStart", {**names, "type": "TOOL", "role": "TOOL"}),
        chunk("toolUse", {**names, "toolUseId": tool_use_id, "toolName": name, "content": content}),
        chunk("contentEnd", {**names, "type": "TOOL", "stopReason": "TOOL_USE"}),
    ]

"""What OpenAI's Realtime API takes: the forms of events, sessions and items. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from antiphon.jsonable import decode_json

Event = dict[str, Any]

LONGEST_ID = 32
VOICES = {"alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"}
BYTES_PER_MS = {"audio/pcm": 48, "audio/pcmu": 8, "audio/pcma": 8}
_FORMATS = sorted(BYTES_PER_MS)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE = re.compile(r"data:image/(png|jpeg);base64,")
_SESSION = {
    *{"type", "model", "instructions", "output_modalities", "audio", "tools", "tool_choice", "parallel_tool_calls"},
    *{"max_output_tokens", "truncation", "reasoning", "include", "prompt", "tracing"},
}
_RESPONSE = {
    *{
        "conversation",
        "metadata",
        "instructions",
        "output_modalities",
        "audio",
        "tools",
        "tool_choice",
        "prompt",
        "input",
    },
    *{"parallel_tool_calls", "max_output_tokens", "reasoning"},
}
_DETECTION = {
    "server_vad": {
        *{"type", "threshold", "prefix_padding_ms", "silence_duration_ms", "create_response", "interrupt_response"},
        "idle_timeout_ms",
    },
    "semantic_vad": {"type", "eagerness", "create_response", "interrupt_response"},
}
_CONTENT = {
    "system": {"input_text"},
    "user": {"input_text", "input_audio", "input_image"},
    "assistant": {"output_text"},
}
_CLIENT_EVENTS: dict[str, tuple[set[str], set[str]]] = {
    "session.update": ({"session"}, set()),
    "input_audio_buffer.append": ({"audio"}, set()),
    "input_audio_buffer.commit": (set(), set()),
    "input_audio_buffer.clear": (set(), set()),
    "output_audio_buffer.clear": (set(), set()),
    "conversation.item.create": ({"item"}, {"previous_item_id"}),
    "conversation.item.delete": ({"item_id"}, set()),
    "conversation.item.retrieve": ({"item_id"}, set()),
    "conversation.item.truncate": ({"item_id", "content_index", "audio_end_ms"}, set()),
    "response.create": (set(), {"response"}),
    "response.cancel": (set(), {"response_id"}),
}


class RefusedError(Exception):
    """The API refuses something; the session goes on."""

    def __init__(self, code: str | None, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


def decoded(frame: str | bytes) -> Event:
    """The event in a frame.

    Raises:
        RefusedError: If it is none.
    """
    try:
        value: Any = decode_json(frame.encode() if isinstance(frame, str) else frame)
    except ValueError as error:
        raise RefusedError("invalid_json", f"The event is not valid JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(cast("Event", value).get("type"), str):
        raise RefusedError("missing_required_parameter", "Missing required parameter: 'type'.", "type")
    return cast("Event", value)


def check_fields(event: Event) -> None:
    """Refuse an event of an unknown type, or with fields that it must not have, or lacks."""
    known = _CLIENT_EVENTS.get(event["type"])
    if known is None:
        supported = ", ".join(map(repr, _CLIENT_EVENTS))
        raise RefusedError(
            "invalid_value", f"Invalid value: '{event['type']}'. Supported values are: {supported}.", "type"
        )
    required, optional = known
    only(event, required | optional | {"type", "event_id"}, "")
    for name in sorted(required):
        if name not in event:
            raise RefusedError("missing_required_parameter", f"Missing required parameter: '{name}'.", name)


def as_object(value: object, param: str) -> dict[str, Any]:
    """`value`, if it is an object."""
    if not isinstance(value, dict):
        raise RefusedError("invalid_type", f"Invalid type for '{param}': expected an object.", param)
    return cast("dict[str, Any]", value)


def only(value: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse unknown fields."""
    for name in value:
        if name not in known:
            raise RefusedError("unknown_parameter", f"Unknown parameter: '{where}{name}'.", f"{where}{name}")


def check_id(value: object, param: str) -> None:
    """Refuse what is no id."""
    if not isinstance(value, str) or not value:
        raise RefusedError("invalid_type", f"Invalid type for '{param}': expected a string.", param)
    if len(value) > LONGEST_ID:
        raise RefusedError(
            "string_above_max_length",
            f"Invalid '{param}': string too long. Expected a string with maximum length {LONGEST_ID}, but got a string with "
            f"length {len(value)} instead.",
            param,
        )


def _choice(value: object, choices: list[str], param: str) -> None:
    if value not in choices:
        told = ", ".join(f"'{choice}'" for choice in choices)
        raise RefusedError("invalid_value", f"Invalid value: '{value}'. Supported values are: {told}.", param)


def check_session(session: Mapping[str, Any], model: str) -> None:
    """Refuse a configuration that no session can have."""
    only(session, _SESSION, "session.")
    if session.get("type") != "realtime":
        raise RefusedError("missing_required_parameter", "Missing required parameter: 'session.type'.", "session.type")
    if session.get("model", model) != model:
        raise RefusedError("invalid_value", "The model of a session cannot be changed.", "session.model")
    if session.get("output_modalities", ["audio"]) not in (["audio"], ["text"]):
        raise RefusedError(
            "invalid_value",
            f"Invalid modalities: {session['output_modalities']}. Supported combinations are: ['text'] and ['audio'].",
            "session.output_modalities",
        )
    if "parallel_tool_calls" in session and not re.search(r"realtime-([2-9]|\d\d)", model):
        raise RefusedError(
            "invalid_value", "parallel_tool_calls is not supported by this model.", "session.parallel_tool_calls"
        )
    audio = as_object(session.get("audio", {}), "session.audio")
    only(audio, {"input", "output"}, "session.audio.")
    heard, spoken = (
        as_object(audio.get("input", {}), "session.audio.input"),
        as_object(audio.get("output", {}), "session.audio.output"),
    )
    only(heard, {"format", "noise_reduction", "transcription", "turn_detection"}, "session.audio.input.")
    only(spoken, {"format", "voice", "speed"}, "session.audio.output.")
    for direction, stream in (("input", heard), ("output", spoken)):
        if (form := stream.get("format")) is not None:
            param = f"session.audio.{direction}.format"
            _choice(as_object(form, param).get("type"), _FORMATS, f"{param}.type")
            if form.get("rate", 24000) != 24000:
                raise RefusedError("invalid_value", "Invalid rate: only 24000 is supported.", f"{param}.rate")
    if isinstance(voice := spoken.get("voice", "alloy"), str):
        _choice(voice, sorted(VOICES), "session.audio.output.voice")
    if (transcription := heard.get("transcription")) is not None:
        only(
            as_object(transcription, "session.audio.input.transcription"),
            {"model", "language", "prompt", "delay"},
            "session.audio.input.transcription.",
        )
    if (detection := heard.get("turn_detection")) is not None:
        param = "session.audio.input.turn_detection"
        _choice(as_object(detection, param).get("type"), sorted(_DETECTION), f"{param}.type")
        only(detection, _DETECTION[detection["type"]], f"{param}.")
    for index, tool in enumerate(session.get("tools", ())):
        _check_tool(as_object(tool, f"session.tools[{index}]"), f"session.tools[{index}]")


def check_response(asked: Mapping[str, Any]) -> None:
    """Refuse a request that no response can answer."""
    only(asked, _RESPONSE, "response.")
    metadata = as_object(asked.get("metadata") or {}, "response.metadata")
    if len(metadata) > 16 or not all(isinstance(value, str) and len(value) <= 512 for value in metadata.values()):
        raise RefusedError(
            "invalid_value", "Invalid metadata: at most 16 texts of 512 characters.", "response.metadata"
        )


def _check_tool(tool: Mapping[str, Any], param: str) -> None:
    _choice(tool.get("type"), ["function", "mcp"], f"{param}.type")
    if tool["type"] == "mcp":
        return
    only(tool, {"type", "name", "description", "parameters"}, f"{param}.")
    if not isinstance(name := tool.get("name"), str) or not _NAME.fullmatch(name):
        raise RefusedError(
            "invalid_value",
            f"Invalid '{param}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            f"{param}.name",
        )
    if as_object(tool.get("parameters", {"type": "object"}), f"{param}.parameters").get("type") != "object":
        raise RefusedError("invalid_function_parameters", "The schema must be one of an object.", f"{param}.parameters")


def checked_item(item: Mapping[str, Any], calls: set[str]) -> Event:
    """The item's content, if the conversation can have it. `calls` are the ids of the calls in it."""
    _choice(item.get("type"), ["message", "function_call", "function_call_output"], "item.type")
    match item["type"]:
        case "message":
            only(item, {"id", "object", "type", "role", "status", "content"}, "item.")
            _choice(item.get("role"), sorted(_CONTENT), "item.role")
            content = item.get("content")
            if not isinstance(content, list) or not content:
                raise RefusedError(
                    "missing_required_parameter", "Missing required parameter: 'item.content'.", "item.content"
                )
            for index, part in enumerate(cast("list[object]", content)):
                _check_part(as_object(part, f"item.content[{index}]"), item["role"], f"item.content[{index}]")
        case "function_call":
            only(item, {"id", "object", "type", "status", "call_id", "name", "arguments"}, "item.")
            for name in ("call_id", "name", "arguments"):
                if not isinstance(item.get(name), str):
                    raise RefusedError(
                        "missing_required_parameter", f"Missing required parameter: 'item.{name}'.", f"item.{name}"
                    )
            check_id(item["call_id"], "item.call_id")
        case _:
            only(item, {"id", "object", "type", "status", "call_id", "output"}, "item.")
            if not isinstance(item.get("output"), str):
                raise RefusedError("invalid_type", "Invalid type for 'item.output': expected a string.", "item.output")
            check_id(item.get("call_id"), "item.call_id")
            if item["call_id"] not in calls:
                raise RefusedError(
                    "invalid_tool_call_id",
                    f"Tool call ID '{item['call_id']}' not found in conversation.",
                    "item.call_id",
                )
    return {key: value for key, value in item.items() if key not in {"id", "object", "status"}}


def _check_part(part: Mapping[str, Any], role: str, param: str) -> None:
    _choice(part.get("type"), sorted(_CONTENT[role]), f"{param}.type")
    if part["type"] == "input_image":
        if not isinstance(url := part.get("image_url"), str) or not _IMAGE.match(url):
            raise RefusedError(
                "invalid_value", "Invalid image: expected a data URL of a PNG or JPEG image.", f"{param}.image_url"
            )
    elif part["type"] != "input_audio" and not isinstance(part.get("text"), str):
        raise RefusedError(
            "missing_required_parameter", f"Missing required parameter: '{param}.text'.", f"{param}.text"
        )

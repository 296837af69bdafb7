"""OpenAI's chat completions on loopback.

Sources: OpenAI's reference of `POST /v1/chat/completions`, and its error messages as they are quoted in public issue
trackers. Checked against the official SDK in `tests/models/openai/test_chat_server.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, cast

from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, json_response, sse
from antiphon.testing.servers.openai_script import (
    CHARACTERS_PER_TOKEN,
    OpenAIScriptServer,
    Refused,
    Reply,
    bits,
    check_function,
    check_image,
    check_length,
    missing,
    parsed,
    words,
    wrong_type,
    wrong_value,
)

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")
_REASONS = {"max_tokens": "length", "content_filtered": "content_filter", "end_turn": "stop", "tool_use": "tool_calls"}
_KNOWN = {
    *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens"),
    *(
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "moderation",
        "n",
        "parallel_tool_calls",
        "prediction",
    ),
    *("presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort"),
    *("response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options"),
    *("temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
}


class OpenAIChatServer(OpenAIScriptServer):
    """Chat completions on loopback: `POST /v1/chat/completions`, and `GET /v1/models`.

    It keeps the rules: key, model, parameters, roles, parts, tools and their schemas, calls and their results, the length of
    ids and of the conversation. What it answers is the script's.
    """

    _lead = 1

    async def _answer(self, request: HTTPRequest) -> HTTPResponse:
        if (request.method, request.path) == ("GET", "/v1/models"):
            models = [{"id": self.model_id, "object": "model", "created": 0, "owned_by": "loopback"}]
            return json_response({"object": "list", "data": models})
        if (request.method, request.path) != ("POST", "/v1/chat/completions"):
            raise Refused(status=404, message=f"Invalid URL ({request.method} {request.path})")
        body = parsed(request)
        self._check(body)
        tokens = len(json.dumps(body["messages"], ensure_ascii=False)) // CHARACTERS_PER_TOKEN
        reply = self._next(tokens)
        if body.get("stream"):
            return self._sent(self._frames(body, reply), reply)
        return json_response(self._whole(reply))

    def _too_long(self, tokens: int) -> Refused:
        return Refused(
            status=400,
            message=f"This model's maximum context length is {self.context_tokens} tokens. However, your messages resulted "
            f"in {tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )

    def _check(self, body: Mapping[str, Any]) -> None:
        if "model" not in body:
            raise Refused(status=400, message="you must provide a model parameter")
        if body["model"] != self.model_id:
            raise Refused(
                status=404,
                message=f"The model `{body['model']}` does not exist or you do not have access to it.",
                code="model_not_found",
            )
        for name in body:
            if name not in _KNOWN:
                raise Refused(status=400, message=f"Unrecognized request argument supplied: {name}")
        if "stream_options" in body and not body.get("stream"):
            raise Refused(
                status=400,
                message="The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                param="stream_options",
            )
        if not 0 <= body.get("temperature", 1) <= 2:
            raise Refused(
                status=400,
                message=f"Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got "
                f"{body['temperature']} instead.",
                param="temperature",
                code="decimal_above_max_value",
            )
        for number, spec in enumerate(body.get("tools") or ()):
            if spec.get("type") != "function":
                raise wrong_value(f"tools[{number}].type", spec.get("type"), ["function", "custom"])
            check_function(spec.get("function") or {}, f"tools[{number}].function")
        if "tools" in body and not body["tools"]:
            raise Refused(
                status=400,
                message="Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array "
                "instead.",
                param="tools",
                code="empty_array",
            )
        check_messages(body.get("messages"))

    def _frames(self, body: Mapping[str, Any], reply: Reply) -> list[bytes]:
        head = {
            "id": f"chatcmpl-{self._number():08d}",
            "object": "chat.completion.chunk",
            "created": 1_767_225_600,
            "model": self.model_id,
            "service_tier": "default",
            "system_fingerprint": "fp_loopback",
        }
        options: dict[str, Any] = body.get("stream_options") or {}
        told = bool(options.get("include_usage"))

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse({**head, "choices": [choice], **({"usage": None} if told else {})})

        frames = [chunk({"role": "assistant", "content": None if reply.calls else "", "refusal": None})]
        frames += [chunk({"reasoning_content": piece}) for piece in words(reply.reasoning)]
        frames += [chunk({"content": piece}) for piece in words(reply.text)]
        frames += [chunk({"refusal": piece}) for piece in words(reply.refusal)]
        calls: list[list[bytes]] = []
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": ""}
            first = {"index": index, "id": call.id, "type": "function", "function": function}
            pieces: list[dict[str, Any]] = [
                first,
                *({"index": index, "function": {"arguments": piece}} for piece in bits(call.arguments)),
            ]
            calls.append([chunk({"tool_calls": [piece]}) for piece in pieces])
        if reply.mixed:
            frames += [frame for turn in zip_longest(*calls) for frame in turn if frame is not None]
        else:
            frames += [frame for pieces in calls for frame in pieces]
        if reply.error is not None:
            code, message = reply.error
            error = {"message": message, "type": "server_error", "param": None, "code": code}
            return [*frames[: max(0, self._lead + reply.after)], sse({"error": error})]
        frames.append(chunk({}, _finish(reply)))
        if told:
            frames.append(sse({**head, "choices": [], "usage": _usage(reply)}))
        if self.strange:
            odd: dict[str, Any] = {
                **head,
                "object": "chat.completion.novelty",
                "choices": [],
                "novelty": {"depth": [1, None]},
            }
            frames = [b": keep-alive\n\n", *(part for frame in frames for part in (sse(odd), frame))]
        return [*frames, sse("[DONE]")]

    def _whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in reply.calls
            ]
        return {
            "id": f"chatcmpl-{self._number():08d}",
            "object": "chat.completion",
            "created": 1_767_225_600,
            "model": self.model_id,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}],
            "usage": _usage(reply),
        }


def check_messages(messages: object) -> None:
    """Check a history.

    Raises:
        Refused: If the provider would not take it.
    """
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of objects", messages)
    history = cast("list[dict[str, Any]]", messages)
    if not history:
        raise Refused(
            status=400,
            message="Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array "
            "instead.",
            param="messages",
            code="empty_array",
        )
    waiting: list[str] = []
    may_answer = False
    for number, message in enumerate(history):
        at = f"messages[{number}]"
        role = message.get("role")
        if role not in _ROLES:
            raise wrong_value(f"{at}.role", role, _ROLES)
        if role == "tool":
            key = message.get("tool_call_id")
            if key is None:
                raise missing(f"{at}.tool_call_id")
            if not may_answer:
                raise Refused(
                    status=400,
                    message="Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{number}].role",
                )
            if key not in waiting:
                raise Refused(
                    status=400,
                    message=f"Invalid parameter: 'tool_call_id' of '{key}' not found in 'tool_calls' of previous message.",
                    param=f"messages.[{number}].tool_call_id",
                )
            waiting.remove(key)
        else:
            _check_answered(waiting, number)
            waiting = [call.get("id") for call in message.get("tool_calls") or ()]
            may_answer = bool(waiting)
        _check_content(message, at, number)
    _check_answered(waiting, len(history))


def _check_answered(waiting: list[str], number: int) -> None:
    if waiting:
        raise Refused(
            status=400,
            message="An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{number}].role",
        )


def _check_content(message: Mapping[str, Any], at: str, number: int) -> None:
    role: str = message["role"]
    content: Any = message.get("content")
    calls: Any = message.get("tool_calls")
    if calls is not None and not calls:
        raise Refused(
            status=400,
            message=f"Invalid '{at}.tool_calls': empty array. Expected an array with minimum length 1, but got an empty "
            "array instead.",
            param=f"{at}.tool_calls",
            code="empty_array",
        )
    if content is None and not calls:
        raise Refused(
            status=400,
            message="Invalid value for 'content': expected a string, got null.",
            param=f"messages.[{number}].content",
        )
    for index, call in enumerate(calls or ()):
        place = f"{at}.tool_calls[{index}]"
        if call.get("type") != "function":
            raise wrong_value(f"{place}.type", call.get("type"), ["function", "custom"])
        given: Any = call["function"].get("arguments")
        if type(given) is not str:
            raise wrong_type(f"{place}.function.arguments", "a string", given)
        check_length(call["id"], f"{place}.id", 40)
    if not content or type(content) is str:
        return
    if type(content) is not list:
        raise wrong_type(f"{at}.content", "one of a string or array of objects", content)
    parts = cast("list[dict[str, Any]]", content)
    for index, part in enumerate(parts):
        place, kind = f"{at}.content[{index}]", part.get("type")
        if kind not in _PARTS:
            raise wrong_value(f"{place}.type", kind, _PARTS)
        if kind == "image_url" and role != "user":
            raise Refused(
                status=400,
                message=f"Invalid '{at}'. Image URLs are only allowed for messages with role 'user', but this message with "
                f"role '{role}' contains an image URL.",
                param=at,
                code="invalid_value",
            )
        if kind == "image_url":
            check_image(part["image_url"].get("url"), f"{place}.image_url.url")
        if kind == "file" and not {"file_data", "file_id"} & part.get("file", {}).keys():
            raise missing(f"{place}.file.file_id")


def _finish(reply: Reply) -> str:
    if reply.stop is not None:
        return _REASONS.get(reply.stop, reply.stop)
    return "tool_calls" if reply.calls else "stop"


def _usage(reply: Reply) -> dict[str, Any]:
    read, written = reply.usage or (0, 0)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": read // 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1 if reply.reasoning else 0, "audio_tokens": 0},
    }

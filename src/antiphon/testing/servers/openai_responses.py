"""OpenAI's Responses API on loopback, which keeps what it is told to store.

Sources: OpenAI's reference of `POST /v1/responses` and of its streaming events, and its error messages as they are quoted in
public issue trackers. Checked against the official SDK in `tests/models/openai/test_responses_server.py`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
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

_KNOWN = {
    *(
        "access_programs",
        "background",
        "context_management",
        "conversation",
        "image",
        "include",
        "input",
        "instructions",
    ),
    *("max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls"),
    *(
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
    ),
    *("safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice"),
    *("tools", "top_logprobs", "top_p", "truncation", "user"),
}
_ROLES = ("assistant", "system", "developer", "user")
_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "item_reference")
_INPUT = ("input_text", "input_image", "input_file")
_INCLUDE = (
    "file_search_call.results",
    "web_search_call.results",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_REASONS = {"max_tokens": "max_output_tokens", "content_filtered": "content_filter"}


class OpenAIResponsesServer(OpenAIScriptServer):
    """The Responses API on loopback: `POST /v1/responses`, `GET` and `DELETE /v1/responses/{id}`.

    It keeps the rules: key, model, parameters, items and their parts, tools, calls and their outputs, reasoning and what comes
    of it, the length of ids and of the conversation, and stored responses to go on from.

    Args:
        encrypts: Whether the model has encrypted reasoning; one that has none refuses to be asked for it.
        **more: As `OpenAIChatServer`.
    """

    _lead = 4

    def __init__(self, *, encrypts: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self.encrypts = encrypts
        self._stored: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}

    @property
    def stored(self) -> list[str]:
        """The ids of the responses that are kept."""
        return list(self._stored)

    def forget(self, response_id: str | None = None) -> None:
        """No longer have a response, as after 30 days; None: none of them."""
        if response_id is None:
            self._stored.clear()
        else:
            self._stored.pop(response_id, None)

    async def _answer(self, request: HTTPRequest) -> HTTPResponse:
        if request.path.startswith("/v1/responses/"):
            return self._look_up(request)
        if (request.method, request.path) != ("POST", "/v1/responses"):
            raise Refused(status=404, message=f"Invalid URL ({request.method} {request.path})")
        body = parsed(request)
        history = self._check(body)
        told = f"{body.get('instructions') or ''}{json.dumps(history, ensure_ascii=False)}"
        reply = self._next(len(told) // CHARACTERS_PER_TOKEN)
        response = self._response(body, reply)
        keeps = body.get("store", True) is not False
        if keeps and reply.error is None:
            self._stored[response["id"]] = (response, [*history, *response["output"]])
        if body.get("stream"):
            return self._sent(self._frames(response, reply), reply)
        return json_response(response)

    def _look_up(self, request: HTTPRequest) -> HTTPResponse:
        key = request.path.removeprefix("/v1/responses/")
        if key not in self._stored:
            raise Refused(status=404, message=f"Response with id '{key}' not found.")
        if request.method == "DELETE":
            self.forget(key)
            return json_response({"id": key, "object": "response", "deleted": True})
        return json_response(self._stored[key][0])

    def _too_long(self, tokens: int) -> Refused:
        return Refused(
            status=400,
            message="Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code="context_length_exceeded",
        )

    def _check(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The whole history of a request that breaks no rule."""
        if "model" not in body:
            raise missing("model")
        if body["model"] != self.model_id:
            raise Refused(
                status=400,
                message=f"The requested model '{body['model']}' does not exist.",
                param="model",
                code="model_not_found",
            )
        for name in body:
            if name not in _KNOWN:
                raise Refused(status=400, message=f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        for number, name in enumerate(body.get("include") or ()):
            if name not in _INCLUDE:
                raise wrong_value(f"include[{number}]", name, _INCLUDE)
            if name == "reasoning.encrypted_content" and not self.encrypts:
                raise Refused(
                    status=400, message="Encrypted content is not supported with this model.", param="include"
                )
        for number, spec in enumerate(body.get("tools") or ()):
            if spec.get("type") == "function":
                check_function(spec, f"tools[{number}]")
            elif "function" in spec or "type" not in spec:
                raise missing(f"tools[{number}].type")
        given = body.get("input")
        if given is None and body.get("previous_response_id") is None:
            raise Refused(
                status=400,
                message="One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.",
            )
        items: list[dict[str, Any]] = (
            [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given or ())
        )
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self._stored:
            raise Refused(
                status=400,
                message=f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        for number, item in enumerate(items):
            self._check_item(item, f"input[{number}]")
        known = self._stored[previous][1] if previous is not None else []
        check_calls(known, items)
        return [*known, *items]

    def _check_item(self, item: Mapping[str, Any], at: str) -> None:
        kind = item.get("type", "message")
        if kind not in _ITEMS:
            raise wrong_value(f"{at}.type", kind, _ITEMS)
        if kind == "message":
            _check_message(item, at)
        elif kind == "reasoning":
            self._check_reasoning(item, at)
        elif kind in {"function_call", "function_call_output"}:
            for name in ("call_id", "name", "arguments") if kind == "function_call" else ("call_id", "output"):
                if name not in item:
                    raise missing(f"{at}.{name}")
            check_length(item["call_id"], f"{at}.call_id", 64)
            if kind == "function_call_output" and not isinstance(item["output"], str):
                _check_parts(item["output"], f"{at}.output", _INPUT)

    def _check_reasoning(self, item: Mapping[str, Any], at: str) -> None:
        for name in ("id", "summary"):
            if name not in item:
                raise missing(f"{at}.{name}")
        if not str(item["id"]).startswith("rs"):
            raise Refused(
                status=400,
                message=f"Invalid '{at}.id': '{item['id']}'. Expected an ID that begins with 'rs'.",
                param=f"{at}.id",
                code="invalid_value",
            )
        encrypted = item.get("encrypted_content")
        if encrypted is None:
            raise Refused(
                status=404,
                message=f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                param="input",
            )
        try:
            sealed = b64decode(encrypted, validate=True).decode()
        except (NotBase64, UnicodeDecodeError):
            sealed = ""
        if sealed.partition(":")[0] != self.key:
            raise Refused(
                status=400,
                message=f"The encrypted content for item {item['id']} could not be verified. Reason: Encrypted content could "
                "not be decrypted or parsed.",
                code="invalid_encrypted_content",
            )

    def _response(self, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
        output: list[dict[str, Any]] = []
        if reply.reasoning:
            thought: dict[str, Any] = {
                "id": f"rs_{self._number():08d}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": reply.reasoning}],
            }
            if "reasoning.encrypted_content" in (body.get("include") or ()):
                thought["encrypted_content"] = b64encode(f"{self.key}:{reply.reasoning}".encode()).decode()
            output.append(thought)
        if reply.text or reply.refusal or not reply.calls:
            part: dict[str, Any] = (
                {"type": "refusal", "refusal": reply.refusal}
                if reply.refusal
                else {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            )
            output.append(
                {
                    "id": f"msg_{self._number():08d}",
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": [part],
                }
            )
        output += [
            {
                "id": f"fc_{self._number():08d}",
                "type": "function_call",
                "status": "completed",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
            for call in reply.calls
        ]
        read, written = reply.usage or (0, 0)
        return {
            "id": f"resp_{self._number():08d}",
            "object": "response",
            "created_at": 1_767_225_600,
            "status": "completed" if reply.stop is None else "incomplete",
            "error": None,
            "incomplete_details": None if reply.stop is None else {"reason": _REASONS.get(reply.stop, reply.stop)},
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "model": self.model_id,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "store": body.get("store", True),
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": body.get("tools") or [],
            "top_p": 1.0,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": read // 2, "cache_write_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 1 if reply.reasoning else 0},
                "total_tokens": read + written,
            },
        }

    def _frames(self, response: dict[str, Any], reply: Reply) -> list[bytes]:
        events: list[dict[str, Any]] = []
        open_response: dict[str, Any] = {
            **response,
            "status": "in_progress",
            "output": [],
            "usage": None,
            "incomplete_details": None,
        }
        events += [
            {"type": "response.created", "response": open_response},
            {"type": "response.in_progress", "response": open_response},
        ]
        told = [_item_events(index, item) for index, item in enumerate(response["output"])]
        if reply.mixed:
            alone = len(told) - len(reply.calls)
            mixed = [event for turn in zip_longest(*told[alone:]) for event in turn if event is not None]
            told = [*told[:alone], mixed]
        events += [event for part in told for event in part]
        if reply.error is not None:
            code, message = reply.error
            failed: dict[str, Any] = {**open_response, "status": "failed", "error": {"code": code, "message": message}}
            events = [*events[: max(0, self._lead + reply.after)], {"type": "response.failed", "response": failed}]
        else:
            events.append({"type": f"response.{response['status']}", "response": response})
        if self.strange:
            odd = {"type": "response.novelty.delta", "output_index": 99, "delta": {"depth": [1, None]}}
            events = [part for event in events for part in (odd, {**event, "novelty": True})]
        frames = [sse({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]
        return [b": keep-alive\n\n", *frames] if self.strange else frames


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one item of a response, in order."""
    at = {"output_index": index, "item_id": item["id"]}
    begun: dict[str, Any]
    match item["type"]:
        case "reasoning":
            begun = {name: value for name, value in item.items() if name != "encrypted_content"} | {"summary": []}
            place = {**at, "summary_index": 0}
            [part] = item["summary"]
            told = [
                {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
                *(
                    {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
                    for piece in words(part["text"])
                ),
                {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]},
                {"type": "response.reasoning_summary_part.done", **place, "part": part},
            ]
        case "function_call":
            begun = {**item, "status": "in_progress", "arguments": ""}
            told = [
                *(
                    {"type": "response.function_call_arguments.delta", **at, "delta": piece}
                    for piece in bits(item["arguments"])
                ),
                {
                    "type": "response.function_call_arguments.done",
                    **at,
                    "name": item["name"],
                    "arguments": item["arguments"],
                },
            ]
        case _:
            begun = {**item, "status": "in_progress", "content": []}
            place = {**at, "content_index": 0}
            [part] = item["content"]
            name, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
            more: dict[str, Any] = {} if name == "refusal" else {"logprobs": []}
            told = [
                {"type": "response.content_part.added", **place, "part": {**part, name: ""}},
                *({"type": f"response.{kind}.delta", **place, **more, "delta": piece} for piece in words(part[name])),
                {"type": f"response.{kind}.done", **place, **more, name: part[name]},
                {"type": "response.content_part.done", **place, "part": part},
            ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *told,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _check_message(item: Mapping[str, Any], at: str) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise wrong_value(f"{at}.role", role, _ROLES)
    if content is None:
        raise missing(f"{at}.content")
    if not isinstance(content, str):
        _check_parts(content, f"{at}.content", ("output_text", "refusal") if role == "assistant" else _INPUT)


def _check_parts(parts: Any, at: str, kinds: Sequence[str]) -> None:
    if type(parts) is not list:
        raise wrong_type(at, "one of an array of objects or string", parts)
    listed = cast("list[dict[str, Any]]", parts)
    for number, part in enumerate(listed):
        if part.get("type") not in kinds:
            raise wrong_value(f"{at}[{number}]", part.get("type"), kinds)
        if part["type"] == "input_image" and "file_id" not in part:
            check_image(part.get("image_url"), f"{at}[{number}].image_url")
        if part["type"] == "input_file" and not {"file_data", "file_id", "file_url"} & part.keys():
            raise missing(f"{at}[{number}].file_id")


def check_calls(known: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]) -> None:
    """Check that calls and their outputs, and reasoning and what comes of it, belong together.

    Args:
        known: What the server has.
        items: What is new.

    Raises:
        Refused: If the provider would not take it.
    """
    calls: dict[str, bool] = {}
    for item in [*known, *items]:
        if item.get("type") == "function_call":
            calls[item["call_id"]] = False
        elif item.get("type") == "function_call_output":
            if item["call_id"] not in calls:
                raise Refused(
                    status=400,
                    message=f"No tool call found for function call output with call_id {item['call_id']}.",
                    param="input",
                )
            calls[item["call_id"]] = True
    for key, answered in calls.items():
        if not answered:
            raise Refused(status=400, message=f"No tool output found for function call {key}.", param="input")
    for item, after in zip_longest(items, items[1:]):
        came_of_it = after is not None and (
            after.get("type") in {"reasoning", "function_call"} or after.get("role") == "assistant"
        )
        if item.get("type") == "reasoning" and not came_of_it:
            raise Refused(
                status=400,
                message=f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
                param="input",
            )

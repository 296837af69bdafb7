"""Anthropic's Messages API on loopback: its stream, its rules and its errors."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

from antiphon.testing.servers.anthropic_rules import (
    Refusal,
    check_body,
    check_headers,
    count_tokens,
    error_body,
    sign,
)
from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, json_response, sse
from antiphon.testing.servers.turns import ANSWER, Answer, Step, TurnServer

_STOPS = {"max_tokens": "max_tokens", "content_filtered": "refusal"}
_LONGEST_BODY = 32 * 1024 * 1024


class AnthropicServer(TurnServer):
    """Serves `POST /v1/messages` as Anthropic does, and answers by a script. See `TurnServer`.

    Args:
        key: The key that is accepted, in `x-api-key` or as a bearer token.
        model_id: The model that is known.
        context_tokens: How long a conversation may be.
        most_tokens: The largest `max_tokens` that is accepted.
        piece_bytes: Send the stream in pieces of so many bytes.
        tls: Serve TLS with this context.
    """

    def __init__(
        self,
        *,
        key: str = "sk-ant-loopback",
        model_id: str = "claude-loopback",
        context_tokens: int = 200_000,
        most_tokens: int = 64_000,
        piece_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(key=key, model_id=model_id, context_tokens=context_tokens, piece_bytes=piece_bytes, tls=tls)
        self._most_tokens = most_tokens
        self._paused: str | None = None

    def think_hidden(self, text: str, *, data: str = "redacted:0") -> None:
        """Answer with a text, after a thought that only the provider can read; `data` starts with `redacted:`."""
        self.queue(Step(answer=Answer(text=text, hidden_reasoning=data)))

    def throttle(self, retry_after: float | None = None) -> None:
        message = "This request would exceed your organization's rate limit of 50 requests per minute."
        self.refuse(429, "rate_limit_error", message, retry_after=retry_after)

    def overflow(self) -> None:
        message = f"prompt is too long: {self.context_tokens + 8} tokens > {self.context_tokens} maximum"
        self.refuse(400, "invalid_request_error", message)

    def overload(self) -> None:
        """Refuse a request because the whole service has too many."""
        self.refuse(529, "overloaded_error", "Overloaded")

    def refuse(self, status: int, kind: str, message: str, *, retry_after: float | None = None) -> None:
        """Answer a request with an error of the API."""
        headers = {"request-id": "req_loopback"}
        if retry_after is not None:
            headers["retry-after"] = f"{retry_after:g}"
        self.queue(Step(refusal=json_response(error_body(kind, message), status, headers)))

    def fail_midway(self, kind: str = "overloaded_error", message: str = "Overloaded", *, text: str = ANSWER) -> None:
        """Begin an answer, and send an error in its middle."""
        self.queue(Step(answer=Answer(text=text), failure={"type": kind, "message": message}))

    def fail_at_once(self, kind: str = "overloaded_error", message: str = "Overloaded") -> None:
        """Open the stream, and send an error before any content."""
        self.queue(Step(answer=Answer(), failure={"type": kind, "message": message}))

    def pause(self, text: str) -> None:
        """Say a text, and pause the turn: the client is to send what was said back, and gets the rest."""
        self.queue(Step(answer=Answer(text=text, stop="pause_turn")))

    def refuse_to_answer(self, category: str | None = "cyber", *, text: str | None = None) -> None:
        """Decline, as the model does for reasons of safety."""
        details = {"type": "refusal", "category": category, "explanation": "This request was declined."}
        self.queue(Step(answer=Answer(text=text, stop="refusal", details={"stop_details": details})))

    def stop_word(self, reason: str) -> str:
        return _STOPS.get(reason, reason)

    def call_id(self, number: int) -> str:
        return f"toolu_{number:04d}"

    def check(self, request: HTTPRequest) -> HTTPResponse | None:
        try:
            if request.path != "/v1/messages":
                raise Refusal(404, "not_found_error", "Not found")
            if request.method != "POST":
                raise Refusal(405, "invalid_request_error", "Method Not Allowed")
            check_headers(request.headers, self.key)
            if len(request.body) > _LONGEST_BODY:
                raise Refusal(413, "request_too_large", "Request exceeds the maximum size")
            check_body(
                _json(request.body),
                model_id=self.model_id,
                version=request.headers["anthropic-version"],
                context_tokens=self.context_tokens,
                most_tokens=self._most_tokens,
                paused=self._paused,
            )
        except Refusal as refusal:
            body = error_body(refusal.type, refusal.message)
            return json_response(body, refusal.status, {"request-id": "req_loopback"})
        return None

    def used_up(self) -> HTTPResponse:
        return json_response(error_body("invalid_request_error", "the script of this server is used up"), 400)

    def failure_event(self, failure: Any) -> bytes:
        return sse({"type": "error", "error": failure}, "error")

    def broken_event(self) -> bytes:
        return b"event: content_block_delta\n" + super().broken_event()

    def events(self, answer: Answer, request: HTTPRequest, *, strange: bool) -> list[bytes]:
        return [sse(event, event["type"]) for event in self._events(answer, request, strange=strange)]

    def whole(self, answer: Answer, request: HTTPRequest) -> HTTPResponse | None:
        if request.json().get("stream"):
            return None
        message = self._message(request)
        message["content"] = [_whole_block(start, deltas) for start, deltas in _blocks(answer)]
        message["stop_reason"] = _stop_of(answer)
        message["usage"] = {**message["usage"], **self._counted(answer), **answer.usage}
        return json_response({**message, **answer.details})

    def _events(self, answer: Answer, request: HTTPRequest, *, strange: bool) -> Iterator[dict[str, Any]]:
        self._paused = answer.text if answer.stop == "pause_turn" else None
        yield {"type": "message_start", "message": self._message(request)}
        yield {"type": "ping"}
        index = 0
        if strange:
            yield {"type": "weather_report", "sky": {"colour": "blue"}}
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "poem", "verse": 1}}
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "verse_delta", "line": "la"}}
            yield {"type": "content_block_stop", "index": index}
            index += 1
        extra = {"new_field": {"a": [1]}} if strange else {}
        for start, deltas in _blocks(answer):
            yield {"type": "content_block_start", "index": index, "content_block": {**start, **extra}, **extra}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": {**delta, **extra}, **extra}
            yield {"type": "content_block_stop", "index": index}
            index += 1
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": _stop_of(answer), "stop_sequence": None, **answer.details, **extra},
            "usage": {**self._counted(answer), **answer.usage, **extra},
        }
        yield {"type": "message_stop"}

    def _message(self, request: HTTPRequest) -> dict[str, Any]:
        tokens = count_tokens(request.json())
        return {
            "id": f"msg_{len(self.requests):04d}",
            "type": "message",
            "role": "assistant",
            "model": self.model_id,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 1,
            },
        }

    def _counted(self, answer: Answer) -> dict[str, Any]:
        words = (answer.text or "").split() + (answer.reasoning or "").split()
        return {"output_tokens": len(words) + 4 * len(answer.calls) + 1}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refusal(400, "invalid_request_error", f"The request body is not valid JSON: {error}") from None


def _stop_of(answer: Answer) -> str:
    return answer.stop or ("tool_use" if answer.calls else "end_turn")


def _blocks(answer: Answer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The blocks of an answer: how each starts, and its pieces."""
    if answer.hidden_reasoning is not None:
        yield {"type": "redacted_thinking", "data": answer.hidden_reasoning}, []
    if answer.reasoning is not None:
        pieces: list[dict[str, Any]] = [
            {"type": "thinking_delta", "thinking": piece} for piece in _pieces(answer.reasoning)
        ]
        pieces.append({"type": "signature_delta", "signature": sign(answer.reasoning)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, pieces
    if answer.text is not None:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(answer.text)]
    for key, name, content in answer.calls:
        text = content if isinstance(content, str) else json.dumps(content)
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(text))]
        yield {"type": "tool_use", "id": key, "name": name, "input": {}}, pieces


def _pieces(text: str) -> list[str]:
    size = max(1, len(text) // 3)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _whole_block(start: dict[str, Any], deltas: list[dict[str, Any]]) -> dict[str, Any]:
    joined = {**start}
    arguments = ""
    for delta in deltas:
        for key, value in delta.items():
            if key == "partial_json":
                arguments += value
            elif key != "type":
                joined[key] = joined.get(key, "") + value
    if start["type"] == "tool_use":
        joined["input"] = json.loads(arguments or "{}")
    return joined

"""The Gemini API's `generateContent` on loopback: its stream, its rules and its errors."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from antiphon.testing.servers.gemini_rules import (
    Refusal,
    check_body,
    check_key,
    check_target,
    count_tokens,
    detail,
    sign,
)
from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, json_response, sse
from antiphon.testing.servers.turns import ANSWER, Answer, Step, TurnServer

_STOPS = {"max_tokens": "MAX_TOKENS", "content_filtered": "SAFETY", "end_turn": "STOP"}


class GeminiServer(TurnServer):
    """Serves `models/{model}:streamGenerateContent` and `:generateContent`, and answers by a script. See `TurnServer`.

    Args:
        key: The key that is accepted, in `x-goog-api-key` or in the query.
        model_id: The model that is known.
        context_tokens: How long a conversation may be.
        signatures: Whether thoughts are signed and calls must come back with the signature, as from Gemini 3 on.
        piece_bytes: Send the stream in pieces of so many bytes.
        tls: Serve TLS with this context.
    """

    def __init__(
        self,
        *,
        key: str = "AIza-loopback",
        model_id: str = "gemini-loopback",
        context_tokens: int = 1_048_576,
        signatures: bool = True,
        piece_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(key=key, model_id=model_id, context_tokens=context_tokens, piece_bytes=piece_bytes, tls=tls)
        self._signatures = signatures
        self._signed = 0

    def throttle(self, retry_after: float | None = None) -> None:
        message = "Resource has been exhausted (e.g. check quota)."
        details = [] if retry_after is None else [detail("RetryInfo", retryDelay=f"{retry_after:g}s")]
        self.refuse(429, "RESOURCE_EXHAUSTED", message, *details)

    def use_up(self, quota_id: str = "GenerateRequestsPerDayPerProjectPerModel-FreeTier") -> None:
        """Refuse a request because a quota is used up."""
        violation = {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": quota_id,
            "quotaValue": "250",
        }
        message = "You exceeded your current quota, please check your plan and billing details."
        details = [detail("QuotaFailure", violations=[violation]), detail("RetryInfo", retryDelay="37s")]
        self.refuse(429, "RESOURCE_EXHAUSTED", message, *details)

    def overflow(self) -> None:
        message = (
            f"The input token count ({self.context_tokens + 8}) exceeds the maximum number of tokens allowed "
            f"({self.context_tokens})."
        )
        self.refuse(400, "INVALID_ARGUMENT", message)

    def overload(self) -> None:
        """Refuse a request because the model has too many."""
        self.refuse(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")

    def refuse(self, code: int, status: str, message: str, *details: dict[str, Any]) -> None:
        """Answer a request with an error of the API."""
        self.queue(Step(refusal=json_response(Refusal(code, status, message, *details).body(), code)))

    def block(self, reason: str = "PROHIBITED_CONTENT") -> None:
        """Refuse to answer the prompt: no candidate is made."""
        self.queue(Step(answer=Answer(details={"block": reason})))

    def fail_midway(self, *, text: str | None = ANSWER) -> None:
        """Begin an answer, and send an error in its middle."""
        refusal = Refusal(500, "INTERNAL", "An internal error has occurred. Please retry.")
        self.queue(Step(answer=Answer(text=text), failure=refusal.body()))

    def stop_word(self, reason: str) -> str:
        return _STOPS.get(reason, reason)

    def call_id(self, number: int) -> str:
        return f"call{number:04d}"

    def check(self, request: HTTPRequest) -> HTTPResponse | None:
        try:
            query = parse_qs(urlsplit(request.target).query)
            check_key(request.headers.get("x-goog-api-key") or query.get("key", [""])[0], self.key)
            check_target(request.path, self.model_id)
            check_body(_json(request.body), context_tokens=self.context_tokens, signatures=self._signatures)
        except Refusal as refusal:
            return json_response(refusal.body(), refusal.code)
        return None

    def used_up(self) -> HTTPResponse:
        return json_response(Refusal(400, "INVALID_ARGUMENT", "the script of this server is used up").body(), 400)

    def failure_event(self, failure: Any) -> bytes:
        return sse(failure)

    def events(self, answer: Answer, request: HTTPRequest, *, strange: bool) -> list[bytes]:
        return [sse(chunk) for chunk in self._chunks(answer, request, strange=strange)]

    def whole(self, answer: Answer, request: HTTPRequest) -> HTTPResponse | None:
        if request.path.endswith(":streamGenerateContent"):
            return None
        chunks = list(self._chunks(answer, request, strange=False))
        whole = chunks[-1]
        if "candidates" in whole:
            candidates = [chunk["candidates"][0] for chunk in chunks if "candidates" in chunk]
            parts = [part for candidate in candidates for part in candidate["content"]["parts"]]
            whole["candidates"][0]["content"]["parts"] = parts
        return json_response(whole)

    def _chunks(self, answer: Answer, request: HTTPRequest, *, strange: bool) -> Iterator[dict[str, Any]]:
        base = {"modelVersion": self.model_id, "responseId": f"response{len(self.requests):04d}"}
        prompt = count_tokens(request.json())
        usage: dict[str, Any] = {"promptTokenCount": prompt, "totalTokenCount": prompt}
        if "block" in answer.details:
            yield {"promptFeedback": {"blockReason": answer.details["block"]}, "usageMetadata": usage, **base}
            return
        extra: dict[str, Any] = {"newField": {"a": [1]}} if strange else {}
        if strange:
            yield {"weatherReport": {"sky": "blue"}, **base}
            yield {
                "candidates": [{"content": {"parts": [{"poem": {"verse": 1}}], "role": "model"}, "index": 0}],
                **base,
            }
        for part in self._parts(answer):
            content = {"parts": [{**part, **extra}], "role": "model", **extra}
            yield {"candidates": [{"content": content, "index": 0, **extra}], "usageMetadata": usage, **base, **extra}
        said = len((answer.text or "").split()) + 4 * len(answer.calls) + 1
        thought = len((answer.reasoning or "").split())
        usage = {**usage, "candidatesTokenCount": said, "totalTokenCount": prompt + said + thought}
        if thought:
            usage["thoughtsTokenCount"] = thought
        end: dict[str, Any] = {
            "content": {"parts": [], "role": "model"},
            "finishReason": answer.stop or "STOP",
            "index": 0,
        }
        if self._signatures and not answer.calls and answer.text:
            end["content"] = {"parts": [{"text": "", "thoughtSignature": self._sign()}], "role": "model"}
        yield {"candidates": [end], "usageMetadata": {**usage, **answer.usage}, **base}

    def _parts(self, answer: Answer) -> Iterator[dict[str, Any]]:
        for piece in _pieces(answer.reasoning or ""):
            yield {"text": piece, "thought": True}
        for piece in _pieces(answer.text or ""):
            yield {"text": piece}
        for place, (key, name, content) in enumerate(answer.calls):
            signed = {"thoughtSignature": self._sign()} if self._signatures and place == 0 else {}
            yield {"functionCall": {"id": key, "name": name, "args": content}, **signed}

    def _sign(self) -> str:
        self._signed += 1
        return sign(self._signed)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refusal(400, "INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from None


def _pieces(text: str) -> list[str]:
    size = max(1, len(text) // 3)
    return [text[at : at + size] for at in range(0, len(text), size)]

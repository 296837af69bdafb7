"""Which error a refusal of an OpenAI endpoint is. Pure.

Statuses, codes and types are those of OpenAI's error reference (developers.openai.com/api/docs/guides/error-codes); servers
that speak the protocol give a status and a text at least, so texts are looked at too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from antiphon.errors import (
    ContextWindowOverflowException,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
)

_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_context"}
_OVERFLOW_TEXTS = (
    "maximum context length",
    "context window",
    "context length",
    "exceeds the available context size",
    "prompt is too long",
    "input is too long",
    "request too large",  # one request beyond the tokens of a minute: waiting does not make it smaller
)
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_THROTTLE_CODES = {"rate_limit_exceeded", "slow_down", "too_many_requests", "engine_overloaded"}
_SERVER_CODES = {"server_error", "internal_error", "internal_server_error", "vector_store_timeout"}
_FILTER_CODES = {"content_filter", "content_policy_violation", "invalid_prompt", "bio_policy"}


def refusal(
    words: str, *, status: int | None = None, code: str | None = None, kind: str | None = None, model_id: str = ""
) -> ModelError:
    """The error that a refusal stands for.

    Args:
        words: What the provider says.
        status: The HTTP status; None for what is said in the middle of a stream.
        code: The error's `code`.
        kind: The error's `type`.
        model_id: The model that was asked for.
    """
    names = {name for name in (code, kind) if name}
    lowered = words.lower()
    told = words.strip() or "no reason given"
    about = ", ".join([*([f"HTTP {status}"] if status is not None else []), *([f"code {code!r}"] if code else [])])
    said = f"{told} ({about})" if about else told
    if names & _QUOTA_CODES or status == 402:
        return ModelQuotaError(f"the account is used up: {said}: look at its plan and billing; waiting does not help")
    if names & _OVERFLOW_CODES or (
        status in {None, 400, 413, 422, 429} and any(text in lowered for text in _OVERFLOW_TEXTS)
    ):
        return ContextWindowOverflowException(f"the conversation is too long for model {model_id!r}: {said}")
    if "model_not_found" in names or (status == 404 and "model" in lowered):
        return ModelNotFoundError(
            f"model {model_id!r} cannot be used: {said}: check model_id, and what the key may use"
        )
    if status == 401 or "invalid_api_key" in names:
        return ModelCredentialsError(f"the key was refused: {said}: check api_key, or OPENAI_API_KEY")
    if status == 403:
        return ModelCredentialsError(
            f"the key may not do this: {said}: check what the key's project may use, and from where"
        )
    if status in {429, 503} or names & _THROTTLE_CODES:
        return ModelThrottledException(f"the provider asks to slow down: {said}")
    if (status is not None and (status >= 500 or status in {408, 409})) or names & _SERVER_CODES:
        return ModelError(f"the provider failed: {said}: try again later", passing=True)
    if names & _FILTER_CODES:
        return ModelRequestError(f"the provider's filter does not let this through: {said}: change what is asked")
    if status == 404:
        return ModelRequestError(
            f"the endpoint knows no such address: {said}: check base_url, which ends in /v1 as a rule"
        )
    if status is None and not names:
        return ModelError(f"the provider failed: {said}", passing=True)
    return ModelRequestError(f"the provider refuses the request: {said}: change what it names")


def refusal_from(body: object, *, status: int | None, fallback: str, model_id: str) -> ModelError:
    """The error that an error body stands for: `{"error": {"message", "type", "param", "code"}}`, or the inner part."""
    outer = _fields(body)
    inner: object = outer.get("error", outer)
    if isinstance(inner, str):  # some servers give a text only
        return refusal(inner, status=status, model_id=model_id)
    fields = _fields(inner)
    words = fields.get("message") or fields.get("detail") or fallback
    if isinstance(body, str) and body.strip():
        words = body.strip()[:500]
    return refusal(
        str(words), status=status, code=_text(fields.get("code")), kind=_text(fields.get("type")), model_id=model_id
    )


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, (str, int)) and str(value) else None

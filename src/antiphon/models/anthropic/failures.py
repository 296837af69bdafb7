"""What Anthropic's errors are here. Pure.

Sources: the page on errors of the Messages API, and the texts of its errors.
"""

from __future__ import annotations

import re
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

_OVERFLOW = re.compile(
    r"prompt is too long|input is too long|exceeds? (the )?context (window|limit)|exceed context limit|context window limit",
    re.IGNORECASE,
)
_USED_UP = re.compile(r"credit balance|usage limits?|spend(ing)? (limit|cap)|billing", re.IGNORECASE)
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def failure_from(
    kind: str | None,
    message: str,
    *,
    status: int | None,
    model_id: str,
    code: str | None = None,
    retry_after_s: float | None = None,
) -> ModelError:
    """The error of ours for one of the API's.

    Args:
        kind: `error.type`; None where the answer had none.
        message: `error.message`.
        status: The HTTP status; None for an error within a stream.
        model_id: The model that was asked.
        code: `error.details.error_code`.
        retry_after_s: What `retry-after` says.
    """
    kind = kind or _TYPES.get(status or 0, "api_error" if (status or 0) >= 500 else "invalid_request_error")
    told = f"Anthropic answered {kind}{f' ({status})' if status else ''}: {message}"
    if "spend_limit" in (code or "") or kind == "billing_error":
        return ModelQuotaError(f"{told}: look at billing and limits in the Claude Console")
    if kind in {"authentication_error", "permission_error"}:
        return ModelCredentialsError(f"{told}: check api_key or ANTHROPIC_API_KEY, and what it may use")
    if kind == "not_found_error":
        return ModelNotFoundError(f"{told}: check model_id={model_id!r} and base_url")
    if kind == "request_too_large" or status == 413 or (kind == "invalid_request_error" and _OVERFLOW.search(message)):
        return ContextWindowOverflowException(told)
    if kind in {"rate_limit_error", "overloaded_error"} or status in {429, 529}:
        if kind == "rate_limit_error" and retry_after_s is None and _USED_UP.search(message):
            return ModelQuotaError(f"{told}: look at billing and limits in the Claude Console")
        return ModelThrottledException(told, retry_after_s=retry_after_s)
    if kind == "invalid_request_error" or (status is not None and 400 <= status < 500 and status not in {408, 409}):
        if _USED_UP.search(message):
            return ModelQuotaError(f"{told}: look at billing and limits in the Claude Console")
        return ModelRequestError(told)
    return ModelError(told, passing=True, retry_after_s=retry_after_s)


def parts_of(body: object) -> tuple[str | None, str | None, str | None]:
    """The type, the message and the code of an error's body, as far as it has them."""
    entry: dict[str, Any] = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner: object = entry.get("error")
    error: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    more: object = error.get("details")
    details: dict[str, Any] = cast("dict[str, Any]", more) if isinstance(more, dict) else {}
    found = (error.get("type"), error.get("message"), details.get("error_code"))
    kind, message, code = (value if isinstance(value, str) else None for value in found)
    return kind, message, code

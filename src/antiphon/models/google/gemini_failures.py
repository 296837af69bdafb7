"""What errors of the Gemini API are here. Pure.

Sources: google.rpc (Code, ErrorInfo, QuotaFailure, RetryInfo), the API's page on troubleshooting, and texts that users of it
have reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    r"token count.*exceeds the maximum|exceeds the maximum number of (input )?tokens|input is too long|"
    r"payload size exceeds the limit",
    re.IGNORECASE,
)
_KEY = re.compile(r"api[ _]key (not valid|not found|expired)|pass a valid api key|api_key_invalid", re.IGNORECASE)
_USED_UP = re.compile(r"billing|prepa(y|id)|credits? (are|is)|spend(ing)? cap", re.IGNORECASE)
_PER_DAY = re.compile(r"per_?day", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def failure_from(status: int, word: str | None, message: str, body: object, *, model_id: str) -> ModelError:
    """The error of ours for one of the API's.

    Args:
        status: The HTTP status.
        word: The status in words, such as `INVALID_ARGUMENT`.
        message: What Google says.
        body: The error's JSON, for its details.
        model_id: The model that was asked.
    """
    told = f"Gemini answered {status} {word or ''}".rstrip() + f": {message}"
    details = list(_details(body))
    reasons = {str(detail.get("reason", "")) for detail in details}
    if "API_KEY_INVALID" in reasons or _KEY.search(message) or status in {401, 403}:
        return ModelCredentialsError(f"{told}: check api_key or GEMINI_API_KEY, and what it may use")
    if status == 404:
        return ModelNotFoundError(f"{told}: check model_id={model_id!r} and base_url")
    if status == 413 or (status == 400 and _OVERFLOW.search(message)):
        return ContextWindowOverflowException(told)
    if status == 429:
        return _too_much(told, message, details)
    if status == 503:
        return ModelThrottledException(told, retry_after_s=_retry_after(details))
    if status == 402 or (word == "FAILED_PRECONDITION" and _USED_UP.search(message)):
        return ModelQuotaError(f"{told}: look at plan and billing in Google AI Studio")
    if 400 <= status < 500 and status not in {408, 409, 499}:
        return ModelRequestError(told)
    return ModelError(told, passing=True, retry_after_s=_retry_after(details))


def _too_much(told: str, message: str, details: list[dict[str, Any]]) -> ModelError:
    """A quota of a day that is used up is no throttling: to wait for a moment does not help."""
    limits = [
        str(violation.get("quotaId", "")) + str(violation.get("quotaMetric", ""))
        for detail in details
        for violation in detail.get("violations", [])
    ] + [str(detail.get("metadata", {}).get("quota_limit", "")) for detail in details]
    wait = _retry_after(details)
    if any(_PER_DAY.search(limit) for limit in limits) or (wait is None and _USED_UP.search(message)):
        return ModelQuotaError(f"{told}: look at plan and billing in Google AI Studio")
    return ModelThrottledException(told, retry_after_s=wait)


def _retry_after(details: list[dict[str, Any]]) -> float | None:
    for detail in details:
        found = _SECONDS.fullmatch(str(detail.get("retryDelay", "")))
        if found is not None:
            return float(found[1])
    return None


def _details(body: object) -> Iterator[dict[str, Any]]:
    entry: dict[str, Any] = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner: object = entry.get("error", entry)
    error: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    details: object = error.get("details")
    for detail in cast("list[object]", details) if isinstance(details, list) else []:
        if isinstance(detail, dict):
            yield cast("dict[str, Any]", detail)

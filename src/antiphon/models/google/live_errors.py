"""What the ends of a Gemini Live session mean. Pure.

The service says why it ends a session in the close frame: 1007 for what it does not accept, 1008 for what it does not allow,
1011 for its own failures and limits; which of these it is, only the words tell. Sources: ai.google.dev/gemini-api/docs/live and
the forum at discuss.ai.google.dev, where people quote what they got.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from antiphon.errors import (
    ContextWindowOverflowException,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelProtocolError,
    ModelQuotaError,
    ModelRequestError,
    ModelThrottledException,
    TransportError,
)

INVALID, POLICY, BACKEND, TRY_LATER = 1007, 1008, 1011, 1013
REFUSALS = frozenset({INVALID, POLICY, BACKEND})
"""Codes with which a session that is to be resumed is refused."""

_KINDS: tuple[tuple[type[ModelError], str], ...] = (
    (
        ModelCredentialsError,
        r"api[ _]key|api_key_invalid|unauthenticated|credential|access token|auth token|permission|unregistered callers",
    ),
    (ModelNotFoundError, r"is not found|not found for|not_found|does not exist|unknown model|no longer available"),
    (ModelQuotaError, r"exceeded your current quota|billing|prepay|credits|spending cap"),
    (ModelThrottledException, r"resource[_ ](?:has been )?exhausted|rate limit|too many|overloaded|quota"),
    (
        ContextWindowOverflowException,
        r"context (?:window|length)|token count|exceeds the maximum (?:number of )?tokens",
    ),
)
_STATUS: dict[int, type[ModelError]] = {
    400: ModelRequestError,
    401: ModelCredentialsError,
    403: ModelCredentialsError,
    404: ModelNotFoundError,
    429: ModelThrottledException,
}
_DEADLINE = re.compile(
    r"deadline expired|deadline exceeded|session (?:has )?(?:expired|timed out)|maximum duration", re.IGNORECASE
)


def is_limit(error: TransportError) -> bool:
    """Whether the service says that the session has lasted for as long as it may."""
    return error.code in {POLICY, BACKEND} and _DEADLINE.search(error.reason) is not None


def by_words(words: str) -> type[ModelError] | None:
    """The kind of failure that the service's words tell of."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, words, re.IGNORECASE)), None)


def failure(model: str, error: TransportError) -> ModelError:
    """Why a wire could not be opened, or was closed with a code.

    Args:
        model: Named in the error.
        error: What the wire says.
    """
    words = error.reason or str(error)
    kind = by_words(words)
    if error.opened:
        if kind is None:
            kind = {
                INVALID: ModelRequestError,
                POLICY: ModelRequestError,
                TRY_LATER: ModelThrottledException,
            }.get(error.code, ModelError)
        return kind(f"{model!r} ended the session with code {error.code}: {words}")
    if not error.code:
        return ModelConnectionError(f"{model!r} cannot be reached: {error}")
    if kind is None or error.code >= 500:
        kind = _STATUS.get(error.code, ModelConnectionError)
    return kind(f"{model!r} refused the connection with HTTP status {error.code}: {words}")


def told_failure(model: str, told: Any) -> ModelError:
    """The failure that an `error` message tells of: `{"code", "message", "status"}`."""
    if not isinstance(told, Mapping):
        return ModelProtocolError(f"{model!r} sent an error that cannot be read: {told!r}")
    fields: dict[str, Any] = {str(key): value for key, value in told.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    words = f"{fields.get('message', '')} ({fields.get('status', fields.get('code', 'no status'))})"
    code = fields.get("code")
    kind = by_words(words) or (_STATUS.get(code, ModelError) if isinstance(code, int) else ModelError)
    return kind(f"{model!r} reports an error: {words}")

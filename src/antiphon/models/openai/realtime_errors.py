"""Which error a failure of a live session is, and which ones are none. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from antiphon.errors import (
    ConnectionEndedError,
    InvalidInputError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelThrottledException,
    TransportError,
)
from antiphon.models.openai.failures import refusal, refusal_from
from antiphon.models.openai.realtime_wire import Trouble

SESSION_EXPIRED = "session_expired"
RESPONSE_ACTIVE = "conversation_already_has_active_response"
_LOST_RACES = frozenset({"response_cancel_not_active", "input_audio_buffer_commit_empty"})
"""The client could not know better when it asked, and nothing is missing."""
_CREDENTIALS = frozenset({"invalid_api_key", "account_deactivated", "invalid_organization", "invalid_project"})
_QUOTA = frozenset({"insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached"})
_UNKNOWN_MODEL = frozenset({"model_not_found", "invalid_model"})
_THROTTLED = frozenset({"rate_limit_exceeded", "too_many_requests"})
_GOING_AWAY = frozenset({1001, 1011, 1012, 1013})
"""Close codes of a server that fails or goes away (RFC 6455, 7.4.1, and the IANA registry): another one may be fine."""
_KEY = re.compile(r"\b[a-z]{2}[-_][\w*-]{6,}")
_CORRECTIONS = ("truncate", "delete")

Kind = Literal["expired", "active", "race", "passing", "fatal"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What an `error` event, or a response's own error, comes to.

    Attributes:
        kind: `expired`: the session is at its limit. `active`: another response is under way. `race`: nothing is wrong.
            `passing`: asking again may help. `fatal`: the session cannot go on as asked.
        error: For people.
    """

    kind: Kind
    error: ModelError


class Explainer:
    """Says why something failed.

    Attributes:
        secret: A text that no error may show.
    """

    __slots__ = ("_model_id", "_url", "secret")

    def __init__(self, model_id: str, url: str) -> None:
        self._model_id = model_id
        self._url = url
        self.secret = ""

    def clean(self, text: str) -> str:
        """The provider's words without a key, which it shows in part: `Incorrect API key provided: sk-ab***yz`."""
        if self.secret:
            text = text.replace(self.secret, "(the key)")
        return _KEY.sub("(a key)", text)

    def failure(self, trouble: Trouble) -> Failure:
        """What an error that the provider tells of comes to."""
        code, asked = trouble.code or "", trouble.event_id or ""
        error = self._error(trouble)
        if code == SESSION_EXPIRED:
            return Failure("expired", error)
        if code == RESPONSE_ACTIVE:
            return Failure("active", error)
        if code in _LOST_RACES or asked.startswith(_CORRECTIONS):
            return Failure("race", error)
        if isinstance(error, ModelThrottledException) or trouble.type == "server_error" or code == "server_error":
            return Failure("passing", error)
        return Failure("fatal", error)

    def _error(self, trouble: Trouble) -> ModelError:
        words, code, kind = self.clean(trouble.message or ""), trouble.code, trouble.type
        about = f" (param {trouble.param!r})" if trouble.param else ""
        told = f"{words or 'no reason given'}{about}"
        if code in _CREDENTIALS:
            return ModelCredentialsError(
                f"the key was refused: {told} (code {code!r}): check api_key, or OPENAI_API_KEY"
            )
        if code in _QUOTA:
            return ModelQuotaError(
                f"the account is used up: {told} (code {code!r}): look at its plan and billing; waiting does not help"
            )
        if code in _UNKNOWN_MODEL:
            return ModelNotFoundError(
                f"model {self._model_id!r} cannot be used: {told} (code {code!r}): check model_id, and what the key may use"
            )
        if code in _THROTTLED:
            return ModelThrottledException(f"the provider asks to slow down: {told} (code {code!r})")
        return refusal(told, code=code, kind=kind, model_id=self._model_id)

    def wire(self, error: TransportError | None) -> tuple[Exception, bool]:
        """Why the wire could not be opened, or ended; and whether the session may be opened anew at once."""
        if error is None:
            return ConnectionEndedError(f"{self._model_id!r} ended the session without a word"), False
        reason = self.clean(error.reason)
        if not error.opened:
            return self._refused(error.code, reason), False
        named = next((code for code in sorted(_CREDENTIALS | _QUOTA | _UNKNOWN_MODEL) if code in reason), None)
        if named is not None:
            return self._error(Trouble(message=reason, code=named)), False
        told = f"{self._model_id!r} ended the session: {self.clean(str(error))}"
        return ConnectionEndedError(told), error.code in _GOING_AWAY

    def _refused(self, status: int, reason: str) -> Exception:
        if not status:
            return ModelConnectionError(f"{self._url} cannot be reached: {reason}: check base_url, the network and tls")
        body = _body(reason)
        found = refusal_from(body, status=status, fallback=reason, model_id=self._model_id)
        trouble = _trouble(body)
        if trouble is not None and trouble.code in _CREDENTIALS | _QUOTA | _UNKNOWN_MODEL:
            found = self._error(trouble)
        if status >= 500:
            return ModelConnectionError(f"{self._url} answers with HTTP status {status}: {reason}: try again later")
        return found


class _Body(msgspec.Struct):
    error: Trouble


def _body(reason: str) -> object:
    try:
        return msgspec.json.decode(reason)
    except msgspec.DecodeError:
        return reason


def _trouble(body: object) -> Trouble | None:
    try:
        return msgspec.convert(body, _Body).error
    except msgspec.ValidationError:
        return None


def check_duration(timeout_s: float, longest_s: float) -> float:
    """`timeout_s`, if it is a duration that a session can have.

    Raises:
        InvalidInputError: If it is not.
    """
    if isinstance(timeout_s, bool) or not 0 < timeout_s <= longest_s:
        raise InvalidInputError(
            f"timeout_s={timeout_s!r} is not between 0 and {longest_s:g}: the provider ends a session after an hour"
        )
    return timeout_s

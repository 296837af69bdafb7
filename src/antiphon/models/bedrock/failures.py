"""What AWS, boto3 and the network say when they fail, as errors of ours.

Codes are those of "ConverseStream", Errors, and of "Common errors" in the Amazon Bedrock API reference.
"""

from __future__ import annotations

import re
from typing import Any, cast

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
)

_OVERFLOW = re.compile(
    r"input is too long|prompt is too long|too many total text bytes|exceeds? (the )?(model'?s )?(maximum )?context"
    r"|input length and `?max_tokens`? exceed|too many input tokens|maximum context length|context window",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model identifier is invalid|on-demand throughput isn.t supported|model.{0,40}(not found|end of its life|legacy)",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"per day|daily|quota has been (reached|exceeded)|free tier", re.IGNORECASE)

_CREDENTIALS = {
    "accessdenied",
    "expiredtoken",
    "incompletesignature",
    "invalidaccesskeyid",
    "invalidclienttokenid",
    "invalidsignature",
    "missingauthenticationtoken",
    "notauthorized",
    "optinrequired",
    "requestexpired",
    "signaturedoesnotmatch",
    "unauthorized",
    "unauthorizedoperation",
    "unrecognizedclient",
}
_THROTTLED = {
    "modelnotready",
    "requestlimitexceeded",
    "slowdown",
    "throttled",
    "throttling",
    "toomanyrequests",
}
_SERVER = {
    "internalserver",
    "internalfailure",
    "serviceunavailable",
    "modeltimeout",
    "requesttimeout",
    "modelstreamerror",
}


def refusal(code: str, message: str, *, model_id: str, region: str, retry_after_s: float | None = None) -> ModelError:
    """The error for a code and a text of Bedrock's, whether the request was refused or its stream broke off."""
    kind = code.removesuffix("Exception").removesuffix("Error").lower()
    words = f"Bedrock says {code}: {message or '(nothing more)'}"
    if _OVERFLOW.search(message) and kind in {"validation", "modelstream", "modelstreamerror", "model", ""}:
        return ContextWindowOverflowException(f"{words} (model {model_id!r})")
    if kind == "servicequotaexceeded" or (kind in _THROTTLED and _QUOTA.search(message)):
        return ModelQuotaError(f"{words}: look at the service quotas of Amazon Bedrock in {region!r}")
    if kind in _THROTTLED:
        return ModelThrottledException(words, retry_after_s=retry_after_s)
    if kind in _CREDENTIALS:
        return ModelCredentialsError(
            f"{words}: check the AWS credentials, that they are of region {region!r}, and that they may invoke {model_id!r}"
        )
    if kind == "resourcenotfound" or (kind == "validation" and _NO_MODEL.search(message)):
        return ModelNotFoundError(f"{words}: check model_id={model_id!r}, and that region {region!r} offers it")
    if kind == "validation":
        return ModelRequestError(words)
    if kind in _SERVER or kind == "modelstream":
        return ModelError(f"{words}: try again", passing=True, retry_after_s=retry_after_s)
    return ModelError(words)


def translate(error: BaseException, *, model_id: str, region: str, endpoint: str) -> BaseException:
    """The error of ours that a foreign one stands for; the same one where it is none of botocore's or the network's."""
    from botocore import eventstream, exceptions

    if isinstance(error, ModelError):
        return error
    if isinstance(error, exceptions.ClientError):  # EventStreamError too: a failure in the middle of a stream
        return _refused(error, model_id=model_id, region=region)
    if isinstance(error, exceptions.ParamValidationError):
        return ModelRequestError(f"the request is not one that Bedrock takes: {error}")
    if isinstance(
        error,
        _classes(
            exceptions,
            "NoCredentialsError",
            "PartialCredentialsError",
            "CredentialRetrievalError",
            "UnauthorizedSSOTokenError",
            "TokenRetrievalError",
            "SSOError",
            "ProfileNotFound",
            "ConfigNotFound",
            "NoAuthTokenError",
            "LoginError",
        ),
    ):
        return ModelCredentialsError(
            f"there are no usable AWS credentials: {error}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
            "credentials=, environ= or boto_session="
        )
    if isinstance(
        error,
        _classes(
            exceptions,
            "NoRegionError",
            "InvalidRegionError",
            "UnknownRegionError",
            "UnknownEndpointError",
            "EndpointProviderError",
        ),
    ):
        return ModelConnectionError(f"region {region!r} has no endpoint: {error}: give region_name, or endpoint_url")
    if isinstance(error, exceptions.SSLError):
        return ModelConnectionError(
            f"TLS with {endpoint} was refused: {error}: if its certificate is your own, name its authority in AWS_CA_BUNDLE"
        )
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        passing = not isinstance(error, exceptions.ProxyConnectionError)
        return ModelConnectionError(
            f"{endpoint} (region {region!r}) cannot be reached or went silent: {error}", passing=passing
        )
    if isinstance(error, eventstream.ParserError):
        return ModelProtocolError(f"what {endpoint} sent is no event stream of AWS: {error}")
    if isinstance(error, exceptions.BotoCoreError):
        return ModelError(f"boto3 could not ask {endpoint}: {error}")
    if type(error).__module__.partition(".")[0] == "urllib3" or isinstance(error, OSError):
        return ModelConnectionError(f"the connection with {endpoint} broke off: {error}", passing=True)
    if isinstance(error, (ValueError, KeyError, TypeError, AttributeError)) and _from_botocore(error):
        return ModelProtocolError(f"what {endpoint} sent cannot be read: {type(error).__name__}: {error}")
    return error


def _refused(error: Any, *, model_id: str, region: str) -> ModelError:
    response = cast("dict[str, Any]", error.response)
    entry: dict[str, Any] = response.get("Error", {})
    headers: dict[str, str] = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(entry.get("Code") or "")
    said = str(entry.get("Message") or response.get("message") or "")
    if code.isdigit() or not code:  # a gateway between us and Bedrock answered, with no code of AWS
        code = {401: "Unauthorized", 403: "AccessDenied", 404: "ResourceNotFound", 429: "Throttling"}.get(
            status or 0, "InternalServerException" if (status or 0) >= 500 else "UnknownError"
        )
    return refusal(code, said, model_id=model_id, region=region, retry_after_s=_seconds(headers.get("retry-after")))


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and re.fullmatch(r"\d+(\.\d+)?", value) else None


def _classes(module: Any, *names: str) -> tuple[type[BaseException], ...]:
    """Those of the classes that this version of botocore has."""
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


def _from_botocore(error: BaseException) -> bool:
    """Whether it was raised while botocore read what came: its parsers let such errors through."""
    trace = error.__traceback__
    while trace is not None:
        if "botocore" in trace.tb_frame.f_code.co_filename:
            return True
        trace = trace.tb_next
    return False

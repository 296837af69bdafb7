"""The way to an OpenAI endpoint: credentials, the official SDK's client, and foreign errors translated.

The only module of the turn-based models that sees the SDK. It asks with the SDK's own `post`, so that parameters and fields
of compatible servers that the SDK does not know pass in both directions.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Protocol, cast

from antiphon.clock import Clock
from antiphon.errors import (
    InvalidInputError,
    MissingExtraError,
    ModelConnectionError,
    ModelError,
    ModelProtocolError,
)
from antiphon.models.base import StreamEvent
from antiphon.models.endpoint import (
    ApiKey,
    KeySource,
    address_of,
    checked_url,
    retry_after_of,
    system_trust,
    unreachable,
    variables,
    without_key,
)
from antiphon.models.openai.failures import refusal_from
from antiphon.models.retrying import Retries, with_retries

if TYPE_CHECKING:
    from openai import AsyncOpenAI

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class Decoder(Protocol):
    """A provider's stream as events. Without I/O; one for each attempt."""

    @property
    def over(self) -> bool:
        """Whether the answer is whole, whatever else may come."""
        ...

    def feed(self, frame: dict[str, Any], /) -> list[StreamEvent]:
        """Take one frame.

        Raises:
            ModelError: If the frame tells of a failure, or cannot be read.
        """
        ...

    def end(self) -> list[StreamEvent]:
        """The stream is over.

        Raises:
            ModelProtocolError: If the answer is not.
        """
        ...


class OpenAIService:
    """Where requests go, and with what.

    Args:
        client: A client to use as it is; it stays its owner's to close.
        client_args: Arguments of `openai.AsyncOpenAI` for clients that are made here.
        api_key: The key, or what gives it.
        base_url: The endpoint.
        environ: Where the usual variables are looked up; None: in the environment of the process.
        tls: Whom to trust.
        retries: When to ask again.
        clock: Paces retries.

    Raises:
        MissingExtraError: If the package `openai` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If the arguments do not go together.
    """

    def __init__(
        self,
        *,
        client: AsyncOpenAI | None,
        client_args: Mapping[str, Any] | None,
        api_key: ApiKey | None,
        base_url: str | None,
        environ: Mapping[str, str] | None,
        tls: ssl.SSLContext | None,
        retries: Retries,
        clock: Clock,
    ) -> None:
        try:
            import_module("openai")  # here, and not in the first request: it takes a third of a second
        except ImportError as error:
            raise MissingExtraError("openai", "openai") from error
        environment = variables(environ)
        arguments = dict(client_args or {})
        if client is not None and (arguments or api_key is not None or base_url is not None or tls is not None):
            raise InvalidInputError("client is used as it is: client_args, api_key, base_url and tls do not go with it")
        if tls is not None and "http_client" in arguments:
            raise InvalidInputError("tls does not go with client_args http_client: that one knows whom it trusts")
        given_key = _first(api_key, arguments.pop("api_key", None))
        given_url = _first(base_url, arguments.pop("base_url", None), environment.get("OPENAI_BASE_URL") or None)
        self.base_url = checked_url(str(client.base_url if client is not None else given_url or DEFAULT_BASE_URL))
        self._client = client
        self._key = None if client is not None else KeySource(given_key, names=("OPENAI_API_KEY",), environ=environment)
        self._arguments = arguments
        # The SDK would look these up in the environment of the process, whatever `environ` says.
        self._account = (
            _first(arguments.pop("organization", None), environment.get("OPENAI_ORG_ID")),
            _first(arguments.pop("project", None), environment.get("OPENAI_PROJECT_ID")),
        )
        self._tls = tls
        self._retries = retries
        self._clock = clock

    @property
    def address(self) -> str:
        """The endpoint as it may be told: without a user, a password or a query."""
        return address_of(self.base_url)

    def answer(
        self, path: str, body: dict[str, Any], decoder: Callable[[], Decoder]
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask, and pass on what the decoder makes of the answer.

        What may pass is tried again until something was passed on.

        Args:
            path: Below the endpoint's address, such as `/chat/completions`.
            body: The request; `model` and `stream` are in it.
            decoder: Makes the decoder of an attempt.

        Raises:
            ModelError: If it fails for good.
        """
        return with_retries(lambda: self._attempt(path, body, decoder()), retries=self._retries, clock=self._clock)

    async def _attempt(self, path: str, body: dict[str, Any], decoder: Decoder) -> AsyncGenerator[StreamEvent, None]:
        from openai import AsyncStream, OpenAIError

        key = "" if self._key is None else await self._key.current()
        failure: ModelError
        cause: Exception | None
        try:
            async with self._connected(key) as client:
                key = key or client.api_key
                stream = await client.post(
                    path,
                    cast_to=object,
                    body=body,
                    options={"max_retries": 0, "security": {"bearer_auth": True}},
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
                try:
                    async for frame in stream:
                        if not isinstance(frame, dict):
                            raise ModelProtocolError(
                                f"{self.address} sent a frame that is no JSON object but {type(frame).__name__}"
                            )
                        for event in decoder.feed(cast("dict[str, Any]", frame)):
                            yield event
                    for event in decoder.end():
                        yield event
                finally:
                    await stream.close()
            return
        except (OpenAIError, JSONDecodeError, UnicodeDecodeError) as error:
            if decoder.over:  # what broke is not the answer
                for event in decoder.end():
                    yield event
                return
            failure = self._translated(error, str(body.get("model", "")), key)
            # The provider's words may hold the key, and a traceback shows what an error comes from.
            told = f"{error}{error.__cause__}"
            cause = error if without_key(told, key) == told else None
        raise failure from cause  # out here, so that the other one is not its context either

    @asynccontextmanager
    async def _connected(self, key: str) -> AsyncGenerator[AsyncOpenAI]:
        """A client. One that is made here lives for one request: agents run on many event loops, connections on one."""
        if self._client is not None:
            yield self._client
            return
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        arguments: dict[str, Any] = {**self._arguments, "api_key": key, "base_url": self.base_url, "max_retries": 0}
        if "http_client" not in arguments and (context := self._context()) is not None:
            timeout = {"timeout": arguments["timeout"]} if "timeout" in arguments else {}
            arguments["http_client"] = DefaultAsyncHttpxClient(verify=context, **timeout)
        client = AsyncOpenAI(**arguments)
        client.organization, client.project = self._account
        if "http_client" in self._arguments:  # its owner's to close
            yield client
            return
        async with client:
            yield client

    def _context(self) -> ssl.SSLContext | None:
        """Whom to trust: read once, because the SDK would read all certificates anew for each client (20 ms of work)."""
        if self._tls is None:
            self._tls = system_trust()
        return self._tls

    def _translated(self, error: Exception, model_id: str, key: str) -> ModelError:
        """What a foreign error is here. The key is nowhere in it."""
        import openai

        if isinstance(error, openai.APIStatusError):
            failure = refusal_from(
                error.body, status=error.status_code, fallback=error.response.reason_phrase, model_id=model_id
            )
            failure.args = (without_key(str(failure), key),)
            failure.retry_after_s = _retry_after(error.response.headers, self._clock)
            return failure
        if isinstance(error, openai.APITimeoutError):
            return ModelConnectionError(
                f"{self.address} did not answer in time: try again, or give client_args a longer timeout", passing=True
            )
        if isinstance(error, openai.APIConnectionError):
            return unreachable(error, self.address, key)
        if isinstance(error, openai.APIError):  # said in the middle of a stream
            failure = refusal_from(error.body, status=None, fallback=error.message, model_id=model_id)
            failure.args = (without_key(str(failure), key),)
            return failure
        if isinstance(error, openai.OpenAIError):
            return ModelError(without_key(str(error), key))
        return ModelProtocolError(
            f"{self.address} sent what is no JSON: {without_key(str(error), key)}: check base_url"
        )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _retry_after(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Seconds that the answer asks to wait: OpenAI's `retry-after-ms` is the finer one."""
    finer = retry_after_of(headers.get("retry-after-ms"), clock)
    return retry_after_of(headers.get("retry-after"), clock) if finer is None else finer / 1000

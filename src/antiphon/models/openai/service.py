"""The way to an OpenAI endpoint: credentials, the official SDK's client, and foreign errors translated.

The only module of the turn-based models that sees the SDK. It asks with the SDK's own `post`, so that parameters and fields
of compatible servers that the SDK does not know pass in both directions.
"""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

from antiphon.clock import Clock
from antiphon.errors import (
    InvalidInputError,
    MissingExtraError,
    ModelConnectionError,
    ModelCredentialsError,
    ModelError,
    ModelProtocolError,
)
from antiphon.models.base import StreamEvent
from antiphon.models.openai.failures import refusal_from, retry_after
from antiphon.models.retrying import Retries, with_retries

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ApiKey = str | Callable[[], str | Awaitable[str]]
"""A key, or what gives one each time it is needed (then it may be short-lived)."""

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
        variables = os.environ if environ is None else environ
        arguments = dict(client_args or {})
        if client is not None and (arguments or api_key is not None or base_url is not None or tls is not None):
            raise InvalidInputError("client is used as it is: client_args, api_key, base_url and tls do not go with it")
        key: ApiKey | None = _first(api_key, arguments.pop("api_key", None), variables.get("OPENAI_API_KEY"))
        if client is None and not key:
            raise ModelCredentialsError(
                "no key: give api_key=... (any text, for a server that asks for none), or set OPENAI_API_KEY"
            )
        url = _first(base_url, arguments.pop("base_url", None), variables.get("OPENAI_BASE_URL")) or DEFAULT_BASE_URL
        self.base_url = str(client.base_url if client is not None else url)
        if not self.base_url.startswith(("http://", "https://")):
            raise InvalidInputError(f"base_url={self.base_url!r} does not begin with http:// or https://")
        self._client = client
        self._key: ApiKey = "" if key is None else _checked(key) if isinstance(key, str) else key
        if client is not None:
            self._key = client.api_key
        self._arguments = arguments
        # The SDK would look these up in the environment of the process, whatever `environ` says.
        self._account = (
            _first(arguments.pop("organization", None), variables.get("OPENAI_ORG_ID")),
            _first(arguments.pop("project", None), variables.get("OPENAI_PROJECT_ID")),
        )
        self._tls = tls
        self._retries = retries
        self._clock = clock

    @property
    def address(self) -> str:
        """The endpoint as it may be told: without a user, a password or a query."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

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

        key = await self._fresh_key()
        try:
            async with self._connected(key) as client:
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
        except (OpenAIError, JSONDecodeError, UnicodeDecodeError) as error:
            if decoder.over:  # what broke is not the answer
                for event in decoder.end():
                    yield event
                return
            failure = self._translated(error, str(body.get("model", "")), key)
            # The provider's words may hold the key, and a traceback shows what an error comes from.
            raise failure from (None if key and key in f"{error}{error.__cause__}" else error)

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
            paths = ssl.get_default_verify_paths()
            if not (paths.cafile or paths.capath):
                return None  # a system without certificates: the SDK brings its own
            self._tls = ssl.create_default_context()
        return self._tls

    async def _fresh_key(self) -> str:
        if isinstance(self._key, str):
            return self._key
        given = self._key()
        key = await given if inspect.isawaitable(given) else given
        if not key:
            raise ModelCredentialsError("api_key was called and gave no key")
        return _checked(key)

    def _translated(self, error: Exception, model_id: str, key: str) -> ModelError:
        """What a foreign error is here. The key is nowhere in it."""
        import openai

        def told(text: object) -> str:
            return str(text).replace(key, "***") if key else str(text)

        if isinstance(error, openai.APIStatusError):
            failure = refusal_from(
                error.body, status=error.status_code, fallback=error.response.reason_phrase, model_id=model_id
            )
            failure.args = (told(failure),)
            failure.retry_after_s = retry_after(error.response.headers, self._clock.utc())
            return failure
        if isinstance(error, openai.APITimeoutError):
            return ModelConnectionError(
                f"{self.address} did not answer in time: try again, or give client_args a longer timeout", passing=True
            )
        if isinstance(error, openai.APIConnectionError):
            cause = _origin(error)
            if isinstance(cause, ssl.SSLError):
                return ModelConnectionError(
                    f"{self.address} cannot be trusted: {cause}: give tls=, or name its authority in SSL_CERT_FILE"
                )
            reason = told(cause) or type(cause).__name__
            return ModelConnectionError(
                f"{self.address} cannot be reached, or broke off: {reason}: check base_url and the network",
                passing=True,
            )
        if isinstance(error, openai.APIError):  # said in the middle of a stream
            failure = refusal_from(error.body, status=None, fallback=error.message, model_id=model_id)
            failure.args = (told(failure),)
            return failure
        if isinstance(error, openai.OpenAIError):
            return ModelError(told(error))
        return ModelProtocolError(f"{self.address} sent what is no JSON: {told(error)}: check base_url")


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _checked(key: str) -> str:
    """A key without the white space around it. Its text is in no error: HTTP libraries would tell a header they refuse."""
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelCredentialsError("the key has characters that no key has, such as a line break: check api_key")
    return key


def _origin(error: BaseException) -> BaseException:
    """The innermost cause of an error."""
    seen = {id(error)}
    while True:
        inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner

"""The way to Anthropic's API: the official SDK's client, and its errors translated. Only here the SDK is seen."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.clock import Clock
from antiphon.errors import InvalidInputError, MissingExtraError, ModelError, ModelProtocolError
from antiphon.models.anthropic.failures import failure_from, parts_of
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

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

DEFAULT_BASE_URL = "https://api.anthropic.com"


class AnthropicService:
    """Where requests go, and with what.

    Args:
        client: A client to use as it is, and not to close.
        client_args: Arguments of `anthropic.AsyncAnthropic` for clients that are made here.
        api_key: The key, or what gives it.
        base_url: The endpoint.
        environ: Where variables are looked up.
        tls: Whom to trust.
        clock: For dates in `retry-after`.

    Raises:
        MissingExtraError: If the package `anthropic` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If arguments do not go together.
    """

    def __init__(
        self,
        *,
        client: AsyncAnthropic | None,
        client_args: Mapping[str, Any] | None,
        api_key: ApiKey | None,
        base_url: str | None,
        environ: Mapping[str, str] | None,
        tls: ssl.SSLContext | None,
        clock: Clock,
    ) -> None:
        try:
            import_module("anthropic")  # not in the first request: it takes most of a second
        except ImportError as error:
            raise MissingExtraError("anthropic", "anthropic") from error
        arguments = dict(client_args or {})
        if client is not None and (arguments or api_key is not None or base_url is not None or tls is not None):
            raise InvalidInputError("client is used as it is: client_args, api_key, base_url and tls do not go with it")
        environment = variables(environ)
        given = api_key or arguments.pop("api_key", None)
        url = base_url or arguments.pop("base_url", None) or environment.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        self._url = checked_url(str(url if client is None else client.base_url))
        # The SDK has more ways to credentials; who uses one of them has no key to give.
        elsewhere = bool({"auth_token", "credentials", "config", "profile"} & arguments.keys())
        self._key: KeySource | None = None
        if client is None and not elsewhere:
            self._key = KeySource(given, names=["ANTHROPIC_API_KEY"], environ=environment)
        self._client = client
        self._arguments = arguments
        self._tls = tls
        self._clock = clock

    @property
    def address(self) -> str:
        """The endpoint as it may be told."""
        return address_of(self._url)

    async def events(self, request: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Send a request, and give the events of its stream as they come.

        Raises:
            ModelError: If it fails.
        """
        from anthropic import AnthropicError, AsyncStream

        key = "" if self._key is None else await self._key.current()
        failure: ModelError
        cause: Exception | None
        try:
            async with self._connected(key) as client:
                stream = await client.post(
                    "/v1/messages",
                    cast_to=object,
                    body=request,
                    options={"max_retries": 0},
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
                try:
                    async for event in stream:
                        yield event
                finally:
                    await stream.close()
            return
        except ModelError:
            raise
        except (AnthropicError, ValueError, OSError) as error:
            failure = self._translated(error, str(request["model"]), key)
            # The provider's words may hold the key, and a traceback shows what an error comes from.
            cause = None if key and key in f"{error}{error.__cause__}" else error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"httpx", "httpx2", "httpcore", "httpcore2"}:
                raise
            failure, cause = unreachable(error, self.address, key), error  # the SDK lets these through in mid stream
        raise failure from cause  # out here, so that an error with the key in it is not its context either

    @asynccontextmanager
    async def _connected(self, key: str) -> AsyncGenerator[AsyncAnthropic, None]:
        """A client. One that is made here lives for one request: agents run on many event loops, connections on one."""
        if self._client is not None:
            yield self._client
            return
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        arguments: dict[str, Any] = {**self._arguments, "base_url": self._url, "max_retries": 0}
        if self._key is not None:
            arguments["api_key"] = key
        if "http_client" not in arguments and (trust := self._trust()) is not None:
            arguments["http_client"] = DefaultAsyncHttpxClient(verify=trust)
        client = AsyncAnthropic(**arguments)
        if "http_client" in self._arguments:  # its owner's to close
            yield client
            return
        async with client:
            yield client

    def _trust(self) -> ssl.SSLContext | None:
        if self._tls is None:
            self._tls = system_trust()
        return self._tls

    def _translated(self, error: Exception, model_id: str, key: str) -> ModelError:
        import anthropic

        if isinstance(error, anthropic.APIStatusError):
            return self._refused(error, model_id, key)
        if isinstance(error, anthropic.APITimeoutError):
            failure = unreachable(error, self.address, key)
            failure.args = (f"{self.address} did not answer in time: try again, or give client_args a longer timeout",)
            return failure
        if isinstance(error, (anthropic.APIConnectionError, OSError)):
            return unreachable(error, self.address, key)
        if isinstance(error, anthropic.AnthropicError):
            return ModelError(without_key(str(error), key))
        return ModelProtocolError(
            f"{self.address} sent what is no JSON: {without_key(str(error), key)}: check base_url"
        )

    def _refused(self, error: APIStatusError, model_id: str, key: str) -> ModelError:
        kind, message, code = parts_of(error.body)
        said = message or (str(error.body)[:500] if error.body else error.response.reason_phrase)
        request_id = error.response.headers.get("request-id")
        return failure_from(
            kind,
            without_key(f"{said} (request {request_id})" if request_id else said, key),
            status=None if error.status_code < 400 else error.status_code,
            model_id=model_id,
            code=code,
            retry_after_s=retry_after_of(error.response.headers.get("retry-after"), self._clock),
        )

"""The way to `generateContent`: the official SDK's client, and its errors translated. Only here the SDK is seen."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from antiphon.errors import InvalidInputError, MissingExtraError, ModelError, ModelProtocolError, ModelRequestError
from antiphon.models.endpoint import (
    ApiKey,
    KeySource,
    address_of,
    checked_url,
    system_trust,
    unreachable,
    variables,
    without_key,
)
from antiphon.models.google.gemini_failures import failure_from

if TYPE_CHECKING:
    from google.genai import Client

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com"
_HTTP_LIBRARIES = {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"}


class GeminiService:
    """Where requests go, and with what.

    Args:
        client: A client to use as it is, and not to close.
        client_args: Arguments of `google.genai.Client` for clients that are made here.
        api_key: The key, or what gives it.
        base_url: The endpoint.
        environ: Where variables are looked up.
        tls: Whom to trust.

    Raises:
        MissingExtraError: If the package `google-genai` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If arguments do not go together.
    """

    def __init__(
        self,
        *,
        client: Client | None,
        client_args: Mapping[str, Any] | None,
        api_key: ApiKey | None,
        base_url: str | None,
        environ: Mapping[str, str] | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        try:
            import_module("google.genai")  # not in the first request: it takes a third of a second
        except ImportError as error:
            raise MissingExtraError("google-genai", "google") from error
        arguments = dict(client_args or {})
        if client is not None and (arguments or api_key is not None or base_url is not None or tls is not None):
            raise InvalidInputError("client is used as it is: client_args, api_key, base_url and tls do not go with it")
        environment = variables(environ)
        # Said outright, because the SDK would look it up in the environment of the process, whatever `environ` says.
        self._vertex = bool(arguments.pop("vertexai", False))
        options: Any = arguments.pop("http_options", None) or {}
        self._options: dict[str, Any] = {
            **(options if type(options) is dict else options.model_dump(exclude_none=True))
        }
        given = api_key or arguments.pop("api_key", None)
        url = base_url or self._options.pop("base_url", None) or environment.get("GOOGLE_GEMINI_BASE_URL")
        if url is None and not self._vertex:
            url = DEFAULT_BASE_URL
        self._url = None if url is None else checked_url(str(url))
        self._key: KeySource | None = None
        if client is None and (given or not self._vertex):
            names = ["GEMINI_API_KEY", "GOOGLE_API_KEY"]
            self._key = KeySource(given, names=names, environ=environment)
        self._client = client
        self._arguments = arguments
        self._tls = tls

    @property
    def address(self) -> str:
        """The endpoint as it may be told."""
        return "Gemini" if self._client is not None or self._url is None else address_of(self._url)

    async def chunks(
        self, model_id: str, contents: list[dict[str, Any]], config: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Ask, and give the chunks of the answer as they come: dicts with the SDK's names, bytes as bytes.

        Raises:
            ModelError: If it fails.
        """
        from google.genai.errors import APIError, UnknownApiResponseError
        from google.genai.types import GenerateContentConfig
        from pydantic import ValidationError

        try:
            checked = GenerateContentConfig.model_validate(config)
        except ValidationError as error:
            raise ModelRequestError(f"the SDK does not take the parameters: {error}") from error
        key = "" if self._key is None else await self._key.current()
        failure: ModelError
        cause: Exception | None
        try:
            async with self._connected(key) as client:
                stream: Any = await cast("Any", client).aio.models.generate_content_stream(
                    model=model_id, contents=contents, config=checked
                )
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        yield chunk.model_dump(exclude_none=True, exclude={"sdk_http_response"})
            return
        except ModelError:
            raise
        except APIError as error:
            refused = cast("Any", error)
            told = without_key(str(refused.message or refused.details), key)
            failure = failure_from(int(refused.code or 500), refused.status, told, refused.details, model_id=model_id)
            cause = None if key and key in str(error) else error
        except OSError as error:
            failure, cause = unreachable(error, self.address, key), error
        except (UnknownApiResponseError, ValidationError, UnicodeError) as error:
            told = str(error)
            failure = ModelProtocolError(
                f"{self.address} sent what cannot be read: {without_key(told, key)[:500]}: check base_url"
            )
            cause = None if key and key in told else error
        except ValueError as error:
            told = str(error)
            failure = ModelRequestError(f"the SDK does not take the request: {without_key(told, key)}")
            cause = None if key and key in told else error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _HTTP_LIBRARIES:
                raise
            failure, cause = unreachable(error, self.address, key), error  # the SDK lets these through
        raise failure from cause  # out here, so that an error with the key in it is not its context either

    @asynccontextmanager
    async def _connected(self, key: str) -> AsyncGenerator[Client, None]:
        """A client. One that is made here lives for one request: agents run on many event loops, connections on one."""
        if self._client is not None:
            yield self._client
            return
        from google.genai import Client

        options: dict[str, Any] = {"retry_options": {"attempts": 1}, **self._options}
        if self._url is not None:
            options["base_url"] = self._url
        if (trust := self._trust()) is not None:
            for name in ("client_args", "async_client_args"):
                options[name] = {"verify": trust, **options.get(name, {})}
        arguments: dict[str, Any] = {**self._arguments, "vertexai": self._vertex, "http_options": options}
        if key:
            arguments["api_key"] = key
        client = Client(**arguments)
        try:
            yield client
        finally:
            if "httpx_async_client" not in self._options:  # else its owner's to close
                await client.aio.aclose()
            if "httpx_client" not in self._options:
                client.close()

    def _trust(self) -> ssl.SSLContext | None:
        if self._tls is None:
            self._tls = system_trust()
        return self._tls

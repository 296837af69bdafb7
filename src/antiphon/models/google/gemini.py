"""Gemini in turns, through `generateContent`."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import InvalidInputError, InvalidTypeError, ModelRequestError
from antiphon.models.base import Model, StreamEvent
from antiphon.models.endpoint import ApiKey
from antiphon.models.google.gemini_answer import GeminiReader
from antiphon.models.google.gemini_request import OWN, gemini_config, gemini_contents, unsigned
from antiphon.models.google.gemini_service import GeminiService
from antiphon.models.retrying import Retries, with_retries

if TYPE_CHECKING:
    from google.genai import Client


_log = logging.getLogger(__name__)

_UNREADABLE = re.compile(
    r"(corrupted|invalid) thought.?signature|thought.?signature is (not valid|invalid)", re.IGNORECASE
)


class GeminiModel(Model):
    """Answers through `models/{model}:streamGenerateContent`.

    One object may serve many agents at once. A client lives for one request, so agents may run on any event loop; give
    `client` to share connections within one.

    Args:
        client_args: Arguments of `google.genai.Client`, such as `http_options`, or `vertexai`, `project` and `location`.
        model_id: The model, such as `gemini-3.8-flash`.
        params: Parameters of every request in the names of the SDK's `GenerateContentConfig`, such as
            `{"max_output_tokens": 500, "thinking_config": {"include_thoughts": True}}`.
        api_key: The key, or a function (also `async`) that gives one for each attempt. Else `GEMINI_API_KEY`, else
            `GOOGLE_API_KEY`.
        base_url: The endpoint, without a version. Else `GOOGLE_GEMINI_BASE_URL`, else Google's.
        environ: Where these variables are looked up; None: in the environment of the process.
        tls: Whom to trust; None: whom the system trusts.
        client: A client of the SDK, used as it is in place of all of these, and never closed.
        retries: When the API is asked again after an error that may pass.
        clock: Paces the waits between.

    Raises:
        MissingExtraError: If the package `google-genai` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(
        self,
        client_args: Mapping[str, Any] | None = None,
        *,
        model_id: str,
        params: Mapping[str, Any] | None = None,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        client: Client | None = None,
        retries: Retries = Retries(),  # noqa: B008 - a frozen value
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = _checked({"model_id": model_id, "params": {} if params is None else params})
        self._retries = retries
        self._clock = clock
        self._service = GeminiService(
            client=client, client_args=client_args, api_key=api_key, base_url=base_url, environ=environ, tls=tls
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model_id={self._config['model_id']!r}, base_url={self._service.address!r})"

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        """Change `model_id` or `params` from the next request on; `params` are replaced as a whole."""
        self._config = _checked({**self._config, **config})

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamEvent, None]:
        model_id, params = self._config["model_id"], self._config["params"]
        contents = gemini_contents(messages)
        config = gemini_config(tool_specs, system_prompt, params)
        answer = with_retries(lambda: self._ask(model_id, contents, config), retries=self._retries, clock=self._clock)
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    async def _ask(
        self, model_id: str, contents: list[dict[str, Any]], config: dict[str, Any]
    ) -> AsyncGenerator[StreamEvent, None]:
        try:
            async with aclosing(self._answer(model_id, contents, config)) as events:
                async for event in events:
                    yield event
            return
        except ModelRequestError as error:
            bare = unsigned(contents)
            if not _UNREADABLE.search(str(error)) or bare == contents:
                raise
        # Refused before anything was said.
        _log.warning("Gemini cannot read the signatures of earlier thoughts: the conversation is sent without them")
        async with aclosing(self._answer(model_id, bare, config)) as events:
            async for event in events:
                yield event

    async def _answer(
        self, model_id: str, contents: list[dict[str, Any]], config: dict[str, Any]
    ) -> AsyncGenerator[StreamEvent, None]:
        reader = GeminiReader()
        async with aclosing(self._service.chunks(model_id, contents, config)) as chunks:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event
        for event in reader.end():
            yield event


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration that can be used.

    Raises:
        InvalidInputError: If a key is unknown, the model has no name, or a parameter is the model's own to set.
        InvalidTypeError: If `params` is no dict.
    """
    known = {"model_id", "params"}
    if unknown := sorted(config.keys() - known):
        raise InvalidInputError(f"{unknown[0]!r} cannot be configured: known are {sorted(known)!r}")
    model_id: object = config["model_id"]
    if not isinstance(model_id, str) or not model_id.strip():
        raise InvalidInputError(f"model_id={model_id!r} is not the name of a model")
    params: object = config["params"]
    if not isinstance(params, Mapping):
        raise InvalidTypeError(f"params is {type(params).__name__}, not a dict of parameters")
    given = deepcopy(dict(cast("Mapping[str, Any]", params)))
    if own := sorted(OWN & given.keys()):
        raise InvalidInputError(f"params[{own[0]!r}] cannot be set: the model sets it for each request")
    return {"model_id": model_id, "params": given}

"""Claude through Anthropic's Messages API."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import InvalidInputError, InvalidTypeError, ModelError, ModelRequestError
from antiphon.models.anthropic.answer import MessageReader
from antiphon.models.anthropic.request import OWN, messages_request
from antiphon.models.anthropic.service import AnthropicService
from antiphon.models.base import Model, StreamEvent, without_reasoning
from antiphon.models.endpoint import ApiKey
from antiphon.models.retrying import Retries, with_retries

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_log = logging.getLogger(__name__)

_UNREADABLE = re.compile(r"`?(signature|data)`? in `?(redacted_)?thinking`? block", re.IGNORECASE)
_MOST_PAUSES = 16
"""How often one answer may pause: a turn with tools that run at Anthropic is cut into pieces of some ten steps."""


class AnthropicModel(Model):
    """Answers through `POST /v1/messages`.

    One object may serve many agents at once. A client lives for one request, so agents may run on any event loop; give
    `client`, or `http_client` in `client_args`, to share connections within one.

    Args:
        client_args: Arguments of `anthropic.AsyncAnthropic`, such as `timeout`, `default_headers`, `auth_token`.
        model_id: The model, such as `claude-sonnet-5-5`.
        max_tokens: How long an answer may be, thoughts included; the API wants to know.
        params: Parameters of every request as the API names them, such as `{"thinking": {"type": "enabled",
            "budget_tokens": 2000}}` or `{"tools": [...]}` for tools that run at Anthropic.
        api_key: The key, or a function (also `async`) that gives one for each attempt. Else `ANTHROPIC_API_KEY`.
        base_url: The endpoint. Else `ANTHROPIC_BASE_URL`, else Anthropic's.
        environ: Where these variables are looked up; None: in the environment of the process.
        tls: Whom to trust; None: whom the system trusts.
        client: A client of the SDK, used as it is in place of all of these, and never closed.
        retries: When the API is asked again after an error that may pass.
        clock: Paces the waits between.

    Raises:
        MissingExtraError: If the package `anthropic` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(
        self,
        client_args: Mapping[str, Any] | None = None,
        *,
        model_id: str,
        max_tokens: int = 8192,
        params: Mapping[str, Any] | None = None,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        client: AsyncAnthropic | None = None,
        retries: Retries = Retries(),  # noqa: B008 - a frozen value
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = _checked(
            {"model_id": model_id, "max_tokens": max_tokens, "params": {} if params is None else params}
        )
        self._retries = retries
        self._clock = clock
        self._service = AnthropicService(
            client=client,
            client_args=client_args,
            api_key=api_key,
            base_url=base_url,
            environ=environ,
            tls=tls,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model_id={self._config['model_id']!r}, base_url={self._service.address!r})"

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        """Change `model_id`, `max_tokens` or `params` from the next request on; `params` are replaced as a whole."""
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
        config = self._config

        def without_thoughts() -> dict[str, Any]:
            return messages_request(without_reasoning(messages), tool_specs, system_prompt, **config)

        request = messages_request(messages, tool_specs, system_prompt, **config)
        ask = partial(self._ask_readable, request, without_thoughts)
        answer = with_retries(ask, retries=self._retries, clock=self._clock)
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    async def _ask_readable(
        self, request: dict[str, Any], without_thoughts: Callable[[], dict[str, Any]]
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask; once more without the thoughts of the history, where the API cannot read them: they were another model's."""
        begun = False
        try:
            async with aclosing(self._ask(request)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelRequestError as error:
            if begun or not _UNREADABLE.search(str(error)) or (bare := without_thoughts()) == request:
                raise
        _log.warning("Claude cannot read the thoughts in this history: the conversation is sent without them")
        async with aclosing(self._ask(bare)) as events:
            async for event in events:
                yield event

    async def _ask(self, request: dict[str, Any]) -> AsyncGenerator[StreamEvent, None]:
        """One answer. A turn that pauses is sent back, so that it goes on."""
        reader = MessageReader(request["model"])
        for _ in range(_MOST_PAUSES):
            async with aclosing(self._service.events(request)) as events:
                async for event in events:
                    for told in reader.feed(event):
                        yield told
            reader.end()
            if not reader.paused:
                return
            request = {**request, "messages": _continued(request["messages"], reader.content)}
            reader.next_stream()
        raise ModelError(f"the answer was paused {_MOST_PAUSES} times: ask for less in one turn")


def _continued(turns: list[dict[str, Any]], content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if turns and turns[-1]["role"] == "assistant":
        return [*turns[:-1], {"role": "assistant", "content": [*turns[-1]["content"], *content]}]
    return [*turns, {"role": "assistant", "content": content}]


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration that can be used.

    Raises:
        InvalidInputError: If a key is unknown, a value makes no sense, or a parameter is the model's own to set.
        InvalidTypeError: If `params` is no dict.
    """
    known = {"model_id", "max_tokens", "params"}
    if unknown := sorted(config.keys() - known):
        raise InvalidInputError(f"{unknown[0]!r} cannot be configured: known are {sorted(known)!r}")
    model_id: object = config["model_id"]
    if not isinstance(model_id, str) or not model_id.strip():
        raise InvalidInputError(f"model_id={model_id!r} is not the name of a model")
    max_tokens: object = config["max_tokens"]
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise InvalidInputError(f"max_tokens={max_tokens!r} is not a number of tokens, from 1")
    params: object = config["params"]
    if not isinstance(params, Mapping):
        raise InvalidTypeError(f"params is {type(params).__name__}, not a dict of parameters")
    given = deepcopy(dict(cast("Mapping[str, Any]", params)))
    if own := sorted(OWN & given.keys()):
        raise InvalidInputError(f"params[{own[0]!r}] cannot be set: the model sets it for each request")
    return {"model_id": model_id, "max_tokens": max_tokens, "params": given}

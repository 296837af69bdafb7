"""OpenAI's Responses API, with the history at the provider or here."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import ModelHistoryLostError, ModelRequestError
from antiphon.models.base import Model, StreamEvent
from antiphon.models.endpoint import ApiKey
from antiphon.models.openai.config import checked_config
from antiphon.models.openai.responses_answer import ResponsesAnswer
from antiphon.models.openai.responses_request import OWN, input_items, responses_request, without_reasoning
from antiphon.models.openai.service import OpenAIService
from antiphon.models.retrying import Retries

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)


class OpenAIResponsesModel(Model):
    """Answers through `POST /responses`.

    With `stateful` the provider keeps the history: an agent sends only what is new, and finds the conversation again by the
    `response_id` in its `model_state`, which is saved with the session; going back to an older snapshot goes on from that
    snapshot's response. OpenAI keeps responses for 30 days. Without it nothing is stored there, and the whole history goes
    out each time, with the encrypted reasoning of earlier answers.

    Args:
        client_args: Arguments of `openai.AsyncOpenAI`, such as `timeout`, `default_headers`, `http_client`.
        model_id: The model, such as `gpt-5.1`.
        params: Parameters of every request, such as `{"max_output_tokens": 500, "reasoning": {"summary": "auto"}}`. They go
            out as they are; `tools` (the provider's own) are joined with the agent's.
        stateful: Whether the provider keeps the history.
        keep_history: For stateful models: whether `model_state` also keeps what was said, so that a conversation which the
            provider no longer has is sent to it anew. Its price: each snapshot holds the whole conversation, where a
            redaction does not find it.
        api_key: The key, or a function (also `async`) that gives one for each attempt. Else `OPENAI_API_KEY`.
        base_url: The endpoint, with its `/v1`. Else `OPENAI_BASE_URL`, else OpenAI's.
        environ: Where these variables, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID` are looked up; None: in the environment.
        tls: Whom to trust; None: whom the system trusts.
        client: A client of the SDK, used as it is in place of all of these, and never closed.
        retries: When the provider is asked again after an error that may pass.
        clock: Paces the waits between.

    Raises:
        MissingExtraError: If the package `openai` is not installed.
        ModelCredentialsError: If there is no key.
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(
        self,
        client_args: Mapping[str, Any] | None = None,
        *,
        model_id: str,
        params: Mapping[str, Any] | None = None,
        stateful: bool = False,
        keep_history: bool = False,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        client: AsyncOpenAI | None = None,
        retries: Retries = Retries(),  # noqa: B008 - a frozen value
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = checked_config({"model_id": model_id, "params": dict(params or {})}, OWN)
        self._stateful = stateful
        self._keep_history = keep_history
        self._plain: set[str] = set()  # models that were found to have no encrypted reasoning
        self._service = OpenAIService(
            client=client,
            client_args=client_args,
            api_key=api_key,
            base_url=base_url,
            environ=environ,
            tls=tls,
            retries=retries,
            clock=clock,
        )

    def __repr__(self) -> str:
        name, kept = type(self).__name__, ", stateful=True" if self._stateful else ""
        return f"{name}(model_id={self._config['model_id']!r}, base_url={self._service.address!r}{kept})"

    @property
    def stateful(self) -> bool:
        return self._stateful

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        """Change `model_id` or `params` from the next request on; `params` are replaced as a whole."""
        self._config = checked_config({**self._config, **config}, OWN)

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Answer a conversation: see `Model.stream`.

        Of a stateful model, `model_state` holds `response_id`, `open_calls` (calls of that response, which the next request
        answers) and, with `keep_history`, `items`. It changes when the answer is whole, and not before.

        Raises:
            ModelHistoryLostError: If the provider no longer has the response to go on from, and nobody else has.
            ModelError: As `Model.stream` says.
        """
        state = model_state if self._stateful and model_state is not None else {}
        new = input_items(messages, state.get("open_calls", ()))
        model_id, params = self._config["model_id"], self._config["params"]
        heard = ResponsesAnswer()
        items, previous = new, state.get("response_id")
        while True:
            encrypted = not self._stateful and model_id not in self._plain
            body = responses_request(
                items,
                tool_specs,
                system_prompt,
                model_id=model_id,
                params=params,
                store=self._stateful,
                previous=previous,
                encrypted=encrypted,
            )
            begun = False

            def decoder() -> ResponsesAnswer:
                nonlocal heard
                heard = ResponsesAnswer(model_id)
                return heard

            try:
                async with aclosing(self._service.answer("/responses", body, decoder)) as events:
                    async for event in events:
                        begun = True
                        yield event
                break
            except ModelRequestError as error:
                if begun:
                    raise
                items, previous = self._otherwise(error, items, state, model_id, previous, encrypted=encrypted)
        if self._stateful and model_state is not None:
            self._remember(model_state, heard, new)

    def _otherwise(
        self,
        error: ModelRequestError,
        items: list[dict[str, Any]],
        state: Mapping[str, Any],
        model_id: str,
        previous: str | None,
        *,
        encrypted: bool,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """How to ask again after a refusal that tells what the provider does not have or cannot read.

        Raises:
            ModelHistoryLostError: If the history is lost.
            ModelRequestError: `error`, if it is about something else.
        """
        told = str(error).lower()
        if previous is not None and ("previous_response" in told or "previous response" in told):
            if "items" not in state:
                raise ModelHistoryLostError(previous, str(error)) from error
            _log.warning("the provider no longer has response %r: the whole history is sent to it anew", previous)
            return [*state["items"], *items], None
        if encrypted and "encrypted content is not supported" in told:
            _log.info("model %r has no encrypted reasoning: it is not asked for any more", model_id)
            self._plain.add(model_id)
            return items, previous
        if "encrypted" in told and len(kept := without_reasoning(items)) < len(items):
            _log.warning("the provider cannot read the reasoning in this history, and gets it without: %s", error)
            return [dict(item) for item in kept], previous
        raise error

    def _remember(self, model_state: dict[str, Any], heard: ResponsesAnswer, new: Sequence[dict[str, Any]]) -> None:
        if heard.response_id is None:
            return
        if self._keep_history and (model_state.get("response_id") is None or "items" in model_state):
            model_state["items"] = [*model_state.get("items", ()), *new, *heard.items]
        model_state["response_id"] = heard.response_id
        model_state["open_calls"] = heard.open_calls

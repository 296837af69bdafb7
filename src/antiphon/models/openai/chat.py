"""OpenAI's chat completions, and whatever server speaks them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.models.base import Model, StreamEvent
from antiphon.models.endpoint import ApiKey
from antiphon.models.openai.chat_answer import ChatAnswer
from antiphon.models.openai.chat_request import OWN, chat_request
from antiphon.models.openai.config import checked_config
from antiphon.models.openai.service import OpenAIService
from antiphon.models.retrying import Retries

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIModel(Model):
    """Answers through `POST /chat/completions`: OpenAI, and compatible servers (vLLM, llama.cpp, Ollama, OpenRouter, ...).

    One object may serve many agents at once. A client lives for one request, so agents may run on any event loop; give
    `client` to share connections within one.

    Args:
        client_args: Arguments of `openai.AsyncOpenAI`, such as `timeout`, `default_headers`, `http_client`.
        model_id: The model, such as `gpt-5.1`.
        params: Parameters of every request, such as `{"max_completion_tokens": 500, "reasoning_effort": "low"}`. They go out
            as they are, also those only a compatible server knows. `stream_options: None` leaves that one out.
        api_key: The key, or a function (also `async`) that gives one for each attempt. Else `OPENAI_API_KEY`.
        base_url: The endpoint, with its `/v1`. Else `OPENAI_BASE_URL`, else OpenAI's.
        environ: Where these variables, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID` are looked up; None: in the environment.
        tls: Whom to trust; None: whom the system trusts.
        client: A client of the SDK, used as it is in place of all of these, and never closed.
        send_reasoning: Whether the reasoning of earlier answers is sent back as `reasoning_content`. Some servers want it
            while tools are called; OpenAI has no such field, and others refuse it.
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
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        client: AsyncOpenAI | None = None,
        send_reasoning: bool = False,
        retries: Retries = Retries(),  # noqa: B008 - a frozen value
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = checked_config({"model_id": model_id, "params": dict(params or {})}, OWN)
        self._send_reasoning = send_reasoning
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
        return f"{type(self).__name__}(model_id={self._config['model_id']!r}, base_url={self._service.address!r})"

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
        model_id = self._config["model_id"]
        body = chat_request(
            messages,
            tool_specs,
            system_prompt,
            model_id=model_id,
            params=self._config["params"],
            send_reasoning=self._send_reasoning,
        )
        async with aclosing(self._service.answer("/chat/completions", body, lambda: ChatAnswer(model_id))) as events:
            async for event in events:
                yield event

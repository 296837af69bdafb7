"""llama.cpp with a model loaded: shared by all who want the same file with the same settings."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from antiphon.errors import ModelError
from antiphon.models.llamacpp.gguf import GgufFacts, read_facts, template_takes_tools

LONGEST_DEFAULT_CONTEXT = 8192
_BATCH = 256
_CACHE_MIB = 256
_EXIT_S = 20.0
"""How long the end of the process waits for llama.cpp; it is at a word, at a part of a prompt, or loads a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a model is loaded with.

    Attributes:
        path: The GGUF file.
        context_size: Tokens of prompt and answer together; None: what the model was trained for, 8,192 at most.
        threads: Threads that calculate. More than there are idle cores make it slower, not faster.
        gpu_layers: Layers that are calculated on a GPU, where this build of llama.cpp has one; -1: all.
        chat_template: A Jinja template instead of the file's.
        projector: A file (`mmproj`) that lets the model see pictures.
    """

    path: str
    context_size: int | None = None
    threads: int = 1
    gpu_layers: int = 0
    chat_template: str | None = None
    projector: str | None = None


class Turn:
    """A request's place in the queue of an engine, which answers one after the other."""

    def __init__(self) -> None:
        self.gone = False
        self.wake: Callable[[], None] | None = None

    def leave(self) -> None:
        """Nobody waits for the answer any more. From any thread."""
        self.gone = True
        if (wake := self.wake) is not None:
            wake()


class _Inside:
    """Counts the threads that are within llama.cpp: the process must not end under them, for C++ aborts it then."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self.leaving = False

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def leave(self) -> None:
        """At the end of the process: let answers end where they are, and wait for that, within a bound."""
        self.leaving = True
        with self._changed:
            self._changed.wait_for(lambda: not self._count, _EXIT_S)


_inside = _Inside()
atexit.register(_inside.leave)


class Engine:
    """A loaded model. The memory is freed with the last model object that uses it.

    llama.cpp also opens a port on 127.0.0.1, which nobody needs: a key that is told to nobody locks it.
    """

    def __init__(self, settings: EngineSettings) -> None:
        xllamacpp: Any = import_module("xllamacpp")  # it has no types
        self.facts: GgufFacts = read_facts(settings.path)
        trained = self.facts.context_length or LONGEST_DEFAULT_CONTEXT
        self.context_size = settings.context_size or min(trained, LONGEST_DEFAULT_CONTEXT)
        self.takes_tools = (
            self.facts.takes_tools if settings.chat_template is None else template_takes_tools(settings.chat_template)
        )
        params: Any = xllamacpp.CommonParams()
        params.model.path = settings.path
        params.n_ctx = self.context_size
        params.n_parallel = 1
        # A request that is let go of ends between two batches of its prompt.
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
        params.n_gpu_layers = settings.gpu_layers
        params.n_threads_http = 1
        params.cache_ram_mib = _CACHE_MIB
        params.verbosity = -1  # nothing on stderr
        params.warmup = False
        params.use_jinja = True
        params.api_keys = [os.urandom(32).hex()]
        if settings.chat_template is not None:
            params.chat_template = settings.chat_template
        if settings.projector is not None:
            params.mmproj.path = settings.projector
        try:
            self._server: Any = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelError(
                f"llama.cpp could not load {settings.path!r} with a context of {self.context_size} tokens: {error}: is the "
                "file whole, does this version know its kind, is there enough memory?"
            ) from error
        # A server that is freed before its loop runs waits for ever, with the interpreter's lock held; one word, and it runs.
        self._server.handle_completions({"prompt": "a", "max_tokens": 1, "cache_prompt": False})
        self._free = threading.Condition()
        self._busy = False

    def chat(self, request: dict[str, Any], turn: Turn, put: Callable[[dict[str, Any]], bool]) -> None:
        """Answer a request; blocks. Other requests wait meanwhile, until their turn comes or they leave.

        Args:
            request: A request of the chat completions API, with `stream`.
            turn: Lets go of it.
            put: Takes each chunk; False ends the answer.
        """

        def take(chunk: dict[str, Any]) -> bool:
            return turn.gone or _inside.leaving or not put(chunk)  # True ends the answer

        with self._free:
            turn.wake = self._wake
            self._free.wait_for(lambda: turn.gone or not self._busy)
            if turn.gone or _inside.leaving:
                return
            self._busy = True
        try:
            with _inside:
                self._server.handle_chat_completions(request, take)
        finally:
            with self._free:
                self._busy = False
                self._free.notify_all()

    def _wake(self) -> None:
        with self._free:
            self._free.notify_all()


class _Place:
    """Where the engine of some settings is, or is being loaded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: weakref.ref[Engine] | None = None


_places: dict[EngineSettings, _Place] = {}
_lock = threading.Lock()


def engine_for(settings: EngineSettings) -> Engine:
    """The engine with these settings, loaded if nobody has it. Blocks; whoever wants the same one waits for it.

    Raises:
        ModelNotFoundError: If the file cannot be opened.
        ModelRequestError: If it is no GGUF file.
        ModelError: If llama.cpp cannot load it.
    """
    with _lock:
        place = _places.setdefault(settings, _Place())
    with place.lock:
        engine = None if place.engine is None else place.engine()
        if engine is None:
            with _inside:
                engine = Engine(settings)
            place.engine = weakref.ref(engine, partial(_forget, settings, place))
        return engine


def _forget(settings: EngineSettings, place: _Place, gone: weakref.ref[Engine]) -> None:
    if place.engine is gone:
        # Whoever waits for this place keeps it, and loads anew into it; it is only not found by others any more.
        _places.pop(settings, None)

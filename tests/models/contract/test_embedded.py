"""The scripted model keeps the contract of a model that answers in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from antiphon.errors import ContextWindowOverflowException, ModelThrottledException
from antiphon.models.base import Model
from antiphon.testing import Answer, ModelContract, ScriptedModel


class Held:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.begun = asyncio.Event()

    async def reached(self) -> None:
        await self.begun.wait()

    def release(self) -> None:
        self.event.set()


class Script:
    """The scripted model as a provider."""

    key = ""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.model = ScriptedModel([self._next] * 99)

    def _next(self, history):
        step, begun = self.steps.pop(0)
        if begun is not None:
            begun.set()
        return step

    def _add(self, step, begun=None):
        self.steps.append((step, begun))

    def say(self, text, *, reasoning=None):
        self._add(Answer(text=text, reasoning=reasoning or ""))

    def call_tools(self, calls, text=None):
        self._add(Answer(text=text or "", tool_uses=calls))

    def stop(self, reason):
        self._add(Answer(text="and so", stop_reason=reason))

    def throttle(self, retry_after=None):
        self._add(ModelThrottledException("too many"))

    def overflow(self):
        self._add(ContextWindowOverflowException("too long"))

    def cut(self, after_chunks=1):
        raise NotImplementedError

    def malformed(self):
        raise NotImplementedError

    def hold(self):
        held = Held()
        self._add(Answer(text="one two three", pause_after_words=1, until=held.event), held.begun)
        return held


class TestScripted(ModelContract):
    lacks = {
        "credentials": "there is no key",
        "model_names": "there is one model",
        "network": "there is no network",
        "breaks": "there is no wire to break",
        "throttling": "it does not ask again: the script says what comes",
    }

    @pytest.fixture
    def provider(self) -> Script:
        return Script()

    @pytest.fixture
    def make_model(self, provider: Script) -> Callable[..., Model]:
        return lambda **given: provider.model

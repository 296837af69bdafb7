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

    def release(self) -> None:
        self.event.set()


class Script:
    """The scripted model as a provider."""

    key = ""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.model = ScriptedModel([self._next] * 99)

    @property
    def requests(self):
        return self.model.requests

    def _next(self, history):
        return self.steps.pop(0)

    def say(self, text, *, reasoning=None):
        self.steps.append(Answer(text=text, reasoning=reasoning or ""))

    def call_tools(self, calls, text=None):
        self.steps.append(Answer(text=text or "", tool_uses=calls))

    def stop(self, reason):
        self.steps.append(Answer(text="and so", stop_reason=reason))

    def throttle(self, retry_after=None):
        self.steps.append(ModelThrottledException("too many"))

    def overflow(self):
        self.steps.append(ContextWindowOverflowException("too long"))

    def cut(self, after_chunks=1):
        raise NotImplementedError

    def malformed(self):
        raise NotImplementedError

    def hold(self):
        held = Held()
        self.steps.append(Answer(text="one two three", pause_after_words=1, until=held.event))
        return held


class TestScripted(ModelContract):
    provider_name = "Scripted"
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

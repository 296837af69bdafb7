"""The scripted live model, and the embedded one with a script, keep the contract of a live model."""

from __future__ import annotations

import pytest

from antiphon.testing import BidiModelContract
from tests.models.contract.script import Embedded, Script


class TestScripted(BidiModelContract):
    lacks = {
        "credentials": "there is no key",
        "model_names": "there is one model",
        "network": "there is no network",
    }

    @pytest.fixture
    def provider(self, clock):
        return Script(clock)

    @pytest.fixture
    def make_model(self, provider):
        return provider.make


class TestEmbeddedWithScript(TestScripted):
    @pytest.fixture
    def provider(self, clock):
        return Script(clock, Embedded)

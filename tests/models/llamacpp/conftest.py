"""A model that is loaded once for a process of tests; without its package or its weights the tests of it are skipped."""

import pytest

from antiphon.errors import MissingExtraError
from antiphon.models.llamacpp.chat import LlamaCppModel


@pytest.fixture(scope="session")
def loaded():
    """Keeps the weights in memory between tests."""
    try:
        return LlamaCppModel(temperature=0, seed=1, max_tokens=12, context_size=1024)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_model(loaded):
    """Makes models that share the weights."""
    return lambda **given: LlamaCppModel(
        **{"temperature": 0, "seed": 1, "max_tokens": 12, "context_size": 1024, **given}
    )

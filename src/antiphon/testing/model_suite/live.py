"""What a model that talks live is, as tests."""

from __future__ import annotations

from antiphon.testing.model_suite.support import Lacks


class BidiModelContract(Lacks):
    """The suite that defines a live model."""

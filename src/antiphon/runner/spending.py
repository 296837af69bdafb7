"""What a run costs: tokens, counted as the model tells of them."""

from __future__ import annotations

from typing import Any

from antiphon.agent.base import BaseAgent
from antiphon.store.base import add_usage


class Spending:
    """A session's usage: what was known of it when a run began, and what the run has taken since.

    Failed and cut off answers count, as far as the model has told.

    Args:
        agent: Made for the run.
        before: The session's usage when it began.
    """

    __slots__ = ("_agent", "_before", "_start")

    def __init__(self, agent: BaseAgent, before: dict[str, Any]) -> None:
        self._agent, self._before, self._start = agent, before, agent.usage

    def total(self) -> dict[str, Any]:
        """The session's usage now."""
        now, start = self._agent.usage, self._start
        if now == start:
            return dict(self._before)
        taken = {
            "inputTokens": now.input_tokens - start.input_tokens,
            "outputTokens": now.output_tokens - start.output_tokens,
            "totalTokens": now.total_tokens - start.total_tokens,
        }
        return add_usage(self._before, taken)

"""How long to wait when a model asks to slow down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetryStrategy:
    """Waits that double, in seconds, after each `ModelThrottledException`.

    Attributes:
        max_attempts: How often the model is asked in all.
        initial_delay: The first wait.
        max_delay: The longest wait.
    """

    max_attempts: int = 6
    initial_delay: float = 4.0
    max_delay: float = 128.0

    def delay(self, failures: int) -> float | None:
        """How long to wait after so many failures in a row, from 1; None: not again.

        >>> [ModelRetryStrategy(max_attempts=4).delay(failures) for failures in (1, 2, 3, 4)]
        [4.0, 8.0, 16.0, None]
        """
        if failures >= self.max_attempts:
            return None
        return float(min(self.initial_delay * 2.0 ** (failures - 1), self.max_delay))

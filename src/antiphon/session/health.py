"""How a session's saves are doing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SaveHealth:
    """How a session's saves are doing, over all of its agents.

    Attributes:
        saved_at: When something was saved last, in UTC; None when nothing was yet.
        behind: Whether an agent holds what could not be saved yet.
        last_error: What failed last, kept when later saves succeed: a save, or the reading of a damaged journal.
    """

    saved_at: datetime | None = None
    behind: bool = False
    last_error: Exception | None = None

    def with_save(self, moment: datetime) -> SaveHealth:
        """After a save that succeeded."""
        return replace(self, saved_at=moment)

    def with_error(self, error: Exception) -> SaveHealth:
        """After something failed."""
        return replace(self, last_error=error)

"""What may be said to tools, as phrases for the ears' grammar."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.content import ToolSpec
from antiphon.models.embedded.grammar import Phrase


def phrases(tool_specs: Sequence[ToolSpec]) -> list[Phrase]:
    """What may be said to these tools, and to the model itself."""
    return [("stop",)]

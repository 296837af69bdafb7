"""What the demo's processes tell the one that shows it: a line of JSON each, on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

News = dict[str, Any]


def tell(what: str, **data: Any) -> None:
    """Tell something at once."""
    print(json.dumps({"what": what, **data}), flush=True)


class Claims:
    """What a process says is true, and whether it was."""

    def __init__(self) -> None:
        self.failed = 0

    def claim(self, text: str, *, holds: bool) -> None:
        """Say that something is true."""
        self.failed += not holds
        tell("claim", text=text, holds=holds)

    @property
    def exit_code(self) -> int:
        """0 when everything was true."""
        return 1 if self.failed else 0


def read_news(line: bytes) -> News:
    """What a line says; a line of something else is passed on as noise."""
    try:
        news: Any = json.loads(line)
    except ValueError:
        news = None
    if isinstance(news, dict) and "what" in news:
        return cast("News", news)
    return {"what": "noise", "text": line.decode(errors="replace").rstrip()}


def warn(text: str) -> None:
    """Say something to people, on standard error."""
    print(text, file=sys.stderr, flush=True)

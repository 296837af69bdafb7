"""The process in which one subject does one case: `python -m benchmarks.subjects.X CASE [--quick]`.

Standard library only: peers' interpreters run it, too.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Mapping

Numbers = dict[str, float]
Work = Callable[[bool], "Numbers | Awaitable[Numbers]"]
"""Does a case, quickly if it is told so, and returns its figures by key."""


def main(cases: Mapping[str, Work]) -> None:
    """Do the case that the command line names, and print its figures as one line of JSON; null for one that is not here."""
    name, *options = sys.argv[1:]
    work = cases.get(name)
    numbers: Numbers | None = None
    if work is not None:
        done = work("--quick" in options)
        if inspect.isawaitable(done):
            import asyncio  # here, because what an import costs is measured in this process, too

            numbers = asyncio.run(_outcome(done))
        else:
            numbers = done
    print(json.dumps(numbers), flush=True)


async def _outcome(work: Awaitable[Numbers]) -> Numbers:
    return await work

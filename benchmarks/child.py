"""The process in which one subject does one case: `python -m benchmarks.subjects.X CASE [--quick]`.

Standard library only: peers' interpreters run it, too.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Mapping
from typing import Protocol

Numbers = dict[str, float]


class Work(Protocol):
    """Does a case."""

    def __call__(self, *, quick: bool) -> Numbers | Awaitable[Numbers]:
        """Its figures by key; when it is to be quick, of a little of the same work."""
        ...


def main(cases: Mapping[str, Work]) -> None:
    """Do the case that the command line names, and print its figures as one line of JSON; null for one that is not here."""
    name, *options = sys.argv[1:]
    work = cases.get(name)
    numbers: Numbers | None = None
    if work is not None:
        done = work(quick="--quick" in options)
        numbers = asyncio.run(_outcome(done)) if inspect.isawaitable(done) else done
    print(json.dumps(numbers), flush=True)


async def _outcome(work: Awaitable[Numbers]) -> Numbers:
    return await work

"""The runner over `InMemorySessionStore`."""

from __future__ import annotations

from contextlib import nullcontext

from benchmarks.child import main
from benchmarks.runs import runner_cases

if __name__ == "__main__":
    main(runner_cases(lambda _: nullcontext("memory:"), shared=False))

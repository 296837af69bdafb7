"""`baselines.AppendedLines`."""

from __future__ import annotations

from benchmarks.baselines import AppendedLines
from benchmarks.child import main
from benchmarks.turns import long_cases

if __name__ == "__main__":
    main(long_cases(AppendedLines))

"""`baselines.OverwrittenFile`."""

from __future__ import annotations

from benchmarks.baselines import OverwrittenFile
from benchmarks.child import main
from benchmarks.turns import store_cases

if __name__ == "__main__":
    main(store_cases(OverwrittenFile))

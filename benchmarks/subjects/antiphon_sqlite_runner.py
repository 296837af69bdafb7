"""The runner over `SQLiteSessionStore`."""

from __future__ import annotations

from benchmarks.child import main
from benchmarks.runs import local, runner_cases

if __name__ == "__main__":
    main(runner_cases(local("sqlite")))
